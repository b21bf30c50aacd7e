#include "reel/ops/elementwise.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "reel/core/fits.h"
#include "reel/core/number_text.h"
#include "reel/ops/arithmetic.h"
#include "reel/ops/check.h"
#include "reel/ops/convert.h"
#include "reel/ops/create.h"
#include "reel/ops/promote.h"
#include "reel/ops/ragged.h"
#include "reel/ops/unary.h"
#include "reel/ops/unary_op.h"
#include "reel/ops/views.h"

namespace reel {

namespace {

using detail::Gradients;
using detail::packed;
using detail::Parameters;
using detail::record_op;
using detail::relu_mask;
using detail::taping;

Tensor summed_to(const Tensor& dx, const Shape& shape) { return dx.shape() == shape ? dx : detail::sum_to(dx, shape); }

// --- where ------------------------------------------------------------------------------------------------------------

Tensor side(const Arg& x, DType dtype, Device device) {
  return x.is_tensor() ? cast(x.tensor(), dtype) : full({}, x.scalar(), {.dtype = dtype, .device = device});
}

Shape shape_of(const Arg& x) { return x.is_tensor() ? x.tensor().shape() : Shape(); }

// a where the condition holds, else b, of one dtype and shapes that go with each other.
Tensor chosen(const Tensor& condition, const Tensor& a, const Tensor& b, const Shape& shape, SourceLocation location) {
  const auto whole = [&](const Tensor& x) { return packed(detail::broadcast_view(x, shape)); };
  const auto whole_or_one = [&](const Tensor& x) { return x.size() == 1 ? x : whole(x); };
  Tensor y = empty(shape, a.options());
  backend(a.device()).choose(whole(condition).array(), whole_or_one(a).array(), whole_or_one(b).array(), y.array());
  if (taping())
    record_op("where", location, {&a, &b}, y, {&condition}, [condition](Gradients& g) {
      const Tensor& dy = g.dy();
      const Tensor none = zeros({}, dy.options());
      const auto part = [&](const Tensor& one, const Tensor& other) {
        return chosen(condition, one, other, dy.shape(), SourceLocation{});
      };
      if (g.needs(0)) g.add(0, summed_to(part(dy, none), g.shape(0)));
      if (g.needs(1)) g.add(1, summed_to(part(none, dy), g.shape(1)));
    });
  return y;
}

Tensor choose(const Tensor& condition, const Arg& a, const Arg& b, SourceLocation location) {
  check::defined("where", "condition", condition, location);
  if (condition.dtype() != bool8)
    throw DTypeError(std::string("where: condition must be bool8, got ") + name_of(condition.dtype()), location);
  if (!a.is_tensor() && !b.is_tensor()) throw Error("where: a or b must be a tensor", location);
  if (a.is_tensor()) check::defined("where", "a", a.tensor(), location);
  if (b.is_tensor()) check::defined("where", "b", b.tensor(), location);
  for (const Arg* x : {&a, &b})
    if (x->is_tensor() && !(x->tensor().device() == condition.device()))
      throw DeviceError("where: a and b must be on " + condition.device().name() + " like condition, got " +
                            x->tensor().device().name(),
                        location);
  const DType dtype = detail::promoted(a, b);
  for (const Arg* x : {&a, &b})
    if (!x->is_tensor()) detail::check_fits("where", x->scalar(), dtype, location);
  const Shape given[] = {condition.shape(), shape_of(a), shape_of(b)};
  const Shape sides = check::broadcast("where", given[1], given[2], "shapes", given, location);
  const Shape shape = check::broadcast("where", given[0], sides, "shapes", given, location);
  const Tensor left = side(a, dtype, condition.device()), right = side(b, dtype, condition.device());
  detail::now_running("where", location);  // no longer a cast
  return chosen(condition, left, right, shape, location);
}

Tensor choose_beside(const Arg& condition, const Arg& a, const Arg& b, SourceLocation location) {
  return choose(condition.tensor(), a, b, location);
}

// --- clamp ------------------------------------------------------------------------------------------------------------

// A bound beyond what the integers of a dtype reach is as good as their end.
std::int64_t within(Scalar bound, DType dtype) {
  if (dtype == u8) return std::clamp<std::int64_t>(bound.integer, 0, 255);
  constexpr std::int64_t kMost = std::numeric_limits<std::int32_t>::max();
  return dtype == i32 ? std::clamp(bound.integer, -kMost - 1, kMost) : bound.integer;
}

// --- logaddexp --------------------------------------------------------------------------------------------------------

// The derivative of logaddexp(a, b) by a, recorded.
Tensor logaddexp_slope(const Tensor& a, const Tensor& b) {
  Tensor y = detail::binary(BinaryOp::logaddexp_slope, a, b);
  if (taping())
    record_op("logaddexp_slope", SourceLocation{}, {&a, &b}, y, {&a, &b}, [a, b](Gradients& g) {
      const Tensor da = g.dy() * logaddexp_slope(a, b) * logaddexp_slope(b, a);
      if (g.needs(0)) g.add(0, summed_to(da, g.shape(0)));
      if (g.needs(1)) g.add(1, summed_to(neg(da), g.shape(1)));
    });
  return y;
}

Tensor logaddexp_of(const Arg& a, const Arg& b) { return logaddexp(a.tensor(), b.tensor(), a.where()); }

// --- polygamma --------------------------------------------------------------------------------------------------------

// n! = factor 2^((n + 1) exponent), with the exponent that makes the factor neither large nor small: both sides of the
// series then stay in range as long as the result does.
struct ScaledFactorial {
  double factor;
  int exponent;

