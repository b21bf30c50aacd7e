// The timer of the benchmarks, by calls whose time is known.

#include "../benchmarks/slope.h"

#include <gtest/gtest.h>

#include <chrono>
#include <cmath>
#include <functional>
#include <random>
#include <utility>
#include <vector>

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

// How often the interval has the truth, of many simulated measurements whose noise only adds, and seldom much.
TEST(Slope, TheIntervalHasTheTruthInNineCasesOfTen) {
  std::mt19937_64 random(7);
  std::exponential_distribution<double> noise(1);
  constexpr int kTrials = 4000;
  for (const auto& [steps, rounds] : {std::pair{8, 3}, std::pair{3, 3}}) {  // as time_slope has them
    int covered = 0;
    for (int trial = 0; trial < kTrials; ++trial) {
      std::vector<Point> points;
      for (int round = 0; round < rounds; ++round)
        for (int step = 1; step <= steps; ++step) points.push_back({10.0 * step, 5 + 0.3 * 10 * step + noise(random)});
      const Slope slope = fit(points);
      covered += slope.low <= 0.3 && 0.3 <= slope.high;
    }
    EXPECT_GT(covered, 0.87 * kTrials) << steps;
    EXPECT_LT(covered, 0.96 * kTrials) << steps;
  }
  for (const std::size_t count : {11u, 40u}) {
    int covered = 0;
    for (int trial = 0; trial < kTrials; ++trial) {
      std::vector<double> times;
      for (std::size_t i = 0; i < count; ++i) times.push_back(5 + noise(random));
      const Slope median = median_time(times);
      covered += median.low <= 5 + std::log(2) && 5 + std::log(2) <= median.high;
    }
    EXPECT_GT(covered, 0.85 * kTrials) << count;
    EXPECT_LT(covered, 0.97 * kTrials) << count;
  }
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
