#pragma once

#include "reel/backends/cuda/kernel.h"

// Elementwise loops over arrays without gaps.

namespace reel::cuda {

namespace device {

/// y = f(a, b), all [count]; a pack per thread and step if all are at 16-byte boundaries, else an element.
template <class T, class F>
REEL_DEVICE void map(const T* a, const T* b, T* y, int64_t count, bool packed, F f) {
  int64_t done = 0;
  if (packed) {
    const int64_t packs = count / kPack<T>;
    for (int64_t i = first_unit(); i < packs; i += unit_step()) {
      const Pack<T> from_a = load_pack<T, kPack<T>>(a + i * kPack<T>),
                    from_b = load_pack<T, kPack<T>>(b + i * kPack<T>);
      Pack<T> to;
      REEL_UNROLL
      for (int k = 0; k < kPack<T>; ++k) to.v[k] = f(from_a.v[k], from_b.v[k]);
      store_pack(y + i * kPack<T>, to);
    }
    done = packs * kPack<T>;
  }
  for (int64_t i = done + first_unit(); i < count; i += unit_step()) y[i] = f(a[i], b[i]);
}

}  // namespace device

/// A launch for `map`, and whether its arrays may be read in packs.
struct MapGrid {
  Grid grid;
  bool packed;
};

template <class T>
MapGrid map_grid(const Context& context, const void* a, const void* b, const Array& y) {
  const bool packed = is_aligned(a, sizeof(T), kPack<T>) && is_aligned(b, sizeof(T), kPack<T>) &&
                      is_aligned(y.data, sizeof(T), kPack<T>);
  return {grid_for(context, packed ? ceil_div(y.size, kPack<T>) : y.size), packed};
}

}  // namespace reel::cuda
