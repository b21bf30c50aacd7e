// Elementwise functions of one number with parameters, and their gradients. One kernel per element type holds all formulas:
// they are bound by memory, and the op is the same for all threads.

#include "reel/core/scalar/parametric.h"

#include "reel/backends/cuda/map.h"

namespace reel::cuda {

namespace device {
namespace {

template <class T>
struct Parameters {
  T v[4];
};

/// f.template operator()<Op>() for the formula of an op.
#define REEL_CASE(name, Struct) \
  case ParametricOp::name:      \
    return f.template operator()<scalar::Struct>();
template <class F>
REEL_DEVICE void dispatch(ParametricOp op, F f) {
  switch (op) { REEL_PARAMETRIC_OPS(REEL_CASE) }
}
#undef REEL_CASE

template <class T>
__global__ void parametric(ParametricOp op, const T* x, T* y, Units<T> units, Parameters<T> p) {
  dispatch(op, [&]<class Op>() { map(x, x, y, units, [&](T value, T) { return Op::forward(value, p.v); }); });
}

/// dy times the slope, by a choice where f is flat: an infinite dy times 0 would be NaN.
template <class T>
__global__ void parametric_backward(ParametricOp op, const T* x, const T* dy, T* dx, Units<T> units, Parameters<T> p) {
  dispatch(op, [&]<class Op>() {
    map(x, dy, dx, units, [&](T value, T grad) {
      const T slope = Op::derivative(value, p.v);
      return slope == T(0) ? T(0) : slope * grad;
    });
  });
}

}  // namespace
}  // namespace device

namespace {

#define REEL_COUNT(name, Struct) scalar::Struct::count,
constexpr int kCounts[] = {REEL_PARAMETRIC_OPS(REEL_COUNT)};
#undef REEL_COUNT

template <class T>
device::Parameters<T> parameters_of(ParametricOp op, const double* parameters) {
  device::Parameters<T> p = {};
  for (int k = 0; k < kCounts[static_cast<int>(op)]; ++k) p.v[k] = static_cast<T>(parameters[k]);
  return p;
}

}  // namespace

void CudaOps::parametric(ParametricOp op, const double* parameters, const Array& x, const Array& y) {
  if (y.size == 0) return;
  const void* from = x.data;
  if (!x.contiguous) {  // copy knows all layouts
    copy(x, y);
    from = y.data;
  }
  dispatch_floating(y.dtype, [&]<class T>() {
    const Units<T> units = map_units<T>(from, from, y);
    launch(context_, "parametric", units.grid(device::kMapSteps), &device::parametric<T>, op,
           static_cast<const T*>(from), y.as<T>(), units, parameters_of<T>(op, parameters));
  });
}

void CudaOps::parametric_backward(ParametricOp op, const double* parameters, const Array& x, const Array& dy,
                                  const Array& dx) {
  const void* grad = dy.data;
  if (!dy.contiguous) {  // copy knows all layouts
    copy(dy, dx);
    grad = dx.data;
  }
  dispatch_floating(dx.dtype, [&]<class T>() {
    const Units<T> units = map_units<T>(x.data, grad, dx);
    launch(context_, "parametric_backward", units.grid(device::kMapSteps), &device::parametric_backward<T>, op,
           x.as<T>(), static_cast<const T*>(grad), dx.as<T>(), units, parameters_of<T>(op, parameters));
  });
}

}  // namespace reel::cuda
