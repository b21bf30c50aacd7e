#pragma once

#include "reel/backends/cpu/run_elements.h"
#include "reel/core/ops.h"

namespace reel::cpu::REEL_CPU_ISA {

/// The inner loops of unary, y = f(x), and of unary_backward, dx = dy f'(saved), for kernels that are made of them.
Run unary_run(UnaryOp op, DType dtype);
Run unary_backward_run(UnaryOp op, DType dtype);

/// The same by the formulas in core/scalar, for all x; null where activations.h has a loop for all x.
Run unary_formula(UnaryOp op, DType dtype);
Run unary_backward_formula(UnaryOp op, DType dtype);

/// Those of activations.h, null for other ops; `streamed` writes past the caches itself.
struct ActivationRuns {
  Run run = nullptr, streamed = nullptr;
};
ActivationRuns activation_runs(UnaryOp op, DType dtype);
ActivationRuns activation_backward_runs(UnaryOp op, DType dtype);

}  // namespace reel::cpu::REEL_CPU_ISA
