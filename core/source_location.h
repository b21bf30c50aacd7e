#pragma once

#include "reel/core/macros.h"

namespace reel {

/// A line of the user's program, for error messages. (clang 14 has no std::source_location.)
struct SourceLocation {
  const char* file = "";
  int line = 0;

  constexpr bool known() const { return line != 0; }

  /// As a default argument: the caller's line; unknown if that is Reel itself, which has the user's line from its caller.
  REEL_INLINE static constexpr SourceLocation current(const char* file = __builtin_FILE(),
                                                      int line = __builtin_LINE()) {
    return REEL_USER_CODE ? SourceLocation{file, line} : SourceLocation{};
  }
};

}  // namespace reel
