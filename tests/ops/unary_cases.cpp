#include "reel/ops/unary.h"

#include <cmath>

#include "reel/ops/arithmetic.h"
#include "reel/ops/convert.h"
#include "reel/ops/create.h"
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
          .rows_alone = true,
          .bad = {{[op] { op(arange(3), SourceLocation::current()); },
                   {name, "x must be f32 or f64, got i64", "cases.cpp"}},
                  {[op] { op(Tensor(), SourceLocation::current()); }, {name, "x must be defined"}}}};
}

OpCase conversion(const std::string& name, std::function<Tensor(const Tensors&)> call) {
  return {.name = name,
          .inputs =
              [](Maker& make, Size size) {
                const Extent n = extent_of(size);
                return Tensors{make.uniform({n.rows, n.cols})};
              },
          .call = std::move(call),
          .reference = [](const std::vector<Ref>& in) { return in[0]; },
          .tolerance = 0,
          .rows_alone = true,
          .bad = {{[] { clone(Tensor()); }, {"clone", "x must be defined"}}}};
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
  rows.push_back(conversion("clone", [](const Tensors& in) { return clone(in[0]); }));
  rows.push_back(conversion("contiguous", [](const Tensors& in) { return contiguous(in[0]); }));
  rows.push_back(conversion("to", [](const Tensors& in) { return to(in[0], Device::cpu()) * 1; }));
  rows.push_back(conversion("cast", [](const Tensors& in) { return cast(cast(in[0], f64), in[0].dtype()); }));
  OpCase stopped = conversion("stop_gradient", [](const Tensors& in) { return stop_gradient(in[0]); });
  stopped.order = 0;
  stopped.differentiable = {};
  rows.push_back(stopped);
  return rows;
}

}  // namespace reel::test
