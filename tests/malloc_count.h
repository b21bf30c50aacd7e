#pragma once

#include <cstdint>

namespace reel {

/// Calls of malloc and its kind (operator new too) in this program so far, by all threads; see malloc_count.cpp.
std::int64_t malloc_calls();
/// The system gives so many aligned blocks, from which tensors and working memory are made, and no more.
void limit_aligned_blocks(std::int64_t count);
/// Of the calls of malloc from now on, so many succeed, and the next one gives null.
void fail_malloc_after(std::int64_t count);
/// None fails.
void fail_no_malloc();
/// False under a sanitizer, which has a malloc of its own.
bool malloc_is_counted();

}  // namespace reel
