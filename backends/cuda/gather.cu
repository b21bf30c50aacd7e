// Elements taken along an axis by index, and added back. Arrays are seen as [outer, n, inner] around the axis; a line is what
// one index of outer and inner leaves. Elements are added by a thread per line where there are many lines, else by sorting the
// places where they go. Indices out of range, which check_indices has reported, take zeros and add nothing.

#include "reel/backends/cuda/row_sum.h"

namespace reel::cuda {

namespace device {
namespace {

/// index and y are [outer, n, inner], x is [outer, m, inner]; or index is [n], of every line where inner is 1.
struct Gather {
  int64_t outer, n, m, inner;
  bool shared;

  REEL_DEVICE int64_t size() const { return outer * n * inner; }
  /// Where element i of y lies in x; -1 if its index is out of range.
  template <class Index>
  REEL_DEVICE int64_t place(const Index* index, int64_t i) const {
    const int64_t row = i / inner, block = row / n, at = index[shared ? row - block * n : i];
    return at >= 0 && at < m ? (block * m + at) * inner + (i - row * inner) : -1;
  }
};

/// An element per thread and step.
template <class Bits, class Index>
__global__ void gather(const Gather shape, const Bits* x, const Index* index, Bits* y) {
  for (int64_t i = first_unit(); i < shape.size(); i += unit_step()) {
    const int64_t from = shape.place(index, i);
    y[i] = from >= 0 ? x[from] : Bits{};
  }
}

/// A line per thread and step, in ascending order.
template <class T, class Index>
__global__ void add_lines(const Gather shape, const T* y, const Index* index, T* x) {
  for (int64_t line = first_unit(); line < shape.outer * shape.inner; line += unit_step()) {
    const int64_t o = line / shape.inner, first = o * shape.n * shape.inner + line - o * shape.inner;
    for (int64_t i = first; i < first + shape.n * shape.inner; i += shape.inner) {
      const int64_t to = shape.place(index, i);
      if (to >= 0) x[to] += y[i];
    }
  }
}

/// Places as keys; one behind the last where there is none.
template <class Index>
__global__ void places_of(const Gather shape, const Index* index, uint32_t* keys) {
  for (int64_t i = first_unit(); i < shape.size(); i += unit_step()) {
    const int64_t to = shape.place(index, i);
    keys[i] = static_cast<uint32_t>(to >= 0 ? to : shape.outer * shape.m * shape.inner);
  }
}

}  // namespace
}  // namespace device

namespace {

device::Gather shape_of(const Array& x, const Array& index, const Array& y, int axis) {
  const Blocks blocks(y.shape, axis);
  return {blocks.outer, blocks.n, x.shape[axis], blocks.inner, index.size != y.size};
}

}  // namespace

void CudaOps::gather(const Array& x, const Array& index, int axis, const Array& y) {
  if (y.size == 0) return;
  dispatch_bytes(size_of(x.dtype), [&]<class Bits>() {
    dispatch_index(index.dtype, [&]<class Index>() {
      launch(context_, "gather", grid_for(context_, y.size), &device::gather<Bits, Index>, shape_of(x, index, y, axis),
             x.as<Bits>(), index.as<Index>(), y.as<Bits>());
    });
  });
}

void CudaOps::scatter_add(const Array& y, const Array& index, int axis, const Array& x) {
  if (y.size == 0) return;
  constexpr int64_t kShortLine = 32;
  const device::Gather shape = shape_of(x, index, y, axis);
  const int64_t lines = shape.outer * shape.inner;
  const bool by_line =
      shape.n <= kShortLine || lines >= std::int64_t{context_.processors()} * 1024 || !is_sortable(y.size, x.size);
  dispatch_floating(x.dtype, [&]<class T>() {
    dispatch_index(index.dtype, [&]<class Index>() {
      if (by_line) {
        launch(context_, "scatter_add", grid_for(context_, lines), &device::add_lines<T, Index>, shape, y.as<T>(),
               index.as<Index>(), x.as<T>());
        return;
      }
      RadixSort<uint32_t> keys = sort_for_rows(context_, y.size);
      launch(context_, "scatter_add", grid_for(context_, y.size), &device::places_of<Index>, shape, index.as<Index>(),
             keys.keys());
      cuda::add_rows<T>(context_, keys, {y.as<T>(), x.as<T>(), y.size, x.size, 1});
    });
  });
}

}  // namespace reel::cuda
