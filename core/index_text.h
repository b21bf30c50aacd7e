#pragma once

// Private to Reel: an index as messages show it.

#include <string>

#include "reel/core/shape.h"

namespace reel::detail {

/// "[1, 0, 2]": the index of the element at row-major position `flat`.
std::string index_text(std::int64_t flat, const Shape& shape);

}  // namespace reel::detail
