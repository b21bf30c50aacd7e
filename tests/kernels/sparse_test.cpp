// Sums of a table's rows by segments of indices and their gradients, against plain loops.

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "reel/tests/kernels/arrays.h"

namespace reel {
namespace {

using std::int64_t;
using test::TestArray;

constexpr int64_t kRows = 37;
constexpr int64_t kWidths[] = {0, 1, 3, 16, 33, 257};

/// Segments of several lengths, some empty, with indices and weights.
template <class T, class Index>
struct Problem {
  std::vector<int64_t> offsets;
  TestArray<Index> index;
  TestArray<T> weight;
  Segments segments;

  explicit Problem(const std::vector<int64_t>& lengths)
      : offsets(ends(lengths)), index(Shape{offsets.back()}), weight(Shape{offsets.back()}) {
    std::mt19937 bits(1);
    for (int64_t i = 0; i < index.size(); ++i) index.set(i, static_cast<Index>(bits() % kRows));
    test::randomize(weight, 2);
    segments = {.count = static_cast<int64_t>(lengths.size()), .offsets = offsets.data(), .total = offsets.back()};
    for (const int64_t length : lengths) segments.max_length = std::max(segments.max_length, length);
  }

  /// f(segment, j, length) for each index j.
  template <class F>
  void for_each(F&& f) const {
    for (int64_t s = 0; s < segments.count; ++s)
      for (int64_t j = offsets[static_cast<std::size_t>(s)]; j < offsets[static_cast<std::size_t>(s + 1)]; ++j)
        f(s, j, static_cast<double>(offsets[static_cast<std::size_t>(s + 1)] - offsets[static_cast<std::size_t>(s)]));
  }

 private:
  static std::vector<int64_t> ends(const std::vector<int64_t>& lengths) {
    std::vector<int64_t> result{0};
    for (const int64_t length : lengths) result.push_back(result.back() + length);
    return result;
  }
};

template <class T>
void expect_close(const TestArray<T>& y, const std::vector<double>& expected, const std::vector<double>& scale) {
  for (int64_t i = 0; i < y.size(); ++i) {
    const auto k = static_cast<std::size_t>(i);
    ASSERT_LE(std::abs(y[i] - expected[k]), 16 * std::numeric_limits<T>::epsilon() * (scale[k] + 1)) << i;
  }
  EXPECT_TRUE(y.margins_intact());
}

template <class T>
class Sparse : public testing::Test {
 protected:
  /// All three entries against sums in double, with and without weights, for the mean and the sum.
  template <class Index>
  void check(const std::vector<int64_t>& lengths) {
    const Problem<T, Index> p(lengths);
    for (const int64_t width : kWidths) {
      if (p.segments.total * width > 300000) continue;
      const auto table = test::random_array<T>(Shape{kRows, width}, 3);
      const auto dy = test::random_array<T>(Shape{p.segments.count, width}, 4);
      const auto start = test::random_array<T>(Shape{kRows, width}, 5);
      for (const bool mean : {false, true}) {
        for (const bool weighted : {false, true}) {
          const Array* weight = weighted ? &p.weight.array() : nullptr;
          std::vector<double> y(static_cast<std::size_t>(dy.size())),
              y_scale = y, dtable = to_double(start), dtable_scale(dtable.size(), 4),
              dweight(static_cast<std::size_t>(p.segments.total)), dweight_scale = dweight;
          p.for_each([&](int64_t s, int64_t j, double length) {
            const double w = (weighted ? p.weight[j] : 1.0) / (mean ? length : 1);
            for (int64_t c = 0; c < width; ++c) {
              const int64_t at = p.index[j] * width + c;
              const double t = table[at], d = dy[s * width + c];
              add(y, y_scale, s * width + c, w * t);
              add(dtable, dtable_scale, at, w * d);
              add(dweight, dweight_scale, j, t * d / (mean ? length : 1));
            }
          });
          for (const int threads : {1, 3}) {
            const test::Threads scope(threads);
            TestArray<T> result(dy.array().shape);
            test::cpu().segment_gather(table, p.index, weight, p.segments, mean, result);
            expect_close(result, y, y_scale);
            TestArray<T> table_gradient = start;
            test::cpu().segment_gather_backward_table(dy, p.index, weight, p.segments, mean, table_gradient);
            expect_close(table_gradient, dtable, dtable_scale);
            TestArray<T> weight_gradient(Shape{p.segments.total});
            test::cpu().segment_gather_backward_weight(table, p.index, dy, p.segments, mean, weight_gradient);
            expect_close(weight_gradient, dweight, dweight_scale);
          }
        }
      }
    }
  }

