#include "reel/ops/unary.h"

#include <cmath>

#include "reel/ops/activations.h"
#include "reel/ops/arithmetic.h"
#include "reel/ops/convert.h"
#include "reel/ops/create.h"
#include "reel/ops/elementwise.h"
#include "reel/tests/ops/reference.h"

namespace reel::test {

namespace {

using Op = Tensor (*)(const Tensor&, SourceLocation);

OpCase row(const std::string& name, Op op, double (*f)(double), double low, double high, double tolerance) {
  return {.name = name,
          .inputs =
              [low, high](Maker& make, Size size) {
                const Extent n = extent_of(size);
                return Tensors{make.uniform({n.rows, n.cols}, low, high)};
              },
          .call = [op](const Tensors& in) { return op(in[0], SourceLocation::current()); },
          .reference =
              [f](const std::vector<Ref>& in) {
                Ref y = in[0];
                for (double& v : y.v) v = f(v);
                return y;
              },
          .tolerance = tolerance,
          .bad = {{[op] { op(Tensor(), SourceLocation::current()); }, {name, "x must be defined", "cases.cpp"}}}};
}

// Not for integers, which the functions above take as f32 or keep.
OpCase activation(const std::string& name, Op op, double (*f)(double), double low, double high, double tolerance) {
  OpCase result = row(name, op, f, low, high, tolerance);
  result.bad.push_back(
      {[op] { op(arange(3), SourceLocation::current()); }, {name, "x must be f32 or f64, got i64", "cases.cpp"}});
  return result;
}

// Moved up by the recurrence to where the asymptotic series (Abramowitz and Stegun, 6.3.18) is exact to double.
double digamma_of(double x) {
  double shift = 0;
  for (; x < 20; ++x) shift -= 1 / x;
  const double r = 1 / (x * x);
  const double series = r * (1.0 / 12 - r * (1.0 / 120 - r * (1.0 / 252 - r * (1.0 / 240 - r / 132))));
  return shift + std::log(x) - 0.5 / x - series;
}

// A sum, and an integral with its first corrections (Euler and Maclaurin) for the rest.
double polygamma_of(int n, double x) {
  const auto power = [](long double base, int exponent) {
    long double product = 1;
    for (int i = 0; i < exponent; ++i) product *= base;
    return product;
  };
  constexpr int kTerms = 60;
  const long double r = 1 / (static_cast<long double>(x) + kTerms), r2 = r * r;
  const int rising = (n + 2) * (n + 3);
  long double sum =
      power(r, n) *
      (1.0L / n + r / 2 + (n + 1) * r2 * (1.0L / 12 - rising * r2 * (1.0L / 720 - (n + 4) * (n + 5) * r2 / 30240)));
  for (int k = kTerms - 1; k >= 0; --k) sum += power(1 / (static_cast<long double>(x) + k), n + 1);
  return (n % 2 == 0 ? -1 : 1) * std::tgamma(n + 1.0) * static_cast<double>(sum);
}

OpCase conversion(const std::string& name, std::function<Tensor(const Tensor&)> op) {
  return {.name = name,
          .inputs =
              [](Maker& make, Size size) {
                const Extent n = extent_of(size);
                return Tensors{make.uniform({n.rows, n.cols})};
              },
          .call = [op](const Tensors& in) { return op(in[0]); },
          .reference = [](const std::vector<Ref>& in) { return in[0]; },
          .tolerance = 0,
          .bad = {{[op] { op(Tensor()); }, {name + ": x must be defined", "cases.cpp"}}}};
}

}  // namespace

std::vector<OpCase> unary_cases() {
  std::vector<OpCase> rows;
  rows.push_back(row(
      "neg", neg, [](double x) { return -x; }, -2, 2, 0));
  rows.push_back(row(
      "exp", exp, [](double x) { return std::exp(x); }, -5, 5, 2));
  rows.push_back(row(
      "log", log, [](double x) { return std::log(x); }, 0.1, 20, 2));
  rows.push_back(row(
      "tanh", tanh, [](double x) { return std::tanh(x); }, -4, 4, 2));
  rows.push_back(row(
      "sigmoid", sigmoid, [](double x) { return 1 / (1 + std::exp(-x)); }, -8, 8, 2));
  rows.push_back(row(
      "sqrt", sqrt, [](double x) { return std::sqrt(x); }, 0.1, 9, 1));
  rows.push_back(row(
      "square", square, [](double x) { return x * x; }, -3, 3, 1));
  OpCase at_kinks = row(
      "relu", relu, [](double x) { return x > 0 ? x : 0; }, -2, 2, 0);
  at_kinks.inputs = [](Maker& make, Size size) {
    const Extent n = extent_of(size);
    return Tensors{make.distinct({n.rows, n.cols})};
  };
  rows.push_back(at_kinks);
  OpCase absolute = row(
      "abs", abs, [](double x) { return std::abs(x); }, -2, 2, 0);
  absolute.inputs = at_kinks.inputs;
  rows.push_back(absolute);
  rows.push_back(row(
      "expm1", expm1, [](double x) { return std::expm1(x); }, -2, 2, 2));
  rows.push_back(row(
      "log1p", log1p, [](double x) { return std::log1p(x); }, -0.9, 5, 2));
  rows.push_back(row(
      "rsqrt", rsqrt, [](double x) { return 1 / std::sqrt(x); }, 0.2, 9, 2));
  rows.push_back(row(
      "sin", sin, [](double x) { return std::sin(x); }, -9, 9, 2));
  rows.push_back(row(
      "cos", cos, [](double x) { return std::cos(x); }, -9, 9, 2));
  rows.push_back(row(
      "erf", erf, [](double x) { return std::erf(x); }, -3, 3, 2));
  rows.push_back(row(
      "erfc", erfc, [](double x) { return std::erfc(x); }, -3, 3, 2));
  rows.push_back(row(
      "lgamma", lgamma, [](double x) { return std::lgamma(x); }, 0.2, 9, 4));
  rows.push_back(row("digamma", digamma, digamma_of, 0.3, 9, 8));
  const auto polygammas = [&](const std::string& variant, int n, auto call) {
    rows.push_back(row("polygamma", nullptr, nullptr, 0.5, 9, 4));
    rows.back().name += variant;
    rows.back().call = call;
    rows.back().reference = [n](const std::vector<Ref>& in) {
      Ref y = in[0];
      for (double& v : y.v) v = polygamma_of(n, v);
      return y;
    };
    rows.back().bad = {};
  };
  polygammas("", 1, [](const Tensors& in) { return polygamma(1, in[0]); });
  rows.back().bad = {{[] { polygamma(1, Tensor()); }, {"polygamma", "x must be defined", "cases.cpp"}},
                     {[] { polygamma(-1, ones({2})); }, {"polygamma", "n must be at least 0, got -1", "cases.cpp"}}};
  polygammas("/third", 3, [](const Tensors& in) { return polygamma(3, in[0]); });
  polygammas("/ragged", 2, [](const Tensors& in) {
    return polygamma(2, Ragged::from_lengths(in[0], {0, in[0].shape()[0]})).values();
  });
  rows.push_back(row(
      "sign", sign, [](double x) { return double(x > 0) - double(x < 0); }, -2, 2, 0));
  rows.back().inputs = at_kinks.inputs;
  rows.push_back(row(
      "log1mexp", log1mexp, [](double x) { return std::log(-std::expm1(-x)); }, 0.2, 5, 4));
  rows.push_back(row(
      "logit", logit, [](double x) { return std::log(x / (1 - x)); }, 0.1, 0.9, 4));
  rows.push_back(row(
      "log_ndtr", log_ndtr, [](double x) { return std::log(0.5 * std::erfc(-x / std::sqrt(2.0))); }, -4, 4, 4));
  rows.push_back(activation(
      "gelu", gelu, [](double x) { return 0.5 * x * std::erfc(-x / std::sqrt(2.0)); }, -4, 4, 4));
  rows.push_back(activation(
      "gelu_tanh", gelu_tanh,
      [](double x) { return 0.5 * x * (1 + std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x))); }, -4, 4, 4));
  rows.push_back(activation(
      "silu", silu, [](double x) { return x / (1 + std::exp(-x)); }, -6, 6, 4));
  rows.push_back(activation(
      "mish", mish, [](double x) { return x * std::tanh(std::log1p(std::exp(x))); }, -6, 6, 4));
  rows.push_back(activation(
      "softplus", softplus, [](double x) { return std::log1p(std::exp(x)); }, -6, 6, 4));
  rows.push_back(activation(
      "logsigmoid", logsigmoid, [](double x) { return -std::log1p(std::exp(-x)); }, -6, 6, 4));
  const auto hard = [](double x) { return std::fmin(std::fmax(x / 6 + 0.5, 0.0), 1.0); };
  rows.push_back(activation("hard_sigmoid", hard_sigmoid, hard, -2, 2, 1));
  rows.back().inputs = at_kinks.inputs;
  rows.push_back(activation(
      "hard_tanh", hard_tanh, [](double x) { return std::fmin(std::fmax(x, -1.0), 1.0); }, -2, 2, 0));
  rows.back().inputs = at_kinks.inputs;
  rows.push_back(activation(
      "hard_swish", hard_swish, [](double x) { return x * std::fmin(std::fmax(x / 6 + 0.5, 0.0), 1.0); }, -2, 2, 2));
  rows.back().inputs = at_kinks.inputs;
  rows.push_back(activation(
      "dish", dish, [](double x) { return 0.5 * x * (x / std::sqrt(1 + x * x) + 1); }, -4, 4, 2));
  rows.push_back(conversion("clone", [](const Tensor& x) { return clone(x); }));
  rows.push_back(conversion("contiguous", [](const Tensor& x) { return contiguous(x); }));
  rows.push_back(conversion("to", [](const Tensor& x) {
    const Tensor y = to(x, Device::cpu()) * 1;
    return to(y, x.device());
  }));
  rows.push_back(conversion("cast", [](const Tensor& x) {
    const Tensor wide = cast(x, f64);
    return cast(wide, x.dtype());
  }));
  OpCase stopped = conversion("stop_gradient", [](const Tensor& x) { return stop_gradient(x); });
  stopped.order = 0;
  stopped.differentiable = {};
  rows.push_back(stopped);
  return rows;
}

}  // namespace reel::test
