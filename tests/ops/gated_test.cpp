// Gated units at the sizes around the pieces that their kernel works in: the op-case table has shorter rows.

#include "reel/ops/gated.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "reel/core/tape.h"
#include "reel/ops/activations.h"
#include "reel/ops/arithmetic.h"
#include "reel/ops/convert.h"
#include "reel/ops/create.h"
#include "reel/ops/unary.h"
#include "reel/ops/views.h"

namespace reel::test {
namespace {

struct Gate {
  Tensor (*fused)(const Tensor&, SourceLocation);
  Tensor (*function)(const Tensor&, SourceLocation);
};
const Gate kGates[] = {{glu, sigmoid}, {geglu, gelu}, {swiglu, silu}};

Tensor product_of(const Gate& gate, const Tensor& x) {
  const std::int64_t n = x.shape()[1] / 2;
  return narrow(x, 1, 0, n) * gate.function(narrow(x, 1, n, n), SourceLocation::current());
}

TEST(Gated, IsItsFunctionTimesTheOtherHalf) {
  Generator generator(1);
  for (const std::int64_t n : {1, 15, 511, 512, 513, 1025, 70000})
    for (const DType dtype : {f32, f64})
      for (const Gate& gate : kGates) {
        const Tensor x = 4 * randn({3, 2 * n}, generator, {.dtype = dtype});
        const auto got = gate.fused(x, SourceLocation::current()).to_vector<double>();
        const auto want = product_of(gate, cast(x, f64)).to_vector<double>();
        const double few_ulp = (dtype == f32 ? 0x1p-23 : 0x1p-52) * 8, denormal = dtype == f32 ? 0x1p-149 : 0x1p-1074;
        for (std::size_t i = 0; i < got.size(); ++i)
          ASSERT_LE(std::abs(got[i] - want[i]), few_ulp * std::abs(want[i]) + 4 * denormal) << n << ": " << i;
      }
}

// What sets roundings right is NaN where numbers are not of ordinary size: that must not be seen.
TEST(Gated, OfAnyNumbersIsTheirProduct) {
  const double infinity = std::numeric_limits<double>::infinity(), nan = std::numeric_limits<double>::quiet_NaN();
  for (const DType dtype : {f32, f64}) {
    const double large = dtype == f32 ? 3.4e38 : 1.79e308, tiny = dtype == f32 ? 2e-38 : 4e-308;
    const double numbers[] = {0.0,   -0.0,  0.5,    -0.5, 1.5,   -1.5, 10,   -10,      50,        -50, tiny,
                              -tiny, large, -large, 1e30, -1e30, 100,  -100, infinity, -infinity, nan};
    std::vector<double> pairs;
    for (const double a : numbers)
      for (const double b : numbers) pairs.insert(pairs.end(), {a, b});
    const Tensor x = cast(from_vector(pairs, {static_cast<std::int64_t>(pairs.size() / 2), 2}), dtype);
    for (const Gate& gate : kGates) {
      const auto got = gate.fused(x, SourceLocation::current()).to_vector<double>();
      const auto want = cast(product_of(gate, cast(x, f64)), dtype).to_vector<double>();
      for (std::size_t i = 0; i < got.size(); ++i) {
        const auto place = testing::Message() << pairs[2 * i] << " gated by " << pairs[2 * i + 1];
        if (std::isnan(want[i])) EXPECT_TRUE(std::isnan(got[i])) << place << " = " << got[i];
        else if (std::isinf(want[i])) EXPECT_EQ(got[i], want[i]) << place;
        else EXPECT_LE(std::abs(got[i] - want[i]), 1e-6 * std::abs(want[i]) + 1e-44) << place << " = " << got[i];
      }
    }
  }
}

// Where exponentials overflow on the way, on the left, and where they vanish, on the right.
TEST(Gated, OfFiniteNumbersIsFinite) {
  std::vector<float> pairs;
  for (float b = -140; b < 100; b = std::nextafter(b + 0x1p-8f, 200.0f))
    for (const float a : {0.0f, 1.0f, -1e30f}) pairs.insert(pairs.end(), {a, b});
  const Tensor x = from_vector(pairs, {static_cast<std::int64_t>(pairs.size() / 2), 2});
  for (const Gate& gate : kGates) {
    const auto got = gate.fused(x, SourceLocation::current()).to_vector<float>();
    for (std::size_t i = 0; i < got.size(); ++i)
      ASSERT_TRUE(std::isfinite(got[i])) << pairs[2 * i] << " gated by " << pairs[2 * i + 1] << " = " << got[i];
  }
}

TEST(Gated, HasTheGradientOfItsParts) {
  Generator generator(2);
  for (const std::int64_t n : {511, 513, 40000})
    for (const Gate& gate : kGates) {
      const Tensor x = 4 * randn({2, 2 * n}, generator, {.dtype = f64});
      const Tensor dy = randn({2, n}, generator, {.dtype = f64});
      const auto gradient = [&](auto f) {
        Tape tape;
        tape.watch(x);
        const Tensor y = f();
        return tape.gradient(y, dy, {x})[0].template to_vector<double>();
      };
      const auto got = gradient([&] { return gate.fused(x, SourceLocation::current()); });
      const auto want =
          gradient([&] { return narrow(x, 1, 0, n) * gate.function(narrow(x, 1, n, n), SourceLocation::current()); });
      for (std::size_t i = 0; i < got.size(); ++i) ASSERT_NEAR(got[i], want[i], 1e-14 * (1 + std::abs(want[i]))) << i;
    }
}

}  // namespace
}  // namespace reel::test
