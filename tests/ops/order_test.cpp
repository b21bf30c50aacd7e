// What the op-case table cannot say about order: ties, NaN, infinities, zeros of both signs, and what goes together.

#include "reel/ops/order.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "reel/core/tape.h"
#include "reel/ops/arithmetic.h"
#include "reel/ops/convert.h"
#include "reel/ops/create.h"
#include "reel/ops/embedding.h"
#include "reel/ops/index.h"
#include "reel/ops/views.h"

namespace reel::test {
namespace {

using testing::ElementsAre;

std::vector<std::int64_t> integers(const Tensor& x) { return x.to_vector<std::int64_t>(); }

TEST(Sort, KeepsTheOrderOfEqualElementsAndPutsNaNLast) {
  for (const DType dtype : {f32, f64}) {
    const Tensor x = tensor({0.0, NAN, -1, INFINITY, -0.0, -NAN, -INFINITY, -1, 0.0}, {.dtype = dtype});
    const auto [up, up_which] = sort(x);
    EXPECT_THAT(integers(up_which), ElementsAre(6, 2, 7, 0, 4, 8, 3, 1, 5));
    EXPECT_EQ(up[0].item(), -INFINITY);
    EXPECT_TRUE(std::signbit(up[4].item()));  // -0 among its equals, itself untouched
    EXPECT_TRUE(std::isnan(up[8].item()));
    EXPECT_THAT(integers(argsort(x, 0, Order::descending)), ElementsAre(1, 5, 3, 0, 4, 8, 2, 7, 6));
    EXPECT_THAT(integers(topk(x, 3).which), ElementsAre(1, 5, 3));
    EXPECT_THAT(integers(topk(x, 3, 0, Order::ascending).which), ElementsAre(6, 2, 7));
  }
}

TEST(Sort, TakesTheLimitsOfIntegers) {
  const auto low = std::numeric_limits<std::int64_t>::min(), high = std::numeric_limits<std::int64_t>::max();
  EXPECT_THAT(integers(sort(from_vector(std::vector<std::int64_t>{0, high, -1, low, 1})).values),
              ElementsAre(low, -1, 0, 1, high));
  const auto low32 = std::numeric_limits<std::int32_t>::min(), high32 = std::numeric_limits<std::int32_t>::max();
  EXPECT_THAT(
      integers(sort(from_vector(std::vector<std::int32_t>{0, high32, -1, low32, 1}), 0, Order::descending).values),
      ElementsAre(high32, 1, 0, -1, low32));
}

TEST(Sort, OfAConstantKeepsTheOrder) {
  // Long enough for every way to sort, with nothing to tell the elements apart.
  for (const std::int64_t n : {2, 64, 65, 1000})
    for (const Order order : {Order::ascending, Order::descending})
      EXPECT_EQ(integers(argsort(full({n}, 3.5), 0, order)), integers(arange(n)));
}

TEST(Sort, SendsGradientsToWhereTheElementsCameFrom) {
  const Tensor x = tensor({2, 1, 2, NAN}, {.dtype = f64});
  Tape tape;
  tape.watch(x);
  const Tensor y = sort(x).values, top = topk(x, 2, 0, Order::ascending).values;
  EXPECT_THAT(tape.gradient(y, tensor({10, 20, 30, 40}, {.dtype = f64}), {x}, {.keep = true})[0].to_vector<double>(),
              ElementsAre(20, 10, 30, 40));
  EXPECT_THAT(tape.gradient(top, tensor({10, 20}, {.dtype = f64}), {x})[0].to_vector<double>(),
              ElementsAre(20, 10, 0, 0));
}

TEST(TopK, OfZeroElementsIsEmpty) {
  EXPECT_EQ(topk(ones({2, 3}), 0).values.shape(), (Shape{2, 0}));
  EXPECT_EQ(topk(ones({2, 0}), 0).which.shape(), (Shape{2, 0}));
}

TEST(RaggedTopK, KeepsWhatShortSequencesHave) {
  const auto [values, which] = topk(Ragged::from_lengths(tensor({3, 1, 2, 5, 4}, {.dtype = i32}), {0, 3, 0, 1, 1}), 2);
  EXPECT_THAT(values.offsets().lengths(), ElementsAre(0, 2, 0, 1, 1));
  EXPECT_THAT(integers(values.values()), ElementsAre(3, 2, 5, 4));
  EXPECT_THAT(integers(which.values()), ElementsAre(0, 2, 0, 0));
}

TEST(Unique, PutsTogetherWhatItTookApart) {
  const Tensor x = tensor({3, 1, 3, 2, 1, 3}, {2, 3});
  const auto [values, inverse, counts] = unique(x);
  EXPECT_THAT(values.to_vector<double>(), ElementsAre(1, 2, 3));
  EXPECT_THAT(integers(counts), ElementsAre(2, 1, 3));
  EXPECT_EQ(inverse.shape(), x.shape());
  EXPECT_EQ(embedding(values, inverse).to_vector<double>(), x.to_vector<double>());
}

TEST(Unique, TakesZerosForOneAndEachNaNForItself) {
  const auto [values, inverse, counts] = unique(tensor({NAN, 0.0, NAN, -0.0}));
  EXPECT_THAT(integers(counts), ElementsAre(2, 1, 1));
  EXPECT_THAT(integers(inverse), ElementsAre(1, 0, 2, 0));
  EXPECT_EQ(values[0].item(), 0);
}

TEST(Unique, OfNothingAndOfOne) {
  EXPECT_EQ(unique(ones({0, 2})).values.size(), 0);
  EXPECT_EQ(unique(ones({0, 2})).inverse.shape(), (Shape{0, 2}));
  EXPECT_THAT(integers(unique(full({}, 4)).counts), ElementsAre(1));
}

TEST(RaggedUnique, LooksAtEachSequenceByItself) {
  // The end of one sequence and the beginning of the next are equal.
  const Ragged x = Ragged::from_lengths(tensor({3, 1, 3, 3, 2, 2, 2}, {.dtype = i32}), {0, 3, 1, 0, 3});
  const auto [values, inverse, counts] = unique(x);
  EXPECT_THAT(values.offsets().lengths(), ElementsAre(0, 2, 1, 0, 1));
  EXPECT_THAT(integers(values.values()), ElementsAre(1, 3, 3, 2));
  EXPECT_THAT(integers(counts.values()), ElementsAre(1, 2, 1, 3));
  EXPECT_EQ(inverse.offsets(), x.offsets());
  EXPECT_THAT(integers(inverse.values()), ElementsAre(1, 0, 1, 0, 0, 0, 0));
  EXPECT_EQ(unique(take(x, {0, 3})).values.count(), 2);
}

TEST(SortByLength, IsUndoneByItsInverse) {
  const Ragged x = Ragged::from_lengths(arange(9), {2, 0, 4, 2, 1});
  const auto [sorted, order, inverse] = sort_by_length(x);
  EXPECT_THAT(order, ElementsAre(2, 0, 3, 4, 1));
  EXPECT_THAT(sorted.offsets().lengths(), ElementsAre(4, 2, 2, 1, 0));
  const Ragged back = take(sorted, inverse);
  EXPECT_EQ(back.offsets(), x.offsets());
  EXPECT_EQ(integers(back.values()), integers(x.values()));
  EXPECT_THAT(sort_by_length(x, Order::ascending).order, ElementsAre(1, 4, 0, 3, 2));
  EXPECT_EQ(sort_by_length(Ragged::from_lengths(ones({0}), {})).sorted.count(), 0);
}

}  // namespace
}  // namespace reel::test
