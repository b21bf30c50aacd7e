// What the op-case table cannot say about dropout: statistics, the ends of p, and that no mask is stored.

#include "reel/ops/dropout.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "reel/core/memory.h"
#include "reel/core/parallel.h"
#include "reel/core/tape.h"
#include "reel/ops/arithmetic.h"
#include "reel/ops/create.h"
#include "reel/ops/unary.h"

namespace reel::test {
namespace {

using testing::Each;

// Standard deviations that a normal number exceeds, to either side, once in a million.
constexpr double kOnceInAMillion = 4.892;

// Expects `hits` of n tries of probability p.
void expect_rate(double hits, double n, double p) {
  EXPECT_LE(std::abs(hits - n * p), kOnceInAMillion * std::sqrt(n * p * (1 - p))) << hits / n << " for " << p;
}

std::vector<bool> kept(const Tensor& y) {
  std::vector<bool> result;
  for (const float value : y.to_vector<float>()) result.push_back(value != 0);
  return result;
}

TEST(Dropout, KeepsTheRightShareOfElements) {
  constexpr std::int64_t n = 1 << 20;
  for (const DType dtype : {f32, f64})
    for (const double p : {0.001, 0.1, 0.5, 0.73, 0.999}) {
      Generator generator(17);
      const Tensor y = dropout(ones({n}, {.dtype = dtype}), p, {.generator = &generator});
      double hits = 0;
      for (const double value : y.to_vector<double>()) {
        hits += value != 0;
        if (value != 0) {
          ASSERT_NEAR(value * (1 - p), 1, 1e-6);
        }
      }
      expect_rate(hits, n, 1 - p);
    }
}

TEST(Dropout, CallsAndNeighboursAreIndependent) {
  constexpr std::int64_t n = 1 << 20;
  Generator generator(18);
  const Tensor x = ones({n});
  const auto first = kept(dropout(x, 0.4, {.generator = &generator}));
  const auto second = kept(dropout(x, 0.4, {.generator = &generator}));
  double both = 0, neighbours = 0;
  for (std::size_t i = 0; i < n; ++i) both += first[i] && second[i];
  for (std::size_t i = 0; i + 1 < n; i += 2) neighbours += first[i] && first[i + 1];
  expect_rate(both, n, 0.36);
  expect_rate(neighbours, n / 2, 0.36);
}

TEST(Dropout, ElementIStaysIfTheIthUniformNumberIsAtLeastP) {
  for (const DType dtype : {f32, f64})
    for (const std::int64_t n : {1, 3, 31, 2047, 2048, 2049, 100001})
      for (const double p : {0.3, 0x1p-24, 0.5, 0.5 + 0x1p-30}) {
        Generator a(19, 3), b(19, 3);
        a.below(5);  // not from the stream's start
        b.below(5);
        const std::vector<double> y = dropout(ones({n}, {.dtype = dtype}), p, {.generator = &a}).to_vector<double>();
        const std::vector<double> u = rand({n}, b, {.dtype = dtype}).to_vector<double>();
        for (std::size_t i = 0; i < u.size(); ++i) ASSERT_EQ(y[i] != 0, u[i] >= p) << i << " of " << n;
        EXPECT_EQ(a.state().counter, b.state().counter);
      }
}

TEST(Dropout, ThreadsDoNotChangeIt) {
  const Tensor x = ones({300000});
  const int before = num_threads();
  std::vector<float> expected;
  for (const int threads : {1, 2, 3, 7, 16}) {
    set_num_threads(threads);
    Generator generator(20);
    const std::vector<float> y = dropout(x, 0.5, {.generator = &generator}).to_vector<float>();
    if (expected.empty()) expected = y;
    EXPECT_EQ(y, expected);
  }
  set_num_threads(before);
}

TEST(Dropout, AtTheEndsOfPIsExact) {
  const Tensor x = tensor({1, INFINITY, NAN, -0.3});
  Generator generator(21);
  EXPECT_TRUE(dropout(x, 0, {.generator = &generator}).is(x));
  EXPECT_EQ(generator.state().counter, 0u);
  EXPECT_TRUE(dropout(x, 0.5, {.training = false}).is(x));
  EXPECT_THAT(dropout(x, 1).to_vector<float>(), Each(0));
  Tape tape;
  tape.watch(x);
  const Tensor y = dropout(x, 1);
  EXPECT_THAT(tape.gradient(y, full_like(y, INFINITY), {x})[0].to_vector<float>(), Each(0));
}

TEST(Dropout, StoresNoMaskAndDropsTheSameGradients) {
  constexpr std::int64_t n = 1 << 18, bytes = 4 * n;
  const Tensor x = ones({n});
  Tape tape;
  tape.watch(x);
  const std::int64_t before = memory_stats().live_bytes;
  const Tensor y = dropout(x, 0.5);
  const std::int64_t added = memory_stats().live_bytes - before;
  EXPECT_GE(added, bytes);  // the result
  EXPECT_LT(added, bytes + 8192);
  const Tensor dx = tape.gradient(y, full_like(y, 3), {x})[0];
  EXPECT_EQ(dx.to_vector<float>(), (3 * y).to_vector<float>());
}

TEST(Dropout, TheProcessesGeneratorMovesOnAndCanBeSeeded) {
  const Tensor x = ones({64});
  manual_seed(5);
  const auto first = kept(dropout(x)), second = kept(dropout(x));
  EXPECT_NE(first, second);
  manual_seed(5);
  EXPECT_EQ(kept(dropout(x)), first);
}

TEST(Dropout, OfARaggedIsThatOfItsValues) {
  Generator a(6), b(6);
  const Tensor x = ones({9, 4});
  const Ragged y = dropout(Ragged::from_lengths(x, {4, 0, 5}), 0.5, {.generator = &a});
  EXPECT_EQ(kept(y.values()), kept(dropout(x, 0.5, {.generator = &b})));
  EXPECT_EQ(y.count(), 3);
  EXPECT_EQ(dropout(Ragged::from_lengths(zeros({0, 4}), {0, 0})).total(), 0);
}

}  // namespace
}  // namespace reel::test
