// Softmax over an axis against its definition in long double.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <utility>
#include <vector>

#include "reel/tests/kernels/arrays.h"

namespace reel {
namespace {

using std::int64_t;
using test::TestArray;

constexpr SoftmaxOp kOps[] = {SoftmaxOp::softmax, SoftmaxOp::log_softmax};

template <class T>
constexpr T kInf = std::numeric_limits<T>::infinity();
template <class T>
constexpr T kNan = std::numeric_limits<T>::quiet_NaN();

/// Calls f(positions) with the row-major numbers of the elements of each row along `axis`.
template <class F>
void for_each_row(const Shape& shape, int axis, F f) {
  int64_t outer = 1, inner = 1;
  for (int i = 0; i < axis; ++i) outer *= shape[i];
  for (int i = axis + 1; i < shape.rank(); ++i) inner *= shape[i];
  const int64_t n = shape[axis];
  for (int64_t o = 0; o < outer; ++o) {
    for (int64_t j = 0; j < inner; ++j) {
      std::vector<int64_t> positions;
      for (int64_t i = 0; i < n; ++i) positions.push_back((o * n + i) * inner + j);
      f(positions);
    }
  }
}

template <class T>
TestArray<T> softmax(SoftmaxOp op, const TestArray<T>& x, int axis, double temperature = 1) {
  TestArray<T> y(x.array().shape);
  test::cpu().softmax(op, x, axis, temperature, y);
  EXPECT_TRUE(y.margins_intact());
  return y;
}

template <class T>
TestArray<T> softmax_backward(SoftmaxOp op, const TestArray<T>& y, const TestArray<T>& dy, int axis,
                              double temperature = 1) {
  TestArray<T> dx(y.array().shape);
  test::cpu().softmax_backward(op, y, dy, axis, temperature, dx);
  EXPECT_TRUE(dx.margins_intact());
  return dx;
}

/// Rounding of the exponent (x - max) / temperature is magnified by its size. Probabilities below the normal numbers are 0.
template <class T>
void expect_is_softmax(SoftmaxOp op, const TestArray<T>& x, int axis, double temperature, const TestArray<T>& y) {
  const long double epsilon = std::numeric_limits<T>::epsilon();
  for_each_row(x.array().shape, axis, [&](const std::vector<int64_t>& row) {
    long double max = -kInf<long double>, sum = 0, mean = 0;  // mean: of the exponents' sizes

    for (int64_t i : row) max = std::max(max, static_cast<long double>(x[i]));
    for (int64_t i : row) sum += std::exp((x[i] - max) / temperature);
    for (int64_t i : row) mean += std::exp((x[i] - max) / temperature) / sum * (max - x[i]) / temperature;
    for (int64_t i : row) {
      const long double exponent = (x[i] - max) / temperature, log_value = exponent - std::log(sum);
      const long double expected = op == SoftmaxOp::softmax ? std::exp(log_value) : log_value;
      const long double scale = op == SoftmaxOp::softmax ? expected * (5 + 2 * std::abs(exponent) + 2 * mean)
                                                         : 5 + 2 * std::abs(exponent) + 2 * mean + std::log(sum);
      ASSERT_NEAR(y[i], expected, epsilon * scale + std::numeric_limits<T>::min())
          << "element " << i << " of " << x.array().shape.str();
    }
  });
}

template <class T>
void expect_is_gradient(SoftmaxOp op, const TestArray<T>& y, const TestArray<T>& dy, int axis, double temperature,
                        const TestArray<T>& dx) {
  const long double epsilon = std::numeric_limits<T>::epsilon();
  for_each_row(y.array().shape, axis, [&](const std::vector<int64_t>& row) {
    long double sum = 0, magnitude = 0;
    for (int64_t i : row) {
      const long double term = op == SoftmaxOp::softmax ? static_cast<long double>(y[i]) * dy[i] : dy[i];
      sum += term;
      magnitude += std::abs(term);
    }
    for (int64_t i : row) {
      const long double value = y[i], grad = dy[i], p = op == SoftmaxOp::softmax ? value : std::exp(value);
      const long double expected = (op == SoftmaxOp::softmax ? p * (grad - sum) : grad - p * sum) / temperature;
      const long double factor = op == SoftmaxOp::softmax ? p : 1;
      const long double scale = factor * std::abs(grad) + p * magnitude * (1 + std::abs(value));
      ASSERT_NEAR(dx[i], expected, 6 * epsilon * scale / temperature + std::numeric_limits<T>::min())
          << "element " << i << " of " << y.array().shape.str();
    }
  });
}

template <class T>
class Softmax : public testing::Test {};
using Types = testing::Types<float, double>;
TYPED_TEST_SUITE(Softmax, Types);

TYPED_TEST(Softmax, IsItsDefinitionOverEveryAxisOfEveryShape) {
  for (const Shape& shape : test::shapes()) {
    for (int axis = 0; axis < shape.rank(); ++axis) {
      for (const double temperature : {1.0, 0.25}) {
        for (const SoftmaxOp op : kOps) {
          const auto x = test::random_array<TypeParam>(shape, 1), dy = test::random_array<TypeParam>(shape, 2);
          const auto y = softmax(op, x, axis, temperature);
          expect_is_softmax(op, x, axis, temperature, y);
          expect_is_gradient(op, y, dy, axis, temperature, softmax_backward(op, y, dy, axis, temperature));
        }
      }
    }
  }
}

TYPED_TEST(Softmax, IsItsDefinitionForRowsOfEverySize) {
  for (const int64_t n : test::kSizes) {
    for (const SoftmaxOp op : kOps) {
      const Shape shape{2, n};
      auto x = test::random_array<TypeParam>(shape, 3);
      test::randomize(x, 4, -60, 60);
      const auto dy = test::random_array<TypeParam>(shape, 5);
      const auto y = softmax(op, x, 1);
      expect_is_softmax(op, x, 1, 1, y);
      expect_is_gradient(op, y, dy, 1, 1, softmax_backward(op, y, dy, 1));
    }
  }
}

TEST(SoftmaxOfLargeArrays, StreamsItsGradientToTheLastElement) {
  const Shape shape{7, 20, test::bytes_past_caches() / (4 * 7 * 20 * 16) * 16 + 16};
  const auto x = test::random_array<float>(shape, 6), dy = test::random_array<float>(shape, 7);
  const test::LineAlignedArray<float> stored(shape, 1), streamed(shape);
  for (const SoftmaxOp op : kOps) {
    const auto y = softmax(op, x, 1);
    test::cpu().softmax_backward(op, y, dy, 1, 1, stored);
    test::cpu().softmax_backward(op, y, dy, 1, 1, streamed);
    EXPECT_TRUE(streamed.margins_intact());
    for (int64_t i = 0; i < shape.size(); ++i) ASSERT_EQ(streamed[i], stored[i]) << i;
  }
}

TYPED_TEST(Softmax, OfAFewNumbersIsWhatOneWritesByHand) {
  TestArray<TypeParam> x(Shape{1, 3});
  x.set(1, static_cast<TypeParam>(std::log(2.0)));
  x.set(2, static_cast<TypeParam>(std::log(5.0)));
  const auto y = softmax(SoftmaxOp::softmax, x, 1);
  const TypeParam epsilon = std::numeric_limits<TypeParam>::epsilon();
  EXPECT_NEAR(y[0], 0.125, epsilon);
  EXPECT_NEAR(y[1], 0.25, epsilon);
  EXPECT_NEAR(y[2], 0.625, 2 * epsilon);
}

TYPED_TEST(Softmax, OfLargeLogitsIsThatOfTheirDifferences) {
  TestArray<TypeParam> large(Shape{2, 4}), small(Shape{2, 4});
  const TypeParam offsets[] = {10000, -10000};
  for (int64_t i = 0; i < 8; ++i) {
    small.set(i, static_cast<TypeParam>(i % 4));
    large.set(i, offsets[i / 4] + static_cast<TypeParam>(i % 4));
  }
  for (const SoftmaxOp op : kOps) {
    EXPECT_TRUE(test::same_bits(softmax(op, large, 1), softmax(op, small, 1)));
  }
  TestArray<TypeParam> far(Shape{1, 2});
  far.set(0, 10000);
  far.set(1, -10000);
  EXPECT_EQ(softmax(SoftmaxOp::softmax, far, 1).values(), (std::vector<TypeParam>{1, 0}));
  EXPECT_EQ(softmax(SoftmaxOp::log_softmax, far, 1).values(), (std::vector<TypeParam>{0, -20000}));
}

/// A row in several places: along the last axis, and down a column between others.
template <class T>
struct Placed {
  Shape shape;
  int axis;
  std::vector<int64_t> positions;  // of the row under test

