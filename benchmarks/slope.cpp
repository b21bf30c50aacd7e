#include "slope.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <map>
#include <random>
#include <utility>
#include <vector>

namespace bench {

namespace {

double seconds_of(const std::function<void(std::int64_t)>& calls, std::int64_t n) {
  const auto begin = std::chrono::steady_clock::now();
  calls(n);
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

constexpr double kNormalQuantile = 1.6448536269514722;  // 95 %

/// The element at a place, of sorted values; the nearest if there is none.
double at(const std::vector<double>& sorted, double place) {
  const double last = static_cast<double>(sorted.size()) - 1;
  return sorted[static_cast<std::size_t>(std::clamp(std::round(place), 0.0, last))];
}

double median_of(const std::vector<double>& sorted) {
  const std::size_t half = sorted.size() / 2;
  return sorted.size() % 2 == 1 ? sorted[half] : (sorted[half - 1] + sorted[half]) / 2;
}

}  // namespace

Slope median_time(std::vector<double> times) {
  std::sort(times.begin(), times.end());
  const double count = static_cast<double>(times.size()), half = kNormalQuantile * std::sqrt(count) / 2;
  return {median_of(times), at(times, (count - 1) / 2 - half), at(times, (count - 1) / 2 + half)};
}

Slope fit(const std::vector<Point>& points) {
  std::vector<double> slopes;
  for (const Point& p : points)
    for (const Point& q : points)
      if (p.calls < q.calls) slopes.push_back((q.seconds - p.seconds) / (q.calls - p.calls));
  std::sort(slopes.begin(), slopes.end());

  std::map<double, double> ties;
  for (const Point& p : points) ++ties[p.calls];
  const auto term = [](double n) { return n * (n - 1) * (2 * n + 5); };
  double variance = term(static_cast<double>(points.size()));
  for (const auto& [calls, number] : ties) variance -= term(number);
  const double half = kNormalQuantile * std::sqrt(variance / 18) / 2,
               middle = (static_cast<double>(slopes.size()) - 1) / 2;
  return {median_of(slopes), at(slopes, middle - half), at(slopes, middle + half)};
}

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
    return median_time(times);
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
  const Slope slope = fit(points);
  if (slope.seconds > 0) return slope;
  // The machine was taken away for longer than all of it took: an upper bound, what is paid once included.
  std::vector<double> times;
  for (const Point& p : points) times.push_back(p.seconds / p.calls);
  return median_time(std::move(times));
}

}  // namespace bench
