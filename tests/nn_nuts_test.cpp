#include "reel/nn/nuts.h"

#include <gtest/gtest.h>

#include <cmath>

#include "reel/core/random.h"
#include "reel/ops/arithmetic.h"
#include "reel/ops/matmul.h"
#include "reel/ops/reduce.h"
#include "reel/ops/unary.h"
#include "reel/tests/expect.h"

namespace reel {
namespace {

constexpr nn::NutsOptions kShort{.chains = 2, .warmup = 300, .draws = 1000};

TEST(Nuts, DrawsFromANormalDistributionOfUnequalScales) {
  const Tensor mean = from_vector(std::vector<double>{1, -20, 0}),
               scale = from_vector(std::vector<double>{0.1, 5, 100});
  const nn::Draws draws = nn::nuts([&](const Tensor& q) { return -0.5 * sum(square((q - mean) / scale)); }, 3, kShort);
  for (std::size_t i = 0; i < 3; ++i) {
    const double expected = mean[i].item(), deviation = scale[i].item();
    EXPECT_NEAR(draws.mean(i), expected, 4 * draws.standard_error(i)) << i;
    EXPECT_NEAR(draws.deviation(i), deviation, 0.15 * deviation) << i;
    EXPECT_LT(draws.r_hat(i), 1.02) << i;
    EXPECT_GT(draws.effective_size(i), 500) << i;
  }
  EXPECT_EQ(draws.divergences, 0);
  EXPECT_EQ(draws.step_sizes.size(), 2u);
}

TEST(Nuts, DrawsFromACorrelatedAndFromASkewOne) {
  // Correlation 0.9: the precision matrix of unit variances is [[1, -r], [-r, 1]] / (1 - r^2).
  const Tensor precision = tensor({1, -0.9, -0.9, 1}, {2, 2}, {.dtype = f64}) / (1 - 0.81);
  const nn::Draws pair = nn::nuts([&](const Tensor& q) { return -0.5 * sum(q * matmul(precision, q)); }, 2, kShort);
  EXPECT_NEAR(pair.deviation(0), 1, 0.12);
  const nn::Draws product = pair.transformed(1, [](const double* q, double* result) { *result = q[0] * q[1]; });
  EXPECT_NEAR(product.mean(0), 0.9, 4 * product.standard_error(0));
  // q = log x of an x with exponential distribution: E[q] is minus Euler's constant.
  const nn::Draws skew = nn::nuts([](const Tensor& q) { return sum(q - exp(q)); }, 1, kShort);
  EXPECT_NEAR(skew.mean(0), -0.57721566, 4 * skew.standard_error(0));
}

TEST(Nuts, TheSeedDecides) {
  const auto density = [](const Tensor& q) { return -0.5 * sum(q * q); };
  const nn::NutsOptions options{.chains = 1, .warmup = 50, .draws = 20, .seed = 3};
  nn::NutsOptions other = options;
  other.seed = 4;
  const nn::Draws a = nn::nuts(density, 2, options), b = nn::nuts(density, 2, options), c = nn::nuts(density, 2, other);
  EXPECT_EQ(a.chain(0, 1), b.chain(0, 1));
  EXPECT_NE(a.chain(0, 1), c.chain(0, 1));
}

TEST(Nuts, CountsDivergencesInANeck) {
  // Neal's funnel: the scale of q[1] is exp(q[0] / 2), and no step is right everywhere.
  const auto funnel = [](const Tensor& q) {
    const Tensor v = q[0], x = q[1];
    return -v * v / 18.0 - 0.5 * x * x * exp(-v) - 0.5 * v;
  };
  EXPECT_GT(nn::nuts(funnel, 2, {.chains = 2, .warmup = 300, .draws = 1000, .target_accept = 0.6}).divergences, 0);
}

TEST(Nuts, RefusesADensityThatIsFiniteNowhere) {
  EXPECT_THROW_WITH(nn::nuts([](const Tensor& q) { return log(-sum(q * q)); }, 1, kShort), Error,
                    "nuts: the density must be finite somewhere");
}

TEST(Nuts, MovesAfterAnyWarmup) {
  for (int warmup = 0; warmup < 100; ++warmup) {
    const nn::Draws draws =
        nn::nuts([](const Tensor& q) { return -0.5 * sum(q * q); }, 2, {.chains = 1, .warmup = warmup, .draws = 20});
    EXPECT_TRUE(std::isfinite(draws.step_sizes[0])) << warmup;
    EXPECT_GT(draws.deviation(0), 0) << warmup;
  }
}

TEST(Nuts, RefusesOptionsOutOfRange) {
  const auto refused = [](const nn::NutsOptions& options) {
    EXPECT_THROW_WITH(nn::nuts([](const Tensor& q) { return -sum(q * q); }, 1, options), Error,
                      "nuts: max_depth from 1 to 30 and target_accept between 0 and 1 are required, got");
  };
  for (const int depth : {-1, 0, 31}) refused({.max_depth = depth});
  for (const double accept : {0.0, 1.0, -1.0, std::nan("")}) refused({.target_accept = accept});
}

// --- Draws ----------------------------------------------------------------------------------------------------------------

// x[t] = phi x[t - 1] + noise, shifted by `shift` per chain.
nn::Draws autoregressive(double phi, double shift) {
  nn::Draws draws(4, 5000, 1);
  Generator generator(11);
  for (int chain = 0; chain < 4; ++chain) {
    const std::vector<double> noise = randn({5000}, generator, {.dtype = f64}).to_vector<double>();
    double x = 0;
    for (int i = 0; i < 5000; ++i) {
      x = phi * x + noise[static_cast<std::size_t>(i)];
      draws.at(chain, i, 0) = x + shift * chain;
    }
  }
  return draws;
}

TEST(Draws, MeanAndDeviationAreOfAll) {
  nn::Draws draws(1, 3, 1);
  draws.at(0, 1, 0) = 9;
  EXPECT_EQ(draws.mean(0), 3);
  EXPECT_DOUBLE_EQ(draws.deviation(0), std::sqrt(27));
  nn::Draws one(1, 1, 1);
  one.at(0, 0, 0) = 4;
  EXPECT_EQ(one.mean(0), 4);
}

TEST(Draws, EffectiveSizeOfAnAutoregressiveSeries) {
  // n (1 - phi) / (1 + phi)
  EXPECT_NEAR(autoregressive(0, 0).effective_size(0), 20000, 2000);
  for (const int count : {1, 2, 3, 4, 10}) {
    nn::Draws few(2, count, 1), equal(2, count, 1), zero(2, count, 1);
    for (int chain = 0; chain < 2; ++chain)
      for (int draw = 0; draw < count; ++draw) {
        few.at(chain, draw, 0) = (7 * draw + 3 * chain) % 5;
        equal.at(chain, draw, 0) = 0.1;
      }
    EXPECT_FALSE(few.effective_size(0) <= 0) << count;
    for (const nn::Draws* none : {&equal, &zero})
      EXPECT_TRUE(std::isnan(none->effective_size(0)) && std::isnan(none->standard_error(0))) << count;
  }
  EXPECT_NEAR(autoregressive(0.5, 0).effective_size(0), 20000 / 3.0, 700);
  EXPECT_NEAR(autoregressive(0.9, 0).effective_size(0), 20000 / 19.0, 200);
}

TEST(Draws, RHatSeesChainsThatDisagreeAndDrift) {
  EXPECT_NEAR(autoregressive(0.5, 0).r_hat(0), 1, 0.01);
  EXPECT_GT(autoregressive(0.5, 1).r_hat(0), 1.2);
  nn::Draws drifting = autoregressive(0, 0);
  for (int chain = 0; chain < 4; ++chain)
    for (int i = 0; i < 5000; ++i) drifting.at(chain, i, 0) += i * 1e-3;
  EXPECT_GT(drifting.r_hat(0), 1.4);
}

}  // namespace
}  // namespace reel
