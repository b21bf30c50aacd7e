#pragma once

// Numbers in texts, with a point whatever the program's locale is: pictures and JSON would be broken by a comma.

#include <string>

#include "reel/core/macros.h"

namespace reel::detail {

/// The shortest text that reads back as x ("1", "0.1", "1e-09", "nan"): what errors say that they got.
REEL_API std::string number_text(double x);

/// What printf writes in the C locale, cut after 399 characters.
[[gnu::format(printf, 1, 2)]] REEL_API std::string formatted(const char* format, ...);

}  // namespace reel::detail
