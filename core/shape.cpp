#include "reel/core/shape.h"

#include "reel/core/error.h"
#include "reel/core/index_text.h"

namespace reel {

namespace detail {

void refuse_axis(const char* call, const Shape& shape, std::int64_t axis, SourceLocation where) {
  throw IndexError(std::string(call) + ": axis must be in [0, " + std::to_string(shape.rank()) + ") of shape " +
                       shape.str() + ", got " + std::to_string(axis),
                   where);
}

void refuse_rank(const char* call, SourceLocation where) {
  throw ShapeError(std::string(call) + ": a shape must have at most " + std::to_string(kMaxRank) + " axes, got more",
                   where);
}

}  // namespace detail

std::string Shape::str() const {
  std::string text = "[";
  for (int i = 0; i < rank_; ++i) {
    if (i > 0) text += ", ";
    text += std::to_string(dims_[i]);
  }
  return text + "]";
}

}  // namespace reel

namespace reel::detail {

std::string index_text(std::int64_t flat, const Shape& shape) {
  std::string text;
  for (int axis = shape.rank() - 1; axis >= 0; --axis) {
    text = std::to_string(flat % shape[axis]) + (text.empty() ? "" : ", ") + text;
    flat /= shape[axis];
  }
  return "[" + text + "]";
}

}  // namespace reel::detail
