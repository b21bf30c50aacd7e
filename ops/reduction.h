#pragma once

#include <cstdint>

namespace reel {

/// How the losses of rows or elements become a result: their mean, their sum, or all of them.
enum class Reduction : std::uint8_t { mean, sum, none };

}  // namespace reel
