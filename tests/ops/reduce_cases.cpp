#include "reel/ops/reduce.h"

#include <algorithm>
#include <cmath>

#include "reel/ops/arithmetic.h"
#include "reel/ops/create.h"
#include "reel/ops/ragged.h"
#include "reel/tests/ops/reduction_cases.h"
#include "reel/tests/ops/reference.h"

namespace reel::test {

namespace {

using Which = Tensor (*)(const Tensor&, int, Keep, SourceLocation);
OpCase position(const std::string& name, Which op, bool largest) {
  return {.name = name,
          .inputs =
              [](Maker& make, Size size) {
                const Extent n = extent_of(size);
                return Tensors{make.distinct({n.rows, n.cols})};
              },
          .call = [op](const Tensors& in) { return op(in[0], 1, Keep::no, SourceLocation::current()); },
          .reference =
              [largest](const std::vector<Ref>& in) {
                return filled({in[0].shape[0]}, [&](const auto& i) {
                  const auto row = in[0].v.begin() + i[0] * in[0].shape[1];
                  const auto end = row + in[0].shape[1];
                  return static_cast<double>((largest ? std::max_element(row, end) : std::min_element(row, end)) - row);
                });
              },
          .order = 0,
          .differentiable = {},
          .tolerance = 0,
          .bad = {{[op] {
                     op(ones({2, 0}), 1, Keep::no, SourceLocation::current());
                   },
                   {name, "must not be empty", "[2, 0]"}},
                  {[op] { op(ones({2}), 1, Keep::no, SourceLocation::current()); },
                   {name, "axis must be in [-1, 1), got 1"}}}};
}

// Over all axes.
OpCase place(const std::string& name, const std::function<Tensor(const Tensor&)>& op, const Fold& fold) {
  return {.name = name + "/all",
          .inputs =
              [](Maker& make, Size size) {
                const Extent n = extent_of(size);
                return Tensors{make.distinct({n.rows, 2, n.cols})};
              },
          .call = [op](const Tensors& in) { return op(in[0]); },
          .reference =
              [fold](const std::vector<Ref>& in) {
                return Ref{{}, {fold(in[0].v)}};
              },
          .order = 0,
          .differentiable = {},
          .tolerance = 0,
          .skip = {Size::empty},
          .bad = {{[op] {
                     op(ones({2, 0}));
                   },
                   {name, "x must not be empty, got shape [2, 0]"}},
                  {[op] { op(Tensor()); }, {name, "x must be defined"}}}};
}

// An empty sequence's infinity would make every difference NaN.
constexpr double kBound = 100;

double sum_of(const std::vector<double>& v) {
  long double total = 0;
  for (const double x : v) total += x;
  return static_cast<double>(total);
}

}  // namespace

std::vector<OpCase> reduce_cases() {
  const Fold mean_of = [](const std::vector<double>& v) {
    return v.empty() ? NAN : sum_of(v) / static_cast<double>(v.size());
  };
  const Fold max_of = [](const std::vector<double>& v) {
    return v.empty() ? -INFINITY : *std::max_element(v.begin(), v.end());
  };
  const Fold min_of = [](const std::vector<double>& v) {
    return v.empty() ? INFINITY : *std::min_element(v.begin(), v.end());
  };
  const Fold product_of = [](const std::vector<double>& v) {
    double product = 1;
    for (const double x : v) product *= x;
    return product;
  };
  const Fold place_of_max = [](const std::vector<double>& v) {
    return v.empty() ? -1.0 : static_cast<double>(std::max_element(v.begin(), v.end()) - v.begin());
  };
  const Fold place_of_min = [](const std::vector<double>& v) {
    return v.empty() ? -1.0 : static_cast<double>(std::min_element(v.begin(), v.end()) - v.begin());
  };
  std::vector<OpCase> rows;
  using Op = Tensor (*)(const Tensor&, const Axes&, Keep, SourceLocation);
  const auto add = [&](const char* name, Op op, const Fold& fold, Numbers numbers) {
    add_reduction(rows, {name, op, fold, numbers});
  };
  add("sum", sum, sum_of, Numbers::any);
  add("mean", mean, mean_of, Numbers::any);
  add("max", max, max_of, Numbers::distinct);
  add("min", min, min_of, Numbers::distinct);
  add("amax", amax, max_of, Numbers::distinct);
  add("amin", amin, min_of, Numbers::distinct);
  add("prod", prod, product_of, Numbers::near_one);
  rows.push_back(position("argmax", argmax, true));
  rows.push_back(position("argmin", argmin, false));
  rows.push_back(place(
      "argmax", [](const Tensor& x) { return argmax(x); }, place_of_max));
  rows.push_back(place(
      "argmin", [](const Tensor& x) { return argmin(x); }, place_of_min));
  const Which winner = [](const Tensor& x, int axis, Keep keep, SourceLocation at) {
    return max_which(x, axis, keep, at).which;
  };
  rows.push_back(position("max_which", winner, true));
  rows.push_back(position(
      "min_which",
      [](const Tensor& x, int axis, Keep keep, SourceLocation at) { return min_which(x, axis, keep, at).which; },
      false));

  const Fold bounded_max = [](const std::vector<double>& v) {
    return v.empty() ? -kBound : std::max(-kBound, *std::max_element(v.begin(), v.end()));
  };
  const Fold bounded_min = [](const std::vector<double>& v) {
    return v.empty() ? kBound : std::min(kBound, *std::min_element(v.begin(), v.end()));
  };
  rows.push_back(per_sequence(
      "sum", [](const Ragged& x) { return sum(x); }, sum_of));
  rows.push_back(per_sequence(
      "mean", [](const Ragged& x) { return mean(x); }, [=](const auto& v) { return v.empty() ? 0 : mean_of(v); }));
  rows.push_back(per_sequence(
      "max", [](const Ragged& x) { return maximum(max(x), -kBound); }, bounded_max, Numbers::distinct));
  rows.push_back(per_sequence(
      "min", [](const Ragged& x) { return minimum(min(x), kBound); }, bounded_min, Numbers::distinct));
  rows.push_back(per_sequence(
      "prod", [](const Ragged& x) { return prod(x); }, product_of, Numbers::near_one));
  rows.push_back(per_sequence(
      "amax", [](const Ragged& x) { return maximum(amax(x), -kBound); }, bounded_max, Numbers::distinct));
  rows.push_back(per_sequence(
      "amin", [](const Ragged& x) { return minimum(amin(x), kBound); }, bounded_min, Numbers::distinct));
  rows.push_back(per_sequence(
      "max_which", [](const Ragged& x) { return maximum(max_which(x).y, -kBound); }, bounded_max, Numbers::distinct));
  rows.push_back(per_sequence(
      "min_which", [](const Ragged& x) { return minimum(min_which(x).y, kBound); }, bounded_min, Numbers::distinct));
  for (OpCase row : {per_sequence(
                         "argmax", [](const Ragged& x) { return argmax(x); }, place_of_max, Numbers::distinct),
                     per_sequence(
                         "argmin", [](const Ragged& x) { return argmin(x); }, place_of_min, Numbers::distinct)}) {
    row.order = 0;
    row.differentiable = {};
    rows.push_back(row);
  }
  rows.push_back(per_row(
      "prod", [](const Ragged& x, int axis) { return prod(x, axis); }, product_of, Numbers::near_one));
  rows.push_back(per_row(
      "amax", [](const Ragged& x, int axis) { return amax(x, axis); }, max_of, Numbers::distinct));
  rows.push_back(per_row(
      "amin", [](const Ragged& x, int axis) { return amin(x, axis); }, min_of, Numbers::distinct));
  for (OpCase row :
       {per_row(
            "argmax", [](const Ragged&x, int axis) { return argmax(x, axis); }, place_of_max, Numbers::distinct),
        per_row(
            "argmin", [](const Ragged&x, int axis) { return argmin(x, axis); }, place_of_min, Numbers::distinct)}) {
    row.order = 0;
    row.differentiable = {};
    rows.push_back(row);
  }
  return rows;
}

}  // namespace reel::test
