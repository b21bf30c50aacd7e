#include "reel/ops/statistics.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "reel/ops/arithmetic.h"
#include "reel/ops/convert.h"
#include "reel/ops/create.h"
#include "reel/ops/logical.h"
#include "reel/ops/offsets.h"
#include "reel/ops/ragged.h"
#include "reel/ops/reduce.h"
#include "reel/ops/unary.h"
#include "reel/ops/views.h"

namespace reel {

namespace {

using detail::Gradients;
using detail::record_op;
using detail::relu_mask;
using detail::taping;

// x's shape without the axes in `mask`, for a result that has them with size 1.
Tensor dropped(const Tensor& y, std::uint32_t mask, Keep keep) {
  if (keep == Keep::yes) return y;
  Shape shape;
  for (int i = 0; i < y.rank(); ++i)
    if ((mask >> i & 1) == 0) shape.push_back(y.shape()[i]);
  return reshape(y, shape);
}

// sqrt(x) whose gradient at 0 is 0: there it is taken of 1, and masked.
Tensor root(const Tensor& x) {
  const Tensor above = untaped([&] { return cast(x != 0, x.dtype()); });
  return relu_mask(sqrt(x + untaped([&] { return 1 - above; })), above);
}

// x where it is finite or NaN, else 0.
Tensor finite(const Tensor& x) {
  return relu_mask(x, untaped([&] { return 1 - cast(abs(x) == INFINITY, x.dtype()); }));
}

// x where it is not -inf, else 0, so that exp(-inf - x) is 0.
Tensor not_below(const Tensor& x) {
  return relu_mask(x, untaped([&] { return cast(x != -INFINITY, x.dtype()); }));
}

// e^x in x's place, which nobody else may see: an array less passes through the caches, 0.7 of the time of a logsumexp.
Tensor exponentials(Tensor x) {
  backend(x.device()).unary(UnaryOp::exp, x.array(), x.array());
  return x;
}

// Sums of squares around the exact mean, from those around a rounded one and the sums of the same differences, which would
// be 0 without its error. Whatever x is, they stay 0: a constant to tapes.
Tensor around_mean(const Tensor& squares, const Tensor& sums, const Arg& n) {
  return squares - untaped([&] { return minimum(finite(sums * (sums / n)), squares); });
}

Tensor variance(const char* op, const Tensor& x, const Axes& axes, double correction, Keep keep, SourceLocation where) {
  check::floating(op, "x", x, where);
  const std::uint32_t mask = axes.mask(op, x.rank(), where);
  double n = 1;
  for (int i = 0; i < x.rank(); ++i)
    if ((mask >> i & 1) != 0) n *= static_cast<double>(x.shape()[i]);
  const Tensor off = x - mean(x, axes, Keep::yes);
  const Tensor sums = untaped([&] { return sum(off, axes, keep); });
  return around_mean(detail::reduced_squares(op, ReduceOp::sum_of_squares, off, axes, keep, where), sums,
                     std::max(1.0, n)) /
         std::max(0.0, n - correction);
}

// Per sequence; one without rows has 0 / 1.
Tensor variance(const char* op, const Ragged& x, double correction, SourceLocation where) {
  check::floating(op, "x", x.values(), where);
  std::vector<double> counts, divisors;
  for (const std::int64_t length : x.offsets().lengths()) {
    counts.push_back(std::max(1.0, static_cast<double>(length)));
    divisors.push_back(length == 0 ? 1 : std::max(0.0, static_cast<double>(length) - correction));
  }
  Shape shape = x.values().shape();
  for (int i = 1; i < shape.rank(); ++i) shape[i] = 1;
  shape[0] = x.count();
  const auto per_sequence = [&](const std::vector<double>& numbers) {
    return detail::transferred(detail::copied(from_vector(numbers, shape), x.dtype()), x.device());
  };
  const Ragged off = x - mean(x);
  const Tensor sums = untaped([&] { return sum(off); });
  return around_mean(sum(square(off)), sums, per_sequence(counts)) / per_sequence(divisors);
}

}  // namespace

Tensor var(const Tensor& x, const Axes& axes, double correction, Keep keep, SourceLocation where) {
  return variance("var", x, axes, correction, keep, where);
}

Tensor stddev(const Tensor& x, const Axes& axes, double correction, Keep keep, SourceLocation where) {
  return root(variance("stddev", x, axes, correction, keep, where));
}

Tensor var(const Ragged& x, VarianceOptions options, SourceLocation where) {
  return variance("var", x, options.correction, where);
}
Tensor stddev(const Ragged& x, VarianceOptions options, SourceLocation where) {
  return root(variance("stddev", x, options.correction, where));
}

Tensor norm(const Tensor& x, const Axes& axes, Keep keep, SourceLocation where) {
  check::floating("norm", "x", x, where);
  axes.mask("norm", x.rank(), where);
  return root(detail::reduced_squares("norm", ReduceOp::sum_of_squares, x, axes, keep, where));
}

Tensor norm(const Ragged& x, SourceLocation where) {
  check::floating("norm", "x", x.values(), where);
  return root(sum(square(x)));
}

Tensor logsumexp(const Tensor& x, const Axes& axes, Keep keep, SourceLocation where) {
  check::floating("logsumexp", "x", x, where);
  const std::uint32_t mask = axes.mask("logsumexp", x.rank(), where);
  const Tensor y = untaped([&] {
    const Tensor shift = finite(amax(x, axes, Keep::yes));
    return log(sum(exponentials(x - shift), axes, Keep::yes)) + shift;
  });
  if (taping())
    record_op("logsumexp", where, {&x}, y, {&x, &y},
              [x, y](Gradients& g) { g.add(0, g.dy() * exp(x - not_below(y))); });
  return dropped(y, mask, keep);
}

Tensor logsumexp(const Ragged& x, SourceLocation where) {
  check::floating("logsumexp", "x", x.values(), where);
  const Tensor y = untaped([&] {
    const Tensor shift = finite(max(x));
    return log(sum(x.with(exponentials((x - shift).values())))) + shift;
  });
  if (taping()) {
    const detail::InfinityOfNoRows given(ReduceOp::max, x.offsets());
    record_op("logsumexp", where, {&x.values()}, y, {&x.values(), &y},
              [x, y](Gradients& g) { g.add(0, (exp(x - not_below(y)) * g.dy()).values()); });
  }
  return y;
}

Tensor any(const Tensor& x, const Axes& axes, Keep keep, SourceLocation where) {
  check::defined("any", "x", x, where);
  axes.mask("any", x.rank(), where);
  return max(cast(x, bool8), axes, keep);
}

Tensor all(const Tensor& x, const Axes& axes, Keep keep, SourceLocation where) {
  check::defined("all", "x", x, where);
  axes.mask("all", x.rank(), where);
  return min(cast(x, bool8), axes, keep);
}

// Counted in f32, where a number of ones is never 0.
Tensor any(const Ragged& x, SourceLocation where) {
  check::defined("any", "x", x.values(), where);
  return sum(cast(cast(x, bool8), f32)) > 0;
}
Tensor all(const Ragged& x, SourceLocation where) {
  check::defined("all", "x", x.values(), where);
  return sum(cast(cast(x, bool8) == 0, f32)) == 0;
}

Ragged any(const Ragged& x, const Axes& axes, Keep keep, SourceLocation where) {
  check::row_axes("any", x, axes, where);
  return x.with(any(x.values(), axes, keep, where));
}
Ragged all(const Ragged& x, const Axes& axes, Keep keep, SourceLocation where) {
  check::row_axes("all", x, axes, where);
  return x.with(all(x.values(), axes, keep, where));
}
Ragged norm(const Ragged& x, const Axes& axes, Keep keep, SourceLocation where) {
  check::row_axes("norm", x, axes, where);
  return x.with(norm(x.values(), axes, keep, where));
}
Ragged logsumexp(const Ragged& x, const Axes& axes, Keep keep, SourceLocation where) {
  check::row_axes("logsumexp", x, axes, where);
  return x.with(logsumexp(x.values(), axes, keep, where));
}

Ragged detail::row_variance(const Ragged& x, const Axes& axes, double correction, Keep keep, bool root,
                            SourceLocation where) {
  const char* const op = root ? "stddev" : "var";
  check::row_axes(op, x, axes, where);
  const Tensor y = variance(op, x.values(), axes, correction, keep, where);
  return x.with(root ? reel::root(y) : y);
}

}  // namespace reel
