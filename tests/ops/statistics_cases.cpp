#include "reel/ops/statistics.h"

#include <algorithm>
#include <cmath>

#include "reel/ops/arithmetic.h"
#include "reel/ops/create.h"
#include "reel/tests/ops/reduction_cases.h"
#include "reel/tests/ops/reference.h"

namespace reel::test {

namespace {

BadCall integers(const std::string& name, const ReduceOp& op) {
  return {[op] { op(arange(3), {}, Keep::no, SourceLocation::current()); }, {name, "x must be f32 or f64, got i64"}};
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
  const ReduceOp vars = [](const Tensor& x, const Axes& axes, Keep keep, SourceLocation at) {
    return var(x, axes, 1, keep, at);
  };
  const ReduceOp deviations = [](const Tensor& x, const Axes& axes, Keep keep, SourceLocation at) {
    return stddev(x, axes, 1, keep, at);
  };
  const ReduceOp norms = [](const Tensor& x, const Axes& axes, Keep keep, SourceLocation at) {
    return norm(x, axes, keep, at);
  };
  const ReduceOp log_sums = [](const Tensor& x, const Axes& axes, Keep keep, SourceLocation at) {
    return logsumexp(x, axes, keep, at);
  };
  // Of one element the variance is NaN.
  for (const Reduction& reduction : {Reduction{"var", vars, variance_of, Numbers::any, {Size::one}},
                                     Reduction{"stddev", deviations, deviation_of, Numbers::any, {Size::one}},
                                     Reduction{"norm", norms, norm_of}, Reduction{"logsumexp", log_sums, log_sum}})
    add_reduction(rows, reduction).bad.push_back(integers(reduction.name, reduction.op));
  const auto not_zero = [](double x) { return x != 0; };
  const auto any_of = [=](const std::vector<double>& v) { return double(std::any_of(v.begin(), v.end(), not_zero)); };
  const auto all_of = [=](const std::vector<double>& v) { return double(std::all_of(v.begin(), v.end(), not_zero)); };
  using TensorOp = Tensor (*)(const Tensor&, const Axes&, Keep, SourceLocation);
  add_reduction(rows, {"any", static_cast<TensorOp>(any), any_of, Numbers::bits});
  add_reduction(rows, {"all", static_cast<TensorOp>(all), all_of, Numbers::bits});
  rows.push_back(per_sequence(
      "norm", [](const Ragged& x) { return norm(x); }, norm_of));
  rows.push_back(per_sequence(
      "logsumexp", [](const Ragged& x) { return maximum(logsumexp(x), kLowest); },
      [](const std::vector<double>& v) { return v.empty() ? kLowest : log_sum(v); }));
  rows.push_back(per_sequence(
      "var", [](const Ragged& x) { return var(x, VarianceOptions{.correction = 0.5}); },
      [](const std::vector<double>& v) { return v.empty() ? 0 : variance(v, 0.5); }));
  // A sequence of one row has no deviation whose derivative differences could show.
  rows.push_back(per_sequence(
      "stddev", [](const Ragged& x) { return stddev(x, VarianceOptions{.correction = 0.5}); },
      [](const std::vector<double>& v) { return v.empty() ? 0 : std::sqrt(variance(v, 0.5)); }));
  rows.back().order = 0;
  const auto truth = [&](const std::string& name, const std::function<Tensor(const Ragged&)>& op, const Fold& fold) {
    rows.push_back(per_sequence(name, op, fold));
    rows.back().inputs = [](Maker& make, Size size) {
      const Extent n = extent_of(size);
      return Tensors{make.index({n.rows, n.cols}, 2)};
    };
    rows.back().order = 0;
    rows.back().differentiable = {};
  };
  truth(
      "any", [](const Ragged& x) { return any(x); }, any_of);
  truth(
      "all", [](const Ragged& x) { return all(x); }, all_of);
  for (OpCase row : {per_row(
                         "any", [](const Ragged&x, const Axes&axes) { return any(x, axes); }, any_of),
                     per_row(
                         "all", [](const Ragged&x, const Axes&axes) { return all(x, axes); }, all_of)}) {
    row.order = 0;
    row.differentiable = {};
    rows.push_back(row);
  }
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
