// Rows taken by index and added back, against plain loops.

#include <gtest/gtest.h>

#include <cstdint>
#include <string_view>
#include <vector>

#include "reel/tests/kernels/arrays.h"

namespace reel {
namespace {

using std::int64_t;
using test::TestArray;

constexpr int64_t kWidths[] = {1, 2, 3, 16, 31, 32, 33, 64, 255, 257};

/// Numbers in [0, limit), with a favourite that comes again and again.
template <class Index>
TestArray<Index> random_indices(int64_t n, int64_t limit, unsigned seed) {
  TestArray<Index> index(Shape{n});
  std::mt19937 bits(seed);
  for (int64_t i = 0; i < n; ++i) {
    index.set(i, static_cast<Index>(bits() % 4 == 0 ? limit / 2 : static_cast<int64_t>(bits()) % limit));
  }
  return index;
}

template <class T>
class TakeRows : public testing::Test {};
using AllTypes = testing::Types<float, double, std::int32_t, int64_t, std::uint8_t, bool>;
TYPED_TEST_SUITE(TakeRows, AllTypes);

TYPED_TEST(TakeRows, CopiesTheRowsThatTheIndexNames) {
  for (const int64_t width : kWidths) {
    for (const int64_t n : test::kSizes) {
      if (n * width > 400000) continue;
      const auto table = test::random_array<TypeParam>(Shape{50, width}, 1);
      const auto index = random_indices<std::int32_t>(n, 50, 2);
      TestArray<TypeParam> y(Shape{n, width});
      test::cpu().take_rows(table, index, y);
      for (int64_t i = 0; i < n * width; ++i) ASSERT_EQ(y[i], table[index[i / width] * width + i % width]);
      EXPECT_TRUE(y.margins_intact());
    }
  }
}

TYPED_TEST(TakeRows, TakesIndicesOf64Bits) {
  const auto table = test::random_array<TypeParam>(Shape{1000, 5}, 3);
  const auto index = random_indices<int64_t>(200, 1000, 4);
  TestArray<TypeParam> y(Shape{200, 5});
  test::cpu().take_rows(table, index, y);
  for (int64_t i = 0; i < 1000; ++i) EXPECT_EQ(y[i], table[index[i / 5] * 5 + i % 5]);
}

TYPED_TEST(TakeRows, OfNothingOrOfWidthZeroWritesNothing) {
  for (const auto& [rows, n, width] : {std::tuple<int64_t, int64_t, int64_t>{0, 0, 3}, {5, 0, 3}, {5, 7, 0}}) {
    const TestArray<TypeParam> table(Shape{rows, width});
    const TestArray<int64_t> index(Shape{n});
    TestArray<TypeParam> y(Shape{n, width});
    test::cpu().take_rows(table, index, y);
    EXPECT_TRUE(y.margins_intact());
  }
}

template <class T>
class AddRows : public testing::Test {};
using FloatingTypes = testing::Types<float, double>;
TYPED_TEST_SUITE(AddRows, FloatingTypes);

/// In ascending order of i, each sum rounded: what the kernel must give bit for bit.
template <class T, class Index>
TestArray<T> added(const TestArray<T>& y, const TestArray<Index>& index, const TestArray<T>& table) {
  TestArray<T> sum = table;
  const int64_t width = table.array().shape[1];
  for (int64_t i = 0; i < index.size(); ++i) {
    for (int64_t j = 0; j < width; ++j) {
      const int64_t to = index[i] * width + j;
      sum.set(to, sum[to] + y[i * width + j]);
    }
  }
  return sum;
}

TYPED_TEST(AddRows, AddsInAscendingOrderForEverySize) {
  for (const int64_t rows : {1, 7, 64, 65, 3000}) {
    for (const int64_t width : kWidths) {
      for (const int64_t n : test::kSizes) {
        if (n * width > 400000) continue;
        const auto y = test::random_array<TypeParam>(Shape{n, width}, 5);
        const auto table = test::random_array<TypeParam>(Shape{rows, width}, 6);
        const auto index = random_indices<int64_t>(n, rows, 7);
        const auto expected = added(y, index, table);
        TestArray<TypeParam> result = table;
        test::cpu().add_rows(y, index, result);
        ASSERT_TRUE(test::same_bits(result, expected)) << rows << " rows of " << width << ", " << n << " added";
        ASSERT_TRUE(result.margins_intact());
      }
    }
  }
}

// A range of the table's rows for each thread: even ones, or by a sample of the indices where some rows are wanted more often.
TYPED_TEST(AddRows, AddsInAscendingOrderHoweverTheWorkIsShared) {
  for (const int64_t rows : {1, 7, 40, 3000}) {
    for (const int64_t width : {8, 16, 33, 64, 257}) {
      const int64_t n = 10000;
      const auto y = test::random_array<TypeParam>(Shape{n, width}, 12);
      const auto table = test::random_array<TypeParam>(Shape{rows, width}, 13);
      auto index = random_indices<int64_t>(n, rows, 14);
      for (const std::string_view wanted : {"evenly", "the first ones", "the last one", "in order"}) {
        for (int64_t i = 0; i < n; ++i) {
          if (wanted == "the first ones") index.set(i, index[i] * index[i] / rows * index[i] / rows);
          if (wanted == "the last one") index.set(i, rows - 1);
          if (wanted == "in order") index.set(i, i * rows / n);
        }
        const auto expected = added(y, index, table);
        for (const int threads : test::kThreadCounts) {
          const test::Threads scope(threads);
          TestArray<TypeParam> result = table;
          test::cpu().add_rows(y, index, result);
          ASSERT_TRUE(test::same_bits(result, expected))
              << rows << " rows of " << width << ", " << threads << " threads, wanted " << wanted;
          ASSERT_TRUE(result.margins_intact());
        }
      }
    }
  }
}

TYPED_TEST(AddRows, TakesIndicesOf32Bits) {
  for (const int64_t n : {10, 10000}) {
    for (const int64_t width : {2, 40}) {
      const auto y = test::random_array<TypeParam>(Shape{n, width}, 8);
      const auto table = test::random_array<TypeParam>(Shape{400, width}, 9);
      const auto index = random_indices<std::int32_t>(n, 400, 10);
      for (const int threads : test::kThreadCounts) {
        const test::Threads scope(threads);
        TestArray<TypeParam> result = table;
        test::cpu().add_rows(y, index, result);
        EXPECT_TRUE(test::same_bits(result, added(y, index, table)));
      }
    }
  }
}

// As many threads as rows at most.
TYPED_TEST(AddRows, OfFewWideRows) {
  for (const int64_t rows : {1, 2, 3}) {
    const auto y = test::random_array<TypeParam>(Shape{30, 20001}, 15);
    const auto table = test::random_array<TypeParam>(Shape{rows, 20001}, 16);
    const auto index = random_indices<int64_t>(30, rows, 17);
    const auto expected = added(y, index, table);
    for (const int threads : {1, 2, 7}) {
      const test::Threads scope(threads);
      TestArray<TypeParam> result = table;
      test::cpu().add_rows(y, index, result);
      EXPECT_TRUE(test::same_bits(result, expected)) << rows << " rows, " << threads << " threads";
      EXPECT_TRUE(result.margins_intact());
    }
  }
}

TYPED_TEST(AddRows, OfNothingLeavesTheTable) {
  const auto table = test::random_array<TypeParam>(Shape{4, 3}, 11);
  TestArray<TypeParam> result = table;
  test::cpu().add_rows(TestArray<TypeParam>(Shape{0, 3}), TestArray<int64_t>(Shape{0}), result);
  EXPECT_TRUE(test::same_bits(result, table));
  TestArray<TypeParam> empty(Shape{4, 0});
  test::cpu().add_rows(TestArray<TypeParam>(Shape{2, 0}), TestArray<int64_t>(Shape{2}), empty);
  EXPECT_TRUE(empty.margins_intact());
}

}  // namespace
}  // namespace reel
