#pragma once

#include "reel/core/parameter.h"
#include "reel/core/ragged.h"

/// Elementwise functions of one argument: y has x's shape, dtype (f32 or f64) and device; a Ragged keeps its offsets. As in
/// PyTorch neg, relu, square, abs and sign make integers of integers (wrapping around) and throw DTypeError for bool8; the
/// others take integers and bool8 as f32. Accuracy: docs/numerics.md.
namespace reel {

REEL_API Tensor neg(const Tensor& x, SourceLocation where = SourceLocation::current());
REEL_API Tensor exp(const Tensor& x, SourceLocation where = SourceLocation::current());
/// log(0) = -inf, NaN below 0.
REEL_API Tensor log(const Tensor& x, SourceLocation where = SourceLocation::current());
REEL_API Tensor tanh(const Tensor& x, SourceLocation where = SourceLocation::current());
/// 1 / (1 + exp(-x)), without overflow.
REEL_API Tensor sigmoid(const Tensor& x, SourceLocation where = SourceLocation::current());
/// max(x, 0); NaN stays NaN; the gradient at 0 is 0.
REEL_API Tensor relu(const Tensor& x, SourceLocation where = SourceLocation::current());
REEL_API Tensor sqrt(const Tensor& x, SourceLocation where = SourceLocation::current());
REEL_API Tensor square(const Tensor& x, SourceLocation where = SourceLocation::current());
/// |x|; the gradient at 0 is 0.
REEL_API Tensor abs(const Tensor& x, SourceLocation where = SourceLocation::current());

/// exp(x) - 1, accurate near 0.
REEL_API Tensor expm1(const Tensor& x, SourceLocation where = SourceLocation::current());
/// log(1 + x), accurate near 0.
REEL_API Tensor log1p(const Tensor& x, SourceLocation where = SourceLocation::current());
/// 1 / sqrt(x).
REEL_API Tensor rsqrt(const Tensor& x, SourceLocation where = SourceLocation::current());
REEL_API Tensor sin(const Tensor& x, SourceLocation where = SourceLocation::current());
REEL_API Tensor cos(const Tensor& x, SourceLocation where = SourceLocation::current());
/// 2 / sqrt(pi) times the integral of exp(-t^2) from 0 to x.
REEL_API Tensor erf(const Tensor& x, SourceLocation where = SourceLocation::current());
/// 1 - erf(x), accurate for large x.
REEL_API Tensor erfc(const Tensor& x, SourceLocation where = SourceLocation::current());
/// log |gamma(x)|.
REEL_API Tensor lgamma(const Tensor& x, SourceLocation where = SourceLocation::current());
/// The derivative of lgamma. Its own of second and higher order are for x >= 0; they are NaN below.
REEL_API Tensor digamma(const Tensor& x, SourceLocation where = SourceLocation::current());
/// -1, 0 or 1; NaN stays NaN. The gradient is 0.
REEL_API Tensor sign(const Tensor& x, SourceLocation where = SourceLocation::current());
/// log(1 - exp(-x)) for x >= 0, accurate at both ends; NaN below 0.
REEL_API Tensor log1mexp(const Tensor& x, SourceLocation where = SourceLocation::current());
/// log(x / (1 - x)), the inverse of sigmoid.
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
