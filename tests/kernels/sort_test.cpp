// Sorting against std::stable_sort, and positions of a mask against a loop.

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <functional>
#include <limits>
#include <numeric>
#include <vector>

#include "reel/tests/kernels/arrays.h"

namespace reel {
namespace {

using std::int64_t;
using test::TestArray;

/// The positions of n elements that are `step` apart, from `first` on, in order: NaN is the largest and equals NaN.
template <class T>
std::vector<int64_t> order_of(const TestArray<T>& x, int64_t first, int64_t n, int64_t step, bool descending) {
  std::vector<int64_t> order(static_cast<std::size_t>(n));
  std::iota(order.begin(), order.end(), 0);
  const auto less = [](T a, T b) { return a < b || (b != b && a == a); };
  std::stable_sort(order.begin(), order.end(), [&](int64_t i, int64_t j) {
    const T a = x[first + i * step], b = x[first + j * step];
    return descending ? less(b, a) : less(a, b);
  });
  return order;
}

/// Numbers with ties, of all sizes; floats also with zeros of both signs, infinities and NaN.
template <class T>
TestArray<T> awkward(const Shape& shape, unsigned seed) {
  TestArray<T> x(shape);
  std::mt19937_64 bits(seed);
  for (int64_t i = 0; i < x.size(); ++i) {
    const std::uint64_t r = bits();
    if constexpr (std::is_floating_point_v<T>) {
      const T special[] = {T(0),
                           -T(0),
                           std::numeric_limits<T>::infinity(),
                           -std::numeric_limits<T>::infinity(),
                           std::numeric_limits<T>::quiet_NaN(),
                           -std::numeric_limits<T>::quiet_NaN(),
                           std::numeric_limits<T>::denorm_min(),
                           -std::numeric_limits<T>::denorm_min()};
      x.set(i, r % 8 == 0
                   ? special[r / 8 % 8]
                   : std::ldexp(static_cast<T>(static_cast<int>(r % 2001) - 1000), static_cast<int>(r / 4096 % 40)));
    } else {
      x.set(i, r % 3 == 0 ? static_cast<T>(r) : static_cast<T>(static_cast<int>(r % 19) - 9));
    }
  }
  return x;
}

template <class T>
class Sort : public testing::Test {};
using SortedTypes = testing::Types<float, double, std::int32_t, int64_t>;
TYPED_TEST_SUITE(Sort, SortedTypes);

TYPED_TEST(Sort, IsTheStableOrderOfEachLine) {
  using Case = std::array<int64_t, 4>;  // outer, n, inner, k
  for (const auto& [outer, n, inner, k] :
       {Case{1, 1, 1, 1},   {3, 2, 1, 2},     {5, 64, 1, 64},       {5, 65, 1, 65},      {2, 63, 3, 10},
        {1, 1025, 7, 1025}, {40, 257, 2, 3},  {3, 1025, 1, 16},  // the first few are selected, up to here
        {3, 1025, 1, 17},   {2, 1000, 3, 15}, {3, 511, 1, 100},  // from 512 on by a sample, less than a quarter of them
        {3, 512, 1, 127},   {3, 512, 3, 128}, {2, 777, 3, 60},      {1, 16383, 1, 4000}, {1, 16384, 2, 4000},
        {1, 20000, 1, 20},  {9, 8, 1, 1},     {1, 50000, 1, 50000}, {2, 33, 0, 33},      {0, 33, 2, 33},
        {2, 33, 2, 0}}) {
    const auto x = awkward<TypeParam>(Shape{outer, n, inner}, 1);
    for (const bool descending : {false, true}) {
      TestArray<TypeParam> y(Shape{outer, k, inner});
      TestArray<int64_t> which(Shape{outer, k, inner});
      test::cpu().sort(x, 1, descending, y, which);
      EXPECT_TRUE(y.margins_intact());
      EXPECT_TRUE(which.margins_intact());
      for (int64_t line = 0; line < outer * inner; ++line) {
        const int64_t o = line / inner, j = line % inner;
        const std::vector<int64_t> order = order_of(x, o * n * inner + j, n, inner, descending);
        for (int64_t i = 0; i < k; ++i) {
          const int64_t at = (o * k + i) * inner + j, from = order[static_cast<std::size_t>(i)];
          ASSERT_EQ(which[at], from);
          const TypeParam got = y[at], expected = x[(o * n + from) * inner + j];
          ASSERT_EQ(std::memcmp(&got, &expected, sizeof got), 0);
        }
      }
    }
  }
}

// The sample, every n / 64th element or of 2^14 and more every n / 256th, is right only where it is like the others: `low` and `high`
// are other numbers just there, and of a constant no key is below the sample's.
TYPED_TEST(Sort, FindsTheFirstWhateverASampleTells) {
  constexpr int64_t k = 100;
  for (const int64_t n : {1024, 16384}) {
    const int64_t apart = n == 1024 ? 16 : 64;
    const auto low = [=](int64_t i) { return i % apart == 0 ? 0 : 1 + i % 7; };
    const auto high = [=](int64_t i) { return i % apart == 0 ? 99 : i % 7; };
    const auto rising = [](int64_t i) { return i / 3; };
    const auto falling = [](int64_t i) { return -i / 3; };
    const auto constant = [](int64_t) { return 5; };
    const std::vector<std::function<int64_t(int64_t)>> numbers = {low, high, rising, falling, constant};
    for (std::size_t which_numbers = 0; which_numbers < numbers.size(); ++which_numbers) {
      TestArray<TypeParam> x(Shape{n});
      for (int64_t i = 0; i < n; ++i) x.set(i, static_cast<TypeParam>(numbers[which_numbers](i)));
      for (const bool descending : {false, true}) {
        TestArray<TypeParam> y(Shape{k});
        TestArray<int64_t> which(Shape{k});
        test::cpu().sort(x, 0, descending, y, which);
        EXPECT_TRUE(which.margins_intact());
        const std::vector<int64_t> order = order_of(x, 0, n, 1, descending);
        for (int64_t i = 0; i < k; ++i)
          ASSERT_EQ(which[i], order[static_cast<std::size_t>(i)]) << n << ' ' << which_numbers << ' ' << i;
      }
    }
  }
}

TYPED_TEST(Sort, OfSegmentsStaysWithinThem) {
  const std::vector<int64_t> offsets = {0, 0, 1, 66, 66, 3000, 3002, 3002};
  const Segments segments{.count = 7, .offsets = offsets.data(), .total = 3002, .max_length = 2934};
  for (const int64_t width : {0, 1, 2, 33}) {
    const auto x = awkward<TypeParam>(Shape{3002, width}, 2);
    for (const bool descending : {false, true}) {
      TestArray<TypeParam> y(Shape{3002, width});
      TestArray<int64_t> which(Shape{3002, width});
      test::cpu().segment_sort(x, segments, descending, y, which);
      for (std::size_t s = 0; s < 7; ++s) {
        for (int64_t j = 0; j < width; ++j) {
          const int64_t begin = offsets[s], n = offsets[s + 1] - begin;
          const std::vector<int64_t> order = order_of(x, begin * width + j, n, width, descending);
          for (int64_t i = 0; i < n; ++i) {
            ASSERT_EQ(which[(begin + i) * width + j], order[static_cast<std::size_t>(i)]);
            const TypeParam got = y[(begin + i) * width + j];
            const TypeParam expected = x[(begin + order[static_cast<std::size_t>(i)]) * width + j];
            ASSERT_EQ(std::memcmp(&got, &expected, sizeof got), 0);
          }
        }
      }
    }
  }
}

TEST(Nonzero, GivesPositionsInOrderForAnyNumberOfThreads) {
  for (const int64_t n : test::kSizes) {
    const auto mask = test::random_array<bool>(Shape{n}, 3);
    std::vector<int64_t> expected;
    for (int64_t i = 0; i < n; ++i)
      if (mask[i]) expected.push_back(i);
    for (const int threads : test::kThreadCounts) {
      const test::Threads scope(threads);
      TestArray<int64_t> index(Shape{n});
      ASSERT_EQ(test::cpu().nonzero(mask, index), static_cast<int64_t>(expected.size()));
      EXPECT_TRUE(index.margins_intact());
      for (std::size_t i = 0; i < expected.size(); ++i) ASSERT_EQ(index[static_cast<int64_t>(i)], expected[i]);
    }
  }
}

}  // namespace
}  // namespace reel
