#include "reel/ops/linalg.h"

#include <cmath>
#include <string>

#include "reel/core/precision.h"
#include "reel/ops/arithmetic.h"
#include "reel/ops/create.h"
#include "reel/ops/matmul.h"
#include "reel/ops/matrices.h"
#include "reel/ops/order.h"
#include "reel/ops/rearrange.h"
#include "reel/ops/unary.h"
#include "reel/ops/views.h"

namespace reel {

namespace {

using detail::batch_of;
using detail::flat_batch;
using detail::Gradients;
using detail::record_op;
using detail::taping;

void check_square(const char* op, const Tensor& a, SourceLocation where) {
  check::floating(op, "a", a, where);
  const int r = a.rank();
  if (r < 2 || a.shape()[r - 1] != a.shape()[r - 2])
    throw ShapeError(std::string(op) + ": a must have shape [..., n, n], got " + a.shape().str(), where);
}

// The batch that a x = b has, for b [..., n, k].
Shape check_sides(const char* op, const Tensor& a, const Tensor& b, SourceLocation where) {
  check_square(op, a, where);
  check::like(op, "b", b, "a", a, where);
  const std::int64_t n = a.shape().back();
  if (b.rank() < 2 || b.shape()[b.rank() - 2] != n)
    throw ShapeError(std::string(op) + ": b must have shape [..., " + std::to_string(n) + ", k] for a of shape " +
                         a.shape().str() + ", got " + b.shape().str(),
                     where);
  const Shape given[] = {a.shape(), b.shape()};
  return check::broadcast(op, batch_of(a.shape()), batch_of(b.shape()), "the axes before the last two", given, where);
}

// "a matrix", or "matrix [3, 0]" of a batch.
std::string matrix_name(const Shape& batch, std::int64_t flat) {
  if (batch.rank() == 0) return "a matrix";
  Shape index = batch;
  for (int axis = batch.rank() - 1; axis >= 0; --axis) {
    index[axis] = flat % batch[axis];
    flat /= batch[axis];
  }
  return "matrix " + index.str();
}

// --- Cholesky ---------------------------------------------------------------------------------------------------------

// The backend leaves NaN on l's diagonal from the first bad leading minor on.
[[noreturn]] void throw_not_positive(const Tensor& l, std::int64_t matrix, SourceLocation where) {
  const std::int64_t n = l.shape().back(), stride = n + 1;
  const std::vector<double> diagonal = detail::view(l, matrix * n * n, {n}, &stride).to_vector<double>();
  std::size_t order = 1;
  while (!std::isnan(diagonal[order - 1])) ++order;
  throw Error("cholesky: a must be positive definite, got " + matrix_name(batch_of(l.shape()), matrix) +
                  " whose leading minor of order " + std::to_string(order) + " is not positive",
              where);
}

// Half of each diagonal counts for either triangle.
Tensor cholesky_gradient(const Tensor& l, const Tensor& dl) {
  const Tensor m = matmul(transpose(l), dl);
  const Tensor phi = 0.5 * (tril(m) + tril(m, -1));
  const Tensor left = triangular_solve(l, phi, {.transpose = true});           // l^-T phi
  const Tensor s = triangular_solve(l, transpose(left), {.transpose = true});  // (l^-T phi l^-1)^T
  return 0.5 * (s + transpose(s));
}

// --- LU ---------------------------------------------------------------------------------------------------------------

// p a = l u.
struct Factors {
  Tensor lu;    // [..., n, n]: l below the diagonal, on which its elements are 1, and u
  Tensor rows;  // [..., n]: the row of a that is row i of p a
  SignAndLogdet determinant;
};

Factors factored(const Tensor& a) {
  const TensorOptions options = a.options();
  const Shape batch = batch_of(a.shape()), flat{batch.size()}, flat_rows{batch.size(), a.shape().back()};
  Shape rows = batch;
  rows.push_back(a.shape().back());
  const Factors y{empty(a.shape(), options),
                  empty(rows, {.dtype = i64, .device = a.device()}),
                  {empty(batch, options), empty(batch, options)}};
  backend(a.device())
      .lu(flat_batch(a).array(), flat_batch(y.lu).array(), detail::reshaped(y.rows, flat_rows).array(),
          detail::reshaped(y.determinant.sign, flat).array(), detail::reshaped(y.determinant.logdet, flat).array());
  return y;
}

Factors factored_regular(const char* op, const Tensor& a, SourceLocation where) {
  const Factors y = factored(a);
  const std::vector<double> signs = y.determinant.sign.to_vector<double>();
  for (std::size_t i = 0; i < signs.size(); ++i)
    if (signs[i] == 0)
      throw Error(std::string(op) + ": a must be invertible, got " +
                      matrix_name(batch_of(a.shape()), static_cast<std::int64_t>(i)) + " that is singular",
                  where);
  return y;
}

// x of a x = b, or of a^T x = b, for b [..., n, k] with the whole batch: for p a = l u by l, then by u; turned round by u^T, then
// by l^T. Unrecorded.
Tensor solved(const Factors& a, const Tensor& b, bool transposed) {
  const std::int64_t n = b.shape()[b.rank() - 2], k = b.shape().back();
  const Shape batch = batch_of(b.shape());
  const std::int64_t count = batch.size();
  if (count != 1 && a.rows.size() == n) {  // one matrix for all: their columns side by side
    const Tensor columns = transpose(reshape(transpose(b), {count * k, n}));
    return transpose(reshape(transpose(solved(a, columns, transposed)), detail::with_matrix(batch, k, n)));
  }
  const auto ordered = [&](const Tensor& x, Tensor rows) {
    if (count != 1) {  // counted on from matrix to matrix
      const Tensor first = n * arange(count, {.dtype = i64, .device = x.device()});
      const Tensor each = detail::broadcast_view(unsqueeze(rows, -1), detail::with_matrix(batch, n, 1));
      rows = reshape(each, {count, n}) + unsqueeze(first, 1);
    }
    const Tensor y = empty(x.shape(), x.options());
    const Tensor at = detail::reshaped(detail::packed(rows), {count * n});
    if (y.size() > 0)
      backend(x.device())
          .take_rows(detail::reshaped(detail::packed(x), {count * n, k}).array(), at.array(),
                     detail::reshaped(y, {count * n, k}).array());
    return y;
  };
  const Tensor lu = flat_batch(count == 1 ? a.lu : detail::broadcast_view(a.lu, detail::with_matrix(batch, n, n)));
  const Tensor x = transposed ? detail::copied(b, b.dtype()) : ordered(b, a.rows), flat = flat_batch(x);
  const auto solve_with = [&](bool upper) {
    backend(x.device()).triangular_solve(lu.array(), flat.array(), upper, transposed, !upper, flat.array());
  };
  solve_with(transposed);
  solve_with(!transposed);
  return transposed ? ordered(x, argsort(a.rows)) : x;
}

// Recorded, with one step of refinement: the residual is a few roundings whatever the pivots were.
Tensor solve_by(const Factors& factors, const Tensor& a, const Tensor& b, bool transposed, SourceLocation where) {
  const Tensor x = untaped([&] {
    const detail::ExactProducts exact;
    Shape batch;
    check::broadcasts(batch_of(a.shape()), batch_of(b.shape()), batch);
    const Tensor every =
        detail::broadcast_view(b, detail::with_matrix(batch, b.shape()[b.rank() - 2], b.shape().back()));
    const Tensor first = solved(factors, every, transposed);
    return first + solved(factors, every - matmul(transposed ? transpose(a) : a, first), transposed);
  });
  if (taping())
    record_op("solve", where, {&a, &b}, x, {&a, &x}, [factors, a, x, transposed, where](Gradients& g) {
      const Tensor db = solve_by(factors, a, g.dy(), !transposed, where);
      if (g.needs(1)) g.add(1, detail::sum_to(db, g.shape(1)));
      if (!g.needs(0)) return;
      const Tensor da = transposed ? matmul(x, transpose(db)) : matmul(db, transpose(x));
      g.add(0, neg(detail::sum_to(da, g.shape(0))));
    });
  return x;
}

SignAndLogdet determinant(const char* op, const Tensor& a, SourceLocation where) {
  check_square(op, a, where);
  const SignAndLogdet y = factored(a).determinant;
  if (taping())
    record_op(op, where, {&a}, y.logdet, {&a},
              [a](Gradients& g) { g.add(0, unsqueeze(unsqueeze(g.dy(), -1), -1) * transpose(inverse(a))); });
  return y;
}

}  // namespace

Tensor cholesky(const Tensor& a, SourceLocation where) {
  check_square("cholesky", a, where);
  Tensor l = empty(a.shape(), a.options());
  const std::int64_t bad = backend(a.device()).cholesky(flat_batch(a).array(), flat_batch(l).array());
  if (bad >= 0) throw_not_positive(l, bad, where);
  if (taping())
    record_op("cholesky", where, {&a}, l, {&l}, [l](Gradients& g) { g.add(0, cholesky_gradient(l, g.dy())); });
  return l;
}

Tensor triangular_solve(const Tensor& a, const Tensor& b, TriangularSolveOptions options, SourceLocation where) {
  const Shape batch = check_sides("triangular_solve", a, b, where);
  const std::int64_t n = b.shape()[b.rank() - 2], k = b.shape().back();
  Tensor x = empty(detail::with_matrix(batch, n, k), b.options());
  const Tensor left = flat_batch(detail::broadcast_view(a, detail::with_matrix(batch, n, n)));
  const Tensor right = flat_batch(detail::broadcast_view(b, x.shape()));
  backend(x.device())
      .triangular_solve(left.array(), right.array(), options.upper, options.transpose, options.unit_diagonal,
                        flat_batch(x).array());
  if (taping())
    record_op("triangular_solve", where, {&a, &b}, x, {&a, &x}, [a, x, options](Gradients& g) {
      TriangularSolveOptions back = options;
      back.transpose = !options.transpose;
      const Tensor db = triangular_solve(a, g.dy(), back);
      if (g.needs(1)) g.add(1, detail::sum_to(db, g.shape(1)));
      if (!g.needs(0)) return;
      const Tensor da = neg(options.transpose ? matmul(x, transpose(db)) : matmul(db, transpose(x)));
      const std::int64_t off = options.unit_diagonal ? 1 : 0;
      g.add(0, detail::sum_to(options.upper ? triu(da, off) : tril(da, -off), g.shape(0)));
    });
  return x;
}

Tensor inverse(const Tensor& a, SourceLocation where) {
  check_square("inverse", a, where);
  Tensor y = untaped([&] {
    const Tensor one = eye(a.shape().back(), a.options());
    return solved(factored_regular("inverse", a, where), detail::broadcast_view(one, a.shape()), false);
  });
  if (taping())
    record_op("inverse", where, {&a}, y, {&y},
              [y](Gradients& g) { g.add(0, neg(matmul(transpose(y), matmul(g.dy(), transpose(y))))); });
  return y;
}

Tensor solve(const Tensor& a, const Tensor& b, SourceLocation where) {
  check::defined("solve", "b", b, where);
  if (b.rank() == 1) {
    check_square("solve", a, where);
    check::shape("solve", "b, if a vector,", b, {a.shape().back()}, where);
    return squeeze(solve(a, unsqueeze(b, 1), where), -1);
  }
  check_sides("solve", a, b, where);
  return solve_by(factored_regular("solve", a, where), a, b, false, where);
}

Tensor logdet(const Tensor& a, SourceLocation where) {
  const SignAndLogdet y = determinant("logdet", a, where);
  return y.logdet + untaped([&] { return log(y.sign); });  // + 0, -inf or NaN
}

SignAndLogdet slogdet(const Tensor& a, SourceLocation where) { return determinant("slogdet", a, where); }

}  // namespace reel
