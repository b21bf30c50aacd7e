// What the op-case table cannot say about indexing: which sequences come out, that each is the same alone as in a batch, and
// gradients that meet in one place.

#include "reel/ops/index.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <functional>

#include "reel/core/error.h"
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
#include "reel/tests/expect.h"

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

// For each row of a tensor or Ragged an index of its first rows, as a vector or in each column.
Tensor half_of_each(std::int64_t rows) {
  std::vector<std::int64_t> index;
  for (std::int64_t i = rows - 1; i >= 0; --i) index.push_back(i / 2);
  return from_vector(index);
}
Tensor in_columns(const Tensor& index) { return contiguous(expand(unsqueeze(index, 1), {index.size(), 3})); }
Ragged half_of_each(const Ragged& x) {
  Tensors parts{zeros({0}, kInteger)};
  for (std::int64_t s = 0; s < x.count(); ++s) parts.push_back(half_of_each(x.length(s)));
  return x.with(concatenate(parts));
}
Ragged in_columns(const Ragged& index) { return index.with(in_columns(index.values())); }

Tensor ids(const Tensor& x) { return cast(select(x, 1, 0) * 100, i64); }
Ragged ids(const Ragged& x) { return x.with(ids(x.values())); }

// One row per sequence as sequences of one row.
Ragged single(const Tensor& y) { return Ragged::from_lengths(y, Lengths(static_cast<std::size_t>(y.shape()[0]), 1)); }

// An op on a Ragged, and the same on one sequence as a tensor, if there is such an op. x has three columns.
struct Named {
  const char* name;
  std::function<Ragged(const Ragged&)> call;
  std::function<Tensor(const Tensor&)> one = {};
};
std::vector<Named> sequence_ops() {
  Generator generator(9);
  const Tensor table = randn({200, 3}, generator);
  const auto positive = [](const Tensor& x) { return select(x, 1, 0) > 0; };
  return {
      {"gather", [](const Ragged& x) { return gather(x, in_columns(half_of_each(x))); },
       [](const Tensor& x) { return gather(x, 0, in_columns(half_of_each(x.size(0)))); }},
      {"scatter_add", [](const Ragged& x) { return scatter_add(x, in_columns(half_of_each(x)), x); },
       [](const Tensor& x) { return scatter_add(x, 0, in_columns(half_of_each(x.size(0))), x); }},
      {"index_select rows", [](const Ragged& x) { return index_select(x, half_of_each(x)); },
       [](const Tensor& x) { return index_select(x, 0, half_of_each(x.size(0))); }},
      {"index_select",
       [](const Ragged& x) {
         return index_select(x, 1, tensor({2, 0}, kInteger));
       },
       [](const Tensor& x) {
         return index_select(x, 1, tensor({2, 0}, kInteger));
       }},
      {"masked_select", [=](const Ragged& x) { return masked_select(x, x.with(positive(x.values()))); },
       [=](const Tensor& x) {
         return reshape(masked_select(x, unsqueeze(positive(x), 1)), {-1, 3});
       }},
      {"slice", [](const Ragged& x) { return slice(x, 1, -1); },
       [](const Tensor& x) { return slice(x, 0, 1, std::max<std::int64_t>(x.size(0) - 1, 0)); }},
      {"concatenate",
       [](const Ragged& x) {
         return concatenate({x, x});
       },
       [](const Tensor& x) {
         return concatenate({x, x});
       }},
      {"sort", [](const Ragged& x) { return sort(x).values; }, [](const Tensor& x) { return sort(x, 0).values; }},
      {"argsort", [](const Ragged& x) { return argsort(x, Order::descending); },
       [](const Tensor& x) { return argsort(x, 0, Order::descending); }},
      {"topk", [](const Ragged& x) { return topk(x, 2).values; },
       [](const Tensor& x) { return topk(x, std::min<std::int64_t>(2, x.size(0)), 0).values; }},
      {"ngrams", [](const Ragged& x) { return ngrams(ids(x), 2); }, [](const Tensor& x) { return ngrams(ids(x), 2); }},
      {"murmur3", [](const Ragged& x) { return murmur3(ids(x)); }, [](const Tensor& x) { return murmur3(ids(x)); }},
      {"hash_embed", [=](const Ragged& x) { return hash_embed(table, ids(x)); },
       [=](const Tensor& x) { return hash_embed(table, ids(x)); }},
      {"pad",
       [](const Ragged& x) {
         return pad(x, {{0, 2, 5}, {1, 1, 0}}, PaddingMode::reflect);
       },
       [](const Tensor& x) {
         const auto mode = x.size(0) == 0 ? PaddingMode::zero : PaddingMode::reflect;
         return pad(x, {{0, 2, 5}, {1, 1, 0}}, mode);
       }},
      {"embedding_bag", [=](const Ragged& x) { return single(embedding_bag(table, half_of_each(x), Bag::mean)); }},
      {"embedding_bag max", [=](const Ragged& x) { return single(embedding_bag(table, half_of_each(x), Bag::max)); }},
      {"spmm",
       [=](const Ragged& x) {
         return single(spmm(half_of_each(x), x.with(contiguous(select(x.values(), 1, 1))), table));
       }},
  };
}

