#include "reel/ops/unary.h"

#include "reel/core/scalar/unary.h"
#include "reel/ops/arithmetic.h"
#include "reel/ops/check.h"
#include "reel/ops/convert.h"

namespace reel {

namespace {

using detail::Gradients;
using scalar::Saved;

// dx from dy and what was saved, in recorded ops: used when the gradient is to be differentiated again. `saved` is x or y,
// as the op's struct in core/scalar/unary.h says.
using Derivative = Tensor (*)(const Tensor& dy, const Tensor& saved);

template <class Formula>
Tensor unary(UnaryOp op, const char* name, const Tensor& x, SourceLocation where, Derivative derivative) {
  check::floating(name, "x", x, where);
  Tensor y = empty(x.shape(), {.dtype = x.dtype(), .device = x.device()});
  backend(x.device()).unary(op, x.array(), y.array());
  if (detail::taping()) {
    const Tensor saved = Formula::saved == Saved::input ? x : Formula::saved == Saved::output ? y : Tensor();
    detail::record_op(name, where, {&x}, y, {&saved}, [op, derivative, saved](Gradients& g) {
      const Tensor& dy = g.dy();
      if (g.recording()) {
        g.add(0, derivative(dy, saved));
        return;
      }
      const Tensor from = detail::packed(dy);
      const Tensor at = saved.defined() ? detail::packed(saved) : from;
      Tensor dx = empty_like(dy);
      backend(dy.device()).unary_backward(op, at.array(), from.array(), dx.array());
      g.add(0, std::move(dx));
    });
  }
  return y;
}

}  // namespace

Tensor neg(const Tensor& x, SourceLocation where) {
  return unary<scalar::Neg>(UnaryOp::neg, "neg", x, where, [](const Tensor& dy, const Tensor&) { return neg(dy); });
}

Tensor exp(const Tensor& x, SourceLocation where) {
  return unary<scalar::Exp>(UnaryOp::exp, "exp", x, where, [](const Tensor& dy, const Tensor& y) { return dy * y; });
}

Tensor log(const Tensor& x, SourceLocation where) {
  return unary<scalar::Log>(UnaryOp::log, "log", x, where, [](const Tensor& dy, const Tensor& x) { return dy / x; });
}

Tensor tanh(const Tensor& x, SourceLocation where) {
  return unary<scalar::Tanh>(UnaryOp::tanh, "tanh", x, where,
                             [](const Tensor& dy, const Tensor& y) { return dy * (1 - y * y); });
}

Tensor sigmoid(const Tensor& x, SourceLocation where) {
  return unary<scalar::Sigmoid>(UnaryOp::sigmoid, "sigmoid", x, where,
                                [](const Tensor& dy, const Tensor& y) { return dy * y * (1 - y); });
}

Tensor relu(const Tensor& x, SourceLocation where) {
  return unary<scalar::Relu>(UnaryOp::relu, "relu", x, where,
                             [](const Tensor& dy, const Tensor& y) { return detail::relu_mask(dy, stop_gradient(y)); });
}

Tensor sqrt(const Tensor& x, SourceLocation where) {
  return unary<scalar::Sqrt>(UnaryOp::sqrt, "sqrt", x, where,
                             [](const Tensor& dy, const Tensor& y) { return 0.5 * dy / y; });
}

Tensor square(const Tensor& x, SourceLocation where) {
  return unary<scalar::Square>(UnaryOp::square, "square", x, where,
                               [](const Tensor& dy, const Tensor& x) { return 2 * dy * x; });
}

Tensor abs(const Tensor& x, SourceLocation where) {
  return unary<scalar::Abs>(UnaryOp::abs, "abs", x, where, [](const Tensor& dy, const Tensor& x) {
    const Tensor sign = cast(x > 0, x.dtype()) - cast(x < 0, x.dtype());
    return dy * sign;
  });
}

Ragged neg(const Ragged& x, SourceLocation where) { return x.with(neg(x.values(), where)); }
Ragged exp(const Ragged& x, SourceLocation where) { return x.with(exp(x.values(), where)); }
Ragged log(const Ragged& x, SourceLocation where) { return x.with(log(x.values(), where)); }
Ragged tanh(const Ragged& x, SourceLocation where) { return x.with(tanh(x.values(), where)); }
Ragged sigmoid(const Ragged& x, SourceLocation where) { return x.with(sigmoid(x.values(), where)); }
Ragged relu(const Ragged& x, SourceLocation where) { return x.with(relu(x.values(), where)); }
Ragged sqrt(const Ragged& x, SourceLocation where) { return x.with(sqrt(x.values(), where)); }
Ragged square(const Ragged& x, SourceLocation where) { return x.with(square(x.values(), where)); }
Ragged abs(const Ragged& x, SourceLocation where) { return x.with(abs(x.values(), where)); }

}  // namespace reel
