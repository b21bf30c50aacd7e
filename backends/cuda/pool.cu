// Pooling: a thread per output takes its window's elements in row-major order. Backward a thread per input looks its windows up
// and adds what comes from each in ascending order: no atomics.

#include <limits>

#include "reel/backends/cuda/kernel.h"
#include "reel/core/scalar/math.h"

namespace reel::cuda {

namespace device {
namespace {

/// A Conv's sizes as integers I: a GPU divides those of 32 bits in a quarter of the time.
template <class I>
struct Windows {
  I input[3], kernel[3], output[3], stride[3], dilation[3], padding[3];

  explicit Windows(const Conv& conv) {
    for (int a = 0; a < 3; ++a) {
      input[a] = static_cast<I>(conv.input[a]);
      kernel[a] = static_cast<I>(conv.kernel[a]);
      output[a] = static_cast<I>(conv.output[a]);
      stride[a] = static_cast<I>(conv.stride[a]);
      dilation[a] = static_cast<I>(conv.dilation[a]);
      padding[a] = static_cast<I>(conv.padding[a]);
    }
  }
};

/// How many elements an average over window o divides by along an axis (dilation 1): those within the input or, if
/// `count_padding`, within the padded input.
template <class I>
REEL_DEVICE I counted(const Windows<I>& c, int axis, I o, bool count_padding) {
  const I padding = count_padding ? c.padding[axis] : 0, start = o * c.stride[axis] - c.padding[axis];
  return smaller(start + c.kernel[axis], c.input[axis] + padding) - larger(start, -padding);
}

/// What an average over the window at o divides by.
template <class T, class I>
REEL_DEVICE T divisor(const Windows<I>& c, bool count_padding, const I (&o)[3]) {
  const T rows = static_cast<T>(int64_t{counted(c, 0, o[0], count_padding)} * counted(c, 1, o[1], count_padding));
  return rows * static_cast<T>(counted(c, 2, o[2], count_padding));
}

/// `position` within planes of these sizes to the place in the plane; returns the plane.
template <class I>
REEL_DEVICE I split(I position, const I (&sizes)[3], I (&place)[3]) {
  REEL_UNROLL
  for (int axis = 2; axis >= 0; --axis) {
    const I outer = position / sizes[axis];
    place[axis] = position - outer * sizes[axis];
    position = outer;
  }
  return position;
}

/// first, first + step, ..., below `end`.
template <class I>
struct Range {
  I first, end, step;
};

/// f(place in the plane) for the elements of the input's plane that window o covers, in row-major order.
template <class I, class F>
REEL_DEVICE void for_each_covered(const Windows<I>& c, const I (&o)[3], F f) {
  Range<I> range[3];
  REEL_UNROLL
  for (int axis = 0; axis < 3; ++axis) {
    const I start = o[axis] * c.stride[axis] - c.padding[axis], step = c.dilation[axis];
    const I beyond = start + c.kernel[axis] * step;
    range[axis] = {start < 0 ? start + (-start + step - 1) / step * step : start, smaller(beyond, c.input[axis]), step};
  }
  for (I i = range[0].first; i < range[0].end; i += range[0].step)
    for (I j = range[1].first; j < range[1].end; j += range[1].step)
      for (I k = range[2].first; k < range[2].end; k += range[2].step) f((i * c.input[1] + j) * c.input[2] + k);
}

/// f(o) for the windows that cover input element i, in ascending order.
template <class I, class F>
REEL_DEVICE void for_each_window(const Windows<I>& c, const I (&i)[3], F f) {
  I first[3], last[3], o[3];
  REEL_UNROLL
  for (int axis = 0; axis < 3; ++axis) {
    const I at = i[axis] + c.padding[axis], reach = (c.kernel[axis] - 1) * c.dilation[axis];
    first[axis] = at <= reach ? 0 : (at - reach + c.stride[axis] - 1) / c.stride[axis];
    last[axis] = smaller(at / c.stride[axis], c.output[axis] - 1);
  }
  const auto covers = [&](int axis, I window) {
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

template <class I>
REEL_DEVICE I product(const I (&sizes)[3]) {
  return sizes[0] * sizes[1] * sizes[2];
}

/// The first element, a larger one or the first NaN wins.
template <class T, class I>
__global__ void max_pool(const __grid_constant__ Windows<I> c, const T* x, T* y, int64_t* which, int64_t count) {
  for (int64_t i = first_unit(); i < count; i += unit_step()) {
    I o[3];
    const T* const plane = x + split(static_cast<I>(i), c.output, o) * product(c.input);
    T best = -scalar::infinity<T>();
    I winner = -1;
    for_each_covered(c, o, [&](I place) {
      const T value = plane[place];
      if (winner >= 0 && (value <= best || best != best)) return;
      best = value;
      winner = place;
    });
    y[i] = best;
    if (which != nullptr) which[i] = winner;
  }
}

template <class T, class I>
__global__ void average_pool(const __grid_constant__ Windows<I> c, bool count_padding, const T* x, T* y,
                             int64_t count) {
  for (int64_t i = first_unit(); i < count; i += unit_step()) {
    I o[3];
    const T* const plane = x + split(static_cast<I>(i), c.output, o) * product(c.input);
    T sum = 0;
    for_each_covered(c, o, [&](I place) { sum += plane[place]; });
    y[i] = sum / divisor<T>(c, count_padding, o);
  }
}

/// `which` null: of averages.
template <class T, class I>
__global__ void pool_backward(const __grid_constant__ Windows<I> c, bool count_padding, const T* dy,
                              const int64_t* which, T* dx, int64_t count) {
  for (int64_t i = first_unit(); i < count; i += unit_step()) {
    I at[3];
    const I windows = split(static_cast<I>(i), c.input, at) * product(c.output);
    const I place = (at[0] * c.input[1] + at[1]) * c.input[2] + at[2];
    T sum = 0;
    for_each_window(c, at, [&](const I(&o)[3]) {
      const I window = windows + (o[0] * c.output[1] + o[1]) * c.output[2] + o[2];
      if (which == nullptr) sum += dy[window] / divisor<T>(c, count_padding, o);
      else if (which[window] == place) sum += dy[window];
    });
    dx[i] = sum;
  }
}

}  // namespace
}  // namespace device

namespace {

/// f.template operator()<I>() for the integers in which all places of x and y can be counted, padding included.
template <class F>
void dispatch_windows(const Conv& conv, int64_t most, F f) {
  constexpr int64_t kMost = std::numeric_limits<int>::max() / 4;
  bool narrow = most <= kMost;
  for (int a = 0; a < 3; ++a)
    narrow = narrow && conv.stride[a] <= kMost && conv.padding[a] <= kMost && conv.kernel[a] <= kMost &&
             conv.dilation[a] <= kMost / (conv.kernel[a] > 0 ? conv.kernel[a] : 1);
  if (narrow) f.template operator()<int>();
  else f.template operator()<int64_t>();
}

}  // namespace

void CudaOps::pool(PoolOp op, const Conv& geometry, bool count_padding, const Array& x, const Array& y,
                   const Array* which) {
  const Grid grid = grid_for(context_, y.size);
  dispatch_floating(y.dtype, [&]<class T>() {
    dispatch_windows(geometry, x.size < y.size ? y.size : x.size, [&]<class I>() {
      const device::Windows<I> windows(geometry);
      if (op == PoolOp::max) {
        launch(context_, "pool", grid, &device::max_pool<T, I>, windows, x.as<T>(), y.as<T>(),
               which != nullptr ? which->as<int64_t>() : nullptr, y.size);
      } else {
        launch(context_, "pool", grid, &device::average_pool<T, I>, windows, count_padding, x.as<T>(), y.as<T>(),
               y.size);
      }
    });
  });
}

void CudaOps::pool_backward(PoolOp op, const Conv& geometry, bool count_padding, const Array& dy, const Array* which,
                            const Array& dx) {
  dispatch_floating(dx.dtype, [&]<class T>() {
    dispatch_windows(geometry, dx.size < dy.size ? dy.size : dx.size, [&]<class I>() {
      const device::Windows<I> windows(geometry);
      launch(context_, "pool_backward", grid_for(context_, dx.size), &device::pool_backward<T, I>, windows,
             count_padding, dy.as<T>(), op == PoolOp::max ? which->as<int64_t>() : nullptr, dx.as<T>(), dx.size);
    });
  });
}

}  // namespace reel::cuda
