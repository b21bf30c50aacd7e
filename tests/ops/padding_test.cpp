// The examples of numpy.pad's documentation, and paddings wider than what they repeat, written out by hand.

#include "reel/ops/padding.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "reel/core/tape.h"
#include "reel/ops/convert.h"
#include "reel/ops/create.h"
#include "reel/ops/views.h"

namespace reel::test {
namespace {

using testing::ElementsAre;

std::vector<double> padded(std::initializer_list<double> x, std::int64_t before, std::int64_t after, PaddingMode mode) {
  return pad(tensor(x), {{0, before, after}}, mode).to_vector<double>();
}

TEST(Pad, GivesNumpysExamples) {
  EXPECT_THAT(padded({1, 2, 3, 4, 5}, 2, 3, PaddingMode::reflect), ElementsAre(3, 2, 1, 2, 3, 4, 5, 4, 3, 2));
  EXPECT_THAT(padded({1, 2, 3, 4, 5}, 2, 3, PaddingMode::symmetric), ElementsAre(2, 1, 1, 2, 3, 4, 5, 5, 4, 3));
  EXPECT_THAT(padded({1, 2, 3, 4, 5}, 2, 3, PaddingMode::replicate), ElementsAre(1, 1, 1, 2, 3, 4, 5, 5, 5, 5));
  EXPECT_THAT(padded({1, 2, 3, 4, 5}, 2, 3, PaddingMode::zero), ElementsAre(0, 0, 1, 2, 3, 4, 5, 0, 0, 0));
  // [[1, 2], [3, 4]] with 3 and 2 more rows, 2 and 3 more columns: the last two rows.
  const Tensor square = tensor({1, 2, 3, 4}, {2, 2});
  const auto last = [&](PaddingMode mode) {
    const std::vector<double> all = pad(square, {{0, 3, 2}, {1, 2, 3}}, mode).to_vector<double>();
    return std::vector<double>(all.end() - 14, all.end());
  };
  EXPECT_THAT(last(PaddingMode::reflect), ElementsAre(1, 2, 1, 2, 1, 2, 1, 3, 4, 3, 4, 3, 4, 3));
  EXPECT_THAT(last(PaddingMode::symmetric), ElementsAre(4, 3, 3, 4, 4, 3, 3, 2, 1, 1, 2, 2, 1, 1));
}

TEST(Pad, MirrorsTheImageAgainAndAgain) {
  EXPECT_THAT(padded({1, 2, 3}, 7, 0, PaddingMode::reflect), ElementsAre(2, 3, 2, 1, 2, 3, 2, 1, 2, 3));
  EXPECT_THAT(padded({1, 2, 3}, 0, 7, PaddingMode::symmetric), ElementsAre(1, 2, 3, 3, 2, 1, 1, 2, 3, 3));
  EXPECT_THAT(padded({1, 2}, 3, 3, PaddingMode::symmetric), ElementsAre(2, 2, 1, 1, 2, 2, 1, 1));
  EXPECT_THAT(padded({7}, 2, 1, PaddingMode::reflect), ElementsAre(7, 7, 7, 7));
}

TEST(Pad, WithoutWidthsIsACopy) {
  const Tensor x = ones({2});
  for (const PaddingMode mode : {PaddingMode::zero, PaddingMode::reflect}) {
    const Tensor y = pad(x, {}, mode);
    EXPECT_EQ(y.to_vector<double>(), x.to_vector<double>());
    EXPECT_NE(y.array().data, x.array().data);
  }
  EXPECT_EQ(pad(ones({2, 0}), {{1, 0, 0}}, PaddingMode::reflect).shape(), (Shape{2, 0}));
}

TEST(Pad, AddsUpTheGradientsOfWhatItRepeats) {
  const Tensor x = tensor({1, 2, 3}, {.dtype = f64});
  Tape tape;
  tape.watch(x);
  const Tensor y = pad(x, {{0, 3, 1}}, PaddingMode::symmetric);  // 3 2 1 1 2 3 3
  EXPECT_THAT(tape.gradient(y, tensor({1, 2, 4, 8, 16, 32, 64}, {.dtype = f64}), {x})[0].to_vector<double>(),
              ElementsAre(12, 18, 97));
}

// Which of n elements stands at place i of an axis, by walking to and fro.
std::int64_t standing_at(std::int64_t i, std::int64_t n, PaddingMode mode) {
  while (i < 0 || i >= n) {
    if (mode == PaddingMode::replicate || n == 1) i = i < 0 ? 0 : n - 1;
    else if (mode == PaddingMode::reflect) i = i < 0 ? -i : 2 * (n - 1) - i;
    else i = i < 0 ? -1 - i : 2 * n - 1 - i;
  }
  return i;
}

TEST(Pad, BordersOfFewImagesAndOfMany) {
  for (const int n : {1, 2, 3, 5}) {
    for (const int border : {1, 2 * n, 5 * n, 9 * n, 30 * n + 1}) {
      const Tensor x = arange(2 * n, {.dtype = f64});
      for (const PaddingMode mode : {PaddingMode::reflect, PaddingMode::symmetric, PaddingMode::replicate}) {
        std::vector<std::int64_t> along;  // where each element of a padded row comes from
        for (std::int64_t i = -border; i < n + border + 1; ++i) along.push_back(standing_at(i, n, mode));
        Tape tape;
        tape.watch(x);
        const Tensor y = pad(reshape(x, {2, n}), {{1, border, border + 1}, {0, 1, 0}}, mode);
        const std::vector<double> got = y.to_vector<double>();
        std::vector<double> times(static_cast<std::size_t>(2 * n));
        ASSERT_EQ(y.shape(), (Shape{3, static_cast<std::int64_t>(along.size())}));
        const std::int64_t above = mode == PaddingMode::reflect ? 1 : 0;
        for (std::size_t k = 0; k < got.size(); ++k) {
          const std::size_t row = k / along.size(), column = k % along.size();
          const std::int64_t from = (row == 0 ? above : static_cast<std::int64_t>(row) - 1) * n + along[column];
          ASSERT_EQ(got[k], static_cast<double>(from)) << n << ' ' << border << ' ' << k;
          times[static_cast<std::size_t>(from)] += 1;
        }
        EXPECT_EQ(tape.gradient(y, ones_like(y), {x})[0].to_vector<double>(), times) << n << ' ' << border;
      }
    }
  }
}

// Rows that several tasks share, rows around such, several numbers as one, and what is not contiguous.
TEST(Pad, LongRows) {
  struct Problem {
    Shape shape;
    std::int64_t borders[3][2];
  };
  const Problem problems[] = {
      {{100000, 1, 1}, {{7, 90000}, {0, 0}, {0, 0}}}, {{40000, 3, 1}, {{50000, 1}, {0, 0}, {0, 0}}},
      {{3, 50000, 1}, {{2, 1}, {3, 4}, {0, 0}}},      {{2, 30000, 2}, {{0, 0}, {5, 2}, {0, 0}}},
      {{300, 20, 7}, {{0, 0}, {1, 1}, {2, 1}}},       {{4, 2, 1500}, {{3, 2}, {0, 0}, {0, 0}}},
      {{4, 9, 1500}, {{0, 0}, {5, 8}, {0, 0}}},       {{2, 1, 1500}, {{0, 0}, {2, 0}, {0, 0}}},
      {{3, 2, 40000}, {{1, 2}, {0, 0}, {0, 0}}},      {{90000, 1, 1}, {{90000, 89999}, {0, 0}, {0, 0}}}};
  for (const Problem& p : problems) {
    for (const PaddingMode mode :
         {PaddingMode::zero, PaddingMode::reflect, PaddingMode::symmetric, PaddingMode::replicate}) {
      Shape wide = p.shape;
      wide[1] += 2;
      const Tensor sliced =
          narrow(reshape(arange(wide[0] * wide[1] * wide[2], {.dtype = f64}), wide), 1, 1, p.shape[1]);
      const Tensor dense = contiguous(sliced), permuted = permute(contiguous(permute(sliced, {2, 0, 1})), {1, 2, 0});
      ASSERT_FALSE(sliced.is_contiguous());
      for (const Tensor& x : {dense, sliced, permuted}) {
        Tape tape;
        tape.watch(x);
        const auto& b = p.borders;
        const Tensor y = pad(x, {{0, b[0][0], b[0][1]}, {1, b[1][0], b[1][1]}, {2, b[2][0], b[2][1]}}, mode);
        std::vector<double> expected, dy, dx(static_cast<std::size_t>(x.size()));
        const auto source = [&](int axis, std::int64_t i) {
          const bool outside = i < 0 || i >= p.shape[axis];
          return outside && mode == PaddingMode::zero ? -1 : standing_at(i, p.shape[axis], mode);
        };
        for (std::int64_t i = -b[0][0]; i < p.shape[0] + b[0][1]; ++i) {
          for (std::int64_t j = -b[1][0]; j < p.shape[1] + b[1][1]; ++j) {
            for (std::int64_t k = -b[2][0]; k < p.shape[2] + b[2][1]; ++k) {
              const std::int64_t from[] = {source(0, i), source(1, j), source(2, k)};
              const bool outside = from[0] < 0 || from[1] < 0 || from[2] < 0;
              const std::int64_t place = (from[0] * p.shape[1] + from[1]) * p.shape[2] + from[2];
              const std::int64_t value = (from[0] * wide[1] + from[1] + 1) * wide[2] + from[2];
              dy.push_back(static_cast<double>(dy.size() % 17));
              expected.push_back(outside ? 0 : static_cast<double>(value));
              if (!outside) dx[static_cast<std::size_t>(place)] += dy.back();
            }
          }
        }
        ASSERT_EQ(static_cast<std::size_t>(y.size()), expected.size());
        EXPECT_TRUE(y.to_vector<double>() == expected) << p.shape.str() << ' ' << static_cast<int>(mode);
        const Tensor seed = from_vector(dy, y.shape());
        EXPECT_TRUE(tape.gradient(y, seed, {x})[0].to_vector<double>() == dx)
            << p.shape.str() << ' ' << static_cast<int>(mode);
      }
    }
  }
}

// A million ones beside 2^24, to which one more is nothing in f32: along a row, and of rows, each of two places.
TEST(Pad, GradientsOfManyPlacesAreAddedUpInF64) {
  for (const std::int64_t across : {0, 1}) {
    const Tensor x = ones({2, 1});
    Tape tape;
    tape.watch(x);
    const Tensor y = pad(x, {{0, 1000000, 0}, {1, across, 0}}, PaddingMode::replicate);
    Tensor dy = ones_like(y);
    narrow(dy, 0, 0, 1).fill_(16777216);
    const double columns = across == 0 ? 1 : 2;
    EXPECT_THAT(tape.gradient(y, dy, {x})[0].to_vector<double>(), ElementsAre(17777216 * columns, columns));
  }
}

TEST(Pad, GradientsOfBf16AreRoundedOnce) {
  for (const std::int64_t after : {4, 60, 302}) {  // 256 + 1 is 256 in bf16
    const Tensor x = tensor({1, 2}, {.dtype = bf16});
    Tape tape;
    tape.watch(x);
    const Tensor y = pad(x, {{0, 0, after}}, PaddingMode::replicate);
    Tensor dy = ones_like(y);
    narrow(dy, 0, 2, 1).fill_(254);
    EXPECT_THAT(tape.gradient(y, dy, {x})[0].to_vector<double>(), ElementsAre(1, static_cast<double>(after) + 254));
  }
  const Tensor x = tensor({1, 2, 3}, {.dtype = f16});  // with many mirror images
  Tape tape;
  tape.watch(x);
  const Tensor y = pad(x, {{0, 60, 0}}, PaddingMode::reflect);
  EXPECT_THAT(tape.gradient(y, ones_like(y), {x})[0].to_vector<double>(), ElementsAre(16, 31, 16));
}

// Elements of each size, and borders of each way: an edge, rising, falling; few elements of a row and many.
TEST(Pad, BordersOfEachDtype) {
  constexpr int rows = 3, columns = 5;
  for (const DType dtype : {u8, f16, i32, f64}) {
    for (const int unit : {1, 3}) {
      const Tensor x = cast(reshape(arange(rows * columns * unit), {rows, columns, unit}), dtype);
      for (const PaddingMode mode :
           {PaddingMode::zero, PaddingMode::reflect, PaddingMode::symmetric, PaddingMode::replicate}) {
        for (const auto& [before, after] : {std::pair(14, 12), std::pair(2, 1), std::pair(4, 4), std::pair(0, 1)}) {
          const Tensor y = mode == PaddingMode::zero ? pad(x, {{0, 1, 2}, {1, before, after}}, 7)
                                                     : pad(x, {{0, 1, 2}, {1, before, after}}, mode);
          const auto is_outside = [&](std::int64_t i, std::int64_t n) {
            return mode == PaddingMode::zero && (i < 0 || i >= n);
          };
          std::vector<double> expected;
          for (std::int64_t i = -1; i < rows + 2; ++i) {
            for (std::int64_t j = -before; j < columns + after; ++j) {
              const bool outside = is_outside(i, rows) || is_outside(j, columns);
              const std::int64_t from = standing_at(i, rows, mode) * columns + standing_at(j, columns, mode);
              for (std::int64_t k = 0; k < unit; ++k)
                expected.push_back(outside ? 7 : static_cast<double>(from * unit + k));
            }
          }
          EXPECT_EQ(cast(y, f64).to_vector<double>(), expected) << name_of(dtype) << ' ' << unit << ' ' << before;
        }
      }
    }
  }
}

TEST(RaggedPad, PadsEachSequenceByItself) {
  const Ragged x = Ragged::from_lengths(tensor({1, 2, 3}), {1, 0, 2});
  const Ragged y = pad(x, {{0, 1, 1}}, PaddingMode::reflect);
  EXPECT_THAT(y.offsets().lengths(), ElementsAre(3, 2, 4));
  EXPECT_THAT(y.values().to_vector<double>(), ElementsAre(1, 1, 1, 0, 0, 3, 2, 3, 2));
  EXPECT_THAT(pad(x, {{0, 1, 0}}, 9).values().to_vector<double>(), ElementsAre(9, 1, 9, 9, 2, 3));
}

}  // namespace
}  // namespace reel::test
