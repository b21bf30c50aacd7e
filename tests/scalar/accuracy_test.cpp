#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <limits>
#include <random>
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

#define REEL_ONE(name, Struct) +1
INSTANTIATE_TEST_SUITE_P(Ops, ScalarAccuracy, testing::Range(0, 0 REEL_UNARY_OPS(REEL_ONE)),
                         [](const auto& info) { return instruction_sets()->loops[info.param].name; });

}  // namespace
}  // namespace reel::scalar_test
