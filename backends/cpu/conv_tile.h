#pragma once

#include "reel/backends/cpu/kernel.h"
#include "reel/backends/cpu/simd.h"

/// The inner kernel of correlations: a few output channels ("rows") times a few vectors of neighbouring positions in
/// registers. Each output element is one fma chain over the taps in their order, from the bias (or 0) on, wherever its
/// tile begins and however wide it is, so that tiles may be chosen for speed alone.
namespace reel::cpu::REEL_CPU_ISA {

/// The tile's sums need rows * vectors registers, its inputs `vectors`, and a weight one (a product one more on v2). There are
/// tiles of 1 to 4 rows and, where there are registers for it, of 8 and, of f32, of 6; more would be much code for little.
#if defined(REEL_SIMD_AVX512)
inline constexpr int kTileRows = 8;
inline constexpr int kTileVectors[kTileRows] = {8, 8, 6, 6, 0, 4, 0, 3};
#elif defined(__AVX2__)
inline constexpr int kTileRows = 4;
inline constexpr int kTileVectors[kTileRows] = {8, 4, 3, 3};
#else
inline constexpr int kTileRows = 4;
inline constexpr int kTileVectors[kTileRows] = {6, 4, 3, 2};
#endif
template <class T>
inline constexpr bool kHasSixRows = kTileRows > 6 && sizeof(T) == sizeof(float);

/// Taps that the tiles which do most of the work take at a time: fewer instructions, which matter most where another thread shares the
/// core (on Zen 3 0.85 of the time then, 1.0 else; on a Xeon 0.95).
#if defined(REEL_SIMD_AVX512)
inline constexpr int kTapsAtOnce = 4;
#elif defined(__AVX2__)
inline constexpr int kTapsAtOnce = 8;
#else
inline constexpr int kTapsAtOnce = 1;
#endif

/// Tile t of `count` even tiles over `total` things begins here.
REEL_INLINE int64_t tile_begin(int64_t total, int64_t count, int64_t t) { return total * t / count; }

/// The tiles that rows are cut into: all of kTileRows, or even ones of at most 4; or where runs are cut into 4 vectors, or 4 and 3,
/// as many of 6 as leave none of 1 or 2: 6 rows of 4 take fewer instructions and loads than 8 of 2 or 3.
template <class T>
struct RowTiles {
  int64_t height, high, rest, rest_tiles;

