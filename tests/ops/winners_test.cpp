// Largest and smallest elements: integers in every form, ties, and where the largest of all is.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <functional>
#include <limits>

#include "reel/core/tape.h"
#include "reel/ops/arithmetic.h"
#include "reel/ops/convert.h"
#include "reel/ops/create.h"
#include "reel/ops/gated.h"
#include "reel/ops/order.h"
#include "reel/ops/pool.h"
#include "reel/ops/ragged.h"
#include "reel/ops/reduce.h"
#include "reel/ops/unary.h"
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

// Rows of few elements are compared one after the other, longer ones in vectors.
TEST(Max, OfShortRowsIsThatOfTheirElements) {
  for (const DType dtype : {f32, f64, u8, i32, i64})
    for (std::int64_t n = 1; n <= 10; ++n)
      for (const std::int64_t rows : {1, 5, 700}) {
        SCOPED_TRACE(testing::Message() << name_of(dtype) << ' ' << rows << " x " << n);
        std::vector<double> values(static_cast<std::size_t>(rows * n));
        for (std::size_t i = 0; i < values.size(); ++i)
          values[i] = is_floating(dtype) && i % 23 == 22 ? NAN : static_cast<double>(i * i % 11);
        const Tensor x = cast(from_vector(values, {rows, n}), dtype);
        std::vector<double> largest, places;
        for (std::int64_t r = 0; r < rows; ++r) {
          std::int64_t best = 0;
          const double* const row = values.data() + r * n;
          for (std::int64_t j = 1; j < n; ++j)
            if (row[j] > row[best] || (std::isnan(row[j]) && !std::isnan(row[best]))) best = j;
          largest.push_back(row[best]);
          places.push_back(static_cast<double>(best));
        }
        const Winners winners = max_which(x, 1);
        EXPECT_EQ(winners.which.to_vector<double>(), places);
        for (const Tensor& y : {max(x, 1), amax(x, 1), winners.y, -min(-cast(x, f64), 1)})
          EXPECT_THAT(y.to_vector<double>(), testing::Pointwise(testing::NanSensitiveDoubleEq(), largest));
      }
}

TEST(Max, HasAGradientOfItsShapeWhereThereIsNothing) {
  for (const Shape& shape : {Shape{3, 0}, Shape{0, 3}, Shape{0, 0}})
    for (const Keep keep : {Keep::no, Keep::yes}) {
      const Tensor x = zeros(shape);
      Tape tape;
      tape.watch(x);
      const Tensor y = max(x, 1, keep);
      EXPECT_EQ(tape.gradient(y, ones_like(y), {x})[0].shape(), shape);
    }
}

TEST(Max, GivesTheWholeGradientToTheFirstOfEqualsAndIsDifferentiatedAgain) {
  const Tensor x = tensor({3, 9, 9, 1, NAN, NAN}, {2, 3}, {.dtype = f64});
  for (const Keep keep : {Keep::no, Keep::yes}) {
    Tape outer;
    outer.watch(x);
    const Tensor dx = [&] {
      Tape inner;
      const Tensor y = max(x, 1, keep);
      return inner.gradient(y, reshape(tensor({2, 5}, {.dtype = f64}), y.shape()), {x})[0];
    }();
    EXPECT_THAT(dx.to_vector<double>(), ElementsAre(0, 2, 0, 0, 5, 0));
    const Tensor cube = dx * select(x, 1, 1)[0];  // the gradient itself does not depend on x
    EXPECT_THAT(outer.gradient(cube, ones_like(cube), {x})[0].to_vector<double>(), ElementsAre(0, 7, 0, 0, 0, 0));
  }
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

// The gradient goes where `which` says, so that nobody may write there before it has.
TEST(Winners, PlacesWrittenBeforeTheSweepAreNoticed) {
  struct Result {
    Tensor values, which;
  };
  const auto ragged = [](const Tensor& x) { return Ragged::from_lengths(x, {2, 0, 4}); };
  const auto of = [](const Winners& w) { return Result{w.y, w.which}; };
  const auto of_rows = [](const RaggedWinners& w) { return Result{w.y.values(), w.which.values()}; };
  const auto sorted = [](const Sorted& s) { return Result{s.values, s.which}; };
  const std::function<Result(const Tensor&)> calls[] = {
      [&](const Tensor& x) { return of(max_which(x, 0)); },
      [&](const Tensor& x) { return of(min_which(x, 1)); },
      [&](const Tensor& x) {
        return of(max_which(Ragged::from_lengths(x, {2, 4})));
      },
      [&](const Tensor& x) {
        return of(min_which(Ragged::from_lengths(x, {5, 1})));
      },
      [&](const Tensor& x) { return of_rows(max_which(ragged(x), 1)); },
      [&](const Tensor& x) { return of(maxout_which(x, 2)); },
      [&](const Tensor& x) { return of_rows(maxout_which(ragged(x), 2)); },
      [&](const Tensor& x) { return sorted(sort(x, 0)); },
      [&](const Tensor& x) { return sorted(topk(x, 2, 1)); },
      [&](const Tensor& x) {
        const MaxPooled pooled = max_pool1d_which(reshape(x, {1, 6, 4}));
        return Result{pooled.values, pooled.which};
      }};
  for (const auto& call : calls) {
    SCOPED_TRACE(&call - calls);
    const Tensor x = rand({6, 4});
    Tape tape;
    tape.watch(x);
    Result result = call(x);
    result.which.fill_(0);
    EXPECT_THROW_WITH(tape.gradient(sum(result.values), {x}), VersionError, "fill_", "winners_test.cpp");
  }
  // Per sequence `which` is made into places among all rows at once.
  const Tensor x = rand({6, 4}), weights = rand({6, 4});
  for (const Order order : {Order::ascending, Order::descending}) {
    Tape tape;
    tape.watch(x);
    const RaggedSorted result = sort(ragged(x), order);
    const Tensor y = sum(result.values.values() * weights), expected = tape.gradient(y, {x}, {.keep = true})[0];
    Tensor(result.which.values()).fill_(0);
    EXPECT_EQ(tape.gradient(y, {x})[0].to_vector<float>(), expected.to_vector<float>());
  }
}

}  // namespace
}  // namespace reel::test
