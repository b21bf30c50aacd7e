// Statistical tests of everything that draws random numbers, with fixed seeds; goodness.h says how sure they are.

#include "reel/ops/sampling.h"

#include <gtest/gtest.h>

#include <numeric>

#include "reel/core/parallel.h"
#include "reel/ops/arithmetic.h"
#include "reel/ops/create.h"
#include "reel/ops/distributions.h"
#include "reel/ops/matmul.h"
#include "reel/ops/views.h"
#include "reel/tests/ops/goodness.h"

namespace reel::test {
namespace {

namespace d = distributions;
constexpr std::int64_t kCount = 100'000;
const TensorOptions kDouble{.dtype = f64};

std::vector<double> values(const Tensor& x) { return x.to_vector<double>(); }

template <class F>
std::vector<double> mapped(std::vector<double> x, F&& f) {
  for (double& v : x) v = f(v);
  return x;
}

// Elements first, first + step, ...
std::vector<double> every(const std::vector<double>& x, std::size_t step, std::size_t first) {
  std::vector<double> some;
  for (std::size_t i = first; i < x.size(); i += step) some.push_back(x[i]);
  return some;
}

// That neighbours at several distances, among them the lanes of a block, are independent. u: uniform numbers.
void expect_independent(const std::vector<double>& u) {
  for (const std::size_t distance : {1, 2, 3, 4, 8, 256}) {
    const std::vector<double> front(u.begin(), u.end() - static_cast<std::ptrdiff_t>(distance)),
        back(u.begin() + static_cast<std::ptrdiff_t>(distance), u.end());
    EXPECT_GT(chi_square_of_pairs(front, back), kSignificance) << "distance " << distance;
  }
  EXPECT_GT(chi_square_of_pairs(every(u, 2, 0), every(u, 2, 1)), kSignificance) << "pairs";
}

double uniform_cdf(double x) { return x; }

// --- what the tests themselves can tell -------------------------------------------------------------------------------

TEST(Goodness, DistributionFunctionsHaveTheirTabulatedValues) {
  EXPECT_NEAR(gamma_cdf(1, 2), 1 - std::exp(-2), 1e-14);
  EXPECT_NEAR(gamma_cdf(0.5, 1.92072941034706), 0.95, 1e-12);  // half of chi-square's 95 % point for one degree
  EXPECT_NEAR(gamma_cdf(5, 9.15351902663757), 0.95, 1e-12);    // and for ten
  EXPECT_NEAR(beta_cdf(2, 3, 0.4, 0.6), 0.5248, 1e-13);        // by hand: a polynomial
  EXPECT_NEAR(student_t_cdf(1, 1), 0.75, 1e-14);
  EXPECT_NEAR(student_t_cdf(10, 2.22813885196494), 0.975, 1e-12);
}

TEST(Goodness, SeesSmallFaults) {
  Generator generator(1);
  const std::vector<double> u = values(rand({kCount}, generator, kDouble));
  EXPECT_LT(kolmogorov_smirnov(mapped(u, [](double x) { return std::pow(x, 1.03); }), uniform_cdf), kSignificance);
  EXPECT_LT(chi_square_of(mapped(u, [](double x) { return std::floor(3 * std::pow(x, 1.03)); }), 3,
                          [](double) { return 1.0 / 3; }),
            kSignificance);
  EXPECT_LT(chi_square_of_pairs(u, mapped(u, [](double x) { return std::fmod(7 * x, 1); })), kSignificance);
}

// --- create.h ---------------------------------------------------------------------------------------------------------

TEST(Rand, IsUniformAndIndependent) {
  for (const DType dtype : {f32, f64}) {
    Generator generator(11);
    const std::vector<double> u = values(rand({kCount}, generator, {.dtype = dtype}));
    EXPECT_GT(kolmogorov_smirnov(u, uniform_cdf), kSignificance);
    expect_independent(u);
  }
}

TEST(Rand, LowBitsAreUniformToo) {
  Generator generator(12);
  const auto low = [](double x, double scale) { return std::fmod(x * scale, 1); };
  EXPECT_GT(kolmogorov_smirnov(mapped(values(rand({kCount}, generator)), [&](double x) { return low(x, 0x1p8); }),
                               uniform_cdf),
            kSignificance);
  EXPECT_GT(
      kolmogorov_smirnov(mapped(values(rand({kCount}, generator, kDouble)), [&](double x) { return low(x, 0x1p30); }),
                         uniform_cdf),
      kSignificance);
}

TEST(Rand, SeedsStreamsAndCallsAreIndependent) {
  const auto drawn = [](std::uint64_t seed, std::uint64_t stream) {
    Generator generator(seed, stream);
    return values(rand({kCount}, generator, kDouble));
  };
  const std::vector<double> u = drawn(5, 0);
  for (const auto& [seed, stream] : {std::pair{6, 0}, {4, 0}, {5, 1}, {5, 2}, {0, 5}})
    EXPECT_GT(chi_square_of_pairs(u, drawn(static_cast<std::uint64_t>(seed), static_cast<std::uint64_t>(stream))),
              kSignificance)
        << seed << " " << stream;
  manual_seed(5);
  EXPECT_EQ(values(rand({kCount}, kDouble)), u);
  EXPECT_GT(chi_square_of_pairs(u, values(rand({kCount}, kDouble))), kSignificance);
}

TEST(Randn, IsNormalAndIndependent) {
  for (const DType dtype : {f32, f64}) {
    Generator generator(13);
    const std::vector<double> u = mapped(values(randn({kCount}, generator, {.dtype = dtype})), normal_cdf);
    EXPECT_GT(kolmogorov_smirnov(u, uniform_cdf), kSignificance);
    expect_independent(u);
  }
}

TEST(Randn, HasTheRightTails) {
  Generator generator(14);
  const std::vector<double> x = values(randn({4'000'000}, generator));
  std::vector<double> counts(5), expected(5);
  for (const double v : x) ++counts[std::min<std::size_t>(4, static_cast<std::size_t>(std::abs(v)))];
  for (int k = 0; k < 5; ++k)
    expected[static_cast<std::size_t>(k)] =
        static_cast<double>(x.size()) * 2 * (normal_cdf(-k) - (k < 4 ? normal_cdf(-k - 1) : 0));
  EXPECT_GT(chi_square(counts, expected), kSignificance);
}

TEST(Randint, IsUniformAndIndependent) {
  manual_seed(15);
  for (const std::int64_t range : {2, 7, 1000}) {
    const auto n = static_cast<double>(range);
    const std::vector<double> x = values(randint(0, range, {kCount}));
    EXPECT_GT(chi_square_of(x, static_cast<std::size_t>(range), [n](double) { return 1 / n; }), kSignificance) << range;
    if (range == 1000) expect_independent(mapped(x, [](double v) { return (v + 0.5) / 1000; }));
  }
  const std::vector<double> wide = values(randint(-5, (std::int64_t{1} << 32) - 5, {kCount}));
  EXPECT_GT(kolmogorov_smirnov(mapped(wide, [](double v) { return (v + 5.5) * 0x1p-32; }), uniform_cdf), kSignificance);
}

// Of 2^32 random numbers 3 * 2^30 could not have the same part each: of every three neighbours one would have two.
TEST(Randint, IsEvenInWideRanges) {
  manual_seed(16);
  const std::vector<double> x = values(randint(0, std::int64_t{3} << 30, {kCount}));
  const std::vector<double> place = mapped(x, [](double v) { return std::fmod(v, 3); });
  EXPECT_GT(chi_square_of(place, 3, [](double) { return 1.0 / 3; }), kSignificance);
}

TEST(Permutation, AllOrdersAreEquallyLikely) {
  Generator generator(16);
  std::vector<double> orders;
  for (int i = 0; i < 24'000; ++i) {
    // The number of an order: how many smaller ones come behind each place.
    const std::vector<double> p = values(permutation(4, generator));
    double number = 0;
    for (std::size_t a = 0; a < 4; ++a) {
      double smaller = 0;
      for (std::size_t b = a + 1; b < 4; ++b) smaller += p[b] < p[a] ? 1 : 0;
      number = number * static_cast<double>(4 - a) + smaller;
    }
    orders.push_back(number);
  }
  EXPECT_GT(chi_square_of(orders, 24, [](double) { return 1.0 / 24; }), kSignificance);
}

TEST(Permutation, EveryPlaceIsEquallyLikely) {
  Generator generator(17);
  std::vector<double> counts(50 * 50);
  for (int i = 0; i < 5000; ++i) {
    const std::vector<double> p = values(permutation(50, generator));
    for (std::size_t place = 0; place < 50; ++place) ++counts[place * 50 + static_cast<std::size_t>(p[place])];
  }
  // Rows and columns sum up to 5000, which leaves 49 of 50 degrees of freedom each way: too kind by a hair.
  EXPECT_GT(chi_square(counts, std::vector<double>(counts.size(), 100)), kSignificance);
}

// --- gamma and Poisson ------------------------------------------------------------------------------------------------

TEST(StandardGamma, FollowsItsDistribution) {
  Generator generator(21);
  for (const double alpha : {0.02, 0.3, 0.999, 1.0, 2.5, 40.0, 1e4}) {
    const std::vector<double> u = mapped(values(standard_gamma(full({kCount}, alpha, kDouble), &generator)),
                                         [alpha](double x) { return gamma_cdf(alpha, x); });
    EXPECT_GT(kolmogorov_smirnov(u, uniform_cdf), kSignificance) << alpha;
    expect_independent(u);
  }
  // Far out the distribution is normal but for a skewness of 2e-6.
  const double alpha = 1e12;
  const auto standard = [alpha](double x) { return normal_cdf((x - alpha) / std::sqrt(alpha)); };
  EXPECT_GT(kolmogorov_smirnov(mapped(values(standard_gamma(full({kCount}, alpha, kDouble), &generator)), standard),
                               uniform_cdf),
            kSignificance);
}

TEST(Poisson, FollowsItsDistribution) {
  Generator generator(22);
  for (const double rate : {0.01, 0.7, 4.0, 9.99, 10.0, 12.5, 100.0, 5000.0}) {
    const auto limit = static_cast<std::size_t>(rate + 8 * std::sqrt(rate) + 20);
    EXPECT_GT(chi_square_of(values(poisson(full({kCount}, rate, kDouble), &generator)), limit,
                            [rate](double k) { return std::exp(k * std::log(rate) - rate - std::lgamma(k + 1)); }),
              kSignificance)
        << rate;
  }
  for (const double rate : {1e10, 1e15}) {
    const auto standard = [rate](double k) { return normal_cdf((k + 0.5 - rate) / std::sqrt(rate)); };
    const std::vector<double> u = mapped(values(poisson(full({kCount}, rate, kDouble), &generator)), standard);
    EXPECT_GT(kolmogorov_smirnov(u, uniform_cdf), kSignificance) << rate;
    expect_independent(u);
  }
}

TEST(Rejection, CallsAreIndependentAndMoveTheGeneratorOn) {
  Generator generator(23);
  const Tensor alpha = full({kCount}, 0.8, kDouble);
  const auto drawn = [&] {
    return mapped(values(standard_gamma(alpha, &generator)), [](double x) { return gamma_cdf(0.8, x); });
  };
  const std::vector<double> first = drawn();
  EXPECT_EQ(generator.state().counter, 64u * kCount);
  EXPECT_GT(chi_square_of_pairs(first, drawn()), kSignificance);
  Generator other(23, 1);
  EXPECT_GT(chi_square_of_pairs(first, values(rand({kCount}, other, kDouble))), kSignificance);
}

TEST(Rejection, EdgesAreWhatTheyShouldBe) {
  const Tensor edges = tensor({0, -1, NAN, INFINITY, 5e-324, 1e300}, kDouble);
  const std::vector<double> g = values(standard_gamma(edges)), p = values(poisson(edges));
  for (const std::vector<double>& x : {g, p}) {
    EXPECT_EQ(x[0], 0);
    EXPECT_TRUE(std::isnan(x[1]) && std::isnan(x[2]));
    EXPECT_EQ(x[3], INFINITY);
    EXPECT_EQ(x[4], 0);
    EXPECT_NEAR(x[5] / 1e300, 1, 1e-10);
  }
  EXPECT_EQ(standard_gamma(zeros({0, 3})).shape(), Shape(0, 3));
}

TEST(Rejection, ThreadsDoNotChangeTheNumbers) {
  const int before = num_threads();
  const auto drawn = [](int threads) {
    set_num_threads(threads);
    Generator generator(24);
    const Tensor x = standard_gamma(full({3001}, 0.5, kDouble), &generator);
    return values(concatenate({x, poisson(full({3001}, 30, kDouble), &generator)}));
  };
  const std::vector<double> expected = drawn(1);
  for (const int threads : {2, 3, 7}) EXPECT_EQ(drawn(threads), expected);
  set_num_threads(before);
}

// --- distributions.h --------------------------------------------------------------------------------------------------

template <class Distribution, class Cdf>
void expect_fit(const char* name, const Distribution& distribution, Cdf cdf) {
  Generator generator(31);
  const std::vector<double> u = mapped(values(distribution.sample({kCount}, &generator)), cdf);
  EXPECT_GT(kolmogorov_smirnov(u, uniform_cdf), kSignificance) << name;
  expect_independent(u);
}

template <class Distribution, class Probability>
void expect_counts(const char* name, const Distribution& distribution, std::size_t limit, Probability probability) {
  Generator generator(32);
  EXPECT_GT(chi_square_of(values(distribution.sample({kCount}, &generator)), limit, probability), kSignificance)
      << name;
}

TEST(Samples, FollowTheirDensities) {
  expect_fit("normal", d::Normal(2, 3), [](double x) { return normal_cdf((x - 2) / 3); });
  expect_fit("t 0.7", d::StudentT(0.7, 1, 2), [](double x) { return student_t_cdf(0.7, (x - 1) / 2); });
  expect_fit("t 5", d::StudentT(5), [](double x) { return student_t_cdf(5, x); });
  expect_fit("gamma", d::Gamma(2.5, 4), [](double x) { return gamma_cdf(2.5, 4 * x); });
  expect_fit("beta", d::Beta(0.4, 2), [](double x) { return beta_cdf(0.4, 2, x, 1 - x); });
  expect_fit("half cauchy", d::HalfCauchy(3), [](double x) { return 2 / std::acos(-1.0) * std::atan(x / 3); });
}

TEST(Samples, FollowTheirProbabilities) {
  expect_counts("bernoulli", d::Bernoulli(0.4), 2, [](double k) { return 1 / (1 + std::exp(k == 1 ? -0.4 : 0.4)); });
  expect_counts("poisson", d::Poisson(3), 30,
                [](double k) { return std::pow(3, k) * std::exp(-3) / std::tgamma(k + 1); });
  expect_counts("negative binomial", d::NegativeBinomial(2.5, 1), 60, [](double k) {
    const double p = 1 / (1 + std::exp(-1.0));
    return std::exp(std::lgamma(2.5 + k) - std::lgamma(2.5) - std::lgamma(k + 1)) * std::pow(1 - p, 2.5) *
           std::pow(p, k);
  });
  expect_counts("categorical", d::Categorical(tensor({0, 1, -INFINITY, 2, -1})), 5, [](double k) {
    const double weights[] = {1, std::exp(1.0), 0, std::exp(2.0), std::exp(-1.0)};
    return weights[static_cast<int>(k)] / (weights[0] + weights[1] + weights[3] + weights[4]);
  });
}

// Each correlation of d variables is 2 b - 1 with b from Beta(c, c), c = concentration - 1 + d / 2 (Joe, 2006).
TEST(Samples, OfLKJHaveBetaDistributedCorrelations) {
  for (const double concentration : {0.5, 1.0, 4.0}) {
    Generator generator(33);
    const Tensor l = d::LKJCholesky(4, concentration).sample({20'000}, &generator);
    const Tensor r = matmul(l, transpose(l));
    const double c = concentration + 1;
    for (std::int64_t i = 0; i < 4; ++i)
      for (std::int64_t j = 0; j < i; ++j)
        EXPECT_GT(kolmogorov_smirnov(values(select(select(r, 1, i), 1, j)),
                                     [c](double x) { return beta_cdf(c, c, 0.5 + 0.5 * x, 0.5 - 0.5 * x); }),
                  kSignificance)
            << concentration << " " << i << " " << j;
  }
}

// With a = b = 0.001 nearly all numbers are nearer to 0 or 1 than the smallest f64: half of them on each side.
TEST(Samples, OfBetaSurviveTinyShapes) {
  Generator generator(34);
  const std::vector<double> x = values(d::Beta(1e-3, 1e-3).sample({kCount}, &generator));
  EXPECT_GT(chi_square_of(mapped(x, [](double v) { return std::floor(v + 0.5); }), 2, [](double) { return 0.5; }),
            kSignificance);
}

}  // namespace
}  // namespace reel::test
