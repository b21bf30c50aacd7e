// What the op-case table cannot say about ops with a choice in them: special values and their gradients.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdint>

#include "reel/core/error.h"
#include "reel/core/tape.h"
#include "reel/ops/arithmetic.h"
#include "reel/ops/convert.h"
#include "reel/ops/create.h"
#include "reel/ops/elementwise.h"
#include "reel/ops/rearrange.h"
#include "reel/ops/reduce.h"
#include "reel/ops/unary.h"
#include "reel/ops/views.h"
#include "reel/tests/ops/row_test.h"

namespace reel::test {
namespace {

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

TEST(Clamp, KeepsNaNAndHasSlopeOneAtTheBounds) {
  const Tensor x = tensor({-2, -1, 0, 1, 2, NAN}, kDouble);
  const std::vector<double> y = clamp(x, -1, 1).to_vector<double>();
  EXPECT_THAT(std::vector<double>(y.begin(), y.end() - 1), ElementsAre(-1, -1, 0, 1, 1));
  EXPECT_TRUE(std::isnan(y.back()));
  EXPECT_THAT(slopes(x, [](const Tensor& x) { return clamp(x, -1, 1); }), ElementsAre(0, 1, 1, 1, 0, 0));
}

TEST(Where, LeaksNoNaNFromTheSideNotTaken) {
  const Tensor x = tensor({-1, 0, 4}, kDouble);
  const auto f = [](const Tensor& x) { return where(x > 0, sqrt(x), 0); };
  EXPECT_THAT(f(x).to_vector<double>(), ElementsAre(0, 0, 2));
  EXPECT_THAT(where(x > 0, 7, tensor({1, 2, NAN}, kDouble)).to_vector<double>(), ElementsAre(1, 2, 7));
  // What is not taken gets a gradient of 0; sqrt at -1 and 0 is behind it, so the safe argument is chosen first.
  const auto safe = [](const Tensor& x) { return where(x > 0, sqrt(where(x > 0, x, 1)), 0); };
  EXPECT_THAT(slopes(x, safe), ElementsAre(0, 0, 0.25));
  EXPECT_THAT(slopes(tensor({NAN, 1}, kDouble), [](const Tensor& x) { return where(x > 0, x, 5); }), ElementsAre(0, 1));
}

TEST(Where, ChoosesIntegersAndBooleans) {
  const Tensor x = tensor({1, 0}) > 0;
  EXPECT_EQ(where(x, arange(2), 9).dtype(), i64);
  EXPECT_THAT(where(x, x, arange(2) == 1).to_vector<std::int64_t>(), ElementsAre(1, 1));
  EXPECT_EQ(where(x, x, x).dtype(), bool8);
  EXPECT_EQ(where(x, arange(2), 0.5).dtype(), f32);
}

// Bits are chosen, not numbers: -0 stays, and what a NaN carries.
TEST(Where, KeepsAllBits) {
  Tensor narrow = empty({4}), wide = empty({4}, kDouble);
  const std::uint32_t bits[] = {0x80000000, 0x7fc12345, 0xffd00000, 0x7f800000};  // -0, NaN, -NaN, infinity
  const std::uint64_t wide_bits[] = {1ull << 63, 0x7ff8123456789abc, 0xfff9000000000000, 0x7ff0000000000000};
  for (std::size_t i = 0; i < 4; ++i) {
    narrow.mutable_data<float>()[i] = std::bit_cast<float>(bits[i]);
    wide.mutable_data<double>()[i] = std::bit_cast<double>(wide_bits[i]);
  }
  for (const Tensor& few : {narrow, wide, cast(narrow, bf16), cast(narrow, f16)}) {
    const Tensor x = tile(few, {25}), number = ones({}, {.dtype = x.dtype()}), yes = ones({100}) > 0,
                 no = ones({100}) < 0;
    for (const Tensor& other : {number, full({100}, 1, {.dtype = x.dtype()})}) {
      EXPECT_TRUE(same_bits(where(yes, x, other), x)) << name_of(x.dtype());
      EXPECT_TRUE(same_bits(where(no, other, x), x)) << name_of(x.dtype());
    }
    for (std::int64_t i = 0; i < 4; ++i) {
      const Tensor one = slice(few, 0, i, i + 1);
      EXPECT_TRUE(same_bits(where(yes, one, number), tile(one, {100}))) << name_of(x.dtype()) << " " << i;
    }
  }
}

TEST(Where, ChoosesFromArraysAndNumbersOfAnySize) {
  for (const DType dtype : {f32, f64, bf16, f16, i32, i64, u8})
    for (const std::int64_t n : {1, 7, 1000, 100'000}) {
      const Tensor a = cast(arange(n), dtype), b = cast(arange(n) * 3, dtype), third = randint(0, 3, {n}) == 0;
      const Tensor three = full({1}, 3, {.dtype = dtype}), five = full({}, 5, {.dtype = dtype});
      const auto numbers = [](const Tensor& x) { return cast(x, f64).to_vector<double>(); };
      const std::vector<double> is_third = numbers(third), of_a = numbers(a), of_b = numbers(b);
      const std::vector<double> arrays = numbers(where(third, a, b)), left = numbers(where(third, a, five)),
                                right = numbers(where(third, three, b)), none = numbers(where(third, three, five));
      for (std::size_t i = 0; i < of_a.size(); ++i) {
        const bool first = is_third[i] == 1;
        EXPECT_EQ(arrays[i], first ? of_a[i] : of_b[i]) << name_of(dtype) << " " << n << " " << i;
        EXPECT_EQ(left[i], first ? of_a[i] : 5) << name_of(dtype) << " " << n << " " << i;
        EXPECT_EQ(right[i], first ? 3 : of_b[i]) << name_of(dtype) << " " << n << " " << i;
        EXPECT_EQ(none[i], first ? 3 : 5) << name_of(dtype) << " " << n << " " << i;
      }
    }
}

TEST(Where, NoticesThatItsConditionWasOverwritten) {
  Tape tape;
  Tensor x = ones({2});
  tape.watch(x);
  Tensor condition = tensor({1, 0}) > 0;
  const Tensor y = sum(where(condition, x, 0));
  condition.fill_(1);
  EXPECT_THROW(tape.gradient(y, {x}), VersionError);
}

TEST(LeakyRelu, HasTheSlopeAtZeroAndKeepsInfinities) {
  const Tensor x = tensor({-INFINITY, -1, 0, 1, INFINITY, NAN}, kDouble);
  const std::vector<double> y = leaky_relu(x, 0.5).to_vector<double>();
  EXPECT_THAT(std::vector<double>(y.begin(), y.end() - 1), ElementsAre(-INFINITY, -0.5, 0, 1, INFINITY));
  EXPECT_TRUE(std::isnan(y.back()));
  EXPECT_THAT(slopes(x, [](const Tensor& x) { return leaky_relu(x, 0.5); }), ElementsAre(0.5, 0.5, 0.5, 1, 1, 0.5));
}

TEST(Elu, IsFiniteBelowAndHasSlopeOneForLargeX) {
  const Tensor x = tensor({-INFINITY, 0, 1000, INFINITY}, kDouble);
  EXPECT_THAT(elu(x).to_vector<double>(), ElementsAre(-1, 0, 1000, INFINITY));
  EXPECT_THAT(slopes(x, [](const Tensor& x) { return elu(x); }), ElementsAre(0, 1, 1, 1));
  EXPECT_TRUE(std::isnan(elu(tensor({NAN})).item()));
}

TEST(Logaddexp, HandlesInfinities) {
  const Tensor a = tensor({-INFINITY, INFINITY, -INFINITY, INFINITY, 1000, 3}, kDouble);
  const Tensor b = tensor({-INFINITY, INFINITY, 2, -INFINITY, 1000, -INFINITY}, kDouble);
  const double log2 = std::log(2.0);
  EXPECT_THAT(logaddexp(a, b).to_vector<double>(), ElementsAre(-INFINITY, INFINITY, 2, INFINITY, 1000 + log2, 3));
  EXPECT_THAT(slopes(a, [&](const Tensor& a) { return logaddexp(a, b); }), ElementsAre(0, 0.5, 0, 1, 0.5, 1));
  EXPECT_THAT(slopes(b, [&](const Tensor& b) { return logaddexp(a, b); }), ElementsAre(0, 0.5, 1, 0, 0.5, 0));
  EXPECT_TRUE(std::isnan(logaddexp(tensor({NAN}), tensor({1})).item()));
}

TEST(Logaddexp, KeepsAnInfiniteGradientFromASideWithNoPart) {
  const Tensor a = tensor({-INFINITY, -INFINITY, 1}, kDouble), b = tensor({-INFINITY, 2, -INFINITY}, kDouble);
  Tape tape;
  tape.watch(a);
  tape.watch(b);
  const Tensor y = logaddexp(a, b);
  const Tensors d = tape.gradient(y, full({3}, INFINITY, kDouble), {a, b});
  EXPECT_THAT(d[0].to_vector<double>(), ElementsAre(0, 0, INFINITY));
  EXPECT_THAT(d[1].to_vector<double>(), ElementsAre(0, INFINITY, 0));
}

TEST(Polygamma, HasThePublishedValues) {
  const Tensor one = ones({1}, kDouble);
  const double pi = std::acos(-1.0);
  EXPECT_NEAR(polygamma(1, one).item(), pi * pi / 6, 4e-16);
  EXPECT_NEAR(polygamma(2, one).item(), -2 * 1.2020569031595943, 9e-16);  // Apery's constant
  EXPECT_NEAR(polygamma(3, one).item(), pi * pi * pi * pi / 15, 2e-15);
  EXPECT_NEAR(polygamma(10, one).item() / -3628800 / 1.0004941886041195, 1, 1e-15);  // zeta(11)
  EXPECT_EQ(polygamma(1, zeros({1})).item(), INFINITY);
  EXPECT_EQ(polygamma(2, full({1}, INFINITY)).item(), 0);
  EXPECT_TRUE(std::isnan(polygamma(1, full({1}, -0.5)).item()));
}

}  // namespace
}  // namespace reel::test
