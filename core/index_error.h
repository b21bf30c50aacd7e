#pragma once

#include <cstdint>

#include "reel/core/macros.h"
#include "reel/core/source_location.h"

namespace reel {

/// Throws IndexError "op: indices must be in [0, limit), got value at position n (at file:line)". Out of line for kernels,
/// which are compiled once per instruction set and must build no strings.
[[noreturn]] REEL_API void throw_index_error(const char* op, std::int64_t limit, std::int64_t value,
                                             std::int64_t position, SourceLocation where);

}  // namespace reel
