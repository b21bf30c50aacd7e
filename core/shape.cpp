#include "reel/core/shape.h"

#include "reel/core/error.h"

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
