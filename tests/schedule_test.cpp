#include "reel/nn/schedule.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace reel::nn {
namespace {

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

/// Expects these rates from step 0 on.
void expect_rates(const Schedule& schedule, const std::vector<double>& rates) {
  for (std::size_t t = 0; t < rates.size(); ++t)
    EXPECT_NEAR(schedule(static_cast<std::int64_t>(t)), rates[t], 1e-12) << "step " << t;
}

TEST(Schedule, ANumberIsConstant) {
  struct Options {
    Schedule lr = 1e-3;
  };
  EXPECT_EQ(Options{}.lr(5), 1e-3);
  EXPECT_EQ((Options{.lr = 2}.lr(1000)), 2);
  expect_rates(schedule::constant(0.5), {0.5, 0.5});
}

TEST(Schedule, RatesThatAreNegativeOrNotFiniteAreRefused) {
  for (const double rate : {-1.0, kNaN, std::numeric_limits<double>::infinity()})
    EXPECT_THROW(Schedule{rate}(0), Error);
}

TEST(Schedule, AFunctionIsASchedule) {
  const Schedule halves = [](std::int64_t step) { return 1.0 / double(1 + step); };
  expect_rates(halves, {1, 0.5, 1.0 / 3});
}

TEST(Schedule, ConstantThenStartsTheNextAtItsOwnZero) {
  expect_rates(schedule::constant_then(0.3, 2, schedule::decaying(1, 1)), {0.3, 0.3, 1, 0.5, 1.0 / 3});
  expect_rates(schedule::constant_then(0.3, 0, schedule::decaying(1, 1)), {1, 0.5});
}

TEST(Schedule, DecayingFallsHyperbolically) { expect_rates(schedule::decaying(8, 1), {8, 4, 8.0 / 3, 2}); }

TEST(Schedule, CompoundingStopsFromBothSides) {
  expect_rates(schedule::compounding(1, 10, 2), {1, 2, 4, 8, 10, 10});
  expect_rates(schedule::compounding(8, 1.5, 0.5), {8, 4, 2, 1.5, 1.5});
}

TEST(Schedule, WarmupLinearRisesAndFalls) {
  expect_rates(schedule::warmup_linear(1, 2, 6), {0, 0.5, 1, 0.75, 0.5, 0.25, 0, 0});
  expect_rates(schedule::warmup_linear(1, 0, 2), {1, 0.5, 0});
}

TEST(Schedule, SlantedTriangularIsThePapers) {
  // 10 steps, cut 0.2: the summit at step 2, then 1/8 of the height less each step.
  const auto rate = [](double height) { return 0.32 * (1 + height * 31) / 32; };
  expect_rates(schedule::slanted_triangular(0.32, 10, 0.2),
               {rate(0), rate(0.5), rate(1), rate(7.0 / 8), rate(6.0 / 8), rate(5.0 / 8), rate(4.0 / 8), rate(3.0 / 8),
                rate(2.0 / 8), rate(1.0 / 8), rate(0), rate(0)});
  // A cut below one step: the summit is the start.
  expect_rates(schedule::slanted_triangular(1, 4, 0.1, 2), {1, 0.875, 0.75, 0.625, 0.5, 0.5});
}

TEST(Schedule, CyclicTriangularRepeats) {
  expect_rates(schedule::cyclic_triangular(1, 3, 2), {1, 2, 3, 2, 1, 2, 3, 2, 1});
  EXPECT_EQ(schedule::cyclic_triangular(1, 3, 2)(4'000'000'002), 3);
}

TEST(Schedule, CosineGoesHalfWayInHalfTheTime) {
  expect_rates(schedule::cosine(1, 4), {1, (2 + std::sqrt(2.0)) / 4, 0.5, (2 - std::sqrt(2.0)) / 4, 0, 0});
  expect_rates(schedule::cosine(3, 2, 1), {3, 2, 1, 1});
}

TEST(Schedule, StepDropsEveryFewSteps) { expect_rates(schedule::step(1, 2, 0.5), {1, 1, 0.5, 0.5, 0.25}); }

TEST(Schedule, PlateauDropsAfterPatienceWithoutABest) {
  Schedule rate = schedule::plateau(1, 2, 0.5);
  const auto after = [&](double score) {
    rate.observe(score);
    return rate(0);
  };
  EXPECT_EQ(after(0.5), 1);
  EXPECT_EQ(after(0.5), 1);     // no better: one
  EXPECT_EQ(after(0.4), 0.5);   // two
  EXPECT_EQ(after(0.45), 0.5);  // counting began again
  EXPECT_EQ(after(0.6), 0.5);   // a new best
  EXPECT_EQ(after(kNaN), 0.5);
  EXPECT_EQ(after(kNaN), 0.25);
}

TEST(Schedule, CopiesShareWhatAPlateauSaw) {
  const Schedule original = schedule::plateau(schedule::decaying(1, 1), 1, 0.5);
  Schedule copy = original;
  copy.observe(1);
  copy.observe(0);
  EXPECT_EQ(original(1), 0.25);
}

TEST(Schedule, AStateThatHasWaitedLongerThanAShorterPatienceDropsAtTheNext) {
  Schedule rate = schedule::plateau(1, 3, 0.5);
  rate.load_state({1, 5, 0});
  rate.observe(0);
  EXPECT_EQ(rate(0), 0.5);
}

TEST(Schedule, AStateIsTakenUpExactly) {
  // Two plateaus, one within the other's schedule; 100 observations, cut after every number of them.
  const auto make = [] {
    return schedule::plateau(schedule::constant_then(1, 2, schedule::plateau(0.3, 3, 0.9)), 5, 0.7);
  };
  const auto score = [](int i) { return std::sin(i * 1.7) + i * 0.001; };
  for (int cut = 0; cut < 100; ++cut) {
    Schedule whole = make(), first = make(), second = make();
    for (int i = 0; i < 100; ++i) whole.observe(score(i));
    for (int i = 0; i < cut; ++i) first.observe(score(i));
    second.load_state(first.state());
    for (int i = cut; i < 100; ++i) second.observe(score(i));
    ASSERT_EQ(second.state(), whole.state());
    ASSERT_EQ(second(0), whole(0));
    ASSERT_EQ(second(10), whole(10));
    ASSERT_LT(whole(10), 0.3);
  }
}

TEST(Schedule, ABadStateIsRefusedAndChangesNothing) {
  Schedule rate = schedule::plateau(1, 1, 0.5);
  rate.observe(1);
  rate.observe(0);
  const std::vector<double> before = rate.state();
  EXPECT_EQ(before, (std::vector<double>{1, 0, 1}));
  EXPECT_THROW(rate.load_state({}), Error);
  EXPECT_THROW(rate.load_state({1, 2, 3, 4}), Error);
  EXPECT_THROW(rate.load_state({1, -1, 0}), Error);
  EXPECT_THROW(rate.load_state({1, 0, 0.5}), Error);
  EXPECT_THROW(rate.load_state({1, kNaN, 0}), Error);
  EXPECT_THROW(rate.load_state({kNaN, 0, 0}), Error);
  EXPECT_THROW(Schedule(1.0).load_state({1}), Error);
  EXPECT_EQ(rate.state(), before);
  EXPECT_TRUE(schedule::cosine(1, 10).state().empty());
}

TEST(Schedule, BadArgumentsAreNamedWithTheCallersLine) {
  EXPECT_THROW(schedule::constant_then(1, -1, 1), Error);
  EXPECT_THROW(schedule::decaying(1, -1), Error);
  EXPECT_THROW(schedule::decaying(1, kNaN), Error);
  EXPECT_THROW(schedule::compounding(1, 2, 0), Error);
  EXPECT_THROW(schedule::warmup_linear(1, 5, 5), Error);
  EXPECT_THROW(schedule::warmup_linear(1, -1, 5), Error);
  EXPECT_THROW(schedule::slanted_triangular(1, 0), Error);
  EXPECT_THROW(schedule::slanted_triangular(1, 10, 1), Error);
  EXPECT_THROW(schedule::slanted_triangular(1, 10, 0.1, 0.5), Error);
  EXPECT_THROW(schedule::cyclic_triangular(1, 2, 0), Error);
  EXPECT_THROW(schedule::cyclic_triangular(1, 2, std::int64_t{1} << 62), Error);
  EXPECT_THROW(schedule::cosine(1, 0), Error);
  EXPECT_THROW(schedule::step(1, 0), Error);
  EXPECT_THROW(schedule::plateau(1, 0), Error);
  EXPECT_THROW(Schedule(1.0)(-1), Error);
  try {
    schedule::cosine(1, 0);
    FAIL();
  } catch (const Error& error) {
    const std::string text = error.what();
    EXPECT_NE(text.find("cosine: steps >= 1 is required"), std::string::npos) << text;
    EXPECT_NE(text.find("schedule_test.cpp:"), std::string::npos) << text;
  }
}

}  // namespace
}  // namespace reel::nn
