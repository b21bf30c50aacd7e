// Largest and smallest elements: integers in every form, ties, and where the largest of all is.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <limits>

#include "reel/core/tape.h"
#include "reel/ops/arithmetic.h"
#include "reel/ops/convert.h"
#include "reel/ops/create.h"
#include "reel/ops/ragged.h"
#include "reel/ops/reduce.h"
#include "reel/ops/views.h"
#include "reel/tests/expect.h"

namespace reel::test {
namespace {

using testing::ElementsAre;

constexpr DType kIntegers[] = {u8, i32, i64, bool8};

TEST(Argmax, OfAllIsAPlaceInTheOrderOfRows) {
  const Tensor x = tensor({3, 9, 1, 9, 0, 2}, {2, 3});
  EXPECT_EQ(argmax(x).shape(), Shape{});
  EXPECT_EQ(argmax(x).dtype(), i64);
  EXPECT_EQ(argmax(x).item<std::int64_t>(), 1);  // the first of two
  EXPECT_EQ(argmin(x).item<std::int64_t>(), 4);
  EXPECT_EQ(argmax(transpose(x)).item<std::int64_t>(), 1);
  EXPECT_EQ(argmin(transpose(x)).item<std::int64_t>(), 3);
  EXPECT_EQ(argmax(tensor({1, NAN, 5, NAN})).item<std::int64_t>(), 1);
  EXPECT_EQ(argmax(full({}, 3)).item<std::int64_t>(), 0);
  EXPECT_EQ(argmin(expand(full({1}, 3), {4, 5})).item<std::int64_t>(), 0);
  for (const DType dtype : kIntegers) EXPECT_EQ(argmax(cast(x, dtype)).item<std::int64_t>(), dtype == bool8 ? 0 : 1);
  EXPECT_THROW_WITH(argmax(zeros({0, 3})), ShapeError, "argmax: x must not be empty, got shape [0, 3]",
                    "winners_test.cpp");
}

TEST(RaggedWinners, OfIntegersAreThoseOfEachSequence) {
  const Tensor values = tensor({3, 0, 7, 2, 7, 5, 1, 1, 0, 4, 2, 2, 9, 0}, {7, 2});
  const std::vector<std::int64_t> lengths = {3, 0, 1, 3};
  for (const DType dtype : kIntegers) {
    SCOPED_TRACE(name_of(dtype));
    const Ragged x = Ragged::from_lengths(cast(values, dtype), lengths);
    const Winners largest = max_which(x), smallest = min_which(x);
    for (const Tensor& y : {max(x), amax(x), largest.y, min(x), amin(x), smallest.y}) {
      EXPECT_EQ(y.dtype(), dtype);
      EXPECT_EQ(y.shape(), (Shape{4, 2}));
    }
    EXPECT_EQ(argmax(x).to_vector<double>(), largest.which.to_vector<double>());
    EXPECT_EQ(argmin(x).to_vector<double>(), smallest.which.to_vector<double>());
    for (std::int64_t s = 0; s < x.count(); ++s) {
      // Of no rows: what an empty axis of a tensor gives.
      const std::vector<double> high = max(x[s], 0).to_vector<double>(), low = min(x[s], 0).to_vector<double>();
      for (const Tensor& y : {max(x), amax(x), largest.y}) EXPECT_EQ(y[s].to_vector<double>(), high) << s;
      for (const Tensor& y : {min(x), amin(x), smallest.y}) EXPECT_EQ(y[s].to_vector<double>(), low) << s;
      if (x.length(s) == 0) {
        EXPECT_THAT(largest.which[s].to_vector<double>(), ElementsAre(-1, -1));
        EXPECT_THAT(smallest.which[s].to_vector<double>(), ElementsAre(-1, -1));
      } else {
        EXPECT_EQ(largest.which[s].to_vector<double>(), argmax(x[s], 0).to_vector<double>()) << s;
        EXPECT_EQ(smallest.which[s].to_vector<double>(), argmin(x[s], 0).to_vector<double>()) << s;
      }
    }
  }
}

TEST(RaggedWinners, OfLargeIntegersAreExact) {
  const std::int64_t big = (std::int64_t{1} << 60) + 1, least = std::numeric_limits<std::int64_t>::min();
  const Ragged x = Ragged::from_lengths(from_vector(std::vector<std::int64_t>{big - 1, big, big - 2}), {2, 0, 1});
  EXPECT_THAT(max(x).to_vector<std::int64_t>(), ElementsAre(big, least, big - 2));
  EXPECT_THAT(argmin(x).to_vector<std::int64_t>(), ElementsAre(0, -1, 0));
  // Per row.
  const Ragged rows = Ragged::from_lengths(from_vector(std::vector<std::int64_t>{big, big + 1}, {1, 2}), {1});
  EXPECT_THAT(max(rows, 1).values().to_vector<std::int64_t>(), ElementsAre(big + 1));
  EXPECT_THAT(argmax(rows, 1).values().to_vector<std::int64_t>(), ElementsAre(1));
}

TEST(RaggedWinners, OfNoSequencesAreNone) {
  for (const DType dtype : kIntegers) {
    const Ragged x = Ragged::from_lengths(zeros({0, 3}, {.dtype = dtype}), {});
    EXPECT_EQ(max(x).shape(), (Shape{0, 3}));
    EXPECT_EQ(argmin(x).shape(), (Shape{0, 3}));
  }
}

TEST(RaggedMean, RefusesIntegers) {
  EXPECT_THROW_WITH(mean(Ragged::from_lengths(arange(3), {3})), DTypeError, "mean: x must be f32 or f64, got i64");
}

}  // namespace
}  // namespace reel::test
