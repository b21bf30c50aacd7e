// The ladder of the matrix product, c [n, n] = a b in f32 on one core: three loops in their six orders, tiled for the cache,
// tiled for the registers, with packed operands too, then Eigen and Reel. n = 1000, 1024 and 1056: rows of 1024 floats lie a
// multiple of 4096 bytes apart and fall into few sets of the cache, which packing cures where operands are read again and again, not
// where they are packed from nor in c; n = 100 is there to check that all compute the same. All of it is compiled for the machine it
// runs on. With --serve a side of scripts/bench; otherwise a program of Google Benchmark.

#include <algorithm>
#include <array>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "google.h"
#include "reel/core/ops.h"
#include "reel/core/parallel.h"

#if __has_include(<Eigen/Core>)
#include <Eigen/Core>
#define REEL_BENCHMARK_EIGEN
#endif

namespace {

using Int = std::int64_t;
using Product = void (*)(const float* a, const float* b, float* c, Int n);

/// The three loops, outermost first: "ikj". The compiler vectorises the innermost where its accesses are consecutive.
template <char first, char second, char third>
void loops(const float* __restrict a, const float* __restrict b, float* __restrict c, Int n) {
  std::fill(c, c + n * n, 0.0f);
  const auto at = [](char wanted, Int x, Int y, Int z) { return wanted == first ? x : wanted == second ? y : z; };
  for (Int x = 0; x < n; ++x)
    for (Int y = 0; y < n; ++y) {
      if constexpr (third == 'k') {
        const Int i = at('i', x, y, 0), j = at('j', x, y, 0);
        float sum = 0;
        for (Int k = 0; k < n; ++k) sum += a[i * n + k] * b[k * n + j];
        c[i * n + j] = sum;
      } else {
        for (Int z = 0; z < n; ++z) {
          const Int i = at('i', x, y, z), j = at('j', x, y, z), k = at('k', x, y, z);
          c[i * n + j] += a[i * n + k] * b[k * n + j];
        }
      }
    }
}

/// ikj within blocks that stay in the first two caches.
void tiled(const float* __restrict a, const float* __restrict b, float* __restrict c, Int n) {
  constexpr Int kRows = 64, kDepth = 64, kCols = 256;
  std::fill(c, c + n * n, 0.0f);
  for (Int k0 = 0; k0 < n; k0 += kDepth)
    for (Int j0 = 0; j0 < n; j0 += kCols)
      for (Int i0 = 0; i0 < n; i0 += kRows)
        for (Int i = i0; i < std::min(n, i0 + kRows); ++i)
          for (Int k = k0; k < std::min(n, k0 + kDepth); ++k) {
            const float factor = a[i * n + k];
            for (Int j = j0; j < std::min(n, j0 + kCols); ++j) c[i * n + j] += factor * b[k * n + j];
          }
}

#ifdef __AVX512F__
constexpr Int kLanes = 16, kTileRows = 8, kTileVectors = 3;
#else
constexpr Int kLanes = 8, kTileRows = 4, kTileVectors = 3;
#endif
constexpr Int kTileCols = kLanes * kTileVectors;
typedef float Vector __attribute__((vector_size(kLanes * sizeof(float)), aligned(4)));

/// c [kTileRows, kTileCols] += a b over `depth`, c in registers. Element (i, k) of a is at i * a_row + k * a_depth, row k of b
/// at k * b_row.
inline void register_tile(const float* a, Int a_row, Int a_depth, const float* b, Int b_row, Int depth, float* c,
                          Int c_row) {
  Vector sums[kTileRows][kTileVectors] = {};
  for (Int k = 0; k < depth; ++k) {
    Vector right[kTileVectors];
    for (Int v = 0; v < kTileVectors; ++v) right[v] = *reinterpret_cast<const Vector*>(b + k * b_row + v * kLanes);
#pragma GCC unroll 8
    for (Int i = 0; i < kTileRows; ++i) {
      const float left = a[i * a_row + k * a_depth];
#pragma GCC unroll 3
      for (Int v = 0; v < kTileVectors; ++v) sums[i][v] += left * right[v];
    }
  }
  for (Int i = 0; i < kTileRows; ++i)
    for (Int v = 0; v < kTileVectors; ++v) *reinterpret_cast<Vector*>(c + i * c_row + v * kLanes) += sums[i][v];
}
/// What is left at the edges of c.
void edge(const float* a, const float* b, float* c, Int n, Int rows_begin, Int cols_begin, Int rows_end, Int cols_end) {
  for (Int i = rows_begin; i < rows_end; ++i)
    for (Int k = 0; k < n; ++k)
      for (Int j = cols_begin; j < cols_end; ++j) c[i * n + j] += a[i * n + k] * b[k * n + j];
}

void register_tiled(const float* __restrict a, const float* __restrict b, float* __restrict c, Int n) {
  const Int rows = n / kTileRows * kTileRows, cols = n / kTileCols * kTileCols;
  std::fill(c, c + n * n, 0.0f);
  for (Int i = 0; i < rows; i += kTileRows)
    for (Int j = 0; j < cols; j += kTileCols) register_tile(a + i * n, n, 1, b + j, n, n, c + i * n + j, n);
  edge(a, b, c, n, rows, 0, n, n);
  edge(a, b, c, n, 0, cols, rows, n);
}

/// Register tiles over blocks of a and b that were copied into the order they are read in; Goto, van de Geijn, "Anatomy of
/// high-performance matrix multiplication", 2008.
void packed(const float* __restrict a, const float* __restrict b, float* __restrict c, Int n) {
  constexpr Int kDepth = 256, kRows = 96;
  const Int rows = n / kTileRows * kTileRows, cols = n / kTileCols * kTileCols;
  static std::vector<float> packed_a, packed_b;
  packed_a.resize(static_cast<std::size_t>(kRows * kDepth));
  packed_b.resize(static_cast<std::size_t>(kDepth * n));
  std::fill(c, c + n * n, 0.0f);
  for (Int k0 = 0; k0 < n; k0 += kDepth) {
    const Int depth = std::min(kDepth, n - k0);
    for (Int j = 0; j < cols; j += kTileCols)
      for (Int k = 0; k < depth; ++k)
        std::memcpy(&packed_b[static_cast<std::size_t>(j * depth + k * kTileCols)], b + (k0 + k) * n + j,
                    kTileCols * sizeof(float));
    for (Int i0 = 0; i0 < rows; i0 += kRows) {
      const Int count = std::min(kRows, rows - i0);
      for (Int i = 0; i < count; i += kTileRows)
        for (Int k = 0; k < depth; ++k)
          for (Int r = 0; r < kTileRows; ++r)
            packed_a[static_cast<std::size_t>(i * depth + k * kTileRows + r)] = a[(i0 + i + r) * n + k0 + k];
      for (Int j = 0; j < cols; j += kTileCols)
        for (Int i = 0; i < count; i += kTileRows)
          register_tile(&packed_a[static_cast<std::size_t>(i * depth)], 1, kTileRows,
                        &packed_b[static_cast<std::size_t>(j * depth)], kTileCols, depth, c + (i0 + i) * n + j, n);
    }
  }
  edge(a, b, c, n, rows, 0, n, n);
  edge(a, b, c, n, 0, cols, rows, n);
}

#ifdef REEL_BENCHMARK_EIGEN
void eigen(const float* a, const float* b, float* c, Int n) {
  using Matrix = Eigen::Matrix<float, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
  Eigen::Map<Matrix>(c, n, n).noalias() = Eigen::Map<const Matrix>(a, n, n) * Eigen::Map<const Matrix>(b, n, n);
}
#endif

void reel_product(const float* a, const float* b, float* c, Int n) {
  reel::Gemm gemm;
  gemm.m = gemm.n = gemm.k = gemm.lda = gemm.ldb = gemm.ldc = n;
  gemm.a = a, gemm.b = b, gemm.c = c;
  reel::backend(reel::Device::cpu()).gemm(gemm);
}

struct Rung {
  const char* name;
  Product multiply;
};
constexpr Rung kRungs[] = {
    {"", reel_product},
    {"@jki", loops<'j', 'k', 'i'>},
    {"@kji", loops<'k', 'j', 'i'>},
    {"@ijk", loops<'i', 'j', 'k'>},
    {"@jik", loops<'j', 'i', 'k'>},
    {"@kij", loops<'k', 'i', 'j'>},
    {"@ikj", loops<'i', 'k', 'j'>},
    {"@tiled", tiled},
    {"@register_tiled", register_tiled},
    {"@packed", packed},
#ifdef REEL_BENCHMARK_EIGEN
    {"@eigen", eigen},
#endif
};

bench::Work work(Product multiply, Int n) {
  struct Operands {
    std::vector<float> a, b, c;
  };
  auto x = std::make_shared<Operands>();
  x->a = bench::inputs(1, n * n), x->b = bench::inputs(2, n * n), x->c.resize(static_cast<std::size_t>(n * n));
  const auto digest = [x, n] {
    bench::Digest digest;
    digest.add(x->c.data(), n * n);
    return digest;
  };
  const double size = static_cast<double>(n);
  return {bench::repeated([=] { multiply(x->a.data(), x->b.data(), x->c.data(), n); }),
          digest,
          {},
          12 * size * size,
          2 * size * size * size};
}

std::vector<bench::Row> rows() {
  std::vector<bench::Row> rows;
  for (const Int n : {100, 1000, 1024, 1056})
    for (const Rung& rung : kRungs)
      rows.push_back({"ladder_" + std::to_string(n) + rung.name, 1, [=] { return work(rung.multiply, n); }, 0});
  return rows;
}

}  // namespace

int main(int argc, char** argv) {
  const auto set_threads = [](int threads) {
    reel::set_num_threads(threads);
#ifdef REEL_BENCHMARK_EIGEN
    Eigen::setNbThreads(threads);
#endif
  };
  return bench::serve_or_run(argc, argv, rows(), 1, set_threads);
}
