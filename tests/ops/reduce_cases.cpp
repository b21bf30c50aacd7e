#include "reel/ops/reduce.h"

#include <algorithm>
#include <cmath>

#include "reel/ops/arithmetic.h"
#include "reel/ops/create.h"
#include "reel/tests/ops/reduction_cases.h"
#include "reel/tests/ops/reference.h"

namespace reel::test {

namespace {

OpCase position(const std::string& name, Tensor (*op)(const Tensor&, int, Keep, SourceLocation), bool largest) {
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
          .rows_alone = true,
          .bad = {{[op] {
                     op(ones({2, 0}), 1, Keep::no, SourceLocation::current());
                   },
                   {name, "must not be empty", "[2, 0]"}},
                  {[op] { op(ones({2}), 1, Keep::no, SourceLocation::current()); },
                   {name, "axis must be in [-1, 1), got 1"}}}};
}

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
  rows.push_back(position("argmax", argmax, true));
  rows.push_back(position("argmin", argmin, false));
  return rows;
}

}  // namespace reel::test
