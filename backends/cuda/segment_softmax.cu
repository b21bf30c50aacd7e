// Softmax down the columns of segments of rows: a block takes a segment and a tile of columns, its row lanes the rows.

#include "reel/backends/cuda/softmax.h"

namespace reel::cuda {

namespace device {
namespace {

/// f(first element, rows, j) for the segments and columns of this block; j < 0: no column, but the block's barriers wait.
template <class F>
REEL_DEVICE void for_each_column(Lanes lanes, int64_t segments, Rows rows, int64_t width, F f) {
  for (int64_t s = blockIdx.x; s < segments; s += gridDim.x) {
    for (int64_t tile = static_cast<int64_t>(blockIdx.y) * lanes.columns; tile < width;
         tile += static_cast<int64_t>(gridDim.y) * lanes.columns) {
      const int64_t j = tile + lanes.column();
      f(rows.begin(s) * width + j, j < width ? rows.count(s) : 0);
    }
  }
}

template <class T>
__global__ void softmax(SoftmaxOp op, const T* x, T* y, int64_t segments, Rows rows, int64_t width, T rate,
                        Lanes lanes) {
  REEL_DYNAMIC_SHARED(T, scratch);
  for_each_column(lanes, segments, rows, width, [&](int64_t start, int64_t count) {
    T greatest = -scalar::infinity<T>();
    for (int64_t i = lanes.row(); i < count; i += lanes.rows()) greatest = larger(greatest, x[start + i * width]);
    const T shift = finite_shift(lanes.join(greatest, scratch, [](T a, T b) { return larger(a, b); }));
    T sum = 0;
    for (int64_t i = lanes.row(); i < count; i += lanes.rows())
      sum += exp_negative((x[start + i * width] - shift) * rate);
    sum = lanes.join(sum, scratch, [](T a, T b) { return a + b; });
    const T correction = softmax_correction(op, sum);
    for (int64_t i = lanes.row(); i < count; i += lanes.rows())
      y[start + i * width] = softmax_result(op, (x[start + i * width] - shift) * rate, correction);
  });
}

template <class T>
__global__ void softmax_backward(SoftmaxOp op, const T* y, const T* dy, T* dx, int64_t segments, Rows rows,
                                 int64_t width, T rate, Lanes lanes) {
  REEL_DYNAMIC_SHARED(T, scratch);
  for_each_column(lanes, segments, rows, width, [&](int64_t start, int64_t count) {
    T sum = 0, reachable = 0;
    for (int64_t i = lanes.row(); i < count; i += lanes.rows()) {
      const int64_t at = start + i * width;
      sum = add_gradient_term(op, y[at], dy[at], sum);
      if (y[at] != -scalar::infinity<T>()) reachable = 1;
    }
    sum = lanes.join(sum, scratch, [](T a, T b) { return a + b; });
    reachable = lanes.join(reachable, scratch, [](T a, T b) { return larger(a, b); });
    const bool none = op == SoftmaxOp::log_softmax && reachable == T(0);
    for (int64_t i = lanes.row(); i < count; i += lanes.rows()) {
      const int64_t at = start + i * width;
      dx[at] = none ? T(0) : softmax_gradient(op, y[at], dy[at], sum) * rate;
    }
  });
}

}  // namespace
}  // namespace device

template <class T>
void softmax_columns(const Context& context, SoftmaxOp op, const T* x, T* y, int64_t segments, device::Rows rows,
                     int64_t longest, int64_t width, T rate) {
  const LaneGrid shape = lane_grid(context, segments, longest, width, sizeof(T));
  launch(context, "softmax", shape.grid, &device::softmax<T>, op, x, y, segments, rows, width, rate, shape.lanes);
}

template <class T>
void softmax_backward_columns(const Context& context, SoftmaxOp op, const T* y, const T* dy, T* dx, int64_t segments,
                              device::Rows rows, int64_t longest, int64_t width, T rate) {
  const LaneGrid shape = lane_grid(context, segments, longest, width, sizeof(T));
  launch(context, "softmax_backward", shape.grid, &device::softmax_backward<T>, op, y, dy, dx, segments, rows, width,
         rate, shape.lanes);
}

template void softmax_columns(const Context&, SoftmaxOp, const float*, float*, int64_t, device::Rows, int64_t, int64_t,
                              float);
template void softmax_columns(const Context&, SoftmaxOp, const double*, double*, int64_t, device::Rows, int64_t,
                              int64_t, double);
template void softmax_backward_columns(const Context&, SoftmaxOp, const float*, const float*, float*, int64_t,
                                       device::Rows, int64_t, int64_t, float);
template void softmax_backward_columns(const Context&, SoftmaxOp, const double*, const double*, double*, int64_t,
                                       device::Rows, int64_t, int64_t, double);

void CudaOps::segment_softmax(SoftmaxOp op, const Array& x, const Segments& segments, const Array& y) {
  if (x.size == 0) return;
  dispatch_floating(x.dtype, [&]<class T>() {
    softmax_columns<T>(context_, op, x.as<T>(), y.as<T>(), segments.count, {segments.offsets, 0}, segments.max_length,
                       x.shape.back(), T(1));
  });
}

void CudaOps::segment_softmax_backward(SoftmaxOp op, const Array& y, const Array& dy, const Segments& segments,
                                       const Array& dx) {
  if (y.size == 0) return;
  dispatch_floating(y.dtype, [&]<class T>() {
    softmax_backward_columns<T>(context_, op, y.as<T>(), dy.as<T>(), dx.as<T>(), segments.count, {segments.offsets, 0},
                                segments.max_length, y.shape.back(), T(1));
  });
}

}  // namespace reel::cuda
