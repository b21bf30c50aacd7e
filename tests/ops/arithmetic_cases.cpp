#include "reel/ops/arithmetic.h"

#include <algorithm>

#include "reel/ops/convert.h"
#include "reel/ops/create.h"
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
void add_rows(std::vector<OpCase>& rows, const std::string& name, Op op, Function f, int order) {
  const auto both = [f](const std::vector<Ref>& in) {
    return filled(broadcast_shape(in[0].shape, in[1].shape),
                  [&](const auto& i) { return f(broadcast_at(in[0], i), broadcast_at(in[1], i)); });
  };
  const std::vector<int> gradients = order > 0 ? std::vector<int>{0, 1} : std::vector<int>{};
  const auto call = [op](const Tensors& in) { return op(in[0], in[1]); };
  const auto row = [&](const std::string& variant, auto shapes) {
    rows.push_back({.name = name + variant,
                    .inputs =
                        [shapes](Maker& make, Size size) {
                          const auto [a, b] = shapes(extent_of(size));
                          const Tensor left = make.uniform(a, -2, 2);
                          return Tensors{left, make.uniform(b, 0.5, 2)};
                        },
                    .call = call,
                    .reference = both,
                    .order = order,
                    .differentiable = gradients,
                    .tolerance = 1,
                    .rows_alone = variant == "/bias"});
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
         .tolerance = 1,
         .rows_alone = true});
  rows[rows.size() - 8].bad = misfits(name, op);
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
