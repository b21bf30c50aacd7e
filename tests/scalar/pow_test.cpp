#include <gtest/gtest.h>

#include <cmath>
#include <cstdio>
#include <limits>
#include <random>
#include <vector>

#include "reel/tests/scalar/loops.h"
#include "reel/tests/scalar/reference.h"

// pow on every instruction set against long double, at 2 10^6 pairs per type, and the special values of C's Annex F.

namespace reel::scalar_test {
namespace {

template <class T>
auto loop_of(const InstructionSet& set) {
  if constexpr (sizeof(T) == 4) {
    return set.powers.f32;
  } else {
    return set.powers.f64;
  }
}

template <class F>
void on_each_set(F f) {
  for (const InstructionSet* set = instruction_sets(); set != instruction_sets() + kInstructionSets; ++set)
    if (set->supported) f(*set);
}

/// Bases of all magnitudes with exponents whose results are, bases close to 1, and the numbers of everyday.
template <class T>
void samples(std::vector<T>& x, std::vector<T>& y) {
  constexpr int kEach = 500'000;
  using Limits = std::numeric_limits<T>;
  std::mt19937_64 random(7);
  const auto uniform = [&](double low, double high) {
    return std::uniform_real_distribution<double>(low, high)(random);
  };
  const double tiny = std::log(static_cast<double>(Limits::denorm_min())) - 1,
               huge = std::log(static_cast<double>(Limits::max())) + 1;
  for (int i = 0; i < kEach; ++i) {
    x.push_back(static_cast<T>(std::exp2(uniform(Limits::min_exponent - Limits::digits, Limits::max_exponent))));
    y.push_back(static_cast<T>(uniform(tiny, huge) / std::log(static_cast<double>(x.back()))));
    x.push_back(static_cast<T>(1 + std::exp2(uniform(-Limits::digits, 0)) * (i % 2 == 0 ? 0.5 : 1)));
    y.push_back(static_cast<T>(uniform(tiny, huge) / std::log(static_cast<double>(x.back()))));
    x.push_back(static_cast<T>(uniform(0, 4)));
    y.push_back(static_cast<T>(uniform(-20, 20)));
    x.push_back(static_cast<T>(-uniform(0, 4)));
    y.push_back(static_cast<T>(std::nearbyint(uniform(-40, 40))));
  }
}

template <class T>
void check(double bound) {
  std::vector<T> x, y;
  samples(x, y);
  std::vector<long double> want(x.size());
  for (std::size_t i = 0; i < x.size(); ++i) want[i] = std::pow(static_cast<long double>(x[i]), y[i]);
  std::vector<T> got(x.size());
  on_each_set([&](const InstructionSet& set) {
    loop_of<T>(set)(static_cast<std::int64_t>(x.size()), x.data(), y.data(), got.data());
    double worst = -1;
    std::size_t where = 0;
    for (std::size_t i = 0; i < x.size(); ++i) {
      const double error = ulp_error(got[i], want[i]);
      if (error > worst) worst = error, where = i;
    }
    std::printf("%-12s f%d %s  %.3f ULP at %a, %a\n", "pow", int(8 * sizeof(T)), set.name, worst, double(x[where]),
                double(y[where]));
    EXPECT_LE(worst, bound) << x[where] << "^" << y[where] << " = " << got[where] << ", not " << want[where] << ", on "
                            << set.name;
  });
}

TEST(ScalarPow, IsWithinItsBoundInF32) { check<float>(2); }
TEST(ScalarPow, IsWithinItsBoundInF64) { check<double>(4); }

template <class T>
void check_specials() {
  constexpr T inf = std::numeric_limits<T>::infinity(), nan = std::numeric_limits<T>::quiet_NaN();
  constexpr T tiny = std::numeric_limits<T>::denorm_min(), huge = std::numeric_limits<T>::max();
  const T even = static_cast<T>(std::ldexp(1.0, std::numeric_limits<T>::digits)), odd = even - 1;
  const std::vector<T> values = {0,   T(-0.0), 1,   -1,  T(0.5), T(-0.5), 2,    -2,    3,    -3,    T(1.5),  T(-2.5),
                                 inf, -inf,    nan, odd, -odd,   even,    tiny, -tiny, huge, -huge, T(1e-3), 5};
  std::vector<T> x, y;
  for (const T a : values)
    for (const T b : values) {
      x.push_back(a);
      y.push_back(b);
    }
  std::vector<T> got(x.size());
  on_each_set([&](const InstructionSet& set) {
    loop_of<T>(set)(static_cast<std::int64_t>(x.size()), x.data(), y.data(), got.data());
    for (std::size_t i = 0; i < x.size(); ++i) {
      const T want = static_cast<T>(std::pow(static_cast<long double>(x[i]), static_cast<long double>(y[i])));
      if (std::isnan(want)) {
        EXPECT_TRUE(std::isnan(got[i])) << x[i] << "^" << y[i] << " on " << set.name;
      } else {
        EXPECT_LE(ulp_error(got[i], static_cast<long double>(want)), 2) << x[i] << "^" << y[i] << " on " << set.name;
        EXPECT_EQ(std::signbit(got[i]), std::signbit(want)) << x[i] << "^" << y[i] << " on " << set.name;
        if (want == 0 || std::isinf(want) || std::fabs(want) == 1) {
          EXPECT_EQ(got[i], want) << x[i] << "^" << y[i] << " on " << set.name;
        }
      }
    }
  });
}

TEST(ScalarPow, HasTheSpecialValuesOfC) {
  check_specials<float>();
  check_specials<double>();
}

}  // namespace
}  // namespace reel::scalar_test
