#include "reel/ops/transforms.h"

#include <cmath>
#include <numbers>
#include <string>
#include <vector>

#include "reel/core/number_text.h"
#include "reel/ops/activations.h"
#include "reel/ops/arithmetic.h"
#include "reel/ops/check.h"
#include "reel/ops/convert.h"
#include "reel/ops/create.h"
#include "reel/ops/embedding.h"
#include "reel/ops/padding.h"
#include "reel/ops/rearrange.h"
#include "reel/ops/reduce.h"
#include "reel/ops/scan.h"
#include "reel/ops/unary.h"
#include "reel/ops/views.h"

namespace reel::transforms {

namespace {

void check_vectors(const char* op, const Tensor& x, std::int64_t at_least, SourceLocation where) {
  check::floating(op, "x", x, where);
  if (x.rank() == 0 || x.shape().back() < at_least)
    throw ShapeError(std::string(op) + ": vectors [..., n] with n of at least " + std::to_string(at_least) +
                         " are needed, got shape " + x.shape().str(),
                     where);
}

// Sums along the last axis of the elements before each, and of those behind each.
Tensor sums_before(const Tensor& x) { return cumsum(x, -1, {.exclusive = true}); }
Tensor sums_behind(const Tensor& x) { return cumsum(x, -1, {.reverse = true, .exclusive = true}); }

Tensor all_but_first(const Tensor& x) { return narrow(x, -1, 1, x.shape().back() - 1); }
Tensor all_but_last(const Tensor& x) { return narrow(x, -1, 0, x.shape().back() - 1); }

Tensor parameter(const char* name, const Arg& x) {
  if (!x.is_tensor()) return full({}, x.scalar(), {.dtype = f64}, x.where());
  check::floating("Affine", name, x.tensor(), x.where());
  return x.tensor();
}

// The shape that x has with both parameters.
Shape affine_shape(const Tensor& x, const Tensor& loc, const Tensor& scale, SourceLocation where) {
  const Shape given[] = {x.shape(), loc.shape(), scale.shape()};
  const Shape moved = check::broadcast("Affine", given[0], given[1], "shapes", given, where);
  return check::broadcast("Affine", moved, given[2], "shapes", given, where);
}

// A number goes where x is.
Tensor beside(const Tensor& parameter, const Tensor& x) {
  return parameter.rank() == 0 ? to(parameter, x.device()) : parameter;
}

}  // namespace

// --- per element ------------------------------------------------------------------------------------------------------

Tensor Exp::forward(const Tensor& x, SourceLocation where) const { return exp(x, where); }
Tensor Exp::inverse(const Tensor& y, SourceLocation where) const { return log(y, where); }
Tensor Exp::log_abs_det_jacobian(const Tensor& x, SourceLocation where) const {
  check::floating("Exp", "x", x, where);
  return x;
}

Affine::Affine(const Arg& loc_, const Arg& scale_) : loc(parameter("loc", loc_)), scale(parameter("scale", scale_)) {}

Tensor Affine::forward(const Tensor& x, SourceLocation where) const {
  check::defined("Affine", "x", x, where);
  affine_shape(x, loc, scale, where);
  return beside(loc, x) + beside(scale, x) * x;
}
Tensor Affine::inverse(const Tensor& y, SourceLocation where) const {
  check::defined("Affine", "y", y, where);
  affine_shape(y, loc, scale, where);
  return (y - beside(loc, y)) / beside(scale, y);
}
Tensor Affine::log_abs_det_jacobian(const Tensor& x, SourceLocation where) const {
  check::floating("Affine", "x", x, where);
  const Shape shape = affine_shape(x, loc, scale, where);
  return log(abs(beside(scale, x))) + zeros(shape, x.options());
}

Interval::Interval(double low_, double high_, SourceLocation where) : low(low_), high(high_) {
  if (!(low < high) || std::isinf(high - low))
    throw Error("Interval: low must be below high and both finite, and their difference, got " +
                    detail::number_text(low) + " and " + detail::number_text(high),
                where);
}

Tensor Interval::forward(const Tensor& x, SourceLocation where) const {
  check::floating("Interval", "x", x, where);
  return low + (high - low) * sigmoid(x);
}
Tensor Interval::inverse(const Tensor& y, SourceLocation where) const {
  check::floating("Interval", "y", y, where);
  return logit((y - low) / (high - low));
}
Tensor Interval::log_abs_det_jacobian(const Tensor& x, SourceLocation where) const {
  check::floating("Interval", "x", x, where);
  return std::log(high - low) + logsigmoid(x) + logsigmoid(-x);
}

// --- Ordered ----------------------------------------------------------------------------------------------------------

Tensor Ordered::forward(const Tensor& x, SourceLocation where) const {
  check_vectors("Ordered", x, 1, where);
  return cumsum(concatenate({narrow(x, -1, 0, 1), exp(all_but_first(x))}, -1), -1);
}
Tensor Ordered::inverse(const Tensor& y, SourceLocation where) const {
  check_vectors("Ordered", y, 1, where);
  return concatenate({narrow(y, -1, 0, 1), log(all_but_first(y) - all_but_last(y))}, -1);
}
Tensor Ordered::log_abs_det_jacobian(const Tensor& x, SourceLocation where) const {
  check_vectors("Ordered", x, 1, where);
  return sum(all_but_first(x), -1);
}

// --- Simplex ----------------------------------------------------------------------------------------------------------

namespace {

// log(n - 1), ..., log(1): what makes x = 0 the middle.
Tensor stick_offsets(const Tensor& x, std::int64_t count) {
  return log(static_cast<double>(count) - arange(count, x.options()));
}

// The logarithms of the parts, and of what the breaks leave each time.
struct Broken {
  Tensor log_parts, log_rest;
  explicit Broken(const Tensor& x) {
    const Tensor t = x - stick_offsets(x, x.shape().back());
    log_rest = logsigmoid(-t);
    log_parts = logsigmoid(t) + sums_before(log_rest);
  }
};

}  // namespace

Tensor Simplex::forward(const Tensor& x, SourceLocation where) const {
  check_vectors("Simplex", x, 0, where);
  const Broken stick(x);
  return exp(concatenate({stick.log_parts, sum(stick.log_rest, -1, Keep::yes)}, -1));
}
Tensor Simplex::inverse(const Tensor& y, SourceLocation where) const {
  check_vectors("Simplex", y, 1, where);
  const Tensor parts = all_but_last(y), rest = all_but_last(sums_behind(y));
  return log(parts) - log(rest) + stick_offsets(y, parts.shape().back());
}
Tensor Simplex::log_abs_det_jacobian(const Tensor& x, SourceLocation where) const {
  check_vectors("Simplex", x, 0, where);
  const Broken stick(x);
  return sum(stick.log_parts + stick.log_rest, -1);
}

// --- CorrelationCholesky ----------------------------------------------------------------------------------------------

namespace {

// The matrices' size for vectors of so many elements.
std::int64_t dimension(const Tensor& x, SourceLocation where) {
  check_vectors("CorrelationCholesky", x, 0, where);
  const std::int64_t count = x.shape().back();
  std::int64_t d = 1;
  while (d * (d - 1) / 2 < count) ++d;
  if (d * (d - 1) / 2 != count)
    throw ShapeError("CorrelationCholesky: x must have shape [..., d (d - 1) / 2], got " + x.shape().str(), where);
  return d;
}

// Elements of the last axis by index.
Tensor taken(const Tensor& x, const std::vector<std::int64_t>& index) {
  const std::int64_t n = x.shape().back();
  Shape shape = Shape::of(x.shape().begin(), x.rank() - 1);
  const Tensor columns = transpose(reshape(x, {shape.size(), n}));
  const Tensor rows = embedding(columns, to(from_vector(index), x.device()));
  shape.push_back(index.size());
  return reshape(transpose(rows), shape);
}

// [..., d (d - 1) / 2] as the part below the diagonal of [..., d, d], row by row, zeros elsewhere; and back.
Tensor fill_below(const Tensor& x, std::int64_t d) {
  const std::int64_t count = x.shape().back();
  std::vector<std::int64_t> index;
  std::int64_t next = 0;
  for (std::int64_t i = 0; i < d; ++i)
    for (std::int64_t j = 0; j < d; ++j) index.push_back(j < i ? next++ : count);  // the zero behind
  Shape shape = Shape::of(x.shape().begin(), x.rank() - 1);
  shape.push_back(d);
  shape.push_back(d);
  return reshape(taken(pad(x, {{-1, 0, 1}}), index), shape);
}
Tensor take_below(const Tensor& y) {
  const std::int64_t d = y.shape().back();
  std::vector<std::int64_t> index;
  for (std::int64_t i = 0; i < d; ++i)
    for (std::int64_t j = 0; j < i; ++j) index.push_back(i * d + j);
  return taken(flatten(y, -2, -1), index);
}

// log(1 - tanh(x)^2), by 4 sigmoid(2 x) sigmoid(-2 x)
Tensor log_squared_rest(const Tensor& x) { return 2 * std::numbers::ln2 + logsigmoid(2 * x) + logsigmoid(-2 * x); }

}  // namespace

Tensor CorrelationCholesky::forward(const Tensor& x, SourceLocation where) const {
  const std::int64_t d = dimension(x, where);
  const Tensor z = fill_below(tanh(x), d) + eye(d, x.options());
  return z * exp(0.5 * sums_before(fill_below(log_squared_rest(x), d)));
}

Tensor CorrelationCholesky::inverse(const Tensor& y, SourceLocation where) const {
  check::floating("CorrelationCholesky", "y", y, where);
  if (y.rank() < 2 || y.size(-1) != y.size(-2) || y.size(-1) == 0)
    throw ShapeError("CorrelationCholesky: y must have shape [..., d, d], got " + y.shape().str(), where);
  // A row's squares sum up to 1: those from j on are what the columns before j left.
  const Tensor z = take_below(y) * rsqrt(take_below(cumsum(y * y, -1, {.reverse = true})));
  return 0.5 * (log1p(z) - log1p(-z));
}

Tensor CorrelationCholesky::log_abs_det_jacobian(const Tensor& x, SourceLocation where) const {
  const std::int64_t d = dimension(x, where);
  const Tensor rest = fill_below(log_squared_rest(x), d);
  return sum(rest + tril(0.5 * sums_before(rest), -1), {-2, -1});
}

}  // namespace reel::transforms
