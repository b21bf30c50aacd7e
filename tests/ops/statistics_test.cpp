// What the op-case table cannot say about statistics: special values and their gradients.

#include "reel/ops/statistics.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "reel/core/tape.h"
#include "reel/ops/arithmetic.h"
#include "reel/ops/convert.h"
#include "reel/ops/create.h"
#include "reel/ops/views.h"

namespace reel::test {
namespace {

using testing::Each;
using testing::ElementsAre;

const TensorOptions kDouble{.dtype = f64};

// d sum(f(x)) / dx
template <class F>
std::vector<double> slopes(const Tensor& x, F&& f) {
  Tape tape;
  tape.watch(x);
  const Tensor y = f(x);
  return tape.gradient(y, ones_like(y), {x})[0].template to_vector<double>();
}

TEST(Var, OfOneElementIsNaNAndZeroWithoutCorrection) {
  EXPECT_TRUE(std::isnan(var(tensor({3})).item()));
  EXPECT_EQ(var(tensor({3}), {}, 0).item(), 0);
  EXPECT_EQ(var(tensor({1, 3}, kDouble), 0, 2).item(), INFINITY);
}

TEST(Var, OfEqualElementsIsNeverBelowZero) {
  // Their mean is rounded, and what that makes of the squares is subtracted.
  for (const std::int64_t n : {3, 7, 49, 1000, 4099})
    for (const double value : {0.1, 1.0 / 3, 1e4 + 0.1, -3e18}) {
      const Tensor x = full({n}, value), in_double = full({n}, value, kDouble);
      for (const Tensor& y : {var(x), var(in_double), var(Ragged::from_lengths(x, {n})), var(reshape(x, {n, 1}), 0)})
        EXPECT_GE(reshape(y, {}).item(), 0) << n << " times " << value;
      EXPECT_FALSE(std::isnan(stddev(x).item())) << n << " times " << value;
    }
}

TEST(Var, ThatOverflowsIsInfinite) {
  for (const std::int64_t n : {2, 9, 1000}) {
    const Tensor x = concatenate({full({n}, 1e30), full({1}, -3e30)});
    EXPECT_EQ(var(x).item(), INFINITY) << n;
    EXPECT_EQ(var(Ragged::from_lengths(x, {n + 1}))[0].item(), INFINITY) << n;
  }
  EXPECT_TRUE(std::isnan(var(tensor({1, NAN, 2})).item()));
  EXPECT_TRUE(std::isnan(var(zeros({0}), {}, 0).item()));
}

TEST(Stddev, OfEqualElementsHasZeroGradient) {
  const Tensor x = full({4}, 2.5, kDouble);
  EXPECT_EQ(stddev(x).item(), 0);
  EXPECT_THAT(slopes(x, [](const Tensor& x) { return stddev(x); }), Each(0));
}

TEST(Norm, OfZerosHasZeroGradientInAnyOrder) {
  const Tensor x = zeros({2, 3}, kDouble);
  EXPECT_THAT(slopes(x, [](const Tensor& x) { return norm(x, 1); }), Each(0));
  EXPECT_THAT(slopes(x,
                     [](const Tensor& x) {
                       Tape inner;
                       inner.watch(x);
                       return inner.gradient(norm(x), {x})[0];
                     }),
              Each(0));
  EXPECT_EQ(norm(tensor({3, -4})).item(), 5);
  EXPECT_TRUE(std::isnan(norm(tensor({3, NAN})).item()));
  EXPECT_EQ(norm(tensor({3, -INFINITY})).item(), INFINITY);
}

TEST(Logsumexp, OfNothingOrInfinitelyLittleIsThatWithZeroGradient) {
  const Tensor x = tensor({-INFINITY, -INFINITY, 1, -INFINITY}, {2, 2}, kDouble);
  const auto f = [](const Tensor& x) { return logsumexp(x, 1); };
  EXPECT_THAT(f(x).to_vector<double>(), ElementsAre(-INFINITY, 1));
  EXPECT_THAT(slopes(x, f), ElementsAre(0, 0, 1, 0));
  EXPECT_EQ(logsumexp(zeros({0})).item(), -INFINITY);
  const auto sequences = [](const Tensor& x) { return logsumexp(Ragged::from_lengths(x, {0, 1, 1})); };
  EXPECT_THAT(sequences(x).to_vector<double>(), ElementsAre(-INFINITY, -INFINITY, -INFINITY, -INFINITY, 1, -INFINITY));
  EXPECT_THAT(slopes(x, sequences), ElementsAre(0, 0, 1, 0));
}

TEST(Logsumexp, DoesNotOverflowAndKeepsNaNAndInfinity) {
  EXPECT_NEAR(logsumexp(tensor({1000, 1000}, kDouble)).item(), 1000 + std::log(2.0), 1e-12);
  EXPECT_EQ(logsumexp(tensor({1, INFINITY})).item(), INFINITY);
  EXPECT_TRUE(std::isnan(logsumexp(tensor({1, NAN})).item()));
}

TEST(AnyAll, AreBooleansOfAnyDtype) {
  const Tensor x = tensor({0, NAN, 1, 2}, {2, 2});
  EXPECT_EQ(any(x).dtype(), bool8);
  EXPECT_THAT(all(x, 1).to_vector<std::uint8_t>(), ElementsAre(0, 1));
  EXPECT_THAT(any(x == 5, 1, Keep::yes).to_vector<std::uint8_t>(), ElementsAre(0, 0));
  EXPECT_EQ(any(zeros({0})).item(), 0);
  EXPECT_EQ(all(zeros({0})).item(), 1);
  for (const DType dtype : {f32, f64, f16, bf16, i32, i64, u8, bool8}) {
    SCOPED_TRACE(name_of(dtype));
    const Tensor of_dtype = cast(tensor({0, 1, 0, 0}), dtype);
    EXPECT_EQ(any(of_dtype).item(), 1);
    EXPECT_EQ(all(of_dtype).item(), 0);
    const Ragged sequences = Ragged::from_lengths(of_dtype, {1, 0, 1, 2});
    EXPECT_THAT(any(sequences).to_vector<int>(), ElementsAre(0, 0, 1, 0));
    EXPECT_THAT(all(sequences).to_vector<int>(), ElementsAre(0, 1, 1, 0));
  }
}

}  // namespace
}  // namespace reel::test
