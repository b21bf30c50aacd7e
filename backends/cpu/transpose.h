#pragma once

#include <cstdint>

#include "reel/backends/cpu/kernel.h"

/// Transposition of elements of 4 and 8 bytes in registers: first within each 16 bytes, then their halves.
namespace reel::cpu::REEL_CPU_ISA {

namespace transposition {

#if defined(__AVX2__)
inline constexpr int kBytes = 32;
#else
inline constexpr int kBytes = 16;
#endif

template <class T>
inline constexpr int kSquare = sizeof(T) < 4 ? 1 : kBytes / static_cast<int>(sizeof(T));

/// a and b exchange runs of 2^stage elements, one instruction each: a takes the first of every two runs of both, b the second;
/// within 16 bytes all the first half, then all the second.
template <int stage, int bytes, class V>
REEL_INLINE void exchange(V& a, V& b) {
  const V x = a, y = b;
  if constexpr (bytes == 32 && sizeof(x[0]) == 4 && stage == 0) {
    a = __builtin_shufflevector(x, y, 0, 8, 1, 9, 4, 12, 5, 13);
    b = __builtin_shufflevector(x, y, 2, 10, 3, 11, 6, 14, 7, 15);
  } else if constexpr (bytes == 32 && sizeof(x[0]) == 4 && stage == 1) {
    a = __builtin_shufflevector(x, y, 0, 1, 8, 9, 4, 5, 12, 13);
    b = __builtin_shufflevector(x, y, 2, 3, 10, 11, 6, 7, 14, 15);
  } else if constexpr (bytes == 32 && sizeof(x[0]) == 4) {
    a = __builtin_shufflevector(x, y, 0, 1, 2, 3, 8, 9, 10, 11);
    b = __builtin_shufflevector(x, y, 4, 5, 6, 7, 12, 13, 14, 15);
  } else if constexpr (bytes == 32 && stage == 0) {
    a = __builtin_shufflevector(x, y, 0, 4, 2, 6);
    b = __builtin_shufflevector(x, y, 1, 5, 3, 7);
  } else if constexpr (sizeof(x[0]) == 4 && stage == 0) {
    a = __builtin_shufflevector(x, y, 0, 4, 1, 5);
    b = __builtin_shufflevector(x, y, 2, 6, 3, 7);
  } else if constexpr (bytes == 32 || sizeof(x[0]) == 4) {
    a = __builtin_shufflevector(x, y, 0, 1, 4, 5);
    b = __builtin_shufflevector(x, y, 2, 3, 6, 7);
  } else {
    a = __builtin_shufflevector(x, y, 0, 2);
    b = __builtin_shufflevector(x, y, 1, 3);
  }
}
template <int stage, class V, int n>
REEL_INLINE void exchange_all(V (&rows)[n]) {
#pragma GCC unroll 8
  for (int i = 0; i < n; ++i) {
    if ((i >> stage) % 2 == 0) exchange<stage, kBytes>(rows[i], rows[i + (1 << stage)]);
  }
}

/// y[r, c] = x[r, c] for r, c < kSquare, where x is contiguous along r and y along c. (Without arrays that are copied, and with
/// loops that the compiler unrolls early, everything stays in registers.)
template <class T>
REEL_INLINE void square(const T* x, int64_t x_stride, T* y, int64_t y_stride) {
  constexpr int n = kSquare<T>;
  typedef T Vector __attribute__((vector_size(kBytes)));
  typedef T Unaligned __attribute__((vector_size(kBytes), aligned(sizeof(T)), may_alias));
  Vector rows[n];
#pragma GCC unroll 8
  for (int i = 0; i < n; ++i) rows[i] = *reinterpret_cast<const Unaligned*>(x + i * x_stride);
  exchange_all<0>(rows);
  if constexpr (n > 2) exchange_all<1>(rows);
  if constexpr (n > 4) exchange_all<2>(rows);
#pragma GCC unroll 8
  for (int i = 0; i < n; ++i) {  // four elements in 16 bytes: the second and the third have changed places
    const int at = sizeof(T) == 4 ? (i & ~3) | (i % 2) * 2 | (i / 2 % 2) : i;
    *reinterpret_cast<Unaligned*>(y + i * y_stride) = rows[at];
  }
}

}  // namespace transposition

/// y [cols, rows] = x [rows, cols] transposed, both contiguous and in the cache. The last squares of a row and a column reach
/// back over those before.
template <class T>
REEL_INLINE void transpose_matrix(const T* x, int64_t rows, int64_t cols, T* y) {
  constexpr int64_t kSquare = transposition::kSquare<T>;
  if (rows < kSquare || cols < kSquare) {
    for (int64_t r = 0; r < rows; ++r) {
      for (int64_t c = 0; c < cols; ++c) y[c * rows + r] = x[r * cols + c];
    }
    return;
  }
  for (int64_t next_row = 0; next_row < rows; next_row += kSquare) {
    const int64_t r = min(next_row, rows - kSquare);
    for (int64_t next = 0; next < cols; next += kSquare) {
      const int64_t c = min(next, cols - kSquare);
      transposition::square(x + r * cols + c, cols, y + c * rows + r, rows);
    }
  }
}

/// Elements in a cache line.
template <class T>
inline constexpr int64_t kTransposeTile = 64 / static_cast<int64_t>(sizeof(T));

/// y[r, c] = x[r, c] for r < rows, c < cols, where x is contiguous along r and y along c.
template <class T>
void transpose_block(const T* x, int64_t x_stride, T* y, int64_t y_stride, int64_t rows, int64_t cols) {
  constexpr int64_t kTile = kTransposeTile<T>, kSquare = transposition::kSquare<T>;
  for (int64_t c = 0; c < cols; c += kTile) {
    for (int64_t r = 0; r < rows; r += kTile) {
      const int64_t tall = min(kTile, rows - r), wide = min(kTile, cols - c);
      const T* source = x + c * x_stride + r;
      T* target = y + r * y_stride + c;
      if constexpr (kSquare > 1) {
        if (tall == kTile && wide == kTile) {
          for (int64_t i = 0; i < kTile; i += kSquare) {
            for (int64_t j = 0; j < kTile; j += kSquare) {
              transposition::square(source + j * x_stride + i, x_stride, target + i * y_stride + j, y_stride);
            }
          }
          continue;
        }
      }
      for (int64_t i = 0; i < tall; ++i) {
        for (int64_t j = 0; j < wide; ++j) target[i * y_stride + j] = source[j * x_stride + i];
      }
    }
  }
}

}  // namespace reel::cpu::REEL_CPU_ISA
