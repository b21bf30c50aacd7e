#include "reel/core/scalar/philox.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <random>
#include <vector>

#include "reel/tests/scalar/loops.h"

namespace reel::scalar_test {
namespace {

using scalar::philox;
using scalar::PhiloxBlock;

void expect_block(const PhiloxBlock& got, std::uint32_t a, std::uint32_t b, std::uint32_t c, std::uint32_t d) {
  EXPECT_EQ(got.lane[0], a);
  EXPECT_EQ(got.lane[1], b);
  EXPECT_EQ(got.lane[2], c);
  EXPECT_EQ(got.lane[3], d);
}

TEST(Philox, GivesThePublishedVectors) {  // Random123, kat_vectors, philox4x32-10
  expect_block(philox(0, 0, 0), 0x6627e8d5u, 0xe169c58du, 0xbc57ac4cu, 0x9b00dbd8u);
  expect_block(philox(~0ull, ~0ull, ~0ull), 0x408f276du, 0x41c83b0eu, 0xa20bc7c6u, 0x6d5451fdu);
  // The digits of pi: counter 243f6a88 85a308d3 13198a2e 03707344, key a4093822 299f31d0.
  expect_block(philox(0x299f31d0a4093822ull, 0x0370734413198a2eull, 0x85a308d3243f6a88ull), 0xd16cfe09u, 0x94fdccebu,
               0x5001e420u, 0x24126ea1u);
}

TEST(Philox, EachInputBitChangesAboutHalfOfTheOutput) {
  const PhiloxBlock base = philox(1, 2, 3);
  for (int bit = 0; bit < 192; ++bit) {
    const std::uint64_t flip = 1ull << (bit % 64);
    const PhiloxBlock other =
        philox(1 ^ (bit < 64 ? flip : 0), 2 ^ (bit / 64 == 1 ? flip : 0), 3 ^ (bit >= 128 ? flip : 0));
    int changed = 0;
    for (int lane = 0; lane < 4; ++lane) changed += __builtin_popcount(base.lane[lane] ^ other.lane[lane]);
    EXPECT_GT(changed, 36) << bit;
    EXPECT_LT(changed, 92) << bit;
  }
}

TEST(Uniform, CoversZeroToOneWithoutOne) {
  EXPECT_EQ(scalar::uniform_float(0), 0.0f);
  EXPECT_EQ(scalar::uniform_float(255), 0.0f);
  EXPECT_EQ(scalar::uniform_float(256), 0x1p-24f);
  EXPECT_EQ(scalar::uniform_float(~0u), 1.0f - 0x1p-24f);
  EXPECT_EQ(scalar::uniform_double(0, 0), 0.0);
  EXPECT_EQ(scalar::uniform_double(0, 64), 0x1p-53);
  EXPECT_EQ(scalar::uniform_double(32, 0), 0x1p-27);
  EXPECT_EQ(scalar::uniform_double(~0u, ~0u), 1.0 - 0x1p-53);
}

TEST(Normal, IsBoxAndMullersFormula) {
  std::mt19937 random(3);
  for (int i = 0; i < 100'000; ++i) {
    const std::uint32_t a = random(), b = random(), c = random(), d = random();
    const double two_pi = 2 * M_PI;

    const auto pair = scalar::normal_pair(a, b);
    const double radius = std::sqrt(-2 * std::log(double(static_cast<float>(a + 0.5)) * 0x1p-32));
    ASSERT_NEAR(pair.first, radius * std::cos(two_pi * (b * 0x1p-32)), 2e-6) << a << " " << b;
    ASSERT_NEAR(pair.second, radius * std::sin(two_pi * (b * 0x1p-32)), 2e-6) << a << " " << b;

    const auto wide = scalar::normal_pair(PhiloxBlock{{a, b, c, d}});
    const double angle = two_pi * (c * 0x1p-32 + (d >> 9) * 0x1p-55);
    const double size = std::sqrt(-2 * std::log(scalar::uniform_double(a, b) + 0x1p-54));
    ASSERT_NEAR(wide.first, size * std::cos(angle), 1e-14);
    ASSERT_NEAR(wide.second, size * std::sin(angle), 1e-14);
  }
}

TEST(Normal, IsFiniteAtTheEnds) {
  for (std::uint32_t a : {0u, 1u, 0x7fffffffu, ~0u}) {
    for (std::uint32_t b : {0u, 0x1fffffffu, 0x20000000u, 0x80000000u, 0xe0000000u, ~0u}) {
      const auto pair = scalar::normal_pair(a, b);
      EXPECT_TRUE(std::fabs(pair.first) < 6.78f && std::fabs(pair.second) < 6.78f) << a << " " << b;
      const auto wide = scalar::normal_pair(PhiloxBlock{{a, a, b, b}});
      EXPECT_TRUE(std::fabs(wide.first) < 8.67 && std::fabs(wide.second) < 8.67) << a << " " << b;
    }
  }
}

TEST(Normal, HasTheMomentsOfTheDistribution) {
  constexpr std::int64_t n = 1 << 20;
  std::vector<double> y(n);
  instruction_sets()[0].random.normal_f64(n, 42, 7, y.data());
  double m1 = 0, m2 = 0, m3 = 0, m4 = 0;
  for (double v : y) m1 += v, m2 += v * v, m3 += v * v * v, m4 += v * v * v * v;
  const double tolerance = 4.5 / std::sqrt(double(n));  // 4.5 standard deviations of the mean of a unit variance
  EXPECT_NEAR(m1 / n, 0, tolerance);
  EXPECT_NEAR(m2 / n, 1, tolerance * std::sqrt(2.0));
  EXPECT_NEAR(m3 / n, 0, tolerance * std::sqrt(15.0));
  EXPECT_NEAR(m4 / n, 3, tolerance * std::sqrt(96.0));
}

TEST(Normal, HasTheSameBitsOnEveryInstructionSet) {
  constexpr std::int64_t n = 200'000;
  std::vector<std::uint32_t> lanes(n);
  std::mt19937 random(5);
  for (auto& lane : lanes) lane = random();
  std::vector<float> narrow[kInstructionSets];
  std::vector<double> wide[kInstructionSets];
  for (int i = 0; i < kInstructionSets; ++i) {
    const InstructionSet& set = instruction_sets()[i];
    if (!set.supported) continue;
    narrow[i].resize(n);
    wide[i].resize(n);
    set.random.normal_f32(n, lanes.data(), narrow[i].data());
    set.random.normal_f64(n, 1, 2, wide[i].data());
    EXPECT_EQ(narrow[i], narrow[0]) << set.name;
    EXPECT_EQ(wide[i], wide[0]) << set.name;
  }
}

}  // namespace
}  // namespace reel::scalar_test
