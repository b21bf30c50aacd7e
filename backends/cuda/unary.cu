// Elementwise functions of one number, and their gradients: a kernel per formula of core/scalar, 16 bytes per access.

#include "reel/backends/cuda/map.h"
#include "reel/core/scalar/binary.h"
#include "reel/core/scalar/unary.h"

namespace reel::cuda {

namespace device {
namespace {

template <class Op>
struct Forward {
  template <class T>
  REEL_DEVICE static T apply(T x, T) {
    return Op::forward(x);
  }
};

template <class Op>
struct Backward {
  template <class T>
  REEL_DEVICE static T apply(T saved, T dy) {
    return dy * Op::derivative(saved);
  }
};

/// A choice instead of a product: an infinite dy times 0 would be NaN where relu was flat.
template <>
struct Backward<scalar::Relu> {
  template <class T>
  REEL_DEVICE static T apply(T saved, T dy) {
    return scalar::ReluMask::forward(dy, saved);
  }
};

/// Doubled last: 2x of what squares to infinity would be infinite, and NaN times a dy of 0, as `norm` has it there.
template <>
struct Backward<scalar::Square> {
  template <class T>
  REEL_DEVICE static T apply(T saved, T dy) {
    return T(2) * (dy * saved);
  }
};

/// y = F(a, b), all without gaps.
template <class F, class T>
__global__ void map_of(const T* a, const T* b, T* y, Units<T> units) {
  map(a, b, y, units, [](T from_a, T from_b) { return F::apply(from_a, from_b); });
}

}  // namespace
}  // namespace device

namespace {

template <class T>
using Kernel = void (*)(const T*, const T*, T*, Units<T>);

#define REEL_FORWARD(name, Struct) &device::map_of<device::Forward<scalar::Struct>, T>,
#define REEL_BACKWARD(name, Struct) &device::map_of<device::Backward<scalar::Struct>, T>,
template <class T>
constexpr Kernel<T> kForward[] = {REEL_UNARY_OPS(REEL_FORWARD)};
template <class T>
constexpr Kernel<T> kBackward[] = {REEL_UNARY_OPS(REEL_BACKWARD)};
#undef REEL_FORWARD
#undef REEL_BACKWARD

#define REEL_SAVED(name, Struct) scalar::Struct::saved,
constexpr scalar::Saved kSaved[] = {REEL_UNARY_OPS(REEL_SAVED)};
#undef REEL_SAVED

template <class T>
void run(const Context& context, const char* name, Kernel<T> kernel, const void* a, const void* b, const Array& y) {
  const Units<T> units = map_units<T>(a, b, y);
  launch(context, name, units.grid(device::kMapSteps), kernel, static_cast<const T*>(a), static_cast<const T*>(b),
         y.as<T>(), units);
}

}  // namespace

void CudaOps::unary(UnaryOp op, const Array& x, const Array& y) {
  if (y.size == 0) return;
  const void* from = x.data;
  if (!x.contiguous) {  // copy knows all layouts
    copy(x, y);
    from = y.data;
  }
  dispatch_floating(y.dtype,
                    [&]<class T>() { run<T>(context_, "unary", kForward<T>[static_cast<int>(op)], from, from, y); });
}

void CudaOps::unary_backward(UnaryOp op, const Array& saved, const Array& dy, const Array& dx) {
  if (dx.size == 0) return;
  // Where nothing is saved the formula ignores the value, but it must be one that can be read.
  const bool none = kSaved[static_cast<int>(op)] == scalar::Saved::none;
  const void* grad = dy.data;
  if (!dy.contiguous) {  // copy knows all layouts
    copy(dy, dx);
    grad = dx.data;
  }
  dispatch_floating(dx.dtype, [&]<class T>() {
    run<T>(context_, "unary_backward", kBackward<T>[static_cast<int>(op)], none ? grad : saved.data, grad, dx);
  });
}

}  // namespace reel::cuda
