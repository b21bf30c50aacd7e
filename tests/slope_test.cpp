// The timer of the benchmarks, by calls whose time is known.

#include "../benchmarks/slope.h"

#include <gtest/gtest.h>

#include <chrono>

namespace bench {
namespace {

using Clock = std::chrono::steady_clock;

void wait_until(Clock::time_point end) {
  while (Clock::now() < end) {
  }
}

TEST(Slope, LeavesOutWhatIsPaidOnce) {
  const Slope slope =
      time_slope([](std::int64_t n) { wait_until(Clock::now() + std::chrono::milliseconds(15 + n)); }, 1.0);
  EXPECT_GT(slope.seconds, 0.0007);
  EXPECT_LT(slope.seconds, 0.0015);  // with the 15 ms it would be 2 ms and more
  EXPECT_LE(slope.low, slope.seconds);
  EXPECT_GE(slope.high, slope.seconds);
}

TEST(Slope, OfLongCallsIsTheirMedian) {
  int call = 0;
  const Slope slope = time_slope(
      [&](std::int64_t) { wait_until(Clock::now() + std::chrono::milliseconds(++call == 3 ? 60 : 20)); }, 0.2);
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
