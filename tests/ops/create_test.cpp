// Tensors made from nothing that draw numbers or count.

#include "reel/ops/create.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <limits>

#include "reel/core/error.h"
#include "reel/ops/arithmetic.h"
#include "reel/ops/padding.h"
#include "reel/ops/ragged.h"
#include "reel/ops/reduce.h"
#include "reel/tests/error_of.h"

namespace reel::test {
namespace {

using testing::AllOf;
using testing::Each;
using testing::ElementsAre;
using testing::HasSubstr;

TEST(Arange, StopsBeforeItsEnd) {
  EXPECT_THAT(arange(2, 9, 3).to_vector<std::int64_t>(), ElementsAre(2, 5, 8));
  EXPECT_THAT(arange(5, -1, -2).to_vector<std::int64_t>(), ElementsAre(5, 3, 1));
  EXPECT_THAT(arange(0, 1, 0.25, {.dtype = f64}).to_vector<double>(), ElementsAre(0, 0.25, 0.5, 0.75));
  EXPECT_EQ(arange(3, 3, 1).size(), 0);
  EXPECT_THROW(arange(0, 3, 0), Error);
  EXPECT_THROW(arange(0, 3, -1), Error);
  EXPECT_THROW(arange(0, 1, -2), Error);
  EXPECT_THROW(arange(1, 0, 2), Error);
  EXPECT_THROW(arange(0.0, 0.5, -1.0, {.dtype = f32}), Error);
  EXPECT_THROW(arange(0.0, 1e-200, -2e-200, {.dtype = f64}), Error);
  EXPECT_EQ(arange(2, 2, -1).size(), 0);
  EXPECT_THROW(arange(0, 1, 0.5), DTypeError);
}

TEST(Arange, CountsIntegersBeyondDoublesExactly) {
  const std::int64_t big = std::int64_t{1} << 60;
  EXPECT_THAT(arange(big, big + 3, 1).to_vector<std::int64_t>(), ElementsAre(big, big + 1, big + 2));
  EXPECT_THAT(arange(big + 3, big, -2).to_vector<std::int64_t>(), ElementsAre(big + 3, big + 1));
  EXPECT_EQ(arange(big, big, 1).size(), 0);
}

TEST(Arange, SaysWhyItRefuses) {
  EXPECT_THAT(error_of([] { arange(0, 3, -1); }), HasSubstr("arange: step must lead from start towards end"));
  EXPECT_THAT(error_of([] { arange(0, NAN, 1, {.dtype = f32}); }), HasSubstr("arange: step must lead"));
  for (const double end : {1e30, double{INFINITY}})
    EXPECT_THAT(error_of([=] { arange(0, end, 1, {.dtype = f64}); }),
                HasSubstr("arange: there must be fewer than 2^62 numbers, got start 0, end"));
  EXPECT_THAT(error_of([] { arange(0, 1, 1e-9, {.dtype = i32}); }),
              HasSubstr("arange: start and step must be integers for i32, got 0 and 1e-09"));
  EXPECT_THAT(error_of([] { arange(0, 300, 1, {.dtype = u8}); }), HasSubstr("arange: the number must fit u8, got 299"));
  EXPECT_THAT(error_of([] { arange(-1, 2, 1, {.dtype = u8}); }), HasSubstr("arange: the number must fit u8, got -1"));
  EXPECT_THAT(error_of([] { arange(257, {.dtype = u8}); }), HasSubstr("arange: the number must fit u8, got 256"));
  EXPECT_THAT(arange(254, 256, 1, {.dtype = u8}).to_vector<int>(), ElementsAre(254, 255));
}

TEST(Full, RefusesNumbersBeyondAnIntegersRange) {
  EXPECT_THAT(error_of([] { full({2}, 300, {.dtype = u8}); }),
              AllOf(HasSubstr("full: the number must fit u8, got 300"), HasSubstr("create_test.cpp")));
  for (const Scalar& number : {Scalar(-1), Scalar(256), Scalar(256.0), Scalar(-1.0), Scalar(NAN), Scalar(INFINITY)})
    EXPECT_THROW(full({2}, number, {.dtype = u8}), Error) << number.real;
  for (const Scalar& number : {Scalar(0x1p31), Scalar(-0x1p31 - 1), Scalar(std::int64_t{1} << 31)})
    EXPECT_THROW(full({2}, number, {.dtype = i32}), Error) << number.real;
  for (const Scalar& number : {Scalar(0x1p63), Scalar(-0x1.0000000000001p63), Scalar(~std::uint64_t{0})})
    EXPECT_THROW(full({2}, number, {.dtype = i64}), Error) << number.real;
  Tensor x = zeros({2}, {.dtype = u8});
  EXPECT_THROW(full_like(x, 256), Error);
  EXPECT_THAT(error_of([&] { x.fill_(256); }), HasSubstr("fill_: the number must fit u8, got 256"));
  EXPECT_EQ(x.version(), 0u);
  EXPECT_THAT(error_of([] { tensor({1, 256}, {.dtype = u8}); }), HasSubstr("tensor: the number must fit u8"));
  EXPECT_THAT(error_of([&] { pad(x, {{0, 1, 1}}, 256); }), HasSubstr("pad: the number must fit u8"));
  const Ragged sequences = Ragged::from_lengths(x, {2, 0});
  EXPECT_THAT(error_of([&] { pad(sequences, {{0, 1, 1}}, -1); }), HasSubstr("pad: the number must fit u8"));
  EXPECT_THAT(error_of([&] { to_padded(sequences, -1); }), HasSubstr("to_padded: the number must fit u8"));
}

TEST(Full, TakesAllThatFits) {
  EXPECT_THAT(full({1}, 255.9, {.dtype = u8}).to_vector<int>(), ElementsAre(255));
  EXPECT_THAT(full({1}, -0.9, {.dtype = u8}).to_vector<int>(), ElementsAre(0));
  EXPECT_THAT(full({1}, -0x1p31 - 0.5, {.dtype = i32}).to_vector<double>(), ElementsAre(-0x1p31));
  for (const std::int64_t end : {INT64_MIN, INT64_MAX})
    EXPECT_THAT(full({1}, end, {.dtype = i64}).to_vector<std::int64_t>(), ElementsAre(end));
  EXPECT_THAT(full({1}, -0x1p63, {.dtype = i64}).to_vector<std::int64_t>(), ElementsAre(INT64_MIN));
  // Floating dtypes round, bool8 asks whether it is not 0.
  EXPECT_THAT(full({1}, 1e300).to_vector<double>(), ElementsAre(INFINITY));
  EXPECT_THAT(full({1}, 300, {.dtype = bool8}).to_vector<int>(), ElementsAre(1));
}

TEST(Linspace, TakesFiniteEndsOfAnySize) {
  const double most = std::numeric_limits<double>::max();
  EXPECT_THAT(linspace(-most, most, 3, {.dtype = f64}).to_vector<double>(), ElementsAre(-most, 0, most));
  EXPECT_THAT(error_of([] { linspace(0, INFINITY, 3); }),
              HasSubstr("linspace: start and end must be finite, got 0 and inf"));
  EXPECT_THROW(linspace(NAN, 1, 3), Error);
}

TEST(FromVector, NeedsAsManyElementsAsTheShapeHas) {
  EXPECT_THAT(error_of([] {
                from_vector(std::vector<double>{1, 2, 3}, {2, 2});
              }),
              HasSubstr("shape [2, 2] has 4 elements, got 3 values"));
}

TEST(Rand, RefusesIntegers) {
  EXPECT_THAT(error_of([] { rand({2}, {.dtype = i64}); }), HasSubstr("rand: the dtype must be f32 or f64, got i64"));
}

TEST(Randint, RefusesWhatDoesNotFit) {
  EXPECT_THAT(error_of([] { randint(3, 3, {2}); }), HasSubstr("randint: low must be below high"));
  EXPECT_THAT(error_of([] { randint(0, std::int64_t{1} << 33, {2}); }), HasSubstr("by at most 2^32, got 0 and"));
  EXPECT_THAT(error_of([] { randint(0, 2, {2}, {.dtype = f32}); }), HasSubstr("the dtype must be an integer's"));
  EXPECT_THAT(error_of([] { randint(-1, 2, {2}, {.dtype = u8}); }), HasSubstr("the numbers must fit u8, got -1 and 2"));
  EXPECT_THAT(error_of([] { randint(0, 257, {2}, {.dtype = u8}); }), HasSubstr("the numbers must fit u8"));
  const std::int64_t beyond = std::int64_t{1} << 31;
  EXPECT_THAT(error_of([=] { randint(beyond, beyond + 1, {2}, {.dtype = i32}); }), HasSubstr("must fit i32"));
}

TEST(Bernoulli, HasItsProbability) {
  manual_seed(5);
  constexpr std::int64_t n = 1 << 20;
  for (const double p : {0.0, 0.1, 0.5, 0.9, 1.0}) {
    // Five standard deviations.
    const double room = 5 * std::sqrt(p * (1 - p) / n);
    EXPECT_NEAR(mean(bernoulli(p, {n})).item(), p, room);
    EXPECT_NEAR(mean(bernoulli(full({n}, p, {.dtype = f64}))).item(), p, room + 1e-12);
  }
}

TEST(Bernoulli, ComparesTheNumbersOfRand) {
  manual_seed(9);
  const Tensor uniform = rand({3, 5});
  manual_seed(9);
  const Tensor y = bernoulli(0.25, {3, 5}, {.dtype = i64});
  EXPECT_EQ(y.dtype(), i64);
  EXPECT_EQ(y.to_vector<double>(), (uniform < 0.25).to_vector<double>());
  EXPECT_EQ(bernoulli(0.5, {2}, {.dtype = bool8}).dtype(), bool8);
  EXPECT_THAT(bernoulli(tensor({0, -1, NAN})).to_vector<double>(), Each(0));
  EXPECT_THAT(bernoulli(tensor({1, 2, INFINITY})).to_vector<double>(), Each(1));
}

TEST(Bernoulli, RefusesWhatIsNoProbability) {
  try {
    bernoulli(1.5, {2});
    ADD_FAILURE();
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("bernoulli: p must be in [0, 1], got 1.5"));
  }
  EXPECT_THROW(bernoulli(NAN, {2}), Error);
  EXPECT_THROW(bernoulli(arange(3)), DTypeError);
}

}  // namespace
}  // namespace reel::test
