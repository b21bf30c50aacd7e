#pragma once

#include <cstdint>

#include "reel/backends/cpu/gemm_kernel.h"
#include "reel/backends/cpu/gemm_pack.h"

/// The middle part of the matrix product: a piece of c, tile by tile, from operands where they are or from packed copies.
///
/// b packed: panels of kPanel columns, one after the other, each [k, kPanel] in the room of panel_room(k) (the last one too); or
/// one of kWidePanel.
/// a packed: a row tile, [k, packed_rows(rows)] of a transposed a, [rows, copied_stride(k)] of one that is not. For wide panels
/// all rows of a transposed a, [rows, copied_stride(k)]; one that is not stays where it is.
/// By columns: a row tile of either kind, [k, packed_rows(kTileRows<2>)].
namespace reel::cpu::REEL_CPU_ISA::product {

/// Columns of c that a tile spans.
template <class T>
inline constexpr int64_t kPanel = 2 * Vec<T>::width;
/// Those that the widest one does: more, if the instruction set has it. Its panels are worked through one by one.
template <class T>
inline constexpr int64_t kWidePanel = (kTileVectors * Vec<T>::width);
inline constexpr bool kHasWidePanels = kTileVectors > 2;

/// Where part `i` of `count` even parts of [0, size) begins.
REEL_INLINE int64_t part_start(int64_t size, int64_t count, int64_t i) { return size * i / count; }

/// c [m, n] = a [m, k] b [k, n]. Strides in elements.
template <class T>
struct Block {
  int64_t m, n, k;
  const T* a;
  int64_t a_row, a_step;  // between a's rows, and from one k to the next
  const T* b;
  int64_t b_stride;  // between the rows of b as stored, those of b [k, n] or, transposed, of [n, k]
  bool b_transposed;
  T* c;
  int64_t c_stride;
  const T* bias;  // [n] or null
  bool load_c;    // the chains go on from c
  bool relu;
};

/// Elements from one packed panel of k rows to the next: a row more than it takes, for whoever packs row by row writes to all
/// panels in turn, and k is mostly a power of two.
template <class T>
REEL_INLINE constexpr int64_t panel_room(int64_t k) {
  return (k + 1) * kWidePanel<T>;
}

/// When b's block is copied into panels: never, by the first row tile as it reads it, or before. (Transposed it always is.)
enum class PackB { never, in_passing, before };

inline constexpr int64_t kAllRows = INT64_MAX;

/// How a block is worked through: in row_pieces times column_pieces pieces, which share nothing. A piece runs with a block
/// of b of [k, columns] at a time, which it packs as told to; and each row tile of a, if told to. Wide: columns are kWidePanel, and
/// `rows` of a at a time, which stay near, run through all panels: the first pack them, the others find them packed. By
/// columns: both are packed, b's block first, then one row tile of a after the other in the order in which its numbers are used.
struct Cut {
  int64_t row_pieces = 1, column_pieces = 1;
  int64_t columns, k;
  int64_t rows = kAllRows;
  bool pack_a = false;
  PackB pack_b = PackB::never;
  bool wide = false;
  bool by_columns = false;
};

template <class T>
REEL_INLINE bool packs_b(const Block<T>& x, const Cut& cut) {
  return x.b_transposed || cut.pack_b != PackB::never;
}

/// The tallest tile for c of this many columns.
template <class T>
REEL_INLINE int64_t tallest_tile(int64_t columns) {
  return columns <= Vec<T>::width ? kTileRows<1> : columns <= kPanel<T> ? kTileRows<2> : kTileRows<kTileVectors>;
}

/// Columns of the next panel, of `left`. What is left of a wide panel is a narrow one and what fills a register or less: these take
/// taller tiles.
template <class T>
REEL_INLINE int64_t next_panel(int64_t left, bool wide) {
  return kHasWidePanels && wide && left >= kWidePanel<T> ? kWidePanel<T> : min(left, kPanel<T>);
}

/// The tile functions for a panel of this many columns, at rows - 1.
template <class T>
REEL_INLINE const TileFunction<T>* tiles_for(int64_t columns) {
  constexpr int width = Vec<T>::width;
  if constexpr (kHasWidePanels)
    if (columns == kWidePanel<T>) return kTiles<T, kTileVectors, false>.by_rows;
  if (columns == 2 * width) return kTiles<T, 2, false>.by_rows;
  if (columns > width) return kTiles<T, 2, true>.by_rows;
  if (columns == width) return kTiles<T, 1, false>.by_rows;
#if defined(REEL_SIMD_AVX512)  // processors that take wide registers by halves need not compute the empty one
  if (columns <= width / 2) return kTiles<T, 1, true, kVectorBytes / 2>.by_rows;
#endif
  return kTiles<T, 1, true>.by_rows;
}

/// Elements between the rows of a copy of k columns: a line more than they take, for k is mostly a power of two.
template <class T>
REEL_INLINE constexpr int64_t copied_stride(int64_t k) {
  return k + 64 / static_cast<int64_t>(sizeof(T));
}

/// `tile` reads its `rows` x [k] of a from a copy in `room`.
template <class T>
REEL_INLINE void pack_tile(Tile<T>& tile, int64_t rows, T* room) {
  if (tile.a_step == 1) {
    const int64_t stride = copied_stride<T>(tile.k);
    copy_rows(tile.a, tile.a_row, rows, tile.k, room, stride);
    tile.a_row = stride;
  } else {
    copy_rows(tile.a, tile.a_step, tile.k, rows, room, packed_rows<T>(rows));
    tile.a_row = 1;
    tile.a_step = packed_rows<T>(rows);
  }
  tile.a = room;
}

/// Bytes of c from which on its next tile is asked for ahead: those rows lie far apart, where the processor foresees nothing.
constexpr int64_t kFarResult = 2048 * 1024;

/// Asks for a tile of c that is to be written.
template <class T>
REEL_INLINE void ask_for_tile(const T* c, int64_t stride, int64_t rows, int64_t columns) {
  constexpr int64_t line = 64 / static_cast<int64_t>(sizeof(T));
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t j = 0; j < columns; j += line) __builtin_prefetch(c + r * stride + j, 1);
}

