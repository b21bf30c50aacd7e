#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <cstring>
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
  constexpr std::int64_t kCount = (std::int64_t(4) << 20) + 1037;
  constexpr std::size_t kMargin = 64;  // floats
  std::vector<float> from(static_cast<std::size_t>(kCount) + kMargin), memory(from.size() + 2 * kMargin, -7.0f);
  for (std::size_t i = 0; i < from.size(); ++i) from[i] = static_cast<float>(i % 1000) - 500;
  const std::uintptr_t address = reinterpret_cast<std::uintptr_t>(memory.data() + 1);
  Array x, y;
  x.shape = y.shape = Shape{kCount};
  x.size = y.size = kCount;
  x.strides[0] = y.strides[0] = 1;
  x.data = from.data() + 1;
  y.data = reinterpret_cast<float*>((address + 63) / 64 * 64);  // where a large tensor starts
  const float* result = y.as<float>();
  cpu().unary(UnaryOp::square, x, y);
  for (std::int64_t i = 0; i < kCount; ++i) ASSERT_EQ(result[i], x.as<float>()[i] * x.as<float>()[i]) << i;
  cpu().binary(BinaryOp::sub, {.array = &x, .scalar = {}}, {.array = nullptr, .scalar = 1}, y);
  for (std::int64_t i = 0; i < kCount; ++i) ASSERT_EQ(result[i], x.as<float>()[i] - 1) << i;
  EXPECT_EQ(result[-1], -7.0f);
  EXPECT_EQ(result[kCount], -7.0f);
}

constexpr BinaryOp kArithmetic[] = {BinaryOp::add,     BinaryOp::sub,     BinaryOp::mul,      BinaryOp::div,
                                    BinaryOp::maximum, BinaryOp::minimum, BinaryOp::relu_mask};
constexpr BinaryOp kComparisons[] = {BinaryOp::equal,      BinaryOp::not_equal, BinaryOp::less,
                                     BinaryOp::less_equal, BinaryOp::greater,   BinaryOp::greater_equal};

template <class T>
T arithmetic(BinaryOp op, T a, T b) {
  switch (op) {
    case BinaryOp::add:
      return static_cast<T>(a + b);
    case BinaryOp::sub:
      return static_cast<T>(a - b);
    case BinaryOp::mul:
      return static_cast<T>(a * b);
    case BinaryOp::div:
      if constexpr (std::is_integral_v<T>) return b == 0 ? T(0) : static_cast<T>(a / b);
      return static_cast<T>(a / b);
    case BinaryOp::maximum:
      return a > b ? a : b;
    case BinaryOp::minimum:
      return a < b ? a : b;
    default:
      return b > 0 ? a : T(0);
  }
}

template <class T>
bool compare(BinaryOp op, T a, T b) {
  switch (op) {
    case BinaryOp::equal:
      return a == b;
    case BinaryOp::not_equal:
      return a != b;
    case BinaryOp::less:
      return a < b;
    case BinaryOp::less_equal:
      return a <= b;
    case BinaryOp::greater:
      return a > b;
    default:
      return a >= b;
  }
}

template <class T>
void expect_binary(const Shape& shape, Layout layout_a, Layout layout_b, Layout layout_y) {
  TestArray<T> a(shape, layout_a), b(shape, layout_b);
  randomize(a, 11, -20, 20);
  randomize(b, 12, -20, 20);
  for (std::int64_t i = 0; i < b.size(); i += 3) b.set(i, a[i]);
  const T number = static_cast<T>(3);
  for (BinaryOp op : kArithmetic) {
    TestArray<T> ab(shape, layout_y), an(shape, layout_y), nb(shape, layout_y);
    cpu().binary(op, a, b, ab);
    cpu().binary(op, a, {.array = nullptr, .scalar = 3}, an);
    cpu().binary(op, {.array = nullptr, .scalar = 3}, b, nb);
    for (std::int64_t i = 0; i < a.size(); ++i) {
      ASSERT_EQ(ab[i], arithmetic(op, a[i], b[i])) << int(op) << " of " << +a[i] << ", " << +b[i];
      ASSERT_EQ(an[i], arithmetic(op, a[i], number)) << int(op);
      ASSERT_EQ(nb[i], arithmetic(op, number, b[i])) << int(op);
    }
    ASSERT_TRUE(ab.margins_intact() && an.margins_intact() && nb.margins_intact());
  }
  for (BinaryOp op : kComparisons) {
    TestArray<bool> ab(shape, layout_y), an(shape, layout_y), nb(shape, layout_y);
    cpu().binary(op, a, b, ab);
    cpu().binary(op, a, {.array = nullptr, .scalar = 3}, an);
    cpu().binary(op, {.array = nullptr, .scalar = 3}, b, nb);
    for (std::int64_t i = 0; i < a.size(); ++i) {
      ASSERT_EQ(ab[i], compare(op, a[i], b[i])) << int(op);
      ASSERT_EQ(an[i], compare(op, a[i], number)) << int(op);
      ASSERT_EQ(nb[i], compare(op, number, b[i])) << int(op);
    }
    ASSERT_TRUE(ab.margins_intact() && an.margins_intact() && nb.margins_intact());
  }
}

