// Cholesky: a block of columns at a time. What stands to the left is subtracted by a product, a warp factors the block on
// the diagonal, a row per lane, and the rows below are solved for.

#include "reel/backends/cuda/triangle.h"
#include "reel/core/scalar/math.h"

namespace reel::cuda {

namespace device {
namespace {

/// l = the lower triangle of a, and 0 above; an element per thread and step.
template <class T>
__global__ void lower_triangle(const T* a, T* l, int64_t n, int64_t batch) {
  for (int64_t i = first_unit(); i < batch * n * n; i += unit_step()) {
    const int64_t row = i / n;
    l[i] = i - row * n <= row % n ? a[i] : T(0);
  }
}

/// l l^T = l for the first `width` <= kBlock rows and columns; a matrix per warp, a row per lane. Above the diagonal 0. From the first leading minor
/// on that is not positive, the diagonal becomes NaN.
template <class T>
__global__ void __launch_bounds__(kThreads, 1) factor_block(Batch<T> l, int width, int64_t batch) {
  const int lane = threadIdx.x % kWarp;
  for (int64_t matrix = first_unit() / kWarp; matrix < batch; matrix += unit_step() / kWarp) {
    T* const row = l.data + matrix * l.matrix + lane * l.row;
    T v[kBlock];
    REEL_UNROLL
    for (int c = 0; c < kBlock; ++c) {
      v[c] = c == lane ? T(1) : T(0);
      if (lane < width && c <= lane) v[c] = row[c];
    }
    REEL_UNROLL
    for (int c = 0; c < kBlock; ++c) {
      const T pivot = __shfl_sync(kAllLanes, v[c], c);
      const T root = pivot > T(0) ? scalar::sqrt(pivot) : scalar::quiet_nan<T>();
      v[c] = lane == c ? root : v[c] / root;
      REEL_UNROLL
      for (int j = c + 1; j < kBlock; ++j) v[j] = scalar::fma(-v[c], __shfl_sync(kAllLanes, v[c], j), v[j]);
    }
    REEL_UNROLL
    for (int c = 0; c < kBlock; ++c)
      if (lane < width && c < width) row[c] = c <= lane ? v[c] : T(0);
  }
}

/// The first matrix whose last element is NaN, or `batch`; one block.
template <class T>
__global__ void first_failure(const T* l, int64_t n, int64_t batch, int64_t* failure) {
  REEL_DYNAMIC_SHARED(int64_t, scratch);
  int64_t first = batch;
  for (int64_t matrix = threadIdx.x; matrix < batch; matrix += blockDim.x) {
    const T last = l[(matrix + 1) * n * n - 1];
    if (last != last) first = smaller(first, matrix);
  }
  first = join_block(first, scratch, [](int64_t a, int64_t b) { return smaller(a, b); });
  if (threadIdx.x == 0) *failure = first;
}

}  // namespace
}  // namespace device

std::int64_t CudaOps::cholesky(const Array& a, const Array& l) {
  const int64_t batch = a.shape[0], n = a.shape[1];
  if (a.size == 0) return -1;
  const Workspace failure(context_.memory(), sizeof(int64_t));
  dispatch_floating(a.dtype, [&]<class T>() {
    launch(context_, "cholesky", grid_for(context_, a.size), &device::lower_triangle<T>, a.as<T>(), l.as<T>(), n,
           batch);
    const Batch<T> to{l.as<T>(), n, n * n};
    const Batch<const T> from{l.as<T>(), n, n * n};
    for (int64_t first = 0; first < n; first += kBlock) {
      const int64_t width = n - first < kBlock ? n - first : kBlock, behind = first + width;
      const BatchProduct left{.m = n - first, .n = width, .k = first, .batch = batch, .trans_b = true};
      if (first > 0) subtract_product<T>(*this, left, from.at(first, 0), from.at(first, 0), to.at(first, first));
      launch(context_, "cholesky", grid_for(context_, batch * device::kWarp), &device::factor_block<T>,
             to.at(first, first), static_cast<int>(width), batch);
      // x l^T = rows below: l x^T = their transpose.
      Batch<T> below = to.at(behind, first);
      below.row = 1;
      if (behind < n)
        solve_block<T>(context_, {from.at(first, first), false, false, false}, width, below, n, n - behind, batch);
    }
    launch(context_, "cholesky", {.shared_bytes = sizeof(int64_t) * device::kWarp}, &device::first_failure<T>,
           l.as<T>(), n, batch, failure.as<int64_t>());
  });
  int64_t first = batch;
  context_.to_host(failure.as<int64_t>(), &first, sizeof first);
  return first < batch ? first : -1;
}

}  // namespace reel::cuda
