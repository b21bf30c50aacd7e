#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <limits>
#include <type_traits>
#include <utility>
#include <vector>

#include "reel/tests/kernels/arrays.h"

namespace reel::test {
namespace {

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
  std::vector<Shape> shapes = {{70, 130}, {2000, 33}, {3, 300}};
  for (const std::int64_t width : {2, 3, 7, 8, 9, 16, 17, 31, 32, 64, 65, 256}) {
    for (const std::int64_t rows : {std::int64_t{2}, std::int64_t{170}, 5000 / width}) shapes.push_back({rows, width});
  }
  for (const Shape& shape : shapes) {
    for (const auto& strides : {std::vector<std::int64_t>{0, 1}, {1, 0}, {0, 0}, {5, 0}, {-1, 0}}) {
      TestArray<TypeParam> a = random_array<TypeParam>(shape, 13), b(shape, strides), y(shape), z(shape);
      TestArray<bool> less(shape);
      randomize(b, 14);
      cpu().binary(BinaryOp::sub, a, b, y);
      cpu().binary(BinaryOp::sub, b, a, z);
      cpu().binary(BinaryOp::less, b, a, less);
      for (std::int64_t i = 0; i < y.size(); ++i) {
        ASSERT_EQ(y[i], static_cast<TypeParam>(a[i] - b[i]));
        ASSERT_EQ(z[i], static_cast<TypeParam>(b[i] - a[i]));
        ASSERT_EQ(less[i], b[i] < a[i]);
      }
      EXPECT_TRUE(y.margins_intact() && z.margins_intact() && less.margins_intact());
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

// Tiles: what lies otherwise than y is copied a tile at a time, next to what does not, or is one number for a row, or one for all.
TYPED_TEST(Binary, EqualsAPlainLoopNextToATransposedSide) {
  for (const Shape& shape : {Shape{4, 300}, Shape{300, 4}, Shape{16, 128}, Shape{17, 129}, Shape{257, 66},
                             Shape{129, 260}, Shape{5, 6, 40}}) {
    expect_binary<TypeParam>(shape, Layout::column_major, Layout::column_major, Layout::contiguous);
    expect_binary<TypeParam>(shape, Layout::column_major, Layout::gapped, Layout::contiguous);
    expect_binary<TypeParam>(shape, Layout::reversed, Layout::column_major, Layout::contiguous);
    if (shape.rank() != 2) continue;
    const auto a = random_array<TypeParam>(shape, 19, Layout::column_major);
    const std::int64_t rows = shape[0];
    for (const auto& strides : {std::vector<std::int64_t>{0, 1}, {1, 0}, {0, 0}, {5, 0}, {0, 3}, {1, rows + 2}}) {
      TestArray<TypeParam> b(shape, strides), y(shape), z(shape);
      TestArray<bool> less(shape);
      randomize(b, 20);
      for (const int threads : {1, 3}) {
        const Threads use(threads);
        cpu().binary(BinaryOp::sub, a, b, y);
        cpu().binary(BinaryOp::sub, b, a, z);
        cpu().binary(BinaryOp::less, b, a, less);
        for (std::int64_t i = 0; i < y.size(); ++i) {
          ASSERT_EQ(y[i], static_cast<TypeParam>(a[i] - b[i])) << shape.str();
          ASSERT_EQ(z[i], static_cast<TypeParam>(b[i] - a[i])) << shape.str();
          ASSERT_EQ(less[i], b[i] < a[i]) << shape.str();
        }
        EXPECT_TRUE(y.margins_intact() && z.margins_intact() && less.margins_intact());
      }
    }
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

template <class T>
std::pair<T, T> slopes(BinaryOp op, T a, T b) {
  if (op == BinaryOp::mul) return {b, a};
  if (a == b) return {T(0.5), T(0.5)};
  if (a != a || b != b) return {T(1), T(1)};
  const bool left = (a > b) == (op == BinaryOp::maximum);
  return {left ? T(1) : T(0), left ? T(0) : T(1)};
}

/// What the gradients are where side `number` (0: none, 1: a, 2: b) is a plain number and `wanted` (bits) tells which are wanted.
template <class T>
void expect_backward(BinaryOp op, int64_t size, int number, int wanted) {
  const T infinity = std::numeric_limits<T>::infinity(), nan = std::numeric_limits<T>::quiet_NaN();
  const Scalar scalar(0.25);
  auto a = random_array<T>(Shape{size}, 1), b = random_array<T>(Shape{size}, 2), dy = random_array<T>(Shape{size}, 3);
  const std::pair<T, T> special[] = {{T(1), T(1)}, {T(0), -T(0)},         {nan, T(1)},
                                     {T(2), nan},  {infinity, -infinity}, {T(0.25), T(0.25)}};
  for (int64_t i = 0; i < size && i < 6; ++i) {
    a.set(i, special[i].first);
    b.set(i, special[i].second);
  }
  TestArray<T> da(Shape{size}), db(Shape{size});
  const Operand left = number == 1 ? Operand{.scalar = scalar} : Operand{.array = &a.array()};
  const Operand right = number == 2 ? Operand{.scalar = scalar} : Operand{.array = &b.array()};
  cpu().binary_backward(op, left, right, dy, (wanted & 1) != 0 ? &da.array() : nullptr,
                        (wanted & 2) != 0 ? &db.array() : nullptr);
  EXPECT_TRUE(da.margins_intact() && db.margins_intact());
  const auto same = [](T x, T y) { return x == y || (std::isnan(x) && std::isnan(y)); };
  for (int64_t i = 0; i < size; ++i) {
    const auto [of_a, of_b] = slopes(op, number == 1 ? T(0.25) : a[i], number == 2 ? T(0.25) : b[i]);
    ASSERT_TRUE((wanted & 1) == 0 || same(da[i], dy[i] * of_a)) << i;
    ASSERT_TRUE((wanted & 2) == 0 || same(db[i], dy[i] * of_b)) << i;
  }
}

TEST(Binary, BothGradientsAreTheSlopesForEverySizeAndSide) {
  for (const BinaryOp op : {BinaryOp::mul, BinaryOp::maximum, BinaryOp::minimum})
    for (const int64_t size : {0, 1, 31, 255, 257, 1025, 70001})
      for (const int number : {0, 1, 2})
        for (const int wanted : {1, 2, 3}) {
          expect_backward<float>(op, size, number, wanted);
          expect_backward<double>(op, size, number, wanted);
        }
}

}  // namespace
}  // namespace reel::test
