// The matrix product. Three layers: a tile in registers (gemm_kernel.h), a block of c from direct or packed operands
// (gemm_block.h), and here the plan: which operands to pack, how to cut the work among threads, and which way round.
//
// Every element of c is one fma chain in ascending k, on from c where k is cut. So the plan is free to depend on all
// sizes: an element's bits depend on its row of a and its column of b alone.

#include "reel/backends/cpu/cpu_ops.h"
#include "reel/backends/cpu/gemm_block.h"
#include "reel/core/parallel.h"

namespace reel::cpu::REEL_CPU_ISA {

namespace {

/// Multiply-adds that one thread does before a second one pays: a few microseconds.
constexpr std::int64_t kGrain = std::int64_t{1} << 18;

REEL_INLINE std::int64_t least(std::int64_t a, std::int64_t b) { return a < b ? a : b; }
REEL_INLINE std::int64_t greatest(std::int64_t a, std::int64_t b) { return a > b ? a : b; }
REEL_INLINE std::int64_t ceil_div(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }

/// The size of the even pieces, rounded up to `unit`, that cut `size` into pieces of at most about `limit`.
REEL_INLINE std::int64_t even_piece(std::int64_t size, std::int64_t limit, std::int64_t unit) {
  if (size <= limit) return size;
  return ceil_div(ceil_div(size, ceil_div(size, limit)), unit) * unit;
}

/// Element (r, c) is data[r * stride + c], or data[c * stride + r] if transposed.
template <class T>
struct Matrix {
  const T* data;
  std::int64_t stride;
  bool transposed;

  REEL_INLINE const T* at(std::int64_t r, std::int64_t c) const {
    return data + (transposed ? c * stride + r : r * stride + c);
  }
  REEL_INLINE Source source() const { return transposed ? Source::columns : Source::rows; }
};

/// c = relu(a b + bias), or c += a b + bias.
template <class T>
struct Product {
  std::int64_t m, n, k;
  Matrix<T> a, b;
  T* c;
  std::int64_t c_stride;
  const T* bias;
  bool accumulate, relu;
};

template <class T>
REEL_INLINE Block<T> direct_block(const Product<T>& p) {
  return {p.m,          p.n,          p.k,      RowTiles(p.m, tallest_tile<T>(p.n)),
          p.a.source(), p.b.source(), p.a.data, p.a.stride,
          p.b.data,     p.b.stride,   p.c,      p.c_stride,
          p.bias,       p.accumulate, p.relu};
}

/// The tiles of a block, shared among threads: a piece is some row tiles by some panels.
template <class T>
void multiply_in_parallel(const Block<T>& x, std::int64_t k_step) {
  const std::int64_t row_group = least(x.tiles.count, 8);
  const std::int64_t row_groups = ceil_div(x.tiles.count, row_group);
  const std::int64_t panel_work = greatest(row_group * x.tiles.low * kPanel<T> * x.k, 1);
  const std::int64_t columns = least(x.n, ceil_div(kGrain, panel_work) * kPanel<T>);
  const std::int64_t column_groups = ceil_div(x.n, columns);
  const std::int64_t work = greatest(row_group * x.tiles.low * columns * x.k, 1);
  parallel_for(row_groups * column_groups, ceil_div(kGrain, work), [&](std::int64_t begin, std::int64_t end) {
    const Scratch panel(x.b_source == Source::columns ? sizeof(T) * kPanel<T> * least(k_step, x.k) : 0);
    for (std::int64_t i = begin; i < end; ++i) {
      const std::int64_t t0 = i % row_groups * row_group, j0 = i / row_groups * columns;
      multiply_tiles(x, t0, least(t0 + row_group, x.tiles.count), j0, least(j0 + columns, x.n), k_step, panel.as<T>());
    }
  });
}

template <class T>
void pack_a(const Matrix<T>& a, std::int64_t i0, std::int64_t k0, std::int64_t k, const RowTiles& tiles, T* packed) {
  parallel_for(tiles.count, 8, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t t = begin; t < end; ++t) {
      const std::int64_t i = tiles.start(t), rows = tiles.height(t);
      const T* from = a.at(i0 + i, k0);
      if (a.transposed) {
        copy_rows(from, a.stride, k, rows, packed + i * k, rows);
      } else {
        transpose(from, a.stride, rows, k, packed + i * k, rows);
      }
    }
  });
}

