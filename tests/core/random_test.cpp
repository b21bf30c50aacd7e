#include "reel/core/random.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <set>

#include "reel/core/parallel.h"
#include "reel/ops/arithmetic.h"
#include "reel/ops/create.h"
#include "reel/ops/reduce.h"
#include "reel/ops/unary.h"
#include "reel/ops/views.h"
#include "reel/tests/expect.h"

namespace reel {
namespace {

TEST(Random, OneSeedGivesOneSequence) {
  manual_seed(7);
  const auto first = randn({100}).to_vector<float>(), second = randn({100}).to_vector<float>();
  manual_seed(7);
  EXPECT_EQ(randn({100}).to_vector<float>(), first);
  EXPECT_EQ(randn({100}).to_vector<float>(), second);
  EXPECT_NE(first, second);
  manual_seed(8);
  EXPECT_NE(randn({100}).to_vector<float>(), first);
}

TEST(Random, AStateCanBeSavedAndSetAgain) {
  manual_seed(1);
  rand({13});
  const PhiloxState state = random_state();
  const auto expected = rand({50}, {.dtype = f64}).to_vector<double>();
  rand({1000});
  set_random_state(state);
  EXPECT_EQ(rand({50}, {.dtype = f64}).to_vector<double>(), expected);
}

TEST(Random, ACallMovesOnByTheBlocksItUsed) {
  Generator generator(3);
  EXPECT_EQ(generator.take(9, f32).counter, 0u);
  EXPECT_EQ(generator.take(1, f64).counter, 3u);  // 9 numbers of 4 a block
  EXPECT_EQ(generator.take(0, f64).counter, 4u);
  EXPECT_EQ(generator.state().counter, 4u);
}

TEST(Random, AShorterCallIsThePrefixOfALongerOne) {
  Generator a(5), b(5);
  const Tensor small = randn({10}, a), large = randn({100'000}, b);
  EXPECT_EQ(small.to_vector<float>(), slice(large, 0, 0, 10).to_vector<float>());
}

TEST(Random, ThreadsDoNotChangeTheNumbers) {
  const int before = num_threads();
  set_num_threads(1);
  Generator a(5), b(5);
  const auto expected = randn({200'001}, a).to_vector<float>();
  set_num_threads(3);
  EXPECT_EQ(randn({200'001}, b).to_vector<float>(), expected);
  set_num_threads(before);
}

TEST(Random, UniformNumbersFillTheirInterval) {
  manual_seed(2);
  for (const DType dtype : {f32, f64}) {
    const Tensor x = rand({1'000'000}, {.dtype = dtype});
    EXPECT_GE(min(x).item(), 0);
    EXPECT_LT(max(x).item(), 1);
    // Mean 1/2 and variance 1/12, within five standard errors.
    EXPECT_NEAR(mean(x).item(), 0.5, 5 * std::sqrt(1.0 / 12 / 1e6));
    EXPECT_NEAR(mean(square(x - 0.5)).item(), 1.0 / 12, 5 * std::sqrt(1.0 / 180 / 1e6));
  }
}

TEST(Random, NormalNumbersHaveTheMomentsOfTheStandardNormal) {
  manual_seed(2);
  for (const DType dtype : {f32, f64}) {
    const Tensor x = randn({1'000'000}, {.dtype = dtype});
    EXPECT_NEAR(mean(x).item(), 0, 5e-3);
    EXPECT_NEAR(mean(square(x)).item(), 1, 5 * std::sqrt(2 / 1e6));
    EXPECT_NEAR(mean(x * x * x).item(), 0, 5 * std::sqrt(15 / 1e6));
    EXPECT_NEAR(mean(square(square(x))).item(), 3, 5 * std::sqrt(96 / 1e6));
  }
}

TEST(Random, IntegersCoverTheirRangeEvenly) {
  manual_seed(4);
  const Tensor x = randint(-2, 5, {70'000});
  std::vector<int> counts(7);
  for (const std::int64_t value : x.to_vector<std::int64_t>()) {
    ASSERT_GE(value, -2);
    ASSERT_LT(value, 5);
    ++counts[static_cast<std::size_t>(value + 2)];
  }
  for (const int count : counts) EXPECT_NEAR(count, 10'000, 500);
  EXPECT_THROW_WITH(randint(3, 3, {1}), Error, "randint", "got 3 and 3", "random_test.cpp");
  EXPECT_THROW_WITH(randint(0, 3, {1}, {.dtype = f32}), DTypeError, "randint", "f32");
}

TEST(Random, IntegersMayLieAtTheEndsOfTheirType) {
  using Limits = std::numeric_limits<std::int64_t>;
  for (const std::int64_t low : {Limits::min(), -(std::int64_t{1} << 53) - 1, Limits::max() - 3}) {
    const auto x = randint(low, low + 3, {1000}).to_vector<std::int64_t>();
    EXPECT_EQ(std::set<std::int64_t>(x.begin(), x.end()), (std::set<std::int64_t>{low, low + 1, low + 2}));
  }
}

TEST(Random, APermutationHoldsEachNumberOnce) {
  Generator generator(9);
  const auto order = permutation(1000, generator).to_vector<std::int64_t>();
  EXPECT_EQ(std::set<std::int64_t>(order.begin(), order.end()).size(), 1000u);
  EXPECT_EQ(*std::max_element(order.begin(), order.end()), 999);
  std::vector<std::int64_t> sorted(1000);
  std::iota(sorted.begin(), sorted.end(), 0);
  EXPECT_NE(order, sorted);
  EXPECT_EQ(permutation(0, generator).size(), 0);
}

TEST(Random, AGeneratorGivesWhatTheProcessGivesFromItsSeed) {
  const Tensor p = tensor({0.25, 0.5, 0.75, 1}, {.dtype = f64});
  Generator generator(17);
  const auto own = [&] {
    return Tensors{randint(0, 1000, {50}, generator), randint(-3, 3, {50}, generator, {.dtype = i32}),
                   bernoulli(0.5, {50}, generator),   bernoulli(0.5, {50}, generator, {.dtype = bool8}),
                   bernoulli(p, generator),           permutation(50, generator),
                   permutation(1, generator),         rand({3}, generator)};
  }();
  manual_seed(17);
  const Tensors process{randint(0, 1000, {50}), randint(-3, 3, {50}, {.dtype = i32}),
                        bernoulli(0.5, {50}),   bernoulli(0.5, {50}, {.dtype = bool8}),
                        bernoulli(p),           permutation(50),
                        permutation(1),         rand({3})};
  for (std::size_t i = 0; i < own.size(); ++i) {
    EXPECT_EQ(own[i].dtype(), process[i].dtype()) << i;
    EXPECT_EQ(own[i].to_vector<double>(), process[i].to_vector<double>()) << i;
  }
  EXPECT_EQ(generator.state().counter, random_state().counter);
  EXPECT_THROW_WITH(randint(3, 3, {1}, generator), Error, "randint", "got 3 and 3", "random_test.cpp");
  EXPECT_THROW_WITH(bernoulli(2, {1}, generator), Error, "bernoulli", "got 2", "random_test.cpp");
  EXPECT_THROW_WITH(bernoulli(arange(2), generator), DTypeError, "bernoulli", "i64", "random_test.cpp");
}

TEST(Random, PermutationsOfThreeAreEquallyLikely) {
  Generator generator(9);
  std::vector<int> counts(27);
  for (int i = 0; i < 6000; ++i) {
    const auto p = permutation(3, generator).to_vector<std::int64_t>();
    ++counts[static_cast<std::size_t>(9 * p[0] + 3 * p[1] + p[2])];
  }
  int seen = 0;
  for (const int count : counts) {
    if (count == 0) continue;
    ++seen;
    EXPECT_NEAR(count, 1000, 5 * std::sqrt(1000.0));
  }
  EXPECT_EQ(seen, 6);
}

TEST(Random, BelowNeedsAPositiveBound) {
  Generator generator;
  EXPECT_THROW_WITH(generator.below(0), Error, "at least 1, got 0", "random_test.cpp:");
  EXPECT_EQ(generator.below(1), 0);
}

TEST(Random, OnlyFloatingNumbersAreDrawn) {
  EXPECT_THROW_WITH(randn({2}, {.dtype = i64}), DTypeError, "randn", "i64", "random_test.cpp");
  EXPECT_THROW_WITH(rand({2}, {.dtype = bool8}), DTypeError, "rand", "bool8");
}

TEST(Create, MakesWhatTheNamesSay) {
  EXPECT_EQ(full({2}, 2.5).to_vector<float>(), (std::vector<float>{2.5, 2.5}));
  EXPECT_EQ(ones({2}, {.dtype = bool8}).to_vector<int>(), (std::vector<int>{1, 1}));
  EXPECT_EQ(arange(4).to_vector<int>(), (std::vector<int>{0, 1, 2, 3}));
  EXPECT_EQ(arange(3, {.dtype = f64}).dtype(), f64);
  EXPECT_EQ(zeros_like(arange(3)).dtype(), i64);
  EXPECT_THROW_WITH(arange(3, {.dtype = bool8}), DTypeError, "arange", "bool8");
  EXPECT_THROW_WITH(tensor({1, 2, 3}, {2, 2}), ShapeError, "[2, 2] has 4 elements, got 3 values", "random_test.cpp");
  EXPECT_EQ(from_vector(std::vector<std::int64_t>{1, 2}).dtype(), i64);
}

}  // namespace
}  // namespace reel
