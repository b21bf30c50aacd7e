// Products. cuBLASLt thinks in columns: a row-major c = a b is the column-major c^T = b^T a^T of the same memory. Products with
// few tiles are made here, in one launch with all that comes after: there the GPU waits for memory and for launches, and
// cuBLASLt cuts k into parts that a second kernel adds up.

#include <algorithm>
#include <string>

#include "reel/backends/cuda/kernel.h"
#include "reel/backends/cuda/limits.h"
#include "reel/backends/cuda/product.h"
#include "reel/core/precision.h"
#include "reel/core/scalar/math.h"

namespace reel::cuda {

namespace device {
namespace {

/// c [batch, m, n] with rows of ldc elements: c (or 0) + bias, relu; an element per thread and step.
template <class T>
__global__ void finish(T* c, const T* bias, bool relu, bool zero, int64_t m, int64_t n, int64_t ldc, int64_t batch,
                       int64_t stride) {
  using Sum = std::conditional_t<is_half_type<T>, float, T>;
  for (int64_t i = first_unit(); i < batch * m * n; i += unit_step()) {
    const int64_t row = i / n, column = i - row * n, matrix = row / m;
    T* const to = c + matrix * stride + (row - matrix * m) * ldc + column;
    Sum value = zero ? Sum(0) : Sum(*to);
    if (bias != nullptr) value += Sum(bias[column]);
    *to = T(relu && value <= Sum(0) ? Sum(0) : value);
  }
}

// --- small products: a block makes a tile of c, and each of its warps the sums over every kWarps-th term -----------------------

constexpr int kWarps = kThreads / kWarp;
// Of tiles of two sizes, scale 1 and 2; in f64 they have half the columns.
template <int scale>
constexpr int kTileRows = 16 * scale;
template <class T, int scale>
constexpr int kTileColumns = kPack<T> * 4 * scale;
template <class T>
constexpr int kTerms = 512 / static_cast<int>(sizeof(T));  // of k that are in shared memory at a time

/// Rows of a or columns of b ("lines"), of k terms each.
template <class T>
struct Side {
  const T* at;
  int64_t step, stride;  // between the rows as they are stored, and between matrices
  int lines;
  bool along;   // the terms of a line are neighbours, not the lines
  bool packed;  // neighbours may be read as packs
};

/// Lines on their way from memory to shared memory, [term][line]: kTerms terms of `lines` lines at a time. A thread moves
/// packs of one line, or of a few neighbouring ones, kStep terms apart.
template <class T, int lines>
struct Stage {
  static constexpr int kRoom = lines + kPack<T>;  // of a term in shared memory
  static constexpr int kElements = kTerms<T> * kRoom;
  static constexpr int kLoads = lines * kTerms<T> / (kPack<T> * kThreads), kStep = kTerms<T> / kLoads;
  Pack<T> v[kLoads];
  const T* from;  // where the next first pack is
  int64_t step;   // from pack to pack
  int line, term, rest;
  bool along, packed;

  /// Neighbouring threads take 8 lines by 4 packs of terms, or the lines of a term.
  REEL_DEVICE Stage(const Side<T>& side, const T* at, int first_line) : along(side.along), packed(side.packed) {
    const int lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp;
    if (along) {
      line = lane % 8 + 8 * (warp % (lines / 8));
      term = kPack<T> * (lane / 8 + 4 * (warp / (lines / 8)));
    } else {
      line = kPack<T> * (threadIdx.x % (lines / kPack<T>));
      term = threadIdx.x / (lines / kPack<T>);
    }
    rest = side.lines - first_line - line;
    from = at + (along ? (first_line + line) * side.step + term : term * side.step + first_line + line);
    step = along ? kStep : kStep * side.step;
  }
  /// The next terms, of which `count` are left; zeros beyond them and beyond the last line.
  REEL_DEVICE void fetch(int count) {
    REEL_UNROLL
    for (int i = 0; i < kLoads; ++i, from += step) {
      const int left = count - term - i * kStep;
      v[i] = {};
      if (rest <= 0 || left <= 0) continue;
      if (packed) {
        v[i] = load_pack<T, kPack<T>>(from);
        continue;
      }
      REEL_UNROLL
      for (int e = 0; e < kPack<T>; ++e)
        if (e < (along ? left : rest)) v[i].v[e] = from[e];
    }
  }
  REEL_DEVICE void store(T* shared) const {
    T* const to = shared + term * kRoom + line;
    REEL_UNROLL
    for (int i = 0; i < kLoads; ++i) {
      if (!along) {
        store_pack(to + i * kStep * kRoom, v[i]);
        continue;
      }
      REEL_UNROLL
      for (int e = 0; e < kPack<T>; ++e) to[(i * kStep + e) * kRoom] = v[i].v[e];
    }
  }
};

template <class T>
struct SmallProduct {
  Side<T> a, b;
  T* c;
  const T* bias;
  int64_t ldc, stride_c;
  int k, row_tiles, column_tiles;
  bool accumulate, relu;
};

/// A lane's part of a tile: 8 x 4 lanes take rows that are neighbours, and packs of columns.
template <class T, int scale>
struct LaneTile {
  static constexpr int kRows = 2 * scale, kPacks = scale, kRowPack = std::min(kRows, kPack<T>);
  static constexpr int kRoom = kTileColumns<T, scale> + kPack<T>;  // of a row of sums in shared memory
  T v[kRows][kPacks][kPack<T>];
  int row, column;  // a second pack lies half a tile behind the first

