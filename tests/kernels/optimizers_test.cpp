// Optimiser steps against the published formulas in long double.

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "reel/tests/kernels/arrays.h"

namespace reel {
namespace {

using std::int64_t;
using test::TestArray;

template <class T>
class Sgd : public testing::Test {};
template <class T>
class Adam : public testing::Test {};
using Types = testing::Types<float, double>;
TYPED_TEST_SUITE(Sgd, Types);
TYPED_TEST_SUITE(Adam, Types);

template <class T>
void expect_near(T got, long double expected, long double magnitude, const char* what, int64_t i) {
  ASSERT_NEAR(got, expected, 4 * std::numeric_limits<T>::epsilon() * magnitude) << what << " " << i;
}

// A compiler that contracts products and sums on its own would leave the product's rounding error here.
TYPED_TEST(Sgd, RoundsTheProductBeforeTheSum) {
  for (const int64_t n : test::kSizes) {
    const SgdRange range{.begin = 0, .end = n, .rate = 0.1};
    const auto g = test::random_array<TypeParam>(Shape{n}, 1);
    TestArray<TypeParam> w = g;
    for (int64_t i = 0; i < n; ++i) {
      const volatile TypeParam rounded = static_cast<TypeParam>(0.1) * g[i];
      w.set(i, rounded);
    }
    test::cpu().sgd(&range, 1, w, g, nullptr);
    for (int64_t i = 0; i < n; ++i) ASSERT_EQ(w[i], 0) << n << ", " << i;
  }
}

TYPED_TEST(Sgd, IsItsFormulaForEverySizeAndVariant) {
  for (const int64_t n : test::kSizes) {
    for (const double momentum : {0.0, 0.9}) {
      for (const double decay : {0.0, 0.01}) {
        for (const int variant : {0, 1, 2, 3}) {
          const SgdRange range{.begin = 0,
                               .end = n,
                               .rate = 0.1,
                               .decay = decay,
                               .momentum = momentum,
                               .dampening = variant == 2 ? 0.25 : 0.0,
                               .nesterov = variant == 1,
                               .first = variant == 3};
          const auto w = test::random_array<TypeParam>(Shape{n}, 1), g = test::random_array<TypeParam>(Shape{n}, 2);
          const auto m = test::random_array<TypeParam>(Shape{n}, 3);
          TestArray<TypeParam> new_w = w, new_m = m;
          test::cpu().sgd(&range, 1, new_w, g, momentum == 0 ? nullptr : &new_m.array());
          for (int64_t i = 0; i < n; ++i) {
            const long double grad = g[i] + static_cast<long double>(decay) * w[i];
            long double step = grad, velocity = m[i];
            if (momentum != 0) {
              velocity = range.first ? grad : momentum * m[i] + (1 - range.dampening) * grad;
              step = range.nesterov ? grad + momentum * velocity : velocity;
            }
            expect_near(new_w[i], w[i] - range.rate * step, 8, "weight", i);
            expect_near(new_m[i], velocity, 8, "momentum", i);
          }
          EXPECT_TRUE(new_w.margins_intact() && new_m.margins_intact());
        }
      }
    }
  }
}

AdamRange adam_range(int64_t begin, int64_t end, int64_t step, double decay, bool decoupled) {
  AdamRange range;
  range.begin = begin;
  range.end = end;
  range.rate = 0.01;
  range.beta1 = 0.8;
  range.beta2 = 0.95;
  range.step_size = range.rate / (1 - std::pow(range.beta1, static_cast<double>(step)));
  range.root_correction2 = std::sqrt(1 - std::pow(range.beta2, static_cast<double>(step)));
  range.decay = decay;
  range.decoupled = decoupled;
  return range;
}

TYPED_TEST(Adam, IsItsFormulaForEverySizeAndVariant) {
  for (const int64_t n : test::kSizes) {
    for (const int64_t step : {1, 100}) {
      for (const double decay : {0.0, 0.05}) {
        for (const bool decoupled : {false, true}) {
          const AdamRange range = adam_range(0, n, step, decay, decoupled);
          const auto w = test::random_array<TypeParam>(Shape{n}, 4), g = test::random_array<TypeParam>(Shape{n}, 5);
          const auto m = test::random_array<TypeParam>(Shape{n}, 6);
          TestArray<TypeParam> v(Shape{n});
          test::randomize(v, 7, 0, 4);
          TestArray<TypeParam> new_w = w, new_m = m, new_v = v;
          test::cpu().adam(&range, 1, new_w, g, new_m, new_v);
          for (int64_t i = 0; i < n; ++i) {
            const long double grad = g[i] + (decoupled ? 0.0L : static_cast<long double>(decay) * w[i]);
            const long double shrunk = w[i] * (decoupled ? 1 - static_cast<long double>(range.rate) * decay : 1.0L);
            const long double mean = range.beta1 * m[i] + (1 - static_cast<long double>(range.beta1)) * grad;
            const long double square = range.beta2 * v[i] + (1 - static_cast<long double>(range.beta2)) * grad * grad;
            const long double change =
                range.step_size * mean / (std::sqrt(square) / range.root_correction2 + range.epsilon);
            expect_near(new_m[i], mean, 4, "mean", i);
            expect_near(new_v[i], square, 8, "square", i);
            expect_near(new_w[i], shrunk - change, std::abs(shrunk) + std::abs(change) * (1 + 4 / std::abs(mean)),
                        "weight", i);
          }
          EXPECT_TRUE(new_w.margins_intact() && new_m.margins_intact() && new_v.margins_intact());
        }
      }
    }
  }
}

// The first steps of torch.optim.Adam(lr = 0.1) on one weight of 1 with gradients 0.5, then -2: by hand, from its formulas.
TYPED_TEST(Adam, MakesTheFirstStepsOfItsPaper) {
  TestArray<TypeParam> w(Shape{1}), g(Shape{1}), m(Shape{1}), v(Shape{1});
  w.set(0, 1);
  AdamRange range;
  range.end = 1;
  range.rate = 0.1;
  g.set(0, TypeParam(0.5));
  range.step_size = 0.1 / (1 - 0.9);
  range.root_correction2 = std::sqrt(1 - 0.999);
  test::cpu().adam(&range, 1, w, g, m, v);
  EXPECT_NEAR(w[0], 0.9, 1e-6);  // the first step is the rate times the gradient's sign
  g.set(0, -2);
  range.step_size = 0.1 / (1 - 0.81);
  range.root_correction2 = std::sqrt(1 - 0.998001);
  test::cpu().adam(&range, 1, w, g, m, v);
  EXPECT_NEAR(w[0], 0.9 + 0.1 * (0.155 / 0.19) / std::sqrt(0.00424975 / 0.001999), 1e-6);
}

TYPED_TEST(Adam, DoesNotMoveWhereTheGradientHasAlwaysBeenZero) {
  TestArray<TypeParam> w(Shape{40}), zero(Shape{40}), m(Shape{40}), v(Shape{40});
  for (int64_t i = 0; i < 40; ++i) w.set(i, static_cast<TypeParam>(i));
  const TestArray<TypeParam> before = w;
  const AdamRange range = adam_range(0, 40, 1, 0, false);
  test::cpu().adam(&range, 1, w, zero, m, v);
  EXPECT_TRUE(test::same_bits(w, before));
}

/// Moments of weights whose gradients stay 0, a little above the smallest normal number at first.
template <class T>
TestArray<T> nearly_decayed(int64_t n) {
  TestArray<T> x(Shape{n});
  for (int64_t i = 0; i < n; ++i)
    x.set(i, (i % 2 == 0 ? 1 : -1) * static_cast<T>(1 + i % 7) * std::numeric_limits<T>::min());
  return x;
}

TYPED_TEST(Sgd, WhatDecaysEndsAtZero) {
  for (const int64_t n : test::kSizes) {
    const SgdRange range{.begin = 0, .end = n, .rate = 0.1, .momentum = 0.5};
    TestArray<TypeParam> w(Shape{n}), zero(Shape{n}), m = nearly_decayed<TypeParam>(n);
    test::cpu().sgd(&range, 1, w, zero, &m.array());
    for (int64_t i = 0; i < n; ++i) ASSERT_TRUE(m[i] == 0 ? i % 7 == 0 : std::isnormal(m[i])) << i << ": " << m[i];
    for (int step = 0; step < 3; ++step) test::cpu().sgd(&range, 1, w, zero, &m.array());
    for (int64_t i = 0; i < n; ++i) ASSERT_EQ(m[i], 0);
  }
}

TYPED_TEST(Adam, WhatDecaysEndsAtZero) {
  for (const int64_t n : test::kSizes) {
    AdamRange range = adam_range(0, n, 100, 0, false);
    range.beta1 = range.beta2 = 0.5;
    TestArray<TypeParam> w(Shape{n}), zero(Shape{n}), m = nearly_decayed<TypeParam>(n), v = m;
    for (int64_t i = 0; i < n; ++i) v.set(i, std::abs(m[i]));
    for (int step = 0; step < 4; ++step) test::cpu().adam(&range, 1, w, zero, m, v);
    for (int64_t i = 0; i < n; ++i) ASSERT_TRUE(m[i] == 0 && v[i] == 0) << i << ": " << m[i] << ", " << v[i];
  }
}

TYPED_TEST(Adam, WhatDecaysIsNotLostToItsDivisionNorToNumbersThatAreNotFinite) {
  const auto infinity = std::numeric_limits<TypeParam>::infinity(), nan = std::numeric_limits<TypeParam>::quiet_NaN();
  for (const int64_t n : test::kSizes) {
    AdamRange range = adam_range(0, n, 100, 0, false);
    range.beta1 = range.beta2 = 0.75;
    range.epsilon = 0;
    TestArray<TypeParam> w(Shape{n}), g(Shape{n}), m(Shape{n}), v(Shape{n});
    for (int64_t i = 0; i < n; ++i) v.set(i, std::numeric_limits<TypeParam>::min());
    for (int step = 0; step < 300; ++step) test::cpu().adam(&range, 1, w, g, m, v);
    for (int64_t i = 0; i < n; ++i) ASSERT_TRUE(w[i] == 0 && v[i] > 0) << i << ": " << w[i] << ", " << v[i];
    range.epsilon = 1e-8;
    for (int64_t i = 0; i < n; ++i) g.set(i, i % 2 == 0 ? nan : -infinity);
    test::cpu().adam(&range, 1, w, g, m, v);
    for (int64_t i = 0; i < n; ++i)
      ASSERT_TRUE(i % 2 == 0 ? std::isnan(m[i]) && std::isnan(v[i]) : m[i] == -infinity && v[i] == infinity) << i;
  }
}

/// Many small ranges, gaps between them, one large one.
std::vector<std::pair<int64_t, int64_t>> ranges_with_gaps() {
  std::vector<std::pair<int64_t, int64_t>> ranges;
  int64_t begin = 3;
  for (int64_t i = 0; i < 500; ++i) {
    ranges.push_back({begin, begin + i % 130});
    begin += i % 130 + i % 3;
  }
  ranges.push_back({begin + 5, begin + 100000});
  return ranges;
}
constexpr int64_t kAll = 140000;

TYPED_TEST(Sgd, StepsEachRangeWithItsOwnFactorsAndNothingElse) {
  std::vector<SgdRange> ranges;
  std::vector<double> rate(kAll, 0);
  for (const auto& [begin, end] : ranges_with_gaps()) {
    ranges.push_back({.begin = begin, .end = end, .rate = 0.001 * static_cast<double>(ranges.size() + 1)});
    for (int64_t i = begin; i < end; ++i) rate[static_cast<std::size_t>(i)] = ranges.back().rate;
  }
  const auto w = test::random_array<TypeParam>(Shape{kAll}, 8), g = test::random_array<TypeParam>(Shape{kAll}, 9);
  for (const int threads : test::kThreadCounts) {
    const test::Threads scope(threads);
    TestArray<TypeParam> result = w;
    test::cpu().sgd(ranges.data(), static_cast<int64_t>(ranges.size()), result, g, nullptr);
    for (int64_t i = 0; i < kAll; ++i) {
      ASSERT_EQ(result[i], w[i] - static_cast<TypeParam>(rate[static_cast<std::size_t>(i)]) * g[i]);
    }
  }
}

TYPED_TEST(Adam, StepsEachRangeWithItsOwnFactorsAndNothingElse) {
  const auto spans = ranges_with_gaps();
  std::vector<AdamRange> ranges;
  for (const auto& [begin, end] : spans) {
    ranges.push_back(adam_range(begin, end, static_cast<int64_t>(ranges.size()) + 1, 0.01, ranges.size() % 2 == 0));
  }
  const auto w = test::random_array<TypeParam>(Shape{kAll}, 10), g = test::random_array<TypeParam>(Shape{kAll}, 11);
  const TestArray<TypeParam> zero(Shape{kAll});
  TestArray<TypeParam> expected = w, expected_m = zero, expected_v = zero;
  for (const AdamRange& range : ranges) test::cpu().adam(&range, 1, expected, g, expected_m, expected_v);
  EXPECT_EQ(expected[0], w[0]);
  EXPECT_NE(expected[spans[1].first], w[spans[1].first]);
  EXPECT_EQ(expected[kAll - 1], w[kAll - 1]);
  for (const int threads : test::kThreadCounts) {
    const test::Threads scope(threads);
    TestArray<TypeParam> result = w, m = zero, v = zero;
    test::cpu().adam(ranges.data(), static_cast<int64_t>(ranges.size()), result, g, m, v);
    EXPECT_TRUE(test::same_bits(result, expected) && test::same_bits(m, expected_m) && test::same_bits(v, expected_v));
  }
}

}  // namespace
}  // namespace reel
