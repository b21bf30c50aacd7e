#pragma once

#include <cstdint>

#include "reel/core/macros.h"
#include "reel/core/source_location.h"

namespace reel {

/// The limit of indices that count rows of their own sequence: each has its own, which whoever checks knows.
inline constexpr std::int64_t kOfSequences = -1;

/// Throws IndexError "op: indices must be in [0, limit), got value at position n (at file:line)". Out of line for kernels,
/// which are compiled once per instruction set and must build no strings.
[[noreturn]] REEL_API void throw_index_error(const char* op, std::int64_t limit, std::int64_t value,
                                             std::int64_t position, SourceLocation where);

}  // namespace reel