bool same_bits(const Tensor& a, const Tensor& b) {
  const Tensor x = contiguous(a), y = contiguous(b);
  return x.shape() == y.shape() && x.dtype() == y.dtype() &&
         std::memcmp(x.array().data, y.array().data, static_cast<std::size_t>(x.size()) * size_of(x.dtype())) == 0;
}

void expect_alone_as_in_batch(const Ragged& x) {
  for (const Named& op : sequence_ops()) {
    const Ragged batch = op.call(x);
    ASSERT_EQ(batch.count(), x.count()) << op.name;
    for (std::int64_t s = 0; s < x.count(); ++s) {
      EXPECT_TRUE(same_bits(op.call(take(x, {s})).values(), batch[s])) << op.name << ", sequence " << s << " of " << x;
      if (!op.one) continue;
      EXPECT_TRUE(same_bits(op.one(x[s]), batch[s])) << op.name << ", sequence " << s << " of " << x;
    }
  }
}

TEST(Sequences, AloneGiveTheSameBitsAsInABatch) {
  manual_seed(4);
  expect_alone_as_in_batch(Ragged::from_lengths(randn({400, 3}), {0, 1, 90, 0, 7, 230, 2, 70, 0}));
  Generator generator(7);
  for (int round = 0; round < 40; ++round) {
    Lengths lengths;
    std::int64_t total = 0;
    for (std::int64_t left = generator.below(6); left > 0; --left) {
      lengths.push_back(generator.below(2) * generator.below(6));  // none in more than half of the cases
      total += lengths.back();
    }
    expect_alone_as_in_batch(Ragged::from_lengths(randn({total, 3}), lengths));
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

TEST(ScatterAdd, HasTheBitsOfThePackedIndexWhereItIsExpanded) {
  Generator random(5);
  for (const int axis : {0, 1}) {
    const Tensor x = randn({3, 20, 40}, random), src = randn(axis == 0 ? Shape{50, 20, 40} : Shape{3, 50, 40}, random);
    for (const DType dtype : {i32, i64}) {
      const Tensor few = randint(0, x.shape()[axis], axis == 0 ? Shape{50, 1, 1} : Shape{3, 50, 1}, random);
      const Tensor rows = expand(cast(few, dtype), src.shape()), packed = contiguous(rows);
      ASSERT_EQ(rows.array().strides[2], 0);
      Tape tape;
      tape.watch(x);
      tape.watch(src);
      const auto bits_of = [&](const Tensor& index) {
        const Tensor added = scatter_add(x, axis, index, src), taken = gather(x, axis, index);
        std::vector<std::vector<float>> bits = {added.to_vector<float>(), taken.to_vector<float>()};
        for (const Tensor& dx : tape.gradient(added, added, {x, src})) bits.push_back(dx.to_vector<float>());
        bits.push_back(tape.gradient(taken, src, {x})[0].to_vector<float>());
        return bits;
      };
      EXPECT_EQ(bits_of(rows), bits_of(packed)) << axis << ' ' << name_of(dtype);
    }
  }
}

TEST(Gather, TellsThePositionInWhatWasExpanded) {
  const Tensor few = tensor({0, 1, 2, 1, 0, 20}, {2, 3, 1, 1}, kInteger), x = zeros({2, 20, 4, 5});
  EXPECT_THROW_WITH(gather(x, 1, expand(few, {2, 3, 4, 5})), IndexError, "gather", "[0, 20)", "got 20 at position 5");
  EXPECT_THROW_WITH(gather(x, 1, contiguous(expand(few, {2, 3, 4, 5}))), IndexError, "got 20 at position 100");
}

TEST(EmbeddingBag, OfNothingIsZeroOrForTheMaximumMinusInfinity) {
  const Ragged none = Ragged::from_lengths(zeros({0}, kInteger), {0});
  EXPECT_EQ(embedding_bag(ones({2, 1}), none, Bag::mean).item(), 0);
  EXPECT_EQ(embedding_bag(ones({2, 1}), none).item(), 0);
  EXPECT_EQ(embedding_bag(ones({2, 1}), none, Bag::max).item(), -INFINITY);
}

TEST(EmbeddingBag, WantsOneIndexPerRow) {
  const Ragged pairs = Ragged::from_lengths(tensor({0, 1, 2, 0}, {2, 2}, kInteger), {2});
  for (const Bag bag : {Bag::sum, Bag::mean, Bag::max})
    EXPECT_THROW(embedding_bag(ones({3, 2}), pairs, bag), ShapeError);
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
