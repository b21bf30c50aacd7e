#pragma once

#include <cstdint>

#include "reel/backends/cpu/gemm_pack.h"

/// Dot products: few rows of a times many rows of a transposed b, as a layer does for a single sample. Each lane of a
/// register is the chain of one row of b; two registers at a time hide fma's latency.
namespace reel::cpu::REEL_CPU_ISA::product {

inline constexpr int kDotRows = 4;  // of a

/// c[i, j] (+)= sum over k of a[i * a_stride + k * a_step] b[j, k] for i < rows, j < columns, up to `vectors` registers.
template <class T, int rows, int vectors>
void dot_tile(const T* a, int64_t a_stride, int64_t a_step, const T* b, int64_t b_stride, int64_t k, int64_t columns,
              bool load_c, T* c, int64_t c_stride) {
  using V = Vec<T>;
  constexpr int lanes = 16 / static_cast<int>(sizeof(T));
  constexpr int last = vectors - 1;
  const int last_columns = static_cast<int>(columns) - last * V::width;
  const auto mask = V::first(last_columns);

  V acc[rows][vectors];
#pragma GCC unroll 4
  for (int i = 0; i < rows; ++i)
#pragma GCC unroll 2
    for (int v = 0; v < vectors; ++v) {
      if (!load_c) {
        acc[i][v] = V::zero();
      } else if (v < last) {
        acc[i][v] = V::load(c + i * c_stride + v * V::width);
      } else {
        acc[i][v] = V::load(c + i * c_stride + v * V::width, mask);
      }
    }

  const int64_t whole = k / lanes * lanes;
  for (int64_t p = 0; p < whole; p += lanes) {
    V column[vectors][lanes];
#pragma GCC unroll 2
    for (int v = 0; v < vectors; ++v)
      load_transposed(b + v * V::width * b_stride + p, b_stride, v < last ? V::width : last_columns, column[v]);
#pragma GCC unroll 4
    for (int q = 0; q < lanes; ++q)
#pragma GCC unroll 4
      for (int i = 0; i < rows; ++i) {
        const V a_i = V::broadcast(a[i * a_stride + (p + q) * a_step]);
#pragma GCC unroll 2
        for (int v = 0; v < vectors; ++v) acc[i][v] = fma(a_i, column[v][q], acc[i][v]);
      }
  }
  for (int64_t p = whole; p < k; ++p) {
    alignas(kVectorBytes) T column[vectors * V::width] = {};
    for (int64_t j = 0; j < columns; ++j) column[j] = b[j * b_stride + p];
#pragma GCC unroll 4
    for (int i = 0; i < rows; ++i)
#pragma GCC unroll 2
      for (int v = 0; v < vectors; ++v)
        acc[i][v] = fma(V::broadcast(a[i * a_stride + p * a_step]), V::load(column + v * V::width), acc[i][v]);
  }

#pragma GCC unroll 4
  for (int i = 0; i < rows; ++i)
#pragma GCC unroll 2
    for (int v = 0; v < vectors; ++v) {
      if (v < last) {
        acc[i][v].store(c + i * c_stride + v * V::width);
      } else {
        acc[i][v].store(c + i * c_stride + v * V::width, mask);
      }
    }
}

/// The above for m = 1 .. kDotRows rows and any number of columns up to two registers.
template <class T>
REEL_INLINE void dot_products(int64_t m, const T* a, int64_t a_stride, bool a_transposed, const T* b, int64_t b_stride,
                              int64_t k, int64_t columns, bool load_c, T* c, int64_t c_stride) {
  using Function = void (*)(const T*, int64_t, int64_t, const T*, int64_t, int64_t, int64_t, bool, T*, int64_t);
  static constexpr Function tiles[kDotRows][2] = {{dot_tile<T, 1, 1>, dot_tile<T, 1, 2>},
                                                  {dot_tile<T, 2, 1>, dot_tile<T, 2, 2>},
                                                  {dot_tile<T, 3, 1>, dot_tile<T, 3, 2>},
                                                  {dot_tile<T, 4, 1>, dot_tile<T, 4, 2>}};
  tiles[m - 1][columns > Vec<T>::width](a, a_transposed ? 1 : a_stride, a_transposed ? a_stride : 1, b, b_stride, k,
                                        columns, load_c, c, c_stride);
}

}  // namespace reel::cpu::REEL_CPU_ISA::product
