#pragma once

#include <cstdint>
#include <functional>

namespace bench {

/// Seconds that one call takes, with a 90 % confidence interval.
struct Slope {
  double seconds = 0, low = 0, high = 0;
};

/// The slope of the total time against the number of calls, by least squares: what a measurement pays once (reading the clock,
/// the first cache misses) is in the intercept and does not count. `calls(n)` makes n calls in a row. Takes about
/// `budget_seconds`; calls that are long beside it are timed one by one, at least one of them. Moreno, Fischmeister, "Accurate measurement of small execution times", 2017.
Slope time_slope(const std::function<void(std::int64_t)>& calls, double budget_seconds);

}  // namespace bench
