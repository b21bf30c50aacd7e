#include <gtest/gtest.h>

#include <cmath>

#include "reel/core/scalar/philox.h"
#include "reel/tests/kernels/arrays.h"

namespace reel::test {
namespace {

constexpr PhiloxState kState = {.seed = 0x123456789abcdef0, .stream = 7, .counter = (std::uint64_t(1) << 32) - 3};

template <class T>
TestArray<T> random(RandomOp op, std::int64_t n, const PhiloxState& state = kState) {
  TestArray<T> y(Shape{n});
  cpu().random(op, y, state);
  EXPECT_TRUE(y.margins_intact()) << n;
  return y;
}

scalar::PhiloxBlock block(std::int64_t number) {
  return scalar::philox(kState.seed, kState.stream, kState.counter + static_cast<std::uint64_t>(number));
}

TEST(Random, ElementsAreLanesOfConsecutiveBlocks) {
  for (std::int64_t n : kSizes) {
    const auto uniform = random<float>(RandomOp::uniform, n);
    const auto normal = random<float>(RandomOp::normal, n);
    for (std::int64_t i = 0; i < n; ++i) {
      const scalar::PhiloxBlock b = block(i / 4);
      const auto lane = b.lane[i % 4];
      ASSERT_EQ(uniform[i], static_cast<float>(lane >> 8) * 0x1p-24f);
      const auto pair = scalar::normal_pair(b.lane[i % 4 / 2 * 2], b.lane[i % 4 / 2 * 2 + 1]);
      ASSERT_EQ(normal[i], i % 2 == 0 ? pair.first : pair.second);
    }
  }
}

TEST(Random, DoublesAreHalvesOfConsecutiveBlocks) {
  for (std::int64_t n : kSizes) {
    const auto uniform = random<double>(RandomOp::uniform, n);
    const auto normal = random<double>(RandomOp::normal, n);
    for (std::int64_t i = 0; i < n; ++i) {
      const scalar::PhiloxBlock b = block(i / 2);
      const int half = static_cast<int>(i % 2);
      const std::uint64_t bits = (std::uint64_t{b.lane[2 * half]} >> 5) << 26 | b.lane[2 * half + 1] >> 6;
      ASSERT_EQ(uniform[i], static_cast<double>(bits) * 0x1p-53);
      const auto pair = scalar::normal_pair(b);
      ASSERT_EQ(normal[i], half == 0 ? pair.first : pair.second);
    }
  }
}

TEST(Random, BitsDependOnNoThreadsAndOnNoLength) {
  const auto all = random<float>(RandomOp::normal, 100000);
  for (int threads : kThreadCounts) {
    Threads scope(threads);
    EXPECT_TRUE(same_bits(all, random<float>(RandomOp::normal, 100000))) << threads;
  }
  const auto few = random<float>(RandomOp::normal, 33);
  for (std::int64_t i = 0; i < few.size(); ++i) EXPECT_EQ(few[i], all[i]);
}

TEST(Random, ACallContinuesWhereTheCounterSays) {
  const auto all = random<double>(RandomOp::uniform, 1025);
  const auto rest = random<double>(RandomOp::uniform, 25, {kState.seed, kState.stream, kState.counter + 500});
  for (std::int64_t i = 0; i < rest.size(); ++i) EXPECT_EQ(rest[i], all[1000 + i]);
}

TEST(Random, SeedAndStreamSelectOtherNumbers) {
  const auto here = random<double>(RandomOp::uniform, 64);
  const auto seed = random<double>(RandomOp::uniform, 64, {kState.seed + 1, kState.stream, kState.counter});
  const auto stream = random<double>(RandomOp::uniform, 64, {kState.seed, kState.stream + 1, kState.counter});
  int equal = 0;
  for (std::int64_t i = 0; i < 64; ++i) equal += (here[i] == seed[i]) + (here[i] == stream[i]) + (seed[i] == stream[i]);
  EXPECT_EQ(equal, 0);
}

template <class T>
void expect_moments(const TestArray<T>& x, double mean, double variance, double fourth) {
  double sum = 0, squares = 0, fourths = 0;
  for (std::int64_t i = 0; i < x.size(); ++i) {
    const double d = x[i] - mean;
    sum += d;
    squares += d * d;
    fourths += d * d * d * d;
  }
  const double n = static_cast<double>(x.size());
  EXPECT_NEAR(sum / n, 0, 5 * std::sqrt(variance / n));
  EXPECT_NEAR(squares / n, variance, 5 * std::sqrt((fourth - variance * variance) / n));
  EXPECT_NEAR(fourths / n, fourth, 0.05 * fourth);
}

TEST(Random, MomentsAreThoseOfTheDistributions) {
  expect_moments(random<float>(RandomOp::uniform, 100000), 0.5, 1.0 / 12, 1.0 / 80);
  expect_moments(random<double>(RandomOp::uniform, 100000), 0.5, 1.0 / 12, 1.0 / 80);
  expect_moments(random<float>(RandomOp::normal, 100000), 0, 1, 3);
  expect_moments(random<double>(RandomOp::normal, 100000), 0, 1, 3);
}

}  // namespace
}  // namespace reel::test
