#pragma once

#include "reel/core/tensor.h"

/// Decompositions of the matrices in the last two axes, f32 or f64, and what is computed by them; the axes in front are a
/// batch. Gradients of any order. A matrix alone gives the same bits as in a batch. Throw DTypeError, DeviceError, ShapeError
/// unless a is [..., n, n], and Error where a matrix is not of the kind that is asked for.
namespace reel {

/// The lower triangular l [..., n, n] with positive diagonal and l l^T = a, for symmetric positive definite a, of which only the
/// lower triangle is read. Throws Error naming the first matrix that is not positive definite, and its first leading minor
/// that is not positive; one with a NaN counts as such. The gradient is symmetric (Murray, "Differentiation of the Cholesky
/// decomposition", 2016). Backward keeps l.
REEL_API Tensor cholesky(const Tensor& a, SourceLocation where = SourceLocation::current());

struct TriangularSolveOptions {
  bool upper = false;          // a is upper triangular, else lower: the other triangle is not read
  bool transpose = false;      // solve a^T x = b
  bool unit_diagonal = false;  // take a's diagonal for ones: it is not read
};
/// The x [..., n, k] with a x = b, for triangular a and b [..., n, k]; batches broadcast. A zero on the diagonal gives
/// infinities and NaN. The gradient of a is 0 where a is not read. Backward keeps a and x.
REEL_API Tensor triangular_solve(const Tensor& a, const Tensor& b, TriangularSolveOptions options = {},
                                 SourceLocation where = SourceLocation::current());

/// The inverse, by LU with partial pivoting. Throws Error naming the first matrix that is singular, which means that a pivot
/// came out as exactly 0. Backward keeps the result.
REEL_API Tensor inverse(const Tensor& a, SourceLocation where = SourceLocation::current());
/// The x [..., n, k] with a x = b, for b [..., n, k] or a vector [n]; batches broadcast. By LU with partial
/// pivoting and one step of refinement. Throws as inverse does. Backward keeps a, its factors and x.
REEL_API Tensor solve(const Tensor& a, const Tensor& b, SourceLocation where = SourceLocation::current());

/// The logarithm of the determinant, [...]: NaN if that is negative, -inf if it is 0. Its gradient is the transposed inverse,
/// and throws for a singular matrix. Backward keeps a.
REEL_API Tensor logdet(const Tensor& a, SourceLocation where = SourceLocation::current());

/// What slogdet gives, both [...]: the determinant is sign exp(logdet).
struct SignAndLogdet {
  Tensor sign;    // -1, 0 or 1; no gradient
  Tensor logdet;  // of the magnitude; -inf where sign is 0
};
REEL_API SignAndLogdet slogdet(const Tensor& a, SourceLocation where = SourceLocation::current());

}  // namespace reel
