#include "reel/ops/distributions.h"

#include <cmath>
#include <limits>
#include <numbers>
#include <string>

#include "reel/ops/activations.h"
#include "reel/ops/arithmetic.h"
#include "reel/ops/check.h"
#include "reel/ops/convert.h"
#include "reel/ops/create.h"
#include "reel/ops/einsum.h"
#include "reel/ops/elementwise.h"
#include "reel/ops/logical.h"
#include "reel/ops/padding.h"
#include "reel/ops/rearrange.h"
#include "reel/ops/reduce.h"
#include "reel/ops/sampling.h"
#include "reel/ops/softmax.h"
#include "reel/ops/statistics.h"
#include "reel/ops/unary.h"
#include "reel/ops/views.h"

namespace reel::distributions {

namespace {

const double kLogPi = std::log(std::numbers::pi);

Tensor parameter(const char* op, const char* name, const Arg& x) {
  if (!x.is_tensor()) return full({}, x.scalar(), {.dtype = f64}, x.where());
  check::floating(op, name, x.tensor(), x.where());
  return x.tensor();
}

// Beside parameters with axes those without, such as numbers, do not count.
DType dtype_of(std::initializer_list<const Tensor*> parameters) {
  bool axes = false;
  for (const Tensor* p : parameters) axes |= p->rank() > 0;
  for (const Tensor* p : parameters)
    if (p->dtype() == f64 && (p->rank() > 0 || !axes)) return f64;
  return f32;
}

// What the ops below would notice too, but not at the user's line. Counts become numbers of the parameters' type.
Tensor checked(const char* op, const Tensor& value, std::initializer_list<const Tensor*> parameters,
               SourceLocation where) {
  check::defined(op, "value", value, where);
  Shape shape = value.shape(), given[4] = {shape};
  std::size_t count = 1;
  for (const Tensor* p : parameters) {
    given[count++] = p->shape();
    if (p->rank() > 0 && value.rank() > 0 && !(p->device() == value.device()))
      throw DeviceError(std::string(op) + ": value and parameters must be on one device, got " + value.device().name() +
                            " and " + p->device().name(),
                        where);
  }
  for (std::size_t i = 1; i < count; ++i)
    shape = check::broadcast(op, shape, given[i], "shapes", {given, count}, where);
  return is_floating(value.dtype()) ? value : cast(value, dtype_of(parameters));
}

// a log(x), and 0 for a = 0 beside x = 0 or infinity. The gradient there is 0 too. A number goes where the other is.
Tensor xlogy(const Tensor& a, const Tensor& x) {
  if (!(a.device() == x.device()))
    return a.device().is_cpu() ? xlogy(to(a, x.device()), x) : xlogy(a, to(x, a.device()));
  const Tensor nothing = logical_and(a == 0, logical_or(x == 0, x == INFINITY));
  return a * log(where(nothing, 1, x));
}

// --- sampling ---------------------------------------------------------------------------------------------------------

// Draws of one call: shape + the common shape of the parameters, f64 until the end.
struct Draws {
  Shape shape;
  DType dtype;
  Device device;
  Generator* generator;

  Draws(const Shape& sample, std::initializer_list<const Tensor*> parameters, Generator* source)
      : dtype(dtype_of(parameters)), device((*parameters.begin())->device()), generator(source) {
    Shape common;
    for (const Tensor* p : parameters) common = check::broadcast("sample", common, p->shape(), SourceLocation{});
    shape = with(sample, common);
  }

  static Shape with(Shape front, const Shape& back) {
    if (front.rank() + back.rank() > kMaxRank)
      throw ShapeError("sample: the result must have at most 8 axes, got " + front.str() + " in front of " +
                       back.str());
    for (const std::int64_t size : back) front.push_back(size);
    return front;
  }

