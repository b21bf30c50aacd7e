// RMSprop, Adagrad, RAdam's plain steps and averages against their formulas in long double.

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "reel/tests/kernels/arrays.h"

namespace reel {
namespace {

using std::int64_t;
using test::random_array;
using test::TestArray;
using Real = long double;

template <class T>
class MoreOptimizers : public testing::Test {};
using Types = testing::Types<float, double>;
TYPED_TEST_SUITE(MoreOptimizers, Types);

template <class T>
void expect_near(T got, Real expected, Real magnitude, const char* what, int64_t i) {
  ASSERT_NEAR(got, expected, 8 * std::numeric_limits<T>::epsilon() * magnitude) << what << " " << i;
}

template <class T>
TestArray<T> positive(int64_t n, unsigned seed) {
  TestArray<T> x(Shape{n});
  test::randomize(x, seed, 1, 4);
  return x;
}

TYPED_TEST(MoreOptimizers, RmspropIsItsFormula) {
  for (const int64_t n : test::kSizes)
    for (const double momentum : {0.0, 0.9})
      for (const double decay : {0.0, 0.05})
        for (const bool centered : {false, true}) {
          const RmspropRange range{.begin = 0,
                                   .end = n,
                                   .rate = 0.1,
                                   .alpha = 0.9,
                                   .epsilon = 1e-3,
                                   .decay = decay,
                                   .momentum = momentum,
                                   .centered = centered};
          const auto w = random_array<TypeParam>(Shape{n}, 1), g = random_array<TypeParam>(Shape{n}, 2);
          const auto v = positive<TypeParam>(n, 3), u = random_array<TypeParam>(Shape{n}, 5);
          TestArray<TypeParam> a(Shape{n});
          test::randomize(a, 4, -0.3, 0.3);
          TestArray<TypeParam> new_w = w, new_v = v, new_a = a, new_u = u;
          test::cpu().rmsprop(&range, 1, new_w, g, new_v, centered ? &new_a.array() : nullptr,
                              momentum != 0 ? &new_u.array() : nullptr);
          for (int64_t i = 0; i < n; ++i) {
            const Real grad = g[i] + Real(decay) * w[i];
            const Real square = Real(0.9) * v[i] + Real(0.1) * grad * grad;
            const Real mean = centered ? Real(0.9) * a[i] + Real(0.1) * grad : 0;
            Real step = grad / (std::sqrt(square - mean * mean) + Real(1e-3));
            if (momentum != 0) step += Real(momentum) * u[i];
            expect_near(new_v[i], square, 8, "v", i);
            if (centered) expect_near(new_a[i], mean, 4, "average", i);
            if (momentum != 0) expect_near(new_u[i], step, 16, "momentum", i);
            expect_near(new_w[i], w[i] - Real(0.1) * step, 8, "weight", i);
          }
          EXPECT_TRUE(new_w.margins_intact() && new_v.margins_intact() && new_a.margins_intact());
        }
}

TYPED_TEST(MoreOptimizers, AVarianceThatRoundsBelowZeroIsZero) {
  const RmspropRange range{.begin = 0, .end = 1, .rate = 1, .alpha = 0, .epsilon = 0.5, .centered = true};
  TestArray<TypeParam> w(Shape{1}), g(Shape{1}), v(Shape{1}), a(Shape{1});
  for (int i = 0; i < 1000; ++i) {
    w.set(0, 0);
    g.set(0, static_cast<TypeParam>(1 + 0.001 * i));
    test::cpu().rmsprop(&range, 1, w, g, v, &a.array(), nullptr);
    ASSERT_NEAR(w[0], -2 * g[0], 0.02);
  }
  g.set(0, std::numeric_limits<TypeParam>::quiet_NaN());
  test::cpu().rmsprop(&range, 1, w, g, v, &a.array(), nullptr);
  EXPECT_TRUE(std::isnan(w[0]));
}

TYPED_TEST(MoreOptimizers, AdagradIsItsFormula) {
  for (const int64_t n : test::kSizes)
    for (const double decay : {0.0, 0.05}) {
      const AdagradRange range{.begin = 0, .end = n, .rate = 0.1, .epsilon = 1e-3, .decay = decay};
      const auto w = random_array<TypeParam>(Shape{n}, 1), g = random_array<TypeParam>(Shape{n}, 2);
      const auto sum = positive<TypeParam>(n, 3);
      TestArray<TypeParam> new_w = w, new_sum = sum;
      test::cpu().adagrad(&range, 1, new_w, g, new_sum);
      for (int64_t i = 0; i < n; ++i) {
        const Real grad = g[i] + Real(decay) * w[i], total = sum[i] + grad * grad;
        expect_near(new_sum[i], total, 20, "sum", i);
        expect_near(new_w[i], w[i] - Real(0.1) * grad / (std::sqrt(total) + Real(1e-3)), 8, "weight", i);
      }
      EXPECT_TRUE(new_w.margins_intact() && new_sum.margins_intact());
    }
}

TYPED_TEST(MoreOptimizers, AnAdamThatIsNotRectifiedStepsByTheMeanAlone) {
  AdamRange range{.begin = 0, .end = 257, .step_size = 0.5, .root_correction2 = 0.25, .rectified = false};
  const auto w = random_array<TypeParam>(Shape{257}, 1), g = random_array<TypeParam>(Shape{257}, 2);
  TestArray<TypeParam> new_w = w, m(Shape{257}), v(Shape{257});
  test::cpu().adam(&range, 1, new_w, g, m, v);
  for (int64_t i = 0; i < 257; ++i) {
    expect_near(new_w[i], w[i] - Real(0.5) * Real(0.1) * g[i], 8, "weight", i);
    expect_near(v[i], Real(0.001) * g[i] * g[i], 1, "square", i);
  }
}

TYPED_TEST(MoreOptimizers, AnAverageMovesTowardsTheValues) {
  for (const int64_t n : test::kSizes) {
    const auto w = random_array<TypeParam>(Shape{n}, 1), a = random_array<TypeParam>(Shape{n}, 2);
    TestArray<TypeParam> average = a;
    test::cpu().ema(w, 0.75, average);
    for (int64_t i = 0; i < n; ++i) expect_near(average[i], Real(0.75) * a[i] + Real(0.25) * w[i], 4, "average", i);
    EXPECT_TRUE(average.margins_intact());
  }
}

TYPED_TEST(MoreOptimizers, WhatDecaysEndsAtZero) {
  for (const int64_t n : test::kSizes) {
    const RmspropRange range{
        .begin = 0, .end = n, .rate = 0.1, .alpha = 0.5, .epsilon = 1e-8, .momentum = 0.5, .centered = true};
    TestArray<TypeParam> w(Shape{n}), zero(Shape{n}), v(Shape{n});
    for (int64_t i = 0; i < n; ++i) v.set(i, static_cast<TypeParam>(1 + i % 7) * std::numeric_limits<TypeParam>::min());
    TestArray<TypeParam> a = v, m = v, average = v;
    for (int step = 0; step < 4; ++step) {
      test::cpu().rmsprop(&range, 1, w, zero, v, &a.array(), &m.array());
      test::cpu().ema(zero, 0.5, average);
    }
    for (int64_t i = 0; i < n; ++i) ASSERT_TRUE(v[i] == 0 && a[i] == 0 && m[i] == 0 && average[i] == 0) << i;
  }
}

/// Many small ranges with gaps between, and one large one.
template <class Range>
std::vector<Range> ranges(int64_t all) {
  std::vector<Range> list;
  int64_t begin = 3;
  for (int64_t i = 0; i < 300; begin += i % 130 + i % 3, ++i) {
    list.push_back({.begin = begin, .end = begin + i % 130});
    list.back().rate = 0.001 * static_cast<double>(i + 1);
  }
  list.push_back({.begin = begin + 5, .end = all - 7});
  list.back().rate = 0.5;
  return list;
}

TYPED_TEST(MoreOptimizers, EachRangeIsSteppedAndNothingElseForAnyNumberOfThreads) {
  constexpr int64_t kAll = 120000;
  const auto w = random_array<TypeParam>(Shape{kAll}, 1), g = random_array<TypeParam>(Shape{kAll}, 2);
  const auto v = positive<TypeParam>(kAll, 3);
  struct Run {
    TestArray<TypeParam> w, v, average;
  };
  const auto run = [&](bool adagrad) {
    Run result{w, v, v};
    if (adagrad) {
      const auto list = ranges<AdagradRange>(kAll);
      test::cpu().adagrad(list.data(), static_cast<int64_t>(list.size()), result.w, g, result.v);
    } else {
      const auto list = ranges<RmspropRange>(kAll);
      test::cpu().rmsprop(list.data(), static_cast<int64_t>(list.size()), result.w, g, result.v, nullptr, nullptr);
    }
    test::cpu().ema(w, 0.9, result.average);
    return result;
  };
  for (const bool adagrad : {false, true}) {
    const test::Threads one(1);
    const Run expected = run(adagrad);
    std::vector<bool> inside(kAll);
    for (const auto& range : ranges<AdagradRange>(kAll))
      for (int64_t i = range.begin; i < range.end; ++i) inside[static_cast<std::size_t>(i)] = true;
    for (int64_t i = 0; i < kAll; ++i) ASSERT_EQ(expected.w[i] != w[i], inside[static_cast<std::size_t>(i)]) << i;
    for (const int threads : test::kThreadCounts) {
      const test::Threads scope(threads);
      const Run result = run(adagrad);
      EXPECT_TRUE(test::same_bits(result.w, expected.w) && test::same_bits(result.v, expected.v));
      EXPECT_TRUE(test::same_bits(result.average, expected.average));
    }
  }
}

}  // namespace
}  // namespace reel
