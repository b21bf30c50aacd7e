#pragma once

#include <cstdint>

#include "reel/backends/cpu/kernel.h"
#include "reel/backends/cpu/simd.h"
#include "reel/backends/cpu/transpose.h"

/// Rearranges pieces of a matrix so that a tile reads them from consecutive memory.
namespace reel::cpu::REEL_CPU_ISA::product {

/// A block of one register's rows and 16 bytes of columns, transposed: out[c], lane r = p[r * stride + c]. Rows from
/// `rows` on are not read; their lanes repeat the last row.
template <class T, int bytes>
REEL_INLINE void load_transposed(const T* p, int64_t stride, int rows, Vec<T, bytes> (&out)[kStrip<T>]) {
  load_strip([=](int r) { return p + (r < rows ? r : rows - 1) * stride; }, out);
}

/// y[c, r] = x[r, c] for x [rows, columns], up to one register of rows.
template <class T, int bytes, bool full>
REEL_INLINE void transpose_strip(const T* x, int64_t x_stride, int rows, int64_t columns, T* y, int64_t y_stride) {
  using V = Vec<T, bytes>;
  constexpr int lanes = 16 / static_cast<int>(sizeof(T));
  const auto mask = V::first(rows);
  const int height = full ? V::width : rows;
  const int64_t whole = columns / lanes * lanes;
  for (int64_t c = 0; c < whole; c += lanes) {
    V out[lanes];
    load_transposed(x + c, x_stride, height, out);
#pragma GCC unroll 4
    for (int i = 0; i < lanes; ++i) {
      if constexpr (full) {
        out[i].store(y + (c + i) * y_stride);
      } else {
        out[i].store(y + (c + i) * y_stride, mask);
      }
    }
  }
  for (int r = 0; r < height; ++r)
    for (int64_t c = whole; c < columns; ++c) y[c * y_stride + r] = x[r * x_stride + c];
}

/// y[c, r] = x[r, c] for x [rows, columns], in strips of `bytes` of rows and smaller ones for the rest. (Whole squares of 64 bytes
/// `transpose` below takes at once.)
template <class T, int bytes = min(kVectorBytes, 32)>
REEL_INLINE void transpose_strips(const T* x, int64_t x_stride, int64_t rows, int64_t columns, T* y, int64_t y_stride) {
  constexpr int width = Vec<T, bytes>::width;
  for (; rows >= width; rows -= width, x += width * x_stride, y += width)
    transpose_strip<T, bytes, true>(x, x_stride, width, columns, y, y_stride);
  if (rows == 0) return;
  if constexpr (bytes > 16) {
    transpose_strips<T, bytes / 2>(x, x_stride, rows, columns, y, y_stride);
  } else {
    transpose_strip<T, bytes, false>(x, x_stride, static_cast<int>(rows), columns, y, y_stride);
  }
}

/// y[c, r] = x[r, c] for x [rows, columns]. With AVX-512 in squares of whole lines, and of a few rows at a time, which the
/// processor foresees. The rest a cache line of columns at a time: the lines of y that are being written to are few, and stay near
/// even where they lie a power of two apart.
template <class T>
void transpose(const T* x, int64_t x_stride, int64_t rows, int64_t columns, T* y, int64_t y_stride) {
  constexpr int64_t line = 64 / static_cast<int64_t>(sizeof(T));
  const int64_t squares = kVectorBytes == 64 ? columns & -line : 0;
  if constexpr (kVectorBytes == 64)
    for (int64_t r = 0; rows - r >= line; r += line)
      for (int64_t c = 0; c < squares; c += line)
        transposition::square<T, 64>(x + r * x_stride + c, x_stride, y + c * y_stride + r, y_stride);
  for (int64_t c = 0; c < columns; c += line) {
    const int64_t r = c < squares ? rows & -line : 0;
    transpose_strips(x + r * x_stride + c, x_stride, rows - r, min(line, columns - c), y + c * y_stride + r, y_stride);
  }
}

/// y[r, c] = x[r, c] for x [rows, columns].
template <class T>
__attribute__((noinline)) void copy_rows(const T* x, int64_t x_stride, int64_t rows, int64_t columns, T* y,
                                         int64_t y_stride) {
  using V = Vec<T>;
  const int64_t whole = columns / V::width * V::width;
  const auto mask = V::first(columns - whole);
  for (int64_t r = 0; r < rows; ++r, x += x_stride, y += y_stride) {
    for (int64_t c = 0; c < whole; c += V::width) V::load(x + c).store(y + c);
    if (whole < columns) V::load(x + whole, mask).store(y + whole);
  }
}

/// x [rows, columns] in panels of `width` columns: y[c / width * panel + r * width + c % width] = x[r, c]. Rows are asked for
/// ahead: each begins where the processor does not foresee it.
template <class T, int64_t width>
void copy_into_panels(const T* x, int64_t x_stride, int64_t rows, int64_t columns, T* y, int64_t panel) {
  using V = Vec<T>;
  for (int64_t r = 0; r < rows; ++r, x += x_stride, y += width) {
    T* to = y;
    int64_t c = 0;
    for (; c + width <= columns; c += width, to += panel)
#pragma GCC unroll 4
      for (int64_t i = 0; i < width; i += V::width) {
        __builtin_prefetch(x + 4 * x_stride + c + i);
        V::load(x + c + i).store(to + i);
      }
    for (int64_t i = 0; c < columns; ++c, ++i) to[i] = x[c];
  }
}

}  // namespace reel::cpu::REEL_CPU_ISA::product
