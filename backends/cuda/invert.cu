// Inverse and determinant by LU with partial pivoting. A block of threads factors kBlock columns of a matrix, a row per warp
// and step; the columns to their right follow by a triangular solve and a product, and two solves make the inverse.

#include "reel/backends/cuda/group.h"
#include "reel/backends/cuda/reduction.h"
#include "reel/backends/cuda/triangle.h"
#include "reel/core/scalar/math.h"

namespace reel::cuda {

namespace device {
namespace {

/// Where the rows of each matrix came from: [n], then how many swaps that took.
struct Order {
  int64_t* data;
  int64_t n;

  REEL_DEVICE int64_t* of(int64_t matrix) const { return data + matrix * (n + 1); }
};

__global__ void first_order(Order order, int64_t batch) {
  for (int64_t i = first_unit(); i < batch * (order.n + 1); i += unit_step()) {
    const int64_t place = i % (order.n + 1);
    order.data[i] = place < order.n ? place : 0;
  }
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
    int64_t* const rows = order.of(matrix);
    for (int64_t c = first; c < first + width; ++c) {
      __syncthreads();  // of what was written before
      const int64_t best = pivot_row(w, n, c, scratch);
      if (best != c) {
        for (int64_t j = threadIdx.x; j < n; j += blockDim.x) swap(w[best * n + j], w[c * n + j]);
        if (threadIdx.x == 0) {
          swap(rows[best], rows[c]);
          ++rows[n];
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
    T product = lane == 0 && order.of(matrix)[n] % 2 != 0 ? T(-1) : T(1);
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

/// x [n, n] = the rows of the identity in that order; an element per thread and step.
template <class T>
__global__ void permutation(T* x, Order order, int64_t batch) {
  const int64_t n = order.n;
  for (int64_t i = first_unit(); i < batch * n * n; i += unit_step()) {
    const int64_t row = i / n, matrix = row / n;
    x[i] = order.of(matrix)[row - matrix * n] == i - row * n ? T(1) : T(0);
  }
}

}  // namespace
}  // namespace device

void CudaOps::invert(const Array& a, const Array* inverse, const Array& sign, const Array& logdet) {
  const int64_t batch = a.shape[0], n = a.shape[1];
  const auto bytes = static_cast<std::size_t>(batch * n * n) * size_of(a.dtype);
  const Workspace room(context_.memory(), bytes);
  const Workspace places(context_.memory(), sizeof(int64_t) * static_cast<std::size_t>(batch * (n + 1)));
  const device::Order order{places.as<int64_t>(), n};
  launch(context_, "invert", grid_for(context_, batch * (n + 1)), &device::first_order, order, batch);
  Array lu = a;
  lu.data = room.as<void>();
  copy(a, lu);
  dispatch_floating(a.dtype, [&]<class T>() {
    const Batch<T> w{lu.as<T>(), n, n * n};
    const Batch<const T> from{lu.as<T>(), n, n * n};
    for (int64_t first = 0; first < n; first += kBlock) {
      const int64_t width = n - first < kBlock ? n - first : kBlock, behind = first + width, right = n - behind;
      const Grid grid{.blocks = batch < INT32_MAX ? batch : INT32_MAX,
                      .threads = n - first <= 64 ? 128 : kMostThreads,
                      .shared_bytes = sizeof(device::Located<T>) * device::kWarp};
      launch(context_, "invert", grid, &device::factor_columns<T>, w.data, order, first, static_cast<int>(width),
             batch);
      if (right == 0) continue;
      solve_block<T>(context_, {from.at(first, first), false, false, true}, width, w.at(first, behind), 1, right,
                     batch);
      subtract_product<T>(*this, {.m = right, .n = right, .k = width, .batch = batch}, from.at(behind, first),
                          from.at(first, behind), w.at(behind, behind));
    }
    launch(context_, "invert", grid_for(context_, batch * device::kWarp), &device::determinant<T>, w.data, order,
           sign.as<T>(), logdet.as<T>(), batch);
    if (inverse == nullptr) return;
    const Batch<T> x{inverse->as<T>(), n, n * n};
    launch(context_, "invert", grid_for(context_, inverse->size), &device::permutation<T>, x.data, order, batch);
    solve<T>(*this, {from, false, false, true}, n, x, n, batch);
    solve<T>(*this, {from, true, false, false}, n, x, n, batch);
  });
}

}  // namespace reel::cuda
