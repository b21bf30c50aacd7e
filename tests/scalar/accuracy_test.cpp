#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "reel/tests/scalar/loops.h"
#include "reel/tests/scalar/reference.h"

// Every scalar function, on every instruction set, against long double: at least 10^6 arguments per type.

namespace reel::scalar_test {
namespace {

/// Bit patterns at equal distances (all signs, exponents, NaN and infinities) and, for each range, uniform numbers.
template <class T>
std::vector<T> samples(const Reference& reference) {
  using Bits = std::conditional_t<sizeof(T) == 4, std::uint32_t, std::uint64_t>;
  constexpr std::int64_t patterns = 700'000, uniform = 600'000;
  std::vector<T> x;
  const Bits stride = ~Bits{0} / patterns | 1u;
  for (std::int64_t i = 0; i < patterns; ++i) x.push_back(std::bit_cast<T>(static_cast<Bits>(i) * stride));
  using Limits = std::numeric_limits<T>;
  for (T v : {T(0), Limits::denorm_min(), Limits::min(), T(0.5), T(1), T(2), T(3), T(1e4), Limits::max(),
              Limits::infinity()}) {
    for (T w : {v, std::nextafter(v, T(0)), std::nextafter(v, Limits::infinity())}) x.insert(x.end(), {w, -w});
  }
  // Where the CPU backend's tables end.
  for (T end : {T(-5.25), T(4.070452), T(5.7890625), T(6.1640625), T(9.6484375), T(9.1414795), T(3.9835663),
                T(10.0078125), T(-10.4375), T(-11.578125), T(-104), T(89), T(12800)}) {
    T below = end, above = end;
    for (int i = 0; i < 100; ++i) {
      below = std::nextafter(below, -Limits::infinity());
      above = std::nextafter(above, Limits::infinity());
      x.insert(x.end(), {below, -below, above, -above});
    }
  }
  std::mt19937_64 random(1);
  for (const Range& range : reference.ranges) {
    std::uniform_real_distribution<double> number(range.low, range.high);
    for (std::size_t i = 0; i < uniform / reference.ranges.size(); ++i) x.push_back(static_cast<T>(number(random)));
  }
  if (sizeof(T) == 8) std::erase_if(x, [&](T v) { return v < reference.low_f64 || v > reference.high_f64; });
  return x;
}

template <class T>
void check(const char* name, std::int64_t index) {
  const Reference& reference = reference_of(name);
  const double bound = sizeof(T) == 4 ? reference.bound_f32 : reference.bound_f64;
  const std::vector<T> x = samples<T>(reference);
  std::vector<long double> want(x.size());
  std::transform(x.begin(), x.end(), want.begin(), [&](T v) { return reference.function(v); });
  std::vector<T> got(x.size());

  for (const InstructionSet* set = instruction_sets(); set != instruction_sets() + kInstructionSets; ++set) {
    if (!set->supported) continue;
    loops_of<T>(set->loops[index]).forward(static_cast<std::int64_t>(x.size()), x.data(), got.data());
    double worst = -1;
    std::size_t where = 0;
    for (std::size_t i = 0; i < x.size(); ++i) {
      const double error = ulp_error(got[i], want[i]);
      if (error > worst) worst = error, where = i;
    }
    std::printf("%-12s f%d %s  %.3f ULP at %a\n", name, int(8 * sizeof(T)), set->name, worst, double(x[where]));
    EXPECT_LE(worst, bound) << name << "(" << x[where] << ") = " << got[where] << ", not " << want[where] << ", on "
                            << set->name;
  }
}

class ScalarAccuracy : public testing::TestWithParam<int> {};

TEST_P(ScalarAccuracy, IsWithinItsBoundInF32) { check<float>(instruction_sets()->loops[GetParam()].name, GetParam()); }
TEST_P(ScalarAccuracy, IsWithinItsBoundInF64) { check<double>(instruction_sets()->loops[GetParam()].name, GetParam()); }

/// Below 0 in f64 lgamma and digamma are the difference of two terms, whose size is what their errors are measured by.
TEST(ScalarGammaBelowZero, IsWithinItsBoundRelativeToItsTerms) {
  constexpr int kCount = 1'000'000;
  constexpr long double pi = 3.14159265358979323846264338327950288L;
  std::mt19937_64 random(2);
  std::uniform_real_distribution<double> number(-50, 0), exponent(-60, -1);
  std::vector<double> x;
  for (int i = 0; i < kCount; ++i)  // anywhere, and beside the poles
    x.push_back(i % 2 == 0 ? number(random) : std::round(number(random)) - std::exp2(exponent(random)));
  const auto worst = [&](const char* name, auto&& terms) {
    for (const InstructionSet* set = instruction_sets(); set != instruction_sets() + kInstructionSets; ++set) {
      if (!set->supported) continue;
      std::int64_t op = 0;
      while (std::string(set->loops[op].name) != name) ++op;
      std::vector<double> got(x.size());
      set->loops[op].f64.forward(kCount, x.data(), got.data());
      double most = 0, where = 0;
      for (std::size_t i = 0; i < x.size(); ++i) {
        const long double r = x[i] - std::nearbyint(static_cast<long double>(x[i]));
        if (r == 0) continue;
        const long double want = reference_of(name).function(x[i]);
        const double size = static_cast<double>(std::fabs(want) + terms(static_cast<long double>(x[i]), r));
        const double error = static_cast<double>(std::fabs(got[i] - want)) / (std::nextafter(size, INFINITY) - size);
        if (error > most) most = error, where = x[i];
      }
      std::printf("%-12s f64 %s  %.3f ULP of its terms at %a\n", name, set->name, most, where);
      EXPECT_LE(most, 4) << name << "(" << where << ") on " << set->name;
    }
  };
  worst("digamma", [&](long double, long double r) { return std::fabs(pi / std::tan(pi * r)); });
  worst("lgamma", [&](long double z, long double r) {
    return std::fabs(std::log(pi / std::fabs(z * std::sin(pi * r)))) + std::fabs(std::lgamma(-z));
  });
}

#define REEL_ONE(name, Struct) +1
INSTANTIATE_TEST_SUITE_P(Ops, ScalarAccuracy, testing::Range(0, 0 REEL_UNARY_OPS(REEL_ONE)),
                         [](const auto& info) { return instruction_sets()->loops[info.param].name; });

}  // namespace
}  // namespace reel::scalar_test
