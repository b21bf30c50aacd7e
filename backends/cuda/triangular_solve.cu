// Triangular solves: inside a block of rows a thread takes a column of x into registers, with the block of a in shared
// memory; what the rows that are known already contribute to the next block is a product.

#include "reel/backends/cuda/triangle.h"
#include "reel/core/precision.h"
#include "reel/core/scalar/arithmetic.h"

namespace reel::cuda {

namespace device {
namespace {

inline constexpr int kSolveThreads = 128;

// Blocks of a multiprocessor at a time; 0: no bound. Left alone, the compiler keeps so much of the triangle at hand for
// sm_100 that f64 runs out of registers, all 255 of them.
template <class T>
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 1000
inline constexpr int kSolveBlocks = sizeof(T) == 8 ? 4 : 0;
#else
inline constexpr int kSolveBlocks = 0;
#endif

/// y [batch, rows, cols] = -x; an element per thread and step.
template <class T>
__global__ void negate(Batch<const T> x, int64_t rows, int64_t cols, int64_t batch, T* y) {
  for (int64_t i = first_unit(); i < batch * rows * cols; i += unit_step()) {
    const int64_t r = i / cols, matrix = r / rows;
    y[i] = -x.data[matrix * x.matrix + (r - matrix * rows) * x.row + (i - r * cols)];
  }
}

/// A column of x per thread; blockIdx.x: tile of columns, blockIdx.y: matrix. Step i of the solution makes row m(i).
template <class T>
__global__ void __launch_bounds__(kSolveThreads, kSolveBlocks<T>)
    solve_block(Triangle<T> a, int rows, Batch<T> x, int64_t column, int64_t k, int64_t batch) {
  REEL_DYNAMIC_SHARED(T, triangle);  // by steps; the identity where there are no more rows
  const auto m = [&](int step) { return a.forward() ? step : rows - 1 - step; };
  const int64_t j = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  for (int64_t matrix = blockIdx.y; matrix < batch; matrix += gridDim.y) {
    const T* const from = a.a.data + matrix * a.a.matrix;
    __syncthreads();  // of the matrix before
    for (int i = threadIdx.x; i < kBlock * kBlock; i += blockDim.x) {
      const int r = i / kBlock, s = i % kBlock;
      T value = r == s ? T(1) : T(0);
      if (r < rows && (s < r || (s == r && !a.unit)))
        value = a.transposed ? from[m(s) * a.a.row + m(r)] : from[m(r) * a.a.row + m(s)];
      triangle[i] = value;
    }
    __syncthreads();
    if (j >= k) continue;
    T* const to = x.data + matrix * x.matrix + j * column;
    T v[kBlock];
    REEL_UNROLL
    for (int r = 0; r < kBlock; ++r) v[r] = r < rows ? to[m(r) * x.row] : T(0);
    REEL_UNROLL
    for (int r = 0; r < kBlock; ++r) {
      REEL_UNROLL
      for (int s = 0; s < r; ++s) v[r] = scalar::fma(-triangle[r * kBlock + s], v[s], v[r]);
      if (!a.unit) v[r] /= triangle[r * kBlock + r];
    }
    REEL_UNROLL
    for (int r = 0; r < kBlock; ++r)
      if (r < rows) to[m(r) * x.row] = v[r];
  }
}

}  // namespace
}  // namespace device

template <class T>
void subtract_product(CudaOps& ops, const BatchProduct& p, Batch<const T> a, Batch<const T> b, Batch<T> c) {
  const int64_t rows = p.trans_a ? p.k : p.m, cols = p.trans_a ? p.m : p.k;
  const Context& context = ops.context();
  const detail::ExactProducts exact;
  const Workspace negative(context.memory(), sizeof(T) * static_cast<std::size_t>(p.batch * rows * cols));
  launch(context, "negate", grid_for(context, p.batch * rows * cols), &device::negate<T>, a, rows, cols, p.batch,
         negative.as<T>());
  ops.gemm({.m = p.m,
            .n = p.n,
            .k = p.k,
            .batch = p.batch,
            .dtype = dtype_of<T>,
            .trans_a = p.trans_a,
            .trans_b = p.trans_b,
            .a = negative.as<T>(),
            .b = b.data,
            .c = c.data,
            .lda = cols,
            .ldb = b.row,
            .ldc = c.row,
            .stride_a = rows * cols,
            .stride_b = b.matrix,
            .stride_c = c.matrix,
            .accumulate = true});
}

template <class T>
void solve_block(const Context& context, const Triangle<T>& a, int64_t rows, Batch<T> x, int64_t column, int64_t k,
                 int64_t batch) {
  const int most = device::kSolveThreads;
  const int threads = k < most ? static_cast<int>(ceil_div(k, device::kWarp)) * device::kWarp : most;
  const Grid grid{.blocks = ceil_div(k, most),
                  .y = batch < 65535 ? batch : 65535,
                  .threads = threads,
                  .shared_bytes = sizeof(T) * kBlock * kBlock};
  launch(context, "triangular_solve", grid, &device::solve_block<T>, a, static_cast<int>(rows), x, column, k, batch);
}

namespace {

/// Solves op(a) x = x; a [n, n], x [n, k].
template <class T>
void solve(CudaOps& ops, const Triangle<T>& a, int64_t n, Batch<T> x, int64_t k, int64_t batch) {
  const int64_t blocks = ceil_div(n, kBlock);
  for (int64_t step = 0; step < blocks; ++step) {
    const int64_t first = (a.forward() ? step : blocks - 1 - step) * kBlock;
    const int64_t rows = n - first < kBlock ? n - first : kBlock;
    // The rows that are known already: those before this block, or those behind it.
    const int64_t known = a.forward() ? 0 : first + rows, count = a.forward() ? first : n - known;
    if (count > 0) {
      const Batch<const T> panel = a.transposed ? a.a.at(known, first) : a.a.at(first, known),
                           b{x.data, x.row, x.matrix};
      subtract_product<T>(ops, {.m = rows, .n = k, .k = count, .batch = batch, .trans_a = a.transposed}, panel,
                          b.at(known, 0), x.at(first, 0));
    }
    solve_block<T>(ops.context(), {a.a.at(first, first), a.upper, a.transposed, a.unit}, rows, x.at(first, 0), 1, k,
                   batch);
  }
}

}  // namespace

#define REEL_TRIANGLE(T)                                                                                   \
  template void subtract_product(CudaOps&, const BatchProduct&, Batch<const T>, Batch<const T>, Batch<T>); \
  template void solve_block(const Context&, const Triangle<T>&, int64_t, Batch<T>, int64_t, int64_t, int64_t);
REEL_TRIANGLE(float)
REEL_TRIANGLE(double)
#undef REEL_TRIANGLE

void CudaOps::triangular_solve(const Array& a, const Array& b, bool upper, bool transposed, bool unit, const Array& x) {
  const int64_t batch = b.shape[0], n = b.shape[1], k = b.shape[2];
  if (b.size == 0) return;
  if (x.data != b.data) copy(b, x);
  dispatch_floating(a.dtype, [&]<class T>() {
    solve<T>(*this, {{a.as<T>(), n, n * n}, upper, transposed, unit}, n, {x.as<T>(), k, n * k}, k, batch);
  });
}

}  // namespace reel::cuda