template <class T>
void pack_b(const Matrix<T>& b, std::int64_t k0, std::int64_t k, std::int64_t j0, std::int64_t n, T* packed) {
  parallel_for(ceil_div(n, kPanel<T>), 4, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t p = begin; p < end; ++p) {
      const std::int64_t j = p * kPanel<T>, columns = least(kPanel<T>, n - j);
      const T* from = b.at(k0, j0 + j);
      if (b.transposed) {
        transpose(from, b.stride, columns, k, packed + j * k, kPanel<T>);
      } else {
        copy_rows(from, b.stride, k, columns, packed + j * k, kPanel<T>);
      }
    }
  });
}

/// Block by block, from packed copies of one or both operands that all threads share.
template <class T>
void multiply_packed(const Product<T>& p, bool packs_a, bool packs_b) {
  constexpr std::int64_t k_limit = 1536 / static_cast<std::int64_t>(sizeof(T));
  constexpr std::int64_t side = 1024;
  const std::int64_t m_step = even_piece(p.m, side, kTileRows<2>), n_step = even_piece(p.n, side, kPanel<T>);
  const std::int64_t k_step = even_piece(p.k, k_limit, 4);
  const Scratch a_room(packs_a ? sizeof(T) * m_step * k_step : 0);
  const Scratch b_room(packs_b ? sizeof(T) * ceil_div(n_step, kPanel<T>) * kPanel<T> * k_step : 0);
  for (std::int64_t i = 0; i < p.m; i += m_step)
    for (std::int64_t j = 0; j < p.n; j += n_step)
      for (std::int64_t k0 = 0; k0 < p.k; k0 += k_step) {
        const std::int64_t m = least(m_step, p.m - i), n = least(n_step, p.n - j), k = least(k_step, p.k - k0);
        const bool last = k0 + k == p.k;
        Block<T> x{m,
                   n,
                   k,
                   RowTiles(m, tallest_tile<T>(n)),
                   p.a.source(),
                   p.b.source(),
                   p.a.at(i, k0),
                   p.a.stride,
                   p.b.at(k0, j),
                   p.b.stride,
                   p.c + i * p.c_stride + j,
                   p.c_stride,
                   last && p.bias != nullptr ? p.bias + j : nullptr,
                   p.accumulate || k0 > 0,
                   last && p.relu};
        if (packs_a) {
          pack_a(p.a, i, k0, k, x.tiles, a_room.as<T>());
          x.a_source = Source::packed;
          x.a = a_room.as<T>();
        }
        if (packs_b) {
          pack_b(p.b, k0, k, j, n, b_room.as<T>());
          x.b_source = Source::packed;
          x.b = b_room.as<T>();
        }
        multiply_in_parallel(x, k);
      }
}

/// With c's columns across the lanes of a register.
template <class T>
void multiply_upright(const Product<T>& p) {
  const std::int64_t work = p.m * p.n * p.k;
  if (!p.b.transposed && work <= kGrain) {
    const Block<T> x = direct_block(p);
    multiply_tiles<T>(x, 0, x.tiles.count, 0, x.n, p.k, nullptr);
    return;
  }
  const std::int64_t row_tiles = ceil_div(p.m, kTileRows<2>);
  const bool b_fits = p.k * p.n * static_cast<std::int64_t>(sizeof(T)) <= 128 * 1024;
  if (row_tiles <= 1) {
    multiply_in_parallel(direct_block(p), p.b.transposed ? 256 : 32);
  } else if (!p.b.transposed && (b_fits || row_tiles <= 8)) {
    multiply_in_parallel(direct_block(p), 256);
  } else if (row_tiles <= 8) {
    multiply_in_parallel(direct_block(p), 256);
  } else {
    multiply_packed(p, p.n > 2 * kPanel<T>, true);
  }
}