template <class T>
class Binary : public testing::Test {};
using NumberTypes = testing::Types<float, double, std::int32_t, std::int64_t, std::uint8_t>;
TYPED_TEST_SUITE(Binary, NumberTypes);

TYPED_TEST(Binary, EqualsAPlainLoopForAnyLayout) {
  for (const Shape& shape : shapes()) {
    for (Layout layout : kLayouts) {
      if (shape.size() > 10000 && layout != Layout::column_major) continue;  // one is enough for tasks
      expect_binary<TypeParam>(shape, layout, Layout::contiguous, Layout::contiguous);
      expect_binary<TypeParam>(shape, Layout::contiguous, layout, Layout::contiguous);
      expect_binary<TypeParam>(shape, layout, layout, Layout::gapped);
    }
    expect_binary<TypeParam>(shape, Layout::reversed, Layout::column_major, Layout::column_major);
  }
}

TYPED_TEST(Binary, EqualsAPlainLoopForEverySize) {
  for (std::int64_t n : kSizes) {
    expect_binary<TypeParam>(Shape{n}, Layout::contiguous, Layout::contiguous, Layout::contiguous);
  }
}

TYPED_TEST(Binary, BroadcastsRowsAndColumns) {
  for (const Shape& shape : {Shape{70, 130}, Shape{2000, 33}, Shape{3, 300}}) {
    for (const auto& strides : {std::vector<std::int64_t>{0, 1}, {1, 0}, {0, 0}}) {
      TestArray<TypeParam> a = random_array<TypeParam>(shape, 13), b(shape, strides), y(shape), z(shape);
      randomize(b, 14);
      cpu().binary(BinaryOp::sub, a, b, y);
      cpu().binary(BinaryOp::sub, b, a, z);
      for (std::int64_t i = 0; i < y.size(); ++i) {
        ASSERT_EQ(y[i], static_cast<TypeParam>(a[i] - b[i]));
        ASSERT_EQ(z[i], static_cast<TypeParam>(b[i] - a[i]));
      }
      EXPECT_TRUE(y.margins_intact() && z.margins_intact());
    }
  }
}

TYPED_TEST(Binary, WorksInPlaceOnEitherSideAndOnAnyThreads) {
  for (std::int64_t n : kSizes) {
    const auto a = random_array<TypeParam>(Shape{n}, 15), b = random_array<TypeParam>(Shape{n}, 16);
    TestArray<TypeParam> expected(Shape{n});
    cpu().binary(BinaryOp::sub, a, b, expected);
    for (int threads : kThreadCounts) {
      Threads scope(threads);
      TestArray<TypeParam> left = a, right = b;
      cpu().binary(BinaryOp::sub, left, b, left);
      cpu().binary(BinaryOp::sub, a, right, right);
      EXPECT_TRUE(same_bits(expected, left) && same_bits(expected, right)) << n;
    }
  }
}

TYPED_TEST(Binary, WorksInPlaceNextToATransposedOperand) {
  const Shape shape{100, 90};
  const auto a = random_array<TypeParam>(shape, 17), b = random_array<TypeParam>(shape, 18, Layout::column_major);
  TestArray<TypeParam> expected(shape), left = a;
  cpu().binary(BinaryOp::sub, a, b, expected);
  cpu().binary(BinaryOp::sub, left, b, left);
  EXPECT_TRUE(same_bits(expected, left));
  TestArray<TypeParam> right = b, both(shape);
  cpu().binary(BinaryOp::sub, a, right, right);
  cpu().binary(BinaryOp::sub, b, b, both);
  for (std::int64_t i = 0; i < a.size(); ++i) {
    ASSERT_EQ(right[i], expected[i]);
    ASSERT_EQ(both[i], TypeParam(0));
  }
}

