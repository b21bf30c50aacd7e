#include "reel/ops/distributions.h"

#include <cmath>
#include <numbers>

#include "reel/core/scalar/philox.h"
#include "reel/ops/create.h"
#include "reel/ops/sampling.h"
#include "reel/ops/views.h"
#include "reel/tests/ops/reference.h"

namespace reel::test {

namespace {

namespace d = distributions;
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
          {call(ones({2}), ones({3})), {density.type + ": shapes must be equal or broadcast, got [2]", "[3]"}},
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
                std::vector<Real> x(in.size());
                return filled(in[0].shape, [&](const auto& i) {
                  for (std::size_t part = 0; part < in.size(); ++part) x[part] = broadcast_at(in[part], i);
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
  rows.push_back(drawn_row("standard_gamma", standard_gamma, gamma_number, {0.05, 4}, "alpha"));
  rows.push_back(drawn_row("poisson", poisson, poisson_number, {0, 40}, "rate"));
  return rows;
}

}  // namespace reel::test
