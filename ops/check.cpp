#include "reel/ops/check.h"

#include "reel/ops/axes.h"

namespace reel {

namespace {

std::string prefix(const char* op, const char* name) { return std::string(op) + ": " + name; }

}  // namespace

namespace check {

void floating(const char* op, const char* name, const Tensor& x, SourceLocation where) {
  defined(op, name, x, where);
  if (!is_floating(x.dtype()))
    throw DTypeError(prefix(op, name) + " must be f32 or f64, got " + name_of(x.dtype()), where);
}

void index(const char* op, const char* name, const Tensor& x, SourceLocation where) {
  defined(op, name, x, where);
  if (x.dtype() != i32 && x.dtype() != i64)
    throw DTypeError(prefix(op, name) + " must be i32 or i64, got " + name_of(x.dtype()), where);
}

void like(const char* op, const char* name, const Tensor& x, const char* other, const Tensor& y, SourceLocation where) {
  defined(op, name, x, where);
  if (x.dtype() != y.dtype())
    throw DTypeError(
        prefix(op, name) + " must be " + name_of(y.dtype()) + " like " + other + ", got " + name_of(x.dtype()), where);
  if (!(x.device() == y.device()))
    throw DeviceError(
        prefix(op, name) + " must be on " + y.device().name() + " like " + other + ", got " + x.device().name(), where);
}

void shape(const char* op, const char* name, const Tensor& x, const Shape& expected, SourceLocation where) {
  if (!(x.shape() == expected))
    throw ShapeError(prefix(op, name) + " must have shape " + expected.str() + ", got " + x.shape().str(), where);
}

void rank(const char* op, const char* name, const Tensor& x, int rank, const char* form, SourceLocation where) {
  defined(op, name, x, where);
  if (x.rank() != rank)
    throw ShapeError(prefix(op, name) + " must have shape " + form + ", got " + x.shape().str(), where);
}

int axis(const char* op, int axis, int rank, SourceLocation where) {
  if (axis < -rank || axis >= rank)
    throw ShapeError(std::string(op) + ": axis must be in [-" + std::to_string(rank) + ", " + std::to_string(rank) +
                         "), got " + std::to_string(axis),
                     where);
  return axis < 0 ? axis + rank : axis;
}

Shape broadcast(const char* op, const Shape& a, const Shape& b, SourceLocation where) {
  const int rank = a.rank() > b.rank() ? a.rank() : b.rank();
  Shape result;
  for (int i = 0; i < rank; ++i) {
    const int in_a = i - (rank - a.rank()), in_b = i - (rank - b.rank());
    const std::int64_t x = in_a < 0 ? 1 : a[in_a], y = in_b < 0 ? 1 : b[in_b];
    if (x != y && x != 1 && y != 1)
      throw ShapeError(std::string(op) + ": shapes must be equal or broadcast, got " + a.str() + " and " + b.str(),
                       where);
    result.push_back(x == 1 ? y : x);
  }
  return result;
}

}  // namespace check

std::uint32_t Axes::mask(const char* op, int rank, SourceLocation where) const {
  if (all_) return (1u << rank) - 1;
  std::uint32_t bits = 0;
  for (int i = 0; i < count_; ++i) {
    const int axis = i < kMaxRank ? check::axis(op, list_[i], rank == 0 ? 1 : rank, where) : 0;
    if ((bits >> axis & 1) != 0)
      throw ShapeError(std::string(op) + ": axes must differ, got axis " + std::to_string(axis) + " twice", where);
    bits |= 1u << axis;
  }
  return rank == 0 ? 0 : bits;
}

namespace detail {

Tensor broadcast_view(const Tensor& x, const Shape& shape) {
  std::int64_t strides[kMaxRank];
  const int lead = shape.rank() - x.rank();
  for (int i = 0; i < shape.rank(); ++i)
    strides[i] = i < lead || (x.shape()[i - lead] == 1 && shape[i] != 1) ? 0 : x.stride(i - lead);
  return view(x, 0, shape, strides);
}

Tensor reshaped(const Tensor& x, const Shape& shape) {
  std::int64_t strides[kMaxRank];
  std::int64_t stride = 1;
  for (int i = shape.rank() - 1; i >= 0; --i) {
    strides[i] = stride;
    stride *= shape[i];
  }
  return view(x, 0, shape, strides);
}

}  // namespace detail

}  // namespace reel
