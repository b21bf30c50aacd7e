#include "reel/nn/batches.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <set>

#include "reel/core/error.h"
#include "reel/nn/digits.h"
#include "reel/ops/create.h"
#include "reel/ops/reduce.h"

namespace reel::nn {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

using Rows = std::vector<std::vector<std::int64_t>>;  // of each batch

// Row i is i everywhere, and so is its target.
Dataset numbered(std::int64_t n) { return {arange(n), arange(n)}; }

Rows rows_of(Batches& data) {
  Rows rows;
  for (auto [inputs, targets] : data) {
    rows.push_back(inputs.to_vector<std::int64_t>());
    EXPECT_EQ(rows.back(), targets.to_vector<std::int64_t>());
  }
  return rows;
}

std::vector<std::int64_t> flat(const Rows& rows) {
  std::vector<std::int64_t> all;
  for (const auto& batch : rows) all.insert(all.end(), batch.begin(), batch.end());
  return all;
}

TEST(Batches, GoThroughTheRowsInOrder) {
  Batches data = batches(numbered(7), {.size = 3});
  EXPECT_EQ(data.batches_per_epoch(), 3);
  EXPECT_THAT(rows_of(data), ElementsAre(ElementsAre(0, 1, 2), ElementsAre(3, 4, 5), ElementsAre(6)));
}

TEST(Batches, DropLastLeavesOutWhatDoesNotFillABatch) {
  Batches data = batches(numbered(7), {.size = 3, .drop_last = true});
  EXPECT_EQ(data.batches_per_epoch(), 2);
  EXPECT_EQ(rows_of(data).size(), 2u);
  Batches exact = batches(numbered(6), {.size = 3, .drop_last = true});
  EXPECT_EQ(rows_of(exact).size(), 2u);
}

TEST(Batches, AnEmptyDataSetHasNone) {
  Batches data = batches(numbered(0), {.size = 3, .shuffle = true, .epochs = 2});
  EXPECT_TRUE(rows_of(data).empty());
  Batches small = batches(numbered(2), {.size = 3, .drop_last = true});
  EXPECT_TRUE(rows_of(small).empty());
  Batches none = batches(numbered(2), {.epochs = 0});
  EXPECT_TRUE(rows_of(none).empty());
}

TEST(Batches, ShufflingKeepsEachRowOnceAndDiffersByEpoch) {
  Batches data = batches(numbered(257), {.size = 32, .shuffle = true, .epochs = 2, .seed = 1});
  const std::vector<std::int64_t> all = flat(rows_of(data));
  ASSERT_EQ(all.size(), 514u);
  std::vector<std::int64_t> first(all.begin(), all.begin() + 257), second(all.begin() + 257, all.end());
  EXPECT_NE(first, second);
  std::sort(first.begin(), first.end());
  std::sort(second.begin(), second.end());
  EXPECT_EQ(first, second);
  EXPECT_EQ(first, arange(257).to_vector<std::int64_t>());
}

TEST(Batches, ASeedFixesTheOrder) {
  const auto order = [](std::uint64_t seed) {
    Batches data = batches(numbered(100), {.size = 100, .shuffle = true, .seed = seed});
    return flat(rows_of(data));
  };
  EXPECT_EQ(order(1), order(1));
  EXPECT_NE(order(1), order(2));
  EXPECT_EQ(order(~std::uint64_t{0}), order(~std::uint64_t{0}));
}

TEST(Batches, WithoutASeedTheProcesssGeneratorDecides) {
  const auto order = [] {
    Batches data = batches(numbered(100), {.size = 100, .shuffle = true});
    return flat(rows_of(data));
  };
  manual_seed(5);
  const auto first = order();
  EXPECT_NE(order(), first);
  manual_seed(5);
  EXPECT_EQ(order(), first);
  const PhiloxState before = random_state();
  Batches plain = batches(numbered(3));  // needs no seed and draws none
  EXPECT_EQ(random_state().counter, before.counter);
}

TEST(Batches, ANewLoopGoesOnWithTheNextEpoch) {
  Batches twice = batches(numbered(10), {.size = 4, .shuffle = true, .epochs = 2, .seed = 3});
  Batches once = batches(numbered(10), {.size = 4, .shuffle = true, .seed = 3});
  Rows rows = rows_of(once);
  const Rows more = rows_of(once);
  rows.insert(rows.end(), more.begin(), more.end());
  EXPECT_EQ(rows, rows_of(twice));
  EXPECT_EQ(once.epoch(), 2);
  EXPECT_EQ(once.step(), 0);
}

TEST(Batches, ALoopThatWasLeftIsContinued) {
  Batches whole = batches(numbered(10), {.size = 3, .shuffle = true, .seed = 3});
  Batches data = batches(numbered(10), {.size = 3, .shuffle = true, .seed = 3});
  Rows rows;
  for (auto [inputs, targets] : data) {
    rows.push_back(inputs.to_vector<std::int64_t>());
    if (data.step() == 2) break;
  }
  const Rows rest = rows_of(data);
  rows.insert(rows.end(), rest.begin(), rest.end());
  EXPECT_EQ(rows, rows_of(whole));
}

TEST(Batches, ALoopInsideALoopEndsBoth) {
  Batches data = batches(numbered(10), {.size = 3, .epochs = 2});
  std::int64_t outer = 0, inner = 0;
  for (const Batch& batch : data) {
    outer += batch.inputs.size(0);
    for (const Batch& next : data) inner += next.inputs.size(0);
    ASSERT_LE(outer, 3);
  }
  EXPECT_EQ(outer, 3);
  EXPECT_EQ(inner, 17);
  EXPECT_EQ(data.epoch(), 2);
  EXPECT_EQ(rows_of(data).size(), 8u);  // the next loop has two epochs again
}

TEST(Batches, StepIsZeroInTheLastBatchOfAnEpoch) {
  std::vector<std::int64_t> steps, epochs;
  Batches data = batches(numbered(5), {.size = 2, .epochs = 2});
  for (auto [inputs, targets] : data) {
    steps.push_back(data.step());
    epochs.push_back(data.epoch());
  }
  EXPECT_THAT(steps, ElementsAre(1, 2, 0, 1, 2, 0));
  EXPECT_THAT(epochs, ElementsAre(0, 0, 1, 1, 1, 2));
}

TEST(Batches, AStateContinuesExactlyFromEveryPlace) {
  const BatchOptions options{.size = 4, .shuffle = true, .epochs = 3, .seed = 9};
  Batches whole = batches(numbered(10), options);
  const Rows expected = rows_of(whole);
  for (std::size_t cut = 0; cut <= expected.size(); ++cut) {
    Batches first = batches(numbered(10), options);
    Rows rows;
    Batch batch;
    while (rows.size() < cut && first.next(batch)) rows.push_back(batch.inputs.to_vector<std::int64_t>());
    Batches second = batches(numbered(10), {.size = 4, .shuffle = true, .epochs = 3, .seed = 77});
    second.load_state(first.state());
    const Rows rest = rows_of(second);
    rows.insert(rows.end(), rest.begin(), rest.end());
    ASSERT_EQ(rows, expected) << cut;
  }
}

TEST(Batches, AnAlienStateIsRefusedAndChangesNothing) {
  Batches data = batches(numbered(10), {.size = 4, .shuffle = true, .seed = 9});
  const std::vector<std::int64_t> good = data.state().to_vector<std::int64_t>();
  const auto refused = [&](std::size_t at, std::int64_t value) {
    std::vector<std::int64_t> bad = good;
    bad[at] = value;
    EXPECT_THROW(data.load_state(from_vector(bad)), Error) << at;
  };
  EXPECT_THROW(data.load_state(batches(numbered(10), {.size = 4}).state()), Error);  // in another order
  refused(1, -1);                                                                    // epoch
  refused(2, 3);                                                                     // step, of three batches
  refused(2, -1);
  refused(3, 1);  // an epoch before its loop
  refused(1, std::numeric_limits<std::int64_t>::max());
  refused(4, 11);
  refused(5, 5);
  refused(6, 1);
  EXPECT_THROW(data.load_state(zeros({7})), Error);
  EXPECT_THROW(data.load_state(zeros({6}, {.dtype = i64})), Error);
  EXPECT_EQ(data.state().to_vector<std::int64_t>(), good);
}

TEST(Batches, OwnTheirData) {
  Batches data = [] {
    const Dataset dataset = numbered(3);
    return batches(dataset);
  }();
  EXPECT_THAT(flat(rows_of(data)), ElementsAre(0, 1, 2));
}

TEST(Batches, BadArgumentsAreNamedWithTheCallersLine) {
  EXPECT_THROW(batches({arange(3), arange(4)}), ShapeError);
  EXPECT_THROW(batches({arange(3), Tensor()}), Error);
  EXPECT_THROW(batches({arange(3), zeros({})}), ShapeError);
  EXPECT_THROW(batches(numbered(3), {.epochs = -1}), Error);
  try {
    batches(numbered(3), {.size = 0});
    FAIL();
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("batches: size >= 1 is required, got 0"));
    EXPECT_THAT(error.what(), HasSubstr("nn_batches_test.cpp:"));
  }
}

TEST(Digits, AreTensorsFromPaperToInk) {
  const Dataset train = digits::train(), test = digits::test();
  EXPECT_EQ(train.inputs.shape(), (Shape{1437, 1, 8, 8}));
  EXPECT_EQ(test.inputs.shape(), (Shape{360, 1, 8, 8}));
  EXPECT_EQ(train.targets.shape(), (Shape{1437}));
  EXPECT_EQ(train.targets.dtype(), i64);
  EXPECT_EQ(max(train.inputs).item(), 1);
  EXPECT_EQ(min(train.inputs).item(), 0);
  const digits::Images& all = digits::images();
  EXPECT_EQ(test.targets[359].item<std::int64_t>(), all.labels[digits::kImages - 1]);
  EXPECT_EQ(test.inputs[0][0][4][3].item(), all.pixels[digits::kTrain][4 * 8 + 3] / 16.0);
  const auto labels = train.targets.to_vector<std::int64_t>();
  EXPECT_EQ(std::set<std::int64_t>(labels.begin(), labels.end()).size(), 10u);
}

}  // namespace
}  // namespace reel::nn
