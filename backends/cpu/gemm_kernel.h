#pragma once

#include <cstdint>
#include <utility>

#include "reel/backends/cpu/kernel.h"
#include "reel/backends/cpu/simd.h"

/// The innermost part of the matrix product: a tile of c is held in registers while k runs once from begin to end, so that
/// every element of c is one fma chain in ascending k. Tiles of all heights and widths do the same per element; which one
/// computed an element does not show in its bits.
namespace reel::cpu::REEL_CPU_ISA::product {

/// Registers of a tile's width, up to kTileVectors, and its most rows: rows x vectors accumulators, a row of b and one broadcast
/// element of a must fit the register file (32 registers with AVX-512, else 16).
#if defined(REEL_SIMD_AVX512)
inline constexpr int kTileVectors = 2;
template <int vectors>
inline constexpr int kTileRows = vectors == 1 ? 16 : 14;
#elif defined(__FMA__)
// 4 rows of 3 load less than 6 of 2, and less of a: 1.04 to 1.08 times as fast from packed operands.
inline constexpr int kTileVectors = 3;
template <int vectors>
inline constexpr int kTileRows = 12 / vectors;
#else
inline constexpr int kTileVectors = 2;
template <int vectors>
inline constexpr int kTileRows = vectors == 1 ? 8 : 4;
#endif

/// The rows of a tile of so many, with those that fill the last register: between a's columns where it is packed by columns.
template <class T>
REEL_INLINE constexpr int64_t packed_rows(int64_t rows) {
  return ceil_div(rows, Vec<T>::width) * Vec<T>::width;
}

/// One tile: c[i, j] = sum over k of a(i, k) b[k, j], from c on if `load_c`; then the bias and ReLU. Strides in elements. Or, where
/// `repeats` says so, `count` of them one below the other, of the same columns of b.
template <class T>
struct Tile {
  int64_t k;
  const T* a;
  int64_t a_row, a_step;  // between a's rows, and from one k to the next
  const T* b;
  int64_t b_stride;  // between rows
  T* c;
  int64_t c_stride;  // between rows
  int64_t columns;   // of c, up to the tile's width
  const T* bias;     // at the tile's first column, or null
  bool load_c;
  bool relu;
  int64_t count = 1;
  const T* next_c = nullptr;  // the next tile of c and its rows, to be asked for meanwhile where a is packed by columns
  int64_t next_rows = 0;
  T* b_copy = nullptr;  // takes the rows of b as they pass by, each a tile's width: packing at next to no cost; or null
};

/// Hides from g++ how the value was computed. It would compute it again at each use, or a pointer of one step from that of the step
/// before, with more registers than there are.
template <class T>
REEL_INLINE void keep_in_register(T& value) {
  asm("" : "+r"(value));
}

/// Pointers into rows that lie a stride apart, which advance together. One pointer for every five rows: an x86 address takes a
/// register, once, twice or four times, on top at no cost, and there is one of 3 strides too.
template <class T, int rows>
struct RowPointers {
  static constexpr int kPointers = (rows + 4) / 5;
  const char* p[kPointers];
  int64_t stride, stride3;
  REEL_INLINE RowPointers(const T* first, int64_t elements)
      : stride(elements * static_cast<int64_t>(sizeof(T))), stride3(3 * stride) {
    keep_in_register(stride3);
#pragma GCC unroll 16
    for (int g = 0; g < kPointers; ++g) p[g] = reinterpret_cast<const char*>(first) + 5 * g * stride;
  }
  REEL_INLINE const T* operator[](int i) const {
    return reinterpret_cast<const T*>(p[i / 5] + (i % 5 == 3 ? stride3 : i % 5 * stride));
  }
  REEL_INLINE void advance(int64_t bytes) {
#pragma GCC unroll 16
    for (int g = 0; g < kPointers; ++g) {
      p[g] += bytes;
      keep_in_register(p[g]);
    }
  }
};

/// Registers v = 0 .. vectors - 1 of a row; with `masked` only the last one's lanes in `mask`.
template <class V, int vectors, bool masked, class T>
REEL_INLINE V load_row(const T* p, int v, typename V::Mask mask) {
  if (masked && v == vectors - 1) return V::load(p + v * V::width, mask);
  return V::load(p + v * V::width);
}

/// Rows of b that are asked for ahead while they are copied: in place they lie far apart, where the processor foresees nothing.
inline constexpr int64_t kRowsAhead = 12;

/// Columns of a transposed a that are asked for ahead, where they lie further apart than packed ones (kPackedStep bytes): each
/// is a line or two, which another core may have written. Short ones would end before. (By whole tiles of two registers, and the
/// tallest of one: others are few.)
inline constexpr int64_t kColumnsAhead = 32, kLongColumn = 128, kPackedStep = 128;
template <class T>
REEL_INLINE bool asks_for_columns(const Tile<T>& tile, int64_t from = kLongColumn) {
  return tile.k >= from && tile.a_step * static_cast<int64_t>(sizeof(T)) > kPackedStep;
}
/// Whether so many rows of one register have a loop of their own that asks, which pays from half as many columns more on (one more
/// load at each step takes a twentieth more time): the tallest tiles, of which a tall and narrow product consists.
template <class T, int vectors>
REEL_INLINE constexpr bool may_ask(int64_t rows) {
  return kVectorBytes >= 32 && sizeof(T) == 4 && vectors == 1 && rows == kTileRows<1>;
}

/// Steps of k that the tallest tiles, which do most of the work, take at a time: fewer instructions, which matter most where another
/// thread shares the core, and less depends on where in memory the loop begins (up to a tenth with AVX2 on Zen 3).
#if defined(REEL_SIMD_AVX512)
inline constexpr int kSteps = 2;
#else
inline constexpr int kSteps = 4;
#endif

/// Whether so many rows make one of the tallest tiles of this width.
template <int vectors>
REEL_INLINE constexpr bool is_tall(int64_t rows) {
  if (kVectorBytes == 64) return vectors == 2 && rows + 2 >= kTileRows<2>;
  return kVectorBytes == 32 && vectors >= 2 && rows == kTileRows<vectors>;
}

/// sum = fma(a, b, sum) for a number in memory, which the instruction reads by itself: for two such sums one instruction less than
/// if it is loaded for both, and one load more.
template <class T>
REEL_INLINE void add_product_from(Vec<T, 64>& sum, const T* a, Vec<T, 64> b) {
  if constexpr (sizeof(T) == sizeof(float))
    asm("vfmadd231ps %2%{1to16%}, %1, %0" : "+v"(sum.raw) : "v"(b.raw), "m"(*a));
  else asm("vfmadd231pd %2%{1to8%}, %1, %0" : "+v"(sum.raw) : "v"(b.raw), "m"(*a));
}

/// The chains of a tile whose a is packed by columns, and begins at `a`. Most of its numbers the multiply-adds read by themselves:
/// a core whose other thread is busy takes half as many instructions from this one, and then fewer are faster.
template <class T, class V, int rows, int vectors>
REEL_INLINE void accumulate_by_columns(const Tile<T>& tile, const T* a, V (&acc)[rows][vectors]) {
  constexpr int64_t a_step = packed_rows<T>(rows), line = 64 / static_cast<int64_t>(sizeof(T));
  const T* b = tile.b;
  const auto step = [&](const T* column) __attribute__((always_inline)) {
    V b_row[vectors];
#pragma GCC unroll 4
    for (int v = 0; v < vectors; ++v) b_row[v] = V::load(b + v * V::width);
#pragma GCC unroll 16
    for (int i = 0; i < rows; ++i) {
      const V a_i = V::broadcast(column[i]);
#pragma GCC unroll 4
      for (int v = 0; v < vectors; ++v) {
        if (i % 4 == 0) {  // of all rows there would be more loads than there is time for
          add_product<true>(acc[i][v], a_i, b_row[v]);
        } else {
          add_product_from(acc[i][v], column + i, b_row[v]);
        }
      }
    }
    b += tile.b_stride;
    keep_in_register(b);
  };
  // First the next tile of c is asked for, then in vain, lest this loop be there twice.
  int64_t k = tile.k;
  for (int part = 0; part < 2; ++part) {
    const T* ask = part == 0 ? tile.next_c : tile.c;
    const int64_t ask_step = part == 0 ? tile.c_stride : 0;
    for (int64_t left = part == 0 ? min(tile.next_rows, k / kSteps) : k / kSteps; left > 0; --left) {
      // The last element of each line: where c's rows begin within one, the tile before had that.
      __builtin_prefetch(ask + (line - 1));
      __builtin_prefetch(ask + (2 * line - 1));
      ask += ask_step;
#pragma GCC unroll 4
      for (int i = 0; i < kSteps; ++i) step(a + i * a_step);
      a += kSteps * a_step;
      k -= kSteps;
    }
  }
  for (; k > 0; --k, a += a_step) step(a);
}

/// The chains of a tile whose rows of a begin at `tile_a`. `copying`: into tile.b_copy too. `asking`: for columns of a ahead.
template <bool masked, bool copying, bool asking, class T, class V, int rows, int vectors>
REEL_INLINE void accumulate(const Tile<T>& tile, const T* tile_a, typename V::Mask mask, V (&acc)[rows][vectors]) {
  // The tallest tile takes all registers.
  constexpr bool in_place = kVectorBytes == 32 || (kVectorBytes == 64 && rows == kTileRows<2> && vectors == 2);
  RowPointers<T, rows> a(tile_a, tile.a_row);
  const int64_t a_step_bytes = tile.a_step * static_cast<int64_t>(sizeof(T));
  const T* b = tile.b;
  T* copy = tile.b_copy;
  const int64_t ahead = asks_for_columns(tile) ? kColumnsAhead * a_step_bytes : 0;
  const auto step = [&]() __attribute__((always_inline)) {
    V b_row[vectors];
#pragma GCC unroll 4
    for (int v = 0; v < vectors; ++v) {
      b_row[v] = load_row<V, vectors, masked>(b, v, mask);
      if (copying) {  // (of a register's last element, whose line the panel before has not had)
        __builtin_prefetch(b + kRowsAhead * tile.b_stride + (v + 1) * V::width - 1);
        b_row[v].store(copy + v * V::width);
      }
    }
#pragma GCC unroll 16
    for (int i = 0; i < rows; ++i) {
      // Rows 0, 5 and 10 lie at a pointer by itself: one that adds a stride would be an instruction more.
      constexpr bool reads = kVectorBytes == 64 && is_tall<vectors>(rows);
      const V a_i = V::broadcast(*a[i]);
#pragma GCC unroll 4
      for (int v = 0; v < vectors; ++v) {
        if constexpr (reads) {
          if (i % 5 == 0) {
            add_product_from(acc[i][v], a[i], b_row[v]);
            continue;
          }
        }
        add_product<in_place>(acc[i][v], a_i, b_row[v]);
      }
    }
    // The line of the column's last element: that of its first was the tile's before. (Where `ahead` is 0 it is there already: a
    // loop without this would be one more copy of each tile.)
    if (asking) __builtin_prefetch(a.p[0] + (rows - 1) * static_cast<int64_t>(sizeof(T)) + ahead);
    a.advance(a_step_bytes);
    b += tile.b_stride;
    keep_in_register(b);
    if (copying) copy += vectors * V::width;
  };
  int64_t k = tile.k;
  if constexpr (is_tall<vectors>(rows) && !masked && !copying)
    for (; k >= kSteps; k -= kSteps) {
#pragma GCC unroll 4
      for (int i = 0; i < kSteps; ++i) step();
    }
  for (; k > 0; --k) step();
}

// Not for the sanitizers where registers are wide: they take minutes to compile it, and the tests put the operands next to
// unmapped pages instead.
template <class T, int rows, int vectors, bool masked, int bytes>
#if defined(__AVX2__)
__attribute__((no_sanitize("address", "undefined")))
#endif
void compute_tile(const Tile<T>& tile) {
  using V = Vec<T, bytes>;
  const auto mask = V::first(tile.columns - (vectors - 1) * V::width);

  constexpr bool repeats = is_tall<vectors>(rows) && !masked;
  const T* a = tile.a;
  T* c = tile.c;
  for (int64_t left = repeats ? tile.count : 1;;) {
    V acc[rows][vectors];
    if (tile.load_c) {
#pragma GCC unroll 16
      for (int i = 0; i < rows; ++i)
#pragma GCC unroll 4
        for (int v = 0; v < vectors; ++v) acc[i][v] = load_row<V, vectors, masked>(c + i * tile.c_stride, v, mask);
    } else {
#pragma GCC unroll 16
      for (int i = 0; i < rows; ++i)
#pragma GCC unroll 4
        for (int v = 0; v < vectors; ++v) acc[i][v] = V::zero();
    }

    constexpr bool asks = vectors == 2 && !masked;
    // Of many rows few tiles are lower.
    constexpr bool by_columns = kVectorBytes == 64 && repeats && rows + 1 >= kTileRows<2>;
    if (vectors >= 2 && !masked && tile.b_copy != nullptr) {
      accumulate<false, true, asks>(tile, a, mask, acc);
    } else if (by_columns && tile.a_row == 1 && tile.a_step == packed_rows<T>(rows)) {
      if constexpr (by_columns) accumulate_by_columns(tile, a, acc);
    } else if (may_ask<T, vectors>(rows) && asks_for_columns(tile, kLongColumn * 3 / 2)) {
      accumulate<masked, false, true>(tile, a, mask, acc);
    } else {
      accumulate<masked, false, asks>(tile, a, mask, acc);
    }

    if (tile.bias != nullptr) {
#pragma GCC unroll 4
      for (int v = 0; v < vectors; ++v) {
        const V bias = load_row<V, vectors, masked>(tile.bias, v, mask);
#pragma GCC unroll 16
        for (int i = 0; i < rows; ++i) acc[i][v] = acc[i][v] + bias;
      }
    }
    if (tile.relu) {
#pragma GCC unroll 16
      for (int i = 0; i < rows; ++i)
#pragma GCC unroll 4
        for (int v = 0; v < vectors; ++v) acc[i][v] = relu(acc[i][v]);
    }
#pragma GCC unroll 16
    for (int i = 0; i < rows; ++i, c += tile.c_stride)
#pragma GCC unroll 4
      for (int v = 0; v < vectors; ++v) {
        if (masked && v == vectors - 1) {
          acc[i][v].store(c + v * V::width, mask);
        } else {
          acc[i][v].store(c + v * V::width);
        }
      }
    if (!repeats || --left == 0) break;
    a += rows * tile.a_row;
  }
}

/// Whether a call may compute several tiles of this many rows and columns.
template <class T>
REEL_INLINE bool repeats(int64_t rows, int64_t columns) {
  return (columns == 2 * Vec<T>::width && is_tall<2>(rows)) ||
         (columns == kTileVectors * Vec<T>::width && is_tall<kTileVectors>(rows));
}

template <class T>
using TileFunction = void (*)(const Tile<T>&);

template <class T, int vectors, bool masked, int bytes>
struct TileTable {
  TileFunction<T> by_rows[kTileRows<vectors>];  // at rows - 1

  template <int... i>
  static constexpr TileTable make(std::integer_sequence<int, i...>) {
    return {{&compute_tile<T, i + 1, vectors, masked, bytes>...}};
  }
};

/// compute_tile for all heights, of registers of so many bytes.
template <class T, int vectors, bool masked, int bytes = kVectorBytes>
inline constexpr auto kTiles =
    TileTable<T, vectors, masked, bytes>::make(std::make_integer_sequence<int, kTileRows<vectors>>());

}  // namespace reel::cpu::REEL_CPU_ISA::product
