#pragma once

#include "reel/backends/cpu/gemm_block.h"
#include "reel/core/parallel.h"

/// Where the matrix product is cut: among threads, and into blocks that fit the caches.
namespace reel::cpu::REEL_CPU_ISA::product {

/// The size of the even pieces, rounded up to `unit`, that cut `size` into pieces of at most `limit` and an eighth.
REEL_INLINE int64_t even_piece(int64_t size, int64_t limit, int64_t unit) {
  if (size <= limit + limit / 8) return size;
  return ceil_div(ceil_div(size, ceil_div(size - limit / 8, limit)), unit) * unit;
}

/// Bytes of b that are read in place at no loss: they stay in the level 2 cache.
constexpr int64_t kNearBytes = 640 * 1024;
/// Bytes of b from which on its rows lie so far that whole ones are packed before, rather than pieces of them in passing. (Not
/// with wide panels.)
constexpr int64_t kFarBytes = 2048 * 1024;
/// Bytes, or an eighth more, of a level 1 cache of 48 KiB that a tile's copy of a transposed a and a panel of b fill together, for
/// each tile reads both. (Only AVX-512's are so wide that this shortens a block.)
constexpr int64_t kLevel1 = 36 * 1024;
/// Rows, or an eighth more, of a panel that is used up at once.
constexpr int64_t kLongPanel = 768;
/// A level 2 cache that holds blocks of b of 1 MiB.
constexpr int64_t kLargeLevel2 = 2048 * 1024;

/// Cuts `size` in twice as many parts while there are fewer than `pieces` and the parts keep `least`.
REEL_INLINE void halve(Cut& cut, int64_t Cut::*parts, int64_t pieces, int64_t size, int64_t least) {
  while (cut.row_pieces * cut.column_pieces < pieces && size >= 2 * least * (cut.*parts)) cut.*parts *= 2;
}

/// Whether tiles that are as even as can be are hardly lower than the widest ones can be.
REEL_INLINE bool fills_wide_tiles(int64_t rows) {
  constexpr int64_t height = kTileRows<kTileVectors>;
  return kHasWidePanels && ceil_div(rows, height) * height <= rows + rows / 8;
}

/// Rows from which on wide tiles of a packed b pay.
constexpr int64_t kWideRows = 16;

/// Whether a panel of b, packed or so short that it stays near in place, is best a wide one. (Not for few panels and few
/// long rows of a transposed a, which is copied for them.)
template <class T>
REEL_INLINE bool wants_wide(const Block<T>& x, int64_t width, bool packs_b) {
  if (width < kWidePanel<T> || !fills_wide_tiles(x.m)) return false;
  if (x.a_step != 1 && x.n < 4 * kWidePanel<T> && x.m < min<int64_t>(256, 2 * x.k)) return false;
  return packs_b ? x.m >= kWideRows : x.k >= 24 && x.k < 64 && x.m >= 3 * kWideRows;
}

/// Where to cut a block with wide panels. A panel [k, columns] stays near while rows of a pass by, from the level 2 cache; of so few
/// bytes that they stay there from panel to panel.
template <class T>
REEL_INLINE Cut wide_cut_of(const Block<T>& x, int64_t pieces, bool pack_a, bool packs_b) {
  constexpr int64_t panel_rows = 512, a_bytes = 320 * 1024, kept_bytes = 4096 * 1024;
  const int64_t panels = ceil_div(x.n, kPanel<T>);
  Cut cut{.columns = kWidePanel<T>, .k = even_piece(x.k, panel_rows, 4), .pack_a = pack_a, .wide = true};
  if (packs_b && !x.b_transposed) cut.pack_b = PackB::in_passing;
  // Each piece of rows packs b, each piece of columns a.
  pieces = min<int64_t>(pieces, detail::available_threads());
  halve(cut, &Cut::row_pieces, min<int64_t>(pieces, 4), x.m, 4 * kWideRows);
  halve(cut, &Cut::column_pieces, pieces, panels, 4);
  halve(cut, &Cut::row_pieces, pieces, x.m, 2 * kWideRows);
  halve(cut, &Cut::column_pieces, pieces, panels, 2);
  halve(cut, &Cut::row_pieces, pieces, x.m, kWideRows / 2);
  const int64_t row_bytes = min(x.k, cut.k) * static_cast<int64_t>(sizeof(T));
  const int64_t rows = ceil_div(x.m, cut.row_pieces);
  cut.rows = even_piece(rows, a_bytes / row_bytes, kTileRows<kTileVectors>);
  if (cut.rows < rows)  // and keep the panels that they all run through
    while (panels / cut.column_pieces * kPanel<T> * row_bytes > kept_bytes) cut.column_pieces *= 2;
  return cut;
}

/// Multiply-adds, times the bytes of an element, above which it pays to pack both operands with AVX-512, where the level 2 cache
/// is large: elsewhere it was not measured. (1024 x 1024 x 1024 takes 0.94 of the time, of f64 0.92; 512 x 512 x 512 as long.)
constexpr int64_t kPackedWork = int64_t{1} << 30;

/// Where to cut a block by columns. Each piece packs its own operands: many columns at a time, for a is turned anew for those that
/// follow, and of b half of the level 2 cache, or more where k would be short.
template <class T>
REEL_INLINE Cut cut_by_columns(const Block<T>& x, int64_t pieces) {
  constexpr int64_t size = sizeof(T), block_bytes = 1024 * 1024, some = 16;
  const int64_t panels = ceil_div(x.n, kPanel<T>);
  Cut cut{.columns = 0, .k = 0, .pack_a = true, .pack_b = PackB::before, .by_columns = true};
  halve(cut, &Cut::column_pieces, pieces, panels, 16);
  halve(cut, &Cut::row_pieces, pieces, x.m, 192);
  halve(cut, &Cut::column_pieces, pieces, panels, 8);
  halve(cut, &Cut::row_pieces, pieces, x.m, 96);
  cut.columns = even_piece(ceil_div(panels, cut.column_pieces) * kPanel<T>, 4096 / size, kPanel<T>);
  const int64_t rows = max<int64_t>(1536 / size, block_bytes / size / cut.columns);
  cut.k = even_piece(x.k, min<int64_t>(2048 / size, rows), some);
  return cut;
}

/// Where to cut. Pieces share nothing, so that no thread waits for another, and few pieces copy little twice: four for a thread, if
/// there is work enough, lest one whose core is slower keeps the others waiting. All should take as long, so their number is a power
/// of two. Rows are cut first, for threads then write to lines of c of their own, but where pieces are many they are about square,
/// which copies least.
template <class T>
REEL_INLINE Cut cut_of(const Block<T>& x) {
  // A block of b stays in the level 2 cache of its set's machines: 512 KiB with AVX-512, twice that where the cache is large, else
  // 256 KiB; and up to a quarter more where that spares a block.
  const int64_t columns = (kVectorBytes == 64 && detail::level2_cache_bytes() >= kLargeLevel2 ? 2048 : 1024) /
                          static_cast<int64_t>(sizeof(T));
  constexpr int64_t rows = (kVectorBytes == 64 ? 2048 : 1024) / static_cast<int64_t>(sizeof(T));
  // Rows that pay for a copy of b: none is made where k is short.
  const int64_t many = x.b_transposed || x.k >= 256 ? 192 : 48, few = 2 * kTileRows<2>;
  const int64_t work = x.m * x.n * x.k, panels = ceil_div(x.n, kPanel<T>);

  const int64_t threads = detail::available_threads();
  const bool shared_evenly = (threads & (threads - 1)) == 0;  // else more pieces, lest some threads have one less to do
  // Few rows copy nothing.
  const int64_t most = max<int64_t>(threads * (threads == 1 ? 2 : (shared_evenly ? 4 : 8)), x.m < 2 * many ? 8 : 2);
  int64_t pieces = 2;
  while (pieces < most && work >= pieces << (pieces < 2 * threads ? 21 : 22)) pieces *= 2;

  const int64_t enough_rows = x.b_transposed ? 384 : 128;  // which repay turning b, or copying it
  if (kVectorBytes == 64 && work * static_cast<int64_t>(sizeof(T)) > kPackedWork && x.m >= enough_rows && panels >= 8 &&
      detail::level2_cache_bytes() >= kLargeLevel2) {
    // Larger pieces pack less: half as many are enough, but there must be so many.
    const int64_t enough = threads * (shared_evenly ? 2 : 4);
    const Cut by_columns = cut_by_columns(x, enough);
    if (by_columns.row_pieces * by_columns.column_pieces >= enough) return by_columns;
  }

  Cut cut;
  // Pieces of rows share b, pieces of columns a: of the larger, one core's part stays with it from step to step.
  if (x.m > x.n && x.m >= 96) cut.row_pieces = 2;
  halve(cut, &Cut::row_pieces, pieces, x.m, 2 * many);
  halve(cut, &Cut::column_pieces, pieces, panels, columns / kPanel<T>);
  halve(cut, &Cut::row_pieces, pieces, x.m, many);
  halve(cut, &Cut::column_pieces, pieces, panels, 1);
  if (x.b_transposed) pieces = min<int64_t>(pieces, threads);  // each would transpose b once more
  halve(cut, &Cut::row_pieces, pieces, x.m, few);
  const int64_t width = ceil_div(panels, cut.column_pieces) * kPanel<T>;
  cut.columns = even_piece(width, columns * max<int64_t>(1, rows / x.k), kPanel<T>);  // the more, the shorter k is
  // Rows that lie a multiple of 4 KiB apart share the 8 places of one set of a level 1 cache.
  const bool conflicting = min<int64_t>(x.m, kTileRows<2>) > 8 && x.a_row * static_cast<int64_t>(sizeof(T)) % 4096 == 0;
  cut.pack_a = (x.a_step != 1 || conflicting) && width >= 4 * kPanel<T>;
  // Each panel of a transposed b is used as soon as it is made, if all of a stays near too.
  if (x.b_transposed && !cut.pack_a && x.k * kPanel<T> * static_cast<int64_t>(sizeof(T)) <= kLevel1 &&
      x.m / cut.row_pieces * x.k * static_cast<int64_t>(sizeof(T)) <= kNearBytes)
    cut.columns = kPanel<T>;
  const int64_t b_bytes = x.b_stride * x.k * static_cast<int64_t>(sizeof(T));
  if (!x.b_transposed && x.k >= 64 && x.m > 2 * kTileRows<2> * cut.row_pieces)
    cut.pack_b = !kHasWidePanels && b_bytes > kFarBytes ? PackB::before : PackB::in_passing;
  if constexpr (kHasWidePanels) {
    const bool packs_b = x.b_transposed || cut.pack_b != PackB::never;
    if (wants_wide(x, min(width, x.n), packs_b)) return wide_cut_of(x, pieces, cut.pack_a, packs_b);
  }
  // Few rows: each panel is used up while it is near, and k is not cut.
  const bool by_panel = cut.pack_b == PackB::in_passing && !cut.pack_a &&
                        x.m / cut.row_pieces * min(x.k, kLongPanel) * static_cast<int64_t>(sizeof(T)) <= kNearBytes;
  if (by_panel) {
    cut.columns = kPanel<T>;
    cut.k = even_piece(x.k, kLongPanel, 4);
    return cut;
  }
  // In place, few rows of b at a time stay within the reach of address translation, and are read side by side.
  const bool far = !x.b_transposed && cut.pack_b == PackB::never && b_bytes > kNearBytes;
  const int64_t near = kLevel1 / static_cast<int64_t>(sizeof(T)) / (packed_rows<T>(kTileRows<2>) + kPanel<T>);
  cut.k =
      far ? x.m <= kTileRows<2> ? 32 : 64 : even_piece(x.k, cut.pack_a && x.a_step != 1 ? min(rows, near) : rows, 4);
  return cut;
}

}  // namespace reel::cpu::REEL_CPU_ISA::product
