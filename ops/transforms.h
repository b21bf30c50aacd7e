#pragma once

#include "reel/ops/arg.h"

/// Smooth bijections from unconstrained numbers x to constrained ones y, for densities of parameters that are positive, ordered,
/// and so on: log p(x) = log p(y) + log_abs_det_jacobian(x). Each has
///
///   forward(x)                y
///   inverse(y)                x, up to rounding; NaN where y is out of range
///   log_abs_det_jacobian(x)   log |det dy / dx|: per element, or for transforms of vectors one per vector, without the last axis
///
/// f32 or f64; made of recorded ops, with gradients of any order. Throw ShapeError, DTypeError. The definitions are those of
/// Stan's reference manual, chapter "Constraint transforms", but that Ordered, Simplex and CorrelationCholesky work with
/// logarithms and partial sums, which neither cancel nor underflow on the way.
namespace reel::transforms {

/// y = exp(x) > 0.
struct REEL_API Exp {
  Tensor forward(const Tensor& x, SourceLocation where = SourceLocation::current()) const;
  Tensor inverse(const Tensor& y, SourceLocation where = SourceLocation::current()) const;
  Tensor log_abs_det_jacobian(const Tensor& x, SourceLocation where = SourceLocation::current()) const;
};

/// y = loc + scale x; scale is not 0, and broadcasts with x like loc.
struct REEL_API Affine {
  Affine(const Arg& loc, const Arg& scale);
  Tensor forward(const Tensor& x, SourceLocation where = SourceLocation::current()) const;
  Tensor inverse(const Tensor& y, SourceLocation where = SourceLocation::current()) const;
  Tensor log_abs_det_jacobian(const Tensor& x, SourceLocation where = SourceLocation::current()) const;
  Tensor loc, scale;
};

/// y = low + (high - low) sigmoid(x), between two numbers. Throws Error unless low < high, both finite.
struct REEL_API Interval {
  Interval(double low, double high, SourceLocation where = SourceLocation::current());
  Tensor forward(const Tensor& x, SourceLocation where = SourceLocation::current()) const;
  Tensor inverse(const Tensor& y, SourceLocation where = SourceLocation::current()) const;
  Tensor log_abs_det_jacobian(const Tensor& x, SourceLocation where = SourceLocation::current()) const;
  double low, high;
};

/// Vectors x [..., n] to ascending ones: y_0 = x_0, y_i = y_(i-1) + exp(x_i).
struct REEL_API Ordered {
  Tensor forward(const Tensor& x, SourceLocation where = SourceLocation::current()) const;
  Tensor inverse(const Tensor& y, SourceLocation where = SourceLocation::current()) const;
  Tensor log_abs_det_jacobian(const Tensor& x, SourceLocation where = SourceLocation::current()) const;
};

/// Vectors x [..., n - 1] to y [..., n] > 0 of sum 1, by breaking a stick: y_i is the share sigmoid(x_i - log(n - 1 - i)) of what
/// is left, so that x = 0 gives equal parts. The Jacobian is that of y without its last element.
struct REEL_API Simplex {
  Tensor forward(const Tensor& x, SourceLocation where = SourceLocation::current()) const;
  Tensor inverse(const Tensor& y, SourceLocation where = SourceLocation::current()) const;
  Tensor log_abs_det_jacobian(const Tensor& x, SourceLocation where = SourceLocation::current()) const;
};

/// Vectors x [..., d (d - 1) / 2] to Cholesky factors y [..., d, d] of correlation matrices: z = tanh(x) fills the part below
/// the diagonal row by row, and y_ij = z_ij prod_(k < j) sqrt(1 - z_ik^2), z_ii = 1. The Jacobian is that of the elements below
/// the diagonal.
struct REEL_API CorrelationCholesky {
  Tensor forward(const Tensor& x, SourceLocation where = SourceLocation::current()) const;
  Tensor inverse(const Tensor& y, SourceLocation where = SourceLocation::current()) const;
  Tensor log_abs_det_jacobian(const Tensor& x, SourceLocation where = SourceLocation::current()) const;
};

}  // namespace reel::transforms
