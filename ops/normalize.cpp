#include "reel/ops/normalize.h"

#include <string>

#include "reel/core/number_text.h"
#include "reel/ops/arithmetic.h"
#include "reel/ops/check.h"
#include "reel/ops/convert.h"
#include "reel/ops/create.h"
#include "reel/ops/normalize_rows.h"
#include "reel/ops/reduce.h"
#include "reel/ops/unary.h"
#include "reel/ops/views.h"

namespace reel {

namespace detail::normalization {

Standardized::Standardized(const Tensor& x, const Tensor& first, Axes axes, bool center, double eps) {
  const Tensor origin = stop_gradient(first);
  const Tensor from_mean = center ? x - (origin + mean(x - origin, axes, Keep::yes)) : x;
  const Tensor d = center ? from_mean - mean(from_mean, axes, Keep::yes) : from_mean;  // again: what rounding left
  rstd = rsqrt(mean(square(d), axes, Keep::yes) + eps);
  xhat = d * rstd;
}

Tensor Standardized::gradient(const Tensor& g, const Tensor& mean_g, const Tensor& mean_g_xhat) const {
  return rstd * ((mean_g.defined() ? g - mean_g : g) - xhat * mean_g_xhat);
}

void no_gradients(Gradients& g, const Tensor& x) {
  for (int i = 0; i < 3; ++i)
    if (g.needs(i)) g.add(i, zeros(g.shape(i), x.options()));
}

namespace {

// The gradients in recorded ops, to be differentiated again.
void recorded_gradients(Gradients& g, const Tensor& x, const Tensor& weight, const Rows& r) {
  if (r.n == 0) return no_gradients(g, x);
  const Tensor rows = reshape(x, {r.rows, r.n}), dy = reshape(g.dy(), rows.shape());
  const Standardized is(rows, narrow(rows, 1, 0, 1), 1, r.center, r.eps);
  if (g.needs(0)) {
    const Tensor dxhat = weight.defined() ? dy * reshape(weight, {r.n}) : dy;
    const auto mean_of = [](const Tensor& t) { return mean(t, 1, Keep::yes); };
    g.add(0, reshape(is.gradient(dxhat, r.center ? mean_of(dxhat) : Tensor(), mean_of(dxhat * is.xhat)), g.shape(0)));
  }
  if (g.needs(1)) g.add(1, reshape(sum(dy * is.xhat, 0), g.shape(1)));
  if (g.needs(2)) g.add(2, reshape(sum(dy, 0), g.shape(2)));
}

}  // namespace

Tensor room(Gradients& g, int input, const Tensor& x) {
  return g.needs(input) ? empty(g.shape(input), x.options()) : Tensor();
}

Tensor normalize_rows(const char* op, const Tensor& x, const Rows& r, const Tensor& weight, const Tensor& bias,
                      SourceLocation where) {
  const TensorOptions like = x.options();
  const auto row_of = [n = r.n](const Tensor& t) { return t.defined() ? reshaped(packed(t), {n}) : t; };
  const Tensor from = reshaped(packed(x), {r.rows, r.n}), scale = row_of(weight), shift = row_of(bias);
  const Tensor y = empty(x.shape(), like), rstd = empty({r.rows}, like);
  const Tensor mean = r.center ? empty({r.rows}, like) : Tensor();
  backend(x.device())
      .normalize(from.array(), r.center, r.eps, array_of(scale), array_of(shift), reshaped(y, from.shape()).array(),
                 array_of(mean), rstd.array());
  if (detail::taping())
    detail::record_op(op, where, {&x, &weight, &bias}, y, {&x, &weight},
                      [x, weight, from, scale, mean, rstd, r](Gradients& g) {
                        if (g.recording()) return recorded_gradients(g, x, weight, r);
                        const Tensor dy = packed(g.dy()), dweight = room(g, 1, x), dbias = room(g, 2, x);
                        backend(x.device())
                            .normalize_backward(from.array(), r.center, array_of(scale), array_of(mean), rstd.array(),
                                                dy.array(), g.sink(0), array_of(dweight), array_of(dbias));
                        g.add(1, dweight);
                        g.add(2, dbias);
                      });
  return y;
}

void check_weight(const char* op, const char* name, const Tensor& weight, const Tensor& x, const Shape& shape,
                  SourceLocation where) {
  if (!weight.defined()) return;
  check::like(op, name, weight, "x", x, where);
  check::shape(op, name, weight, shape, where);
}

void check_eps(const char* op, double eps, SourceLocation where) {
  if (!(eps >= 0)) throw Error(std::string(op) + ": eps must not be below 0, got " + detail::number_text(eps), where);
}

}  // namespace detail::normalization

namespace {

using namespace detail::normalization;

// Checks that x is [..., normalized...] with at least `leading` axes before.
Rows trailing(const char* op, const Tensor& x, const Shape& normalized, int leading, bool center, double eps,
              SourceLocation where) {
  check::floating(op, "x", x, where);
  check_eps(op, eps, where);
  const int first = x.rank() - normalized.rank();
  bool fits = first >= leading && normalized.rank() > 0;
  for (int i = 0; fits && i < normalized.rank(); ++i) fits = x.shape()[first + i] == normalized[i];
  if (!fits)
    throw ShapeError(std::string(op) + ": the normalised axes must be the last of " +
                         (leading > 0 ? "a row of x, got " : "x, got ") + normalized.str() + " for x of shape " +
                         x.shape().str(),
                     where);
  Rows r{1, normalized.size(), center, eps};
  for (int i = 0; i < first; ++i) r.rows *= x.shape()[i];
  return r;
}

Tensor layer_norm(const Tensor& x, const Shape& normalized, int leading, const Tensor& weight, const Tensor& bias,
                  double eps, SourceLocation where) {
  const Rows r = trailing("layer_norm", x, normalized, leading, true, eps, where);
  check_weight("layer_norm", "weight", weight, x, normalized, where);
  check_weight("layer_norm", "bias", bias, x, normalized, where);
  return normalize_rows("layer_norm", x, r, weight, bias, where);
}

Tensor rms_norm(const Tensor& x, const Shape& normalized, int leading, const Tensor& weight, std::optional<double> eps,
                SourceLocation where) {
  check::defined("rms_norm", "x", x, where);
  const double epsilon = eps.value_or(x.dtype() == f32 ? 0x1p-23 : 0x1p-52);
  const Rows r = trailing("rms_norm", x, normalized, leading, false, epsilon, where);
  check_weight("rms_norm", "weight", weight, x, normalized, where);
  return normalize_rows("rms_norm", x, r, weight, {}, where);
}

}  // namespace

Tensor layer_norm(const Tensor& x, const Shape& normalized, const Tensor& weight, const Tensor& bias, double eps,
                  SourceLocation where) {
  return layer_norm(x, normalized, 0, weight, bias, eps, where);
}
Ragged layer_norm(const Ragged& x, const Shape& normalized, const Tensor& weight, const Tensor& bias, double eps,
                  SourceLocation where) {
  return x.with(layer_norm(x.values(), normalized, 1, weight, bias, eps, where));
}

Tensor rms_norm(const Tensor& x, const Shape& normalized, const Tensor& weight, std::optional<double> eps,
                SourceLocation where) {
  return rms_norm(x, normalized, 0, weight, eps, where);
}
Ragged rms_norm(const Ragged& x, const Shape& normalized, const Tensor& weight, std::optional<double> eps,
                SourceLocation where) {
  return x.with(rms_norm(x.values(), normalized, 1, weight, eps, where));
}

}  // namespace reel
