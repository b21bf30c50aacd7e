#include "reel/ops/unary.h"

#include <cmath>
#include <numbers>

#include "reel/ops/arithmetic.h"
#include "reel/ops/convert.h"
#include "reel/ops/create.h"
#include "reel/ops/elementwise.h"
#include "reel/ops/unary_op.h"

namespace reel {

Tensor neg(const Tensor& x, SourceLocation where) {
  return detail::unary<scalar::Neg>(UnaryOp::neg, "neg", x, where,
                                    [](const Tensor& dy, const Tensor&) { return neg(dy); });
}

Tensor exp(const Tensor& x, SourceLocation where) {
  return detail::unary<scalar::Exp>(UnaryOp::exp, "exp", x, where,
                                    [](const Tensor& dy, const Tensor& y) { return dy * y; });
}

Tensor log(const Tensor& x, SourceLocation where) {
  return detail::unary<scalar::Log>(UnaryOp::log, "log", x, where,
                                    [](const Tensor& dy, const Tensor& x) { return dy / x; });
}

Tensor tanh(const Tensor& x, SourceLocation where) {
  return detail::unary<scalar::Tanh>(UnaryOp::tanh, "tanh", x, where,
                                     [](const Tensor& dy, const Tensor& y) { return dy * (1 - y * y); });
}

Tensor sigmoid(const Tensor& x, SourceLocation where) {
  return detail::unary<scalar::Sigmoid>(UnaryOp::sigmoid, "sigmoid", x, where,
                                        [](const Tensor& dy, const Tensor& y) { return dy * y * (1 - y); });
}

Tensor relu(const Tensor& x, SourceLocation where) {
  return detail::unary<scalar::Relu>(UnaryOp::relu, "relu", x, where, [](const Tensor& dy, const Tensor& y) {
    return detail::relu_mask(dy, stop_gradient(y));
  });
}

Tensor sqrt(const Tensor& x, SourceLocation where) {
  return detail::unary<scalar::Sqrt>(UnaryOp::sqrt, "sqrt", x, where,
                                     [](const Tensor& dy, const Tensor& y) { return 0.5 * dy / y; });
}

Tensor square(const Tensor& x, SourceLocation where) {
  return detail::unary<scalar::Square>(UnaryOp::square, "square", x, where,
                                       [](const Tensor& dy, const Tensor& x) { return 2 * dy * x; });
}

Tensor abs(const Tensor& x, SourceLocation where) {
  return detail::unary<scalar::Abs>(UnaryOp::abs, "abs", x, where, [](const Tensor& dy, const Tensor& x) {
    const Tensor sign = cast(x > 0, x.dtype()) - cast(x < 0, x.dtype());
    return dy * sign;
  });
}

Tensor expm1(const Tensor& x, SourceLocation where) {
  return detail::unary<scalar::Expm1>(UnaryOp::expm1, "expm1", x, where,
                                      [](const Tensor& dy, const Tensor& y) { return dy * (y + 1); });
}

Tensor log1p(const Tensor& x, SourceLocation where) {
  return detail::unary<scalar::Log1p>(UnaryOp::log1p, "log1p", x, where,
                                      [](const Tensor& dy, const Tensor& x) { return dy / (1 + x); });
}

Tensor rsqrt(const Tensor& x, SourceLocation where) {
  return detail::unary<scalar::Rsqrt>(UnaryOp::rsqrt, "rsqrt", x, where,
                                      [](const Tensor& dy, const Tensor& y) { return -0.5 * dy * y * y * y; });
}

Tensor sin(const Tensor& x, SourceLocation where) {
  return detail::unary<scalar::Sin>(UnaryOp::sin, "sin", x, where,
                                    [](const Tensor& dy, const Tensor& x) { return dy * cos(x); });
}

Tensor cos(const Tensor& x, SourceLocation where) {
  return detail::unary<scalar::Cos>(UnaryOp::cos, "cos", x, where,
                                    [](const Tensor& dy, const Tensor& x) { return neg(dy * sin(x)); });
}

Tensor erf(const Tensor& x, SourceLocation where) {
  return detail::unary<scalar::Erf>(UnaryOp::erf, "erf", x, where, [](const Tensor& dy, const Tensor& x) {
    return 2 / std::sqrt(std::numbers::pi) * dy * exp(neg(x * x));
  });
}

Tensor erfc(const Tensor& x, SourceLocation where) {
  return detail::unary<scalar::Erfc>(UnaryOp::erfc, "erfc", x, where, [](const Tensor& dy, const Tensor& x) {
    return -2 / std::sqrt(std::numbers::pi) * dy * exp(neg(x * x));
  });
}

Tensor lgamma(const Tensor& x, SourceLocation where) {
  return detail::unary<scalar::Lgamma>(UnaryOp::lgamma, "lgamma", x, where,
                                       [](const Tensor& dy, const Tensor& x) { return dy * digamma(x); });
}

Tensor digamma(const Tensor& x, SourceLocation where) {
  return detail::unary<scalar::Digamma>(UnaryOp::digamma, "digamma", x, where, [](const Tensor& dy, const Tensor& x) {
    Tensor dx = detail::unary_gradient(UnaryOp::digamma, dy, x);
    detail::record_op("digamma_backward", SourceLocation{}, {&dy, &x}, dx, {&dy, &x}, [dy, x](detail::Gradients& g) {
      if (g.needs(0))
        g.add(0, g.recording() ? g.dy() * polygamma(1, x) : detail::unary_gradient(UnaryOp::digamma, g.dy(), x));
      if (g.needs(1)) g.add(1, g.dy() * dy * polygamma(2, x));
    });
    return dx;
  });
}

Tensor sign(const Tensor& x, SourceLocation where) {
  return detail::unary<scalar::Sign>(UnaryOp::sign, "sign", x, where,
                                     [](const Tensor& dy, const Tensor&) { return dy * 0; });
}

Tensor log1mexp(const Tensor& x, SourceLocation where) {
  return detail::unary<scalar::Log1mexp>(UnaryOp::log1mexp, "log1mexp", x, where,
                                         [](const Tensor& dy, const Tensor& x) { return dy / expm1(x); });
}

Tensor logit(const Tensor& x, SourceLocation where) {
  return detail::unary<scalar::Logit>(UnaryOp::logit, "logit", x, where,
                                      [](const Tensor& dy, const Tensor& x) { return dy / (x * (1 - x)); });
}

namespace {

// The derivative m of log_ndtr, by its kernel: as a quotient of exponentials it would be lost in the left tail. m' = -m (x + m).
Tensor log_ndtr_slope(const Tensor& x) {
  Tensor m = detail::unary_gradient(UnaryOp::log_ndtr, ones_like(x), x);
  if (detail::taping())
    detail::record_op("log_ndtr_slope", SourceLocation{}, {&x}, m, {&x, &m},
                      [x, m](detail::Gradients& g) { g.add(0, -(g.dy() * m * (x + m))); });
  return m;
}

}  // namespace

Tensor log_ndtr(const Tensor& x, SourceLocation where) {
  return detail::unary<scalar::LogNdtr>(UnaryOp::log_ndtr, "log_ndtr", x, where,
                                        [](const Tensor& dy, const Tensor& x) { return dy * log_ndtr_slope(x); });
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
Ragged expm1(const Ragged& x, SourceLocation where) { return x.with(expm1(x.values(), where)); }
Ragged log1p(const Ragged& x, SourceLocation where) { return x.with(log1p(x.values(), where)); }
Ragged rsqrt(const Ragged& x, SourceLocation where) { return x.with(rsqrt(x.values(), where)); }
Ragged sin(const Ragged& x, SourceLocation where) { return x.with(sin(x.values(), where)); }
Ragged cos(const Ragged& x, SourceLocation where) { return x.with(cos(x.values(), where)); }
Ragged erf(const Ragged& x, SourceLocation where) { return x.with(erf(x.values(), where)); }
Ragged erfc(const Ragged& x, SourceLocation where) { return x.with(erfc(x.values(), where)); }
Ragged lgamma(const Ragged& x, SourceLocation where) { return x.with(lgamma(x.values(), where)); }
Ragged digamma(const Ragged& x, SourceLocation where) { return x.with(digamma(x.values(), where)); }
Ragged sign(const Ragged& x, SourceLocation where) { return x.with(sign(x.values(), where)); }
Ragged log1mexp(const Ragged& x, SourceLocation where) { return x.with(log1mexp(x.values(), where)); }
Ragged logit(const Ragged& x, SourceLocation where) { return x.with(logit(x.values(), where)); }
Ragged log_ndtr(const Ragged& x, SourceLocation where) { return x.with(log_ndtr(x.values(), where)); }

}  // namespace reel
