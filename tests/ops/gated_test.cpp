// Gated units at the sizes around the pieces that their kernel works in: the op-case table has shorter rows.

#include "reel/ops/gated.h"

#include <gtest/gtest.h>

#include <cmath>

#include "reel/core/tape.h"
#include "reel/ops/activations.h"
#include "reel/ops/arithmetic.h"
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

TEST(Gated, HasTheBitsOfItsFunctionTimesTheOtherHalf) {
  Generator generator(1);
  for (const std::int64_t n : {1, 15, 511, 512, 513, 1025, 70000})
    for (const DType dtype : {f32, f64})
      for (const Gate& gate : kGates) {
        const Tensor x = 4 * randn({3, 2 * n}, generator, {.dtype = dtype});
        const Tensor expected = narrow(x, 1, 0, n) * gate.function(narrow(x, 1, n, n), SourceLocation::current());
        EXPECT_EQ(gate.fused(x, SourceLocation::current()).to_vector<double>(), expected.to_vector<double>()) << n;
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
