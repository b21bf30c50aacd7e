#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>

#include "reel/tests/kernels/arrays.h"

namespace reel::test {
namespace {

struct Formula {
  UnaryOp op;
  std::function<double(double)> value;       // of x
  std::function<double(double)> derivative;  // of x
  enum { input, output, nothing } saved;
  double low;
};

const Formula kFormulas[] = {
    {UnaryOp::neg, [](double x) { return -x; }, [](double) { return -1.0; }, Formula::nothing, -4},
    {UnaryOp::exp, [](double x) { return std::exp(x); }, [](double x) { return std::exp(x); }, Formula::output, -4},
    {UnaryOp::log, [](double x) { return std::log(x); }, [](double x) { return 1 / x; }, Formula::input, 0.01},
    {UnaryOp::tanh, [](double x) { return std::tanh(x); }, [](double x) { return 1 - std::tanh(x) * std::tanh(x); },
     Formula::output, -4},
    {UnaryOp::sigmoid, [](double x) { return 1 / (1 + std::exp(-x)); },
     [](double x) { return 1 / (2 + std::exp(x) + std::exp(-x)); }, Formula::output, -4},
    {UnaryOp::relu, [](double x) { return x > 0 ? x : 0; }, [](double x) { return x > 0 ? 1.0 : 0.0; }, Formula::output,
     -4},
    {UnaryOp::sqrt, [](double x) { return std::sqrt(x); }, [](double x) { return 0.5 / std::sqrt(x); }, Formula::output,
     0.01},
    {UnaryOp::square, [](double x) { return x * x; }, [](double x) { return 2 * x; }, Formula::input, -4},
    {UnaryOp::cube, [](double x) { return x * x * x; }, [](double x) { return 3 * x * x; }, Formula::input, -4},
    {UnaryOp::abs, [](double x) { return std::fabs(x); }, [](double x) { return x > 0 ? 1.0 : -1.0; }, Formula::input,
     -4},
};

template <class T>
void expect_close(const TestArray<T>& y, std::int64_t i, double expected, double scale = 1) {
  ASSERT_NEAR(y[i], expected, 16 * std::numeric_limits<T>::epsilon() * (std::fabs(expected) + scale));
}

template <class T>
class Elementwise : public testing::Test {};
using FloatingTypes = testing::Types<float, double>;
TYPED_TEST_SUITE(Elementwise, FloatingTypes);

TYPED_TEST(Elementwise, UnaryEqualsAPlainLoopForAnyLayout) {
  for (const Formula& f : kFormulas) {
    for (const Shape& shape : shapes()) {
      for (Layout layout : kLayouts) {
        TestArray<TypeParam> x(shape, layout), y(shape), gapped(shape, Layout::gapped);
        randomize(x, 5, f.low, 4);
        cpu().unary(f.op, x, y);
        cpu().unary(f.op, x, gapped);
        for (std::int64_t i = 0; i < y.size(); ++i) expect_close(y, i, f.value(x[i]));
        EXPECT_TRUE(same_bits(y, gapped));
        EXPECT_TRUE(y.margins_intact() && gapped.margins_intact());
      }
    }
  }
}

TYPED_TEST(Elementwise, UnaryOfEverySizeInPlaceOnAnyThreads) {
  for (const Formula& f : kFormulas) {
    for (std::int64_t n : kSizes) {
      TestArray<TypeParam> x(Shape{n}), first(Shape{n});
      randomize(x, 6, f.low, 4);
      cpu().unary(f.op, x, first);
      for (std::int64_t i = 0; i < n; ++i) expect_close(first, i, f.value(x[i]));
      for (int threads : kThreadCounts) {
        Threads scope(threads);
        TestArray<TypeParam> y = x;
        cpu().unary(f.op, y, y);
        EXPECT_TRUE(same_bits(first, y)) << n << " elements, " << threads << " threads";
        EXPECT_TRUE(y.margins_intact());
      }
    }
  }
}

TYPED_TEST(Elementwise, BackwardIsTheProductWithTheDerivative) {
  for (const Formula& f : kFormulas) {
    for (std::int64_t n : kSizes) {
      TestArray<TypeParam> x(Shape{n}), y(Shape{n}), dy(Shape{n}), dx(Shape{n});
      randomize(x, 7, f.low, 4);
      randomize(dy, 8);
      cpu().unary(f.op, x, y);
      const TestArray<TypeParam>& saved = f.saved == Formula::input ? x : y;
      cpu().unary_backward(f.op, f.saved == Formula::nothing ? Array() : saved.array(), dy, dx);
      for (std::int64_t i = 0; i < n; ++i) expect_close(dx, i, dy[i] * f.derivative(x[i]), std::fabs(dy[i]));
      EXPECT_TRUE(dx.margins_intact());
      cpu().unary_backward(f.op, f.saved == Formula::nothing ? Array() : saved.array(), dy, dy);
      EXPECT_TRUE(same_bits(dx, dy));
    }
  }
}

TYPED_TEST(Elementwise, BackwardTakesGradientsOfAnyLayout) {
  for (const Formula& f : kFormulas)
    for (const Shape& shape : shapes())
      for (Layout layout : kLayouts) {
        TestArray<TypeParam> x(shape), y(shape), dy(shape, layout), dense(shape), expected(shape), dx(shape);
        randomize(x, 7, f.low, 4);
        randomize(dy, 8);
        cpu().copy(dy, dense);
        cpu().unary(f.op, x, y);
        const Array saved = f.saved == Formula::nothing ? Array() : f.saved == Formula::input ? x.array() : y.array();
        cpu().unary_backward(f.op, saved, dense, expected);
        cpu().unary_backward(f.op, saved, dy, dx);
        EXPECT_TRUE(same_bits(expected, dx)) << shape.str();
        EXPECT_TRUE(dx.margins_intact());
      }
}

TYPED_TEST(Elementwise, EveryFormulaGivesTheSameBitsInWholeAndPartialVectors) {
  const Shape all{67};
  TestArray<TypeParam> x(all), dy(all), y(all), dx(all);
  randomize(x, 9, 0.1, 4);
  randomize(dy, 10);
  for (int i = 0; i < kUnaryOps; ++i) {
    const auto op = static_cast<UnaryOp>(i);
    cpu().unary(op, x, y);
    cpu().unary_backward(op, x, dy, dx);
    for (std::int64_t n : {1, 2, 3, 7, 9, 17, 35}) {
      TestArray<TypeParam> some(Shape{n}), grad(Shape{n}), y_of_some(Shape{n});
      for (std::int64_t k = 0; k < n; ++k) {
        some.set(k, x[67 - n + k]);
        grad.set(k, dy[67 - n + k]);
      }
      cpu().unary(op, some, y_of_some);
      cpu().unary_backward(op, some, grad, grad);
      for (std::int64_t k = 0; k < n; ++k) {
        const TypeParam expected[] = {y[67 - n + k], dx[67 - n + k]}, got[] = {y_of_some[k], grad[k]};
        ASSERT_EQ(std::memcmp(expected, got, sizeof got), 0) << "op " << i << ", element " << k << " of " << n;
      }
      EXPECT_TRUE(y_of_some.margins_intact() && grad.margins_intact());
    }
  }
}

// Formulas that hold for some x only, of which others are put together: none, some, and all of a block (the tables for AVX-512 have
// blocks of 512), each result as that of the element alone, in memory of its own, in x's and in the gradient's.
TYPED_TEST(Elementwise, EveryFormulaGivesTheSameBitsFarOut) {
  const double infinity = std::numeric_limits<double>::infinity(), nan = std::numeric_limits<double>::quiet_NaN();
  const double far[] = {-20, 30, infinity, -infinity, nan, -5.5, 1e30, -1e-30}, all_of_a_block[] = {nan, -20, 30};
  const Shape all{2600}, one{1};
  TestArray<TypeParam> x(all), dy(all), y(all), dx(all);
  randomize(x, 11, -4, 4);
  randomize(dy, 12);
  for (std::int64_t i = 512; i < all[0]; ++i) {
    if (i < 2048) x.set(i, static_cast<TypeParam>(all_of_a_block[i / 512 - 1]));
    else if (i % 37 == 0) x.set(i, static_cast<TypeParam>(far[i % 8]));
  }
  for (int k = 0; k < kUnaryOps; ++k) {
    const auto op = static_cast<UnaryOp>(k);
    cpu().unary(op, x, y);
    cpu().unary_backward(op, x, dy, dx);
    TestArray<TypeParam> y_in_x = x, dx_in_x = x, dx_in_dy = dy;
    cpu().unary(op, y_in_x, y_in_x);
    cpu().unary_backward(op, dx_in_x, dy, dx_in_x);
    cpu().unary_backward(op, x, dx_in_dy, dx_in_dy);
    EXPECT_TRUE(same_bits(y, y_in_x) && same_bits(dx, dx_in_x) && same_bits(dx, dx_in_dy)) << "op " << k;
    for (std::int64_t i = 0; i < all[0]; i += i < 2040 ? 85 : 1) {
      TestArray<TypeParam> x_i(one), dy_i(one), y_i(one), dx_i(one);
      x_i.set(0, x[i]);
      dy_i.set(0, dy[i]);
      cpu().unary(op, x_i, y_i);
      cpu().unary_backward(op, x_i, dy_i, dx_i);
      const TypeParam expected[] = {y_i[0], dx_i[0]}, got[] = {y[i], dx[i]};
      for (int side = 0; side < 2; ++side)
        ASSERT_TRUE(std::memcmp(expected + side, got + side, sizeof *got) == 0 ||
                    (std::isnan(expected[side]) && std::isnan(got[side])))
            << "op " << k << ", x " << x[i] << " at " << i << ": " << got[side] << ", alone " << expected[side];
    }
  }
}

TYPED_TEST(Elementwise, ReluKeepsNanAndItsGradient) {
  const auto nan = std::numeric_limits<TypeParam>::quiet_NaN();
  const auto infinity = std::numeric_limits<TypeParam>::infinity();
  TestArray<TypeParam> x(Shape{40}), y(Shape{40}), dy(Shape{40}), dx(Shape{40});
  for (int i = 0; i < 40; ++i) {
    x.set(i, i % 4 == 0 ? nan : i % 4 == 1 ? TypeParam(-1) : i % 4 == 2 ? TypeParam(0) : TypeParam(2));
    dy.set(i, i % 4 == 0 ? TypeParam(3) : infinity);
  }
  cpu().unary(UnaryOp::relu, x, y);
  cpu().unary_backward(UnaryOp::relu, y, dy, dx);
  for (int i = 0; i < 40; i += 4) {
    EXPECT_TRUE(std::isnan(y[i]));
    EXPECT_EQ(dx[i], 3);
    EXPECT_EQ(y[i + 1], 0);
    EXPECT_EQ(dx[i + 1], 0);  // not inf * 0
    EXPECT_EQ(dx[i + 2], 0);
    EXPECT_EQ(dx[i + 3], infinity);
  }
}

// Blocks of numbers that need no more are computed by a shorter formula.
TYPED_TEST(Elementwise, UnusualNumbersChangeNoBitsOfTheirNeighbours) {
  using Limits = std::numeric_limits<TypeParam>;
  const TypeParam unusual[] = {0,
                               -TypeParam(0),
                               Limits::denorm_min(),
                               Limits::min() / 2,
                               Limits::min(),
                               Limits::max(),
                               Limits::infinity(),
                               TypeParam(-1.5),
                               -1,
                               -Limits::infinity(),
                               Limits::quiet_NaN()};
  const auto same = [](TypeParam a, TypeParam b) { return a == b || (std::isnan(a) && std::isnan(b)); };
  const Shape shape{1501}, one{1};
  TestArray<TypeParam> x(shape), dy(shape), y(shape), dx(shape), got(shape);
  randomize(x, 11, 1e-3, 4);
  randomize(dy, 12);
  for (const UnaryOp op : {UnaryOp::log, UnaryOp::lgamma, UnaryOp::digamma, UnaryOp::sin, UnaryOp::cos}) {
    cpu().unary(op, x, y);
    cpu().unary_backward(op, x, dy, dx);
    for (const std::int64_t place : {0, 700, 1500}) {
      for (const TypeParam number : unusual) {
        TestArray<TypeParam> among = x, dx_in_dy = dy, alone(one), dy_alone(one), y_alone(one), dx_alone(one);
        among.set(place, number);
        alone.set(0, number);
        dy_alone.set(0, dy[place]);
        cpu().unary_backward(op, among, dx_in_dy, dx_in_dy);
        cpu().unary_backward(op, alone, dy_alone, dx_alone);
        cpu().unary(op, among, got);
        cpu().unary(op, among, among);
        cpu().unary(op, alone, y_alone);
        const int k = static_cast<int>(op);
        EXPECT_TRUE(same(got[place], y_alone[0]) && same(dx_in_dy[place], dx_alone[0])) << k << ": " << number;
        for (std::int64_t i = 0; i < shape[0]; ++i) {
          ASSERT_TRUE(i == place || (got[i] == y[i] && dx_in_dy[i] == dx[i]))
              << k << " at " << i << " beside " << number;
          ASSERT_TRUE(same(among[i], got[i])) << k << " at " << i << " beside " << number;
        }
      }
    }
  }
}

TYPED_TEST(Elementwise, LogarithmsOfUnusualNumbers) {
  using Limits = std::numeric_limits<TypeParam>;
  TestArray<TypeParam> x(Shape{600}), y(Shape{600});
  const TypeParam positive[] = {Limits::denorm_min(), Limits::min() / 2, Limits::min(), Limits::max()};
  for (std::int64_t i = 0; i < 600; ++i) x.set(i, positive[i % 4]);
  x.set(8, 0);
  x.set(9, Limits::infinity());
  x.set(10, -1);
  cpu().unary(UnaryOp::log, x, y);
  EXPECT_EQ(y[8], -Limits::infinity());
  EXPECT_EQ(y[9], Limits::infinity());
  EXPECT_TRUE(std::isnan(y[10]));
  for (std::int64_t i = 0; i < 600; ++i)
    if (i < 8 || i > 10) expect_close(y, i, std::log(double{x[i]}));
}

// One argument that is far out makes its neighbours take the longer formula.
TYPED_TEST(Elementwise, GradientsOfSineAndCosineFarOut) {
  TestArray<TypeParam> x(Shape{1100}), dy(Shape{1100}), of_sine(Shape{1100}), of_cosine(Shape{1100});
  randomize(x, 11, -4, 4);
  randomize(dy, 12);
  for (const std::int64_t far : {3, 1099}) x.set(far, TypeParam(1e9));
  cpu().unary_backward(UnaryOp::sin, x, dy, of_sine);
  cpu().unary_backward(UnaryOp::cos, x, dy, of_cosine);
  for (std::int64_t i = 0; i < x.size(); ++i) {
    expect_close(of_sine, i, dy[i] * std::cos(static_cast<double>(x[i])), std::fabs(dy[i]));
    expect_close(of_cosine, i, -dy[i] * std::sin(static_cast<double>(x[i])), std::fabs(dy[i]));
  }
}

TYPED_TEST(Elementwise, AccumulateAddsAnyLayout) {
  for (const Shape& shape : shapes()) {
    for (Layout layout : kLayouts) {
      for (Layout to : kOutputLayouts) {
        const auto x = random_array<TypeParam>(shape, 9, layout);
        const auto before = random_array<TypeParam>(shape, 10, to);
        TestArray<TypeParam> y = before;
        cpu().accumulate(x, y);
        for (std::int64_t i = 0; i < y.size(); ++i) ASSERT_EQ(y[i], before[i] + x[i]);
        EXPECT_TRUE(y.margins_intact());
      }
    }
  }
}

TEST(ElementwiseOfLargeArrays, StreamsToTheLastElement) {
  const std::int64_t count = bytes_past_caches() / 4 + 1037;
  constexpr std::size_t kMargin = 64;  // floats
  std::vector<float> from(static_cast<std::size_t>(count) + kMargin), memory(from.size() + 2 * kMargin, -7.0f);
  for (std::size_t i = 0; i < from.size(); ++i) from[i] = static_cast<float>(i % 1000) - 500;
  const std::uintptr_t address = reinterpret_cast<std::uintptr_t>(memory.data() + 1);
  Array x, y;
  x.shape = y.shape = Shape{count};
  x.size = y.size = count;
  x.strides[0] = y.strides[0] = 1;
  x.data = from.data() + 1;
  y.data = reinterpret_cast<float*>((address + 63) / 64 * 64);  // where a large tensor starts
  const float* result = y.as<float>();
  cpu().unary(UnaryOp::square, x, y);
  for (std::int64_t i = 0; i < count; ++i) ASSERT_EQ(result[i], x.as<float>()[i] * x.as<float>()[i]) << i;
  cpu().binary(BinaryOp::sub, {.array = &x, .scalar = {}}, {.array = nullptr, .scalar = 1}, y);
  for (std::int64_t i = 0; i < count; ++i) ASSERT_EQ(result[i], x.as<float>()[i] - 1) << i;
  EXPECT_EQ(result[-1], -7.0f);
  EXPECT_EQ(result[count], -7.0f);
}

}  // namespace
}  // namespace reel::test
