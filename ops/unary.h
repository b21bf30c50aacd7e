#pragma once

#include "reel/core/parameter.h"
#include "reel/core/ragged.h"

/// Elementwise functions of one argument: y has x's shape, dtype (f32 or f64) and device; a Ragged keeps its offsets.
/// As in PyTorch neg, relu, square, abs and sign make integers of integers (wrapping around) and throw DTypeError for
/// bool8; the others take integers and bool8 as f32. The result has memory of its own. Gradients of any order; backward
/// keeps the result of exp, expm1, tanh, sigmoid, relu, sqrt and rsqrt, nothing for neg and sign, and else x. NaN gives
/// NaN. Formulas, fits and their accuracy: core/scalar/ and docs/numerics.md.
namespace reel {

/// -x.
REEL_API Tensor neg(const Tensor& x, SourceLocation where = SourceLocation::current());
/// e^x; underflow is gradual.
REEL_API Tensor exp(const Tensor& x, SourceLocation where = SourceLocation::current());
/// The natural logarithm: -inf at 0, NaN below.
REEL_API Tensor log(const Tensor& x, SourceLocation where = SourceLocation::current());
/// (e^x - e^-x) / (e^x + e^-x), accurate near 0.
REEL_API Tensor tanh(const Tensor& x, SourceLocation where = SourceLocation::current());
/// 1 / (1 + exp(-x)), without overflow.
REEL_API Tensor sigmoid(const Tensor& x, SourceLocation where = SourceLocation::current());
/// max(x, 0); NaN stays NaN; the gradient at 0 is 0.
REEL_API Tensor relu(const Tensor& x, SourceLocation where = SourceLocation::current());
/// NaN below 0; the gradient at 0 is infinite.
REEL_API Tensor sqrt(const Tensor& x, SourceLocation where = SourceLocation::current());
/// x^2.
REEL_API Tensor square(const Tensor& x, SourceLocation where = SourceLocation::current());
/// |x|; the gradient at 0 is 0.
REEL_API Tensor abs(const Tensor& x, SourceLocation where = SourceLocation::current());

/// e^x - 1, accurate near 0.
REEL_API Tensor expm1(const Tensor& x, SourceLocation where = SourceLocation::current());
/// log(1 + x), accurate near 0.
REEL_API Tensor log1p(const Tensor& x, SourceLocation where = SourceLocation::current());
/// 1 / sqrt(x): inf at 0, NaN below.
REEL_API Tensor rsqrt(const Tensor& x, SourceLocation where = SourceLocation::current());
/// Of x in radians, all finite x (Payne and Hanek, 1983, for large ones); NaN at infinities.
REEL_API Tensor sin(const Tensor& x, SourceLocation where = SourceLocation::current());
REEL_API Tensor cos(const Tensor& x, SourceLocation where = SourceLocation::current());
/// 2 / sqrt(pi) times the integral of exp(-t^2) from 0 to x.
REEL_API Tensor erf(const Tensor& x, SourceLocation where = SourceLocation::current());
/// 1 - erf(x), accurate for large x.
REEL_API Tensor erfc(const Tensor& x, SourceLocation where = SourceLocation::current());
/// log |gamma(x)|: inf at 0 and the negative integers. Stirling's series from 8 on (Abramowitz and Stegun, 6.1.40),
/// below 0 by reflection.
REEL_API Tensor lgamma(const Tensor& x, SourceLocation where = SourceLocation::current());
/// The derivative of lgamma: the asymptotic series from 8 on (Abramowitz and Stegun, 6.3.18), below 0 by reflection.
/// Its own of second and higher order are for x >= 0; they are NaN below.
REEL_API Tensor digamma(const Tensor& x, SourceLocation where = SourceLocation::current());
/// -1, 0 or 1; NaN stays NaN. The gradient is 0.
REEL_API Tensor sign(const Tensor& x, SourceLocation where = SourceLocation::current());
/// log(1 - exp(-x)) for x >= 0, accurate at both ends; NaN below 0.
REEL_API Tensor log1mexp(const Tensor& x, SourceLocation where = SourceLocation::current());
/// log(x / (1 - x)), the inverse of sigmoid: infinite at 0 and 1, NaN outside.
REEL_API Tensor logit(const Tensor& x, SourceLocation where = SourceLocation::current());
/// The logarithm of the standard normal distribution function, accurate in the left tail.
REEL_API Tensor log_ndtr(const Tensor& x, SourceLocation where = SourceLocation::current());

REEL_API Ragged neg(const Ragged& x, SourceLocation where = SourceLocation::current());
REEL_API Ragged exp(const Ragged& x, SourceLocation where = SourceLocation::current());
REEL_API Ragged log(const Ragged& x, SourceLocation where = SourceLocation::current());
REEL_API Ragged tanh(const Ragged& x, SourceLocation where = SourceLocation::current());
REEL_API Ragged sigmoid(const Ragged& x, SourceLocation where = SourceLocation::current());
REEL_API Ragged relu(const Ragged& x, SourceLocation where = SourceLocation::current());
REEL_API Ragged sqrt(const Ragged& x, SourceLocation where = SourceLocation::current());
REEL_API Ragged square(const Ragged& x, SourceLocation where = SourceLocation::current());
REEL_API Ragged abs(const Ragged& x, SourceLocation where = SourceLocation::current());
REEL_API Ragged expm1(const Ragged& x, SourceLocation where = SourceLocation::current());
REEL_API Ragged log1p(const Ragged& x, SourceLocation where = SourceLocation::current());
REEL_API Ragged rsqrt(const Ragged& x, SourceLocation where = SourceLocation::current());
REEL_API Ragged sin(const Ragged& x, SourceLocation where = SourceLocation::current());
REEL_API Ragged cos(const Ragged& x, SourceLocation where = SourceLocation::current());
REEL_API Ragged erf(const Ragged& x, SourceLocation where = SourceLocation::current());
REEL_API Ragged erfc(const Ragged& x, SourceLocation where = SourceLocation::current());
REEL_API Ragged lgamma(const Ragged& x, SourceLocation where = SourceLocation::current());
REEL_API Ragged digamma(const Ragged& x, SourceLocation where = SourceLocation::current());
REEL_API Ragged sign(const Ragged& x, SourceLocation where = SourceLocation::current());
REEL_API Ragged log1mexp(const Ragged& x, SourceLocation where = SourceLocation::current());
REEL_API Ragged logit(const Ragged& x, SourceLocation where = SourceLocation::current());
REEL_API Ragged log_ndtr(const Ragged& x, SourceLocation where = SourceLocation::current());

inline Tensor operator-(const detail::TensorArg& x) { return neg(x.tensor, x.where); }
inline Ragged operator-(const detail::RaggedArg& x) { return neg(x.ragged, x.where); }

}  // namespace reel
