// Pooling: a thread per output takes its window's elements in row-major order. Backward a thread per input looks its windows up
// and adds what comes from each in ascending order: no atomics.

#include "reel/backends/cuda/kernel.h"
#include "reel/core/scalar/math.h"

namespace reel::cuda {

namespace device {
namespace {

/// How many elements an average over window o divides by along an axis (dilation 1): those within the input or, if
/// `count_padding`, within the padded input.
REEL_DEVICE int64_t counted(const Conv& c, int axis, int64_t o, bool count_padding) {
  const int64_t padding = count_padding ? c.padding[axis] : 0, start = o * c.stride[axis] - c.padding[axis];
  return smaller(start + c.kernel[axis], c.input[axis] + padding) - larger(start, -padding);
}

/// What an average over the window at o divides by.
template <class T>
REEL_DEVICE T divisor(const Conv& c, bool count_padding, const int64_t (&o)[3]) {
  const T rows = static_cast<T>(counted(c, 0, o[0], count_padding) * counted(c, 1, o[1], count_padding));
  return rows * static_cast<T>(counted(c, 2, o[2], count_padding));
}

/// `position` within planes of these sizes to the place in the plane; returns the plane.
REEL_DEVICE int64_t split(int64_t position, const int64_t (&sizes)[3], int64_t (&place)[3]) {
  REEL_UNROLL
  for (int axis = 2; axis >= 0; --axis) {
    const int64_t outer = position / sizes[axis];
    place[axis] = position - outer * sizes[axis];
    position = outer;
  }
  return position;
}

/// first, first + step, ..., below `end`.
struct Range {
  int64_t first, end, step;
};

/// f(place in the plane) for the elements of the input's plane that window o covers, in row-major order.
template <class F>
REEL_DEVICE void for_each_covered(const Conv& c, const int64_t (&o)[3], F f) {
  Range range[3];
  REEL_UNROLL
  for (int axis = 0; axis < 3; ++axis) {
    const int64_t start = o[axis] * c.stride[axis] - c.padding[axis], step = c.dilation[axis];
    const int64_t beyond = start + c.kernel[axis] * step;
    range[axis] = {start < 0 ? start + (-start + step - 1) / step * step : start, smaller(beyond, c.input[axis]), step};
  }
  for (int64_t i = range[0].first; i < range[0].end; i += range[0].step)
    for (int64_t j = range[1].first; j < range[1].end; j += range[1].step)
      for (int64_t k = range[2].first; k < range[2].end; k += range[2].step) f((i * c.input[1] + j) * c.input[2] + k);
}

/// f(o) for the windows that cover input element i, in ascending order.
template <class F>
REEL_DEVICE void for_each_window(const Conv& c, const int64_t (&i)[3], F f) {
  int64_t first[3], last[3], o[3];
  REEL_UNROLL
  for (int axis = 0; axis < 3; ++axis) {
    const int64_t at = i[axis] + c.padding[axis], reach = (c.kernel[axis] - 1) * c.dilation[axis];
    first[axis] = at <= reach ? 0 : (at - reach + c.stride[axis] - 1) / c.stride[axis];
    last[axis] = smaller(at / c.stride[axis], c.output[axis] - 1);
  }
  const auto covers = [&](int axis, int64_t window) {
    return c.dilation[axis] == 1 || (i[axis] + c.padding[axis] - window * c.stride[axis]) % c.dilation[axis] == 0;
  };
  for (o[0] = first[0]; o[0] <= last[0]; ++o[0]) {
    if (!covers(0, o[0])) continue;
    for (o[1] = first[1]; o[1] <= last[1]; ++o[1]) {
      if (!covers(1, o[1])) continue;
      for (o[2] = first[2]; o[2] <= last[2]; ++o[2])
        if (covers(2, o[2])) f(o);
    }
  }
}

REEL_DEVICE int64_t product(const int64_t (&sizes)[3]) { return sizes[0] * sizes[1] * sizes[2]; }

/// The first element, a larger one or the first NaN wins.
template <class T>
__global__ void max_pool(const __grid_constant__ Conv c, const T* x, T* y, int64_t* which, int64_t count) {
  for (int64_t i = first_unit(); i < count; i += unit_step()) {
    int64_t o[3];
    const T* const plane = x + split(i, c.output, o) * product(c.input);
    T best = -scalar::infinity<T>();
    int64_t winner = -1;
    for_each_covered(c, o, [&](int64_t place) {
      const T value = plane[place];
      if (winner >= 0 && (value <= best || best != best)) return;
      best = value;
      winner = place;
    });
    y[i] = best;
    if (which != nullptr) which[i] = winner;
  }
}

template <class T>
__global__ void average_pool(const __grid_constant__ Conv c, bool count_padding, const T* x, T* y, int64_t count) {
  for (int64_t i = first_unit(); i < count; i += unit_step()) {
    int64_t o[3];
    const T* const plane = x + split(i, c.output, o) * product(c.input);
    T sum = 0;
    for_each_covered(c, o, [&](int64_t place) { sum += plane[place]; });
    y[i] = sum / divisor<T>(c, count_padding, o);
  }
}

/// `which` null: of averages.
template <class T>
__global__ void pool_backward(const __grid_constant__ Conv c, bool count_padding, const T* dy, const int64_t* which,
                              T* dx, int64_t count) {
  for (int64_t i = first_unit(); i < count; i += unit_step()) {
    int64_t at[3];
    const int64_t windows = split(i, c.input, at) * product(c.output), place = i % product(c.input);
    T sum = 0;
    for_each_window(c, at, [&](const int64_t(&o)[3]) {
      const int64_t window = windows + (o[0] * c.output[1] + o[1]) * c.output[2] + o[2];
      if (which == nullptr) sum += dy[window] / divisor<T>(c, count_padding, o);
      else if (which[window] == place) sum += dy[window];
    });
    dx[i] = sum;
  }
}

}  // namespace
}  // namespace device

void CudaOps::pool(PoolOp op, const Conv& geometry, bool count_padding, const Array& x, const Array& y,
                   const Array* which) {
  const Grid grid = grid_for(context_, y.size);
  dispatch_floating(y.dtype, [&]<class T>() {
    if (op == PoolOp::max) {
      launch(context_, "pool", grid, &device::max_pool<T>, geometry, x.as<T>(), y.as<T>(),
             which != nullptr ? which->as<int64_t>() : nullptr, y.size);
    } else {
      launch(context_, "pool", grid, &device::average_pool<T>, geometry, count_padding, x.as<T>(), y.as<T>(), y.size);
    }
  });
}

void CudaOps::pool_backward(PoolOp op, const Conv& geometry, bool count_padding, const Array& dy, const Array* which,
                            const Array& dx) {
  dispatch_floating(dx.dtype, [&]<class T>() {
    launch(context_, "pool_backward", grid_for(context_, dx.size), &device::pool_backward<T>, geometry, count_padding,
           dy.as<T>(), op == PoolOp::max ? which->as<int64_t>() : nullptr, dx.as<T>(), dx.size);
  });
}

}  // namespace reel::cuda