 private:
  static void add(std::vector<double>& sum, std::vector<double>& scale, int64_t at, double value) {
    sum[static_cast<std::size_t>(at)] += value;
    scale[static_cast<std::size_t>(at)] += std::abs(value);
  }
  static std::vector<double> to_double(const TestArray<T>& x) {
    const std::vector<T> values = x.values();
    return {values.begin(), values.end()};
  }
};
using FloatingTypes = testing::Types<float, double>;
TYPED_TEST_SUITE(Sparse, FloatingTypes);

TYPED_TEST(Sparse, EqualsPlainLoops) {
  for (const std::vector<int64_t>& lengths :
       {std::vector<int64_t>{}, {0}, {0, 0, 0}, {1}, {3, 0, 5, 1, 0}, {0, 200, 2}, {31, 32, 33, 0, 255, 257}}) {
    this->template check<int64_t>(lengths);
    this->template check<std::int32_t>(lengths);
  }
  this->template check<int64_t>(std::vector<int64_t>(20000, 4));
}

TYPED_TEST(Sparse, GivesTheSameBitsForAnyNumberOfThreads) {
  const Problem<TypeParam, int64_t> p({5000, 0, 1, 4000, 9, 700});
  const int64_t width = 100;
  const auto table = test::random_array<TypeParam>(Shape{kRows, width}, 6);
  const auto dy = test::random_array<TypeParam>(Shape{p.segments.count, width}, 7);
  std::vector<TestArray<TypeParam>> expected;
  for (const int threads : test::kThreadCounts) {
    const test::Threads scope(threads);
    std::vector<TestArray<TypeParam>> results = {TestArray<TypeParam>(dy.array().shape),
                                                 TestArray<TypeParam>(table.array().shape),
                                                 TestArray<TypeParam>(p.weight.array().shape)};
    test::cpu().segment_gather(table, p.index, &p.weight.array(), p.segments, true, results[0]);
    test::cpu().segment_gather_backward_table(dy, p.index, &p.weight.array(), p.segments, true, results[1]);
    test::cpu().segment_gather_backward_weight(table, p.index, dy, p.segments, true, results[2]);
    if (expected.empty()) expected = results;
    for (std::size_t i = 0; i < 3; ++i) EXPECT_TRUE(test::same_bits(results[i], expected[i])) << i;
  }
}

TYPED_TEST(Sparse, SumsASegmentInOrder) {
  // In this order alone the large numbers cancel before the small one comes.
  TestArray<TypeParam> table(Shape{3, 1});
  const TypeParam large = TypeParam(1) / std::numeric_limits<TypeParam>::epsilon() * 4;
  table.set(0, large);
  table.set(1, -large);
  table.set(2, 1);
  TestArray<int64_t> index(Shape{3});
  for (int64_t i = 0; i < 3; ++i) index.set(i, i);
  const int64_t offsets[] = {0, 3};
  TestArray<TypeParam> y(Shape{1, 1});
  test::cpu().segment_gather(table, index, nullptr, {.count = 1, .offsets = offsets, .total = 3, .max_length = 3},
                             false, y);
  EXPECT_EQ(y[0], 1);
}

}  // namespace
}  // namespace reel
