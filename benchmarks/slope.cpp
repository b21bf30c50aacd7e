#include "slope.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <random>
#include <vector>

namespace bench {

namespace {

double seconds_of(const std::function<void(std::int64_t)>& calls, std::int64_t n) {
  const auto begin = std::chrono::steady_clock::now();
  calls(n);
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

/// 95 % quantile of Student's t with `freedom` degrees, by the first terms of its expansion about the normal quantile
/// (Abramowitz and Stegun 26.7.5).
double t_quantile(double freedom) {
  constexpr double z = 1.6448536269514722;
  return z + (z * z * z + z) / (4 * freedom) + (5 * std::pow(z, 5) + 16 * z * z * z + 3 * z) / (96 * freedom * freedom);
}

/// The mean of times of single calls.
Slope mean_of(const std::vector<double>& times) {
  const double count = static_cast<double>(times.size());
  double mean = 0, squares = 0;
  for (const double t : times) mean += t / count;
  for (const double t : times) squares += (t - mean) * (t - mean);
  const double half = times.size() < 2 ? 0 : t_quantile(count - 1) * std::sqrt(squares / (count - 1) / count);
  return {mean, mean - half, mean + half};
}

struct Point {
  double calls, seconds;
};

Slope fit(const std::vector<Point>& points) {
  const double count = static_cast<double>(points.size());
  double mean_x = 0, mean_y = 0;
  for (const Point& p : points) mean_x += p.calls / count, mean_y += p.seconds / count;
  double xx = 0, xy = 0, errors = 0;
  for (const Point& p : points) {
    xx += (p.calls - mean_x) * (p.calls - mean_x);
    xy += (p.calls - mean_x) * (p.seconds - mean_y);
  }
  // Where the machine was so disturbed that the times do not rise, all that can be said is their mean.
  const double slope = xy > 0 ? xy / xx : mean_y / mean_x;
  for (const Point& p : points) {
    const double error = p.seconds - mean_y - slope * (p.calls - mean_x);
    errors += error * error;
  }
  const double half = t_quantile(count - 2) * std::sqrt(errors / (count - 2) / xx);
  return {slope, slope - half, slope + half};
}

}  // namespace

Slope time_slope(const std::function<void(std::int64_t)>& calls, double budget_seconds) {
  // One call is timed with ever more of them in a row, until they take long enough to be seen.
  std::int64_t n = 1;
  double total = seconds_of(calls, n);
  while (total < budget_seconds / 50 && total < 0.02) total = seconds_of(calls, n *= 2);
  const double once = total / static_cast<double>(n);
  if (once * 12 > budget_seconds) {
    std::vector<double> times(static_cast<std::size_t>(std::max(1.0, budget_seconds / once)), once);
    if (times.size() > 1)
      for (double& t : times) t = seconds_of(calls, 1);
    return mean_of(times);
  }

  // Of 1, 2, ..., steps units of calls, each `rounds` times: in random order, since machines change their speed.
  const int steps = once * 108 < budget_seconds ? 8 : 3, rounds = once * 36 < budget_seconds ? 3 : 2;
  const double calls_per_unit = rounds * steps * (steps + 1) / 2.0;
  const std::int64_t unit = std::max<std::int64_t>(1, std::llround(budget_seconds / once / calls_per_unit));
  std::vector<std::int64_t> counts;
  for (int round = 0; round < rounds; ++round)
    for (int step = 1; step <= steps; ++step) counts.push_back(step * unit);
  std::shuffle(counts.begin(), counts.end(), std::mt19937_64(1));

  std::vector<Point> points;
  for (const std::int64_t count : counts) points.push_back({static_cast<double>(count), seconds_of(calls, count)});
  return fit(points);
}

}  // namespace bench