/// The heights of row tiles: the fewest, as even as can be, for low ones waste the processor. But the first is taller where it
/// packs b, which it waits for (with narrower registers the others would be too low). Of the others the first `high` have one more.
struct Heights {
  int64_t tallest = 0, tiles = 0, first = 0, low = 0, high = 0;
  REEL_INLINE void set(int64_t rows, int64_t at_most, bool packs) {
    if (at_most == tallest) return;  // of the same rows
    tallest = at_most;
    tiles = ceil_div(rows, tallest);
    const int64_t more = kVectorBytes == 64 && packs && tiles > 1 ? 3 : 0, others = max<int64_t>(tiles - 1, 1);
    first = min(tallest, ceil_div(rows, tiles) + more);
    low = (rows - first) / others;
    high = (rows - first) % others;
  }
  REEL_INLINE int64_t operator[](int64_t tile) const { return tile == 0 ? first : low + (tile <= high ? 1 : 0); }
  /// How many tiles from this one on have its height.
  REEL_INLINE int64_t alike(int64_t tile) const {
    if (tile == 0) return first == (*this)[1] ? alike(1) + 1 : 1;
    return (tile <= high ? high + 1 : tiles) - tile;
  }
};

/// A part of c: rows i0 .. i1 - 1 and columns j0 .. j1 - 1 (j0 a multiple of kPanel).
struct Part {
  int64_t i0, i1, j0, j1;
};

/// b [n, k] as panels [k, width] of its transpose, `room` elements apart.
template <class T>
REEL_INLINE void transpose_into_panels(const T* b, int64_t stride, int64_t n, int64_t k, int64_t width, T* panels,
                                       int64_t room) {
  for (int64_t q = 0; q < n; q += width, panels += room)
    transpose(b + q * stride, stride, min(width, n - q), k, panels, width);
}

