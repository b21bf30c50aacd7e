#pragma once

// How well samples fit a distribution: p-values of Kolmogorov and Smirnov's test and of Pearson's, and the distribution
// functions that they need.

#include <algorithm>
#include <cmath>
#include <vector>

#include "reel/core/error.h"

namespace reel::test {

/// With fixed seeds a test either passes for ever or fails for ever: one that a correct generator fails would have had to be
/// chosen from a million.
inline constexpr double kSignificance = 1e-6;

/// The continued fraction b0 + a1 / (b1 + a2 / (b2 + ...)), a(i) and b(i) from 1 on, by Lentz' method.
template <class A, class B>
double continued_fraction(double b0, A a, B b) {
  constexpr double kTiny = 1e-300;
  double value = b0 == 0 ? kTiny : b0, c = value, d = 0;
  for (int i = 1; i < 100'000; ++i) {
    d = 1 / (b(i) + a(i) * d + kTiny);
    c = b(i) + a(i) / c;
    value *= c * d;
    if (std::abs(c * d - 1) < 1e-15) break;
  }
  return value;
}

/// P(a, x), the gamma distribution's function (DLMF 8.11.4 and 8.9.2).
inline double gamma_cdf(double a, double x) {
  if (x <= 0) return 0;
  const double front = std::exp(a * std::log(x) - x - std::lgamma(a));
  if (x < a + 1) {
    double term = 1 / a, sum = term;
    for (double k = a + 1; term > 1e-17 * sum; ++k) sum += term *= x / k;
    return front * sum;
  }
  return 1 - front / continued_fraction(
                         x + 1 - a, [a](int i) { return i * (a - i); }, [=](int i) { return x + 2 * i + 1 - a; });
}

/// I_x(a, b), the beta distribution's function (DLMF 8.17.22). `rest` = 1 - x.
inline double beta_cdf(double a, double b, double x, double rest) {
  if (x <= 0) return 0;
  if (rest <= 0) return 1;
  if (x > (a + 1) / (a + b + 2)) return 1 - beta_cdf(b, a, rest, x);
  const auto term = [=](int i) {
    const double m = i / 2;
    return i % 2 == 1 ? -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1))
                      : m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m));
  };
  const double front =
      std::exp(std::lgamma(a + b) - std::lgamma(a) - std::lgamma(b) + a * std::log(x) + b * std::log(rest)) / a;
  return front / continued_fraction(1, term, [](int) { return 1.0; });
}

inline double normal_cdf(double x) { return 0.5 * std::erfc(-x / std::sqrt(2.0)); }

inline double student_t_cdf(double df, double t) {
  const double scale = df + t * t, tail = 0.5 * beta_cdf(df / 2, 0.5, df / scale, t * t / scale);
  return t < 0 ? tail : 1 - tail;
}

/// Of the samples' greatest distance from a continuous distribution function.
template <class Cdf>
double kolmogorov_smirnov(std::vector<double> samples, Cdf cdf) {
  std::sort(samples.begin(), samples.end());
  const auto n = static_cast<double>(samples.size());
  double distance = 0;
  for (std::size_t i = 0; i < samples.size(); ++i) {
    const double p = cdf(samples[i]), below = static_cast<double>(i) / n;
    if (!(p >= 0 && p <= 1)) return 0;  // NaN
    distance = std::max({distance, p - below, below + 1 / n - p});
  }
  const double lambda = (std::sqrt(n) + 0.12 + 0.11 / std::sqrt(n)) * distance;  // Stephens, 1970
  double p = 0;
  for (int k = 1; k < 100; ++k) p += (k % 2 == 1 ? 2 : -2) * std::exp(-2.0 * k * k * lambda * lambda);
  return lambda < 0.2 ? 1 : p;
}

/// Of the counts' squared distance from what is expected; cells below 10 are taken together.
inline double chi_square(const std::vector<double>& counts, const std::vector<double>& expected) {
  double sum = 0, count = 0, mean = 0;
  int cells = 0;
  for (std::size_t i = 0; i < counts.size(); ++i) {
    count += counts[i];
    mean += expected[i];
    if (mean < 10 && i + 1 < counts.size()) continue;
    if (mean > 0) {
      sum += (count - mean) * (count - mean) / mean;
      ++cells;
    } else if (count > 0) {
      return 0;
    }
    count = mean = 0;
  }
  return 1 - gamma_cdf(0.5 * (cells - 1), 0.5 * sum);
}

/// Of whole numbers under the probabilities probability(0), probability(1), ..., below `limit`; the rest is one cell.
template <class Probability>
double chi_square_of(const std::vector<double>& samples, std::size_t limit, Probability probability) {
  const auto n = static_cast<double>(samples.size());
  std::vector<double> counts(limit + 1), expected(limit + 1);
  double rest = n;
  for (std::size_t k = 0; k < limit; ++k) rest -= expected[k] = n * probability(static_cast<double>(k));
  expected[limit] = std::max(rest, 0.0);
  for (const double x : samples) {
    if (!(x >= 0) || x != std::floor(x)) return 0;
    ++counts[x < static_cast<double>(limit) ? static_cast<std::size_t>(x) : limit];
  }
  return chi_square(counts, expected);
}

/// That pairs of numbers from [0, 1) fill the square evenly.
inline double chi_square_of_pairs(const std::vector<double>& x, const std::vector<double>& y) {
  constexpr std::size_t kSide = 24;
  std::vector<double> counts(kSide * kSide);
  const auto cell = [](double u) { return std::min(kSide - 1, static_cast<std::size_t>(u * kSide)); };
  for (std::size_t i = 0; i < x.size(); ++i) ++counts[cell(x[i]) * kSide + cell(y[i])];
  return chi_square(
      counts, std::vector<double>(counts.size(), static_cast<double>(x.size()) / static_cast<double>(counts.size())));
}

}  // namespace reel::test