  REEL_DEVICE LaneTile() : v{}, row(kRows * (threadIdx.x % kWarp / 4)), column(kPack<T> * (threadIdx.x % 4)) {}
  REEL_DEVICE int column_of(int pack) const { return column + pack * 4 * kPack<T>; }

  /// Adds a's column times b's row of one term.
  REEL_DEVICE void add(const T* a, const T* b) {
    Pack<T, kRowPack> x[kRows / kRowPack];
    Pack<T> y[kPacks];
    REEL_UNROLL
    for (int i = 0; i < kRows / kRowPack; ++i) x[i] = load_pack<T, kRowPack>(a + row + i * kRowPack);
    REEL_UNROLL
    for (int j = 0; j < kPacks; ++j) y[j] = load_pack<T, kPack<T>>(b + column_of(j));
    REEL_UNROLL
    for (int i = 0; i < kRows; ++i) {
      REEL_UNROLL
      for (int j = 0; j < kPacks; ++j) {
        REEL_UNROLL
        for (int e = 0; e < kPack<T>; ++e)
          v[i][j][e] = scalar::fma(x[i / kRowPack].v[i % kRowPack], y[j].v[e], v[i][j][e]);
      }
    }
  }
  REEL_DEVICE void store(T* tile) const {
    REEL_UNROLL
    for (int i = 0; i < kRows; ++i) {
      REEL_UNROLL
      for (int j = 0; j < kPacks; ++j) {
        Pack<T> pack;
        REEL_UNROLL
        for (int e = 0; e < kPack<T>; ++e) pack.v[e] = v[i][j][e];
        store_pack(tile + (row + i) * kRoom + column_of(j), pack);
      }
    }
  }
};

/// Elements of shared memory: the two stages, then the warps' sums.
template <class T, int scale>
constexpr int kSmallElements = std::max(Stage<T, kTileRows<scale>>::kElements +
                                            Stage<T, kTileColumns<T, scale>>::kElements,
                                        kWarps* kTileRows<scale>* LaneTile<T, scale>::kRoom);

template <class T, int scale>
__global__ void __launch_bounds__(kThreads) small_product(const __grid_constant__ SmallProduct<T> p) {
  REEL_DYNAMIC_SHARED(T, shared);
  constexpr int kRows = kTileRows<scale>, kColumns = kTileColumns<T, scale>;
  using Rows = Stage<T, kRows>;
  using Columns = Stage<T, kColumns>;
  T *const staged_a = shared, *const staged_b = shared + Rows::kElements;
  const int tile = blockIdx.x / p.row_tiles, matrix = tile / p.column_tiles;
  const int first_row = blockIdx.x % p.row_tiles * kRows, first_column = tile % p.column_tiles * kColumns;
  const T *const a = p.a.at + matrix * p.a.stride, *const b = p.b.at + matrix * p.b.stride;
  const int warp = threadIdx.x / kWarp;

  LaneTile<T, scale> sums;
  Rows rows(p.a, a, first_row);
  Columns columns(p.b, b, first_column);
  rows.fetch(p.k);
  columns.fetch(p.k);
  for (int left = p.k; left > 0; left -= kTerms<T>) {
    rows.store(staged_a);
    columns.store(staged_b);
    __syncthreads();
    const int count = smaller(left, kTerms<T>);
    if (count < left) {  // on their way while these are added up
      rows.fetch(left - count);
      columns.fetch(left - count);
    }
    for (int term = warp; term < count; term += kWarps)
      sums.add(staged_a + term * Rows::kRoom, staged_b + term * Columns::kRoom);
    __syncthreads();
  }

  constexpr int kRoom = LaneTile<T, scale>::kRoom, kRowPacks = kColumns / kPack<T>;
  sums.store(shared + warp * kRows * kRoom);
  __syncthreads();
  const int row = threadIdx.x / kRowPacks, column = threadIdx.x % kRowPacks * kPack<T>;
  if (row >= kRows || first_row + row >= p.a.lines) return;
  const T* const from = shared + row * kRoom + column;
  Pack<T> sum = load_pack<T, kPack<T>>(from);
  REEL_UNROLL
  for (int i = 1; i < kWarps; ++i) {
    const auto more = load_pack<T, kPack<T>>(from + i * kRows * kRoom);
    REEL_UNROLL
    for (int e = 0; e < kPack<T>; ++e) sum.v[e] += more.v[e];
  }
  T* const c = p.c + matrix * p.stride_c + (first_row + row) * p.ldc;
  REEL_UNROLL
  for (int e = 0; e < kPack<T>; ++e) {
    const int j = first_column + column + e;
    if (j >= p.b.lines) return;
    T value = p.accumulate ? c[j] + sum.v[e] : sum.v[e];
    if (p.bias != nullptr) value += p.bias[j];
    c[j] = p.relu && value <= T(0) ? T(0) : value;
  }
}

}  // namespace
}  // namespace device

namespace {

/// Whether a product has at most a tile per multiprocessor, and not too many terms for a block alone.
template <class T, int scale>
bool is_small(const Context& context, const Gemm& gemm) {
  constexpr int64_t kMostTerms = 2048 / scale;
  const int64_t most = context.processors(), rows = ceil_div(gemm.m, device::kTileRows<scale>),
                columns = ceil_div(gemm.n, device::kTileColumns<T, scale>);
  return gemm.k <= kMostTerms && rows <= most && columns <= most && gemm.batch <= most &&
         rows * columns * gemm.batch <= most;
}

template <class T>
device::Side<T> side_of(const void* data, int64_t step, int64_t stride, int64_t lines, int64_t k, bool along) {
  const int64_t neighbours = along ? k : lines;
  const bool packed = is_aligned(data, sizeof(T), kPack<T>) && neighbours % kPack<T> == 0 && step % kPack<T> == 0 &&
                      stride % kPack<T> == 0;
  return {static_cast<const T*>(data), step, stride, static_cast<int>(lines), along, packed};
}

template <class T, int scale>
void multiply_small(const Context& context, const Gemm& gemm) {
  const int64_t rows = ceil_div(gemm.m, device::kTileRows<scale>),
                columns = ceil_div(gemm.n, device::kTileColumns<T, scale>);
  const device::SmallProduct<T> problem{side_of<T>(gemm.a, gemm.lda, gemm.stride_a, gemm.m, gemm.k, !gemm.trans_a),
                                        side_of<T>(gemm.b, gemm.ldb, gemm.stride_b, gemm.n, gemm.k, gemm.trans_b),
                                        static_cast<T*>(gemm.c),
                                        static_cast<const T*>(gemm.bias),
                                        gemm.ldc,
                                        gemm.stride_c,
                                        static_cast<int>(gemm.k),
                                        static_cast<int>(rows),
                                        static_cast<int>(columns),
                                        gemm.accumulate,
                                        gemm.epilogue == Epilogue::relu};
  launch(context, "gemm",
         {.blocks = rows * columns * gemm.batch, .shared_bytes = sizeof(T) * device::kSmallElements<T, scale>},
         &device::small_product<T, scale>, problem);
}

}  // namespace

void CudaOps::gemm(const Gemm& gemm) {
  if (gemm.m == 0 || gemm.n == 0 || gemm.batch == 0) return;
  const bool half = is_half(gemm.dtype);
  const bool small = gemm.k > 0 && !half && dispatch_floating(gemm.dtype, [&]<class T>() {
                       if (is_small<T, 1>(context_, gemm)) return multiply_small<T, 1>(context_, gemm), true;
                       if (is_small<T, 2>(context_, gemm)) return multiply_small<T, 2>(context_, gemm), true;
                       return false;
                     });
  if (small) return;
  if (gemm.batch > INT32_MAX)
    refuse_size("the batch", INT32_MAX, std::to_string(gemm.batch));  // cuBLASLt counts in int
  // relu is not left to cuBLASLt: a NaN would become 0 there. The bias is, of bf16 and f16, before their one rounding.
  const bool relu = gemm.epilogue == Epilogue::relu, none = gemm.k == 0;
  const bool fused = !none && (!relu || half) && fuses_bias(gemm.dtype);
  if (!none) {
    multiply(context_, {.m = gemm.n,
                        .n = gemm.m,
                        .k = gemm.k,
                        .batch = gemm.batch,
                        .dtype = gemm.dtype,
                        .trans_a = gemm.trans_b,
                        .trans_b = gemm.trans_a,
                        .a = gemm.b,
                        .b = gemm.a,
                        .c = gemm.c,
                        .lda = gemm.ldb,
                        .ldb = gemm.lda,
                        .ldc = gemm.ldc,
                        .stride_a = gemm.stride_b,
                        .stride_b = gemm.stride_a,
                        .stride_c = gemm.stride_c,
                        .bias = fused ? gemm.bias : nullptr,
                        .accumulate = gemm.accumulate,
                        .tf32 = gemm.dtype == DType::f32 && matmul_precision() == MatmulPrecision::high});
  }
  const void* const bias = fused ? nullptr : gemm.bias;
  const bool zero = none && !gemm.accumulate;
  if (!zero && !relu && bias == nullptr) return;
  const auto run = [&]<class T>() {
    launch(context_, "gemm", grid_for(context_, gemm.batch * gemm.m * gemm.n), &device::finish<T>,
           static_cast<T*>(gemm.c), static_cast<const T*>(bias), relu, zero, gemm.m, gemm.n, gemm.ldc, gemm.batch,
           gemm.stride_c);
  };
  half ? dispatch_half(gemm.dtype, run) : dispatch_floating(gemm.dtype, run);
}

}  // namespace reel::cuda
