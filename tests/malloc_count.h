#pragma once

#include <cstdint>

namespace reel {

/// Calls of malloc and its kind (operator new too) in this program so far, by all threads; see malloc_count.cpp.
std::int64_t malloc_calls();
/// False under a sanitizer, which has a malloc of its own.
bool malloc_is_counted();

}  // namespace reel
