#pragma once

#include <cstdint>

#include "reel/core/array.h"
#include "reel/core/macros.h"

namespace reel::cuda {

/// The axes over which N operands are walked together, outermost first; strides count elements. Goes to kernels by value.
template <int N>
struct Nest {
  int rank = 0;
  std::int64_t sizes[kMaxRank];
  std::int64_t strides[N][kMaxRank];

  std::int64_t size() const {
    std::int64_t product = 1;
    for (int i = 0; i < rank; ++i) product *= sizes[i];
    return product;
  }

  /// Adds an inner axis; joins it to the one before if every operand walks both without a gap.
  void push_back(std::int64_t size, const std::int64_t (&steps)[N]) {
    if (size == 1) return;
    bool joins = rank > 0;
    for (int k = 0; k < N; ++k) joins = joins && strides[k][rank - 1] == steps[k] * size;
    if (!joins) sizes[rank++] = 1;
    sizes[rank - 1] *= size;
    for (int k = 0; k < N; ++k) strides[k][rank - 1] = steps[k];
  }
};

/// The nest of N operands of one shape; null strides: a plain number (all 0).
template <int N>
Nest<N> nest_of(const Shape& shape, const std::int64_t* const (&strides)[N]) {
  Nest<N> nest;
  for (int axis = 0; axis < shape.rank(); ++axis) {
    std::int64_t steps[N];
    for (int k = 0; k < N; ++k) steps[k] = strides[k] != nullptr ? strides[k][axis] : 0;
    nest.push_back(shape[axis], steps);
  }
  return nest;
}

/// The same with the axes in the order in which they lie in y: neighbours in memory are walked by neighbouring threads.
template <int N>
Nest<N> nest_in_order_of(const Array& y, const Shape& shape, const std::int64_t* const (&strides)[N]) {
  int axes[kMaxRank];
  for (int axis = 0; axis < shape.rank(); ++axis) {
    int place = axis;
    const std::int64_t stride = __builtin_llabs(y.strides[axis]);
    for (; place > 0 && __builtin_llabs(y.strides[axes[place - 1]]) < stride; --place) axes[place] = axes[place - 1];
    axes[place] = axis;
  }
  Nest<N> nest;
  for (int i = 0; i < shape.rank(); ++i) {
    std::int64_t steps[N];
    for (int k = 0; k < N; ++k) steps[k] = strides[k] != nullptr ? strides[k][axes[i]] : 0;
    nest.push_back(shape[axes[i]], steps);
  }
  return nest;
}

/// Divides numbers below 2^31 by one number, at least 1: a product and a shift (Granlund and Montgomery).
struct Divisor {
  std::uint32_t size = 1, factor = 1, shift = 0;

  Divisor() = default;
  explicit Divisor(std::int64_t divisor) : size(static_cast<std::uint32_t>(divisor)) {
    while ((std::uint64_t{1} << shift) < size) ++shift;
    factor = static_cast<std::uint32_t>(((((std::uint64_t{1} << shift) - size) << 32) / size) + 1);
  }
  REEL_HOST_DEVICE std::uint32_t quotient(std::uint32_t number) const {
    return (static_cast<std::uint32_t>((std::uint64_t{number} * factor) >> 32) + number) >> shift;
  }
};

/// A nest as kernels walk over it that look for many places: axes innermost first, fewer than 2^31 positions.
template <int N>
struct Walk {
  int rank;
  std::uint32_t count;
  Divisor sizes[kMaxRank];
  std::int64_t strides[N][kMaxRank];

  /// Positions are packs of `pack` neighbours along the inner axis, along which the operands' strides are 0 or 1.
  explicit Walk(const Nest<N>& nest, int pack = 1)
      : rank(nest.rank), count(static_cast<std::uint32_t>(nest.size() / pack)) {
    for (int i = 0; i < rank; ++i) {
      const int axis = rank - 1 - i, part = i == 0 ? pack : 1;
      sizes[i] = Divisor(nest.sizes[axis] / part);
      for (int k = 0; k < N; ++k) strides[k][i] = nest.strides[k][axis] * part;
    }
  }
};

/// Whether all operands of a nest can be moved in packs of `pack` elements: those with gaps of 0 along the inner axis are
/// read as single elements, the last is written. `addresses`: where the operands begin, null for plain numbers; `sizes`: bytes
/// per element.
template <int N>
bool moves_in_packs(const Nest<N>& nest, int pack, const void* const (&addresses)[N], const std::size_t (&sizes)[N]) {
  const int inner = nest.rank - 1;
  if (inner < 0 || nest.sizes[inner] % pack != 0 || nest.strides[N - 1][inner] != 1) return false;
  for (int k = 0; k < N; ++k) {
    if (nest.strides[k][inner] == 0) continue;
    if (nest.strides[k][inner] != 1) return false;
    if (reinterpret_cast<std::uintptr_t>(addresses[k]) % (sizes[k] * static_cast<std::size_t>(pack)) != 0) return false;
    for (int axis = 0; axis < inner; ++axis)
      if (nest.strides[k][axis] % pack != 0) return false;
  }
  return true;
}

/// Calls f(part, offsets) for parts of the nest of fewer than 2^31 elements each, so that kernels divide 32-bit numbers;
/// operand k of a part starts at element offsets[k].
template <int N, class F>
void for_each_part(const Nest<N>& nest, F&& f, const std::int64_t (&offsets)[N]) {
  if (nest.size() == 0) return;
  if (nest.size() < std::int64_t{1} << 31) {
    f(nest, offsets);
    return;
  }
  int axis = 0;
  while (nest.sizes[axis] == 1) ++axis;
  Nest<N> first = nest, rest = nest;
  first.sizes[axis] = nest.sizes[axis] / 2;
  rest.sizes[axis] -= first.sizes[axis];
  std::int64_t moved[N];
  for (int k = 0; k < N; ++k) moved[k] = offsets[k] + first.sizes[axis] * nest.strides[k][axis];
  for_each_part(first, f, offsets);
  for_each_part(rest, f, moved);
}

}  // namespace reel::cuda
