// Reductions over the rows of each segment, their gradients, and the ways to and from padded arrays. A reduction: a block
// takes a segment and a tile of columns, its row lanes the rows. The others: a thread per element, which looks its row's
// segment up.

#include "reel/backends/cuda/group.h"
#include "reel/backends/cuda/reduction.h"

namespace reel::cuda {

namespace device {
namespace {

template <class Op, class T>
__global__ void segment_reduce(const T* x, const int64_t* offsets, int64_t segments, int64_t width, bool mean, T* y,
                               int64_t* which, Lanes lanes) {
  REEL_DYNAMIC_SHARED(typename Op::Acc, scratch);
  for (int64_t s = blockIdx.x; s < segments; s += gridDim.x) {
    const int64_t first = offsets[s], rows = offsets[s + 1] - first;
    for (int64_t tile = static_cast<int64_t>(blockIdx.y) * lanes.columns; tile < width;
         tile += static_cast<int64_t>(gridDim.y) * lanes.columns) {
      const int64_t j = tile + lanes.column();
      typename Op::Acc acc = Op::identity();
      for (int64_t i = lanes.row(); i < rows && j < width; i += lanes.rows())
        acc = Op::join(acc, Op::from(x[(first + i) * width + j], i));
      acc = lanes.join(acc, scratch, [](auto a, auto b) { return Op::join(a, b); });
      if (lanes.row() != 0 || j >= width) continue;
      const T value = Op::value(acc);
      y[s * width + j] = mean && rows > 0 ? value / static_cast<T>(rows) : value;
      if constexpr (!std::is_same_v<typename Op::Acc, T>) which[s * width + j] = acc.place;
    }
  }
}

template <class T>
__global__ void segment_broadcast(const T* x, const int64_t* offsets, int64_t segments, int64_t total, int64_t width,
                                  bool mean, T* y) {
  for_each_element(total, width, offsets, segments, [&](int64_t i, int64_t, int64_t s, int64_t j) {
    const T value = x[s * width + j];
    y[i] = mean ? value / static_cast<T>(offsets[s + 1] - offsets[s]) : value;
  });
}

template <class T>
__global__ void segment_select_backward(const T* dy, const int64_t* which, const int64_t* offsets, int64_t segments,
                                        int64_t total, int64_t width, T* dx) {
  for_each_element(total, width, offsets, segments, [&](int64_t i, int64_t row, int64_t s, int64_t j) {
    dx[i] = which[s * width + j] == row - offsets[s] ? dy[s * width + j] : T(0);
  });
}

/// y [segments, length, width], an element per thread and step.
template <class T>
__global__ void segment_pad(const T* x, const int64_t* offsets, int64_t segments, int64_t length, int64_t width,
                            T padding, T* y) {
  for (int64_t i = first_unit(); i < segments * length * width; i += unit_step()) {
    const int64_t place = i / width, s = place / length, row = place - s * length;
    const int64_t first = offsets[s];
    y[i] = row < offsets[s + 1] - first ? x[(first + row) * width + (i - place * width)] : padding;
  }
}

template <class T>
__global__ void segment_unpad(const T* x, const int64_t* offsets, int64_t segments, int64_t total, int64_t length,
                              int64_t width, T* y) {
  for_each_element(total, width, offsets, segments, [&](int64_t i, int64_t row, int64_t s, int64_t j) {
    y[i] = x[(s * length + row - offsets[s]) * width + j];
  });
}

}  // namespace
}  // namespace device

void CudaOps::segment_reduce(ReduceOp op, const Array& x, const Segments& segments, const Array& y,
                             const Array* which) {
  if (y.size == 0) return;
  const int64_t width = y.shape.back();
  dispatch_floating(x.dtype, [&]<class T>() {
    dispatch_reduction<T>(op, which != nullptr, [&]<class Op>() {
      const LaneGrid shape = lane_grid(context_, segments.count, segments.max_length, width, sizeof(typename Op::Acc));
      launch(context_, "segment_reduce", shape.grid, &device::segment_reduce<Op, T>, x.as<T>(), segments.offsets,
             segments.count, width, op == ReduceOp::mean, y.as<T>(), which != nullptr ? which->as<int64_t>() : nullptr,
             shape.lanes);
    });
  });
}

void CudaOps::segment_broadcast(const Array& x, const Segments& segments, bool mean, const Array& y) {
  dispatch_floating(x.dtype, [&]<class T>() {
    launch(context_, "segment_broadcast", grid_for(context_, y.size), &device::segment_broadcast<T>, x.as<T>(),
           segments.offsets, segments.count, segments.total, y.shape.back(), mean, y.as<T>());
  });
}

void CudaOps::segment_select_backward(const Array& dy, const Array& which, const Segments& segments, const Array& dx) {
  dispatch_floating(dy.dtype, [&]<class T>() {
    launch(context_, "segment_select_backward", grid_for(context_, dx.size), &device::segment_select_backward<T>,
           dy.as<T>(), which.as<int64_t>(), segments.offsets, segments.count, segments.total, dx.shape.back(),
           dx.as<T>());
  });
}

void CudaOps::segment_pad(const Array& x, const Segments& segments, Scalar padding, const Array& y) {
  dispatch_all(x.dtype, [&]<class T>() {
    launch(context_, "segment_pad", grid_for(context_, y.size), &device::segment_pad<T>, x.as<T>(), segments.offsets,
           segments.count, y.shape[1], y.shape.back(), convert_scalar<T>(padding), y.as<T>());
  });
}

void CudaOps::segment_unpad(const Array& x, const Segments& segments, const Array& y) {
  dispatch_bytes(size_of(x.dtype), [&]<class T>() {
    launch(context_, "segment_unpad", grid_for(context_, y.size), &device::segment_unpad<T>, x.as<T>(),
           segments.offsets, segments.count, segments.total, x.shape[1], y.shape.back(), y.as<T>());
  });
}

}  // namespace reel::cuda
