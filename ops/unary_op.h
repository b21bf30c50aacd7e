#pragma once

// Private to ops/: the one way in which elementwise functions of one argument are computed and recorded.

#include <utility>

#include "reel/core/scalar/unary.h"
#include "reel/ops/check.h"

namespace reel::detail {

/// dx from dy and what was saved, in recorded ops: used when the gradient is to be differentiated again. `saved` is x or y,
/// as the op's struct in core/scalar/unary.h says.
using Derivative = Tensor (*)(const Tensor& dy, const Tensor& saved);

/// dx by the fused kernel; unrecorded.
inline Tensor unary_gradient(UnaryOp op, const Tensor& dy, const Tensor& saved) {
  const Tensor from = packed(dy);
  const Tensor at = saved.defined() ? packed(saved) : from;
  Tensor dx = empty(dy.shape(), {.dtype = dy.dtype(), .device = dy.device()});
  backend(dy.device()).unary_backward(op, at.array(), from.array(), dx.array());
  return dx;
}

template <class Formula>
Tensor unary(UnaryOp op, const char* name, const Tensor& x, SourceLocation where, Derivative derivative) {
  check::floating(name, "x", x, where);
  Tensor y = empty(x.shape(), {.dtype = x.dtype(), .device = x.device()});
  backend(x.device()).unary(op, x.array(), y.array());
  if (taping()) {
    constexpr auto kSaved = Formula::saved;
    const Tensor saved = kSaved == scalar::Saved::input ? x : kSaved == scalar::Saved::output ? y : Tensor();
    record_op(name, where, {&x}, y, {&saved}, [op, derivative, saved](Gradients& g) {
      g.add(0, g.recording() ? derivative(g.dy(), saved) : unary_gradient(op, g.dy(), saved));
    });
  }
  return y;
}

}  // namespace reel::detail
