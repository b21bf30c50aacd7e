// Tensors made from nothing that draw numbers or count.

#include "reel/ops/create.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "reel/core/error.h"
#include "reel/ops/arithmetic.h"
#include "reel/ops/reduce.h"
#include "reel/tests/error_of.h"

namespace reel::test {
namespace {

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
  EXPECT_THROW(arange(0, 1, 0.5), DTypeError);
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
