#include "reel/ops/elementwise.h"

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "reel/ops/arithmetic.h"
#include "reel/ops/check.h"
#include "reel/ops/convert.h"
#include "reel/ops/create.h"
#include "reel/ops/parametric_op.h"
#include "reel/ops/ragged.h"
#include "reel/ops/unary.h"
#include "reel/ops/views.h"

namespace reel {

namespace {

using detail::Gradients;
using detail::Parameters;
using detail::record_op;
using detail::relu_mask;
using detail::taping;

// A mask is a constant of zeros and ones in the dtype of what it chooses from.
Tensor complement(const Tensor& mask) {
  return untaped([&] { return 1 - mask; });
}

Tensor positive(const Tensor& x) {
  return untaped([&] { return cast(x > 0, x.dtype()); });
}

// --- where ------------------------------------------------------------------------------------------------------------

DType chosen_dtype(const Arg& a, const Arg& b, SourceLocation location) {
  if (a.is_tensor() && b.is_tensor()) {
    check::like("where", "b", b.tensor(), "a", a.tensor(), location);
    return a.tensor().dtype();
  }
  const DType dtype = (a.is_tensor() ? a : b).tensor().dtype();
  const bool fraction = !(a.is_tensor() ? b : a).scalar().integral;
  return fraction && !is_floating(dtype) ? f32 : dtype;
}

Tensor side(const Arg& x, DType dtype, Device device) {
  return x.is_tensor() ? cast(x.tensor(), dtype, x.where()) : full({}, x.scalar(), {.dtype = dtype, .device = device});
}

Shape shape_of(const Arg& x) { return x.is_tensor() ? x.tensor().shape() : Shape(); }

// Integers have neither NaN nor gradients: products choose.
Tensor choose_integers(const Tensor& condition, const Tensor& a, const Tensor& b) {
  const DType dtype = a.dtype(), numbers = dtype == bool8 ? u8 : dtype;
  const Tensor mask = cast(condition, numbers);
  return cast(cast(a, numbers) * mask + cast(b, numbers) * (1 - mask), dtype);
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
  const DType dtype = chosen_dtype(a, b, location);
  const Shape shape = check::broadcast("where", condition.shape(),
                                       check::broadcast("where", shape_of(a), shape_of(b), location), location);
  const Tensor left = side(a, dtype, condition.device()), right = side(b, dtype, condition.device());
  if (!is_floating(dtype)) return choose_integers(detail::broadcast_view(condition, shape), left, right);
  const Tensor mask = detail::broadcast_view(untaped([&] { return cast(condition, dtype); }), shape);
  return relu_mask(left, mask) + relu_mask(right, complement(mask));
}

Tensor choose_beside(const Arg& condition, const Arg& a, const Arg& b, SourceLocation location) {
  return choose(condition.tensor(), a, b, location);
}

// --- logaddexp --------------------------------------------------------------------------------------------------------

// a - b, and 0 where both are the same infinity: `apart` is 0 there.
Tensor difference(const Tensor& a, const Tensor& b, const Tensor& apart) {
  return relu_mask(a, apart) - relu_mask(b, apart);
}

Tensor logaddexp_of(const Arg& a, const Arg& b) { return logaddexp(a.tensor(), b.tensor(), a.where()); }

// --- polygamma --------------------------------------------------------------------------------------------------------

// x in f64, unrecorded.
Tensor polygamma_of(int n, const Tensor& x) {
  constexpr double bernoulli[] = {1.0 / 6, -1.0 / 30, 1.0 / 42, -1.0 / 30, 5.0 / 66, -691.0 / 2730, 7.0 / 6};
  const int terms = 14 + n;
  // The sum from x + terms on is z^-n (1 / n + r / 2 + sum of B[2 j] (n + 1) ... (n + 2 j - 1) / (2 j)! r^(2 j)), r = 1 / z.
  const Tensor z = x + terms, r = 1 / z, square = r * r;
  std::vector<double> factors;
  double rising = n + 1, factorial = 2;
  for (int j = 1; j <= 7; ++j) {
    factors.push_back(bernoulli[j - 1] * rising / factorial);
    rising *= (n + 2.0 * j) * (n + 2 * j + 1);
    factorial *= (2.0 * j + 1) * (2 * j + 2);
  }
  Tensor series = square * factors.back();
  for (int j = 6; j >= 1; --j) series = square * (series + factors[static_cast<std::size_t>(j - 1)]);
  Tensor sum = pow(z, -n) * (series + 0.5 * r + 1.0 / n);
  for (int k = terms - 1; k >= 0; --k) sum = sum + pow(x + k, -(n + 1));  // small ones first
  const double scale = (n % 2 == 0 ? -1 : 1) * std::tgamma(n + 1.0);
  return where(x >= 0, scale * sum, std::numeric_limits<double>::quiet_NaN());
}

Tensor summed_to(const Tensor& dx, const Shape& shape) { return dx.shape() == shape ? dx : detail::sum_to(dx, shape); }

}  // namespace

Tensor clamp(const Tensor& x, double low, double high, SourceLocation where) {
  if (!(low <= high))
    throw Error("clamp: low must not be above high, got " + std::to_string(low) + " and " + std::to_string(high),
                where);
  return detail::parametric(
      ParametricOp::clamp, "clamp", x, {low, high}, where, [](const Tensor& dy, const Tensor& x, const Parameters& p) {
        return relu_mask(dy, untaped([&] { return cast(x >= p[0], x.dtype()) * cast(x <= p[1], x.dtype()); }));
      });
}

Tensor where(const Tensor& condition, const Arg& a, const Arg& b) {
  return choose(condition, a, b, a.is_tensor() ? a.where() : b.where());
}

Tensor leaky_relu(const Tensor& x, double slope, SourceLocation where) {
  return detail::parametric(ParametricOp::leaky_relu, "leaky_relu", x, {slope}, where,
                            [](const Tensor& dy, const Tensor& x, const Parameters& p) {
                              const Tensor above = positive(x);
                              return relu_mask(dy, above) + p[0] * relu_mask(dy, complement(above));
                            });
}

Tensor elu(const Tensor& x, double alpha, SourceLocation where) {
  return detail::parametric(ParametricOp::elu, "elu", x, {alpha}, where,
                            [](const Tensor& dy, const Tensor& x, const Parameters& p) {
                              const Tensor above = positive(x), below = complement(above);
                              // Where x is above, exp is taken of 0: nothing of it overflows into a gradient.
                              return relu_mask(dy, above) + p[0] * relu_mask(dy, below) * exp(relu_mask(x, below));
                            });
}

Tensor logaddexp(const Tensor& a, const Tensor& b, SourceLocation where) {
  check::floating("logaddexp", "a", a, where);
  check::like("logaddexp", "b", b, "a", a, where);
  check::broadcast("logaddexp", a.shape(), b.shape(), where);
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  Tensor apart;
  Tensor y = untaped([&] {
    const DType dtype = a.dtype();
    apart = 1 - cast(a == b, dtype) * cast(abs(a) == kInfinity, dtype);
    return maximum(a, b) + log1p(exp(-abs(difference(a, b, apart))));
  });
  if (taping())
    record_op("logaddexp", where, {&a, &b}, y, {&a, &b, &y}, [a, b, y, apart](Gradients& g) {
      const Tensor some = untaped([&] { return cast(y != -kInfinity, y.dtype()); });
      const Tensor d = difference(a, b, apart);
      if (g.needs(0)) g.add(0, summed_to(relu_mask(g.dy() * sigmoid(d), some), g.shape(0)));
      if (g.needs(1)) g.add(1, summed_to(relu_mask(g.dy() * sigmoid(-d), some), g.shape(1)));
    });
  return y;
}

Tensor polygamma(int n, const Tensor& x, SourceLocation where) {
  check::floating("polygamma", "x", x, where);
  if (n < 0) throw Error("polygamma: n must be at least 0, got " + std::to_string(n), where);
  if (n == 0) return digamma(x, where);
  Tensor y = untaped([&] { return cast(polygamma_of(n, cast(x, f64)), x.dtype()); });
  if (taping())
    record_op("polygamma", where, {&x}, y, {&x},
              [n, x](Gradients& g) { g.add(0, g.dy() * polygamma(n + 1, x, SourceLocation{})); });
  return y;
}

Ragged clamp(const Ragged& x, double low, double high, SourceLocation where) {
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
