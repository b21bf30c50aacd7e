#pragma once

#include <cstdint>

#include "reel/backends/cpu/kernel.h"

/// Transposition of elements of 4 and 8 bytes in registers: n vectors of n elements are interleaved log2(n) times.
namespace reel::cpu::REEL_CPU_ISA {

namespace transposition {

#if defined(__AVX2__)
inline constexpr int kBytes = 32;
#else
inline constexpr int kBytes = 16;
#endif

template <class T>
struct Row {
  typedef T type __attribute__((vector_size(kBytes)));
};

template <class V>
REEL_INLINE void interleave(V a, V b, V& low, V& high) {
  if constexpr (sizeof(V) / sizeof(a[0]) == 8) {
    low = __builtin_shufflevector(a, b, 0, 8, 1, 9, 2, 10, 3, 11);
    high = __builtin_shufflevector(a, b, 4, 12, 5, 13, 6, 14, 7, 15);
  } else if constexpr (sizeof(V) / sizeof(a[0]) == 4) {
    low = __builtin_shufflevector(a, b, 0, 4, 1, 5);
    high = __builtin_shufflevector(a, b, 2, 6, 3, 7);
  } else {
    low = __builtin_shufflevector(a, b, 0, 2);
    high = __builtin_shufflevector(a, b, 1, 3);
  }
}

template <class T>
inline constexpr int kSquare = sizeof(T) < 4 ? 1 : kBytes / static_cast<int>(sizeof(T));

/// y[r, c] = x[r, c] for r, c < kSquare, where x is contiguous along r and y along c.
template <class T>
REEL_INLINE void square(const T* x, int64_t x_stride, T* y, int64_t y_stride) {
  constexpr int n = kSquare<T>;
  using V = typename Row<T>::type;
  V rows[n], next[n];
  for (int i = 0; i < n; ++i) __builtin_memcpy(&rows[i], x + i * x_stride, sizeof(V));
  for (int stage = 1; stage < n; stage *= 2) {
    for (int i = 0; i < n / 2; ++i) interleave(rows[i], rows[i + n / 2], next[2 * i], next[2 * i + 1]);
    for (int i = 0; i < n; ++i) rows[i] = next[i];
  }
  for (int i = 0; i < n; ++i) __builtin_memcpy(y + i * y_stride, &rows[i], sizeof(V));
}

}  // namespace transposition

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
