#include "reel/ops/distributions.h"

#include <cmath>
#include <numbers>

#include "reel/core/scalar/philox.h"
#include "reel/ops/create.h"
#include "reel/ops/sampling.h"
#include "reel/ops/transforms.h"
#include "reel/ops/views.h"
#include "reel/tests/ops/reference.h"

namespace reel::test {

namespace {

namespace d = distributions;
namespace t = transforms;
using Real = long double;
using std::log;

const Real kPi = std::numbers::pi_v<Real>;

struct Range {
  double low, high;
};

// --- densities: a value [rows, cols] and parameters [cols] ------------------------------------------------------------

struct Density {
  std::string name, type;
  std::vector<Range> ranges;  // of the value and each parameter
  std::function<Tensor(const Tensors&)> call;
  std::function<Real(const std::vector<Real>&)> formula;  // of the value and the parameters
  std::int64_t counts = 0;                                // > 0: values are integers below
  double tolerance = 60;
};

std::vector<BadCall> bad_densities(const Density& density) {
  const auto call = [density](const Tensor& value, const Tensor& parameter) {
    return [=] {
      Tensors in{value, parameter};
      while (in.size() < density.ranges.size()) in.push_back(ones({}));
      density.call(in);
    };
  };
  return {{call(ones({3}), arange(3)), {density.type + ": ", " must be f32 or f64, got i64", "cases.cpp"}},
          {call(ones({2}), ones({3})), {density.type + ": shapes must be equal or broadcast, got [2] and [3]"}},
          {call(Tensor(), ones({3})), {density.type + ": value must be defined"}}};
}

OpCase density_row(const Density& density) {
  std::vector<int> differentiable;
  for (std::size_t i = density.counts > 0 ? 1 : 0; i < density.ranges.size(); ++i)
    differentiable.push_back(static_cast<int>(i));
  return {.name = density.name,
          .inputs =
              [density](Maker& make, Size size) {
                const Extent n = extent_of(size);
                Tensors in;
                for (const Range& range : density.ranges)
                  in.push_back(in.empty() && density.counts > 0 ? make.index({n.rows, n.cols}, density.counts)
                               : in.empty()                     ? make.uniform({n.rows, n.cols}, range.low, range.high)
                                                                : make.uniform({n.cols}, range.low, range.high));
                return in;
              },
          .call = density.call,
          .reference =
              [density](const std::vector<Ref>& in) {
                return filled(in[0].shape, [&](const auto& i) {
                  std::vector<Real> x;
                  for (const Ref& part : in) x.push_back(broadcast_at(part, i));
                  return static_cast<double>(density.formula(x));
                });
              },
          .differentiable = differentiable,
          .tolerance = density.tolerance,
          .bad = bad_densities(density)};
}

Real log_choose(Real n, Real k) { return std::lgamma(n + 1) - std::lgamma(k + 1) - std::lgamma(n - k + 1); }
Real log_beta(Real a, Real b) { return std::lgamma(a) + std::lgamma(b) - std::lgamma(a + b); }

std::vector<Density> densities() {
  return {{"normal",
           "Normal",
           {{-3, 3}, {-1, 1}, {0.5, 2}},
           [](const Tensors& in) { return d::Normal(in[1], in[2]).log_prob(in[0]); },
           [](const std::vector<Real>& x) {
             const Real z = (x[0] - x[1]) / x[2];
             return log(std::exp(-z * z / 2) / (x[2] * std::sqrt(2 * kPi)));
           }},
          {"student_t",
           "StudentT",
           {{-9, 9}, {0.5, 8}, {-1, 1}, {0.5, 2}},
           [](const Tensors& in) { return d::StudentT(in[1], in[2], in[3]).log_prob(in[0]); },
           [](const std::vector<Real>& x) {
             const Real z = (x[0] - x[2]) / x[3], df = x[1];
             return -log_beta(0.5L, df / 2) - log(df) / 2 - log(x[3]) - (df + 1) / 2 * log(1 + z * z / df);
           }},
          {"gamma",
           "Gamma",
           {{0.1, 9}, {0.3, 5}, {0.5, 2}},
           [](const Tensors& in) { return d::Gamma(in[1], in[2]).log_prob(in[0]); },
           [](const std::vector<Real>& x) {
             return log(std::pow(x[2], x[1]) * std::pow(x[0], x[1] - 1) / std::tgamma(x[1])) - x[2] * x[0];
           }},
          {"beta",
           "Beta",
           {{0.05, 0.95}, {0.3, 5}, {0.3, 5}},
           [](const Tensors& in) { return d::Beta(in[1], in[2]).log_prob(in[0]); },
           [](const std::vector<Real>& x) {
             return (x[1] - 1) * log(x[0]) + (x[2] - 1) * log(1 - x[0]) - log_beta(x[1], x[2]);
           }},
          {"poisson_distribution",
           "Poisson",
           {{}, {0.5, 9}},
           [](const Tensors& in) { return d::Poisson(in[1]).log_prob(in[0]); },
           [](const std::vector<Real>& x) { return log(std::pow(x[1], x[0]) / std::tgamma(x[0] + 1)) - x[1]; },
           12},
          {"negative_binomial",
           "NegativeBinomial",
           {{}, {0.5, 9}, {-2, 2}},
           [](const Tensors& in) { return d::NegativeBinomial(in[1], in[2]).log_prob(in[0]); },
           [](const std::vector<Real>& x) {
             const Real p = 1 / (1 + std::exp(-x[2]));
             return log_choose(x[0] + x[1] - 1, x[0]) + x[1] * log(1 - p) + x[0] * log(p);
           },
           12},
          {"bernoulli_distribution",
           "Bernoulli",
           {{}, {-6, 6}},
           [](const Tensors& in) { return d::Bernoulli(in[1]).log_prob(in[0]); },
           [](const std::vector<Real>& x) {
             const Real p = 1 / (1 + std::exp(-x[1]));
             return log(x[0] == 1 ? p : 1 - p);
           },
           2},
          {"half_cauchy",
           "HalfCauchy",
           {{0.1, 9}, {0.5, 2}},
           [](const Tensors& in) { return d::HalfCauchy(in[1]).log_prob(in[0]); },
           [](const std::vector<Real>& x) { return log(2 / (kPi * x[1] * (1 + x[0] * x[0] / (x[1] * x[1])))); }}};
}

// value [rows] beside logits [rows, cols].
OpCase categorical_row() {
  return {.name = "categorical",
          .inputs =
              [](Maker& make, Size size) {
                const Extent n = extent_of(size);
                const Tensor logits = make.uniform({n.rows, n.cols}, -3, 3);
                return Tensors{logits, make.index({n.rows}, n.cols)};
              },
          .call = [](const Tensors& in) { return d::Categorical(in[0]).log_prob(in[1]); },
          .reference =
              [](const std::vector<Ref>& in) {
                return filled(in[1].shape, [&](const auto& i) {
                  Real total = 0;
                  for (std::int64_t c = 0; c < in[0].shape[1]; ++c)
                    total += std::exp(static_cast<Real>(at(in[0], {i[0], c})));
                  return static_cast<double>(at(in[0], {i[0], static_cast<std::int64_t>(at(in[1], i))}) - log(total));
                });
              },
          .tolerance = 20,
          .bad = {{[] { d::Categorical(arange(3)); }, {"Categorical: logits must be f32 or f64", "cases.cpp"}},
                  {[] {
                     d::Categorical(ones({3, 0}));
                   },
                   {"Categorical: logits must have shape [..., classes]"}},
                  {[] { d::Categorical(ones({3})).log_prob(ones({})); }, {"value must be i32 or i64, got f32"}},
                  {[] {
                     d::Categorical(ones({2, 3})).log_prob(arange(4));
                   },
                   {"Categorical", "broadcast", "[4]"}},
                  {[] { d::Categorical(ones({3})).log_prob(arange(4)); }, {"3"}}}};
}

// --- transforms -------------------------------------------------------------------------------------------------------

using Vector = std::vector<Real>;

// A transform of vectors (or of elements, as vectors of one) from its definition.
struct Definition {
  Vector y;
  Real log_det = 0;
};

Real sigmoid_of(Real x) { return 1 / (1 + std::exp(-x)); }

Definition ordered_of(const Vector& x) {
  Definition result{{x[0]}};
  for (std::size_t i = 1; i < x.size(); ++i) {
    result.y.push_back(result.y.back() + std::exp(x[i]));
    result.log_det += x[i];
  }
  return result;
}

Definition simplex_of(const Vector& x) {
  Definition result;
  Real rest = 1;
  for (std::size_t i = 0; i < x.size(); ++i) {
    const Real share = sigmoid_of(x[i] - log(static_cast<Real>(x.size() - i)));
    result.y.push_back(share * rest);
    result.log_det += log(share * (1 - share) * rest);
    rest *= 1 - share;
  }
  result.y.push_back(rest);
  return result;
}

Definition correlation_of(const Vector& x) {
  std::size_t size = 1, next = 0;
  while (size * (size - 1) / 2 < x.size()) ++size;
  Definition result{Vector(size * size)};
  for (std::size_t i = 0; i < size; ++i) {
    Real squares = 0;
    for (std::size_t j = 0; j < i; ++j) {
      const Real z = std::tanh(x[next++]), left = 1 - squares;
      result.y[i * size + j] = z * std::sqrt(left);
      result.log_det += log(left) / 2 + log(1 - z * z);
      squares += z * z * left;
    }
    result.y[i * size + i] = std::sqrt(1 - squares);
  }
  return result;
}

// Factors l of 4 rows from 6 free numbers each.
OpCase lkj_row() {
  constexpr double kConcentration = 1.5;
  constexpr int kDim = 4;
  return {.name = "lkj_cholesky",
          .inputs =
              [](Maker& make, Size size) {
                return Tensors{make.uniform({extent_of(size).rows, kDim * (kDim - 1) / 2}, -1.5, 1.5)};
              },
          .call =
              [](const Tensors& in) {
                return d::LKJCholesky(kDim, kConcentration).log_prob(t::CorrelationCholesky().forward(in[0]));
              },
          .reference =
              [](const std::vector<Ref>& in) {
                return filled({in[0].shape[0]}, [&](const auto& r) {
                  Vector x;
                  for (std::int64_t k = 0; k < in[0].shape[1]; ++k) x.push_back(at(in[0], {r[0], k}));
                  const Vector l = correlation_of(x).y;
                  Real total = 0;
                  for (int i = 1; i < kDim; ++i) {
                    const Real half = Real(i) / 2, b = kConcentration + Real(kDim - 1 - i) / 2;
                    total += std::lgamma(b + half) - std::lgamma(b) - half * log(kPi) +
                             (2 * b - 2) * log(l[static_cast<std::size_t>(i * kDim + i)]);
                  }
                  return static_cast<double>(total);
                });
              },
          .tolerance = 200,
          .bad = {{[] { d::LKJCholesky(0, 1); }, {"LKJCholesky: dim must be at least 1, got 0", "cases.cpp"}},
                  {[] { d::LKJCholesky(2, arange(3)); }, {"LKJCholesky: concentration must be f32 or f64, got i64"}},
                  {[] {
                     d::LKJCholesky(3, 1).log_prob(ones({2, 2}));
                   },
                   {"LKJCholesky: value must have shape [..., 3, 3]", "got [2, 2]", "cases.cpp"}}}};
}

// Rows of so many elements.
std::int64_t width_of(Size size, bool triangle) {
  const std::int64_t cols = extent_of(size).cols;
  if (!triangle) return cols;
  return size == Size::large ? 36 : size == Size::odd ? 28 : size == Size::one ? 1 : 6;
}

template <class Transform>
std::vector<OpCase> vector_rows(const std::string& name, Transform transform, Definition (*define)(const Vector&),
                                bool triangle, const std::vector<BadCall>& bad) {
  const auto inputs = [=](Maker& make, Size size) {
    return Tensors{make.uniform({extent_of(size).rows, width_of(size, triangle)}, -1.5, 1.5)};
  };
  const auto reference = [=](const std::vector<Ref>& in, bool log_det) {
    const std::int64_t rows = in[0].shape[0], cols = in[0].shape[1];
    const std::int64_t width = static_cast<std::int64_t>(define(Vector(static_cast<std::size_t>(cols))).y.size());
    std::int64_t side = 1;
    while (side * side < width) ++side;
    Ref y{log_det ? Shape{rows} : triangle ? Shape{rows, side, side} : Shape{rows, width}, {}};
    for (std::int64_t r = 0; r < rows; ++r) {
      const Definition row = define(Vector(in[0].v.begin() + r * cols, in[0].v.begin() + (r + 1) * cols));
      if (log_det) y.v.push_back(static_cast<double>(row.log_det));
      else y.v.insert(y.v.end(), row.y.begin(), row.y.end());
    }
    return y;
  };
  OpCase forward{.name = name,
                 .inputs = inputs,
                 .call = [=](const Tensors& in) { return transform.forward(in[0]); },
                 .reference = [=](const std::vector<Ref>& in) { return reference(in, false); },
                 .tolerance = 200,
                 .bad = bad};
  OpCase determinant = forward, inverse = forward;
  determinant.name += "/log_det";
  determinant.call = [=](const Tensors& in) { return transform.log_abs_det_jacobian(in[0]); };
  determinant.reference = [=](const std::vector<Ref>& in) { return reference(in, true); };
  inverse.name += "/inverse";
  inverse.call = [=](const Tensors& in) { return transform.inverse(transform.forward(in[0])); };
  inverse.reference = [](const std::vector<Ref>& in) { return in[0]; };
  inverse.tolerance = 20000;  // of small differences of numbers near 1
  if (!triangle) inverse.skip = {Size::large};
  determinant.bad = inverse.bad = {};
  return {forward, determinant, inverse};
}

template <class Transform>
std::vector<OpCase> element_rows(const std::string& name, Transform transform, Real (*f)(Real), Real (*log_slope)(Real),
                                 const std::vector<BadCall>& bad) {
  OpCase forward{.name = name,
                 .inputs =
                     [](Maker& make, Size size) {
                       const Extent n = extent_of(size);
                       return Tensors{make.uniform({n.rows, n.cols}, -3, 3)};
                     },
                 .call = [=](const Tensors& in) { return transform.forward(in[0]); },
                 .reference =
                     [=](const std::vector<Ref>& in) {
                       Ref y = in[0];
                       for (double& v : y.v) v = static_cast<double>(f(v));
                       return y;
                     },
                 .bad = bad};
  OpCase determinant = forward, inverse = forward;
  determinant.name += "/log_det";
  determinant.call = [=](const Tensors& in) { return transform.log_abs_det_jacobian(in[0]); };
  determinant.reference = [=](const std::vector<Ref>& in) {
    Ref y = in[0];
    for (double& v : y.v) v = static_cast<double>(log_slope(v));
    return y;
  };
  inverse.name += "/inverse";
  inverse.call = [=](const Tensors& in) { return transform.inverse(transform.forward(in[0])); };
  inverse.reference = [](const std::vector<Ref>& in) { return in[0]; };
  inverse.tolerance = 100;
  determinant.bad = inverse.bad = {};
  return {forward, determinant, inverse};
}

// --- numbers drawn with rejection: the published methods once more, in plain C++ ---------------------------------------

struct Source {
  std::uint64_t counter;
  scalar::PhiloxBlock block() { return scalar::philox(9, 0, counter++); }
};
double open(std::uint32_t high, std::uint32_t low) { return scalar::uniform_double(high, low) + std::ldexp(1, -54); }

double gamma_number(double alpha, Source source) {
  const double shape = alpha < 1 ? alpha + 1 : alpha, third = shape - 1.0 / 3;
  for (;;) {
    const double x = scalar::normal_pair(source.block()).first, cube = std::pow(1 + x / std::sqrt(9 * third), 3);
    const scalar::PhiloxBlock block = source.block();
    const double u = open(block.lane[0], block.lane[1]), boost = open(block.lane[2], block.lane[3]);
    if (cube <= 0 || log(u) >= x * x / 2 + third - third * cube + third * log(cube)) continue;
    return third * cube * (alpha < 1 ? std::pow(boost, 1 / alpha) : 1);
  }
}

double poisson_number(double rate, Source source) {
  const Real log_rate = log(static_cast<Real>(rate));
  if (rate < 10) {
    const scalar::PhiloxBlock block = source.block();
    const double u = open(block.lane[0], block.lane[1]);
    Real below = 0;
    for (int k = 0;; ++k) {
      below += std::exp(k * log_rate - rate - std::lgamma(k + Real(1)));
      if (u <= below) return k;
    }
  }
  const double b = 0.931 + 2.53 * std::sqrt(rate), a = -0.059 + 0.02483 * b;
  for (;;) {
    const scalar::PhiloxBlock block = source.block();
    const double u = open(block.lane[0], block.lane[1]) - 0.5, v = open(block.lane[2], block.lane[3]);
    const double us = 0.5 - std::abs(u), k = std::floor((2 * a / us + b) * u + rate + 0.43);
    if (us >= 0.07 && v <= 0.9277 - 3.6224 / (b - 2)) return k;
    if (k < 0 || (us < 0.013 && v > us)) continue;
    const Real bound = k * log_rate - rate - std::lgamma(k + Real(1));
    if (log(v) + log(1.1239 + 1.1328 / (b - 3.4)) - log(a / (us * us) + b) <= bound) return k;
  }
}

OpCase drawn_row(const std::string& name, Tensor (*op)(const Tensor&, Generator*, SourceLocation),
                 double (*number)(double, Source), Range range, const std::string& parameter) {
  return {.name = name,
          .inputs =
              [range](Maker& make, Size size) {
                const Extent n = extent_of(size);
                return Tensors{make.uniform({n.rows, n.cols}, range.low, range.high)};
              },
          .call =
              [op](const Tensors& in) {
                Generator generator(9);
                generator.take(13, f32);  // 4 blocks
                return op(in[0], &generator, SourceLocation::current());
              },
          .reference =
              [number](const std::vector<Ref>& in) {
                Ref y = in[0];
                for (std::size_t i = 0; i < y.v.size(); ++i) y.v[i] = number(y.v[i], {4 + 64 * i});
                return y;
              },
          .order = 0,
          .differentiable = {},
          .tolerance = 100,
          .mixes_rows = "each place has its own random numbers",
          .bad = {{[op] { op(arange(3), nullptr, SourceLocation::current()); },
                   {name + ": " + parameter + " must be f32 or f64, got i64", "cases.cpp"}}}};
}

}  // namespace

std::vector<OpCase> distributions_cases() {
  std::vector<OpCase> rows;
  for (const Density& density : densities()) rows.push_back(density_row(density));
  rows.push_back(categorical_row());
  rows.push_back(lkj_row());
  const auto append = [&](const std::vector<OpCase>& more) { rows.insert(rows.end(), more.begin(), more.end()); };
  append(element_rows(
      "exp_transform", t::Exp(), [](Real x) { return std::exp(x); }, [](Real x) { return x; },
      {{[] { t::Exp().forward(arange(3)); }, {"exp: x must be f32 or f64, got i64", "cases.cpp"}},
       {[] { t::Exp().log_abs_det_jacobian(arange(3)); }, {"Exp: x must be f32 or f64, got i64", "cases.cpp"}}}));
  append(element_rows(
      "affine_transform", t::Affine(0.5, -3), [](Real x) { return 0.5L - 3 * x; },
      [](Real) { return std::log(Real(3)); },
      {{[] { t::Affine(arange(3), 1); }, {"Affine: loc must be f32 or f64, got i64", "cases.cpp"}},
       {[] { t::Affine(ones({2}), 1).forward(ones({3})); }, {"shapes must be equal or broadcast, got [2] and [3]"}},
       {[] { t::Affine(0, ones({2})).log_abs_det_jacobian(arange(3)); }, {"Affine: x must be f32 or f64, got i64"}}}));
  append(element_rows(
      "interval_transform", t::Interval(-1, 3), [](Real x) { return -1 + 4 * sigmoid_of(x); },
      [](Real x) { return log(4 * sigmoid_of(x) * sigmoid_of(-x)); },
      {{[] { t::Interval(2, 2); }, {"Interval: low must be below high", "cases.cpp"}},
       {[] { t::Interval(2, INFINITY); }, {"both finite"}}}));
  append(vector_rows("ordered_transform", t::Ordered(), ordered_of, false,
                     {{[] { t::Ordered().forward(ones({})); }, {"Ordered: vectors", "got shape []", "cases.cpp"}}}));
  append(vector_rows("simplex_transform", t::Simplex(), simplex_of, false,
                     {{[] {
                         t::Simplex().inverse(ones({2, 0}));
                       },
                       {"Simplex: vectors", "at least 1", "cases.cpp"}}}));
  append(vector_rows("correlation_cholesky_transform", t::CorrelationCholesky(), correlation_of, true,
                     {{[] { t::CorrelationCholesky().forward(ones({4})); }, {"d (d - 1) / 2], got [4]", "cases.cpp"}},
                      {[] { t::CorrelationCholesky().inverse(ones({4})); }, {"y must have shape [..., d, d]"}}}));
  rows.push_back(drawn_row("standard_gamma", standard_gamma, gamma_number, {0.05, 4}, "alpha"));
  rows.push_back(drawn_row("poisson", poisson, poisson_number, {0, 40}, "rate"));
  return rows;
}

}  // namespace reel::test
