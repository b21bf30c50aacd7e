#pragma once

#include <cstdint>
#include <utility>

#include "reel/backends/cpu/gemm_kernel.h"
#include "reel/backends/cpu/gemm_pack.h"

/// Dot products: few rows of a times many rows of a transposed b, as a layer does for a single sample. Each lane of a
/// register is the chain of one row of b; two registers at a time hide fma's latency.
namespace reel::cpu::REEL_CPU_ISA::product {

/// Rows of a: the most there can be, and those of tiles of one register. (With AVX2 five take as long by a tile, whose panel of a
/// transposed b costs less there; of doubles more was not tried.)
template <class T>
inline constexpr int kDotRows = kVectorBytes == 64 && sizeof(T) == 4 ? 8 : 4;
inline constexpr int kFewDotRows = 4;

/// Whether a product of m rows and n columns by a transposed b is best one of dot products: of many rows if columns are many too,
/// for those that are left over then cost little.
template <class T>
REEL_INLINE bool takes_dots(int64_t m, int64_t n) {
  return m <= kFewDotRows || (m <= kDotRows<T> && n >= 4 * Vec<T>::width);
}

/// c[i, j] (+)= sum over k of a[i * a_stride + k * a_step] b[j, k] for i < rows, j < columns: of one register, or of two, which
/// overlap where columns do not fill them: of these both compute the same bits.
template <class T, int rows, int vectors>
void dot_tile(const T* a, int64_t a_stride, int64_t a_step, const T* b, int64_t b_stride, int64_t k, int64_t columns,
              bool load_c, T* c, int64_t c_stride) {
  using V = Vec<T>;
  constexpr int lanes = 16 / static_cast<int>(sizeof(T));
  const auto mask = V::first(vectors == 1 ? columns : V::width);
  const int64_t begin[2] = {0, vectors == 2 ? columns - V::width : 0};

  V acc[rows][vectors];
#pragma GCC unroll 8
  for (int i = 0; i < rows; ++i)
#pragma GCC unroll 2
    for (int v = 0; v < vectors; ++v) {
      if (!load_c) {
        acc[i][v] = V::zero();
      } else if (vectors == 2) {
        acc[i][v] = V::load(c + i * c_stride + begin[v]);
      } else {
        acc[i][v] = V::load(c + i * c_stride, mask);
      }
    }
  const auto add_products = [&](int v, int64_t p, V column) __attribute__((always_inline)) {
#pragma GCC unroll 8
    for (int i = 0; i < rows; ++i) acc[i][v] = fma(V::broadcast(a[i * a_stride + p * a_step]), column, acc[i][v]);
  };

  int64_t p = 0;
  const int64_t stride = vectors == 2 ? b_stride : 0;  // of one register they are not used
  RowPointers<T, V::width> row[2] = {{b, stride}, {b + begin[1] * stride, stride}};
  if constexpr (kVectorBytes == 64 && vectors == 2 && rows <= 2) {
    // A line of each row at a time, of one register's rows after the other's: where rows lie a power of two apart, lines that are
    // read in pieces, and those of other rows in between, push one another out of the first cache.
    for (; p + V::width <= k; p += V::width)
#pragma GCC unroll 2
      for (int v = 0; v < 2; ++v) {
        V column[V::width];
        transposition::load_square([&](int r) { return row[v][r]; }, column);
        row[v].advance(kVectorBytes);
#pragma GCC unroll 16
        for (int q = 0; q < V::width; ++q) add_products(v, p + q, column[q]);
      }
  }
  for (const int64_t whole = k / lanes * lanes; p < whole; p += lanes) {
    V column[vectors][lanes];
#pragma GCC unroll 2
    for (int v = 0; v < vectors; ++v) {
      if constexpr (vectors == 2) {
        load_strip([&](int r) { return row[v][r]; }, column[v]);
        row[v].advance(16);
      } else {
        load_transposed(b + p, b_stride, static_cast<int>(columns), column[v]);
      }
    }
#pragma GCC unroll 4
    for (int q = 0; q < lanes; ++q)
#pragma GCC unroll 2
      for (int v = 0; v < vectors; ++v) add_products(v, p + q, column[v][q]);
  }
  for (; p < k; ++p) {
    alignas(kVectorBytes) T column[vectors * V::width] = {};
    const T* from = b + p;
    for (int64_t j = 0; j < columns; ++j, from += b_stride) {
      column[j] = *from;
      keep_in_register(from);  // not by gathers, whose code is longer than all the rest
    }
#pragma GCC unroll 2
    for (int v = 0; v < vectors; ++v) add_products(v, p, V::load(column + (vectors == 2 ? begin[v] : 0)));
  }

#pragma GCC unroll 8
  for (int i = 0; i < rows; ++i)
#pragma GCC unroll 2
    for (int v = 0; v < vectors; ++v) {
      if (vectors == 2) {
        acc[i][v].store(c + i * c_stride + begin[v]);
      } else {
        acc[i][v].store(c + i * c_stride, mask);
      }
    }
}

/// The above for m = 1 .. kDotRows rows and any number of columns up to two registers. (Of one register it takes few rows at a
/// time: that is for what is left of the columns.)
template <class T>
REEL_INLINE void dot_products(int64_t m, const T* a, int64_t a_stride, bool a_transposed, const T* b, int64_t b_stride,
                              int64_t k, int64_t columns, bool load_c, T* c, int64_t c_stride) {
  using Function = void (*)(const T*, int64_t, int64_t, const T*, int64_t, int64_t, int64_t, bool, T*, int64_t);
  static constexpr Function of_one[kFewDotRows] = {dot_tile<T, 1, 1>, dot_tile<T, 2, 1>, dot_tile<T, 3, 1>,
                                                   dot_tile<T, 4, 1>};
  struct Tiles {
    Function by_rows[kDotRows<T>];
  };
  static constexpr Tiles of_two = []<int... i>(std::integer_sequence<int, i...>) {
    return Tiles{{dot_tile<T, i + 1, 2>...}};
  }
  (std::make_integer_sequence<int, kDotRows<T>>());
  const int64_t row = a_transposed ? 1 : a_stride, step = a_transposed ? a_stride : 1;
  if (columns > Vec<T>::width) return of_two.by_rows[m - 1](a, row, step, b, b_stride, k, columns, load_c, c, c_stride);
  for (int64_t i = 0; i < m; i += kFewDotRows)
    of_one[min<int64_t>(kFewDotRows, m - i) - 1](a + i * row, row, step, b, b_stride, k, columns, load_c,
                                                 c + i * c_stride, c_stride);
}

}  // namespace reel::cpu::REEL_CPU_ISA::product
