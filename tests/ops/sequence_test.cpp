#include "reel/ops/sequence.h"

#include <gtest/gtest.h>

#include <cmath>

#include "reel/core/tape.h"
#include "reel/ops/arithmetic.h"
#include "reel/ops/create.h"
#include "reel/ops/ragged.h"
#include "reel/tests/expect.h"

namespace reel {
namespace {

using Numbers = std::vector<double>;

TEST(Seq2col, NeighboursEndWithTheSequence) {
  const Ragged x = Ragged::from_lengths(tensor({1, 2, 3, 4}, {4, 1}), {3, 0, 1});
  EXPECT_EQ(seq2col(x, 1).values().to_vector<double>(), (Numbers{0, 1, 2, 1, 2, 3, 2, 3, 0, 0, 4, 0}));
  EXPECT_EQ(seq2col(x, 0).values().to_vector<double>(), (Numbers{1, 2, 3, 4}));
}

TEST(Seq2col, ZerosBeyondTheEndsHideNoNaN) {
  const Ragged x = Ragged::from_lengths(tensor({1, NAN, 3, 4}, {4, 1}), {1, 1, 2});
  const Numbers y = seq2col(x, 1).values().to_vector<double>();
  for (const std::size_t i : {0, 2, 3, 5, 6}) EXPECT_EQ(y[i], 0);
  EXPECT_TRUE(std::isnan(y[4]));
}

TEST(Seq2col, OfIntegersIsAWindowOfTokens) {
  const Ragged x = Ragged::from_lengths(tensor({5, 6, 7}, {3, 1}, {.dtype = i64}), {2, 1});
  EXPECT_EQ(seq2col(x, 1).values().to_vector<std::int64_t>(), (std::vector<std::int64_t>{0, 5, 6, 5, 6, 0, 0, 7, 0}));
}

TEST(Seq2col, AWindowWiderThanEverySequenceIsLegal) {
  const Ragged x = Ragged::from_lengths(tensor({1, 2}, {2, 1}), {2});
  EXPECT_EQ(seq2col(x, 3).values().to_vector<double>(), (Numbers{0, 0, 0, 1, 2, 0, 0, 0, 0, 1, 2, 0, 0, 0}));
  EXPECT_EQ(seq2col(Ragged::from_lengths(zeros({0, 3}), {}), 2).values().shape(), (Shape{0, 15}));
  EXPECT_EQ(seq2col(Ragged::from_lengths(zeros({2, 0}), {1, 1}), 2).values().shape(), (Shape{2, 0}));
}

TEST(ReduceFirstAndLast, EmptySequencesGiveZero) {
  const Ragged x = Ragged::from_lengths(tensor({1, 2, 3, NAN}, {4, 1}), {2, 0, 1, 1});
  EXPECT_EQ(reduce_first(x).to_vector<double>()[1], 0);
  EXPECT_EQ(reduce_first(x)[0].item(), 1);
  EXPECT_EQ(reduce_last(x)[0].item(), 2);
  EXPECT_TRUE(std::isnan(reduce_last(x)[3].item()));
  EXPECT_EQ(reduce_last(Ragged::from_lengths(zeros({0, 3}), {0, 0})).to_vector<double>(), Numbers(6, 0));
  EXPECT_EQ(reduce_last(Ragged::from_lengths(zeros({0, 3}), {})).shape(), (Shape{0, 3}));
}

TEST(ReduceFirstAndLast, HaveTheSameBitsBesideEmptySequences) {
  const Ragged full = Ragged::from_lengths(tensor({-0.0, 5, -0.0}, {3, 1}), {1, 2});
  const Ragged some = Ragged::from_lengths(full.values(), {0, 1, 0, 2});
  for (const auto f : {reduce_first, reduce_last}) {
    const Tensor all = f(full, {}), beside = f(some, {});
    for (int i : {0, 1}) EXPECT_EQ(std::signbit(beside[2 * i + 1].item()), std::signbit(all[i].item())) << i;
  }
  EXPECT_TRUE(std::signbit(reduce_first(some)[1].item()));
}

TEST(ReduceFirstAndLast, TakeElementsOfAnyDtypeBesideEmptySequences) {
  for (const DType dtype : {f32, f64, bf16, f16, i64, i32, u8}) {
    const Ragged x = Ragged::from_lengths(tensor({1, 2, 3}, {3, 1}, {.dtype = dtype}), {0, 2, 1, 0});
    EXPECT_EQ(reduce_first(x).dtype(), dtype);
    EXPECT_EQ(reduce_first(x).to_vector<double>(), (Numbers{0, 1, 3, 0}));
    EXPECT_EQ(reduce_last(x).to_vector<double>(), (Numbers{0, 2, 3, 0}));
  }
}

TEST(ReduceFirstAndLast, OnlyThatRowHasAGradient) {
  const Ragged x = Ragged::from_lengths(zeros({5, 1}), {2, 0, 3});
  const auto gradient = [&](Tensor (*f)(const Ragged&, SourceLocation)) {
    Tape tape;
    tape.watch(x.values());
    const Tensor dy = tensor({1, 2, 3}, {3, 1});
    return tape.gradient(f(x, {}), dy, {x.values()})[0].to_vector<double>();
  };
  EXPECT_EQ(gradient(reduce_first), (Numbers{1, 0, 3, 0, 0}));
  EXPECT_EQ(gradient(reduce_last), (Numbers{0, 1, 0, 0, 3}));
}

TEST(Reverse, KeepsSequencesWhereTheyAre) {
  const Ragged x = Ragged::from_lengths(tensor({1, 2, 3, 4}, {4}, {.dtype = i64}), {1, 0, 3});
  EXPECT_EQ(reverse(x).values().to_vector<double>(), (Numbers{1, 4, 3, 2}));
  EXPECT_EQ(reverse(x).offsets(), x.offsets());
  EXPECT_EQ(reverse(Ragged::from_lengths(zeros({0, 2}), {0})).values().shape(), (Shape{0, 2}));
}

TEST(Positions, StartAgainInEachSequence) {
  const Ragged x = Ragged::from_lengths(zeros({5, 2}), {2, 0, 3});
  const Tensor places = positions(x).values();
  EXPECT_EQ(places.dtype(), i64);
  EXPECT_EQ(places.to_vector<double>(), (Numbers{0, 1, 0, 1, 2}));
  const Tensor waves = position_encoding(x).values();
  EXPECT_EQ(waves[2].to_vector<double>(), (Numbers{0, 1}));
  EXPECT_EQ(waves[1].to_vector<double>(), waves[3].to_vector<double>());
}

TEST(PositionEncoding, IsAsAccurateFarFromTheStart) {
  const Tensor y = position_encoding(100001, 3);
  EXPECT_EQ(y[100000].to_vector<float>(),
            (std::vector<float>{static_cast<float>(std::sin(1e5)), static_cast<float>(std::cos(1e5)),
                                static_cast<float>(std::sin(1e5 / std::pow(1e4, 2.0 / 3)))}));
}

}  // namespace
}  // namespace reel
