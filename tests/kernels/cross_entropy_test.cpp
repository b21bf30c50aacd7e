// Cross entropy against its definition in long double.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "reel/tests/kernels/arrays.h"

namespace reel {
namespace {

using std::int64_t;
using test::TestArray;

constexpr int64_t kIgnore = -100;

template <class T>
constexpr T kInf = std::numeric_limits<T>::infinity();

/// The results of both kernels for the same inputs.
template <class T>
struct Loss {
  TestArray<T> loss, lse, dlogits;

  template <class Index>
  Loss(const TestArray<T>& logits, const TestArray<Index>& target, const TestArray<T>& dloss)
      : loss(dloss.array().rank() == 0 ? Shape{} : Shape{logits.array().shape[0]}),
        lse(Shape{logits.array().shape[0] + (dloss.array().rank() == 0)}),
        dlogits(logits.array().shape) {
    test::cpu().cross_entropy(logits, target, kIgnore, loss, lse, &dlogits.array());
    TestArray<T> loss_alone(loss.array().shape), lse_alone(lse.array().shape);
    test::cpu().cross_entropy(logits, target, kIgnore, loss_alone, lse_alone, nullptr);
    EXPECT_TRUE(test::same_bits(loss_alone, loss) && test::same_bits(lse_alone, lse));
    EXPECT_TRUE(loss_alone.margins_intact() && lse_alone.margins_intact());
    test::cpu().cross_entropy_scale(lse, target, kIgnore, dloss, dlogits);
    EXPECT_TRUE(loss.margins_intact() && lse.margins_intact() && dlogits.margins_intact());
  }
};

template <class Index>
TestArray<Index> targets(int64_t rows, int64_t cols) {
  TestArray<Index> target(Shape{rows});
  for (int64_t r = 0; r < rows; ++r) target.set(r, static_cast<Index>(r * 7919 % cols));
  return target;
}

template <class T, class Index>
void expect_is_cross_entropy(const TestArray<T>& x, const TestArray<Index>& target, const TestArray<T>& dloss,
                             const Loss<T>& result) {
  const long double epsilon = std::numeric_limits<T>::epsilon();
  const int64_t rows = x.array().shape[0], cols = x.array().shape[1];
  for (int64_t r = 0; r < rows; ++r) {
    long double max = -kInf<long double>, sum = 0;
    for (int64_t c = 0; c < cols; ++c) max = std::max(max, static_cast<long double>(x[r * cols + c]));
    for (int64_t c = 0; c < cols; ++c) sum += std::exp(x[r * cols + c] - max);
    const long double lse = max + std::log(sum), size = std::abs(max) + std::log(sum) + 1;
    ASSERT_NEAR(result.lse[r], lse, 2 * epsilon * size);
    const bool ignored = target[r] == kIgnore;
    if (ignored) {
      ASSERT_EQ(result.loss[r], 0);
    } else {
      const long double wanted = x[r * cols + target[r]];
      ASSERT_NEAR(result.loss[r], lse - wanted, 2 * epsilon * (size + std::abs(wanted)));
    }
    for (int64_t c = 0; c < cols; ++c) {
      const long double exponent = x[r * cols + c] - lse, p = std::exp(exponent);
      const long double expected = ignored ? 0 : dloss[r] * (p - (c == target[r]));
      const long double scale = p * (6 + 2 * std::abs(exponent) + std::min<long double>(std::abs(lse), 8));
      ASSERT_NEAR(
          result.dlogits[r * cols + c], expected,
          epsilon * std::abs(dloss[r]) * (scale + std::abs(p - 1) * (c == target[r])) + std::numeric_limits<T>::min())
          << r << ", " << c;
    }
  }
}

template <class T>
class CrossEntropy : public testing::Test {};
using Types = testing::Types<float, double>;
TYPED_TEST_SUITE(CrossEntropy, Types);

TYPED_TEST(CrossEntropy, IsItsDefinitionForEverySize) {
  using T = TypeParam;
  for (const int64_t rows : {0, 1, 5, 40, 1025}) {
    for (const int64_t cols : {1, 2, 10, 31, 32, 33, 255, 257, 1025, 20000}) {
      if (rows * cols > 100000) continue;
      auto x = test::random_array<T>(Shape{rows, cols}, 1);
      const auto dloss = test::random_array<T>(Shape{rows}, 2);
      auto target = targets<int64_t>(rows, cols);
      if (rows > 3) target.set(3, kIgnore);
      expect_is_cross_entropy(x, target, dloss, Loss<T>(x, target, dloss));
      test::randomize(x, 3, -40, 40);
      expect_is_cross_entropy(x, target, dloss, Loss<T>(x, target, dloss));
    }
  }
}

TYPED_TEST(CrossEntropy, TakesTargetsOf32Bits) {
  using T = TypeParam;
  const auto x = test::random_array<T>(Shape{50, 33}, 4);
  const auto dloss = test::random_array<T>(Shape{50}, 5);
  auto narrow = targets<std::int32_t>(50, 33);
  auto wide = targets<int64_t>(50, 33);
  narrow.set(7, kIgnore);
  wide.set(7, kIgnore);
  const Loss<T> a(x, narrow, dloss), b(x, wide, dloss);
  EXPECT_TRUE(test::same_bits(a.loss, b.loss));
  EXPECT_TRUE(test::same_bits(a.dlogits, b.dlogits));
}

TYPED_TEST(CrossEntropy, TakesOneGradientForAllRows) {
  using T = TypeParam;
  const auto x = test::random_array<T>(Shape{20, 10}, 6);
  const auto target = targets<int64_t>(20, 10);
  TestArray<T> mean(Shape{20}, std::vector<int64_t>{0}), full(Shape{20});
  for (int64_t r = 0; r < 20; ++r) {
    mean.set(r, T(0.05));
    full.set(r, T(0.05));
  }
  EXPECT_TRUE(test::same_bits(Loss<T>(x, target, mean).dlogits, Loss<T>(x, target, full).dlogits));
}

TYPED_TEST(CrossEntropy, OfRankZeroIsTheMeanOfTheRowsThatCount) {
  using T = TypeParam;
  for (const int64_t rows : {0, 1, 20, 1025}) {
    const auto x = test::random_array<T>(Shape{rows, 10}, 15);
    auto target = targets<int64_t>(rows, 10);
    if (rows > 3) target.set(3, kIgnore);
    TestArray<T> dloss(Shape{}), each(Shape{rows});
    dloss.set(0, T(1.5));
    const Loss<T> mean(x, target, dloss);
    const T count = static_cast<T>(rows > 3 ? rows - 1 : rows);
    EXPECT_EQ(mean.lse[rows], count);
    for (int64_t r = 0; r < rows; ++r) each.set(r, T(1.5) / count);
    const Loss<T> expected(x, target, each);
    for (int64_t i = 0; i < 10 * rows; ++i)  // 1 / count and dloss are factors one after the other
      EXPECT_NEAR(mean.dlogits[i], expected.dlogits[i],
                  4 * std::numeric_limits<T>::epsilon() * std::abs(expected.dlogits[i]));
    long double sum = 0;
    for (int64_t r = 0; r < rows; ++r) sum += expected.loss[r];
    if (rows == 0) EXPECT_TRUE(std::isnan(mean.loss[0]));
    else EXPECT_NEAR(mean.loss[0], sum / count, 8 * std::numeric_limits<T>::epsilon() * sum / count);
  }
}

TYPED_TEST(CrossEntropy, OfIgnoredRowsIsZeroWhateverIsInThem) {
  using T = TypeParam;
  TestArray<T> x(Shape{3, 4});
  TestArray<int64_t> target(Shape{3});
  TestArray<T> dloss(Shape{3});
  for (int64_t r = 0; r < 3; ++r) target.set(r, kIgnore);
  for (int64_t r = 0; r < 3; ++r) dloss.set(r, r == 1 ? T(1) : kInf<T>);
  for (int64_t c = 0; c < 4; ++c) x.set(4 + c, std::numeric_limits<T>::quiet_NaN());
  for (int64_t c = 0; c < 4; ++c) x.set(8 + c, -kInf<T>);
  const Loss<T> result(x, target, dloss);
  EXPECT_EQ(result.loss.values(), std::vector<T>(3, 0));
  EXPECT_EQ(result.dlogits.values(), std::vector<T>(12, 0));
}

TYPED_TEST(CrossEntropy, IsAsExactForLargeLogitsAsForSmallOnes) {
  using T = TypeParam;
  for (const int64_t cols : {3, 40, 700}) {
    TestArray<T> large(Shape{2, cols}), small(Shape{2, cols}), dloss(Shape{2});
    const auto target = targets<int64_t>(2, cols);
    for (int64_t r = 0; r < 2; ++r) {
      dloss.set(r, 1);
      for (int64_t c = 0; c < cols; ++c) {
        const auto value = static_cast<T>(c % 5);
        small.set(r * cols + c, value);
        large.set(r * cols + c, value + static_cast<T>(r == 0 ? 10000 : -10000));
      }
    }
    const Loss<T> a(large, target, dloss), b(small, target, dloss);
    EXPECT_TRUE(test::same_bits(a.loss, b.loss));
    for (int64_t i = 0; i < 2 * cols; ++i) {
      const T tolerance = 16 * std::numeric_limits<T>::epsilon();
      EXPECT_NEAR(a.dlogits[i], b.dlogits[i], tolerance * std::max(std::abs(b.dlogits[i]), T(0.1)));
    }
  }
}

// As in PyTorch: infinity - infinity is no number. The gradient is 0 as that of softmax, so that one such row does not
// destroy all weights.
TYPED_TEST(CrossEntropy, OfARowOfMinusInfinitiesIsNanWithZeroGradient) {
  using T = TypeParam;
  for (const int64_t cols : {1, 10, 100}) {
    auto x = test::random_array<T>(Shape{2, cols}, 7);
    const auto dloss = test::random_array<T>(Shape{2}, 8);
    for (int64_t c = 0; c < cols; ++c) x.set(cols + c, -kInf<T>);
    const Loss<T> result(x, targets<int64_t>(2, cols), dloss);
    EXPECT_TRUE(std::isfinite(result.loss[0]));
    EXPECT_TRUE(std::isnan(result.loss[1]));
    EXPECT_EQ(result.lse[1], -kInf<T>);
    for (int64_t c = 0; c < cols; ++c) EXPECT_EQ(result.dlogits[cols + c], 0);
  }
}

TYPED_TEST(CrossEntropy, IsUntouchedByClassesThatAreMinusInfinity) {
  using T = TypeParam;
  for (const int64_t cols : {2, 10, 100}) {
    TestArray<T> x(Shape{1, cols}), dloss(Shape{1});
    TestArray<int64_t> target(Shape{1});
    dloss.set(0, 1);
    for (int64_t c = 1; c < cols; ++c) x.set(c, -kInf<T>);
    const Loss<T> result(x, target, dloss);
    EXPECT_EQ(result.loss[0], 0);
    EXPECT_EQ(result.dlogits.values(), std::vector<T>(static_cast<std::size_t>(cols), 0));

    target.set(0, 1);  // now the impossible class is the wanted one
    const Loss<T> impossible(x, target, dloss);
    EXPECT_EQ(impossible.loss[0], kInf<T>);
    EXPECT_EQ(impossible.dlogits[0], 1);
    EXPECT_EQ(impossible.dlogits[1], -1);
  }
}

TYPED_TEST(CrossEntropy, IsNanInARowWithNanOrPlusInfinityAndOnlyThere) {
  using T = TypeParam;
  for (const T bad : {std::numeric_limits<T>::quiet_NaN(), kInf<T>}) {
    for (const int64_t cols : {1, 10, 100}) {
      auto x = test::random_array<T>(Shape{3, cols}, 9);
      const auto dloss = test::random_array<T>(Shape{3}, 10);
      x.set(cols + cols / 2, bad);
      const Loss<T> result(x, targets<int64_t>(3, cols), dloss);
      for (int64_t r = 0; r < 3; ++r) {
        EXPECT_EQ(std::isnan(result.loss[r]), r == 1);
        for (int64_t c = 0; c < cols; ++c) EXPECT_EQ(std::isnan(result.dlogits[r * cols + c]), r == 1);
      }
    }
  }
}

/// Row `row` of a batch has the bits that it has alone.
template <class T>
void expect_row_is_that_alone(const TestArray<T>& x, const TestArray<int64_t>& target, const TestArray<T>& dloss,
                              const Loss<T>& batch, int64_t row) {
  const int64_t cols = x.array().shape[1];
  TestArray<T> x_alone(Shape{1, cols}), dloss_alone(Shape{1});
  TestArray<int64_t> target_alone(Shape{1});
  for (int64_t c = 0; c < cols; ++c) x_alone.set(c, x[row * cols + c]);
  dloss_alone.set(0, dloss[row]);
  target_alone.set(0, target[row]);
  const Loss<T> alone(x_alone, target_alone, dloss_alone);
  const auto bits = [](T value) { return std::signbit(value) ? -std::abs(value) - 1 : value; };  // -0 is not 0
  ASSERT_EQ(bits(alone.loss[0]), bits(batch.loss[row])) << row;
  ASSERT_EQ(alone.lse[0], batch.lse[row]) << row;
  for (int64_t c = 0; c < cols; ++c) ASSERT_EQ(bits(alone.dlogits[c]), bits(batch.dlogits[row * cols + c])) << row;
}

TYPED_TEST(CrossEntropy, OfARowAloneIsThatOfTheRowInABatch) {
  using T = TypeParam;
  const int64_t rows = 21;
  for (const int64_t cols : {1, 2, 3, 5, 8, 10, 16, 17, 33, 1025, 20000}) {
    const auto x = test::random_array<T>(Shape{rows, cols}, 11);
    const auto dloss = test::random_array<T>(Shape{rows}, 12);
    const auto target = targets<int64_t>(rows, cols);
    const Loss<T> batch(x, target, dloss);
    for (const int64_t row : {0, 3, 18}) expect_row_is_that_alone(x, target, dloss, batch, row);
  }
}

// Rows that are scaled while the next one is computed, or several at once, do not meet the others.
TYPED_TEST(CrossEntropy, OfARowAloneIsThatOfTheRowBesideIgnoredOnesAndMinusInfinities) {
  using T = TypeParam;
  const int64_t rows = 149;
  for (const int64_t cols : {2, 3, 4, 5, 7, 10, 16, 17, 32, 1025}) {
    auto x = test::random_array<T>(Shape{rows, cols}, 16);
    const auto dloss = test::random_array<T>(Shape{rows}, 17);
    auto target = targets<int64_t>(rows, cols);
    for (const int64_t row : {0, 9, 10, 39, 130}) target.set(row, kIgnore);
    for (int64_t c = 0; c < cols; ++c) x.set(20 * cols + c, -kInf<T>);
    for (int64_t c = 0; c < cols; ++c) x.set(22 * cols + c, c == target[22] ? T(1) : -kInf<T>);
    const Loss<T> batch(x, target, dloss);
    for (int64_t row = 0; row < rows; ++row) {
      if (row == 20) continue;  // its loss is NaN
      expect_row_is_that_alone(x, target, dloss, batch, row);
    }
    for (int64_t c = 0; c < cols; ++c) ASSERT_EQ(batch.dlogits[20 * cols + c], 0);

    // One positive factor for all, as a mean or a sum has it.
    TestArray<T> one(Shape{rows}, std::vector<int64_t>{0});
    for (int64_t row = 0; row < rows; ++row) one.set(row, T(0.25));
    const Loss<T> scaled(x, target, one);
    for (const int64_t row : {0, 9, 20}) {
      for (int64_t c = 0; c < cols; ++c) ASSERT_FALSE(std::signbit(scaled.dlogits[row * cols + c])) << row;
    }
  }
}

TYPED_TEST(CrossEntropy, IsTheSameForAnyNumberOfThreads) {
  using T = TypeParam;
  for (const Shape& shape : {Shape{5000, 10}, Shape{300, 400}, Shape{3, 50000}}) {
    const auto x = test::random_array<T>(shape, 13), dloss = test::random_array<T>(Shape{shape[0]}, 14);
    const auto target = targets<int64_t>(shape[0], shape[1]);
    const test::Threads one(1);
    const Loss<T> expected(x, target, dloss);
    for (const int threads : test::kThreadCounts) {
      const test::Threads scope(threads);
      const Loss<T> result(x, target, dloss);
      EXPECT_TRUE(test::same_bits(result.loss, expected.loss)) << threads << " threads";
      EXPECT_TRUE(test::same_bits(result.lse, expected.lse)) << threads << " threads";
      EXPECT_TRUE(test::same_bits(result.dlogits, expected.dlogits)) << threads << " threads";
    }
  }
}

}  // namespace
}  // namespace reel
