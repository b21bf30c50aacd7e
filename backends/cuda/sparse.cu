// Products with sparse rows: segment s of (index, weight) is row s of a matrix whose columns are the rows of a table. Indices out
// of range, which check_indices has reported, count as rows of zeros.

#include "reel/backends/cuda/row_sum.h"
#include "reel/core/error.h"

namespace reel::cuda {

namespace device {
namespace {

/// (index, weight) of the segments; weight null: ones.
template <class T, class Index>
struct SparseRows {
  const Index* index;
  const T* weight;
  const int64_t* offsets;
  int64_t segments, rows, width;  // of the table
  bool mean;

  REEL_DEVICE bool exists(int64_t j) const { return index[j] >= 0 && index[j] < rows; }
  REEL_DEVICE T weight_of(int64_t j) const { return weight != nullptr ? weight[j] : T(1); }
  /// What a segment's sum is divided by; 1 if it is empty.
  REEL_DEVICE T divisor(int64_t s) const {
    return mean ? static_cast<T>(larger<int64_t>(offsets[s + 1] - offsets[s], 1)) : T(1);
  }
};

/// A block takes a segment and a tile of columns, its row lanes the segment's elements.
template <class T, class Index>
__global__ void segment_gather(const SparseRows<T, Index> sparse, const T* table, T* y, Lanes lanes) {
  REEL_DYNAMIC_SHARED(T, scratch);
  for (int64_t s = blockIdx.x; s < sparse.segments; s += gridDim.x) {
    for (int64_t tile = static_cast<int64_t>(blockIdx.y) * lanes.columns; tile < sparse.width;
         tile += static_cast<int64_t>(gridDim.y) * lanes.columns) {
      const int64_t column = tile + lanes.column(), end = column < sparse.width ? sparse.offsets[s + 1] : 0;
      T sum = 0;
      for (int64_t j = sparse.offsets[s] + lanes.row(); j < end; j += lanes.rows())
        if (sparse.exists(j))
          sum = scalar::fma(sparse.weight_of(j), table[sparse.index[j] * sparse.width + column], sum);
      sum = lanes.join(sum, scratch, [](T a, T b) { return a + b; });
      if (lanes.row() == 0 && column < sparse.width) y[s * sparse.width + column] = sum / sparse.divisor(s);
    }
  }
}

/// A warp or a block per element: the product of two rows.
template <class T, class Index>
__global__ void weight_gradient(const SparseRows<T, Index> sparse, int64_t total, const T* table, const T* dy,
                                T* dweight, RowGroup group) {
  REEL_DYNAMIC_SHARED(T, scratch);
  for (int64_t j = group.first(); j < total; j += group.step()) {
    const int64_t s = segment_of(j, sparse.offsets, 0, sparse.segments), width = sparse.exists(j) ? sparse.width : 0;
    T sum = 0;
    for (int64_t c = group.lane(); c < width; c += group.width())
      sum = scalar::fma(table[sparse.index[j] * width + c], dy[s * width + c], sum);
    sum = group.join(sum, scratch, [](T a, T b) { return a + b; });
    if (group.lane() == 0) dweight[j] = sum / sparse.divisor(s);
  }
}

/// Which row of dy each element adds, with what factor, and to which row of the table.
template <class T, class Index>
__global__ void factors_of(const SparseRows<T, Index> sparse, int64_t total, uint32_t* keys, int64_t* source,
                           T* factor) {
  for_each_element(total, 1, sparse.offsets, sparse.segments, [&](int64_t j, int64_t, int64_t s, int64_t) {
    keys[j] = static_cast<uint32_t>(sparse.exists(j) ? static_cast<int64_t>(sparse.index[j]) : sparse.rows);
    source[j] = s;
    factor[j] = sparse.weight_of(j) / sparse.divisor(s);
  });
}

}  // namespace
}  // namespace device

namespace {

/// f(sparse rows) for the element types of `value` and `index`.
template <class F>
void dispatch_sparse(const Array& value, const Array& index, const Array* weight, const Segments& segments,
                     const Array& table, bool mean, F&& f) {
  dispatch_floating(value.dtype, [&]<class T>() {
    dispatch_index(index.dtype, [&]<class Index>() {
      f(device::SparseRows<T, Index>{index.as<Index>(), data_of<T>(weight), segments.offsets, segments.count,
                                     table.shape[0], table.shape[1], mean});
    });
  });
}

}  // namespace

void CudaOps::segment_gather(const Array& table, const Array& index, const Array* weight, const Segments& segments,
                             bool mean, const Array& y) {
  if (y.size == 0) return;
  dispatch_sparse(y, index, weight, segments, table, mean, [&]<class T, class I>(device::SparseRows<T, I> sparse) {
    const LaneGrid shape = lane_grid(context_, segments.count, segments.max_length, sparse.width, sizeof(T));
    launch(context_, "segment_gather", shape.grid, &device::segment_gather<T, I>, sparse, table.as<T>(), y.as<T>(),
           shape.lanes);
  });
}

void CudaOps::segment_gather_backward_weight(const Array& table, const Array& index, const Array& dy,
                                             const Segments& segments, bool mean, const Array& dweight) {
  dispatch_sparse(dy, index, nullptr, segments, table, mean, [&]<class T, class I>(device::SparseRows<T, I> sparse) {
    device::RowGroup group{};
    Grid grid = row_grid(context_, dweight.size, sparse.width, group.whole_block);
    grid.shared_bytes = device::kWarp * sizeof(T);
    launch(context_, "segment_gather", grid, &device::weight_gradient<T, I>, sparse, dweight.size, table.as<T>(),
           dy.as<T>(), dweight.as<T>(), group);
  });
}

void CudaOps::segment_gather_backward_table(const Array& dy, const Array& index, const Array* weight,
                                            const Segments& segments, bool mean, const Array& dtable) {
  const int64_t n = index.size, rows = dtable.shape[0];
  if (n == 0 || dtable.size == 0) return;
  if (!is_sortable(n, rows))
    throw ShapeError("gather_add: indices and table rows must be fewer than 2^32 - 1 on CUDA, got " +
                     std::to_string(n) + " and " + std::to_string(rows));
  dispatch_sparse(dy, index, weight, segments, dtable, mean, [&]<class T, class I>(device::SparseRows<T, I> sparse) {
    RadixSort<uint32_t> keys = sort_for_rows(context_, n);
    const Workspace sources(context_.memory(), static_cast<std::size_t>(n) * sizeof(int64_t));
    const Workspace factors(context_.memory(), static_cast<std::size_t>(n) * sizeof(T));
    launch(context_, "segment_gather", grid_for(context_, n), &device::factors_of<T, I>, sparse, n, keys.keys(),
           sources.as<int64_t>(), factors.as<T>());
    cuda::add_rows<T>(context_, keys,
                      {dy.as<T>(), dtable.as<T>(), n, rows, sparse.width, sources.as<int64_t>(), factors.as<T>()});
  });
}

}  // namespace reel::cuda
