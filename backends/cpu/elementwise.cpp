#include "reel/backends/cpu/activations.h"
#include "reel/backends/cpu/cpu_ops.h"
#include "reel/backends/cpu/exp_log.h"
#include "reel/backends/cpu/long_formula.h"
#include "reel/backends/cpu/sines.h"
#include "reel/backends/cpu/unary_runs.h"
#include "reel/backends/cpu/usual.h"
#include "reel/core/scalar/unary.h"

namespace reel::cpu::REEL_CPU_ISA {

namespace {

template <class Op>
constexpr bool kIsShort =
    is_one_of<Op, scalar::Neg, scalar::Relu, scalar::Sqrt, scalar::Square, scalar::Cube, scalar::Abs, scalar::Rsqrt,
              scalar::Sign, scalar::HardSigmoid, scalar::HardTanh, scalar::HardSwish>;

template <class Op, class T>
void run(const void* x, const void*, void* y, int64_t count) {
  const T* source = static_cast<const T*>(x);
  T* target = static_cast<T*>(y);
  if constexpr (kIsShort<Op>) {
#pragma omp simd
    for (int64_t i = 0; i < count; ++i) target[i] = Op::forward(source[i]);
  } else if constexpr (Turns<Op>) {
    sines(count, source, target, Op::quarters);
  } else if constexpr (kIsOfVectors<Op, T>) {
    run_of_vectors<Op>(count, source, target);
  } else if constexpr (kIsRounded<Op> && std::is_same_v<T, float>) {
    run_rounded(run<Op, double>, source, source, target, count);
  } else if constexpr (HasUsual<Op>) {
    run_whole_vectors(count, source, source, target, run_usual<Op, T>);
  } else {
    long_formula(
        count, source, source, target, [](T x_i, T) __attribute__((always_inline)) { return Op::forward(x_i); });
  }
}

#define REEL_RUN_F32(name, Struct) kHasFormula<scalar::Struct> ? run<scalar::Struct, float> : nullptr,
#define REEL_RUN_F64(name, Struct) run<scalar::Struct, double>,
constexpr Run kRuns[2][kUnaryOps] = {{REEL_UNARY_OPS(REEL_RUN_F32)}, {REEL_UNARY_OPS(REEL_RUN_F64)}};
#undef REEL_RUN_F32
#undef REEL_RUN_F64

#define REEL_IS_SHORT(name, Struct) kIsShort<scalar::Struct>,
constexpr bool kShort[] = {REEL_UNARY_OPS(REEL_IS_SHORT)};
#undef REEL_IS_SHORT

/// Whether x lies in rows without gaps, of `least` elements at least.
bool has_rows_of(const Array& x, int64_t least) {
  const int last = x.rank() - 1;
  return last >= 0 && x.strides[last] == 1 && x.shape[last] >= least;
}

}  // namespace

Run unary_formula(UnaryOp op, DType dtype) { return kRuns[dtype == DType::f64][static_cast<int>(op)]; }

Run unary_run(UnaryOp op, DType dtype) {
  const Run run = activation_runs(op, dtype).run;
  return run != nullptr ? run : unary_formula(op, dtype);
}

void CpuOps::unary(UnaryOp op, const Array& x, const Array& y) {
  const Run run = unary_run(op, y.dtype);
  const auto size = static_cast<int64_t>(size_of(y.dtype));
  const Run streamed = activation_runs(op, y.dtype).streamed;
  const int64_t alone = kShort[static_cast<int>(op)] ? kAlone : alone_with_formula(y.dtype);
  if (x.contiguous && y.contiguous) {
    run_contiguous(run, x.data, size, x.data, size, y.data, size, y.size, streamed, alone);
  } else if (y.contiguous && x.data != y.data && !has_rows_of(x, run == unary_formula(op, y.dtype) ? 64 : 1024)) {
    copy(x, y);  // knows all layouts, and leaves one run to the formula, which loses to the ends of many
    run_contiguous(run, y.data, size, y.data, size, y.data, size, y.size, nullptr, alone);
  } else {
    run_elements({.arrays = run, .fixed_b = run}, input_of(x), {x.data, nullptr, x.dtype, false}, y);
  }
}

}  // namespace reel::cpu::REEL_CPU_ISA
