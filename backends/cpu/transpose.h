#pragma once

#include <cstdint>
#include <utility>

#include "reel/backends/cpu/kernel.h"
#include "reel/backends/cpu/simd.h"

/// Transposition of elements of 4 and 8 bytes in registers, first within each 16 bytes: of squares, and of strips, as many columns as 16 bytes hold and as many rows as a vector has lanes, which are loaded and stored in pieces.
namespace reel::cpu::REEL_CPU_ISA {

/// The columns of a strip.
template <class T>
inline constexpr int kStrip = 16 / static_cast<int>(sizeof(T));

namespace transposition {

#if defined(__AVX2__)
inline constexpr int kBytes = 32;
#else
inline constexpr int kBytes = 16;
#endif

/// The side of a square of rows of so many bytes; 1: there is none.
template <class T, int bytes = kBytes>
inline constexpr int kSquare = sizeof(T) < 4 ? 1 : bytes / static_cast<int>(sizeof(T));

/// a and b exchange runs of 2^stage elements, one instruction each: in each 16 bytes (32 for runs of 16 bytes), a takes
/// the runs of the first halves of both in turn, b those of the second.
template <int stage, class V>
REEL_INLINE void exchange(V& a, V& b) {
  constexpr int size = sizeof(a[0]), width = sizeof(V) / size, run = 1 << stage;
  constexpr int block = max(2 * run, 16 / size);
  constexpr auto from = [](int lane) {
    const int k = lane % block;
    return lane - k + k / (2 * run) * run + k % run + (k / run % 2) * width;
  };
  const V x = a, y = b;
  [&]<int... i>(std::integer_sequence<int, i...>) __attribute__((always_inline)) {
    a = __builtin_shufflevector(x, y, from(i)...);
    b = __builtin_shufflevector(x, y, (from(i) + block / 2)...);
  }
  (std::make_integer_sequence<int, width>());
}

template <int stage, class V, int n>
REEL_INLINE void exchange_all(V (&rows)[n]) {
#pragma GCC unroll 16
  for (int i = 0; i < n; ++i) {
    if ((i >> stage) % 2 == 0) exchange<stage>(rows[i], rows[i + (1 << stage)]);
  }
}

/// As exchange, of runs of 16 bytes in 64: a takes the even ones of both, b the odd ones, by one instruction each, without a table of
/// lanes.
template <class V>
REEL_INLINE void exchange_sixteens(V& a, V& b) {
  constexpr int run = 16 / static_cast<int>(sizeof(a[0])), width = 4 * run;
  constexpr auto from = [](int lane) { return lane / run * 2 * run + lane % run; };  // b's lanes follow a's
  const V x = a, y = b;
  [&]<int... i>(std::integer_sequence<int, i...>) __attribute__((always_inline)) {
    a = __builtin_shufflevector(x, y, from(i)...);
    b = __builtin_shufflevector(x, y, (from(i) + run)...);
  }
  (std::make_integer_sequence<int, width>());
}

template <int distance, class V, int n>
REEL_INLINE void exchange_all_sixteens(V (&rows)[n]) {
#pragma GCC unroll 16
  for (int i = 0; i < n; ++i) {
    if (i / distance % 2 == 0) exchange_sixteens(rows[i], rows[i + distance]);
  }
}

/// Where exchanges leave column i. (Of four elements in 16 bytes the second and the third change places.)
template <class T>
REEL_INLINE constexpr int place_of_column(int i) {
  return sizeof(T) == 4 ? (i & ~3) | (i % 2) * 2 | (i / 2 % 2) : i;
}

/// Lane r of columns[c] = row(r)[c], for 64 bytes of each row. (Rows that are a quarter of all apart come into one register by a
/// load, which leaves three of four rounds of exchanges, all within the halves of rows.)
template <class T, class Row>
REEL_INLINE void load_square(Row row, Vec<T, 64> (&columns)[64 / sizeof(T)]) {
  constexpr int quarter = kStrip<T>, half = 2 * quarter;
#pragma GCC unroll 2
  for (int h = 0; h < 2; ++h) {
    decltype(columns[0].raw) rows[half];
#pragma GCC unroll 8
    for (int i = 0; i < half; ++i) {
      const int r = i < quarter ? i : i + quarter;
      rows[i] = join(Vec<T, 32>::load(row(r) + h * half), Vec<T, 32>::load(row(r + quarter) + h * half)).raw;
    }
    exchange_all<0>(rows);
    if constexpr (quarter == 4) exchange_all<1>(rows);
    exchange_all_sixteens<quarter>(rows);
#pragma GCC unroll 8
    for (int i = 0; i < half; ++i) columns[h * half + i].raw = rows[place_of_column<T>(i)];
  }
}

/// y[r, c] = x[r, c] for r, c < kSquare, where x is contiguous along r and y along c. (With loops that the
/// compiler unrolls early everything stays in registers.)
template <class T, int bytes = kBytes>
REEL_INLINE void square(const T* x, int64_t x_stride, T* y, int64_t y_stride) {
  constexpr int n = kSquare<T, bytes>;
  if constexpr (bytes == 64) {
    Vec<T, bytes> columns[n];
    load_square([=](int r) { return x + r * x_stride; }, columns);
#pragma GCC unroll 16
    for (int i = 0; i < n; ++i) columns[i].store(y + i * y_stride);
  } else {
    typedef T Vector __attribute__((vector_size(bytes)));
    typedef T Unaligned __attribute__((vector_size(bytes), aligned(sizeof(T)), may_alias));
    Vector rows[n];
#pragma GCC unroll 16
    for (int i = 0; i < n; ++i) rows[i] = *reinterpret_cast<const Unaligned*>(x + i * x_stride);
    exchange_all<0>(rows);
    if constexpr (n > 2) exchange_all<1>(rows);
    if constexpr (n > 4) exchange_all<2>(rows);
#pragma GCC unroll 16
    for (int i = 0; i < n; ++i) *reinterpret_cast<Unaligned*>(y + i * y_stride) = rows[place_of_column<T>(i)];
  }
}

/// Within each 16 bytes v[i][k] and v[k][i] change places.
template <class T, int bytes>
REEL_INLINE void turn(Vec<T, bytes> (&v)[kStrip<T>]) {
  exchange<0>(v[0].raw, v[1].raw);
  if constexpr (kStrip<T> == 4) {
    exchange<0>(v[2].raw, v[3].raw);
    exchange<1>(v[0].raw, v[2].raw);
    exchange<1>(v[1].raw, v[3].raw);
    const Vec<T, bytes> second = v[2];
    v[2] = v[1];
    v[1] = second;
  }
}

/// 16 bytes of each of the rows r, r + kStrip, r + 2 kStrip, ..., which start at row(r).
template <class T, int bytes, class Row>
REEL_INLINE Vec<T, bytes> load_pieces(Row row, int r) {
  if constexpr (bytes == 16) {
    return Vec<T, 16>::load(row(r));
  } else {
    constexpr int half = bytes / 2;
    return join(load_pieces<T, half>(row, r), load_pieces<T, half>(row, r + Vec<T, half>::width));
  }
}
template <class T, int bytes, class Row>
REEL_INLINE void store_pieces(Vec<T, bytes> v, Row row, int r) {
  if constexpr (bytes == 16) {
    v.store(row(r));
  } else {
    store_pieces(low_half(v), row, r);
    store_pieces(high_half(v), row, r + Vec<T, bytes / 2>::width);
  }
}

}  // namespace transposition

/// Lane r of columns[c] = row(r)[c].
template <class T, int bytes, class Row>
REEL_INLINE void load_strip(Row row, Vec<T, bytes> (&columns)[kStrip<T>]) {
#pragma GCC unroll 4
  for (int r = 0; r < kStrip<T>; ++r) columns[r] = transposition::load_pieces<T, bytes>(row, r);
  transposition::turn(columns);
}
/// The inverse; columns are overwritten.
template <class T, int bytes, class Row>
REEL_INLINE void store_strip(Vec<T, bytes> (&columns)[kStrip<T>], Row row) {
  transposition::turn(columns);
#pragma GCC unroll 4
  for (int r = 0; r < kStrip<T>; ++r) transposition::store_pieces(columns[r], row, r);
}

/// Lane r is what `reduce` makes of rows[r]; for all together it takes about as many instructions as a transposition. rows are
/// overwritten.
template <class T, int bytes, int count, class F>
REEL_INLINE Vec<T, bytes> reduce_each(Vec<T, bytes> (&rows)[count], F f) {
  static_assert(count == Vec<T, bytes>::width);
  const auto fold = [&]<int stage>(int r, int other) __attribute__((always_inline)) {
    transposition::exchange<stage>(rows[r].raw, rows[other].raw);
    rows[r] = f(rows[r], rows[other]);
  };
  const auto fold_halves = [&]<int stage>() __attribute__((always_inline)) {
    constexpr int distance = 1 << stage;
    if constexpr (distance >= kStrip<T> && distance < count) {
#pragma GCC unroll 8
      for (int r = 0; r < distance; ++r) fold.template operator()<stage>(r, r + distance);
    }
  };
  fold_halves.template operator()<3>();
  fold_halves.template operator()<2>();
  fold_halves.template operator()<1>();
  fold.template operator()<0>(0, 1);  // now within 16 bytes
  if constexpr (kStrip<T> == 4) {
    fold.template operator()<0>(2, 3);
    fold.template operator()<1>(0, 2);
  }
  return rows[0];
}

/// Elements in a cache line.
template <class T>
inline constexpr int64_t kTransposeTile = 64 / static_cast<int64_t>(sizeof(T));

/// Bytes from row to row from which on rows that are written in turns share a set of the caches.
inline constexpr int64_t kFarRow = 4096;

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
      if (tall >= wide) {  // the inner loop is the longer one
        for (int64_t j = 0; j < wide; ++j) {
          for (int64_t i = 0; i < tall; ++i) target[i * y_stride + j] = source[j * x_stride + i];
        }
      } else {
        for (int64_t i = 0; i < tall; ++i) {
          for (int64_t j = 0; j < wide; ++j) target[i * y_stride + j] = source[j * x_stride + i];
        }
      }
    }
  }
}

}  // namespace reel::cpu::REEL_CPU_ISA
