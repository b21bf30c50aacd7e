// The softmax within each segment, against its definition.

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "reel/tests/kernels/segment_problems.h"

namespace reel {
namespace {

using namespace segment_testing;

constexpr SoftmaxOp kSoftmaxes[] = {SoftmaxOp::softmax, SoftmaxOp::log_softmax};

template <class T>
class SegmentSoftmax : public testing::Test {};
using FloatingTypes = testing::Types<float, double>;
TYPED_TEST_SUITE(SegmentSoftmax, FloatingTypes);

template <class T>
TestArray<T> softmax(SoftmaxOp op, const TestArray<T>& x, const Ragged& ragged) {
  TestArray<T> y(x.array().shape);
  test::cpu().segment_softmax(op, x, ragged, 1, y);
  EXPECT_TRUE(y.margins_intact());
  return y;
}

template <class T>
TestArray<T> softmax_backward(SoftmaxOp op, const TestArray<T>& y, const TestArray<T>& dy, const Ragged& ragged) {
  TestArray<T> dx(y.array().shape);
  test::cpu().segment_softmax_backward(op, y, dy, ragged, 1, dx);
  EXPECT_TRUE(dx.margins_intact());
  return dx;
}

// Values from -8 to 8: exponents are at most 16, probabilities normal numbers.
TYPED_TEST(SegmentSoftmax, IsItsDefinitionDownEachColumnOfEachSegment) {
  const long double epsilon = std::numeric_limits<TypeParam>::epsilon();
  for (const Ragged& ragged : many_raggeds()) {
    for (const int64_t width : kWidths) {
      auto x = test::random_array<TypeParam>(Shape{ragged.total(), width}, 14);
      test::randomize(x, 14, -8, 8);
      const auto dy = test::random_array<TypeParam>(Shape{ragged.total(), width}, 15);
      for (const SoftmaxOp op : kSoftmaxes) {
        const auto y = softmax(op, x, ragged), dx = softmax_backward(op, y, dy, ragged);
        for (int64_t s = 0; s < ragged.count(); ++s) {
          for (int64_t j = 0; j < width; ++j) {
            const int64_t start = ragged.start(s) * width + j, end = ragged.start(s + 1) * width;
            long double max = -kInf<long double>, sum = 0, dot = 0, magnitude = 0;
            for (int64_t i = start; i < end; i += width) max = std::max(max, static_cast<long double>(x[i]));
            for (int64_t i = start; i < end; i += width) {
              sum += std::exp(x[i] - max);
              const long double term = op == SoftmaxOp::softmax ? static_cast<long double>(y[i]) * dy[i] : dy[i];
              dot += term;
              magnitude += std::abs(term);
            }
            for (int64_t i = start; i < end; i += width) {
              const long double log_p = x[i] - max - std::log(sum), p = std::exp(log_p);
              if (op == SoftmaxOp::softmax) {
                ASSERT_NEAR(y[i], p, 40 * epsilon * p);
                ASSERT_NEAR(dx[i], y[i] * (dy[i] - dot), 6 * epsilon * p * (magnitude + std::abs(dy[i])));
              } else {
                ASSERT_NEAR(y[i], log_p, 40 * epsilon);
                ASSERT_NEAR(dx[i], dy[i] - p * dot, 40 * epsilon * (p * magnitude + std::abs(dy[i])));
              }
            }
          }
        }
      }
    }
  }
}

TYPED_TEST(SegmentSoftmax, TakesInfinitiesAndNanAsARowDoes) {
  const TypeParam inf = kInf<TypeParam>, nan = std::numeric_limits<TypeParam>::quiet_NaN();
  for (const int64_t width : {1, 3, 64}) {
    for (const int64_t rows : {1, 3, 200}) {
      // One segment of each kind: finite, partly -inf, all -inf, +inf, NaN among -inf, large.
      const Ragged ragged({rows, rows + 1, rows, rows + 1, rows + 1, 2});
      auto x = test::random_array<TypeParam>(Shape{ragged.total(), width}, 16);
      const auto dy = test::random_array<TypeParam>(Shape{ragged.total(), width}, 17);
      const int64_t j = width - 1;  // the column under test; those beside it stay finite
      const auto set = [&](int64_t s, int64_t r, TypeParam value) { x.set((ragged.start(s) + r) * width + j, value); };
      const auto at = [&](int64_t s, int64_t r) { return (ragged.start(s) + r) * width + j; };
      set(1, rows, -inf);
      for (int64_t r = 0; r < rows; ++r) set(2, r, -inf);
      set(3, rows / 2, inf);
      for (int64_t r = 0; r <= rows; ++r) set(4, r, r == rows ? nan : -inf);
      set(5, 0, 10000);
      set(5, 1, -10000);
      for (const SoftmaxOp op : kSoftmaxes) {
        const bool is_log = op == SoftmaxOp::log_softmax;
        const TypeParam none = is_log ? -inf : 0;
        const auto y = softmax(op, x, ragged), dx = softmax_backward(op, y, dy, ragged);
        for (int64_t r = 0; r < rows; ++r) {
          EXPECT_TRUE(std::isfinite(y[at(0, r)]) && std::isfinite(dx[at(0, r)]));
          EXPECT_TRUE(std::isfinite(y[at(1, r)]) && std::isfinite(dx[at(1, r)]));
          EXPECT_EQ(y[at(2, r)], none);
          EXPECT_EQ(dx[at(2, r)], 0);
        }
        EXPECT_EQ(y[at(1, rows)], none);
        for (int64_t r = 0; r <= rows; ++r) EXPECT_TRUE(std::isnan(y[at(3, r)]) && std::isnan(y[at(4, r)]));
        EXPECT_EQ(y[at(5, 0)], is_log ? 0 : 1);
        EXPECT_EQ(y[at(5, 1)], is_log ? -20000 : 0);
        for (int64_t i = 0; i < y.size(); ++i) {
          EXPECT_TRUE(i % width == j || (std::isfinite(y[i]) && std::isfinite(dx[i])));
        }
      }
    }
  }
}

TYPED_TEST(SegmentSoftmax, SumsALongSegmentWithoutLosingDigits) {
  for (const int64_t width : {1, 3}) {
    const int64_t rows = 1 << 20;
    const TestArray<TypeParam> x(Shape{rows, width});
    const auto y = softmax(SoftmaxOp::softmax, x, Ragged({rows}));
    for (int64_t j = 0; j < width; ++j) EXPECT_EQ(y[j], std::ldexp(TypeParam(1), -20));
  }
}

TYPED_TEST(SegmentSoftmax, OfASegmentAloneIsThatOfTheSegmentInABatch) {
  for (const int64_t width : {1, 6, 64}) {
    for (const Ragged& ragged : {random_ragged(40, 300, 18), long_ragged(width)}) {
      const auto x = test::random_array<TypeParam>(Shape{ragged.total(), width}, 19);
      const auto dy = test::random_array<TypeParam>(Shape{ragged.total(), width}, 20);
      for (const SoftmaxOp op : kSoftmaxes) {
        const auto y = softmax(op, x, ragged), dx = softmax_backward(op, y, dy, ragged);
        for (int64_t s = 0; s < ragged.count(); ++s) {
          const Ragged one({ragged.length(s)});
          const auto y_alone = softmax(op, segment_alone(x, ragged, s), one);
          const auto dx_alone = softmax_backward(op, y_alone, segment_alone(dy, ragged, s), one);
          ASSERT_TRUE(test::same_bits(y_alone, segment_alone(y, ragged, s)));
          ASSERT_TRUE(test::same_bits(dx_alone, segment_alone(dx, ragged, s)));
        }
      }
    }
  }
}

TYPED_TEST(SegmentSoftmax, IsTheSameForAnyNumberOfThreads) {
  for (const int64_t width : {1, 6, 64, 3000}) {
    for (const Ragged& ragged : {random_ragged(300000 / width / 20, 40, 21), long_ragged(width)}) {
      const auto x = test::random_array<TypeParam>(Shape{ragged.total(), width}, 22);
      const auto dy = test::random_array<TypeParam>(Shape{ragged.total(), width}, 23);
      for (const SoftmaxOp op : kSoftmaxes) {
        const test::Threads one(1);
        const auto y = softmax(op, x, ragged), dx = softmax_backward(op, y, dy, ragged);
        for (const int threads : test::kThreadCounts) {
          const test::Threads scope(threads);
          ASSERT_TRUE(test::same_bits(softmax(op, x, ragged), y)) << threads << " threads";
          ASSERT_TRUE(test::same_bits(softmax_backward(op, y, dy, ragged), dx)) << threads << " threads";
        }
      }
    }
  }
}

// A segment of as many rows as several tasks share is among them.
TYPED_TEST(SegmentSoftmax, OfLargeArraysStreamsItsGradientToTheLastElement) {
  const int64_t enough = test::bytes_past_caches() / static_cast<int64_t>(sizeof(TypeParam));
  for (const int64_t width : {32, 48, 192}) {
    std::vector<int64_t> lengths(static_cast<std::size_t>(20000 / width), 31);
    lengths.push_back(enough / width);
    const Ragged ragged(lengths);
    const Shape shape{ragged.total(), width};
    ASSERT_GT(shape.size(), enough);
    const auto x = test::random_array<TypeParam>(shape, 24), dy = test::random_array<TypeParam>(shape, 25);
    const test::LineAlignedArray<TypeParam> stored(shape, 1), streamed(shape);
    for (const SoftmaxOp op : kSoftmaxes) {
      const auto y = softmax(op, x, ragged);
      test::cpu().segment_softmax_backward(op, y, dy, ragged, 1, stored);
      for (const int threads : {1, 3}) {
        const test::Threads scope(threads);
        test::cpu().segment_softmax_backward(op, y, dy, ragged, 1, streamed);
        EXPECT_TRUE(streamed.margins_intact());
        for (int64_t i = 0; i < shape.size(); ++i) ASSERT_EQ(streamed[i], stored[i]) << i << " of " << shape.str();
      }
    }
  }
}

}  // namespace
}  // namespace reel