/// What elements k0 .. k0 + k - 1 of the chains add to a part of c. Rooms are for what is to be packed: b_room for one block
/// of b, or if `keeps` for all that the part takes, one after the other, where they are already if `kept`.
template <class T>
void multiply_part(const Block<T>& x, const Cut& cut, int64_t k0, int64_t k, const Part& part, T* a_room, T* b_room,
                   bool keeps, bool kept) {
  const bool far = x.m * x.c_stride * static_cast<int64_t>(sizeof(T)) > kFarResult;
  const bool last = k0 + k == x.k;
  const int64_t room = panel_room<T>(k), height = part.i1 - part.i0;
  const T* const a = x.a + part.i0 * x.a_row + k0 * x.a_step;
  const bool a_copied = kHasWidePanels && cut.wide && cut.pack_a;
  if (a_copied) transpose(a, x.a_step, k, height, a_room, copied_stride<T>(k));
  Tile<T> tile;
  tile.k = k;
  tile.c_stride = x.c_stride;
  tile.load_c = x.load_c || k0 > 0;
  tile.relu = last && x.relu;
  Heights heights;
  for (int64_t j = part.j0, n; j < part.j1; j += n) {
    n = cut.wide ? next_panel<T>(part.j1 - j, true) : min(part.j1 - j, cut.columns);
    const int64_t panel_columns = cut.wide && n > kPanel<T> ? kWidePanel<T> : kPanel<T>;
    heights.set(height, tallest_tile<T>(min(n, panel_columns)), cut.pack_b == PackB::in_passing);
    const T* const b = x.b + (x.b_transposed ? j * x.b_stride + k0 : k0 * x.b_stride + j);
    if (x.b_transposed) {
      if (!kept) transpose_into_panels(b, x.b_stride, n, k, panel_columns, b_room, room);
    } else if (!kHasWidePanels && cut.pack_b == PackB::before) {
      copy_into_panels<T, kPanel<T>>(b, x.b_stride, k, n, b_room, room);
    }
    // Tiles of one panel that differ in their rows alone take one call.
    const bool alike = n <= panel_columns && !far && (a_copied || !cut.pack_a);
    for (int64_t i = 0, t = 0; t < heights.tiles;) {
      const int64_t rows = heights[t];
      if (a_copied) {
        tile.a = a_room + i * copied_stride<T>(k);
        tile.a_row = copied_stride<T>(k);
        tile.a_step = 1;
      } else {
        tile.a = a + i * x.a_row;
        tile.a_row = x.a_row;
        tile.a_step = x.a_step;
        if (cut.pack_a) pack_tile(tile, rows, a_room);
      }
      int64_t p = 0;
      for (int64_t q = 0; q < n; q += panel_columns, p += room) {
        T* const panel = b_room + p;
        tile.columns = min(n - q, panel_columns);
        // Part of a panel is copied by itself, with wide registers only for many tiles: in place its loads cross lines.
        const bool part_of_panel = tile.columns < kPanel<T>, first = !kept && t == 0;
        const int64_t few = part_of_panel && kVectorBytes == 64 ? 16 : 1;
        const bool copied =
            cut.pack_b == PackB::in_passing && tile.columns > Vec<T>::width && (keeps || heights.tiles > few);
        if (copied && part_of_panel && first) copy_rows(b + q, x.b_stride, k, tile.columns, panel, panel_columns);
        const bool packed = x.b_transposed || cut.pack_b == PackB::before || (copied && (part_of_panel || !first));
        tile.b = packed ? panel : b + q;
        tile.b_stride = packed ? panel_columns : x.b_stride;
        tile.b_copy = copied && !packed ? panel : nullptr;
        tile.c = x.c + (part.i0 + i) * x.c_stride + j + q;
        tile.bias = last && x.bias != nullptr ? x.bias + j + q : nullptr;
        if (far && q + panel_columns < n) ask_for_tile(tile.c + panel_columns, x.c_stride, rows, panel_columns);
        else if (far && t + 1 < heights.tiles)
          ask_for_tile(x.c + (part.i0 + i + rows) * x.c_stride + j, x.c_stride, rows, panel_columns);
        tile.count = alike && tile.b_copy == nullptr && repeats<T>(rows, tile.columns) ? heights.alike(t) : 1;
        tiles_for<T>(tile.columns)[rows - 1](tile);
      }
      i += rows * tile.count;
      t += tile.count;
    }
    if (keeps) b_room += room;
  }
}

