#pragma once

#include <cstdint>

namespace reel::scalar {

/// What `derivative` of a unary op takes: the op's input, its output, or a value that it ignores.
enum class Saved : std::uint8_t { input, output, none };

}  // namespace reel::scalar
