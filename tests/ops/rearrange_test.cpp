// What the op-case table cannot say about elements in other places: all dtypes, layouts, sizes past the caches, extremes.

#include "reel/ops/rearrange.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "reel/core/tape.h"
#include "reel/ops/arithmetic.h"
#include "reel/ops/convert.h"
#include "reel/ops/create.h"
#include "reel/ops/views.h"

namespace reel::test {
namespace {

using testing::ElementsAre;

constexpr DType kAll[] = {f32, f64, bf16, f16, i32, i64, u8, bool8};

// 0, 1, ..., 6, 0, 1, ...
Tensor numbers(const Shape& shape, DType dtype) {
  std::vector<double> values(static_cast<std::size_t>(shape.size()));
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<double>(i % 7);
  return cast(from_vector(values, shape), dtype);
}

TEST(Flip, TakesAllDtypesAndLayouts) {
  for (const DType dtype : kAll)
    for (const std::int64_t n : {0, 1, 7, 33, 100}) {
      SCOPED_TRACE(testing::Message() << name_of(dtype) << ' ' << n);
      const Tensor x = numbers({3, n}, dtype);
      const std::vector<double> all = x.to_vector<double>();
      EXPECT_EQ(flip(x).to_vector<double>(), std::vector<double>(all.rbegin(), all.rend()));
      EXPECT_EQ(flip(flip(x, 1), 0).to_vector<double>(), flip(x).to_vector<double>());
      EXPECT_EQ(flip(transpose(x), 0).to_vector<double>(), transpose(flip(x, 1)).to_vector<double>());
      const Tensor wide = expand(unsqueeze(x, 2), {3, n, 5});  // each element five times, with strides of 0
      EXPECT_EQ(flip(wide, {0, 2}).to_vector<double>(),
                contiguous(expand(unsqueeze(flip(x, 0), 2), {3, n, 5})).to_vector<double>());
    }
}

TEST(Tile, RepeatsAnyNumberOfAxes) {
  const Tensor x = numbers({2, 1, 2, 3, 2}, f32);
  const Shape repeats{2, 3, 1, 2, 0};
  EXPECT_EQ(tile(x, repeats).shape(), (Shape{4, 3, 2, 6, 0}));
  const Shape five{2, 3, 2, 3, 2};
  Tensor expected = x;
  for (int axis = 0; axis < 5; ++axis) {
    Tensors copies;
    for (std::int64_t k = 0; k < five[axis]; ++k) copies.push_back(expected);
    expected = concatenate(copies, axis);
  }
  const Tensor y = tile(x, five);
  EXPECT_EQ(y.shape(), expected.shape());
  EXPECT_EQ(y.to_vector<double>(), expected.to_vector<double>());
  Tape tape;
  tape.watch(x);
  const Tensor z = tile(x, five);
  EXPECT_THAT(tape.gradient(z, ones_like(z), {x})[0].to_vector<double>(), testing::Each(72));
}

TEST(Tile, AndRepeatInterleaveAndFlipNeverShareMemoryWithX) {
  Tensor x = ones({3});
  const Tensors results = {tile(x, {1}), tile(x, {1, 1}), tile(x, {1, 1, 1}), repeat_interleave(x, 1, 0), flip(x, 0)};
  for (float& value : x.mutable_data<float>()) value = 5;
  for (const Tensor& y : results) EXPECT_THAT(y.to_vector<double>(), ElementsAre(1, 1, 1));
  Tensor one = tile(expand(ones({1, 1}), {1, 4}), {1, 1, 1});
  EXPECT_EQ(one.shape(), (Shape{1, 1, 4}));
  EXPECT_NO_THROW(one.mutable_data<float>());
  EXPECT_EQ(tile(full({}, 2), {1}).shape(), Shape{1});
}

TEST(RepeatInterleave, TakesAllDtypesAndNumbers) {
  for (const DType dtype : kAll)
    for (const std::int64_t times : {0, 2, 3, 5, 31, 32, 40}) {
      const Tensor y = repeat_interleave(numbers({70}, dtype), times, 0);
      ASSERT_EQ(y.shape(), Shape{70 * times});
      const std::vector<double> x = numbers({70}, dtype).to_vector<double>(), values = y.to_vector<double>();
      for (std::size_t i = 0; i < values.size(); ++i)
        ASSERT_EQ(values[i], x[i / static_cast<std::size_t>(times)]) << name_of(dtype) << ' ' << times << ' ' << i;
    }
}

TEST(Triangle, TakesEveryDiagonalAndDtype) {
  constexpr std::int64_t least = std::numeric_limits<std::int64_t>::min(),
                         most = std::numeric_limits<std::int64_t>::max();
  for (const DType dtype : kAll)
    for (const std::int64_t diagonal :
         {least, least + 1, std::int64_t{-4}, std::int64_t{-3}, std::int64_t{-1}, std::int64_t{0}, std::int64_t{1},
          std::int64_t{4}, std::int64_t{5}, most - 1, most}) {
      SCOPED_TRACE(testing::Message() << name_of(dtype) << ' ' << diagonal);
      const Tensor x = cast(ones({2, 3, 5}), dtype);
      const std::vector<double> low = tril(x, diagonal).to_vector<double>(),
                                high = triu(x, diagonal).to_vector<double>();
      for (std::int64_t i = 0; i < 30; ++i) {
        const std::int64_t above = i % 5 - i / 5 % 3;
        ASSERT_EQ(low[static_cast<std::size_t>(i)], above <= diagonal ? 1 : 0) << i;
        ASSERT_EQ(high[static_cast<std::size_t>(i)], above >= diagonal ? 1 : 0) << i;
      }
    }
}

TEST(Triangle, LetsNothingThroughFromOutside) {
  const Tensor x = full({2, 2}, NAN);
  EXPECT_EQ(tril(x, -2).to_vector<double>(), std::vector<double>(4, 0.0));
  EXPECT_TRUE(std::signbit(tril(full({1, 1}, -0.0)).item()));
  const Tensor infinite = full({2, 2}, INFINITY, {.dtype = f64});
  Tape tape;
  tape.watch(infinite);
  const Tensor y = triu(infinite, 1);
  EXPECT_THAT(tape.gradient(y, full({2, 2}, NAN, {.dtype = f64}), {infinite})[0].to_vector<double>(),
              ElementsAre(0, testing::IsNan(), 0, 0));
}

// Results large enough to be written past the caches, from rows that begin anywhere.
TEST(Roll, OfWhatIsLargerThanCachesKeepsEveryElement) {
  const std::int64_t rows = 4099, cols = 1031, shift = 5;  // 17 MB
  const Tensor x = reshape(arange(rows * cols, {.dtype = i32}), {rows, cols}), y = roll(x, shift, 1);
  const auto values = y.data<std::int32_t>();
  for (std::int64_t i = 0; i < rows; ++i)
    for (std::int64_t j = 0; j < cols; ++j)
      ASSERT_EQ(values[static_cast<std::size_t>(i * cols + (j + shift) % cols)], i * cols + j);
  const Tensor same = clone(x);
  EXPECT_TRUE(
      std::equal(same.data<std::int32_t>().begin(), same.data<std::int32_t>().end(), x.data<std::int32_t>().begin()));
}

}  // namespace
}  // namespace reel::test
