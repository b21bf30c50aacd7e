#include "reel/ops/reduce.h"

#include <algorithm>
#include <cmath>

#include "reel/ops/arithmetic.h"
#include "reel/ops/create.h"
#include "reel/tests/ops/reference.h"

namespace reel::test {

namespace {

using Op = Tensor (*)(const Tensor&, const Axes&, Keep, SourceLocation);
using Fold = double (*)(const std::vector<double>&);

// The elements of x that fall on each element of the result when the axes in `mask` are reduced.
Ref folded(const Ref& x, std::uint32_t mask, bool keep, Fold fold) {
  Shape kept, result;
  for (int i = 0; i < x.shape.rank(); ++i) {
    const bool gone = (mask >> i & 1) != 0;
    kept.push_back(gone ? 1 : x.shape[i]);
    if (keep || !gone) result.push_back(gone ? 1 : x.shape[i]);
  }
  std::vector<std::vector<double>> groups(static_cast<std::size_t>(kept.size()));
  for (std::int64_t e = 0; e < x.shape.size(); ++e) {
    std::vector<std::int64_t> index = index_of(e, x.shape);
    for (int i = 0; i < x.shape.rank(); ++i)
      if ((mask >> i & 1) != 0) index[static_cast<std::size_t>(i)] = 0;
    groups[static_cast<std::size_t>(flat_of(index, kept))].push_back(x.v[static_cast<std::size_t>(e)]);
  }
  Ref y{result, {}};
  for (const auto& group : groups) y.v.push_back(fold(group));
  return y;
}

void add_rows(std::vector<OpCase>& rows, const std::string& name, Op op, Fold fold, bool distinct) {
  struct Form {
    const char* variant;
    Axes axes;
    std::uint32_t mask;
    Keep keep;
  };
  const std::vector<Form> forms = {{"", {}, 7, Keep::no},
                                   {"/all_kept", {}, 7, Keep::yes},
                                   {"/last", -1, 4, Keep::no},
                                   {"/first", 0, 1, Keep::no},
                                   {"/middle", 1, 2, Keep::yes},
                                   {"/outer_pair", {0, 2}, 5, Keep::no},
                                   {"/inner_pair", {1, 2}, 6, Keep::no}};
  for (const Form& form : forms)
    rows.push_back(
        {.name = name + form.variant,
         .inputs =
             [distinct](Maker& make, Size size) {
               const Extent n = extent_of(size);
               const Shape shape{n.rows, 2, n.cols};
               return Tensors{distinct ? make.distinct(shape) : make.uniform(shape)};
             },
         .call = [op, form](const Tensors& in) { return op(in[0], form.axes, form.keep, SourceLocation::current()); },
         .reference =
             [form, fold](const std::vector<Ref>& in) {
               return folded(in[0], form.mask, form.keep == Keep::yes, fold);
             },
         .tolerance = 40,
         .rows_alone = (form.mask & 1) == 0});
  rows[rows.size() - forms.size()].bad = {
      {[op] {
         op(ones({2, 3}), 2, Keep::no, SourceLocation::current());
       },
       {name, "axis must be in [-2, 2), got 2", "cases.cpp"}},
      {[op] {
         op(ones({2, 3}), {0, -2}, Keep::no, SourceLocation::current());
       },
       {name, "axis 0 twice"}},
      {[op] { op(Tensor(), {}, Keep::no, SourceLocation::current()); }, {name, "x must be defined"}}};
}

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
  add_rows(rows, "sum", sum, sum_of, false);
  add_rows(rows, "mean", mean, mean_of, false);
  add_rows(rows, "max", max, max_of, true);
  add_rows(rows, "min", min, min_of, true);
  add_rows(rows, "amax", amax, max_of, true);
  add_rows(rows, "amin", amin, min_of, true);
  rows.push_back(position("argmax", argmax, true));
  rows.push_back(position("argmin", argmin, false));
  return rows;
}

}  // namespace reel::test
