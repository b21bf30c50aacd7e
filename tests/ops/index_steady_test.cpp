// Indexing, sorting and sparse sums in a training step call malloc no more once the step is warm.

#include <gtest/gtest.h>

#include <functional>

#include "reel/core/tape.h"
#include "reel/ops/create.h"
#include "reel/ops/hashing.h"
#include "reel/ops/index.h"
#include "reel/ops/order.h"
#include "reel/ops/padding.h"
#include "reel/ops/sparse.h"
#include "reel/tests/malloc_count.h"

namespace reel::test {
namespace {

TEST(SteadyIndexing, CallsNoMalloc) {
  if (!malloc_is_counted()) GTEST_SKIP() << "a sanitizer stands in for malloc";
  const std::int64_t at_first = malloc_calls();
  manual_seed(1);
  const Ragged x = Ragged::from_lengths(randn({60, 8}), {0, 20, 7, 33});
  const Ragged ids = x.with(arange(60));
  const Tensor table = randn({100, 8}), index = randint(0, 8, {100, 5}), few = tensor({1, 2}, {.dtype = i64});
  const std::vector<Ragged> twice = {x, x};
  const std::vector<std::pair<const char*, std::function<Tensor()>>> ops = {
      {"gather", [&] { return gather(table, 1, index); }},
      {"gather ragged", [&] { return gather(x, argsort(x)).values(); }},
      {"scatter_add", [&] { return scatter_add(table, 1, index, gather(table, 1, index)); }},
      {"index_select", [&] { return index_select(table, 1, few); }},
      {"take",
       [&] {
         return take(x, {2, 1}).values();
       }},
      {"slice", [&] { return slice(x, 1, -1).values(); }},
      {"concatenate", [&] { return concatenate(twice).values(); }},
      {"concatenate_batches", [&] { return concatenate_batches(twice).values(); }},
      {"sort", [&] { return sort(table).values; }},
      {"topk ragged", [&] { return topk(x, 3).values.values(); }},
      {"gather_add", [&] { return gather_add(table, index); }},
      {"embedding_bag", [&] { return embedding_bag(table, ids, Bag::mean); }},
      {"hash_embed", [&] { return hash_embed(table, ngrams(ids, 2)).values(); }},
      {"pad", [&] {
         return pad(x, {{0, 2, 1}, {1, 1, 1}}, PaddingMode::reflect).values();
       }}};
  for (const auto& [name, op] : ops) {
    const auto step = [&op = op, &table, &x] {
      Tape tape;
      tape.watch(table);
      tape.watch(x.values());
      const Tensor y = op();
      tape.gradient(y, y, {table, x.values()});
    };
    for (int i = 0; i < 4; ++i) step();
    const std::int64_t before = malloc_calls();
    for (int i = 0; i < 4; ++i) step();
    EXPECT_EQ(malloc_calls(), before) << name;
  }
  EXPECT_GT(malloc_calls(), at_first);  // the first steps did
}

}  // namespace
}  // namespace reel::test
