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

// An empty sequence's infinity would make every difference NaN.
constexpr double kLowest = -16;

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
  rows.push_back(per_sequence(
      "any", [](const Ragged& x) { return any(x); }, any_of, Numbers::bits));
  rows.push_back(per_sequence(
      "all", [](const Ragged& x) { return all(x); }, all_of, Numbers::bits));
  rows.push_back(per_row(
      "any", [](const Ragged& x, int axis) { return any(x, axis); }, any_of, Numbers::bits));
  rows.push_back(per_row(
      "all", [](const Ragged& x, int axis) { return all(x, axis); }, all_of, Numbers::bits));
  rows.push_back(per_row(
      "var", [](const Ragged& x, int axis) { return var(x, axis, 0); },
      [](const std::vector<double>& v) { return variance(v, 0); }));
  rows.push_back(per_row(
      "stddev", [](const Ragged& x, int axis) { return stddev(x, axis, 0); },
      [](const std::vector<double>& v) { return std::sqrt(variance(v, 0)); }));
  rows.push_back(per_row(
      "norm", [](const Ragged& x, int axis) { return norm(x, axis); }, norm_of));
  rows.push_back(per_row(
      "logsumexp", [](const Ragged& x, int axis) { return logsumexp(x, axis); }, log_sum));
  return rows;
}

}  // namespace reel::test
