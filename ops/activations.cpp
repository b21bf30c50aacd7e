#include "reel/ops/activations.h"

#include <cmath>
#include <numbers>
#include <string>

#include "reel/core/number_text.h"
#include "reel/ops/arithmetic.h"
#include "reel/ops/convert.h"
#include "reel/ops/elementwise.h"
#include "reel/ops/unary.h"
#include "reel/ops/unary_op.h"

namespace reel {

namespace {

using detail::Parametric;
using detail::Unary;
using detail::unary;
using detail::unary_function;

// x, but not beyond where second derivatives are 0: an infinity times that 0 would be NaN.
Tensor bounded(const Tensor& x) { return clamp(x, -1e3, 1e3); }

// The derivative of the sigmoid function.
Tensor bell(const Tensor& x) {
  const Tensor s = sigmoid(x);
  return s * (1 - s);
}

Tensor clipped(const Parametric& f, const Tensor& x, const detail::Parameters& p, SourceLocation where) {
  if (!(p[2] <= p[3]))
    throw Error(std::string(f.name) + ": the lower bound must not be above the upper one, got " +
                    detail::number_text(p[2]) + " and " + detail::number_text(p[3]),
                where);
  return detail::parametric(f, x, p, where);
}

}  // namespace

Tensor gelu(const Tensor& x, SourceLocation where) {
  static constexpr Unary f = unary_function<scalar::Gelu>(UnaryOp::gelu, "gelu", [](const Tensor& x) {
    const Tensor z = square(bounded(x));
    return exp(-0.5 * z) * (2 - z) / std::sqrt(2 * std::numbers::pi);
  });
  return unary(f, x, where);
}

// x s(v) with s the sigmoid function and v = c1 x + c3 x^3: 2 s'(v) v' + x (s''(v) v'^2 + s'(v) v'').
Tensor gelu_tanh(const Tensor& x, SourceLocation where) {
  static constexpr Unary f =
      unary_function<scalar::GeluTanh>(UnaryOp::gelu_tanh, "gelu_tanh", [](const Tensor& unbounded) {
        const Tensor x = bounded(unbounded);
        const double c1 = 2 * std::sqrt(2 / std::numbers::pi), c3 = 0.044715 * c1;
        const Tensor v = x * (c1 + c3 * square(x)), slope = c1 + 3 * c3 * square(x);
        return bell(v) * (2 * slope + x * ((1 - 2 * sigmoid(v)) * square(slope) + 6 * c3 * x));
      });
  return unary(f, x, where);
}

Tensor silu(const Tensor& x, SourceLocation where) {
  static constexpr Unary f = unary_function<scalar::Silu>(UnaryOp::silu, "silu", [](const Tensor& unbounded) {
    const Tensor x = bounded(unbounded);
    return bell(x) * (2 + x * (1 - 2 * sigmoid(x)));
  });
  return unary(f, x, where);
}

// x t with t = tanh(softplus(x)), t' = (1 - t^2) s and s = sigmoid(x): 2 t' + x t''.
Tensor mish(const Tensor& x, SourceLocation where) {
  static constexpr Unary f = unary_function<scalar::Mish>(UnaryOp::mish, "mish", [](const Tensor& unbounded) {
    const Tensor x = bounded(unbounded), t = tanh(softplus(x)), s = sigmoid(x);
    return (1 - square(t)) * s * (2 + x * (1 - s - 2 * t * s));
  });
  return unary(f, x, where);
}

Tensor softplus(const Tensor& x, SourceLocation where) {
  static constexpr Unary f = unary_function<scalar::Softplus>(UnaryOp::softplus, "softplus", bell);
  return unary(f, x, where);
}

Tensor logsigmoid(const Tensor& x, SourceLocation where) {
  static constexpr Unary f = unary_function<scalar::Logsigmoid>(UnaryOp::logsigmoid, "logsigmoid",
                                                                [](const Tensor& x) { return neg(bell(x)); });
  return unary(f, x, where);
}

Tensor hard_sigmoid(const Tensor& x, SourceLocation where) {
  static constexpr Unary f = unary_function<scalar::HardSigmoid>(UnaryOp::hard_sigmoid, "hard_sigmoid");
  return unary(f, x, where);
}

Tensor hard_tanh(const Tensor& x, SourceLocation where) {
  static constexpr Unary f = unary_function<scalar::HardTanh>(UnaryOp::hard_tanh, "hard_tanh");
  return unary(f, x, where);
}

Tensor hard_swish(const Tensor& x, SourceLocation where) {
  static constexpr Unary f = unary_function<scalar::HardSwish>(
      UnaryOp::hard_swish, "hard_swish", [](const Tensor& x) { return cast(abs(x) < 3, x.dtype()) / 3; });
  return unary(f, x, where);
}

Tensor dish(const Tensor& x, SourceLocation where) {
  static constexpr Unary f = unary_function<scalar::Dish>(UnaryOp::dish, "dish", [](const Tensor& x) {
    const Tensor r = rsqrt(1 + square(x));
    return 0.5 * r * square(r) * (3 * square(r) - 1);
  });
  return unary(f, x, where);
}

Tensor clipped_linear(const Tensor& x, double slope, double offset, double low, double high, SourceLocation where) {
  static constexpr Parametric f{ParametricOp::clipped_linear, "clipped_linear"};
  return clipped(f, x, {slope, offset, low, high}, where);
}

Tensor relu_k(const Tensor& x, double k, SourceLocation where) {
  static constexpr Parametric f{ParametricOp::clipped_linear, "relu_k"};
  return clipped(f, x, {1, 0, 0, k}, where);
}

Ragged gelu(const Ragged& x, SourceLocation where) { return x.with(gelu(x.values(), where)); }
Ragged gelu_tanh(const Ragged& x, SourceLocation where) { return x.with(gelu_tanh(x.values(), where)); }
Ragged silu(const Ragged& x, SourceLocation where) { return x.with(silu(x.values(), where)); }
Ragged mish(const Ragged& x, SourceLocation where) { return x.with(mish(x.values(), where)); }
Ragged softplus(const Ragged& x, SourceLocation where) { return x.with(softplus(x.values(), where)); }
Ragged logsigmoid(const Ragged& x, SourceLocation where) { return x.with(logsigmoid(x.values(), where)); }
Ragged hard_sigmoid(const Ragged& x, SourceLocation where) { return x.with(hard_sigmoid(x.values(), where)); }
Ragged hard_tanh(const Ragged& x, SourceLocation where) { return x.with(hard_tanh(x.values(), where)); }
Ragged hard_swish(const Ragged& x, SourceLocation where) { return x.with(hard_swish(x.values(), where)); }
Ragged dish(const Ragged& x, SourceLocation where) { return x.with(dish(x.values(), where)); }

Ragged clipped_linear(const Ragged& x, double slope, double offset, double low, double high, SourceLocation where) {
  return x.with(clipped_linear(x.values(), slope, offset, low, high, where));
}
Ragged relu_k(const Ragged& x, double k, SourceLocation where) { return x.with(relu_k(x.values(), k, where)); }

}  // namespace reel