/// As multiply_part, by columns.
template <class T>
void multiply_part_by_columns(const Block<T>& x, const Cut& cut, int64_t k0, int64_t k, const Part& part, T* a_room,
                              T* b_room) {
  const bool last = k0 + k == x.k;
  const int64_t room = panel_room<T>(k);
  Tile<T> tile;
  tile.k = k;
  tile.a = a_room;
  tile.a_row = 1;
  tile.a_step = packed_rows<T>(kTileRows<2>);
  tile.b_stride = kPanel<T>;
  tile.c_stride = x.c_stride;
  tile.load_c = x.load_c || k0 > 0;
  tile.relu = last && x.relu;
  Heights heights;
  heights.set(part.i1 - part.i0, kTileRows<2>, false);
  for (int64_t j = part.j0, n; j < part.j1; j += n) {
    n = min(part.j1 - j, cut.columns);
    if (x.b_transposed) {
      transpose_into_panels(x.b + j * x.b_stride + k0, x.b_stride, n, k, kPanel<T>, b_room, room);
    } else {
      copy_into_panels<T, kPanel<T>>(x.b + k0 * x.b_stride + j, x.b_stride, k, n, b_room, room);
    }
    const T* a = x.a + part.i0 * x.a_row + k0 * x.a_step;
    T* c = x.c + part.i0 * x.c_stride + j;
    for (int64_t t = 0, left = part.i1 - part.i0; t < heights.tiles; ++t) {
      const int64_t rows = heights[t];
      if (x.a_step == 1) {
        // With some rows of the next tile: whole squares.
        transpose(a, x.a_row, min(left, tile.a_step), k, a_room, tile.a_step);
      } else {
        copy_rows(a, x.a_step, k, rows, a_room, tile.a_step);
      }
      T* const next = c + rows * x.c_stride;
      tile.b = b_room;
      for (int64_t q = 0; q < n; q += kPanel<T>, tile.b += room) {
        const bool ends = q + kPanel<T> >= n;
        tile.c = c + q;
        tile.columns = min(n - q, kPanel<T>);
        tile.bias = last && x.bias != nullptr ? x.bias + j + q : nullptr;
        tile.next_c = ends ? next : tile.c + kPanel<T>;
        tile.next_rows = !ends ? rows : t + 1 < heights.tiles ? heights[t + 1] : 0;
        tiles_for<T>(tile.columns)[rows - 1](tile);
      }
      a += rows * x.a_row;
      left -= rows;
      c = next;
    }
  }
}

/// A part of c, of blocks of k and, if they are to stay near, of rows.
template <class T>
void multiply_piece(const Block<T>& x, const Cut& cut, const Part& piece, T* a_room, T* b_room) {
  if constexpr (kVectorBytes == 64) {
    if (cut.by_columns) {
      for (int64_t k0 = 0; k0 < x.k; k0 += cut.k)
        multiply_part_by_columns(x, cut, k0, min(x.k - k0, cut.k), piece, a_room, b_room);
      return;
    }
  }
  const bool keeps = kHasWidePanels && cut.rows < piece.i1 - piece.i0 && packs_b(x, cut);
  for (int64_t k0 = 0; k0 < x.k; k0 += cut.k) {
    Part part = piece;
    for (; part.i0 < piece.i1; part.i0 = part.i1) {
      if (kHasWidePanels) part.i1 = part.i0 + min(piece.i1 - part.i0, cut.rows);
      multiply_part(x, cut, k0, min(x.k - k0, cut.k), part, a_room, b_room, keeps, part.i0 > piece.i0);
    }
  }
}

}  // namespace reel::cpu::REEL_CPU_ISA::product
