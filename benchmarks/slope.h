#pragma once

#include <cstdint>
#include <functional>
#include <vector>

namespace bench {

/// Seconds that one call takes, with a 90 % confidence interval.
struct Slope {
  double seconds = 0, low = 0, high = 0;
};

/// The slope of the total time against the number of calls: what a measurement pays once (reading the clock, the first cache
/// misses) is in the intercept and does not count (Moreno, Fischmeister, "Accurate measurement of small execution times", 2017). It
/// is the median slope between two measurements, which a machine that is taken away for a while does not move. `calls(n)`
/// makes n calls in a row. Takes about `budget_seconds`; of calls that are long beside it the median of single ones is taken. Always
/// above 0: where noise hides the slope it is the time per call, an upper bound.
Slope time_slope(const std::function<void(std::int64_t)>& calls, double budget_seconds);

/// What time_slope is made of.
struct Point {
  double calls, seconds;
};
/// The median slope between two points, which times that the machine was taken away in do not move (Theil, 1950), with Sen's
/// interval ("Estimates of the regression coefficient based on Kendall's tau", 1968; ties among the counts of calls as there).
Slope fit(const std::vector<Point>& points);
/// The median of times of single calls, and order statistics between which it lies (the sign test's).
Slope median_time(std::vector<double> times);

}  // namespace bench
