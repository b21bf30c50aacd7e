#pragma once

#include "reel/backends/cpu/gemm_block.h"
#include "reel/backends/cpu/gemm_cut.h"
#include "reel/backends/cpu/gemm_dot.h"
#include "reel/backends/cpu/kernel.h"
#include "reel/core/ops.h"
#include "reel/core/parallel.h"

/// The outermost part of the matrix product, the plan: which operands to pack, how to cut the work among threads, which way
/// round. Every element of c is one fma chain in ascending k, on from c where k is cut, so the plan may depend on all
/// sizes and on the number of threads: an element's bits depend on its row of a and its column of b alone.
namespace reel::cpu::REEL_CPU_ISA::product {

/// Multiply-adds that one thread does before a second one pays: a few microseconds. Of twice as many two threads take 0.8 to 1.0 of
/// one's time (64 x 64 by 64 x 128; benchmark_grains).
constexpr int64_t kProductGrain = int64_t{1} << 18;

/// Element (r, c) is data[r * stride + c], or data[c * stride + r] if transposed.
template <class T>
struct Matrix {
  const T* data;
  int64_t stride;
  bool transposed;

  REEL_INLINE int64_t row_step() const { return transposed ? 1 : stride; }
  REEL_INLINE int64_t column_step() const { return transposed ? stride : 1; }
  REEL_INLINE const T* at(int64_t r, int64_t c) const { return data + r * row_step() + c * column_step(); }
};

/// c = relu(a b + bias), or c += a b + bias.
template <class T>
struct Product {
  int64_t m, n, k;
  Matrix<T> a, b;
  T* c;
  int64_t c_stride;
  const T* bias;
  bool accumulate, relu;
};

/// Whether one thread computes a product alone. Of doubles, which take twice as long, three quarters as many are enough for a
/// second thread; where there is none, the plan for few costs less.
template <class T>
REEL_INLINE bool is_small(const Product<T>& p) {
  const bool sooner = sizeof(T) == 8 && detail::available_threads() > 1;
  return p.m * p.n * p.k <= (sooner ? kProductGrain / 4 * 3 : kProductGrain);
}

template <class T>
REEL_INLINE Block<T> block_of(const Product<T>& p) {
  return {.m = p.m,
          .n = p.n,
          .k = p.k,
          .a = p.a.data,
          .a_row = p.a.row_step(),
          .a_step = p.a.column_step(),
          .b = p.b.data,
          .b_stride = p.b.stride,
          .b_transposed = p.b.transposed,
          .c = p.c,
          .c_stride = p.c_stride,
          .bias = p.bias,
          .load_c = p.accumulate,
          .relu = p.relu};
}

/// Adds the bias to columns begin .. end - 1 of rows first .. last - 1 of c and applies the epilogue, where the tiles did not.
template <class T>
void finish(const Product<T>& p, int64_t first, int64_t last, int64_t begin, int64_t end) {
  using V = Vec<T>;
  if (p.bias == nullptr && !p.relu) return;
  for (int64_t i = first; i < last; ++i)
    for (int64_t j = begin; j < end; j += V::width) {
      T* c = p.c + i * p.c_stride + j;
      const auto mask = V::first(min<int64_t>(end - j, V::width));
      V y = V::load(c, mask);
      if (p.bias != nullptr) y = y + V::load(p.bias + j, mask);
      if (p.relu) y = relu(y);
      y.store(c, mask);
    }
}

/// Rows and columns of a product that are computed the other way round, as c' [n, m] in a room: c's elements come from there to
/// be finished, and go there first where they are to be added to.
template <class T>
struct Turned {
  const Product<T>& p;
  T* room;
  int64_t rows, rows_end, columns, columns_end;

