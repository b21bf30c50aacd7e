// What the op-case table cannot say about indexing: which sequences come out, that each is the same alone as in a batch, and
// gradients that meet in one place.

#include "reel/ops/index.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <functional>

#include "reel/core/tape.h"
#include "reel/ops/arithmetic.h"
#include "reel/ops/convert.h"
#include "reel/ops/create.h"
#include "reel/ops/hashing.h"
#include "reel/ops/order.h"
#include "reel/ops/padding.h"
#include "reel/ops/reduce.h"
#include "reel/ops/sparse.h"
#include "reel/ops/views.h"

namespace reel::test {
namespace {

using testing::ElementsAre;
using Lengths = std::vector<std::int64_t>;

const TensorOptions kInteger{.dtype = i64};

Ragged sample() { return Ragged::from_lengths(reshape(arange(12), {6, 2}), {1, 0, 3, 2}); }

std::vector<std::int64_t> integers(const Tensor& x) { return x.to_vector<std::int64_t>(); }

TEST(RaggedSlice, ClipsAtTheEndsOfEachSequence) {
  EXPECT_THAT(slice(sample(), -2, 100).offsets().lengths(), ElementsAre(1, 0, 2, 2));
  EXPECT_THAT(slice(sample(), 1, -1).offsets().lengths(), ElementsAre(0, 0, 1, 0));
  EXPECT_THAT(slice(sample(), 2, 1).offsets().lengths(), ElementsAre(0, 0, 0, 0));
  const Ragged each = slice(sample(), Lengths{0, -5, 1, -1}, Lengths{1, 5, 2, 9});
  EXPECT_THAT(each.offsets().lengths(), ElementsAre(1, 0, 1, 1));
  EXPECT_THAT(integers(each.values()), ElementsAre(0, 1, 4, 5, 10, 11));
}

TEST(RaggedConcatenate, JoinsRowsOrSequences) {
  const Ragged rows = concatenate({sample(), slice(sample(), 0, 1)});
  EXPECT_THAT(rows.offsets().lengths(), ElementsAre(2, 0, 4, 3));
  EXPECT_THAT(integers(rows[3]), ElementsAre(8, 9, 10, 11, 8, 9));
  const Ragged batches =
      concatenate_batches({sample(), Ragged::from_lengths(ones({0, 2}, kInteger), {0, 0}), sample()});
  EXPECT_THAT(batches.offsets().lengths(), ElementsAre(1, 0, 3, 2, 0, 0, 1, 0, 3, 2));
}

TEST(RaggedTake, OfNoSequencesIsAnEmptyBatch) {
  const Ragged none = take(sample(), Lengths{});
  EXPECT_EQ(none.count(), 0);
  EXPECT_EQ(none.values().shape(), (Shape{0, 2}));
  EXPECT_EQ(take(none, Lengths{}).count(), 0);
  EXPECT_THAT(take(sample(), {-1, 1, -1}).offsets().lengths(), ElementsAre(2, 0, 2));
}

TEST(RaggedMaskedSelect, KeepsEmptySequences) {
  const Ragged x = sample();
  const Ragged y = masked_select(x, x.with(select(x.values(), 1, 0) >= 6));
  EXPECT_THAT(y.offsets().lengths(), ElementsAre(0, 0, 1, 2));
  EXPECT_THAT(integers(y.values()), ElementsAre(6, 7, 8, 9, 10, 11));
}

// Each op on a Ragged of my kind, its result as a Ragged.
struct Named {
  const char* name;
  std::function<Ragged(const Ragged&)> call;
};
std::vector<Named> sequence_ops() {
  const auto rows = [](const Ragged& x) {  // the last row first
    std::vector<std::int64_t> index;
    for (std::int64_t s = 0; s < x.count(); ++s)
      for (std::int64_t i = x.length(s) - 1; i >= 0; --i) index.push_back(i / 2);
    return x.with(from_vector(index));
  };
  const auto each = [rows](const Ragged& x) {
    const Tensor index = rows(x).values();
    return x.with(contiguous(expand(unsqueeze(index, 1), {x.total(), x.values().shape()[1]})));
  };
  const auto ids = [](const Ragged& x) { return x.with(cast(select(x.values(), 1, 0) * 100, i64)); };
  // One row per sequence as sequences of one row.
  const auto single = [](const Tensor& y) {
    return Ragged::from_lengths(y, Lengths(static_cast<std::size_t>(y.shape()[0]), 1));
  };
  static Generator generator(9);
  static const Tensor table = randn({200, 3}, generator);
  return {
      {"gather", [=](const Ragged& x) { return gather(x, each(x)); }},
      {"scatter_add", [=](const Ragged& x) { return scatter_add(x, each(x), x); }},
      {"index_select rows", [=](const Ragged& x) { return index_select(x, rows(x)); }},
      {"index_select",
       [=](const Ragged& x) {
         return index_select(x, 1, tensor({2, 0}, kInteger));
       }},
      {"masked_select", [=](const Ragged& x) { return masked_select(x, x.with(select(x.values(), 1, 0) > 0)); }},
      {"slice", [=](const Ragged& x) { return slice(x, 1, -1); }},
      {"concatenate",
       [=](const Ragged& x) {
         return concatenate({x, x});
       }},
      {"sort", [=](const Ragged& x) { return sort(x).values; }},
      {"argsort", [=](const Ragged& x) { return argsort(x); }},
      {"topk", [=](const Ragged& x) { return topk(x, 2).values; }},
      {"ngrams", [=](const Ragged& x) { return ngrams(ids(x), 2); }},
      {"murmur3", [=](const Ragged& x) { return murmur3(ids(x)); }},
      {"hash_embed", [=](const Ragged& x) { return hash_embed(table, ids(x)); }},
      {"pad",
       [=](const Ragged& x) {
         return pad(x, {{0, 2, 5}, {1, 1, 0}}, PaddingMode::reflect);
       }},
      {"embedding_bag", [=](const Ragged& x) { return single(embedding_bag(table, rows(x), Bag::mean)); }},
      {"embedding_bag max", [=](const Ragged& x) { return single(embedding_bag(table, rows(x), Bag::max)); }},
      {"spmm",
       [=](const Ragged& x) { return single(spmm(rows(x), x.with(contiguous(select(x.values(), 1, 1))), table)); }},
  };
}

bool same_bits(const Tensor& a, const Tensor& b) {
  const Tensor x = contiguous(a), y = contiguous(b);
  return x.shape() == y.shape() && x.dtype() == y.dtype() &&
         std::memcmp(x.array().data, y.array().data, static_cast<std::size_t>(x.size()) * size_of(x.dtype())) == 0;
}

TEST(Sequences, AloneGiveTheSameBitsAsInABatch) {
  manual_seed(4);
  const Ragged x = Ragged::from_lengths(randn({400, 3}), {0, 1, 90, 0, 7, 230, 2, 70, 0});
  for (const Named& op : sequence_ops()) {
    const Ragged batch = op.call(x);
    ASSERT_EQ(batch.count(), x.count()) << op.name;
    for (std::int64_t s = 0; s < x.count(); ++s)
      EXPECT_TRUE(same_bits(op.call(take(x, {s})).values(), batch[s])) << op.name << ", sequence " << s;
  }
}

TEST(Sequences, OfAnEmptyBatchAreAnEmptyBatch) {
  const Ragged nothing = Ragged::from_lengths(ones({0, 3}), {});
  for (const Named& op : sequence_ops()) EXPECT_EQ(op.call(nothing).count(), 0) << op.name;
  EXPECT_EQ(sort_by_length(nothing).sorted.count(), 0);
}

TEST(Gather, AddsUpTheGradientsOfSeveralUses) {
  const Tensor x = tensor({1, 2, 3}, {.dtype = f64}), index = tensor({0, 0, 2}, kInteger);
  Tape tape;
  tape.watch(x);
  const Tensor y = gather(x, 0, index) * 10 + gather(x, 0, index) + x;
  EXPECT_THAT(tape.gradient(y, ones_like(y), {x})[0].to_vector<double>(), ElementsAre(23, 1, 12));
}

TEST(Gather, HasAThirdDerivative) {
  // d^3/dx^3 of sum(gather(x)^3) is 6 for each time that an element is taken.
  const Tensor x = tensor({1, 2, 3}, {.dtype = f64}), index = tensor({0, 0, 2}, kInteger);
  Tape outer;
  outer.watch(x);
  const Tensor second = [&] {
    Tape middle;
    middle.watch(x);
    const Tensor first = [&] {
      Tape inner;
      inner.watch(x);
      const Tensor y = gather(x, 0, index);
      return inner.gradient(sum(y * y * y), {x})[0];
    }();
    return middle.gradient(sum(first), {x})[0];
  }();
  EXPECT_THAT(outer.gradient(sum(second), {x})[0].to_vector<double>(), ElementsAre(12, 0, 6));
}

TEST(ScatterAdd, AddsInAscendingOrder) {
  // In this order alone the large numbers cancel before the small one comes.
  const Tensor src = tensor({1e8, -1e8, 1, 1e8, 1, -1e8});
  const Tensor y = scatter_add(zeros({2}), 0, tensor({0, 0, 0, 1, 1, 1}, kInteger), src);
  EXPECT_THAT(y.to_vector<double>(), ElementsAre(1, 0));
}

TEST(EmbeddingBag, OfNothingIsZeroOrForTheMaximumMinusInfinity) {
  const Ragged none = Ragged::from_lengths(zeros({0}, kInteger), {0});
  EXPECT_EQ(embedding_bag(ones({2, 1}), none, Bag::mean).item(), 0);
  EXPECT_EQ(embedding_bag(ones({2, 1}), none).item(), 0);
  EXPECT_EQ(embedding_bag(ones({2, 1}), none, Bag::max).item(), -INFINITY);
}

TEST(Spmm, IsTheProductOfTheMatrices) {
  // [[0 2 0], [0 0 0], [1 0 3]] times a vector, and times a matrix of rank 3.
  const Ragged index = Ragged::from_lengths(tensor({1, 0, 2}, {.dtype = i32}), {1, 0, 2});
  const Ragged values = index.with(tensor({2, 1, 3}));
  EXPECT_THAT(spmm(index, values, tensor({10, 20, 30})).to_vector<double>(), ElementsAre(40, 0, 100));
  EXPECT_EQ(spmm(index, values, ones({3, 2, 2})).shape(), (Shape{3, 2, 2}));
}

}  // namespace
}  // namespace reel::test
