// What clipping by the norm asks of kernels: sums of squares, and steps from scaled gradients.

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "reel/core/half.h"
#include "reel/tests/kernels/arrays.h"

namespace reel {
namespace {

using std::int64_t;
using test::random_array;
using test::TestArray;

template <class T>
class SumsOfSquares : public testing::Test {};
using AllTypes = testing::Types<float, double, bfloat16, float16>;
TYPED_TEST_SUITE(SumsOfSquares, AllTypes);

// Ranges of every size, one after the other with gaps of 0, 1 and 2 elements, so that they begin anywhere.
std::vector<FlatRange> ranges_of_every_size(int64_t& all) {
  std::vector<FlatRange> ranges;
  int64_t begin = 3;
  for (int64_t i = 0; i < 300; ++i) {
    ranges.push_back({begin, begin + i % 130});
    begin += i % 130 + i % 3;
  }
  for (const int64_t size : {0, 32767, 32768, 32769, 100000}) {
    ranges.push_back({begin, begin + size});
    begin += size + 1;
  }
  all = begin;
  return ranges;
}

TYPED_TEST(SumsOfSquares, AreThoseOfEachRangeForAnyNumberOfThreads) {
  int64_t all = 0;
  const std::vector<FlatRange> ranges = ranges_of_every_size(all);
  TestArray<TypeParam> x(Shape{all});
  for (int64_t i = 0; i < all; ++i) x.set(i, static_cast<TypeParam>(static_cast<float>(i * 7919 % 1001) / 250 - 2));
  std::vector<double> first;
  for (const int threads : test::kThreadCounts) {
    const test::Threads scope(threads);
    std::vector<double> sums(ranges.size(), -1);
    test::cpu().sums_of_squares(ranges.data(), std::ssize(ranges), x, sums.data());
    if (first.empty()) first = sums;
    EXPECT_EQ(sums, first);
  }
  for (std::size_t r = 0; r < ranges.size(); ++r) {
    long double expected = 0;
    for (int64_t i = ranges[r].begin; i < ranges[r].end; ++i) {
      const auto element = static_cast<long double>(static_cast<double>(x[i]));
      expected += element * element;
    }
    ASSERT_NEAR(first[r], expected, 64 * std::numeric_limits<double>::epsilon() * expected) << r;
    double alone = -1;  // other ranges, and where it begins, do not matter
    TestArray<TypeParam> moved(Shape{ranges[r].end - ranges[r].begin});
    for (int64_t i = 0; i < moved.size(); ++i) moved.set(i, x[ranges[r].begin + i]);
    const FlatRange range{0, moved.size()};
    test::cpu().sums_of_squares(&range, 1, moved, &alone);
    ASSERT_EQ(alone, first[r]) << r;
  }
}

TYPED_TEST(SumsOfSquares, OfNothingAreZero) {
  const TestArray<TypeParam> x(Shape{4});
  const FlatRange ranges[] = {{0, 0}, {2, 2}};
  double sums[] = {7, 7};
  test::cpu().sums_of_squares(ranges, 2, x, sums);
  EXPECT_EQ(sums[0], 0);
  EXPECT_EQ(sums[1], 0);
  test::cpu().sums_of_squares(ranges, 0, x, nullptr);
}

TYPED_TEST(SumsOfSquares, OfTheLargestNumbersAreFinite) {
  if constexpr (std::is_same_v<TypeParam, double>) return;
  for (const int64_t n : {1, 40, 100000}) {
    TestArray<TypeParam> x(Shape{n});
    for (int64_t i = 0; i < n; ++i) x.set(i, static_cast<TypeParam>(std::is_same_v<TypeParam, float16> ? 6e4f : 1e38f));
    const double largest = static_cast<double>(x[0]);
    const FlatRange range{0, n};
    double sum = 0;
    test::cpu().sums_of_squares(&range, 1, x, &sum);
    EXPECT_NEAR(sum / (static_cast<double>(n) * largest * largest), 1, 64 * std::numeric_limits<double>::epsilon());
    x.set(n - 1, static_cast<TypeParam>(std::numeric_limits<float>::quiet_NaN()));
    test::cpu().sums_of_squares(&range, 1, x, &sum);
    EXPECT_TRUE(std::isnan(sum));
  }
}

// --- steps ------------------------------------------------------------------------------------------------------------

template <class T>
class ScaledGradient : public testing::Test {
 protected:
  static constexpr int64_t kSize = 1057;

