#pragma once

#include "reel/backends/cpu/gemm_block.h"
#include "reel/backends/cpu/gemm_dot.h"
#include "reel/backends/cpu/kernel.h"
#include "reel/core/ops.h"

/// The outermost part of the matrix product, the plan: which operands to pack, how to cut the work among threads, which way
/// round. Every element of c is one fma chain in ascending k, on from c where k is cut, so the plan may depend on all
/// sizes: an element's bits depend on its row of a and its column of b alone.
namespace reel::cpu::REEL_CPU_ISA::product {

/// Multiply-adds that one thread does before a second one pays: a few microseconds.
constexpr int64_t kProductGrain = int64_t{1} << 18;

/// The size of the even pieces, rounded up to `unit`, that cut `size` into pieces of at most about `limit`.
REEL_INLINE int64_t even_piece(int64_t size, int64_t limit, int64_t unit) {
  if (size <= limit) return size;
  return ceil_div(ceil_div(size, ceil_div(size, limit)), unit) * unit;
}

/// Element (r, c) is data[r * stride + c], or data[c * stride + r] if transposed.
template <class T>
struct Matrix {
  const T* data;
  int64_t stride;
  bool transposed;

  REEL_INLINE const T* at(int64_t r, int64_t c) const { return data + (transposed ? c * stride + r : r * stride + c); }
  REEL_INLINE Source source() const { return transposed ? Source::columns : Source::rows; }
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

/// Rows i .. i + m - 1 and columns j .. j + n - 1 of c, over k0 .. k0 + k - 1, from the operands as they are stored.
template <class T>
REEL_INLINE Block<T> block_of(const Product<T>& p, int64_t i, int64_t m, int64_t j, int64_t n, int64_t k0, int64_t k) {
  const bool last = k0 + k == p.k;
  return {.m = m,
          .n = n,
          .k = k,
          .tiles = RowTiles(m, tallest_tile<T>(n)),
          .a_source = p.a.source(),
          .b_source = p.b.source(),
          .a = p.a.at(i, k0),
          .a_stride = p.a.stride,
          .b = p.b.at(k0, j),
          .b_stride = p.b.stride,
          .c = p.c + i * p.c_stride + j,
          .c_stride = p.c_stride,
          .bias = last && p.bias != nullptr ? p.bias + j : nullptr,
          .load_c = p.accumulate || k0 > 0,
          .relu = last && p.relu};
}

/// How a block is cut: into pieces of `row_tiles` by `columns`, which run with k in steps of `k_step`.
struct Cut {
  int64_t row_tiles, columns, k_step;
};

/// The pieces of a block, shared among threads.
template <class T>
void multiply_in_parallel(const Block<T>& x, const Cut& cut) {
  const int64_t row_groups = ceil_div(x.tiles.count, cut.row_tiles);
  const int64_t pieces = row_groups * ceil_div(x.n, cut.columns);
  const int64_t work = x.m * x.n * x.k / pieces + 1;
  parallel_for(pieces, ceil_div(kProductGrain, work), [&](int64_t begin, int64_t end) {
    const Scratch panel(x.b_source == Source::columns ? sizeof(T) * kPanel<T> * min(cut.k_step, x.k) : 0);
    for (int64_t i = begin; i < end; ++i) {
      const int64_t t = i % row_groups * cut.row_tiles, j = i / row_groups * cut.columns;
      multiply_tiles(x, t, min(t + cut.row_tiles, x.tiles.count), j, min(j + cut.columns, x.n), cut.k_step,
                     panel.as<T>());
    }
  });
}

template <class T>
void pack_a(const Matrix<T>& a, int64_t i0, int64_t k0, int64_t k, const RowTiles& tiles, T* packed) {
  parallel_for(tiles.count, 8, [&](int64_t begin, int64_t end) {
    for (int64_t t = begin; t < end; ++t) {
      const int64_t i = tiles.start(t), height = tiles.height(t);
      copy_rows(a.at(i0 + i, k0), a.stride, k, height, packed + i * k, height);
    }
  });
}

template <class T>
void pack_b(const Matrix<T>& b, int64_t k0, int64_t k, int64_t j0, int64_t n, T* packed) {
  parallel_for(ceil_div(n, kPanel<T>), 4, [&](int64_t begin, int64_t end) {
    for (int64_t p = begin; p < end; ++p) {
      const int64_t j = p * kPanel<T>, columns = min(kPanel<T>, n - j);
      const T* from = b.at(k0, j0 + j);
      if (b.transposed) {
        transpose(from, b.stride, columns, k, packed + j * k, kPanel<T>);
      } else {
        copy_rows(from, b.stride, k, columns, packed + j * k, kPanel<T>);
      }
    }
  });
}

/// Bytes of b that are best read in place: they stay in the level 2 cache.
constexpr int64_t kDirectBytes = 640 * 1024;
/// Fewer row tiles than this read a panel of b too few times for a packed copy to pay.
constexpr int64_t kFewRowTiles = 5;

/// From the operands in place, but for panels of a transposed b.
template <class T>
void multiply_direct(const Product<T>& p) {
  const Block<T> x = block_of(p, 0, p.m, 0, p.n, 0, p.k);
  const int64_t row_tiles = min<int64_t>(x.tiles.count, 8);
  const int64_t panel_work = row_tiles * x.tiles.low * kPanel<T> * x.k;
  int64_t panels = ceil_div(kProductGrain, panel_work), k_step = 256;
  if (!p.b.transposed && p.b.stride * p.k * static_cast<int64_t>(sizeof(T)) > kDirectBytes) {
    // The rows of a panel of b are far apart. Few rows at a time stay within the reach of the level 1 cache and of its
    // address translation, and side by side they are long enough for the processor to read ahead.
    panels = max(panels, min<int64_t>(p.n / (4 * kPanel<T>), 16));
    k_step = x.tiles.count == 1 ? 32 : 64;
  }
  multiply_in_parallel(x, {row_tiles, panels * kPanel<T>, k_step});
}

/// Block by block, from a packed copy of b, and of a large transposed a, that all threads share. A block of b (about 1 MiB)
/// passes by in the level 2 cache for one row tile of a after the other. k is cut as rarely as that allows: each cut reads
/// and writes all of c once more.
template <class T>
void multiply_packed(const Product<T>& p) {
  constexpr int64_t b_columns = 1024 / static_cast<int64_t>(sizeof(T)), b_rows = 1024, a_rows = 1024;
  const bool packs_a = p.a.transposed && p.a.stride * p.k * static_cast<int64_t>(sizeof(T)) > kDirectBytes;
  const int64_t m_step = packs_a ? even_piece(p.m, a_rows, kTileRows<2>) : p.m;
  const int64_t n_step = even_piece(p.n, b_columns, kPanel<T>), k_step = even_piece(p.k, b_rows, 4);
  const Scratch a_room(packs_a ? sizeof(T) * m_step * k_step : 0);
  const Scratch b_room(sizeof(T) * ceil_div(n_step, kPanel<T>) * kPanel<T> * k_step);
  for (int64_t i = 0; i < p.m; i += m_step)
    for (int64_t k0 = 0; k0 < p.k; k0 += k_step) {
      const int64_t m = min(m_step, p.m - i), k = min(k_step, p.k - k0);
      const RowTiles tiles(m, kTileRows<2>);
      if (packs_a) pack_a(p.a, i, k0, k, tiles, a_room.as<T>());
      for (int64_t j = 0; j < p.n; j += n_step) {
        const int64_t n = min(n_step, p.n - j);
        Block<T> x = block_of(p, i, m, j, n, k0, k);
        x.tiles = tiles;
        if (packs_a) {
          x.a_source = Source::packed;
          x.a = a_room.as<T>();
        }
        pack_b(p.b, k0, k, j, n, b_room.as<T>());
        x.b_source = Source::packed;
        x.b = b_room.as<T>();
        multiply_in_parallel(x, {1, n, k});
      }
    }
}

/// On this thread, in place but for a panel on the stack: no more overhead than that.
template <class T>
void multiply_small(const Product<T>& p) {
  const Block<T> x = block_of(p, 0, p.m, 0, p.n, 0, p.k);
  if (!p.b.transposed) return multiply_tiles<T>(x, 0, x.tiles.count, 0, x.n, p.k, nullptr);
  constexpr int64_t room = 16 * 1024 / static_cast<int64_t>(sizeof(T));
  alignas(kVectorBytes) T panel[room];
  multiply_tiles<T>(x, 0, x.tiles.count, 0, x.n, room / kPanel<T>, panel);
}

/// Adds the bias to columns begin .. end - 1 of c and applies the epilogue, where the tiles did not.
template <class T>
REEL_INLINE void finish(const Product<T>& p, int64_t begin, int64_t end) {
  using V = Vec<T>;
  if (p.bias == nullptr && !p.relu) return;
  for (int64_t i = 0; i < p.m; ++i)
    for (int64_t j = begin; j < end; j += V::width) {
      T* c = p.c + i * p.c_stride + j;
      const auto mask = V::first(min<int64_t>(end - j, V::width));
      V y = V::load(c, mask);
      if (p.bias != nullptr) y = y + V::load(p.bias + j, mask);
      if (p.relu) y = relu(y);
      y.store(c, mask);
    }
}

/// At most kDotRows rows of a by a transposed b.
template <class T>
void multiply_dots(const Product<T>& p) {
  const int64_t rows_of_b = (int64_t{1} << 16) / (kPanel<T> * p.k) * kPanel<T>;
  parallel_for(p.n, max(rows_of_b, kPanel<T>), [&](int64_t begin, int64_t end) {
    for (int64_t j = begin; j < end; j += kPanel<T>) {
      const int64_t columns = min(kPanel<T>, end - j);
      dot_products(p.m, p.a.data, p.a.stride, p.a.transposed, p.b.data + j * p.b.stride, p.b.stride, p.k, columns,
                   p.accumulate, p.c + j, p.c_stride);
    }
    finish(p, begin, end);
  });
}

/// With c's columns across the lanes of a register.
template <class T>
void multiply_upright(const Product<T>& p) {
  if (p.b.transposed && p.m <= kDotRows) return multiply_dots(p);
  if (p.m * p.n * p.k <= kProductGrain) return multiply_small(p);
  const bool in_place = !p.b.transposed && p.k * p.n * static_cast<int64_t>(sizeof(T)) <= kDirectBytes;
  if (in_place || p.m < kFewRowTiles * kTileRows<2>) return multiply_direct(p);
  multiply_packed(p);
}

/// Rough costs, in halves of a cycle per register, to choose the way round.
template <class T>
REEL_INLINE int64_t cost_of(int64_t m, int64_t n, int64_t k, bool b_transposed) {
  constexpr int64_t width = Vec<T>::width;
  if (b_transposed && m <= kDotRows) return n * k * (7 + m) / width;
  return max<int64_t>(m, 4) * ceil_div(n, width) * k + (b_transposed ? n * k * 5 / width : 0);
}

/// True if it costs less to compute c' = b' a' and to turn that round.
template <class T>
REEL_INLINE bool better_turned(const Product<T>& p) {
  constexpr int64_t width = Vec<T>::width;
  if (!p.b.transposed && p.n > width / 2) return false;
  if (p.m * p.n > 1 << 16 && p.n > kDotRows) return false;
  const int64_t turning = p.n == 1 && p.c_stride == 1 ? 0 : (p.accumulate ? 10 : 5) * p.m * p.n / width;
  return cost_of<T>(p.n, p.m, p.k, !p.a.transposed) + turning < cost_of<T>(p.m, p.n, p.k, p.b.transposed);
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
  if (p.accumulate && room != nullptr) transpose(p.c, p.c_stride, p.m, p.n, room, p.m);
  multiply_upright(turned);
  if (room != nullptr) transpose(room, p.m, p.n, p.m, p.c, p.c_stride);
  finish(p, 0, p.n);
}

template <class T>
void multiply_turned(const Product<T>& p) {
  constexpr int64_t small = 1024, strip = small / kDotRows;
  if (p.n == 1 && p.c_stride == 1) return multiply_turned<T>(p, nullptr);
  if (p.m * p.n <= small) {
    alignas(kVectorBytes) T room[small];
    return multiply_turned(p, room);
  }
  if (p.n > kDotRows) {
    const Scratch room(sizeof(T) * p.m * p.n);
    return multiply_turned(p, room.as<T>());
  }
  // Tall and narrow: by strips of rows.
  parallel_for(ceil_div(p.m, strip), ceil_div(kProductGrain, strip * kDotRows * p.k), [&](int64_t begin, int64_t end) {
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
  finish(p, 0, p.n);
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
  const auto run = [&](const Product<T>& one) {
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
