#include "reel/ops/ragged.h"

#include <gtest/gtest.h>

#include <cmath>

#include "reel/core/tape.h"
#include "reel/ops/arithmetic.h"
#include "reel/ops/create.h"
#include "reel/ops/elementwise.h"
#include "reel/ops/gradcheck.h"
#include "reel/ops/logical.h"
#include "reel/ops/ragged_shape.h"
#include "reel/ops/reduce.h"
#include "reel/ops/softmax.h"
#include "reel/tests/expect.h"

namespace reel {
namespace {

const std::initializer_list<std::int64_t> kLengths = {2, 0, 3};

Ragged sample(int width = 2) {
  manual_seed(5);
  return Ragged::from_lengths(randn({5, width}, {.dtype = f64}), kLengths);
}

TEST(RaggedBroadcast, EqualRankIsPerSequence) {
  const Ragged x = sample();
  const Tensor per_sequence = tensor({1, 2, 3, 4, 5, 6}, {3, 2}, {.dtype = f64});
  const Ragged y = x + per_sequence;
  EXPECT_EQ(y.values()[0][1].item(), x.values()[0][1].item() + 2);
  EXPECT_EQ(y.values()[2][0].item(), x.values()[2][0].item() + 5);
  EXPECT_EQ((per_sequence + x).values().to_vector<double>(), y.values().to_vector<double>());
}

TEST(RaggedBroadcast, LowerRankIsTrailingAxes) {
  const Ragged x = sample();
  EXPECT_EQ((x * tensor({10, 100}, {.dtype = f64})).values()[4][1].item(), x.values()[4][1].item() * 100);
}

TEST(RaggedBroadcast, GoesByRankEvenWhereSizesWouldFitBoth) {
  // Five rows and five sequences: a [5, 1] tensor is per sequence all the same.
  const Ragged x = Ragged::from_lengths(ones({5, 1}, {.dtype = f64}), {0, 2, 0, 2, 1});
  const Tensor t = tensor({1, 2, 3, 4, 5}, {5, 1}, {.dtype = f64});
  EXPECT_EQ((x * t).values().to_vector<double>(), (std::vector<double>{2, 2, 4, 4, 5}));
}

TEST(RaggedBroadcast, ANumberPerRowComesAsARagged) {
  const Ragged x = sample();
  const Ragged per_row = x.with(tensor({1, 2, 3, 4, 5}, {5, 1}, {.dtype = f64}));
  EXPECT_EQ((per_row * x).values()[3][1].item(), x.values()[3][1].item() * 4);
}

TEST(RaggedBroadcast, TwoRaggedGoByRankEvenWhereRowsWouldFitColumns) {
  // Two rows of two: [2] beside them is a number per row, not one per column.
  const Ragged x = Ragged::from_lengths(ones({2, 2}, {.dtype = f64}), {1, 1});
  const Ragged per_row = x.with(tensor({3, 5}, {.dtype = f64}));
  EXPECT_EQ((x * per_row).values().to_vector<double>(), (std::vector<double>{3, 3, 5, 5}));
  EXPECT_EQ((per_row - x).values().to_vector<double>(), (std::vector<double>{2, 2, 4, 4}));
  EXPECT_EQ(where(per_row > 4, x, per_row).values().to_vector<double>(), (std::vector<double>{3, 3, 1, 1}));
}

TEST(RaggedBroadcast, IntegersPerSequence) {
  const Ragged x = Ragged::from_lengths(arange(5), kLengths);
  EXPECT_EQ((x + tensor({10, 20, 30}, {.dtype = i64})).values().to_vector<int>(),
            (std::vector<int>{10, 11, 32, 33, 34}));
  EXPECT_EQ(repeat_rows(arange(3), x.offsets()).values().to_vector<int>(), (std::vector<int>{0, 0, 2, 2, 2}));
  EXPECT_EQ(sum(x).to_vector<int>(), (std::vector<int>{1, 0, 9}));
}

TEST(RaggedBroadcast, MisfitsAreNamed) {
  const Ragged x = sample();
  EXPECT_THROW_WITH(x + ones({4, 2}, {.dtype = f64}), ShapeError, "add", "3 sequences", "[4, 2]", "ragged_test.cpp");
  EXPECT_THROW_WITH(x + ones({5, 1, 2}, {.dtype = f64}), ShapeError, "add", "[5, 1, 2]");
  const Ragged other = Ragged::from_lengths(x.values(), {3, 0, 2});
  EXPECT_THROW_WITH(x * other, ShapeError, "mul", "same lengths", "cut differently");
}

TEST(RaggedShape, ARowsShapeDoesNotDependOnTheNumberOfRows) {
  for (const std::int64_t rows : {0, 3}) {
    const Ragged x = Ragged::from_lengths(ones({rows, 6}), {0, rows});
    EXPECT_EQ(reshape(x, {-1, 2, -1}).values().shape(), Shape(rows, 2, 3));
    EXPECT_THROW_WITH(reshape(x, {-1, 4, -1}), ShapeError, "reshape", "got [-1, 4, -1]", "ragged_test.cpp");
    EXPECT_THROW_WITH(reshape(x, {-1, 5}), ShapeError, "reshape", "as many elements in a row as [",
                      ", 6], got [-1, 5]");
  }
}

TEST(RaggedReduce, EmptySequencesGiveTheNeutralElements) {
  const Ragged x = sample();
  EXPECT_EQ(sum(x)[1].to_vector<double>(), (std::vector<double>{0, 0}));
  EXPECT_EQ(mean(x)[1].to_vector<double>(), (std::vector<double>{0, 0}));
  EXPECT_EQ(max(x)[1][0].item(), -INFINITY);
  EXPECT_EQ(min(x)[1][0].item(), INFINITY);
}

TEST(RaggedReduce, EachSequenceIsReducedAsATensor) {
  const Ragged x = sample(3);
  for (const std::int64_t i : {0, 2}) {
    EXPECT_EQ(sum(x)[i].to_vector<double>(), sum(x[i], 0).to_vector<double>());
    EXPECT_EQ(max(x)[i].to_vector<double>(), max(x[i], 0).to_vector<double>());
    EXPECT_EQ(min(x)[i].to_vector<double>(), min(x[i], 0).to_vector<double>());
    for (int c = 0; c < 3; ++c) EXPECT_NEAR(mean(x)[i][c].item(), mean(x[i], 0)[c].item(), 1e-15);
  }
}

TEST(RaggedReduce, AxesActPerRowAndAxisZeroIsRefused) {
  const Ragged x = sample();
  EXPECT_EQ(sum(x, -1).values().shape(), (Shape{5}));
  EXPECT_THROW_WITH(sum(x, 0), ShapeError, "sum", "behind the rows' axis 0");
}

TEST(RaggedReduce, EmptyBatchesAreLegal) {
  const Ragged none = Ragged::from_lengths(zeros({0, 4}), {});
  EXPECT_EQ(sum(none).shape(), (Shape{0, 4}));
  EXPECT_EQ(softmax(none).values().shape(), (Shape{0, 4}));
  EXPECT_EQ(to_padded(none).shape(), (Shape{0, 0, 4}));
  const Ragged hollow = Ragged::from_lengths(zeros({0, 4}), {0, 0});
  EXPECT_EQ(sum(hollow).shape(), (Shape{2, 4}));
}

TEST(RaggedReduce, IntegersHaveSumsAndExtremesButNoMean) {
  const Ragged x = Ragged::from_lengths(arange(3), {1, 2});
  EXPECT_EQ(sum(x).dtype(), i64);
  EXPECT_EQ(sum(x > 0).to_vector<int>(), (std::vector<int>{0, 2}));
  EXPECT_THROW_WITH(mean(x), DTypeError, "mean", "i64", "ragged_test.cpp");
  EXPECT_EQ(max(x).dtype(), i64);
  EXPECT_EQ(max(x).to_vector<int>(), (std::vector<int>{0, 2}));
  EXPECT_EQ(min(x).to_vector<int>(), (std::vector<int>{0, 1}));
}

TEST(RaggedConvert, ListsAndPaddingRoundTrip) {
  const Ragged x = sample();
  const Ragged again = Ragged::from_list(to_list(x));
  EXPECT_EQ(again.values().to_vector<double>(), x.values().to_vector<double>());
  EXPECT_EQ(again.offsets(), x.offsets());
  const Tensor padded = to_padded(x, -1);
  EXPECT_EQ(padded.shape(), (Shape{3, 3, 2}));
  EXPECT_EQ(padded[1][0][0].item(), -1);
  EXPECT_EQ(padded[2][1][0].item(), x[2][1][0].item());
  EXPECT_EQ(from_padded(padded, kLengths).values().to_vector<double>(), x.values().to_vector<double>());
  EXPECT_THROW_WITH(from_padded(padded, {4, 0, 1}), ShapeError, "from_padded", "at least 4", "[3, 3, 2]");
  EXPECT_THROW_WITH(from_padded(padded, {2, -1, 1}), ShapeError, "from_padded", "got -1 for sequence 1");
  EXPECT_THROW_WITH(from_padded(padded, {INT64_MAX, INT64_MAX, 1}), ShapeError, "from_padded", "[3, 3, 2]");
  EXPECT_THROW_WITH(Ragged::from_list({ones({2, 3}), ones({2, 4})}), ShapeError, "[2, 3] and [2, 4]");
}

// Gradients, first and second order, as functions of the values.
GradcheckReport check(const std::function<Tensor(const Ragged&)>& f) {
  const Ragged x = sample(3);
  return gradcheck([&](const Tensor& values) { return f(x.with(values)); }, {x.values()});
}

TEST(RaggedGradients, AreRightToSecondOrder) {
  manual_seed(9);
  const Tensor rows = randn({3, 3}, {.dtype = f64});
  EXPECT_TRUE(check([](const Ragged& x) { return sum(x * x); }));
  EXPECT_TRUE(check([](const Ragged& x) { return mean(x * x * x); }));
  EXPECT_TRUE(check([](const Ragged& x) { return sum(min(x) * x * max(x * x)); }));
  EXPECT_TRUE(check([](const Ragged& x) { return softmax(x).values(); }));
  EXPECT_TRUE(check([](const Ragged& x) { return log_softmax(x).values(); }));
  EXPECT_TRUE(check([](const Ragged& x) { return to_padded(x * x, 3); }));
  EXPECT_TRUE(check([&](const Ragged& x) { return (x * rows * x).values(); }));
  EXPECT_TRUE(check([](const Ragged& x) { return sum(softmax(sum(x * x, -1, Keep::yes)) * x); }));
}

TEST(RaggedGradients, ExtremaGoToTheWinner) {
  const Ragged x = Ragged::from_lengths(tensor({1, 3, 3, 2}, {4, 1}, {.dtype = f64}), {3, 0, 1});
  Tape tape;
  tape.watch(x.values());
  const Tensor y = max(x);
  const Tensor dy = tensor({10, 20, 30}, {3, 1}, {.dtype = f64});
  EXPECT_EQ(tape.gradient(y, dy, {x.values()})[0].to_vector<double>(), (std::vector<double>{0, 10, 0, 30}));
}

TEST(RaggedGradients, PerSequenceOperandsGetTheSumOverTheirRows) {
  const Ragged x = Ragged::from_lengths(tensor({1, 2, 3}, {3, 1}, {.dtype = f64}), {2, 0, 1});
  const Tensor t = zeros({3, 1}, {.dtype = f64});
  Tape tape;
  tape.watch(t);
  EXPECT_EQ(tape.gradient(sum((x * t).values()), {t})[0].to_vector<double>(), (std::vector<double>{3, 0, 3}));
}

}  // namespace
}  // namespace reel