/// Rough costs, in units of half a cycle, to choose the way round.
template <class T>
std::int64_t cost_of(std::int64_t m, std::int64_t n, std::int64_t k, bool b_transposed) {
  constexpr std::int64_t width = Vec<T>::width;
  const std::int64_t vectors = ceil_div(n, width);
  return greatest(m, 4) * vectors * k + (b_transposed ? 5 * n * k / width : 0);
}

/// True if it costs less to compute c' = b' a' and to turn that round.
template <class T>
REEL_INLINE bool better_turned(const Product<T>& p) {
  constexpr std::int64_t width = Vec<T>::width;
  if (!p.b.transposed && p.n > width / 2) return false;
  if (p.m * p.n > 1 << 16 && p.n > 4) return false;
  const std::int64_t turning = p.n == 1 && p.c_stride == 1 ? 0 : (p.accumulate ? 10 : 5) * p.m * p.n / width;
  return cost_of<T>(p.n, p.m, p.k, !p.a.transposed) + turning < cost_of<T>(p.m, p.n, p.k, p.b.transposed);
}

/// c += bias, c = relu(c), where they were not part of the tiles.
template <class T>
void finish(const Product<T>& p) {
  if (p.bias == nullptr && !p.relu) return;
  for (std::int64_t i = 0; i < p.m; ++i) {
    T* c = p.c + i * p.c_stride;
    for (std::int64_t j = 0; j < p.n; j += Vec<T>::width) {
      const auto mask = Vec<T>::first(least(p.n - j, Vec<T>::width));
      Vec<T> y = Vec<T>::load(c + j, mask);
      if (p.bias != nullptr) y = y + Vec<T>::load(p.bias + j, mask);
      if (p.relu) y = relu(y);
      y.store(c + j, mask);
    }
  }
}

/// k = 0: sums of nothing.
template <class T>
void multiply_nothing(const Product<T>& p) {
  if (!p.accumulate)
    for (std::int64_t i = 0; i < p.m; ++i)
      for (std::int64_t j = 0; j < p.n; ++j) p.c[i * p.c_stride + j] = 0;
  finish(p);
}

template <class T>
void multiply_turned(const Product<T>& p) {
  Product<T> turned = p;
  turned.m = p.n;
  turned.n = p.m;
  turned.a = {p.b.data, p.b.stride, !p.b.transposed};
  turned.b = {p.a.data, p.a.stride, !p.a.transposed};
  turned.bias = nullptr;
  turned.relu = false;
  const bool in_place = p.n == 1 && p.c_stride == 1;
  const Scratch room(in_place ? 0 : sizeof(T) * p.m * p.n);
  turned.c = in_place ? p.c : room.as<T>();
  turned.c_stride = p.m;
  if (p.accumulate && !in_place) transpose(p.c, p.c_stride, p.m, p.n, turned.c, turned.c_stride);
  multiply_upright(turned);
  if (!in_place) transpose(turned.c, turned.c_stride, p.n, p.m, p.c, p.c_stride);
  finish(p);
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
  std::int64_t batch = g.batch;
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

  const auto run_range = [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) {
      Product<T> one = p;
      one.a.data += i * g.stride_a;
      one.b.data += i * g.stride_b;
      one.c += i * g.stride_c;
      run(one);
    }
  };
  const std::int64_t work = greatest(p.m * p.n * p.k, 1);
  if (batch >= 16 || work <= kGrain) {
    parallel_for(batch, ceil_div(kGrain, work), run_range);
  } else {
    run_range(0, batch);
  }
}

}  // namespace

void CpuOps::gemm(const Gemm& gemm) {
  if (gemm.m == 0 || gemm.n == 0 || gemm.batch == 0) return;
  if (gemm.dtype == DType::f32) {
    multiply<float>(gemm);
  } else {
    multiply<double>(gemm);
  }
}

}  // namespace reel::cpu::REEL_CPU_ISA
