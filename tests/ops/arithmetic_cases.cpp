#include "reel/ops/arithmetic.h"

#include <algorithm>
#include <cmath>

#include "reel/ops/convert.h"
#include "reel/ops/create.h"
#include "reel/ops/ragged.h"
#include "reel/ops/unary.h"
#include "reel/tests/ops/reference.h"

namespace reel::test {

namespace {

using Function = double (*)(double, double);
using Op = Tensor (*)(const Arg&, const Arg&);

std::vector<BadCall> misfits(const std::string& name, Op op) {
  return {
      {[op] {
         op(ones({2, 3}), ones({4}));
       },
       {name, "shapes must be equal or broadcast", "[2, 3]", "[4]", "cases.cpp"}},
      {[op] { op(Tensor(), ones({2})); }, {name, "the left operand must be defined"}},
      {[op] { op(1, 2); }, {name, "one operand must be a tensor"}},
  };
}

// A row for equal shapes, one for each way of broadcasting and one for plain numbers.
void add_rows(std::vector<OpCase>& rows, const std::string& name, Op op, Function f, int order, double low = -2,
              double tolerance = 1) {
  const auto both = [f](const std::vector<Ref>& in) {
    return filled(broadcast_shape(in[0].shape, in[1].shape),
                  [&](const auto& i) { return f(broadcast_at(in[0], i), broadcast_at(in[1], i)); });
  };
  const std::vector<int> gradients = order > 0 ? std::vector<int>{0, 1} : std::vector<int>{};
  const auto call = [op](const Tensors& in) { return op(in[0], in[1]); };
  const auto row = [&](const std::string& variant, auto shapes) {
    rows.push_back({.name = name + variant,
                    .inputs =
                        [shapes, low](Maker& make, Size size) {
                          const auto [a, b] = shapes(extent_of(size));
                          const Tensor left = make.uniform(a, low, 2);
                          return Tensors{left, make.uniform(b, 0.5, 2)};
                        },
                    .call = call,
                    .reference = both,
                    .order = order,
                    .differentiable = gradients,
                    .tolerance = tolerance});
  };
  using Pair = std::pair<Shape, Shape>;
  row("", [](Extent n) { return Pair{{n.rows, n.cols}, {n.rows, n.cols}}; });
  row("/bias", [](Extent n) { return Pair{{n.rows, n.cols}, {n.cols}}; });
  row("/column", [](Extent n) { return Pair{{n.rows, 1}, {n.rows, n.cols}}; });
  row("/outer", [](Extent n) { return Pair{{n.rows, 1}, {1, n.cols}}; });
  row("/scalar", [](Extent n) { return Pair{{}, {n.rows, n.cols}}; });
  row("/middle", [](Extent n) { return Pair{{2, 1, n.rows}, {n.cols, 1}}; });
  rows.back().skip = {Size::large};
  for (const bool number_left : {true, false})
    rows.push_back(
        {.name = name + (number_left ? "/number_left" : "/number_right"),
         .inputs =
             [](Maker& make, Size size) {
               const Extent n = extent_of(size);
               return Tensors{make.uniform({n.rows, n.cols}, 0.25, 2)};
             },
         .call = [op, number_left](const Tensors& in) { return number_left ? op(1.5, in[0]) : op(in[0], 1.5); },
         .reference =
             [f, number_left](const std::vector<Ref>& in) {
               Ref y = in[0];
               for (double& v : y.v) v = number_left ? f(1.5, v) : f(v, 1.5);
               return y;
             },
         .order = order,
         .differentiable = order > 0 ? std::vector<int>{0} : std::vector<int>{},
         .tolerance = tolerance});
  rows[rows.size() - 8].bad = misfits(name, op);
}

// Exponents that are made of other ops, one that is not, and a Ragged with what may stand beside it.
void add_powers(std::vector<OpCase>& rows) {
  using Call = std::function<Tensor(const Tensors&)>;
  const auto row = [&](const std::string& variant, const Call& call, Function f, bool both) {
    rows.push_back({.name = "pow" + variant,
                    .inputs =
                        [both](Maker& make, Size size) {
                          const Extent n = extent_of(size);
                          const Tensor x = make.uniform({n.rows, n.cols}, 0.25, 2);
                          return both ? Tensors{x, make.uniform({n.rows, n.cols})} : Tensors{x};
                        },
                    .call = call,
                    .reference =
                        [f, both](const std::vector<Ref>& in) {
                          Ref y = in[0];
                          for (std::size_t i = 0; i < y.v.size(); ++i) y.v[i] = f(y.v[i], both ? in[1].v[i] : 0);
                          return y;
                        },
                    .differentiable = both ? std::vector<int>{0, 1} : std::vector<int>{0}});
  };
  row(
      "/square", [](const Tensors& in) { return pow(in[0], 2); }, [](double x, double) { return x * x; }, false);
  row(
      "/cube", [](const Tensors& in) { return pow(in[0], 3); }, [](double x, double) { return x * x * x; }, false);
  row(
      "/root", [](const Tensors& in) { return pow(in[0], 0.5); }, [](double x, double) { return std::sqrt(x); }, false);
  row(
      "/inverse_root", [](const Tensors& in) { return pow(in[0], -0.5); },
      [](double x, double) { return 1 / std::sqrt(x); }, false);
  row(
      "/one", [](const Tensors& in) { return pow(in[0], 1); }, [](double x, double) { return x; }, false);
  row(
      "/inverse", [](const Tensors& in) { return pow(in[0], -1); }, [](double x, double) { return 1 / x; }, false);
  row(
      "/zero", [](const Tensors& in) { return pow(in[0], 0); }, [](double, double) { return 1.0; }, false);
  row(
      "/odd_of_negative", [](const Tensors& in) { return pow(-in[0], 5); },
      [](double x, double) { return -std::pow(x, 5); }, false);
  rows.back().tolerance = 60;  // up to 32, against 1
  rows.back().bad = {{[] { pow(arange(3), -1); }, {"pow", "an exponent of at least 0, got -1", "cases.cpp"}}};
  const auto ragged = [](const Tensor& x) { return Ragged::from_lengths(x, {0, x.shape()[0]}); };
  row(
      "/ragged", [ragged](const Tensors& in) { return pow(ragged(in[0]), ragged(in[1])).values(); },
      [](double x, double y) { return std::pow(x, y); }, true);
  row(
      "/ragged_number", [ragged](const Tensors& in) { return pow(ragged(in[0]), 1.75).values(); },
      [](double x, double) { return std::pow(x, 1.75); }, false);
  row(
      "/ragged_exponent", [ragged](const Tensors& in) { return pow(1.75, ragged(in[0])).values(); },
      [](double x, double) { return std::pow(1.75, x); }, false);
}

}  // namespace

std::vector<OpCase> arithmetic_cases() {
  std::vector<OpCase> rows;
  add_rows(
      rows, "add", add, [](double a, double b) { return a + b; }, 2);
  add_rows(
      rows, "sub", sub, [](double a, double b) { return a - b; }, 2);
  add_rows(
      rows, "mul", mul, [](double a, double b) { return a * b; }, 2);
  add_rows(
      rows, "div", div, [](double a, double b) { return a / b; }, 2);
  add_rows(
      rows, "maximum", maximum, [](double a, double b) { return std::max(a, b); }, 2);
  add_rows(
      rows, "minimum", minimum, [](double a, double b) { return std::min(a, b); }, 2);
  add_rows(
      rows, "pow", pow, [](double a, double b) { return std::pow(a, b); }, 2, 0.25, 4);
  add_powers(rows);
  add_rows(
      rows, "equal", equal, [](double a, double b) { return double(a == b); }, 0);
  add_rows(
      rows, "not_equal", not_equal, [](double a, double b) { return double(a != b); }, 0);
  add_rows(
      rows, "less", less, [](double a, double b) { return double(a < b); }, 0);
  add_rows(
      rows, "less_equal", less_equal, [](double a, double b) { return double(a <= b); }, 0);
  add_rows(
      rows, "greater", greater, [](double a, double b) { return double(a > b); }, 0);
  add_rows(
      rows, "greater_equal", greater_equal, [](double a, double b) { return double(a >= b); }, 0);
  return rows;
}

}  // namespace reel::test
