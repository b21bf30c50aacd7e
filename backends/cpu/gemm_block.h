#pragma once

#include <cstdint>

#include "reel/backends/cpu/gemm_kernel.h"
#include "reel/backends/cpu/gemm_pack.h"

/// The middle part of the matrix product: a block of c, tile by tile, from operands where they are or from packed panels.
///
/// b packed: panels of kPanel columns, one after the other, each [k, kPanel] (the last one takes the same room).
/// a packed: the row tiles, one after the other, each [k, height].
namespace reel::cpu::REEL_CPU_ISA::product {

/// Columns of c that a tile spans.
template <class T>
inline constexpr int64_t kPanel = 2 * Vec<T>::width;

/// Rows cut into the fewest tiles of at most `tallest`, as even as can be: low tiles waste the processor.
struct RowTiles {
  int64_t count = 0, low = 0, high_count = 0;  // the first `high_count` tiles have low + 1 rows, the others low

  REEL_INLINE RowTiles(int64_t rows, int64_t tallest)
      : count(rows <= tallest ? 1 : ceil_div(rows, tallest)),
        low(count == 1 ? rows : rows / count),
        high_count(rows - low * count) {}
  REEL_INLINE int64_t start(int64_t t) const { return t * low + min(t, high_count); }
  REEL_INLINE int64_t height(int64_t t) const { return low + (t < high_count ? 1 : 0); }
};

/// Where a block's operand lies: as stored, with the elements of a row or of a column adjacent, or packed.
enum class Source : std::uint8_t { rows, columns, packed };

/// c [m, n] = a [m, k] b [k, n]. A packed operand has no stride.
template <class T>
struct Block {
  int64_t m, n, k;
  RowTiles tiles;
  Source a_source, b_source;  // b from columns: each panel is transposed when it is needed
  const T* a;
  int64_t a_stride;
  const T* b;
  int64_t b_stride;
  T* c;
  int64_t c_stride;
  const T* bias;  // [n] or null
  bool load_c;    // the chains go on from c
  bool relu;
};

/// The tallest tile for c of this many columns.
template <class T>
REEL_INLINE int64_t tallest_tile(int64_t columns) {
  return columns <= Vec<T>::width ? kTileRows<1> : kTileRows<2>;
}

/// The tile functions for a panel of this many columns, at rows - 1.
template <class T, ALayout layout>
REEL_INLINE const TileFunction<T>* tiles_for(int64_t columns) {
  constexpr int width = Vec<T>::width;
  constexpr int half = kVectorBytes > 16 ? kVectorBytes / 2 : 16;
  if (columns == 2 * width) return kTiles<T, kVectorBytes, 2, layout, false>.by_rows;
  if (columns > width) return kTiles<T, kVectorBytes, 2, layout, true>.by_rows;
  if (columns == width) return kTiles<T, kVectorBytes, 1, layout, false>.by_rows;
  if (columns <= half / static_cast<int>(sizeof(T))) return kTiles<T, half, 1, layout, true>.by_rows;
  return kTiles<T, kVectorBytes, 1, layout, true>.by_rows;
}

/// One panel of c, row tiles t0 .. t1 - 1 and columns j .. j + columns - 1, over k0 .. k0 + k - 1; b is the panel's.
template <class T>
REEL_INLINE void multiply_panel(const Block<T>& x, int64_t t0, int64_t t1, int64_t j, int64_t columns, int64_t k0,
                                int64_t k, const T* b, int64_t b_stride) {
  const bool last = k0 + k == x.k;
  Tile<T> tile;
  tile.k = k;
  tile.b = b;
  tile.b_stride = b_stride;
  tile.c_stride = x.c_stride;
  tile.columns = columns;
  tile.bias = last && x.bias != nullptr ? x.bias + j : nullptr;
  tile.load_c = x.load_c || k0 > 0;
  tile.relu = last && x.relu;
  const TileFunction<T>* compute =
      x.a_source == Source::rows ? tiles_for<T, ALayout::rows>(columns) : tiles_for<T, ALayout::columns>(columns);
  for (int64_t t = t0; t < t1; ++t) {
    const int64_t i = x.tiles.start(t), rows = x.tiles.height(t);
    switch (x.a_source) {
      case Source::rows:
        tile.a = x.a + i * x.a_stride + k0;
        tile.a_stride = x.a_stride;
        break;
      case Source::columns:
        tile.a = x.a + k0 * x.a_stride + i;
        tile.a_stride = x.a_stride;
        break;
      case Source::packed:
        tile.a = x.a + i * x.k + k0 * rows;
        tile.a_stride = rows;
        break;
    }
    tile.c = x.c + i * x.c_stride + j;
    compute[rows - 1](tile);
  }
}

/// Row tiles t0 .. t1 - 1 and columns j0 .. j1 - 1 of c (j0 a multiple of kPanel), with k in steps of `k_step`.
template <class T>
REEL_INLINE void multiply_tiles(const Block<T>& x, int64_t t0, int64_t t1, int64_t j0, int64_t j1, int64_t k_step,
                                T* panel) {
  int64_t k0 = 0;
  do {
    const int64_t k = min(x.k - k0, k_step);
    for (int64_t j = j0; j < j1; j += kPanel<T>) {
      const int64_t columns = min(j1 - j, kPanel<T>);
      switch (x.b_source) {
        case Source::rows:
          multiply_panel(x, t0, t1, j, columns, k0, k, x.b + k0 * x.b_stride + j, x.b_stride);
          break;
        case Source::columns:
          transpose(x.b + j * x.b_stride + k0, x.b_stride, columns, k, panel, kPanel<T>);
          multiply_panel<T>(x, t0, t1, j, columns, k0, k, panel, kPanel<T>);
          break;
        case Source::packed:
          multiply_panel<T>(x, t0, t1, j, columns, k0, k, x.b + j * x.k + k0 * kPanel<T>, kPanel<T>);
          break;
      }
    }
    k0 += k;
  } while (k0 < x.k);
}

}  // namespace reel::cpu::REEL_CPU_ISA::product
