#pragma once

// Private to ops/: the one way in which elementwise functions of one argument with parameters are computed and recorded.

#include <array>

#include "reel/ops/check.h"

namespace reel::detail {

/// In the order of the op's struct in core/scalar/parametric.h.
using Parameters = std::array<double, 4>;

/// y = f(x; p). `derivative(dy, x, p)` is dx in recorded ops, used when the gradient is to be differentiated again; else the
/// fused kernel is.
template <class Derivative>
Tensor parametric(ParametricOp op, const char* name, const Tensor& x, const Parameters& p, SourceLocation where,
                  Derivative derivative) {
  check::floating(name, "x", x, where);
  Tensor y = empty(x.shape(), {.dtype = x.dtype(), .device = x.device()});
  backend(x.device()).parametric(op, p.data(), x.array(), y.array());
  if (taping())
    record_op(name, where, {&x}, y, {&x}, [op, x, p, derivative](Gradients& g) {
      if (g.recording()) return g.add(0, derivative(g.dy(), x, p));
      const Tensor from = packed(x), dy = packed(g.dy());
      Tensor dx = empty(x.shape(), {.dtype = x.dtype(), .device = x.device()});
      backend(x.device()).parametric_backward(op, p.data(), from.array(), dy.array(), dx.array());
      g.add(0, std::move(dx));
    });
  return y;
}

}  // namespace reel::detail
