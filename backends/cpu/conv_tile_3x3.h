#pragma once

#include "reel/backends/cpu/conv_layout.h"
#include "reel/backends/cpu/simd.h"

/// The inner kernel for 3x3 correlations with one output channel. With a single row of weights, loads would be the limit:
/// every fused multiply-add reads its input from memory. Here several output rows that lie one dilation apart share what
/// they read, each vector of input serving up to three of them. The chains are those of conv_tile.h, to the bit.
namespace reel::cpu::REEL_CPU_ISA {

/// Output rows and vectors of a tile: rows * vectors sums, `vectors` inputs and one weight, or on v4 all nine, in registers. (A fourth
/// row of 64-bit floats would be a hundredth of the library, and a few per cent.)
template <class T>
inline constexpr int kSharedRows = sizeof(T) == sizeof(float) ? 4 : 3;
#if defined(REEL_SIMD_AVX512)
inline constexpr int kSharedVectors = 4;
#elif defined(__AVX2__)
inline constexpr int kSharedVectors = 3;
#else
inline constexpr int kSharedVectors = 2;
#endif

template <class T>
struct SharedRowsArguments {
  const T* weight;          // [in, 3, 3]
  const T* x;               // packed; tap (0, 0) of the first output row
  int64_t in;               // input channels
  int64_t x_channel;        // elements between them
  int64_t x_row, x_column;  // elements between taps, one dilation apart
  const T* start;           // a vector from which sums start, unless they resume from what y has
  bool resumes, relu;
  T* y;
  int64_t y_row;  // elements between output rows that are one dilation apart
  int64_t start_row = 0, start_vector = 0;
  const T* next = nullptr;  // null, or what will be packed next, for the first output row: as many channels and rows
  int64_t next_channel = 0, next_row = 0;
};

/// Whether tiles ask for what will be packed next, a little for each channel, where it comes from memory: else the memory waits
/// while they calculate, and they while it is packed (on a Zen 3 1.2 to 1.3 times as long, for inputs of 13 and 17 MB; to ask for
/// all of a tile's at once gains nothing). With AVX-512 it has not been measured.
inline constexpr bool kAsksForNext = kVectorBytes == 32;

/// The outputs at y, `last` lanes of the last vector.
template <class T, int rows, int vectors>
REEL_INLINE void shared_rows_tile(const SharedRowsArguments<T>& a, const T* tile_x, T* y, int64_t last) {
  using V = Vec<T>;
  V sum[rows][vectors];
  const T* const tile_y = y;
  const T* start = a.resumes ? y : a.start;
#pragma GCC unroll 16
  for (int r = 0; r < rows; ++r, start += a.start_row) {
#pragma GCC unroll 16
    for (int v = 0; v < vectors; ++v) {
      const T* from = start + v * a.start_vector;
      sum[r][v] = v + 1 < vectors ? V::load(from) : V::load(from, V::first(last));
    }
  }
  for (int64_t i = 0; i < a.in; ++i) {
    const T *x = tile_x + i * a.x_channel, *weight = a.weight + 9 * i;
    if (kAsksForNext && a.next != nullptr) {  // for the part of it that lies where this tile does
      const T* next = a.next + (tile_y - a.y) + i * a.next_channel;
#pragma GCC unroll 16
      for (int r = 0; r < rows; ++r, next += a.next_row) {
        for (int k = 0; k < vectors * V::width; k += 64 / static_cast<int>(sizeof(T))) __builtin_prefetch(next + k);
      }
    }
#pragma GCC unroll 16
    for (int row = 0; row < rows + 2; ++row, x += a.x_row) {
#pragma GCC unroll 16
      for (int column = 0; column < 3; ++column) {
        const T* at = x + column * a.x_column;
        __asm__("" : "+r"(at));  // else all addresses of the tile are computed ahead and spilled
#if !defined(REEL_SIMD_AVX512)
        __asm__("" : "+r"(weight));  // else all weights are loaded ahead and spilled
#endif
        V in[vectors];
#pragma GCC unroll 16
        for (int v = 0; v < vectors; ++v) in[v] = V::load(at + v * V::width);
#pragma GCC unroll 16
        for (int r = 0; r < rows; ++r) {
          if (row < r || row >= r + 3) continue;
          const V w = V::broadcast(weight[3 * (row - r) + column]);
#pragma GCC unroll 16
          for (int v = 0; v < vectors; ++v) sum[r][v] = fma(w, in[v], sum[r][v]);
        }
      }
    }
  }
#pragma GCC unroll 16
  for (int r = 0; r < rows; ++r, y += a.y_row) {
#pragma GCC unroll 16
    for (int v = 0; v < vectors; ++v) {
      const V value = a.relu ? relu(sum[r][v]) : sum[r][v];
      if (v + 1 < vectors || last == V::width) {
        value.store(y + v * V::width);
      } else {
        value.store(y + v * V::width, V::first(last));
      }
    }
  }
}

/// `rows` whole output rows. The tiles follow one another within one function, so that the addresses of the next are known
/// long before the sums of this one are.
template <class T, int rows>
__attribute__((noinline)) void shared_rows(const SharedRowsArguments<T>& a, int64_t columns) {
  constexpr int64_t width = Vec<T>::width;
  const T* x = a.x;
  T* y = a.y;
  const auto tile = [&]<int vectors>() __attribute__((always_inline)) {
    shared_rows_tile<T, rows, vectors>(a, x, y, min(width, columns - (vectors - 1) * width));
    x += vectors * width;
    y += vectors * width;
    columns -= vectors * width;
  };
  constexpr int most = kSharedVectors, half = (most + 2) / 2;
  // No single vector is left behind: it would take almost as long as a whole tile.
  while (columns > (most - 1) * width && (columns <= most * width || columns > (most + 1) * width))
    tile.template operator()<most>();
  while (columns > (half - 1) * width) tile.template operator()<half>();
  if constexpr (half > 2) {
    if (columns > width) tile.template operator()<2>();
  }
  if (columns > 0) tile.template operator()<1>();
}

/// shared_rows for 1 .. kSharedRows rows.
template <class T, int rows = kSharedRows<T>>
REEL_INLINE void call_shared_rows(int64_t row_count, int64_t columns, const SharedRowsArguments<T>& a) {
  if (row_count < rows) {
    if constexpr (rows > 1) call_shared_rows<T, rows - 1>(row_count, columns, a);
  } else {
    shared_rows<T, rows>(a, columns);
  }
}

/// Whether correlate_shared_rows can do this: rows one dilation apart must be neighbours in the packed block too.
REEL_INLINE bool rows_share(const ConvAxis (&axis)[3], const BlockLayout& layout, int64_t out) {
  return out == 1 && axis[0].kernel == 1 && axis[1].kernel == 3 && axis[2].kernel == 3 && axis[1].stride == 1 &&
         axis[2].stride == 1 && !layout.axes[1].run_per_tap && !layout.axes[2].run_per_tap;
}

/// All rows of a plane of a block. `a` describes output row 0; its x_row and y_row are those of neighbouring rows.
template <class T>
REEL_INLINE void correlate_shared_rows(int64_t dilation, int64_t rows, int64_t columns, SharedRowsArguments<T> a) {
  const T* const x = a.x;
  T* const y = a.y;
  const T* const next = a.next;
  const int64_t x_step = a.x_row, y_step = a.y_row, next_step = a.next_row;
  a.x_row *= dilation;
  a.next_row *= dilation;
  a.y_row *= dilation;
  if (a.resumes) {
    a.start_row = a.y_row;
    a.start_vector = Vec<T>::width;
  }
  for (int64_t first = 0; first < min(dilation, rows); ++first) {
    const int64_t members = ceil_div(rows - first, dilation), groups = ceil_div(members, kSharedRows<T>);
    for (int64_t g = 0; g < groups; ++g) {
      const int64_t member = members * g / groups, end = members * (g + 1) / groups;
      const int64_t row = first + member * dilation;
      a.x = x + row * x_step;
      a.y = y + row * y_step;
      if (kAsksForNext && next != nullptr) a.next = next + row * next_step;
      call_shared_rows<T>(end - member, columns, a);
    }
  }
}

}  // namespace reel::cpu::REEL_CPU_ISA