  TensorOptions options() const { return {.dtype = f64, .device = device}; }
  // One per element, and one per element and index of some further axes.
  Tensor normal(const Shape& more = {}) const {
    return generator != nullptr ? randn(with(shape, more), *generator, options()) : randn(with(shape, more), options());
  }
  // In (0, 1].
  Tensor uniform(const Shape& more = {}) const {
    const Shape all = with(shape, more);
    return (generator != nullptr ? rand(all, *generator, options()) : rand(all, options())) + 0x1p-54;
  }
  // In f64; the last axes are `more`.
  Tensor spread(const Tensor& x, const Shape& more = {}) const { return expand(cast(x, f64), with(shape, more)); }
  Tensor gamma(const Tensor& alpha, const Shape& more = {}) const {
    return standard_gamma(spread(alpha, more), generator);
  }
  // The logarithm of a gamma number, which may lie below the smallest number: that of shape alpha + 1 times u^(1 / alpha).
  Tensor log_gamma(const Tensor& alpha, const Shape& more = {}) const {
    const Tensor a = spread(alpha, more);
    return log(standard_gamma(a + 1, generator)) + log(uniform(more)) / a;
  }
  // The logit of a beta number: x = sigmoid(logit), 1 - x = sigmoid(-logit).
  Tensor beta_logit(const Tensor& a, const Tensor& b, const Shape& more = {}) const {
    const Tensor log_a = log_gamma(a, more);
    return log_a - log_gamma(b, more);
  }
};

// f(draws) in the parameters' dtype; nothing is recorded.
template <class F>
Tensor sampled(const Shape& shape, std::initializer_list<const Tensor*> parameters, Generator* generator, F&& f) {
  return untaped([&] {
    const Draws draws(shape, parameters, generator);
    return cast(f(draws), draws.dtype);
  });
}

}  // namespace

// --- Normal -----------------------------------------------------------------------------------------------------------

Normal::Normal(const Arg& loc, const Arg& scale)
    : loc(parameter("Normal", "loc", loc)), scale(parameter("Normal", "scale", scale)) {}

Tensor Normal::log_prob(const Tensor& value, SourceLocation where) const {
  const Tensor z = (checked("Normal", value, {&loc, &scale}, where) - loc) / scale;
  return -0.5 * z * z - log(scale) - 0.5 * (std::numbers::ln2 + kLogPi);
}

Tensor Normal::rsample(const Shape& shape, Generator* generator) const {
  return loc + scale * sampled(shape, {&loc, &scale}, generator, [](const Draws& draw) { return draw.normal(); });
}
Tensor Normal::sample(const Shape& shape, Generator* generator) const {
  return untaped([&] { return rsample(shape, generator); });
}

// --- StudentT ---------------------------------------------------------------------------------------------------------

StudentT::StudentT(const Arg& df, const Arg& loc, const Arg& scale)
    : df(parameter("StudentT", "df", df)),
      loc(parameter("StudentT", "loc", loc)),
      scale(parameter("StudentT", "scale", scale)) {}

Tensor StudentT::log_prob(const Tensor& value, SourceLocation where) const {
  const Tensor z = (checked("StudentT", value, {&df, &loc, &scale}, where) - loc) / scale;
  const Tensor half = 0.5 * df, power = half + 0.5;
  return lgamma(power) - lgamma(half) - 0.5 * (log(df) + kLogPi) - log(scale) - power * log1p(z * z / df);
}

Tensor StudentT::sample(const Shape& shape, Generator* generator) const {
  return sampled(shape, {&df, &loc, &scale}, generator, [this](const Draws& draw) {
    const Tensor z = draw.normal(), half = 0.5 * cast(df, f64);
    return loc + scale * z * rsqrt(draw.gamma(half) / half);
  });
}

// --- Gamma ------------------------------------------------------------------------------------------------------------

Gamma::Gamma(const Arg& concentration, const Arg& rate)
    : concentration(parameter("Gamma", "concentration", concentration)), rate(parameter("Gamma", "rate", rate)) {}

Tensor Gamma::log_prob(const Tensor& value, SourceLocation where) const {
  const Tensor x = checked("Gamma", value, {&concentration, &rate}, where);
  return xlogy(concentration - 1, x) - rate * x + concentration * log(rate) - lgamma(concentration);
}

Tensor Gamma::sample(const Shape& shape, Generator* generator) const {
  return sampled(shape, {&concentration, &rate}, generator,
                 [this](const Draws& draw) { return draw.gamma(concentration) / rate; });
}

// --- Beta -------------------------------------------------------------------------------------------------------------

Beta::Beta(const Arg& a_, const Arg& b_) : a(parameter("Beta", "a", a_)), b(parameter("Beta", "b", b_)) {}

Tensor Beta::log_prob(const Tensor& value, SourceLocation where) const {
  const Tensor x = checked("Beta", value, {&a, &b}, where);
  return xlogy(a - 1, x) + xlogy(b - 1, 1 - x) + lgamma(a + b) - lgamma(a) - lgamma(b);
}

Tensor Beta::sample(const Shape& shape, Generator* generator) const {
  return sampled(shape, {&a, &b}, generator, [this](const Draws& draw) { return sigmoid(draw.beta_logit(a, b)); });
}

// --- Poisson ----------------------------------------------------------------------------------------------------------

Poisson::Poisson(const Arg& rate_) : rate(parameter("Poisson", "rate", rate_)) {}

Tensor Poisson::log_prob(const Tensor& value, SourceLocation where) const {
  const Tensor k = checked("Poisson", value, {&rate}, where);
  return xlogy(k, rate) - rate - lgamma(k + 1);
}

Tensor Poisson::sample(const Shape& shape, Generator* generator) const {
  return sampled(shape, {&rate}, generator,
                 [this](const Draws& draw) { return poisson(draw.spread(rate), draw.generator); });
}

// --- NegativeBinomial -------------------------------------------------------------------------------------------------

NegativeBinomial::NegativeBinomial(const Arg& total_count_, const Arg& logits_)
    : total_count(parameter("NegativeBinomial", "total_count", total_count_)),
      logits(parameter("NegativeBinomial", "logits", logits_)) {}

Tensor NegativeBinomial::log_prob(const Tensor& value, SourceLocation where) const {
  const Tensor k = checked("NegativeBinomial", value, {&total_count, &logits}, where);
  return total_count * logsigmoid(-logits) + k * logsigmoid(logits) + lgamma(total_count + k) - lgamma(k + 1) -
         lgamma(total_count);
}

// Poisson with a rate from the gamma distribution.
Tensor NegativeBinomial::sample(const Shape& shape, Generator* generator) const {
  return sampled(shape, {&total_count, &logits}, generator, [this](const Draws& draw) {
    return poisson(draw.gamma(total_count) * exp(cast(logits, f64)), draw.generator);
  });
}

// --- Bernoulli --------------------------------------------------------------------------------------------------------

Bernoulli::Bernoulli(const Arg& logits_) : logits(parameter("Bernoulli", "logits", logits_)) {}

Tensor Bernoulli::log_prob(const Tensor& value, SourceLocation where) const {
  return logsigmoid((2 * checked("Bernoulli", value, {&logits}, where) - 1) * logits);
}

Tensor Bernoulli::sample(const Shape& shape, Generator* generator) const {
  return sampled(shape, {&logits}, generator,
                 [this](const Draws& draw) { return draw.uniform() < sigmoid(cast(logits, f64)); });
}

// --- Categorical ------------------------------------------------------------------------------------------------------

Categorical::Categorical(const Tensor& logits_, SourceLocation where) : logits(logits_) {
  check::floating("Categorical", "logits", logits, where);
  if (logits.rank() == 0 || logits.shape().back() == 0)
    throw ShapeError("Categorical: logits must have shape [..., classes], got " + logits.shape().str(), where);
}

Tensor Categorical::log_prob(const Tensor& value, SourceLocation where) const {
  check::index("Categorical", "value", value, where);
  const std::int64_t classes = logits.shape().back();
  const Shape rows = Shape::of(logits.shape().begin(), logits.rank() - 1);
  const Shape given[] = {logits.shape(), value.shape()};
  const Shape shape =
      check::broadcast("Categorical", rows, value.shape(), "logits without its last axis and value", given, where);
  const Tensor flat = reshape(expand(logits, Draws::with(shape, {classes})), {shape.size(), classes});
  const Tensor index = reshape(expand(value, shape), {shape.size()});
  backend(index.device()).check_indices(detail::packed(index).array(), classes, nullptr, "Categorical", where);
  const CrossEntropyOptions options{.reduction = Reduction::none, .ignore = std::numeric_limits<std::int64_t>::min()};
  return neg(reshape(cross_entropy(flat, index, options), shape));
}

Tensor Categorical::sample(const Shape& shape, Generator* generator) const {
  return untaped([&] {
    const Draws draw(shape, {&logits}, generator);
    return argmax(logits - log(-log(draw.uniform())), -1);
  });
}

// --- HalfCauchy -------------------------------------------------------------------------------------------------------

HalfCauchy::HalfCauchy(const Arg& scale_) : scale(parameter("HalfCauchy", "scale", scale_)) {}

Tensor HalfCauchy::log_prob(const Tensor& value, SourceLocation where) const {
  const Tensor x = checked("HalfCauchy", value, {&scale}, where), z = x / scale;
  const Tensor density = std::numbers::ln2 - kLogPi - log(scale) - log1p(z * z);
  return reel::where(x < 0, -std::numeric_limits<double>::infinity(), density);
}

// tan(pi u / 2), whose denominator is a sine too: both ends are exact.
Tensor HalfCauchy::sample(const Shape& shape, Generator* generator) const {
  return sampled(shape, {&scale}, generator, [this](const Draws& draw) {
    const Tensor u = draw.uniform();
    return scale * sin(0.5 * std::numbers::pi * u) / sin(0.5 * std::numbers::pi * (1 - u));
  });
}

// --- LKJCholesky ------------------------------------------------------------------------------------------------------

namespace {

// b_i for i = 1, ..., dim - 1, along a new last axis.
Tensor row_shapes(std::int64_t dim, const Tensor& concentration) {
  const Tensor i = arange(dim - 1, concentration.options());
  return unsqueeze(concentration, -1) + 0.5 * (static_cast<double>(dim - 2) - i);
}

}  // namespace

LKJCholesky::LKJCholesky(std::int64_t dim_, const Arg& concentration_, SourceLocation where)
    : dim(dim_), concentration(parameter("LKJCholesky", "concentration", concentration_)) {
  if (dim < 1) throw ShapeError("LKJCholesky: dim must be at least 1, got " + std::to_string(dim), where);
}

Tensor LKJCholesky::log_prob(const Tensor& value, SourceLocation where) const {
  check::floating("LKJCholesky", "value", value, where);
  const int r = value.rank();
  if (r < 2 || value.shape()[r - 1] != dim || value.shape()[r - 2] != dim)
    throw ShapeError("LKJCholesky: value must have shape [..., " + std::to_string(dim) + ", " + std::to_string(dim) +
                         "], got " + value.shape().str(),
                     where);
  const Shape given[] = {value.shape(), concentration.shape()};
  check::broadcast("LKJCholesky", Shape::of(value.shape().begin(), r - 2), concentration.shape(),
                   "value without its last two axes and concentration", given, where);
  const double n = static_cast<double>(dim);
  // A number alone, which is f64 on the CPU, decides neither the result's type nor its device.
  const Tensor shape =
      concentration.rank() == 0 ? cast(to(concentration, value.device()), value.dtype()) : concentration;
  const Tensor b = row_shapes(dim, shape);
  const Tensor diagonal = narrow(einsum("...ii->...i", {value}), -1, 1, dim - 1);
  return sum((2 * b - 2) * log(diagonal) - lgamma(b), -1) + (n - 1) * lgamma(shape + 0.5 * (n - 1)) -
         0.25 * n * (n - 1) * kLogPi;
}

Tensor LKJCholesky::sample(const Shape& shape, Generator* generator) const {
  return sampled(shape, {&concentration}, generator, [this](const Draws& draw) {
    const Tensor b = cast(row_shapes(dim, concentration), f64), i = arange(dim - 1, draw.options());
    const Tensor logit = draw.beta_logit(0.5 * (i + 1), b, {dim - 1});
    const Tensor normal = tril(draw.normal({dim - 1, dim - 1}));
    const Tensor below = normal * unsqueeze(sqrt(sigmoid(logit)) / norm(normal, -1), -1);
    const Tensor diagonal = pad(sqrt(sigmoid(-logit)), {{-1, 1, 0}}, 1);
    return pad(below, {{-2, 1, 0}, {-1, 0, 1}}) + unsqueeze(diagonal, -1) * eye(dim, draw.options());
  });
}

}  // namespace reel::distributions
