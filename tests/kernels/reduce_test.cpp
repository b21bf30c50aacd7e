#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <numeric>
#include <type_traits>
#include <vector>

#include "reel/core/error.h"
#include "reel/tests/kernels/arrays.h"

namespace reel::test {
namespace {

constexpr ReduceOp kOps[] = {ReduceOp::sum, ReduceOp::mean, ReduceOp::max, ReduceOp::min};

/// x's shape with size 1 on the axes whose bit is set.
Shape reduced(const Shape& shape, unsigned axes) {
  Shape result = shape;
  for (int axis = 0; axis < shape.rank(); ++axis) {
    if (axes >> axis & 1) result[axis] = 1;
  }
  return result;
}

/// For each element of x in row-major order the result that it goes to.
std::vector<std::int64_t> targets(const Shape& shape, const Shape& to) {
  std::vector<std::int64_t> result(static_cast<std::size_t>(shape.size()));
  for (std::int64_t i = 0; i < shape.size(); ++i) {
    std::int64_t rest = i, target = 0, stride = 1;
    for (int axis = shape.rank() - 1; axis >= 0; --axis) {
      if (to[axis] != 1) target += rest % shape[axis] * stride;
      stride *= to[axis];
      rest /= shape[axis];
    }
    result[static_cast<std::size_t>(i)] = target;
  }
  return result;
}

template <class T>
void expect_reduction(const TestArray<T>& x, unsigned axes) {
  const Shape shape = x.array().shape, to = reduced(shape, axes);
  const std::vector<std::int64_t> target = targets(shape, to);
  const std::vector<T> values = x.values();
  const auto outputs = static_cast<std::size_t>(to.size());
  std::vector<long double> sum(outputs), size(outputs);
  std::vector<T> largest(outputs), smallest(outputs);
  std::vector<int> count(outputs);
  for (std::size_t i = 0; i < values.size(); ++i) {
    const auto k = static_cast<std::size_t>(target[i]);
    sum[k] += static_cast<long double>(values[i]);
    size[k] += std::fabs(static_cast<long double>(values[i]));
    largest[k] = count[k] == 0 || values[i] > largest[k] ? values[i] : largest[k];
    smallest[k] = count[k] == 0 || values[i] < smallest[k] ? values[i] : smallest[k];
    ++count[k];
  }
  for (ReduceOp op : kOps) {
    if (op == ReduceOp::mean && std::is_integral_v<T>) continue;
    TestArray<T> y(to);
    cpu().reduce(op, x, y, nullptr);
    EXPECT_TRUE(y.margins_intact());
    for (std::size_t k = 0; k < outputs && !values.empty(); ++k) {
      const T result = y[static_cast<std::int64_t>(k)];
      if (op == ReduceOp::max) {
        ASSERT_EQ(result, largest[k]);
      } else if (op == ReduceOp::min) {
        ASSERT_EQ(result, smallest[k]);
      } else if constexpr (std::is_integral_v<T>) {
        ASSERT_EQ(result, static_cast<T>(static_cast<std::int64_t>(sum[k])));
      } else {
        const long double n = op == ReduceOp::mean ? count[k] : 1;
        const long double bound = 12 * std::numeric_limits<T>::epsilon() * size[k] / n;
        ASSERT_NEAR(result, static_cast<double>(sum[k] / n), static_cast<double>(bound))
            << shape.str() << " to " << to.str() << " at " << k;
      }
    }
  }
}

template <class T>
class Reduce : public testing::Test {};
using Types = testing::Types<float, double, std::int32_t, std::int64_t, std::uint8_t>;
TYPED_TEST_SUITE(Reduce, Types);

TYPED_TEST(Reduce, EqualsAPlainLoopOverAnyAxesOfAnyLayout) {
  for (const Shape& shape : shapes()) {
    for (Layout layout : kLayouts) {
      if (shape.size() > 10000 && layout != Layout::contiguous && layout != Layout::column_major) continue;
      const auto x = random_array<TypeParam>(shape, 21, layout);
      const unsigned sets = 1u << shape.rank();
      for (unsigned axes = 0; axes<sets; axes += sets> 64 ? 7 : 1) expect_reduction(x, axes);
      expect_reduction(x, sets - 1);
    }
  }
}

TYPED_TEST(Reduce, EqualsAPlainLoopForEverySize) {
  for (std::int64_t n : kSizes) {
    expect_reduction(random_array<TypeParam>(Shape{n}, 22), 1);
    expect_reduction(random_array<TypeParam>(Shape{n, 1}, 23), 1);
    expect_reduction(random_array<TypeParam>(Shape{n, 3}, 24), 1);
    expect_reduction(random_array<TypeParam>(Shape{3, n}, 25), 1);
    expect_reduction(random_array<TypeParam>(Shape{3, n}, 26), 2);
    expect_reduction(random_array<TypeParam>(Shape{n, 3}, 27), 2);
    expect_reduction(random_array<TypeParam>(Shape{n}, 28, Layout::gapped), 1);
    expect_reduction(random_array<TypeParam>(Shape{n}, 28, Layout::reversed), 1);
  }
}

TYPED_TEST(Reduce, WhichIsTheFirstWinner) {
  for (std::int64_t n : {1, 2, 7, 31, 33, 257, 1025}) {
    for (Layout layout : {Layout::contiguous, Layout::column_major, Layout::gapped, Layout::reversed}) {
      for (unsigned axis : {0u, 1u}) {
        const Shape shape = axis == 0 ? Shape{n, 70} : Shape{70, n};
        auto x = random_array<TypeParam>(shape, 29, layout);
        for (std::int64_t i = 0; i < x.size(); ++i) x.set(i, static_cast<TypeParam>(static_cast<int>(x[i])));  // ties
        const Shape to = reduced(shape, 1u << axis);
        for (ReduceOp op : {ReduceOp::max, ReduceOp::min}) {
          TestArray<TypeParam> y(to), alone(to);
          TestArray<std::int64_t> which(to);
          cpu().reduce(op, x, y, &which.array());
          cpu().reduce(op, x, alone, nullptr);
          EXPECT_TRUE(same_bits(y, alone));
          EXPECT_TRUE(y.margins_intact() && which.margins_intact());
          for (std::int64_t k = 0; k < 70; ++k) {
            const auto at = [&](std::int64_t i) { return axis == 0 ? x[i * 70 + k] : x[k * n + i]; };
            std::int64_t winner = 0;
            for (std::int64_t i = 1; i < n; ++i) {
              if (op == ReduceOp::max ? at(i) > at(winner) : at(i) < at(winner)) winner = i;
            }
            ASSERT_EQ(which[k], winner) << n << " along " << axis;
            ASSERT_EQ(y[k], at(winner));
          }
        }
      }
    }
  }
}

template <class T>
class ReduceFloating : public testing::Test {};
using FloatingTypes = testing::Types<float, double>;
TYPED_TEST_SUITE(ReduceFloating, FloatingTypes);

TYPED_TEST(ReduceFloating, SameBitsOnAnyThreads) {
  struct Case {
    Shape shape;
    unsigned axes;
    Layout layout;
  };
  const Case cases[] = {
      {{300007}, 1, Layout::contiguous},      {{300007}, 1, Layout::gapped},
      {{100003, 3}, 1, Layout::contiguous},   {{100003, 1}, 1, Layout::contiguous},
      {{5, 100003}, 2, Layout::contiguous},   {{5, 70001}, 1, Layout::contiguous},
      {{2000, 257}, 1, Layout::contiguous},   {{2000, 257}, 2, Layout::contiguous},
      {{2000, 257}, 3, Layout::column_major}, {{2000, 257}, 1, Layout::column_major},
      {{700, 7, 90}, 5, Layout::contiguous},  {{700, 7, 90}, 2, Layout::contiguous},
  };
  for (const Case& c : cases) {
    const auto x = random_array<TypeParam>(c.shape, 30, c.layout);
    std::vector<ReduceOp> ops(std::begin(kOps), std::end(kOps));
    ops.push_back(ReduceOp::sum_of_squares);
    for (ReduceOp op : ops) {
      TestArray<TypeParam> first(reduced(c.shape, c.axes));
      {
        Threads one(1);
        cpu().reduce(op, x, first, nullptr);
      }
      for (int threads : kThreadCounts) {
        Threads scope(threads);
        TestArray<TypeParam> y(reduced(c.shape, c.axes));
        cpu().reduce(op, x, y, nullptr);
        EXPECT_TRUE(same_bits(first, y)) << c.shape.str() << " axes " << c.axes << " threads " << threads;
      }
    }
  }
}

TYPED_TEST(ReduceFloating, ARowAloneGivesTheBitsThatItGivesInABatch) {
  std::vector<std::int64_t> sizes(140);  // and some that are longer than what is added up by vectors of rows
  std::iota(sizes.begin(), sizes.end(), 1);
  sizes.insert(sizes.end(), {257, 5000, 70001, 300007});
  for (const std::int64_t n : sizes) {
    const std::int64_t batch = n > 10000 ? 3 : 17;
    for (bool across : {false, true}) {  // rows are the first or the last axis
      const Shape shape = across ? Shape{n, batch} : Shape{batch, n};
      const Shape one = across ? Shape{n, 1} : Shape{1, n};
      const unsigned axes = across ? 1 : 2;
      const auto x = random_array<TypeParam>(shape, 31);
      for (ReduceOp op : {ReduceOp::sum, ReduceOp::mean, ReduceOp::sum_of_squares}) {
        TestArray<TypeParam> all(reduced(shape, axes)), alone(reduced(one, axes));
        cpu().reduce(op, x, all, nullptr);
        for (std::int64_t k = 0; k < batch; ++k) {
          TestArray<TypeParam> row(one);
          for (std::int64_t i = 0; i < n; ++i) row.set(i, across ? x[i * batch + k] : x[k * n + i]);
          cpu().reduce(op, row, alone, nullptr);
          ASSERT_EQ(alone[0], all[k]) << n << (across ? " columns" : " rows");
        }
      }
    }
  }
}

// Rows whose elements are side by side, but which are not: apart, walked backwards, one row again and again.
TYPED_TEST(ReduceFloating, ShortRowsWithGapsHaveTheSameBits) {
  for (std::int64_t n = 1; n <= 140; ++n) {
    const std::int64_t batch = 37;
    const auto x = random_array<TypeParam>({batch, n}, 33);
    for (const std::int64_t step : {n + 3, -n, std::int64_t{0}}) {
      TestArray<TypeParam> apart({batch, n}, {step, 1}), packed(Shape{batch, n}), y({batch, 1}), expected({batch, 1});
      for (std::int64_t i = 0; i < x.size(); ++i) apart.set(i, x[i]);
      for (std::int64_t i = 0; i < x.size(); ++i) packed.set(i, apart[i]);
      for (const ReduceOp op : {ReduceOp::sum, ReduceOp::mean, ReduceOp::max, ReduceOp::mean_of_squares}) {
        cpu().reduce(op, apart, y, nullptr);
        cpu().reduce(op, packed, expected, nullptr);
        ASSERT_TRUE(same_bits(y, expected)) << n << " numbers, step " << step;
      }
    }
  }
}

// Runs of all lengths, one result's apart from each other: what is between them is another's.
TYPED_TEST(ReduceFloating, RunsWithAnotherAxisBetweenHaveTheBitsOfRows) {
  for (const std::int64_t n : {1, 3, 16, 31, 32, 63, 64, 100, 256, 384, 1024, 2048, 4096, 5000, 20000})
    for (const std::int64_t runs : {1, 2, 7, 40}) {
      if (runs * n > 150000) continue;
      const Shape shape{5, runs, n}, one{5, 1, 1};
      const auto rows = random_array<TypeParam>(shape, 34);
      TestArray<TypeParam> apart(shape, {n, 5 * n, 1});
      for (std::int64_t i = 0; i < rows.size(); ++i) apart.set(i, rows[i]);
      for (const ReduceOp op : kOps)
        for (const int threads : kThreadCounts) {
          Threads scope(threads);
          TestArray<TypeParam> y(one), expected(one);
          cpu().reduce(op, apart, y, nullptr);
          cpu().reduce(op, rows, expected, nullptr);
          ASSERT_TRUE(same_bits(y, expected)) << runs << " runs of " << n << ", " << threads << " threads";
        }
    }
}

TYPED_TEST(ReduceFloating, BitsDoNotDependOnTheLayoutWhenOneAxisIsReduced) {
  for (const Shape& shape : {Shape{300, 70}, Shape{7, 9000}, Shape{20, 30, 40}, Shape{700, 1}, Shape{700, 2},
                             Shape{700, 3}, Shape{20000, 3}, Shape{700, 4}, Shape{20000, 4}, Shape{700, 5}}) {
    for (unsigned axes : {1u, 2u}) {
      const auto x = random_array<TypeParam>(shape, 32);
      for (ReduceOp op : {ReduceOp::sum, ReduceOp::mean, ReduceOp::prod}) {
        TestArray<TypeParam> expected(reduced(shape, axes));
        cpu().reduce(op, x, expected, nullptr);
        for (Layout layout : kOutputLayouts) {
          TestArray<TypeParam> other(shape, layout), y(reduced(shape, axes));
          for (std::int64_t i = 0; i < x.size(); ++i) other.set(i, x[i]);
          cpu().reduce(op, other, y, nullptr);
          EXPECT_TRUE(same_bits(expected, y)) << shape.str() << " axes " << axes << " layout " << int(layout);
        }
      }
    }
  }
}

// What is reduced lies side by side in one of the two, what is kept in the other.
TYPED_TEST(ReduceFloating, ATransposedMatrixHasTheBitsOfOneInOrder) {
  std::vector<std::int64_t> counts = {511, 512, 513, 1000, 1024, 1025, 2048, 4095, 4096, 4097, 4104, 9000};
  for (std::int64_t n = 1; n <= 140; ++n) counts.push_back(n);
  for (const std::int64_t count : counts) {
    for (const std::int64_t kept : {3, 9, 40, 530}) {
      if (count * kept > 100000) continue;
      for (const unsigned axes : {1u, 2u}) {
        const Shape shape = axes == 1 ? Shape{count, kept} : Shape{kept, count};
        auto x = random_array<TypeParam>(shape, 37);
        for (std::int64_t i = 0; i < count; ++i) {  // one result of nothing but -0
          x.set(axes == 1 ? i * kept + 1 : count + i, TypeParam(-0.0));
          x.set(axes == 1 ? i * kept + 2 : 2 * count + i, i % 3 == 0 ? TypeParam(0) : TypeParam(-0.0));
        }
        // Without gaps, and as a part of lines of 2^k elements.
        const auto pitch = static_cast<std::int64_t>(std::bit_ceil(static_cast<std::uint64_t>(shape[0])));
        TestArray<TypeParam> other(shape, Layout::column_major), part(shape, std::vector<std::int64_t>{1, pitch});
        for (std::int64_t i = 0; i < x.size(); ++i) {
          other.set(i, x[i]);
          part.set(i, x[i]);
        }
        for (const ReduceOp op : {ReduceOp::sum, ReduceOp::mean, ReduceOp::prod, ReduceOp::max, ReduceOp::min}) {
          TestArray<TypeParam> expected(reduced(shape, axes)), y(reduced(shape, axes)), z(reduced(shape, axes));
          cpu().reduce(op, x, expected, nullptr);
          cpu().reduce(op, other, y, nullptr);
          cpu().reduce(op, part, z, nullptr);
          const bool either_zero = op == ReduceOp::max || op == ReduceOp::min;
          for (const auto* result : {&y, &z}) {
            ASSERT_TRUE(either_zero ? expected.values() == result->values() : same_bits(expected, *result))
                << shape.str() << " axes " << axes << " op " << int(op);
            EXPECT_TRUE(result->margins_intact());
          }
        }
      }
    }
  }
}

TYPED_TEST(ReduceFloating, APermutedCubeHasTheBitsOfOneInOrder) {
  for (const Shape& shape : {Shape{6, 40, 9}, Shape{70, 3, 50}, Shape{2, 130, 33}, Shape{1, 17, 40}}) {
    const auto x = random_array<TypeParam>(shape, 38);
    int order[] = {0, 1, 2};  // of the axes in memory
    do {
      std::vector<std::int64_t> strides(3);
      std::int64_t stride = 1;
      for (int i = 2; i >= 0; stride *= shape[order[i--]]) strides[static_cast<std::size_t>(order[i])] = stride;
      TestArray<TypeParam> other(shape, strides);
      for (std::int64_t i = 0; i < x.size(); ++i) other.set(i, x[i]);
      for (unsigned axes = 1; axes < 8; ++axes) {
        if (std::popcount(axes) > 1) expect_reduction(other, axes);
        if (std::popcount(axes) > 1) continue;
        for (const ReduceOp op :
             {ReduceOp::sum, ReduceOp::mean, ReduceOp::prod, ReduceOp::max, ReduceOp::sum_of_squares}) {
          TestArray<TypeParam> expected(reduced(shape, axes)), y(reduced(shape, axes));
          cpu().reduce(op, x, expected, nullptr);
          cpu().reduce(op, other, y, nullptr);
          EXPECT_TRUE(same_bits(expected, y)) << shape.str() << " axes " << axes << " op " << int(op);
          EXPECT_TRUE(y.margins_intact());
        }
        TestArray<TypeParam> expected(reduced(shape, axes)), y(reduced(shape, axes));
        TestArray<std::int64_t> expected_which(reduced(shape, axes)), which(reduced(shape, axes));
        cpu().reduce(ReduceOp::max, x, expected, &expected_which.array());
        cpu().reduce(ReduceOp::max, other, y, &which.array());
        EXPECT_TRUE(same_bits(expected, y) && same_bits(expected_which, which)) << shape.str() << " axes " << axes;
        EXPECT_TRUE(y.margins_intact() && which.margins_intact());
      }
    } while (std::next_permutation(order, order + 3));
  }
}

TYPED_TEST(ReduceFloating, ZerosOfNegativeSignAddUpToZero) {
  for (std::int64_t n = 1; n <= 130; ++n) {
    TestArray<TypeParam> x(Shape{19, n}), y(Shape{19, 1});
    for (std::int64_t i = 0; i < x.size(); ++i) x.set(i, TypeParam(-0.0));
    cpu().reduce(ReduceOp::sum, x, y, nullptr);
    for (std::int64_t k = 0; k < 19; ++k) EXPECT_FALSE(std::signbit(y[k])) << n;
  }
}

TYPED_TEST(ReduceFloating, AMillionTenthsAddUpWithinAFewUlps) {
  const auto tenth = static_cast<TypeParam>(0.1);
  for (const Shape& shape : {Shape{1000000}, Shape{500000, 2}}) {
    TestArray<TypeParam> x(shape);
    cpu().fill(x, 0.1);
    TestArray<TypeParam> y(reduced(shape, 1));
    cpu().reduce(ReduceOp::sum, x, y, nullptr);
    const double expected = static_cast<double>(tenth) * static_cast<double>(shape[0]);
    EXPECT_NEAR(y[0], expected, 12 * expected * std::numeric_limits<TypeParam>::epsilon());
  }
}

TYPED_TEST(ReduceFloating, NanWinsWhereverItIs) {
  const auto nan = std::numeric_limits<TypeParam>::quiet_NaN();
  for (std::int64_t n : {1, 5, 31, 33, 257, 5000}) {
    for (std::int64_t place : {std::int64_t(0), n / 2, n - 1}) {
      for (bool across : {false, true}) {
        auto x = random_array<TypeParam>(across ? Shape{n, 3} : Shape{3, n}, 33);
        const auto at = [&](std::int64_t k, std::int64_t i) { return across ? i * 3 + k : k * n + i; };
        x.set(at(1, place), nan);
        x.set(at(1, n - 1), nan);
        const unsigned axes = across ? 1 : 2;
        for (ReduceOp op : kOps) {
          TestArray<TypeParam> y(reduced(x.array().shape, axes));
          cpu().reduce(op, x, y, nullptr);
          EXPECT_TRUE(std::isnan(y[1])) << n << " at " << place;
          EXPECT_FALSE(std::isnan(y[0]) || std::isnan(y[2]));
          if (op != ReduceOp::max && op != ReduceOp::min) continue;
          TestArray<std::int64_t> which(reduced(x.array().shape, axes));
          cpu().reduce(op, x, y, &which.array());
          EXPECT_TRUE(std::isnan(y[1]));
          EXPECT_EQ(which[1], place);
          EXPECT_EQ(y[0], x[at(0, which[0])]);
        }
      }
    }
  }
}

TYPED_TEST(ReduceFloating, OneNanInAColumnIsFoundInEachRow) {
  constexpr std::int64_t rows = 21, columns = 37;
  for (std::int64_t row = 0; row < rows; ++row) {
    auto x = random_array<TypeParam>(Shape{rows, columns}, 34);
    for (const std::int64_t column : {5, 36})
      x.set(row * columns + column, std::numeric_limits<TypeParam>::quiet_NaN());
    for (const ReduceOp op : {ReduceOp::max, ReduceOp::min, ReduceOp::sum}) {
      TestArray<TypeParam> y(Shape{1, columns});
      cpu().reduce(op, x, y, nullptr);
      for (std::int64_t i = 0; i < columns; ++i) EXPECT_EQ(std::isnan(y[i]), i == 5 || i == 36) << row << ' ' << i;
    }
  }
}

TYPED_TEST(ReduceFloating, InfinitiesAreNumbersLikeOthers) {
  const auto infinity = std::numeric_limits<TypeParam>::infinity();
  TestArray<TypeParam> x(Shape{2, 40}), y(Shape{2, 1});
  cpu().fill(x, -infinity);
  x.set(40, infinity);
  TestArray<std::int64_t> which(Shape{2, 1});
  cpu().reduce(ReduceOp::max, x, y, &which.array());
  EXPECT_EQ(y[0], -infinity);
  EXPECT_EQ(which[0], 0);
  EXPECT_EQ(y[1], infinity);
  EXPECT_EQ(which[1], 0);
  cpu().reduce(ReduceOp::sum, x, y, nullptr);
  EXPECT_EQ(y[0], -infinity);
  EXPECT_TRUE(std::isnan(y[1]));
}

// Squared on the way or before, of any number of elements. What lies otherwise is added up in another order.
TYPED_TEST(ReduceFloating, SquaresAreSummedToTheBitsOfTheirArray) {
  std::vector<Shape> all = shapes();
  for (const std::int64_t n : {31, 64, 127, 128, 200, 4099})
    all.insert(all.end(), {Shape{n}, Shape{37, n}, Shape{n, 3}});
  all.insert(all.end(), {Shape{300007}, Shape{2, 70001}, Shape{1100, 130}});
  for (const Shape& shape : all) {
    for (const Layout layout : kLayouts) {
      const auto x = random_array<TypeParam>(shape, 35, layout);
      TestArray<TypeParam> squares(shape);
      for (std::int64_t i = 0; i < x.size(); ++i) squares.set(i, x[i] * x[i]);
      const unsigned sets = 1u << shape.rank();
      for (unsigned axes = 0; axes<sets; axes += shape.rank()> 3 ? 3 : 1) {
        const Shape to = reduced(shape, axes);
        for (const bool mean : {false, true}) {
          TestArray<TypeParam> y(to), expected(to);
          cpu().reduce(mean ? ReduceOp::mean_of_squares : ReduceOp::sum_of_squares, x, y, nullptr);
          cpu().reduce(mean ? ReduceOp::mean : ReduceOp::sum, squares, expected, nullptr);
          EXPECT_TRUE(y.margins_intact());
          if (layout == Layout::contiguous || std::has_single_bit(axes)) {
            ASSERT_TRUE(same_bits(y, expected)) << shape.str() << " axes " << axes;
          }
          for (std::int64_t i = 0; i < y.size() && x.size() > 0; ++i)
            ASSERT_NEAR(y[i], expected[i], 12 * std::numeric_limits<TypeParam>::epsilon() * expected[i]);
        }
      }
    }
  }
}

TYPED_TEST(ReduceFloating, SquaresOfWhatIsNoNumberOrTooLarge) {
  const auto infinity = std::numeric_limits<TypeParam>::infinity();
  const TypeParam nan = std::numeric_limits<TypeParam>::quiet_NaN(), largest = std::numeric_limits<TypeParam>::max();
  for (const std::int64_t n : {3, 1000}) {
    const auto sum_with = [n](TypeParam value) {
      TestArray<TypeParam> x(Shape{n}), y(Shape{1});
      x.set(n - 1, value);
      cpu().reduce(ReduceOp::sum_of_squares, x, y, nullptr);
      return y[0];
    };
    EXPECT_EQ(sum_with(-infinity), infinity);
    EXPECT_EQ(sum_with(largest), infinity);
    EXPECT_TRUE(std::isnan(sum_with(nan)));
  }
}

// One row, seen more often than there are bytes.
TYPED_TEST(ReduceFloating, SquaresOfTooManyElementsAreRefused) {
  TestArray<TypeParam> row(Shape{1, 8}), y(Shape{1, 8});
  Array x = row;
  x.shape = {std::int64_t{1} << 59, 8};
  x.strides[0] = 0;
  x.size = x.shape.size();
  x.contiguous = false;
  EXPECT_THROW(cpu().reduce(ReduceOp::sum_of_squares, x, y, nullptr), OutOfMemory);
}

TYPED_TEST(ReduceFloating, NothingGivesTheNeutralElement) {
  const auto infinity = std::numeric_limits<TypeParam>::infinity();
  for (const Shape& shape : {Shape{0}, Shape{3, 0}, Shape{0, 3}}) {
    const unsigned axes = shape[0] == 0 ? 1 : 2;
    TestArray<TypeParam> x(shape), y(reduced(shape, axes));
    TestArray<std::int64_t> which(reduced(shape, axes));
    const auto expect_all = [&](ReduceOp op, TypeParam expected) {
      cpu().reduce(op, x, y, nullptr);
      for (std::int64_t i = 0; i < y.size(); ++i) EXPECT_EQ(y[i], expected);
    };
    expect_all(ReduceOp::sum, 0);
    expect_all(ReduceOp::max, -infinity);
    expect_all(ReduceOp::min, infinity);
    expect_all(ReduceOp::sum_of_squares, 0);
    for (const ReduceOp op : {ReduceOp::mean, ReduceOp::mean_of_squares}) {
      cpu().reduce(op, x, y, nullptr);
      for (std::int64_t i = 0; i < y.size(); ++i) EXPECT_TRUE(std::isnan(y[i]));
    }
    cpu().reduce(ReduceOp::max, x, y, &which.array());
    for (std::int64_t i = 0; i < which.size(); ++i) EXPECT_EQ(which[i], -1);
  }
}

TEST(ReduceIntegers, NothingGivesTheExtremes) {
  TestArray<std::int32_t> x(Shape{0}), y(Shape{1});
  cpu().reduce(ReduceOp::max, x, y, nullptr);
  EXPECT_EQ(y[0], std::numeric_limits<std::int32_t>::min());
  cpu().reduce(ReduceOp::min, x, y, nullptr);
  EXPECT_EQ(y[0], std::numeric_limits<std::int32_t>::max());
  cpu().reduce(ReduceOp::sum, x, y, nullptr);
  EXPECT_EQ(y[0], 0);
}

TEST(ReduceIntegers, LargeNumbersStayExact) {
  TestArray<std::int64_t> x(Shape{1000}), y(Shape{1});
  for (int i = 0; i < 1000; ++i) x.set(i, (std::int64_t(1) << 50) + i);
  cpu().reduce(ReduceOp::sum, x, y, nullptr);
  EXPECT_EQ(y[0], 1000 * (std::int64_t(1) << 50) + 499500);
}

}  // namespace
}  // namespace reel::test
