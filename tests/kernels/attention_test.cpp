// The attention kernels against plain loops: lengths around blocks, strided operands and results, nothing written beside.

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "reel/tests/kernels/arrays.h"

namespace reel {
namespace {

using std::int64_t;
using test::TestArray;

struct Problem {
  std::vector<int64_t> queries, keys;  // offsets
  int64_t heads, width, value_width;
  bool causal = false, masked = false;
};

Segments segments(const std::vector<int64_t>& offsets) {
  int64_t longest = 0;
  for (std::size_t i = 1; i < offsets.size(); ++i) longest = std::max(longest, offsets[i] - offsets[i - 1]);
  return {static_cast<int64_t>(offsets.size()) - 1, offsets.data(), offsets.back(), longest};
}

// [rows, heads, width]: rows side by side, heads side by side, or with gaps between both.
enum class Order { rows, heads, gaps };
template <class T>
TestArray<T> array(int64_t rows, int64_t heads, int64_t width, Order order) {
  const Shape shape{rows, heads, width};
  if (order == Order::heads) return TestArray<T>(shape, {width, rows * width, 1});
  if (order == Order::gaps) return TestArray<T>(shape, {heads * (width + 3) + 5, width + 3, 1});
  return TestArray<T>(shape, {heads * width, width, 1});
}

template <class T>
struct Operands {
  TestArray<T> q, k, v, dy, mask;

  Operands(const Problem& p, Order order)
      : q(array<T>(p.queries.back(), p.heads, p.width, order)),
        k(array<T>(p.keys.back(), p.heads, p.width, order)),
        v(array<T>(p.keys.back(), p.heads, p.value_width, order)),
        dy(array<T>(p.queries.back(), p.heads, p.value_width, order)),
        mask({p.heads, segments(p.queries).max_length, segments(p.keys).max_length}) {
    test::randomize(q, 1, -1, 1);
    test::randomize(k, 2, -1, 1);
    test::randomize(v, 3, -1, 1);
    test::randomize(dy, 4, -1, 1);
    test::randomize(mask, 5, -2, 2);
    for (int64_t i = 0; i < mask.size(); i += 5) mask.set(i, -std::numeric_limits<T>::infinity());
  }
};

template <class T>
struct Results {
  TestArray<T> y, state, dq, dk, dv;

