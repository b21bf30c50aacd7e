#include "reel/core/scalar/parametric.h"

#include "reel/backends/cpu/cpu_ops.h"
#include "reel/backends/cpu/long_formula.h"
#include "reel/backends/cpu/run_elements.h"

namespace reel::cpu::REEL_CPU_ISA {

namespace {

constexpr int kMostParameters = 4;

/// A loop over y[i] = f(x[i]) whose second input is the parameters, in the element type.
template <class Op, class T>
void forward(const void* x, const void* parameters, void* y, int64_t count) {
  static_assert(Op::count <= kMostParameters);
  const T* source = static_cast<const T*>(x);
  T* target = static_cast<T*>(y);
  T p[Op::count];
  __builtin_memcpy(p, parameters, sizeof p);
  if constexpr (is_one_of<Op, scalar::Elu>) {
    long_formula(
        count, source, source, target, [=](T x_i, T) __attribute__((always_inline)) { return Op::forward(x_i, p); });
  } else {
#pragma omp simd
    for (int64_t i = 0; i < count; ++i) target[i] = Op::forward(source[i], p);
  }
}

/// dy times the slope, by a choice where f is flat: an infinite dy times 0 would be NaN.
template <class T>
REEL_INLINE T along(T slope, T dy) {
  const T product = slope * dy;
  return slope == T(0) ? T(0) : product;
}

template <class Op, class T>
void backward(const T* x, const T* dy, const double* parameters, T* dx, int64_t count) {
  T p[Op::count];
  for (int k = 0; k < Op::count; ++k) p[k] = static_cast<T>(parameters[k]);
  const auto dx_of = [=](T x_i, T dy_i) __attribute__((always_inline)) { return along(Op::derivative(x_i, p), dy_i); };
  if constexpr (is_one_of<Op, scalar::Elu>) {
    long_formula(count, x, dy, dx, dx_of);
  } else {
#pragma omp simd
    for (int64_t i = 0; i < count; ++i) dx[i] = dx_of(x[i], dy[i]);
  }
}

#define REEL_FORWARD(name, Struct) forward<scalar::Struct, T>,
template <class T>
constexpr Run kForward[] = {REEL_PARAMETRIC_OPS(REEL_FORWARD)};
#undef REEL_FORWARD

template <class T>
using BackwardRun = void (*)(const T* x, const T* dy, const double* parameters, T* dx, int64_t count);
#define REEL_BACKWARD(name, Struct) backward<scalar::Struct, T>,
template <class T>
constexpr BackwardRun<T> kBackward[] = {REEL_PARAMETRIC_OPS(REEL_BACKWARD)};
#undef REEL_BACKWARD

#define REEL_COUNT(name, Struct) scalar::Struct::count,
constexpr int kCounts[] = {REEL_PARAMETRIC_OPS(REEL_COUNT)};
#undef REEL_COUNT

}  // namespace

void CpuOps::parametric(ParametricOp op, const double* parameters, const Array& x, const Array& y) {
  dispatch_floating(y.dtype, [&]<class T>() {
    T p[kMostParameters] = {};
    for (int k = 0; k < kCounts[static_cast<int>(op)]; ++k) p[k] = static_cast<T>(parameters[k]);
    const Run run = kForward<T>[static_cast<int>(op)];
    if (x.contiguous && y.contiguous) {
      run_contiguous(run, x.data, sizeof(T), p, 0, y.data, sizeof(T), y.size, nullptr,
                     op == ParametricOp::elu ? alone_with_formula(y.dtype) : kAlone);
    } else {
      run_elements({.arrays = run, .fixed_b = run}, input_of(x), {p, nullptr, y.dtype, false}, y);
    }
  });
}

void CpuOps::parametric_backward(ParametricOp op, const double* parameters, const Array& x, const Array& dy,
                                 const Array& dx) {
  if (!dy.contiguous) copy(dy, dx);
  dispatch_floating(dx.dtype, [&]<class T>() {
    const auto run = kBackward<T>[static_cast<int>(op)];
    const T *const from = x.as<T>(), *const grad = dy.contiguous ? dy.as<T>() : dx.as<T>();
    T* const to = dx.as<T>();
    const int64_t grain = op == ParametricOp::elu ? alone_with_formula(dx.dtype) : kGrain;
    parallel_for(dx.size, even_chunk(dx.size, grain), [=](int64_t begin, int64_t end) {
      run(from + begin, grad + begin, parameters, to + begin, end - begin);
    });
  });
}

}  // namespace reel::cpu::REEL_CPU_ISA
