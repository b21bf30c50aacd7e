#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "reel/ops/create.h"

/// What the tests of docs/numerics.md measure with.
namespace reel::test {

using Real = long double;

inline constexpr std::int64_t kMany = 1 << 20;

/// The largest error seen, in the unit that a bound is stated in.
template <class T>
class Worst {
 public:
  static constexpr Real kEpsilon = std::numeric_limits<T>::epsilon();

  void see(Real error) { worst_ = error > worst_ || std::isnan(error) ? error : worst_; }
  /// In epsilon times `size`.
  void see(T got, Real want, Real size) { see(std::fabs(got - want) / (kEpsilon * size)); }
  /// Of each element.
  void see(const Tensor& got, Real want, Real size) {
    for (const T element : got.to_vector<T>()) see(element, want, size);
  }
  void see(const Tensor& got, Real want) { see(got, want, want); }
  /// In units in the last place of want.
  void see_ulp(T got, Real want) {
    int exponent = 0;
    std::frexp(want, &exponent);
    exponent = std::max(exponent, std::numeric_limits<T>::min_exponent);
    see(std::ldexp(std::fabs(got - want), std::numeric_limits<T>::digits - exponent));
  }
  /// Prints and asserts it.
  void expect_within(const std::string& what, double bound) const {
    std::printf("%-28s f%d  %.3f, bound %g\n", what.c_str(), int(8 * sizeof(T)), static_cast<double>(worst_), bound);
    EXPECT_LE(worst_, bound) << what;
    EXPECT_GE(worst_, 0) << what << ": nothing was seen";
  }

 private:
  Real worst_ = -1;
};

template <class T>
class Numerics : public testing::Test {
 protected:
  std::vector<T> numbers(std::int64_t count, double low, double high) {
    std::uniform_real_distribution<double> number(low, high);
    std::vector<T> x;
    for (std::int64_t i = 0; i < count; ++i) x.push_back(static_cast<T>(number(random_)));
    return x;
  }
  static Tensor tensor_of(const std::vector<T>& x, const Shape& shape) { return from_vector(x, shape); }
  static Tensor tensor_of(const std::vector<T>& x) { return tensor_of(x, {static_cast<std::int64_t>(x.size())}); }

  std::mt19937_64 random_{3};
};

using Types = testing::Types<float, double>;

}  // namespace reel::test