TEST(BinaryOfIntegers, DivisionTruncatesAndByZeroGivesZero) {
  TestArray<std::int32_t> a(Shape{5}), b(Shape{5}), y(Shape{5});
  const std::int32_t lowest = std::numeric_limits<std::int32_t>::min();
  const std::int32_t numbers[5][3] = {{7, 2, 3}, {-7, 2, -3}, {7, 0, 0}, {lowest, -1, lowest}, {-9, -1, 9}};
  for (int i = 0; i < 5; ++i) {
    a.set(i, numbers[i][0]);
    b.set(i, numbers[i][1]);
  }
  cpu().binary(BinaryOp::div, a, b, y);
  for (int i = 0; i < 5; ++i) EXPECT_EQ(y[i], numbers[i][2]);
}

TEST(BinaryOfIntegers, Wrap) {
  TestArray<std::int64_t> a(Shape{1}), y(Shape{1});
  a.set(0, std::numeric_limits<std::int64_t>::max());
  cpu().binary(BinaryOp::add, a, {.array = nullptr, .scalar = 1}, y);
  EXPECT_EQ(y[0], std::numeric_limits<std::int64_t>::min());
}

TEST(BinaryOfBools, GivesOnlyZeroAndOneForEverySize) {
  // At 2 a + b.
  const std::pair<BinaryOp, std::array<int, 4>> tables[] = {
      {BinaryOp::add, {0, 1, 1, 1}},     {BinaryOp::sub, {0, 1, 1, 0}},     {BinaryOp::mul, {0, 0, 0, 1}},
      {BinaryOp::maximum, {0, 1, 1, 1}}, {BinaryOp::minimum, {0, 0, 0, 1}}, {BinaryOp::relu_mask, {0, 0, 0, 1}},
      {BinaryOp::equal, {1, 0, 0, 1}},   {BinaryOp::less, {0, 1, 0, 0}},    {BinaryOp::greater, {0, 0, 1, 0}}};
  for (std::int64_t n : {4, 70, 1000}) {
    TestArray<bool> a(Shape{n}), b(Shape{n}), y(Shape{n});
    for (std::int64_t i = 0; i < n; ++i) {
      a.set(i, i / 2 % 2 != 0);
      b.set(i, i % 2 != 0);
    }
    for (const auto& [op, table] : tables) {
      const auto expect = [&, op = op, &table = table](const Operand& left, const Operand& right) {
        cpu().binary(op, left, right, y);
        const auto* bytes = y.array().as<std::uint8_t>();
        for (std::int64_t i = 0; i < n; ++i) {
          const int l = left.array ? int(a[i]) : int(left.scalar.integer);
          const int r = right.array ? int(b[i]) : int(right.scalar.integer);
          ASSERT_EQ(bytes[i], table[static_cast<std::size_t>(2 * l + r)]) << int(op) << " of " << l << ", " << r;
        }
        EXPECT_TRUE(y.margins_intact());
      };
      expect(a, b);
      for (int number : {0, 1}) {
        expect(a, {.array = nullptr, .scalar = number});
        expect({.array = nullptr, .scalar = number}, b);
      }
    }
  }
}

TEST(BinaryOfNan, MaximumAndMinimumPropagateItFromEitherSide) {
  const float nan = std::nanf("");
  for (std::int64_t n : {1, 40}) {
    TestArray<float> a(Shape{n}), b(Shape{n}), y(Shape{n});
    for (BinaryOp op : {BinaryOp::maximum, BinaryOp::minimum}) {
      for (bool left : {false, true}) {
        for (std::int64_t i = 0; i < n; ++i) {
          a.set(i, left ? nan : 1);
          b.set(i, left ? 1 : nan);
        }
        cpu().binary(op, a, b, y);
        for (std::int64_t i = 0; i < n; ++i) EXPECT_TRUE(std::isnan(y[i]));
      }
    }
  }
}

TEST(BinaryOfNan, ComparesUnequalToItself) {
  TestArray<double> a(Shape{40});
  for (int i = 0; i < 40; ++i) a.set(i, std::nan(""));
  TestArray<bool> equal(Shape{40}), not_equal(Shape{40}), less(Shape{40});
  cpu().binary(BinaryOp::equal, a, a, equal);
  cpu().binary(BinaryOp::not_equal, a, a, not_equal);
  cpu().binary(BinaryOp::less, a, a, less);
  for (int i = 0; i < 40; ++i) {
    EXPECT_FALSE(equal[i]);
    EXPECT_TRUE(not_equal[i]);
    EXPECT_FALSE(less[i]);
  }
}

}  // namespace
}  // namespace reel::test
