#pragma once

// Plain loops that references are written with.

#include "reel/tests/ops/op_case.h"

namespace reel::test {

/// The index along each axis of element `flat`.
inline std::vector<std::int64_t> index_of(std::int64_t flat, const Shape& shape) {
  std::vector<std::int64_t> index(static_cast<std::size_t>(shape.rank()));
  for (int axis = shape.rank() - 1; axis >= 0; --axis) {
    index[static_cast<std::size_t>(axis)] = flat % shape[axis];
    flat /= shape[axis];
  }
  return index;
}

inline std::int64_t flat_of(const std::vector<std::int64_t>& index, const Shape& shape) {
  std::int64_t flat = 0;
  for (int axis = 0; axis < shape.rank(); ++axis) flat = flat * shape[axis] + index[static_cast<std::size_t>(axis)];
  return flat;
}

/// A result of `shape` whose element at each index is f(index).
template <class F>
Ref filled(const Shape& shape, F&& f) {
  Ref y{shape, {}};
  for (std::int64_t i = 0; i < shape.size(); ++i) y.v.push_back(f(index_of(i, shape)));
  return y;
}

inline double at(const Ref& x, const std::vector<std::int64_t>& index) {
  return x.v[static_cast<std::size_t>(flat_of(index, x.shape))];
}

/// x's element that broadcasting puts at `index` of a larger shape.
inline double broadcast_at(const Ref& x, const std::vector<std::int64_t>& index) {
  std::vector<std::int64_t> own(index.end() - x.shape.rank(), index.end());
  for (int i = 0; i < x.shape.rank(); ++i)
    if (x.shape[i] == 1) own[static_cast<std::size_t>(i)] = 0;
  return at(x, own);
}

inline Shape broadcast_shape(const Shape& a, const Shape& b) {
  Shape result;
  const int rank = std::max(a.rank(), b.rank());
  for (int i = 0; i < rank; ++i) {
    const std::int64_t x = i < rank - a.rank() ? 1 : a[i - rank + a.rank()];
    const std::int64_t y = i < rank - b.rank() ? 1 : b[i - rank + b.rank()];
    result.push_back(x == 1 ? y : x);
  }
  return result;
}

}  // namespace reel::test