  static std::vector<Placed> all(int64_t n) {
    std::vector<Placed> places(2);
    places[0] = {Shape{3, n}, 1, {}};
    places[1] = {Shape{2, n, 21}, 1, {}};
    for (int64_t i = 0; i < n; ++i) {
      places[0].positions.push_back(n + i);
      places[1].positions.push_back((n + i) * 21 + 20);
    }
    return places;
  }
};

constexpr int64_t kExtremeSizes[] = {1, 2, 5, 12, 20, 33, 200, 9000};

TYPED_TEST(Softmax, GivesZeroWhereTheLogitIsMinusInfinity) {
  for (const int64_t n : kExtremeSizes) {
    if (n == 1) continue;
    for (const auto& place : Placed<TypeParam>::all(n)) {
      auto x = test::random_array<TypeParam>(place.shape, 6);
      const auto dy = test::random_array<TypeParam>(place.shape, 7);
      for (std::size_t i = 1; i < place.positions.size(); i += 2) x.set(place.positions[i], -kInf<TypeParam>);
      const auto y = softmax(SoftmaxOp::softmax, x, place.axis);
      const auto log_y = softmax(SoftmaxOp::log_softmax, x, place.axis);
      const auto dx = softmax_backward(SoftmaxOp::softmax, y, dy, place.axis);
      const auto log_dx = softmax_backward(SoftmaxOp::log_softmax, log_y, dy, place.axis);
      long double sum = 0;
      for (std::size_t i = 0; i < place.positions.size(); ++i) {
        const int64_t p = place.positions[i];
        sum += y[p];
        if (i % 2 == 0) continue;
        EXPECT_EQ(y[p], 0);
        EXPECT_EQ(dx[p], 0);
        EXPECT_EQ(log_y[p], -kInf<TypeParam>);
        EXPECT_EQ(log_dx[p], dy[p]);
      }
      EXPECT_NEAR(sum, 1, 1e-5);
      for (int64_t i = 0; i < dx.size(); ++i) EXPECT_TRUE(std::isfinite(dx[i]) && std::isfinite(log_dx[i]));
    }
  }
}

TYPED_TEST(Softmax, OfNothingButMinusInfinityIsZeroWithZeroGradient) {
  for (const int64_t n : kExtremeSizes) {
    for (const auto& place : Placed<TypeParam>::all(n)) {
      auto x = test::random_array<TypeParam>(place.shape, 8);
      const auto dy = test::random_array<TypeParam>(place.shape, 9);
      for (int64_t p : place.positions) x.set(p, -kInf<TypeParam>);
      for (const double temperature : {1.0, 2.0}) {
        const auto y = softmax(SoftmaxOp::softmax, x, place.axis, temperature);
        const auto log_y = softmax(SoftmaxOp::log_softmax, x, place.axis, temperature);
        const auto dx = softmax_backward(SoftmaxOp::softmax, y, dy, place.axis, temperature);
        const auto log_dx = softmax_backward(SoftmaxOp::log_softmax, log_y, dy, place.axis, temperature);
        for (int64_t p : place.positions) {
          EXPECT_EQ(y[p], 0);
          EXPECT_EQ(log_y[p], -kInf<TypeParam>);
          EXPECT_EQ(dx[p], 0);
          EXPECT_EQ(log_dx[p], 0);
        }
        EXPECT_NE(y[0], 0);
        EXPECT_TRUE(n == 1 || log_dx[0] != 0);
      }
    }
  }
}

TYPED_TEST(Softmax, IsNanInARowWithNanOrPlusInfinityAndOnlyThere) {
  for (const TypeParam bad : {kNan<TypeParam>, kInf<TypeParam>}) {
    for (const bool rest_is_minus_infinity : {false, true}) {
      for (const int64_t n : kExtremeSizes) {
        for (const auto& place : Placed<TypeParam>::all(n)) {
          for (const SoftmaxOp op : kOps) {
            auto x = test::random_array<TypeParam>(place.shape, 10);
            if (rest_is_minus_infinity) {
              for (int64_t p : place.positions) x.set(p, -kInf<TypeParam>);
            }
            x.set(place.positions[place.positions.size() / 2], bad);
            const auto y = softmax(op, x, place.axis);
            int64_t nans = 0;
            for (int64_t i = 0; i < y.size(); ++i) nans += std::isnan(y[i]);
            EXPECT_EQ(nans, n);
            for (int64_t p : place.positions) EXPECT_TRUE(std::isnan(y[p]));
          }
        }
      }
    }
  }
}

TYPED_TEST(Softmax, SumsALongRowWithoutLosingDigits) {
  const int64_t n = 1 << 21;
  TestArray<TypeParam> x(Shape{1, n});
  const auto y = softmax(SoftmaxOp::softmax, x, 1);
  EXPECT_EQ(y[0], std::ldexp(TypeParam(1), -21));
  EXPECT_EQ(y[n - 1], std::ldexp(TypeParam(1), -21));
}

TYPED_TEST(Softmax, OfARowAloneIsThatOfTheRowInABatch) {
  for (const int64_t n : {1, 10, 20, 33, 257, 20000}) {
    for (const int64_t inner : {1, 5, 70}) {
      if (n * inner > 30000) continue;
      const auto x = test::random_array<TypeParam>(Shape{7, n, inner}, 11);
      const auto dy = test::random_array<TypeParam>(Shape{7, n, inner}, 12);
      TestArray<TypeParam> x_alone(Shape{1, n, inner}), dy_alone(Shape{1, n, inner});
      const int64_t size = n * inner, start = 5 * size;
      for (int64_t i = 0; i < size; ++i) {
        x_alone.set(i, x[start + i]);
        dy_alone.set(i, dy[start + i]);
      }
      for (const SoftmaxOp op : kOps) {
        const auto y = softmax(op, x, 1), y_alone = softmax(op, x_alone, 1);
        const auto dx = softmax_backward(op, y, dy, 1), dx_alone = softmax_backward(op, y_alone, dy_alone, 1);
        for (int64_t i = 0; i < size; ++i) {
          ASSERT_EQ(y_alone[i], y[start + i]);
          ASSERT_EQ(dx_alone[i], dx[start + i]);
        }
      }
    }
  }
}

// Short rows go through registers several at a time, and up to 128 of them through each step.
TYPED_TEST(Softmax, OfShortRowsIsThatOfEachAloneWhateverTheyHold) {
  const int64_t rows = 149;
  for (int64_t n = 1; n <= 34; ++n) {
    auto x = test::random_array<TypeParam>(Shape{rows, n}, 15);
    test::randomize(x, 16, -40, 40);
    for (int64_t i = 0; i < n; ++i) {
      x.set(5 * n + i, -kInf<TypeParam>);
      x.set(17 * n + i, i % 3 == 0 ? kNan<TypeParam> : -kInf<TypeParam>);
      if (i % 2 == 1) x.set(18 * n + i, -kInf<TypeParam>);
    }
    x.set(21 * n + n / 2, kInf<TypeParam>);
    x.set(30 * n, kNan<TypeParam>);
    for (int64_t i = 0; i < n; ++i) x.set(26 * n + i, i == n - 1 ? TypeParam(-0.0) : TypeParam(-1000));
    for (const SoftmaxOp op : kOps) {
      for (const double temperature : {1.0, 0.3}) {
        const auto y = softmax(op, x, 1, temperature);
        TestArray<TypeParam> row(Shape{1, n});
        for (int64_t r = 0; r < rows; ++r) {
          for (int64_t i = 0; i < n; ++i) row.set(i, x[r * n + i]);
          const auto alone = softmax(op, row, 1, temperature);
          for (int64_t i = 0; i < n; ++i) {
            const bool same = alone[i] == y[r * n + i] && std::signbit(alone[i]) == std::signbit(y[r * n + i]);
            ASSERT_TRUE(same || (std::isnan(alone[i]) && std::isnan(y[r * n + i])))
                << "element " << i << " of " << n << " in row " << r << ": " << y[r * n + i] << ", alone " << alone[i];
          }
        }
      }
    }
  }
}

TYPED_TEST(Softmax, IsTheSameForAnyNumberOfThreads) {
  for (const auto& [shape, axis] : {std::pair<Shape, int>{Shape{3000, 37}, 1},
                                    {Shape{3, 50000}, 1},
                                    {Shape{5, 300, 90}, 1},
                                    {Shape{40, 5000}, 0}}) {
    const auto x = test::random_array<TypeParam>(shape, 13), dy = test::random_array<TypeParam>(shape, 14);
    for (const SoftmaxOp op : kOps) {
      TestArray<TypeParam> y(shape), dx(shape);
      for (const int threads : test::kThreadCounts) {
        const test::Threads scope(threads);
        const auto result = softmax(op, x, axis);
        const auto gradient = softmax_backward(op, result, dy, axis);
        if (threads == 1) {
          y = result;
          dx = gradient;
        }
        EXPECT_TRUE(test::same_bits(result, y)) << threads << " threads";
        EXPECT_TRUE(test::same_bits(gradient, dx)) << threads << " threads";
      }
    }
  }
}

}  // namespace
}  // namespace reel
