#pragma once

#include "reel/core/ragged.h"
#include "reel/ops/arg.h"

/// Elementwise functions with a choice in them. y has x's shape and dtype (f32 or f64); a Ragged keeps its offsets. NaN
/// stays NaN. An element that is not chosen is never computed with: neither its value nor its gradient can leak.
/// Gradients of any order; backward keeps x, the condition of where, or both sides of logaddexp.
/// leaky_relu, elu and logaddexp throw DTypeError for other dtypes.
namespace reel {

/// x within [low, high], either of which may be infinite. The gradient is 1 inside and at the bounds, 0 outside.
/// Integers stay integers beside integral bounds, and are taken as f32 beside fractions. Throws DTypeError for bool8,
/// and Error unless low <= high.
REEL_API Tensor clamp(const Tensor& x, Scalar low, Scalar high, SourceLocation where = SourceLocation::current());
REEL_API Ragged clamp(const Ragged& x, Scalar low, Scalar high, SourceLocation where = SourceLocation::current());

/// a where the condition (bool8) holds, b elsewhere; all three broadcast. Any dtypes: promoted as in arithmetic.h. The bits
/// of the chosen element, -0.0 and NaN included. The gradient of the side that is not taken is 0, whatever its value. Throws
/// ShapeError, DTypeError, DeviceError; Error if both are numbers.
REEL_API Tensor where(const Tensor& condition, const Arg& a, const Arg& b);
/// One at least is a Ragged, and the others are or broadcast beside it as in ragged.h. Throws as above.
REEL_API Ragged where(const Ragged& condition, const RaggedOperand& a, const RaggedOperand& b,
                      SourceLocation location = SourceLocation::current());
REEL_API Ragged where(const Tensor& condition, const Ragged& a, const RaggedOperand& b,
                      SourceLocation location = SourceLocation::current());
REEL_API Ragged where(const Tensor& condition, const Arg& a, const Ragged& b,
                      SourceLocation location = SourceLocation::current());

/// x where x > 0, else slope x (Maas, Hannun and Ng, 2013); the gradient at 0 is `slope`.
REEL_API Tensor leaky_relu(const Tensor& x, double slope = 0.01, SourceLocation where = SourceLocation::current());
REEL_API Ragged leaky_relu(const Ragged& x, double slope = 0.01, SourceLocation where = SourceLocation::current());

/// x where x > 0, else alpha (exp(x) - 1) (Clevert, Unterthiner and Hochreiter, 2016); the gradient at 0 is `alpha`.
REEL_API Tensor elu(const Tensor& x, double alpha = 1, SourceLocation where = SourceLocation::current());
REEL_API Ragged elu(const Ragged& x, double alpha = 1, SourceLocation where = SourceLocation::current());

/// log(exp(a) + exp(b)) without overflow; shapes broadcast. Where both are -inf the result is -inf with zero gradient.
/// Throws ShapeError, DTypeError, DeviceError.
REEL_API Tensor logaddexp(const Tensor& a, const Tensor& b, SourceLocation where = SourceLocation::current());
/// Two Ragged, or a tensor beside one, as in ragged.h.
REEL_API Ragged logaddexp(const Ragged& a, const Ragged& b, SourceLocation where = SourceLocation::current());
REEL_API Ragged logaddexp(const Ragged& a, const Tensor& b, SourceLocation where = SourceLocation::current());
REEL_API Ragged logaddexp(const Tensor& a, const Ragged& b, SourceLocation where = SourceLocation::current());

/// The derivative of order n of digamma, n >= 0: (-1)^(n+1) n! sum over k >= 0 of (x + k)^-(n+1), for x >= 0; NaN
/// below. In f64 inside: a sum of 14 + n terms and the Euler-Maclaurin formula for the others. Integers and bool8 count
/// as f32. Gradients of any order. Throws Error for n < 0.
REEL_API Tensor polygamma(int n, const Tensor& x, SourceLocation where = SourceLocation::current());
REEL_API Ragged polygamma(int n, const Ragged& x, SourceLocation where = SourceLocation::current());

}  // namespace reel