  void begin() const {
    if (p.accumulate)
      transpose(p.c + rows * p.c_stride + columns, p.c_stride, rows_end - rows, columns_end - columns,
                room + columns * p.m + rows, p.m);
  }
  void end() const {
    constexpr int64_t some = 64 / static_cast<int64_t>(sizeof(T));  // rows that are still near are finished
    for (int64_t i = rows; i < rows_end; i += some) {
      const int64_t next = min(i + some, rows_end);
      transpose(room + columns * p.m + i, p.m, columns_end - columns, next - i, p.c + i * p.c_stride + columns,
                p.c_stride);
      finish(p, i, next, columns, columns_end);
    }
  }
};

/// The pieces of a block, shared among threads: those of the same rows are neighbours. If the block is a product turned round,
/// whose c is the room, a thread turns its pieces while it has them near.
template <class T>
void multiply_in_parallel(const Block<T>& x, const Cut& cut, const Product<T>* turned = nullptr) {
  const int64_t panels = ceil_div(x.n, kPanel<T>), pieces = cut.row_pieces * cut.column_pieces;
  parallel_for(pieces, 1, [&](int64_t begin, int64_t end) {
    const int64_t piece_rows = ceil_div(x.m, cut.row_pieces);
    const int64_t a_rows = !cut.pack_a ? 0 : cut.wide ? min(cut.rows, piece_rows) : packed_rows<T>(kTileRows<1>);
    const Scratch a_room(sizeof(T) * a_rows * copied_stride<T>(min(cut.k, x.k)));
    // (As many panels as there are narrow ones: more than wide ones and those of what is left.)
    const int64_t b_panels =
        cut.rows < piece_rows ? ceil_div(panels, cut.column_pieces) : ceil_div(min(cut.columns, x.n), kPanel<T>);
    const Scratch b_room(packs_b(x, cut) ? sizeof(T) * b_panels * panel_room<T>(min(cut.k, x.k)) : 0);
    for (int64_t i = begin; i < end; ++i) {
      const int64_t row = i / cut.column_pieces, column = i % cut.column_pieces;
      const int64_t i0 = part_start(x.m, cut.row_pieces, row), i1 = part_start(x.m, cut.row_pieces, row + 1);
      const int64_t j0 = part_start(panels, cut.column_pieces, column) * kPanel<T>;
      const int64_t j1 = min(x.n, part_start(panels, cut.column_pieces, column + 1) * kPanel<T>);
      if (turned != nullptr) Turned<T>{*turned, x.c, j0, j1, i0, i1}.begin();
      multiply_piece(x, cut, {i0, i1, j0, j1}, a_room.as<T>(), b_room.as<T>());
      if (turned != nullptr) Turned<T>{*turned, x.c, j0, j1, i0, i1}.end();
    }
  });
}

/// Tile by tile, operands in place.
template <class T>
REEL_INLINE void multiply_in_place(const Product<T>& p) {
  Tile<T> tile{.k = p.k,
               .a = p.a.data,
               .a_row = p.a.row_step(),
               .a_step = p.a.column_step(),
               .b = p.b.data,
               .b_stride = p.b.stride,
               .c = p.c,
               .c_stride = p.c_stride,
               .columns = p.n,
               .bias = p.bias,
               .load_c = p.accumulate,
               .relu = p.relu};
  const bool wide = p.m < kTileRows<kTileVectors> || fills_wide_tiles(p.m);
  int64_t tallest = 0, tiles = 0;
  for (int64_t j = 0, n; j < p.n; j += n) {
    n = next_panel<T>(p.n - j, wide);
    if (const int64_t most = tallest_tile<T>(n); most != tallest) {
      tallest = most;
      tiles = p.m <= tallest ? 1 : ceil_div(p.m, tallest);
    }
    tile.columns = n;
    tile.b = p.b.data + j;
    if (p.bias != nullptr) tile.bias = p.bias + j;
    const TileFunction<T>* const by_rows = tiles_for<T>(tile.columns);
    for (int64_t i = 0, left = tiles; left > 0; --left) {
      const int64_t rows = (p.m - i) / left;  // as even as can be: low tiles waste the processor
      tile.a = p.a.at(i, 0);
      tile.c = p.c + i * p.c_stride + j;
      by_rows[rows - 1](tile);
      i += rows;
    }
  }
}

/// On this thread, in place but for a panel on the stack: no more overhead than that.
template <class T>
void multiply_small(const Product<T>& p) {
  if (!p.b.transposed) return multiply_in_place(p);
  constexpr int64_t room = 16 * 1024 / static_cast<int64_t>(sizeof(T));
  alignas(kVectorBytes) T panel[room];
  const bool wide = p.n >= kWidePanel<T> && p.m >= kWideRows && fills_wide_tiles(p.m);
  const int64_t columns = wide ? kWidePanel<T> : kPanel<T>;
  multiply_piece<T>(block_of(p), {.columns = columns, .k = room / columns, .wide = wide}, {0, p.m, 0, p.n}, nullptr,
                    panel);
}

/// Few rows of a by a transposed b.
template <class T>
void multiply_dots(const Product<T>& p) {
  const int64_t numbers_of_b = (int64_t{1} << 18) / max<int64_t>(p.m, 4),
                rows_of_b = numbers_of_b / (kPanel<T> * p.k) * kPanel<T>;
  parallel_for(p.n, max(rows_of_b, kPanel<T>), [&](int64_t begin, int64_t end) {
    for (int64_t j = begin; j < end; j += kPanel<T>) {
      const int64_t columns = min(kPanel<T>, end - j);
      dot_products(p.m, p.a.data, p.a.stride, p.a.transposed, p.b.data + j * p.b.stride, p.b.stride, p.k, columns,
                   p.accumulate, p.c + j, p.c_stride);
    }
    finish(p, 0, p.m, begin, end);
  });
}

/// With c's columns across the lanes of a register.
template <class T>
void multiply_upright(const Product<T>& p) {
  if (p.b.transposed && takes_dots<T>(p.m, p.n)) return multiply_dots(p);
  if (is_small(p)) return multiply_small(p);
  const Block<T> x = block_of(p);
  multiply_in_parallel(x, cut_of(x));
}

/// Rough costs, in halves of a cycle per register, to choose the way round. A transposed a is copied, or waited for;
/// a transposed b is turned, once for each of `times`, but for `dots`.
template <class T>
REEL_INLINE int64_t cost_of(int64_t m, int64_t n, int64_t k, bool a_transposed, bool b_transposed, int64_t times,
                            bool dots) {
  constexpr int64_t width = Vec<T>::width;
  if (dots) return n * k * (7 + m) / width;
  const int64_t copying = a_transposed && n > kPanel<T> ? 4 * m / width : 0;
  const int64_t turning = b_transposed ? 8 * (n / width) + (n % width > 0 ? 24 : 0) : 0;
  return (max<int64_t>(m, 4) * ceil_div(n, width) + copying + turning * times) * k;
}

/// True if it costs less to compute c' = b' a' and to turn that round.
template <class T>
REEL_INLINE bool better_turned(const Product<T>& p) {
  constexpr int64_t width = Vec<T>::width;
  if (!p.b.transposed && (p.n > width / 2 || (p.n >= p.m && p.n > kFewDotRows))) return false;  // neither costs less
  if (p.m * p.n > 1 << 16 && p.n > kFewDotRows) return false;
  // One or two columns upright: a number of a is waited for at each multiply-add of a register that is all but empty. Without
  // AVX-512 the formulas below miss that; and without AVX2 that one or two rows, turned, are such columns.
  if (kVectorBytes <= 32 && p.n <= 2 && !p.a.transposed && p.m >= 16 && p.k >= (p.n == 1 ? 8 : 64)) return true;
  if (kVectorBytes == 16 && p.m <= 2 && p.b.transposed) return false;
  const int64_t pieces = is_small(p) ? 1 : 2;  // of c's columns, each of which takes all of a
  constexpr int64_t once = kVectorBytes == 64 ? 14 : 10;
  const int64_t turning = p.n == 1 && p.c_stride == 1 ? 0 : (p.accumulate ? 2 : 1) * once * p.m * p.n / width;
  return cost_of<T>(p.n, p.m, p.k, !p.b.transposed, !p.a.transposed, pieces,
                    !p.a.transposed && (is_small(p) ? takes_dots<T>(p.n, p.m) : p.n <= kFewDotRows)) +
             turning <
         cost_of<T>(p.m, p.n, p.k, p.a.transposed, p.b.transposed, 1, p.b.transposed && takes_dots<T>(p.m, p.n));
}

/// c' = b' a' in c itself, if it is a dense column, or in `room`, and from there into c.
template <class T>
void multiply_turned(const Product<T>& p, T* room) {
  Product<T> turned = p;
  turned.m = p.n;
  turned.n = p.m;
  turned.a = {p.b.data, p.b.stride, !p.b.transposed};
  turned.b = {p.a.data, p.a.stride, !p.a.transposed};
  turned.bias = nullptr;
  turned.relu = false;
  turned.c = room != nullptr ? room : p.c;
  turned.c_stride = p.m;
  if (p.n > kFewDotRows && !is_small(p)) {
    const Block<T> x = block_of(turned);
    return multiply_in_parallel(x, cut_of(x), &p);
  }
  if (room == nullptr) {
    multiply_upright(turned);
    return finish(p, 0, p.m, 0, p.n);
  }
  const Turned<T> all{p, room, 0, p.m, 0, p.n};
  all.begin();
  multiply_upright(turned);
  all.end();
}

template <class T>
void multiply_turned(const Product<T>& p) {
  constexpr int64_t small = 1024, strip = small / kFewDotRows;
  if (p.n == 1 && p.c_stride == 1) return multiply_turned<T>(p, nullptr);
  if (p.m * p.n <= small) {
    alignas(kVectorBytes) T room[small];
    return multiply_turned(p, room);
  }
  if (p.n > kFewDotRows) {
    const Scratch room(sizeof(T) * p.m * p.n);
    return multiply_turned(p, room.as<T>());
  }
  // Tall and narrow: by strips of rows.
  parallel_for(ceil_div(p.m, strip), ceil_div(kProductGrain, strip * kFewDotRows * p.k),
               [&](int64_t begin, int64_t end) {
                 alignas(kVectorBytes) T room[small];
                 for (int64_t i = begin * strip; i < min(end * strip, p.m); i += strip) {
                   Product<T> part = p;
                   part.m = min(strip, p.m - i);
                   part.a.data = p.a.at(i, 0);
                   part.c = p.c + i * p.c_stride;
                   multiply_turned(part, room);
                 }
               });
}

/// k = 0: sums of nothing.
template <class T>
void multiply_nothing(const Product<T>& p) {
  if (!p.accumulate)
    for (int64_t i = 0; i < p.m; ++i)
      for (int64_t j = 0; j < p.n; ++j) p.c[i * p.c_stride + j] = 0;
  finish(p, 0, p.m, 0, p.n);
}

template <class T>
void multiply(const Gemm& g) {
  Product<T> p{g.m,
               g.n,
               g.k,
               {static_cast<const T*>(g.a), g.lda, g.trans_a},
               {static_cast<const T*>(g.b), g.ldb, g.trans_b},
               static_cast<T*>(g.c),
               g.ldc,
               static_cast<const T*>(g.bias),
               g.accumulate,
               g.epilogue == Epilogue::relu};
  int64_t batch = g.batch;
  // One b for all and rows that go on evenly: one taller product.
  if (batch > 1 && g.stride_b == 0 && !g.trans_a && g.stride_a == g.m * g.lda && g.stride_c == g.m * g.ldc) {
    p.m *= batch;
    batch = 1;
  }
  const auto run = [](const Product<T>& one) __attribute__((noinline)) {
    if (one.k == 0) {
      multiply_nothing(one);
    } else if (better_turned(one)) {
      multiply_turned(one);
    } else {
      multiply_upright(one);
    }
  };
  if (batch == 1) return run(p);

  const auto run_range = [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      Product<T> one = p;
      one.a.data += i * g.stride_a;
      one.b.data += i * g.stride_b;
      one.c += i * g.stride_c;
      run(one);
    }
  };
  const int64_t work = max<int64_t>(p.m * p.n * p.k, 1);
  if (batch >= 16 || work <= kProductGrain) {
    parallel_for(batch, ceil_div(kProductGrain, work), run_range);
  } else {
    run_range(0, batch);
  }
}

}  // namespace reel::cpu::REEL_CPU_ISA::product
