// Elements taken along an axis by index and added back, against plain loops, for axes of every place and size.

#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

#include "reel/tests/kernels/arrays.h"

namespace reel {
namespace {

using std::int64_t;
using test::TestArray;

/// y [outer, n, inner] from x [outer, m, inner].
struct Sizes {
  int64_t outer, m, n, inner;
};
const std::vector<Sizes> kCases = {{1, 1, 1, 1},     {1, 7, 1000, 1},  {3, 5, 0, 4},     {0, 5, 3, 4},
                                   {4, 5, 3, 0},     {33, 31, 9, 1},   {2, 9, 31, 33},   {1, 40, 257, 255},
                                   {257, 3, 2, 5},   {1, 3, 2, 70001}, {1025, 4, 65, 2}, {1, 9, 100000, 1},
                                   {70000, 8, 1, 1}, {3, 40, 257, 1}};

/// One for each element of y, or, `shared`, one for each place along the axis of y [outer, n].
template <class Index>
TestArray<Index> random_indices(const Sizes& s, bool shared) {
  TestArray<Index> index(shared ? Shape{s.n} : Shape{s.outer, s.n, s.inner});
  std::mt19937 bits(3);
  for (int64_t i = 0; i < index.size(); ++i) index.set(i, static_cast<Index>(bits() % static_cast<unsigned>(s.m)));
  return index;
}

/// f(position in y, position in x) for each element, in ascending order along the axis.
template <class Index, class F>
void for_each_pair(const Sizes& s, const TestArray<Index>& index, F&& f) {
  const int64_t size = s.outer * s.n * s.inner;
  for (int64_t i = 0; i < size; ++i) {
    const int64_t o = i / s.inner / s.n, j = i % s.inner;
    f(i, (o * s.m + index[index.size() == size ? i : i % s.n]) * s.inner + j);
  }
}

/// check(index) for indices of all kinds.
template <class F>
void for_each_index(const Sizes& s, F&& check) {
  for (const bool shared : {false, true}) {
    if (shared && s.inner != 1) continue;
    check(random_indices<std::int32_t>(s, shared));
    check(random_indices<int64_t>(s, shared));
  }
}

template <class T>
class Gather : public testing::Test {};
using AllTypes = testing::Types<float, double, std::int32_t, int64_t, std::uint8_t, bool>;
TYPED_TEST_SUITE(Gather, AllTypes);

TYPED_TEST(Gather, CopiesTheElementsThatTheIndexNames) {
  for (const Sizes& s : kCases) {
    const auto x = test::random_array<TypeParam>(Shape{s.outer, s.m, s.inner}, 1);
    for_each_index(s, [&](const auto& index) {
      TestArray<TypeParam> y(Shape{s.outer, s.n, s.inner});
      test::cpu().gather(x, index, 1, y);
      for_each_pair(s, index, [&](int64_t to, int64_t from) { ASSERT_EQ(y[to], x[from]); });
      EXPECT_TRUE(y.margins_intact());
    });
  }
}

template <class T>
class ScatterAdd : public testing::Test {};
using FloatingTypes = testing::Types<float, double>;
TYPED_TEST_SUITE(ScatterAdd, FloatingTypes);

TYPED_TEST(ScatterAdd, AddsInAscendingOrderForAnyNumberOfThreads) {
  for (const Sizes& s : kCases) {
    const auto x = test::random_array<TypeParam>(Shape{s.outer, s.m, s.inner}, 4);
    for_each_index(s, [&](const auto& index) {
      const auto y = test::random_array<TypeParam>(Shape{s.outer, s.n, s.inner}, 5);
      TestArray<TypeParam> expected = x;
      for_each_pair(s, index, [&](int64_t from, int64_t to) { expected.set(to, expected[to] + y[from]); });
      for (const int threads : test::kThreadCounts) {
        const test::Threads scope(threads);
        TestArray<TypeParam> result = x;
        test::cpu().scatter_add(y, index, 1, result);
        EXPECT_TRUE(test::same_bits(result, expected));
        EXPECT_TRUE(result.margins_intact());
      }
    });
  }
}

}  // namespace
}  // namespace reel
