// Ragged kernels: reductions over segments of rows, their gradients, padding, and softmax within segments.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <random>
#include <vector>

#include "reel/tests/kernels/segment_problems.h"

namespace reel {
namespace {

using namespace segment_testing;

constexpr ReduceOp kReductions[] = {ReduceOp::sum, ReduceOp::mean, ReduceOp::max, ReduceOp::min};

template <class T>
struct Reduced {
  TestArray<T> y;
  TestArray<int64_t> which;
};

template <class T>
Reduced<T> reduce(ReduceOp op, const TestArray<T>& x, const Ragged& ragged, bool wants_which) {
  const Shape shape{ragged.count(), x.array().shape[1]};
  Reduced<T> result{TestArray<T>(shape), TestArray<int64_t>(shape)};
  test::cpu().segment_reduce(op, x, ragged, result.y, wants_which ? &result.which.array() : nullptr);
  EXPECT_TRUE(result.y.margins_intact() && result.which.margins_intact());
  return result;
}

template <class T>
void expect_is_reduced(ReduceOp op, const TestArray<T>& x, const Ragged& ragged, const Reduced<T>& result,
                       bool with_which) {
  const int64_t width = x.array().shape[1];
  for (int64_t s = 0; s < ragged.count(); ++s) {
    for (int64_t j = 0; j < width; ++j) {
      long double sum = 0, magnitude = 0;
      T best = op == ReduceOp::max ? -kInf<T> : kInf<T>;
      int64_t which = -1;
      for (int64_t r = 0; r < ragged.length(s); ++r) {
        const T value = x[(ragged.start(s) + r) * width + j];
        sum += value;
        magnitude += std::abs(value);
        const bool better = op == ReduceOp::max ? !(value <= best) : !(value >= best);
        if (which == -1 || (better && best == best)) {
          best = value;
          which = r;
        }
      }
      const T got = result.y[s * width + j];
      if (op == ReduceOp::sum || op == ReduceOp::mean) {
        const long double count = op == ReduceOp::sum ? 1 : std::max<int64_t>(ragged.length(s), 1);
        ASSERT_NEAR(got, sum / count, 4 * std::numeric_limits<T>::epsilon() * magnitude / count) << s << ", " << j;
      } else {
        ASSERT_TRUE(got == best || (std::isnan(got) && std::isnan(best))) << got << " " << best;
        ASSERT_TRUE(!with_which || result.which[s * width + j] == which) << s << ", " << j;
      }
    }
  }
}

template <class T>
class SegmentReduce : public testing::Test {};
template <class T>
class SegmentGradient : public testing::Test {};
template <class T>
class SegmentPad : public testing::Test {};
using FloatingTypes = testing::Types<float, double>;
using AllTypes = testing::Types<float, double, std::int32_t, int64_t, std::uint8_t, bool>;
TYPED_TEST_SUITE(SegmentReduce, FloatingTypes);
TYPED_TEST_SUITE(SegmentGradient, FloatingTypes);
TYPED_TEST_SUITE(SegmentPad, AllTypes);

// --- reductions --------------------------------------------------------------------------------------------------------

TYPED_TEST(SegmentReduce, IsItsDefinitionForAllLengthsAndWidths) {
  for (const Ragged& ragged : many_raggeds()) {
    for (const int64_t width : kWidths) {
      const auto x = test::random_array<TypeParam>(Shape{ragged.total(), width}, 2);
      for (const ReduceOp op : kReductions) {
        for (const bool with_which : {false, true}) {
          if (with_which && (op == ReduceOp::sum || op == ReduceOp::mean)) continue;
          expect_is_reduced(op, x, ragged, reduce(op, x, ragged, with_which), with_which);
        }
      }
    }
  }
}

TYPED_TEST(SegmentReduce, OfWidthZeroWritesNothing) {
  const Ragged ragged({2, 0, 3});
  for (const ReduceOp op : kReductions) reduce(op, TestArray<TypeParam>(Shape{5, 0}), ragged, false);
}

TYPED_TEST(SegmentReduce, OfAnEmptySegmentIsZeroOrInfiniteWithoutAWinner) {
  const Ragged ragged({0, 2, 0});
  for (const int64_t width : {1, 3, 64}) {
    const auto x = test::random_array<TypeParam>(Shape{2, width}, 3);
    for (const int64_t s : {0, 2}) {
      for (int64_t j = s * width; j < (s + 1) * width; ++j) {
        EXPECT_EQ(reduce(ReduceOp::sum, x, ragged, false).y[j], 0);
        EXPECT_EQ(reduce(ReduceOp::mean, x, ragged, false).y[j], 0);
        EXPECT_EQ(reduce(ReduceOp::max, x, ragged, true).y[j], -kInf<TypeParam>);
        EXPECT_EQ(reduce(ReduceOp::min, x, ragged, true).y[j], kInf<TypeParam>);
        EXPECT_EQ(reduce(ReduceOp::max, x, ragged, true).which[j], -1);
        EXPECT_EQ(reduce(ReduceOp::min, x, ragged, true).which[j], -1);
      }
    }
  }
}

TYPED_TEST(SegmentReduce, LetsTheFirstOfEqualsWinAndTheFirstNanWinOverAll) {
  const TypeParam nan = std::numeric_limits<TypeParam>::quiet_NaN();
  for (const int64_t width : {1, 5, 64}) {
    for (const int64_t rows : {5, 40, 300}) {
      const Ragged ragged({1, rows, 2});
      TestArray<TypeParam> x(Shape{rows + 3, width});
      for (const ReduceOp op : {ReduceOp::max, ReduceOp::min}) {
        const TypeParam winner = op == ReduceOp::max ? 9 : -9;
        for (int64_t j = 0; j < width; ++j) {
          x.set((1 + 2) * width + j, winner);
          x.set((1 + 4) * width + j, winner);
        }
        expect_is_reduced(op, x, ragged, reduce(op, x, ragged, true), true);
        auto bad = x;
        bad.set((1 + 3) * width + width - 1, nan);
        bad.set((1 + 4) * width + width - 1, nan);
        const auto result = reduce(op, bad, ragged, true);
        EXPECT_TRUE(std::isnan(result.y[2 * width - 1]));
        EXPECT_EQ(result.which[2 * width - 1], 3);
        expect_is_reduced(op, bad, ragged, result, true);
        expect_is_reduced(op, bad, ragged, reduce(op, bad, ragged, false), false);
      }
    }
  }
}

TYPED_TEST(SegmentReduce, FindsAWinnerAmongNothingButTheWorst) {
  for (const int64_t width : {1, 3, 64}) {
    TestArray<TypeParam> x(Shape{4, width});
    for (const ReduceOp op : {ReduceOp::max, ReduceOp::min}) {
      const TypeParam worst = op == ReduceOp::max ? -kInf<TypeParam> : kInf<TypeParam>;
      for (int64_t i = 0; i < x.size(); ++i) x.set(i, worst);
      const auto result = reduce(op, x, Ragged({4}), true);
      for (int64_t j = 0; j < width; ++j) {
        EXPECT_EQ(result.y[j], worst);
        EXPECT_EQ(result.which[j], 0);
      }
    }
  }
}

// Half an ULP for each of the 128 additions of a piece and the 13 that join the pieces; a plain sum of a million rows in f32
// may be wrong by as many thousands.
TYPED_TEST(SegmentReduce, SumsAMillionRowsToTheLastDigits) {
  for (const int64_t width : {1, 3, 17}) {
    const int64_t rows = 1000000;
    TestArray<TypeParam> x(Shape{rows, width});
    long double exact = 0;
    for (int64_t i = 0; i < x.size(); ++i) x.set(i, TypeParam(0.1) + static_cast<TypeParam>(i / width % 7));
    for (int64_t r = 0; r < rows; ++r) exact += x[r * width];
    const long double tolerance = 0.5L * (128 + 13) * std::numeric_limits<TypeParam>::epsilon() * exact;
    const auto sum = reduce(ReduceOp::sum, x, Ragged({0, rows}), false);
    const auto mean = reduce(ReduceOp::mean, x, Ragged({0, rows}), false);
    for (int64_t j = 0; j < width; ++j) {
      EXPECT_NEAR(sum.y[width + j], exact, tolerance);
      EXPECT_NEAR(mean.y[width + j], exact / rows, tolerance / rows);
    }
  }
}

// Factors whose products are exact in any order.
TYPED_TEST(SegmentReduce, MultipliesExactlyHoweverLongTheSegments) {
  for (const int64_t width : {1, 6, 64}) {
    for (const Ragged& ragged : {random_ragged(40, 300, 4), long_ragged(width)}) {
      TestArray<TypeParam> x(Shape{ragged.total(), width});
      std::vector<double> products;
      for (int64_t s = 0; s < ragged.count(); ++s) {
        products.push_back(1);
        for (int64_t r = 0; r < ragged.length(s); ++r) {
          const double factor = (r % 2 == 0 ? 2 : 0.5) * (r % 7 == 3 ? -1 : 1) * (r + 1 == ragged.length(s) ? 3 : 1);
          products.back() *= factor;
          for (int64_t j = 0; j < width; ++j) x.set((ragged.start(s) + r) * width + j, static_cast<TypeParam>(factor));
        }
      }
      for (const int threads : {1, 3}) {
        const test::Threads scope(threads);
        const auto result = reduce(ReduceOp::prod, x, ragged, false);
        for (int64_t s = 0; s < ragged.count(); ++s)
          for (int64_t j = 0; j < width; ++j)
            ASSERT_EQ(result.y[s * width + j], products[static_cast<std::size_t>(s)]) << s << ", " << j;
      }
    }
  }
}

TYPED_TEST(SegmentReduce, OfASegmentAloneIsThatOfTheSegmentInABatch) {
  for (const int64_t width : {1, 6, 64, 257}) {
    for (const Ragged& ragged : {random_ragged(40, 300, 4), long_ragged(width)}) {
      const auto x = test::random_array<TypeParam>(Shape{ragged.total(), width}, 5);
      for (const ReduceOp op : kReductions) {
        const bool with_which = op == ReduceOp::max || op == ReduceOp::min;
        const auto batch = reduce(op, x, ragged, with_which);
        for (int64_t s = 0; s < ragged.count(); ++s) {
          const auto alone = reduce(op, segment_alone(x, ragged, s), Ragged({ragged.length(s)}), with_which);
          for (int64_t j = 0; j < width; ++j) {
            ASSERT_EQ(alone.y[j], batch.y[s * width + j]);
            ASSERT_EQ(alone.which[j], batch.which[s * width + j]);
          }
        }
      }
    }
  }
}

// Where a long segment is cut depends on its width, the order of its sum does not.
TYPED_TEST(SegmentReduce, OfAColumnDoesNotDependOnTheColumnsBesideIt) {
  const int64_t rows = 20000;
  const auto x = test::random_array<TypeParam>(Shape{rows, 100}, 6);
  const auto all = reduce(ReduceOp::sum, x, Ragged({rows}), false);
  for (const int64_t width : {2, 5, 40}) {
    TestArray<TypeParam> few(Shape{rows, width});
    for (int64_t i = 0; i < few.size(); ++i) few.set(i, x[i / width * 100 + 60 + i % width]);
    const auto some = reduce(ReduceOp::sum, few, Ragged({rows}), false);
    for (int64_t j = 0; j < width; ++j) EXPECT_EQ(some.y[j], all.y[60 + j]);
  }
}

TYPED_TEST(SegmentReduce, IsTheSameForAnyNumberOfThreads) {
  for (const int64_t width : {1, 6, 64, 3000}) {
    for (const Ragged& ragged :
         {random_ragged(400000 / width / 20, 40, 7), long_ragged(width), Ragged({300000 / width})}) {
      const auto x = test::random_array<TypeParam>(Shape{ragged.total(), width}, 8);
      for (const ReduceOp op : kReductions) {
        const bool with_which = op == ReduceOp::max;
        const test::Threads one(1);
        const auto expected = reduce(op, x, ragged, with_which);
        expect_is_reduced(op, x, ragged, expected, with_which);
        for (const int threads : test::kThreadCounts) {
          const test::Threads scope(threads);
          const auto result = reduce(op, x, ragged, with_which);
          ASSERT_TRUE(test::same_bits(result.y, expected.y)) << threads << " threads";
          ASSERT_TRUE(test::same_bits(result.which, expected.which)) << threads << " threads";
        }
      }
    }
  }
}

// --- gradients ---------------------------------------------------------------------------------------------------------

TYPED_TEST(SegmentGradient, OfSumAndMeanIsTheSegmentsOwnForEachRow) {
  std::vector<Ragged> raggeds = many_raggeds();
  raggeds.push_back(long_ragged(64));
  for (const Ragged& ragged : raggeds) {
    for (const int64_t width : {1, 3, 16, 33, 64, 70}) {
      if (ragged.total() * width > 2000000) continue;
      const auto x = test::random_array<TypeParam>(Shape{ragged.count(), width}, 9);
      for (const bool mean : {false, true}) {
        TestArray<TypeParam> y(Shape{ragged.total(), width});
        test::cpu().segment_broadcast(x, ragged, mean, y);
        EXPECT_TRUE(y.margins_intact());
        for (int64_t s = 0; s < ragged.count(); ++s) {
          const TypeParam length = mean ? static_cast<TypeParam>(ragged.length(s)) : 1;
          for (int64_t i = ragged.start(s) * width; i < ragged.start(s + 1) * width; ++i) {
            ASSERT_EQ(y[i], x[s * width + i % width] / length);
          }
        }
      }
    }
  }
}

TYPED_TEST(SegmentGradient, OfMaxGoesToTheWinnerAlone) {
  std::vector<Ragged> raggeds = many_raggeds();
  raggeds.push_back(long_ragged(16));
  for (const Ragged& ragged : raggeds) {
    for (const int64_t width : {1, 3, 16, 33, 64}) {
      if (ragged.total() * width > 2000000) continue;
      const auto x = test::random_array<TypeParam>(Shape{ragged.total(), width}, 10);
      const auto dy = test::random_array<TypeParam>(Shape{ragged.count(), width}, 11);
      const auto result = reduce(ReduceOp::max, x, ragged, true);
      TestArray<TypeParam> dx = x;
      test::cpu().segment_select_backward(dy, result.which, ragged, dx);
      EXPECT_TRUE(dx.margins_intact());
      for (int64_t s = 0; s < ragged.count(); ++s) {
        for (int64_t i = 0; i < ragged.length(s) * width; ++i) {
          const bool winner = result.which[s * width + i % width] == i / width;
          ASSERT_EQ(dx[ragged.start(s) * width + i], winner ? dy[s * width + i % width] : 0);
        }
      }
    }
  }
}

TEST(SegmentGradientOfLargeArrays, StreamsToTheLastElement) {
  constexpr int64_t kWidth = 32;
  const Ragged ragged = random_ragged(10400, 100, 3);
  ASSERT_GT(ragged.total() * kWidth, 12 << 20);  // 48 MiB
  const auto dy = test::random_array<float>(Shape{ragged.count(), kWidth}, 12);
  const auto result = reduce(ReduceOp::max, test::random_array<float>(Shape{ragged.total(), kWidth}, 13), ragged, true);
  const test::LineAlignedArray<float> dx(Shape{ragged.total(), kWidth});
  const auto expect_each = [&](const char* what, auto want) {
    for (int64_t s = 0; s < ragged.count(); ++s)
      for (int64_t i = 0; i < ragged.length(s) * kWidth; ++i)
        ASSERT_EQ(dx[ragged.start(s) * kWidth + i], want(s * kWidth + i % kWidth, i / kWidth)) << what << " " << s;
    EXPECT_TRUE(dx.margins_intact());
  };
  test::cpu().segment_broadcast(dy, ragged, false, dx);
  expect_each("broadcast", [&](int64_t i, int64_t) { return dy[i]; });
  test::cpu().segment_select_backward(dy, result.which, ragged, dx);
  expect_each("select", [&](int64_t i, int64_t row) { return result.which[i] == row ? dy[i] : 0.0f; });
}

// --- padding -----------------------------------------------------------------------------------------------------------

TYPED_TEST(SegmentPad, PutsRowsThenPaddingAndUnpadTakesThemOut) {
  std::vector<Ragged> raggeds = many_raggeds();
  raggeds.push_back(random_ragged(2000, 60, 12));
  for (const Ragged& ragged : raggeds) {
    for (const int64_t width : {0, 1, 3, 33}) {
      for (const int64_t extra : {0, 2}) {
        const int64_t length = ragged.longest() + extra;
        const auto x = test::random_array<TypeParam>(Shape{ragged.total(), width}, 13);
        TestArray<TypeParam> y(Shape{ragged.count(), length, width}), back(Shape{ragged.total(), width});
        test::cpu().segment_pad(x, ragged, Scalar(7), y);
        EXPECT_TRUE(y.margins_intact());
        for (int64_t s = 0; s < ragged.count(); ++s) {
          for (int64_t i = 0; i < length * width; ++i) {
            const bool padding = i >= ragged.length(s) * width;
            ASSERT_EQ(y[s * length * width + i], padding ? static_cast<TypeParam>(7) : x[ragged.start(s) * width + i]);
          }
        }
        test::cpu().segment_unpad(y, ragged, back);
        EXPECT_TRUE(test::same_bits(back, x) && back.margins_intact());
      }
    }
  }
}

}  // namespace
}  // namespace reel