  /// A step from `factor` g with the scale `scale`, whole and in two ranges; all that it writes.
  template <class Step>
  static std::vector<T> after(Step step, T factor, double scale) {
    TestArray<T> g = random_array<T>(Shape{kSize}, 1);
    for (int64_t i = 0; i < kSize; ++i) g.set(i, factor * g[i]);
    std::vector<T> all;
    TestArray<T> buffers[4] = {random_array<T>(Shape{kSize}, 2), random_array<T>(Shape{kSize}, 3),
                               TestArray<T>(Shape{kSize}), TestArray<T>(Shape{kSize})};
    for (int b = 1; b < 4; ++b) test::randomize(buffers[b], 3 + static_cast<unsigned>(b), 1, 4);
    step(g.array(), buffers, scale);
    for (const TestArray<T>& buffer : buffers) {
      EXPECT_TRUE(buffer.margins_intact());
      const std::vector<T> values = buffer.values();
      all.insert(all.end(), values.begin(), values.end());
    }
    return all;
  }
  template <class Step>
  static void expect_scales(Step step) {
    const auto unscaled = after(step, T(1), 1);
    for (const double scale : {0.25, 0.3, 1e-9, 0.0}) {
      const std::vector<T> scaled = after(step, T(1), scale);
      EXPECT_EQ(scaled, after(step, static_cast<T>(scale), 1)) << scale;
      EXPECT_NE(scaled, unscaled);
    }
  }
};
using Types = testing::Types<float, double>;
TYPED_TEST_SUITE(ScaledGradient, Types);

TYPED_TEST(ScaledGradient, OfEachOptimiserIsTheSameAsAGradientScaledBefore) {
  using T = TypeParam;
  const auto parts = [](auto range, double scale) {
    auto second = range;
    range.begin = 0;
    range.end = second.begin = 400;
    second.end = 1057;
    range.gradient_scale = second.gradient_scale = scale;
    return std::vector{range, second};
  };
  for (const double decay : {0.0, 0.1}) {
    for (const bool extra : {false, true}) {
      this->expect_scales([&](const Array& g, TestArray<T>* b, double scale) {
        SgdRange range{.rate = 0.1, .decay = decay, .momentum = extra ? 0.9 : 0, .dampening = 0.2, .nesterov = extra};
        const auto ranges = parts(range, scale);
        test::cpu().sgd(ranges.data(), 2, b[0], g, &b[1].array());
      });
      this->expect_scales([&](const Array& g, TestArray<T>* b, double scale) {
        AdamRange range{.rate = 0.1, .step_size = 0.1, .root_correction2 = 0.5, .decay = decay, .decoupled = extra};
        const auto ranges = parts(range, scale);
        test::cpu().adam(ranges.data(), 2, b[0], g, b[1], b[2]);
      });
      this->expect_scales([&](const Array& g, TestArray<T>* b, double scale) {
        RmspropRange range{.rate = 0.1, .decay = decay, .momentum = extra ? 0.9 : 0, .centered = extra};
        const auto ranges = parts(range, scale);
        test::cpu().rmsprop(ranges.data(), 2, b[0], g, b[1], &b[2].array(), &b[3].array());
      });
      this->expect_scales([&](const Array& g, TestArray<T>* b, double scale) {
        AdagradRange range{.rate = 0.1, .decay = decay};
        const auto ranges = parts(range, scale);
        test::cpu().adagrad(ranges.data(), 2, b[0], g, b[1]);
      });
    }
  }
}

}  // namespace
}  // namespace reel
