#include "reel/backends/cpu/activations.h"
#include "reel/backends/cpu/cpu_ops.h"
#include "reel/backends/cpu/long_formula.h"
#include "reel/backends/cpu/sines.h"
#include "reel/backends/cpu/unary_runs.h"
#include "reel/backends/cpu/usual.h"
#include "reel/core/scalar/binary.h"
#include "reel/core/scalar/unary.h"

namespace reel::cpu::REEL_CPU_ISA {

namespace {

template <class Op>
struct Backward {
  template <class T>
  REEL_INLINE static T dx(T saved, T dy) {
    return dy * Op::derivative(saved);
  }
};

/// A choice instead of a product: an infinite dy times 0 would be NaN where relu was flat.
template <>
struct Backward<scalar::Relu> {
  template <class T>
  REEL_INLINE static T dx(T saved, T dy) {
    return scalar::ReluMask::forward(dy, saved);
  }
};

/// Doubled last: 2x of what squares to infinity would be infinite, and NaN times a dy of 0, as `norm` has it there.
template <>
struct Backward<scalar::Square> {
  template <class T>
  REEL_INLINE static T dx(T saved, T dy) {
    return T(2) * (dy * saved);
  }
};

// Those of an output that is saved are made of it in a few steps.
template <class Op>
constexpr bool kIsShort =
    Op::saved == scalar::Saved::output ||
    is_one_of<Op, scalar::Neg, scalar::Log, scalar::Square, scalar::Cube, scalar::Abs, scalar::Log1p, scalar::Sign,
              scalar::Logit, scalar::HardSigmoid, scalar::HardTanh, scalar::HardSwish>;

template <class Op, class T>
void run(const void* saved, const void* dy, void* dx, int64_t count) {
  const T* from_saved = static_cast<const T*>(saved);
  const T* from_dy = static_cast<const T*>(dy);
  T* to = static_cast<T*>(dx);
  if constexpr (kIsShort<Op>) {
#pragma omp simd
    for (int64_t i = 0; i < count; ++i) to[i] = Backward<Op>::dx(from_saved[i], from_dy[i]);
  } else if constexpr (std::is_same_v<Op, scalar::Lgamma>) {
    if constexpr (sizeof(T) == sizeof(float)) run_rounded(run<Op, double>, from_saved, from_dy, to, count);
    else run_whole_vectors(count, from_saved, from_dy, to, run_usual_times<scalar::Digamma, T>);
  } else if constexpr (Turns<Op>) {
    sines_times(count, from_saved, from_dy, to, Op::quarters + 1);
  } else {
    long_formula(
        count, from_saved, from_dy, to,
        [](T saved_i, T dy_i) __attribute__((always_inline)) { return Backward<Op>::dx(saved_i, dy_i); });
  }
}

#define REEL_RUN_F32(name, Struct) kHasSlopeFormula<scalar::Struct> ? run<scalar::Struct, float> : nullptr,
#define REEL_RUN_F64(name, Struct) run<scalar::Struct, double>,
constexpr Run kRuns[2][kUnaryOps] = {{REEL_UNARY_OPS(REEL_RUN_F32)}, {REEL_UNARY_OPS(REEL_RUN_F64)}};
#undef REEL_RUN_F32
#undef REEL_RUN_F64

#define REEL_IS_SHORT(name, Struct) kIsShort<scalar::Struct>,
constexpr bool kShort[] = {REEL_UNARY_OPS(REEL_IS_SHORT)};
#undef REEL_IS_SHORT

#define REEL_SAVED(name, Struct) scalar::Struct::saved,
constexpr scalar::Saved kSaved[] = {REEL_UNARY_OPS(REEL_SAVED)};
#undef REEL_SAVED

}  // namespace

Run unary_backward_formula(UnaryOp op, DType dtype) { return kRuns[dtype == DType::f64][static_cast<int>(op)]; }

Run unary_backward_run(UnaryOp op, DType dtype) {
  const Run run = activation_backward_runs(op, dtype).run;
  return run != nullptr ? run : unary_backward_formula(op, dtype);
}

void CpuOps::unary_backward(UnaryOp op, const Array& saved, const Array& dy, const Array& dx) {
  const Run run = unary_backward_run(op, dx.dtype);
  const auto size = static_cast<int64_t>(size_of(dx.dtype));
  // Where nothing is saved the formula ignores the value, but it must be one that can be read.
  const bool none = kSaved[static_cast<int>(op)] == scalar::Saved::none;
  if (!dy.contiguous) {  // mostly one number: the gradient of a sum
    run_elements({.arrays = run}, input_of(none ? dy : saved), input_of(dy), dx);
    return;
  }
  const Run streamed = activation_backward_runs(op, dx.dtype).streamed;
  run_contiguous(run, none ? dy.data : saved.data, size, dy.data, size, dx.data, size, dx.size, streamed,
                 kShort[static_cast<int>(op)] ? kAlone : alone_with_formula(dx.dtype));
}

}  // namespace reel::cpu::REEL_CPU_ISA
