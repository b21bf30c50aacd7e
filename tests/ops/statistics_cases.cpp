#include "reel/ops/statistics.h"

#include <algorithm>
#include <cmath>

#include "reel/ops/arithmetic.h"
#include "reel/ops/create.h"
#include "reel/tests/ops/reference.h"

namespace reel::test {

namespace {

using Op = std::function<Tensor(const Tensor&, const Axes&, Keep, SourceLocation)>;
using Fold = std::function<double(const std::vector<double>&)>;

// The elements of x [rows, 2, cols] that fall on each element of the result when the axes in `mask` are reduced.
Ref folded(const Ref& x, std::uint32_t mask, bool keep, const Fold& fold) {
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

std::vector<BadCall> misuse(const std::string& name, const Op& op) {
  return {{[op] {
             op(ones({2, 3}), 2, Keep::no, SourceLocation::current());
           },
           {name, "axis must be in [-2, 2), got 2", "cases.cpp"}},
          {[op] {
             op(ones({2, 3}), {0, -2}, Keep::no, SourceLocation::current());
           },
           {name, "axis 0 twice"}},
          {[op] { op(Tensor(), {}, Keep::no, SourceLocation::current()); }, {name, "x must be defined"}}};
}

BadCall integers(const std::string& name, const Op& op) {
  return {[op] { op(arange(3), {}, Keep::no, SourceLocation::current()); }, {name, "x must be f32 or f64, got i64"}};
}

// How inputs come about, and what may be asked of the results.
struct Kind {
  bool zeros = false;  // integers 0 and 1, no gradient
  std::vector<Size> skip = {};
};

void add_rows(std::vector<OpCase>& rows, const std::string& name, const Op& op, const Fold& fold, const Kind& kind) {
  struct Form {
    const char* variant;
    Axes axes;
    std::uint32_t mask;
    Keep keep;
  };
  const std::vector<Form> forms = {{"", {}, 7, Keep::no},
                                   {"/last", -1, 4, Keep::no},
                                   {"/first", 0, 1, Keep::yes},
                                   {"/outer_pair", {0, 2}, 5, Keep::no}};
  for (const Form& form : forms)
    rows.push_back(
        {.name = name + form.variant,
         .inputs =
             [zeros = kind.zeros](Maker& make, Size size) {
               const Extent n = extent_of(size);
               const Shape shape{n.rows, 2, n.cols};
               return Tensors{zeros ? make.index(shape, 2) : make.uniform(shape)};
             },
         .call = [op, form](const Tensors& in) { return op(in[0], form.axes, form.keep, SourceLocation::current()); },
         .reference =
             [form, fold](const std::vector<Ref>& in) {
               return folded(in[0], form.mask, form.keep == Keep::yes, fold);
             },
         .order = kind.zeros ? 0 : 2,
         .differentiable = kind.zeros ? std::vector<int>{} : std::vector<int>{0},
         .tolerance = 40,
         .rows_alone = (form.mask & 1) == 0,
         .skip = kind.skip});
  rows[rows.size() - forms.size()].bad = misuse(name, op);
  if (!kind.zeros) rows[rows.size() - forms.size()].bad.push_back(integers(name, op));
}

// Sequences of no rows, of one, and of the rest.
std::vector<std::int64_t> lengths_for(std::int64_t rows) {
  return {0, std::min<std::int64_t>(rows, 1), rows - std::min<std::int64_t>(rows, 1)};
}
Ragged ragged(const Tensor& values) { return Ragged::from_lengths(values, lengths_for(values.shape()[0])); }

// An empty sequence's infinity would make every difference NaN.
constexpr double kLowest = -16;

OpCase per_sequence(const std::string& name, std::function<Tensor(const Ragged&)> op, const Fold& fold) {
  return {.name = name + "/ragged",
          .inputs =
              [](Maker& make, Size size) {
                const Extent n = extent_of(size);
                return Tensors{make.uniform({n.rows, n.cols})};
              },
          .call = [op](const Tensors& in) { return op(ragged(in[0])); },
          .reference =
              [fold](const std::vector<Ref>& in) {
                const auto lengths = lengths_for(in[0].shape[0]);
                return filled({3, in[0].shape[1]}, [&](const auto& i) {
                  std::vector<double> column;
                  const std::int64_t begin = i[0] == 2 ? lengths[1] : 0;
                  for (std::int64_t r = begin; r < begin + lengths[static_cast<std::size_t>(i[0])]; ++r)
                    column.push_back(at(in[0], {r, i[1]}));
                  return fold(column);
                });
              },
          .tolerance = 40};
}

OpCase per_row(const std::string& name, std::function<Ragged(const Ragged&, const Axes&)> op, const Fold& fold) {
  return {.name = name + "/ragged_rows",
          .inputs =
              [](Maker& make, Size size) {
                const Extent n = extent_of(size);
                return Tensors{make.uniform({n.rows, n.cols + 1})};
              },
          .call = [op](const Tensors& in) { return op(ragged(in[0]), 1).values(); },
          .reference = [fold](const std::vector<Ref>& in) { return folded(in[0], 2, false, fold); },
          .tolerance = 40,
          .bad = {{[op] {
                     op(ragged(ones({2, 3})), 0);
                   },
                   {name, "behind the rows' axis 0"}}}};
}

double variance(const std::vector<double>& v, double correction) {
  long double mean = 0, squares = 0;
  for (const double x : v) mean += x / static_cast<long double>(v.size());
  for (const double x : v) squares += (x - mean) * (x - mean);
  return static_cast<double>(squares) / std::max(0.0, static_cast<double>(v.size()) - correction);
}

double norm_of(const std::vector<double>& v) {
  long double squares = 0;
  for (const double x : v) squares += x * x;
  return static_cast<double>(std::sqrt(squares));
}

double log_sum(const std::vector<double>& v) {
  double total = 0;
  for (const double x : v) total += std::exp(x);
  return std::log(total);
}

}  // namespace

std::vector<OpCase> statistics_cases() {
  std::vector<OpCase> rows;
  const auto variance_of = [](const std::vector<double>& v) { return variance(v, 1); };
  const auto deviation_of = [](const std::vector<double>& v) { return std::sqrt(variance(v, 1)); };
  const Op vars = [](const Tensor& x, const Axes& axes, Keep keep, SourceLocation at) {
    return var(x, axes, 1, keep, at);
  };
  const Op deviations = [](const Tensor& x, const Axes& axes, Keep keep, SourceLocation at) {
    return stddev(x, axes, 1, keep, at);
  };
  const Op norms = [](const Tensor& x, const Axes& axes, Keep keep, SourceLocation at) {
    return norm(x, axes, keep, at);
  };
  const Op log_sums = [](const Tensor& x, const Axes& axes, Keep keep, SourceLocation at) {
    return logsumexp(x, axes, keep, at);
  };
  // Of one element the variance is NaN.
  add_rows(rows, "var", vars, variance_of, {.skip = {Size::one}});
  add_rows(rows, "stddev", deviations, deviation_of, {.skip = {Size::one}});
  add_rows(rows, "norm", norms, norm_of, {});
  add_rows(rows, "logsumexp", log_sums, log_sum, {});
  add_rows(rows, "any", any,
           [](const std::vector<double>& v) {
             return double(std::any_of(v.begin(), v.end(), [](double x) { return x != 0; }));
           },
           {.zeros = true});
  add_rows(rows, "all", all,
           [](const std::vector<double>& v) {
             return double(std::all_of(v.begin(), v.end(), [](double x) { return x != 0; }));
           },
           {.zeros = true});
  rows.push_back(per_sequence(
      "norm", [](const Ragged& x) { return norm(x); }, norm_of));
  rows.push_back(per_sequence(
      "logsumexp", [](const Ragged& x) { return maximum(logsumexp(x), kLowest); },
      [](const std::vector<double>& v) { return v.empty() ? kLowest : log_sum(v); }));
  rows.push_back(per_row(
      "var", [](const Ragged& x, const Axes& axes) { return var(x, axes, 0); },
      [](const std::vector<double>& v) { return variance(v, 0); }));
  rows.push_back(per_row(
      "stddev", [](const Ragged& x, const Axes& axes) { return stddev(x, axes, 0); },
      [](const std::vector<double>& v) { return std::sqrt(variance(v, 0)); }));
  rows.push_back(per_row(
      "norm", [](const Ragged& x, const Axes& axes) { return norm(x, axes); }, norm_of));
  rows.push_back(per_row(
      "logsumexp", [](const Ragged& x, const Axes& axes) { return logsumexp(x, axes); }, log_sum));
  return rows;
}

}  // namespace reel::test