  Results(const Problem& p, Order order)
      : y(array<T>(p.queries.back(), p.heads, p.value_width, order)),
        state({p.queries.back(), p.heads, 2}),
        dq(array<T>(p.queries.back(), p.heads, p.width, order)),
        dk(array<T>(p.keys.back(), p.heads, p.width, order)),
        dv(array<T>(p.keys.back(), p.heads, p.value_width, order)) {}
};

constexpr double kScale = 0.4;

template <class T>
Results<T> compute(const Problem& p, const Operands<T>& in, Order order) {
  Results<T> out(p, order);
  const Attention attention{segments(p.queries), segments(p.keys), p.causal, kScale};
  const Array* mask = p.masked ? &in.mask.array() : nullptr;
  for (TestArray<T>* x : {&out.y, &out.dq, &out.dk, &out.dv}) test::randomize(*x, 9);  // to be overwritten
  test::cpu().attention(attention, in.q, in.k, in.v, mask, out.y, out.state);
  test::cpu().attention_backward(attention, in.q, in.k, in.v, mask, out.y, out.state, in.dy, out.dq, out.dk, out.dv);
  for (const TestArray<T>* x : {&out.y, &out.state, &out.dq, &out.dk, &out.dv}) EXPECT_TRUE(x->margins_intact());
  return out;
}

// Everything from the definition, in double.
template <class T>
void expect_right(const Problem& p, const Operands<T>& in, const Results<T>& out) {
  std::vector<double> dq(static_cast<std::size_t>(in.q.size())), dk(static_cast<std::size_t>(in.k.size()));
  std::vector<double> dv(static_cast<std::size_t>(in.v.size()));
  const double bound = 200 * static_cast<double>(std::numeric_limits<T>::epsilon());
  const auto place = [&](int64_t row, int64_t head, int64_t width) { return (row * p.heads + head) * width; };
  for (std::size_t s = 0; s + 1 < p.queries.size(); ++s)
    for (int64_t h = 0; h < p.heads; ++h) {
      const int64_t queries = p.queries[s + 1] - p.queries[s], keys = p.keys[s + 1] - p.keys[s];
      for (int64_t i = 0; i < queries; ++i) {
        const int64_t q = place(p.queries[s] + i, h, p.width), y = place(p.queries[s] + i, h, p.value_width);
        std::vector<double> score(static_cast<std::size_t>(keys)), dp(score);
        double largest = -INFINITY, total = 0, dot = 0;
        const auto key = [&](int64_t j) { return place(p.keys[s] + j, h, p.width); };
        const auto value = [&](int64_t j) { return place(p.keys[s] + j, h, p.value_width); };
        for (int64_t j = 0; j < keys; ++j) {
          double& x = score[static_cast<std::size_t>(j)];
          for (int64_t e = 0; e < p.width; ++e) x += kScale * in.q[q + e] * in.k[key(j) + e];
          if (p.masked) x += in.mask[(h * in.mask.array().shape[1] + i) * in.mask.array().shape[2] + j];
          if (p.causal && j > i + keys - queries) x = -INFINITY;
          largest = std::max(largest, x);
        }
        for (double& x : score) total += x = largest == -INFINITY ? 0 : std::exp(x - largest);
        for (double& x : score) x = total == 0 ? 0 : x / total;
        for (int64_t e = 0; e < p.value_width; ++e) {
          double expected = 0;
          for (int64_t j = 0; j < keys; ++j) {
            const auto at = static_cast<std::size_t>(j);
            expected += score[at] * in.v[value(j) + e];
            dp[at] += in.dy[y + e] * in.v[value(j) + e];
            dv[static_cast<std::size_t>(value(j) + e)] += score[at] * in.dy[y + e];
          }
          dot += expected * in.dy[y + e];
          ASSERT_NEAR(out.y[y + e], expected, bound);
        }
        const int64_t state = 2 * ((p.queries[s] + i) * p.heads + h);
        ASSERT_TRUE(out.state[state] == largest || std::abs(out.state[state] - largest) <= bound);
        ASSERT_NEAR(out.state[state + 1], total == 0 ? 0 : 1 / total, bound);
        for (int64_t j = 0; j < keys; ++j)
          for (int64_t e = 0; e < p.width; ++e) {
            const double d = kScale * score[static_cast<std::size_t>(j)] * (dp[static_cast<std::size_t>(j)] - dot);
            dq[static_cast<std::size_t>(q + e)] += d * in.k[key(j) + e];
            dk[static_cast<std::size_t>(key(j) + e)] += d * in.q[q + e];
          }
      }
    }
  const auto expect_near = [&](const TestArray<T>& got, const std::vector<double>& expected) {
    for (int64_t i = 0; i < got.size(); ++i) ASSERT_NEAR(got[i], expected[static_cast<std::size_t>(i)], 10 * bound);
  };
  expect_near(out.dq, dq);
  expect_near(out.dk, dk);
  expect_near(out.dv, dv);
}

const Problem kProblems[] = {
    {{0, 1}, {0, 1}, 1, 1, 1},
    {{0, 3, 3, 8}, {0, 2, 5, 5}, 2, 5, 3},
    {{0, 127, 255, 384}, {0, 129, 130, 258}, 1, 16, 17},
    {{0, 257}, {0, 300}, 1, 33, 8},
    {{0, 300}, {0, 257}, 2, 8, 33},
    {{0}, {0}, 2, 3, 3},
    {{0, 0, 4}, {0, 3, 3}, 0, 4, 4},
    {{0, 4}, {0, 5}, 3, 0, 2},
    {{0, 4}, {0, 5}, 3, 2, 0},
};

template <class T>
class AttentionKernel : public testing::Test {};
using Types = testing::Types<float, double>;
TYPED_TEST_SUITE(AttentionKernel, Types);

TYPED_TEST(AttentionKernel, IsSoftmaxOfTheScoresTimesTheValues) {
  for (Problem p : kProblems)
    for (const bool causal : {false, true})
      for (const bool masked : {false, true}) {
        p.causal = causal;
        p.masked = masked;
        const Operands<TypeParam> in(p, Order::rows);
        expect_right(p, in, compute(p, in, Order::rows));
      }
}

TYPED_TEST(AttentionKernel, StridesAndThreadsDoNotChangeABit) {
  for (Problem p : kProblems) {
    p.causal = true;
    const Operands<TypeParam> dense(p, Order::rows);
    const Results<TypeParam> expected = compute(p, dense, Order::rows);
    for (const Order order : {Order::heads, Order::gaps})
      for (const int threads : {1, 16}) {  // in one pass, and in two
        const test::Threads scope(threads);
        const Results<TypeParam> got = compute(p, Operands<TypeParam>(p, order), order);
        EXPECT_TRUE(test::same_bits(got.y, expected.y));
        EXPECT_TRUE(test::same_bits(got.dq, expected.dq));
        EXPECT_TRUE(test::same_bits(got.dk, expected.dk));
        EXPECT_TRUE(test::same_bits(got.dv, expected.dv));
      }
  }
}

TYPED_TEST(AttentionKernel, AMaskMayHaveAnyStrides) {
  Problem p{{0, 40, 90}, {0, 130, 140}, 2, 4, 4, false, true};
  Operands<TypeParam> in(p, Order::rows);
  const Shape shape = in.mask.array().shape;
  for (const test::Layout layout : test::kLayouts) {
    TestArray<TypeParam> mask(shape, layout);
    test::randomize(mask, 6);
    in.mask = mask;
    expect_right(p, in, compute(p, in, Order::rows));
  }
}

}  // namespace
}  // namespace reel