  explicit ScaledFactorial(int n) {
    long double fraction = 1;
    std::int64_t bits = 0;
    for (int k = 2; k <= n; ++k) {
      int more = 0;
      fraction = std::frexp(fraction * k, &more);
      bits += more;
    }
    exponent = static_cast<int>(bits / (n + 1));
    factor = static_cast<double>(std::ldexp(fraction, static_cast<int>(bits - std::int64_t{n + 1} * exponent)));
  }
};

// factor (unit (x + k))^-n, in two halves around the factor. Powers beyond the fourth are corrected for the rounding of x + k,
// which they would multiply by n.
Tensor scaled_power(double factor, double unit, const Tensor& x, int k, int n) {
  const Tensor z = x + k, y = unit * z, half = pow(y, -(n / 2));
  const Tensor whole = n % 2 == 0 ? factor * half * half : factor * half * half / y;
  if (n <= 4 || k == 0) return whole;
  const Tensor other = z - x, lost = (x - (z - other)) + (k - other);
  return whole * (1 - n * lost / z);
}

// x in f64, unrecorded.
Tensor polygamma_of(int n, const Tensor& x) {
  constexpr double bernoulli[] = {1.0 / 6, -1.0 / 30, 1.0 / 42, -1.0 / 30, 5.0 / 66, -691.0 / 2730, 7.0 / 6};
  const int terms = 14 + n;
  const ScaledFactorial factorial(n);
  const double unit = std::ldexp(1.0, -factorial.exponent);  // of x: x unit is exact
  // The sum from x + terms on is z^-n (1 / n + r / 2 + sum of B[2 j] (n + 1) ... (n + 2 j - 1) / (2 j)! r^(2 j)), r = 1 / z.
  const Tensor z = x + terms, r = 1 / z, square = r * r;
  std::vector<double> factors;
  double rising = n + 1, product = 2;
  for (int j = 1; j <= 7; ++j) {
    factors.push_back(bernoulli[j - 1] * rising / product);
    rising *= (n + 2.0 * j) * (n + 2 * j + 1);
    product *= (2.0 * j + 1) * (2 * j + 2);
  }
  Tensor series = square * factors.back();
  for (int j = 6; j >= 1; --j) series = square * (series + factors[static_cast<std::size_t>(j - 1)]);
  Tensor sum = scaled_power(factorial.factor / unit, unit, x, terms, n) * (series + 0.5 * r + 1.0 / n);
  for (int k = terms - 1; k >= 0; --k)
    sum = sum + scaled_power(factorial.factor, unit, x, k, n + 1);  // small ones first
  sum = where(x == INFINITY, 0.0, n % 2 == 0 ? -sum : sum);
  return where(x >= 0, sum, std::numeric_limits<double>::quiet_NaN());
}

}  // namespace

Tensor clamp(const Tensor& x, Scalar low, Scalar high, SourceLocation where) {
  if (!(low.real <= high.real))
    throw Error("clamp: low must not be above high, got " + detail::number_text(low.real) + " and " +
                    detail::number_text(high.real),
                where);
  static constexpr detail::Parametric f{ParametricOp::clamp, "clamp"};
  if (detail::integers("clamp", x, where) && low.integral && high.integral)
    return minimum(maximum(x, within(low, x.dtype())), within(high, x.dtype()));
  return detail::parametric(f, detail::fractions("clamp", x, where), {low.real, high.real}, where);
}

Tensor where(const Tensor& condition, const Arg& a, const Arg& b) {
  return choose(condition, a, b, a.is_tensor() ? a.where() : b.where());
}

Tensor leaky_relu(const Tensor& x, double slope, SourceLocation where) {
  static constexpr detail::Parametric f{ParametricOp::leaky_relu, "leaky_relu"};
  return detail::parametric(f, x, {slope}, where);
}

Tensor elu(const Tensor& x, double alpha, SourceLocation where) {
  static constexpr detail::Parametric f{ParametricOp::elu, "elu", [](const Tensor& x, const Parameters& p) {
                                          const Tensor below = untaped([&] { return cast(x <= 0, x.dtype()); });
                                          return p[0] * below * exp(clamp(x, -INFINITY, 0.0));
                                        }};
  return detail::parametric(f, x, {alpha}, where);
}

Tensor logaddexp(const Tensor& a, const Tensor& b, SourceLocation where) {
  check::floating("logaddexp", "a", a, where);
  check::like("logaddexp", "b", b, "a", a, where);
  check::broadcast("logaddexp", a.shape(), b.shape(), where);
  Tensor y = detail::binary(BinaryOp::logaddexp, a, b);
  if (taping())
    record_op("logaddexp", where, {&a, &b}, y, {&a, &b}, [a, b](Gradients& g) {
      // A side with no part in the sum has no part in an infinite dy either.
      const auto part = [&](const Tensor& slope) { return relu_mask(g.dy(), slope) * slope; };
      if (g.needs(0)) g.add(0, summed_to(part(logaddexp_slope(a, b)), g.shape(0)));
      if (g.needs(1)) g.add(1, summed_to(part(logaddexp_slope(b, a)), g.shape(1)));
    });
  return y;
}

Tensor polygamma(int n, const Tensor& x, SourceLocation where) {
  if (n < 0) throw Error("polygamma: n must be at least 0, got " + std::to_string(n), where);
  if (n == 0) return digamma(x);
  const Tensor of = detail::fractions("polygamma", x, where);
  Tensor y = untaped([&] { return cast(polygamma_of(n, cast(of, f64)), of.dtype()); });
  if (taping())
    record_op("polygamma", where, {&of}, y, {&of},
              [n, x = of](Gradients& g) { g.add(0, g.dy() * polygamma(n + 1, x, SourceLocation{})); });
  return y;
}

Ragged clamp(const Ragged& x, Scalar low, Scalar high, SourceLocation where) {
  return x.with(clamp(x.values(), low, high, where));
}
Ragged where(const Ragged& condition, const RaggedOperand& a, const RaggedOperand& b, SourceLocation location) {
  return detail::broadcast("where", choose_beside, condition, a, b, location);
}
Ragged where(const Tensor& condition, const Ragged& a, const RaggedOperand& b, SourceLocation location) {
  return detail::broadcast("where", choose_beside, condition, a, b, location);
}
Ragged where(const Tensor& condition, const Arg& a, const Ragged& b, SourceLocation location) {
  return detail::broadcast("where", choose_beside, condition, a, b, location);
}
Ragged leaky_relu(const Ragged& x, double slope, SourceLocation where) {
  return x.with(leaky_relu(x.values(), slope, where));
}
Ragged elu(const Ragged& x, double alpha, SourceLocation where) { return x.with(elu(x.values(), alpha, where)); }
Ragged logaddexp(const Ragged& a, const Ragged& b, SourceLocation where) {
  return detail::broadcast("logaddexp", logaddexp_of, a, b, where);
}
Ragged logaddexp(const Ragged& a, const Tensor& b, SourceLocation where) {
  return detail::broadcast("logaddexp", logaddexp_of, a, Arg(b, where));
}
Ragged logaddexp(const Tensor& a, const Ragged& b, SourceLocation where) {
  return detail::broadcast("logaddexp", logaddexp_of, Arg(a, where), b);
}

Ragged polygamma(int n, const Ragged& x, SourceLocation where) { return x.with(polygamma(n, x.values(), where)); }

}  // namespace reel
