#include "reel/backends/cpu/activations.h"

#include "reel/backends/cpu/unary_runs.h"

namespace reel::cpu::REEL_CPU_ISA {

namespace {

template <class Op, UnaryOp op>
__attribute__((noinline)) void forward(const void* x, void* y, int64_t count, bool past_caches) {
  run_activation<Op>(count, static_cast<const float*>(x), static_cast<float*>(y), past_caches,
                     unary_formula(op, DType::f32));
}
template <class Op, UnaryOp op>
__attribute__((noinline)) void backward(const void* x, const void* dy, void* dx, int64_t count, bool past_caches) {
  run_activation_backward<Op>(count, static_cast<const float*>(x), static_cast<const float*>(dy),
                              static_cast<float*>(dx), past_caches, unary_backward_formula(op, DType::f32));
}

template <class Op, UnaryOp op, bool past_caches>
void forward_run(const void* x, const void*, void* y, int64_t count) {
  forward<Op, op>(x, y, count, past_caches);
}
template <class Op, UnaryOp op, bool past_caches>
void backward_run(const void* x, const void* dy, void* dx, int64_t count) {
  backward<Op, op>(x, dy, dx, count, past_caches);
}

template <class Op, UnaryOp op>
void choose(UnaryOp wanted, ActivationRuns& runs) {
  if constexpr (kIsActivation<Op>) {
    if (wanted == op) runs = {forward_run<Op, op, false>, forward_run<Op, op, true>};
  }
}
template <class Op, UnaryOp op>
void choose_backward(UnaryOp wanted, ActivationRuns& runs) {
  if constexpr (kIsActivationSlope<Op>) {
    if (wanted == op) runs = {backward_run<Op, op, false>, backward_run<Op, op, true>};
  }
}

}  // namespace

#define REEL_FORWARD(name, Struct) choose<scalar::Struct, UnaryOp::name>(op, runs);
#define REEL_BACKWARD(name, Struct) choose_backward<scalar::Struct, UnaryOp::name>(op, runs);
ActivationRuns activation_runs([[maybe_unused]] UnaryOp op, DType dtype) {
  ActivationRuns runs;
  if (dtype != DType::f32) return runs;
  REEL_UNARY_OPS(REEL_FORWARD)
  return runs;
}
ActivationRuns activation_backward_runs([[maybe_unused]] UnaryOp op, DType dtype) {
  ActivationRuns runs;
  if (dtype != DType::f32) return runs;
  REEL_UNARY_OPS(REEL_BACKWARD)
  return runs;
}
#undef REEL_FORWARD
#undef REEL_BACKWARD

}  // namespace reel::cpu::REEL_CPU_ISA
