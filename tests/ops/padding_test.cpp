// The examples of numpy.pad's documentation, and paddings wider than what they repeat, written out by hand.

#include "reel/ops/padding.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "reel/core/tape.h"
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

// By walking to and fro, however wide the border is.
TEST(Pad, BordersOfFewImagesAndOfMany) {
  for (const int n : {1, 2, 3, 5}) {
    for (const int border : {1, 2 * n, 5 * n, 9 * n, 30 * n + 1}) {
      const Tensor x = arange(2 * n, {.dtype = f64});
      for (const PaddingMode mode : {PaddingMode::reflect, PaddingMode::symmetric, PaddingMode::replicate}) {
        std::vector<std::int64_t> along;  // where each element of a padded row comes from
        for (std::int64_t i = -border; i < n + border + 1; ++i) {
          std::int64_t at = i;
          while (at < 0 || at >= n) {
            if (mode == PaddingMode::replicate || n == 1) at = at < 0 ? 0 : n - 1;
            else if (mode == PaddingMode::reflect) at = at < 0 ? -at : 2 * (n - 1) - at;
            else at = at < 0 ? -1 - at : 2 * n - 1 - at;
          }
          along.push_back(at);
        }
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

TEST(RaggedPad, PadsEachSequenceByItself) {
  const Ragged x = Ragged::from_lengths(tensor({1, 2, 3}), {1, 0, 2});
  const Ragged y = pad(x, {{0, 1, 1}}, PaddingMode::reflect);
  EXPECT_THAT(y.offsets().lengths(), ElementsAre(3, 2, 4));
  EXPECT_THAT(y.values().to_vector<double>(), ElementsAre(1, 1, 1, 0, 0, 3, 2, 3, 2));
  EXPECT_THAT(pad(x, {{0, 1, 0}}, 9).values().to_vector<double>(), ElementsAre(9, 1, 9, 9, 2, 3));
}

}  // namespace
}  // namespace reel::test
