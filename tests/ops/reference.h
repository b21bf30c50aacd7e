#pragma once

// Plain loops that references are written with.

#include <algorithm>
#include <initializer_list>
#include <utility>

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
  y.v.reserve(static_cast<std::size_t>(shape.size()));
  std::vector<std::int64_t> index(static_cast<std::size_t>(shape.rank()));
  for (std::int64_t i = 0; i < shape.size(); ++i) {
    y.v.push_back(f(std::as_const(index)));
    for (int axis = shape.rank() - 1; axis >= 0 && ++index[static_cast<std::size_t>(axis)] == shape[axis]; --axis)
      index[static_cast<std::size_t>(axis)] = 0;
  }
  return y;
}

/// x's element at index[0], index[1], ...; axes of size 1 are read at 0 if x is broadcast.
inline double element(const Ref& x, const std::int64_t* index, bool broadcast) {
  std::int64_t flat = 0;
  for (int axis = 0; axis < x.shape.rank(); ++axis)
    flat = flat * x.shape[axis] + (broadcast && x.shape[axis] == 1 ? 0 : index[axis]);
  return x.v[static_cast<std::size_t>(flat)];
}

// Called for every element of large references: without allocations.
inline double at(const Ref& x, const std::vector<std::int64_t>& index) { return element(x, index.data(), false); }
inline double at(const Ref& x, std::initializer_list<std::int64_t> index) { return element(x, index.begin(), false); }

/// x's element that broadcasting puts at `index` of a larger shape.
inline double broadcast_at(const Ref& x, const std::vector<std::int64_t>& index) {
  return element(x, index.data() + index.size() - x.shape.rank(), true);
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
