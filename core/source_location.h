#pragma once

#include "reel/core/macros.h"

namespace reel {

/// A line of the user's program, for error messages. (clang 14 has no std::source_location.)
struct SourceLocation {
  const char* file = "";
  int line = 0;

  /// As a default argument: the caller's line.
  REEL_INLINE static constexpr SourceLocation current(const char* file = __builtin_FILE(),
                                                      int line = __builtin_LINE()) {
    return {file, line};
  }
};

}  // namespace reel
