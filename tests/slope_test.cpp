// The timer of the benchmarks, by calls whose time is known.

#include "../benchmarks/slope.h"

#include <gtest/gtest.h>

#include <chrono>
#include <functional>

namespace bench {
namespace {

using Clock = std::chrono::steady_clock;

void wait_until(Clock::time_point end) {
  while (Clock::now() < end) {
  }
}

/// The first of some measurements that is between the bounds, or the last one: the machine may be taken away during one.
Slope some_slope(const std::function<void(std::int64_t)>& calls, double budget_seconds, double above, double below) {
  Slope slope;
  for (int i = 0; i < 40; ++i) {
    slope = time_slope(calls, budget_seconds);
    if (slope.seconds > above && slope.seconds < below) break;
  }
  return slope;
}

TEST(Slope, LeavesOutWhatIsPaidOnce) {
  // With the 15 ms it would always be 2 ms and more.
  const Slope slope = some_slope([](std::int64_t n) { wait_until(Clock::now() + std::chrono::milliseconds(15 + n)); },
                                 1.0, 0.0007, 0.0015);
  EXPECT_GT(slope.seconds, 0.0007);
  EXPECT_LT(slope.seconds, 0.0015);
  EXPECT_LE(slope.low, slope.seconds);
  EXPECT_GE(slope.high, slope.seconds);
}

TEST(Slope, OfLongCallsIsTheirMedian) {
  int call = 0;
  const Slope slope =
      some_slope([&](std::int64_t) { wait_until(Clock::now() + std::chrono::milliseconds(++call % 5 == 3 ? 60 : 20)); },
                 0.2, 0.02, 0.04);
  EXPECT_GE(slope.seconds, 0.02);
  EXPECT_LT(slope.seconds, 0.04);
}

TEST(Slope, IsPositiveWhateverTheNoise) {
  int call = 0;
  const Slope slope = time_slope(
      [&](std::int64_t n) {  // after the search for a number of calls, ever less for more of them
        wait_until(Clock::now() + std::chrono::microseconds(++call <= 12 ? 2 * n : 4000000 / (100 + n)));
      },
      0.2);
  EXPECT_GT(slope.seconds, 0);
  EXPECT_GT(slope.low, 0);
}

}  // namespace
}  // namespace bench
