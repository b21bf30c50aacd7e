#include "reel/ops/unary.h"

#include <cmath>

#include "reel/ops/arithmetic.h"
#include "reel/ops/convert.h"
#include "reel/ops/create.h"
#include "reel/ops/elementwise.h"
#include "reel/ops/promote.h"
#include "reel/ops/unary_op.h"

namespace reel {

namespace {

using detail::integers;
using detail::Unary;
using detail::unary;
using detail::unary_function;
using detail::unary_slope;

// x, but not beyond where exp(-x^2) is 0: an infinity times that 0 would be NaN.
Tensor bounded(const Tensor& x) { return clamp(x, -1e3, 1e3); }

// Integers and bool8 count as f32.
Tensor real_function(const Unary& f, const Tensor& x, SourceLocation where) {
  return unary(f, detail::fractions(f.name, x, where), where);
}

Tensor one(const Tensor& y) { return ones_like(y); }

constexpr Unary kDigamma =
    unary_function<scalar::Digamma>(UnaryOp::digamma, "digamma", [](const Tensor& x) { return polygamma(2, x); });

}  // namespace

// --- integers of integers, which wrap around ---------------------------------------------------------------------------

Tensor neg(const Tensor& x, SourceLocation where) {
  static constexpr Unary f = unary_function<scalar::Neg>(UnaryOp::neg, "neg");
  return integers("neg", x, where) ? 0 - x : unary(f, x, where);
}

Tensor relu(const Tensor& x, SourceLocation where) {
  static constexpr Unary f = unary_function<scalar::Relu>(UnaryOp::relu, "relu");
  return integers("relu", x, where) ? maximum(x, 0) : unary(f, x, where);
}

constinit const Unary detail::kSquare =
    unary_function<scalar::Square>(UnaryOp::square, "square", [](const Tensor& x) { return 2 * ones_like(x); });

Tensor square(const Tensor& x, SourceLocation where) {
  return integers("square", x, where) ? x * x : unary(detail::kSquare, x, where);
}

Tensor abs(const Tensor& x, SourceLocation where) {
  static constexpr Unary f = unary_function<scalar::Abs>(UnaryOp::abs, "abs");
  return integers("abs", x, where) ? x * sign(x) : unary(f, x, where);
}

Tensor sign(const Tensor& x, SourceLocation where) {
  static constexpr Unary f = unary_function<scalar::Sign>(UnaryOp::sign, "sign");
  return integers("sign", x, where) ? cast(x > 0, x.dtype()) - cast(x < 0, x.dtype()) : unary(f, x, where);
}

// --- fractions ------------------------------------------------------------------------------------------------------------

Tensor exp(const Tensor& x, SourceLocation where) {
  static constexpr Unary f = unary_function<scalar::Exp>(UnaryOp::exp, "exp", one);
  return real_function(f, x, where);
}

Tensor log(const Tensor& x, SourceLocation where) {
  static constexpr Unary f =
      unary_function<scalar::Log>(UnaryOp::log, "log", [](const Tensor& x) { return -1 / square(x); });
  return real_function(f, x, where);
}

Tensor tanh(const Tensor& x, SourceLocation where) {
  static constexpr Unary f =
      unary_function<scalar::Tanh>(UnaryOp::tanh, "tanh", [](const Tensor& y) { return -2 * y; });
  return real_function(f, x, where);
}

Tensor sigmoid(const Tensor& x, SourceLocation where) {
  static constexpr Unary f =
      unary_function<scalar::Sigmoid>(UnaryOp::sigmoid, "sigmoid", [](const Tensor& y) { return 1 - 2 * y; });
  return real_function(f, x, where);
}

Tensor sqrt(const Tensor& x, SourceLocation where) {
  static constexpr Unary f =
      unary_function<scalar::Sqrt>(UnaryOp::sqrt, "sqrt", [](const Tensor& y) { return -0.5 / square(y); });
  return real_function(f, x, where);
}

Tensor expm1(const Tensor& x, SourceLocation where) {
  static constexpr Unary f = unary_function<scalar::Expm1>(UnaryOp::expm1, "expm1", one);
  return real_function(f, x, where);
}

Tensor log1p(const Tensor& x, SourceLocation where) {
  static constexpr Unary f =
      unary_function<scalar::Log1p>(UnaryOp::log1p, "log1p", [](const Tensor& x) { return -1 / square(1 + x); });
  return real_function(f, x, where);
}

Tensor rsqrt(const Tensor& x, SourceLocation where) {
  static constexpr Unary f =
      unary_function<scalar::Rsqrt>(UnaryOp::rsqrt, "rsqrt", [](const Tensor& y) { return -1.5 * square(y); });
  return real_function(f, x, where);
}

Tensor sin(const Tensor& x, SourceLocation where) {
  static constexpr Unary f =
      unary_function<scalar::Sin>(UnaryOp::sin, "sin", [](const Tensor& x) { return neg(sin(x)); });
  return real_function(f, x, where);
}

Tensor cos(const Tensor& x, SourceLocation where) {
  static constexpr Unary f =
      unary_function<scalar::Cos>(UnaryOp::cos, "cos", [](const Tensor& x) { return neg(cos(x)); });
  return real_function(f, x, where);
}

Tensor erf(const Tensor& x, SourceLocation where) {
  static constexpr Unary f = unary_function<scalar::Erf>(
      UnaryOp::erf, "erf", [](const Tensor& x) { return -2 * bounded(x) * unary_slope(f, x); });
  return real_function(f, x, where);
}

Tensor erfc(const Tensor& x, SourceLocation where) {
  static constexpr Unary f = unary_function<scalar::Erfc>(
      UnaryOp::erfc, "erfc", [](const Tensor& x) { return -2 * bounded(x) * unary_slope(f, x); });
  return real_function(f, x, where);
}

Tensor lgamma(const Tensor& x, SourceLocation where) {
  static constexpr Unary f = unary_function<scalar::Lgamma>(UnaryOp::lgamma, "lgamma",
                                                            [](const Tensor& x) { return unary_slope(kDigamma, x); });
  return real_function(f, x, where);
}

Tensor digamma(const Tensor& x, SourceLocation where) { return real_function(kDigamma, x, where); }

Tensor log1mexp(const Tensor& x, SourceLocation where) {
  static constexpr Unary f = unary_function<scalar::Log1mexp>(UnaryOp::log1mexp, "log1mexp", [](const Tensor& x) {
    const Tensor slope = unary_slope(f, x);
    return -slope * (1 + slope);
  });
  return real_function(f, x, where);
}

Tensor logit(const Tensor& x, SourceLocation where) {
  static constexpr Unary f = unary_function<scalar::Logit>(
      UnaryOp::logit, "logit", [](const Tensor& x) { return (2 * x - 1) * square(unary_slope(f, x)); });
  return real_function(f, x, where);
}

// -f' (x + f'). In the left tail, x = -z, the sum would cancel all but z^-2 of its digits: there z (x + f') comes from the
// series of Mills' ratio (Abramowitz and Stegun, 26.2.12).
Tensor log_ndtr(const Tensor& x, SourceLocation where) {
  static constexpr Unary f = unary_function<scalar::LogNdtr>(UnaryOp::log_ndtr, "log_ndtr", [](const Tensor& x) {
    const double tail = x.dtype() == f32 ? -10 : -50;
    const Tensor near = clamp(x, tail, 1e3), slope = unary_slope(f, near);
    const Tensor r = square(1 / clamp(x, -INFINITY, tail)), s = 1 + r * (-2 + r * (10 + r * (-74 + r * 706)));
    return reel::where(x < tail, -(s + r * square(s)), -slope * (near + slope));
  });
  return real_function(f, x, where);
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