  REEL_INLINE RowTiles(int64_t rows, int64_t vectors) {
    constexpr int64_t most = min(kTileRows, 4);
    height = kHasSixRows<T> && rows > 8 && (vectors == 4 || (vectors > 6 && vectors != 9)) ? 6 : kTileRows;
    high = rows / height;
    rest = rows % height;
    if (height == 6 && (rest == 1 || rest == 2 || rest == 5)) --high;  // what is left makes no low tile
    if (height == kTileRows && rest > 0) high = 0;
    rest = rows - high * height;
    rest_tiles = ceil_div(rest, most);
  }
  REEL_INLINE int64_t count() const { return high + rest_tiles; }
  REEL_INLINE int64_t begin(int64_t t) const {
    return t <= high ? t * height : high * height + tile_begin(rest, rest_tiles, t - high);
  }
};

template <class T>
struct TileArguments {
  const T* weight;        // [taps, rows]
  const T* x;             // packed; position 0 of the tile
  const int64_t* offset;  // [taps]: bytes from x to the tap's element
  int64_t taps;
  const T* bias;  // [rows] or null
  bool relu;
  bool resumes;   // the sums that stand at y, instead of beginning from the bias
  T* y;           // position 0 of the first row
  int64_t y_row;  // elements between rows
  int64_t last;   // lanes of the last vector to write, 1 .. width
};

template <class T, int rows, int vectors>
void tile(const TileArguments<T>& a) {
  using V = Vec<T>;
  V sum[rows][vectors];
#pragma GCC unroll 16
  for (int r = 0; r < rows; ++r) {
    const V start = a.bias != nullptr ? V::broadcast(a.bias[r]) : V::zero();
#pragma GCC unroll 16
    for (int v = 0; v < vectors; ++v) sum[r][v] = start;
  }
  const auto mask = V::first(a.last);
  if (a.resumes) {
#pragma GCC unroll 16
    for (int r = 0; r < rows; ++r) {
      const T* y = a.y + r * a.y_row;
#pragma GCC unroll 16
      for (int v = 0; v + 1 < vectors; ++v) sum[r][v] = V::load(y + v * V::width);
      sum[r][vectors - 1] = V::load(y + (vectors - 1) * V::width, mask);
    }
  }
  const T* weight = a.weight;
  const auto add_tap = [&](int64_t t) __attribute__((always_inline)) {
    const T* x = reinterpret_cast<const T*>(reinterpret_cast<const char*>(a.x) + a.offset[t]);
    V in[vectors];
#pragma GCC unroll 16
    for (int v = 0; v < vectors; ++v) in[v] = V::load(x + v * V::width);
#pragma GCC unroll 16
    for (int r = 0; r < rows; ++r) {
      const V w = V::broadcast(weight[r]);
#pragma GCC unroll 16
      for (int v = 0; v < vectors; ++v) add_product(sum[r][v], w, in[v]);
    }
    weight += rows;
  };
  int64_t t = 0;
  constexpr bool often = kVectorBytes == 64 ? rows == 6 && vectors == 4 : rows == kTileRows && vectors > 1;
  if constexpr (often && kTapsAtOnce > 1)
    for (; t + kTapsAtOnce <= a.taps; t += kTapsAtOnce) {
#pragma GCC unroll 8
      for (int i = 0; i < kTapsAtOnce; ++i) add_tap(t + i);
    }
  for (; t < a.taps; ++t) add_tap(t);
  if (a.relu) {
#pragma GCC unroll 16
    for (int r = 0; r < rows; ++r) {
#pragma GCC unroll 16
      for (int v = 0; v < vectors; ++v) sum[r][v] = relu(sum[r][v]);
    }
  }
#pragma GCC unroll 16
  for (int r = 0; r < rows; ++r) {
    T* y = a.y + r * a.y_row;
#pragma GCC unroll 16
    for (int v = 0; v + 1 < vectors; ++v) sum[r][v].store(y + v * V::width);
    if (a.last == V::width) {
      sum[r][vectors - 1].store(y + (vectors - 1) * V::width);
    } else {
      sum[r][vectors - 1].store(y + (vectors - 1) * V::width, mask);
    }
  }
}

/// Calls tile<T, rows, vectors> for sizes known only at run time: rows as above, 1 .. kTileVectors[rows - 1] vectors.
template <class T, int rows = kTileRows, int vectors = kTileVectors[rows - 1]>
REEL_INLINE void call_tile(int64_t row_count, int64_t vector_count, const TileArguments<T>& a) {
  if (row_count < rows) {
    constexpr int fewer = rows == 8 && kHasSixRows<T> ? 6 : rows > 4 ? 4 : rows - 1;
    if constexpr (rows > 1) call_tile<T, fewer>(row_count, vector_count, a);
  } else if (vector_count < vectors) {
    if constexpr (vectors > 1) call_tile<T, rows, vectors - 1>(row_count, vector_count, a);
  } else {
    tile<T, rows, vectors>(a);
  }
}

/// `rows` rows over `runs` runs of `n` neighbouring positions, x_step and y_step elements apart in x and y.
template <class T>
__attribute__((noinline)) void correlate_runs(int64_t rows, int64_t n, int64_t runs, int64_t x_step, int64_t y_step,
                                              TileArguments<T> a) {
  constexpr int64_t width = Vec<T>::width;
  const int64_t vectors = ceil_div(n, width);
  const int64_t tiles = ceil_div(vectors, kTileVectors[rows - 1]);
  const T* x = a.x;
  T* y = a.y;
  for (int64_t run = 0; run < runs; ++run, x += x_step, y += y_step) {
    for (int64_t t = 0; t < tiles; ++t) {
      const int64_t begin = tile_begin(vectors, tiles, t), end = tile_begin(vectors, tiles, t + 1);
      a.last = min(width, n - (end - 1) * width);
      a.x = x + begin * width;
      a.y = y + begin * width;
      call_tile<T>(rows, end - begin, a);
    }
  }
}

}  // namespace reel::cpu::REEL_CPU_ISA
