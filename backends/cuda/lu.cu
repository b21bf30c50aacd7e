// LU with partial pivoting, and the determinant. A block of threads factors kBlock columns of a matrix, a row per warp and step;
// the columns to their right follow by a triangular solve and a product.

#include "reel/backends/cuda/group.h"
#include "reel/backends/cuda/reduction.h"
#include "reel/backends/cuda/triangle.h"
#include "reel/core/scalar/math.h"

namespace reel::cuda {

namespace device {
namespace {

/// Where the rows of each matrix came from, [batch, n], and how many swaps that took, [batch].
struct Order {
  int64_t *rows, *swaps;
  int64_t n;
};

__global__ void first_order(Order order, int64_t batch) {
  for (int64_t i = first_unit(); i < batch * order.n; i += unit_step()) order.rows[i] = i % order.n;
  for (int64_t i = first_unit(); i < batch; i += unit_step()) order.swaps[i] = 0;
}

/// The row of the largest |w[r, c]|, r >= c; the first of equals. Only a NaN on the diagonal is found.
template <class T>
REEL_DEVICE int64_t pivot_row(const T* w, int64_t n, int64_t c, Located<T>* scratch) {
  Located<T> best{T(-1), n};
  const auto better = [](Located<T> a, Located<T> b) {
    return b.value > a.value || (b.value == a.value && b.place < a.place) ? b : a;
  };
  for (int64_t r = c + threadIdx.x; r < n; r += blockDim.x) {
    T value = scalar::abs(w[r * n + c]);
    if (value != value) value = r == c ? scalar::infinity<T>() : T(-1);
    best = better(best, Located<T>{value, r});
  }
  return join_block(best, scratch, better).place;
}

template <class T>
REEL_DEVICE void swap(T& a, T& b) {
  const T kept = a;
  a = b;
  b = kept;
}

/// w [n, n] of each matrix: columns first .. first + width - 1 become those of l and u; all columns' rows are swapped.
template <class T>
__global__ void factor_columns(T* matrices, Order order, int64_t first, int width, int64_t batch) {
  REEL_DYNAMIC_SHARED(Located<T>, scratch);
  const int lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp, warps = blockDim.x / kWarp;
  const int64_t n = order.n, column = first + lane;
  for (int64_t matrix = blockIdx.x; matrix < batch; matrix += gridDim.x) {
    T* const w = matrices + matrix * n * n;
    int64_t* const rows = order.rows + matrix * n;
    for (int64_t c = first; c < first + width; ++c) {
      __syncthreads();  // of what was written before
      const int64_t best = pivot_row(w, n, c, scratch);
      if (best != c) {
        for (int64_t j = threadIdx.x; j < n; j += blockDim.x) swap(w[best * n + j], w[c * n + j]);
        if (threadIdx.x == 0) {
          swap(rows[best], rows[c]);
          ++order.swaps[matrix];
        }
      }
      __syncthreads();
      const T pivot = w[c * n + c];
      if (pivot == T(0)) continue;  // singular: the column is 0 from here on
      const T above = lane < width ? w[c * n + column] : T(0);
      for (int64_t r = c + 1 + warp; r < n; r += warps) {
        T* const row = w + r * n;
        const T value = lane < width ? row[column] : T(0);
        const T factor = __shfl_sync(kAllLanes, value, static_cast<int>(c - first)) / pivot;
        if (column == c) row[column] = factor;
        if (column > c && lane < width) row[column] = scalar::fma(-factor, above, value);
      }
    }
  }
}

/// The sign and log |.| of the product of u's diagonal; a warp per matrix.
template <class T>
__global__ void determinant(const T* u, Order order, T* sign, T* logdet, int64_t batch) {
  const int64_t n = order.n;
  for (int64_t matrix = first_unit() / kWarp; matrix < batch; matrix += unit_step() / kWarp) {
    const int lane = threadIdx.x % kWarp;
    T product = lane == 0 && order.swaps[matrix] % 2 != 0 ? T(-1) : T(1);
    double sum = 0;
    for (int64_t i = lane; i < n; i += kWarp) {
      const T value = u[matrix * n * n + i * n + i];
      product *= value < T(0) ? T(-1) : value > T(0) ? T(1) : value;  // 0 and NaN as they are
      sum += scalar::log(static_cast<double>(scalar::abs(value)));
    }
    product = join_lanes(product, [](T a, T b) { return a * b; });
    sum = join_lanes(sum, [](double a, double b) { return a + b; });
    if (lane != 0) continue;
    sign[matrix] = product;
    logdet[matrix] = static_cast<T>(sum);
  }
}

}  // namespace
}  // namespace device

void CudaOps::lu(const Array& a, const Array& lu, const Array& rows, const Array& sign, const Array& logdet) {
  const int64_t batch = a.shape[0], n = a.shape[1];
  const Workspace swaps(context_.memory(), sizeof(int64_t) * static_cast<std::size_t>(batch));
  const device::Order order{rows.as<int64_t>(), swaps.as<int64_t>(), n};
  launch(context_, "lu", grid_for(context_, batch * (n + 1)), &device::first_order, order, batch);
  copy(a, lu);
  dispatch_floating(a.dtype, [&]<class T>() {
    const Batch<T> w{lu.as<T>(), n, n * n};
    const Batch<const T> from{lu.as<T>(), n, n * n};
    for (int64_t first = 0; first < n; first += kBlock) {
      const int64_t width = n - first < kBlock ? n - first : kBlock, behind = first + width, right = n - behind;
      const Grid grid{.blocks = batch < INT32_MAX ? batch : INT32_MAX,
                      .threads = n - first <= 64 ? 128 : kMostThreads,
                      .shared_bytes = sizeof(device::Located<T>) * device::kWarp};
      launch(context_, "lu", grid, &device::factor_columns<T>, w.data, order, first, static_cast<int>(width), batch);
      if (right == 0) continue;
      solve_block<T>(context_, {from.at(first, first), false, false, true}, width, w.at(first, behind), 1, right,
                     batch);
      subtract_product<T>(*this, {.m = right, .n = right, .k = width, .batch = batch}, from.at(behind, first),
                          from.at(first, behind), w.at(behind, behind));
    }
    launch(context_, "lu", grid_for(context_, batch * device::kWarp), &device::determinant<T>, w.data, order,
           sign.as<T>(), logdet.as<T>(), batch);
  });
}

}  // namespace reel::cuda
