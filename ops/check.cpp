#include "reel/ops/check.h"

#include "reel/ops/axes.h"

namespace reel {

namespace {

std::string prefix(const char* op, const char* name) { return std::string(op) + ": " + name; }

}  // namespace

namespace check {

void defined(const char* op, const char* name, const Tensor& x, SourceLocation where) {
  detail::now_running(op, where);
  if (!x.defined()) [[unlikely]]
    throw Error(prefix(op, name) + " must be defined", where);
}

void floating(const char* op, const char* name, const Tensor& x, SourceLocation where) {
  defined(op, name, x, where);
  if (!is_floating(x.dtype()) || is_half(x.dtype()))
    throw DTypeError(prefix(op, name) + " must be f32 or f64, got " + name_of(x.dtype()) +
                         (is_half(x.dtype()) ? "; cast to f32 first" : ""),
                     where);
}

void floating_or_half(const char* op, const char* name, const Tensor& x, SourceLocation where) {
  defined(op, name, x, where);
  if (!is_floating(x.dtype()))
    throw DTypeError(prefix(op, name) + " must be f32, f64, bf16 or f16, got " + name_of(x.dtype()), where);
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

int axis(const char* op, std::int64_t axis, int rank, SourceLocation where) {
  if (rank == 0)
    throw ShapeError(std::string(op) + ": a tensor with axes is required, got axis " + std::to_string(axis) +
                         " of one that has none, shape []",
                     where);
  if (axis < -rank || axis >= rank)
    throw ShapeError(std::string(op) + ": axis must be in [" + std::to_string(-rank) + ", " + std::to_string(rank) +
                         "), got " + std::to_string(axis),
                     where);
  return static_cast<int>(axis < 0 ? axis + rank : axis);
}

std::int64_t elements(const char* op, const Shape& shape, SourceLocation where, const Shape* given) {
  if (given == nullptr) given = &shape;
  std::int64_t product = 1;
  bool empty = false, fits = true;
  for (const std::int64_t size : shape) {
    empty = empty || size == 0;
    fits = fits && (size == 0 || !__builtin_mul_overflow(product, size, &product));
    if (size < 0) throw ShapeError(std::string(op) + ": sizes must not be negative, got shape " + given->str(), where);
  }
  if (!empty && !fits)
    throw ShapeError(std::string(op) + ": a shape must have fewer than 2^63 elements, got " + given->str(), where);
  return empty ? 0 : product;
}

std::int64_t plus(const char* op, std::int64_t a, std::int64_t b, SourceLocation where) {
  std::int64_t sum;
  if (__builtin_add_overflow(a, b, &sum))
    throw ShapeError(
        std::string(op) + ": sizes must be below 2^63, got " + std::to_string(a) + " + " + std::to_string(b), where);
  return sum;
}

std::int64_t times(const char* op, std::int64_t a, std::int64_t b, SourceLocation where) {
  std::int64_t product;
  if (__builtin_mul_overflow(a, b, &product))
    throw ShapeError(
        std::string(op) + ": sizes must be below 2^63, got " + std::to_string(a) + " * " + std::to_string(b), where);
  return product;
}

bool broadcasts(const Shape& a, const Shape& b, Shape& result) {
  const int rank = a.rank() > b.rank() ? a.rank() : b.rank();
  result = {};
  for (int i = 0; i < rank; ++i) {
    const int in_a = i - (rank - a.rank()), in_b = i - (rank - b.rank());
    const std::int64_t x = in_a < 0 ? 1 : a[in_a], y = in_b < 0 ? 1 : b[in_b];
    if (x != y && x != 1 && y != 1) return false;
    result.push_back(x == 1 ? y : x);
  }
  return true;
}

Shape broadcast(const char* op, const Shape& a, const Shape& b, SourceLocation where) {
  Shape result;
  if (!broadcasts(a, b, result))
    throw ShapeError(std::string(op) + ": shapes must be equal or broadcast, got " + a.str() + " and " + b.str(),
                     where);
  return result;
}

Shape broadcast(const char* op, const Shape& a, const Shape& b, const char* what, std::span<const Shape> given,
                SourceLocation where) {
  Shape result;
  if (broadcasts(a, b, result)) return result;
  std::string text = prefix(op, what) + " must be equal or broadcast, got ";
  for (std::size_t i = 0; i < given.size(); ++i)
    text += (i == 0 ? "" : i + 1 < given.size() ? ", " : " and ") + given[i].str();
  throw ShapeError(text, where);
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
  std::uint64_t stride = 1;  // may wrap before it meets an axis of size 0
  for (int i = shape.rank() - 1; i >= 0; --i) {
    strides[i] = static_cast<std::int64_t>(stride);
    stride *= static_cast<std::uint64_t>(shape[i]);
  }
  return view(x, 0, shape, strides);
}

}  // namespace detail

}  // namespace reel
