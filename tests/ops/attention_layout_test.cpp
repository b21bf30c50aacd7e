// Attention on tensors as layers store them: no copies, no memory for scores, the same numbers in every layout.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <tuple>

#include "reel/core/memory.h"
#include "reel/core/parallel.h"
#include "reel/core/tape.h"
#include "reel/ops/arithmetic.h"
#include "reel/ops/attention.h"
#include "reel/ops/convert.h"
#include "reel/ops/create.h"
#include "reel/ops/matmul.h"
#include "reel/ops/softmax.h"
#include "reel/ops/views.h"

namespace reel::test {
namespace {

using testing::Pointwise;

const TensorOptions kDouble{.dtype = f64};

Tensor attention(const Tensor& q, const Tensor& k, const Tensor& v, const AttentionOptions& options = {}) {
  return scaled_dot_product_attention(q, k, v, options);
}

MATCHER(IsClose, "") { return std::abs(std::get<0>(arg) - std::get<1>(arg)) <= 1e-12; }

TEST(Attention, MemoryIsLinearInTheLength) {
  const std::int64_t length = 2048, width = 16, tensor_bytes = length * width * 4;
  Generator generator(6);
  const Tensor q = randn({1, length, width}, generator), k = randn({1, length, width}, generator);
  const Tensor v = randn({1, length, width}, generator);
  Tape tape;
  for (const Tensor* x : {&q, &k, &v}) tape.watch(*x);
  const std::int64_t before = memory_stats().live_bytes;
  reset_peak_memory();
  const Tensor y = attention(q, k, v, {.causal = true});
  EXPECT_LT(memory_stats().live_bytes - before, tensor_bytes + length * 8 + 8192);  // y and two numbers per query
  const Tensors d = tape.gradient(y, y, {q, k, v});
  // All scores would be 16 MiB.
  EXPECT_LT(memory_stats().peak_bytes - before, std::int64_t{4} << 20);
}

TEST(Attention, TakesHeadsAsALayerSplitsThemWithoutACopy) {
  Generator generator(7);
  const auto split = [](const Tensor& x) { return transpose(reshape(x, {2, 65, 3, 8}), 1, 2); };  // [2, 3, 65, 8]
  const Tensor q = randn({2, 65, 24}, generator), k = randn({2, 65, 24}, generator), v = randn({2, 65, 24}, generator);
  const std::int64_t before = memory_stats().live_bytes;
  const Tensor y = attention(split(q), split(k), split(v));
  EXPECT_LT(memory_stats().live_bytes - before, 2 * 65 * (24 + 3) * 4 + 8192);
  EXPECT_TRUE(transpose(y, 1, 2).is_contiguous());
  const Tensor other = attention(contiguous(split(q)), contiguous(split(k)), contiguous(split(v)));
  EXPECT_TRUE(other.is_contiguous());
  EXPECT_EQ(other.to_vector<float>(), y.to_vector<float>());
}

// Queries, keys and values of one projection; also those of one place, of one sequence and of one head.
TEST(Attention, TakesThePartsOfOneProjectionWithoutACopy) {
  for (const auto& [batch, places, heads] :
       {std::tuple{2, 65, 3}, std::tuple{1, 65, 3}, std::tuple{4, 1, 3}, std::tuple{2, 65, 1}, std::tuple{1, 1, 2}}) {
    SCOPED_TRACE(std::to_string(batch) + " " + std::to_string(places) + " " + std::to_string(heads));
    Generator generator(7);
    const Tensor all = randn({batch, places, 3, heads, 8}, generator, kDouble);
    const auto part = [](const Tensor& x, std::int64_t i) { return transpose(select(x, 2, i), 1, 2); };
    // As much memory as for tensors of their own, which were there before.
    const auto peak = [](const Tensor& q, const Tensor& k, const Tensor& v) {
      const int threads = num_threads();
      set_num_threads(1);  // whether a second one gets a part, to work on in memory of its own, is chance
      const std::int64_t before = memory_stats().live_bytes;
      reset_peak_memory();
      attention(q, k, v);
      const std::int64_t bytes = memory_stats().peak_bytes - before;
      set_num_threads(threads);
      return bytes;
    };
    Tensors own;
    for (const std::int64_t i : {0, 1, 2}) own.push_back(transpose(contiguous(select(all, 2, i)), 1, 2));
    const std::int64_t least = peak(own[0], own[1], own[2]);
    EXPECT_LT(peak(part(all, 0), part(all, 1), part(all, 2)), least + 2048);
    const Tensor y = attention(part(all, 0), part(all, 1), part(all, 2));
    EXPECT_TRUE(transpose(y, 1, 2).is_contiguous());
    // Its gradients are those of copies.
    const auto gradient = [&](bool copies) {
      Tape tape;
      tape.watch(all);
      const auto of = [&](std::int64_t i) { return copies ? contiguous(part(all, i)) : part(all, i); };
      const Tensor result = attention(of(0), of(1), of(2), {.causal = true});
      Generator other(9);
      return tape.gradient(result, randn(result.shape(), other, kDouble), {all})[0].to_vector<double>();
    };
    EXPECT_THAT(gradient(false), Pointwise(IsClose(), gradient(true)));
  }
}

// Rows of which the heads do not lie together, and repeated ones.
TEST(Attention, OfAnyLayoutIsTheSame) {
  Generator generator(8);
  const Tensor x = randn({2, 3, 5, 8}, generator, kDouble);
  const std::vector<double> expected = attention(x, x, x).to_vector<double>();
  for (const Shape& order :
       {Shape{0, 2, 1, 3}, Shape{1, 0, 2, 3}, Shape{2, 0, 1, 3}, Shape{3, 2, 1, 0}, Shape{2, 1, 0, 3}}) {
    Shape inverse = order;
    for (int i = 0; i < 4; ++i) inverse[static_cast<int>(order[i])] = i;
    const Tensor y = permute(contiguous(permute(x, order)), inverse);
    EXPECT_THAT(attention(y, x, y).to_vector<double>(), Pointwise(IsClose(), expected)) << order.str();
    EXPECT_THAT(attention(y, y, y).to_vector<double>(), Pointwise(IsClose(), expected)) << order.str();
  }
  const Tensor row = randn({2, 3, 1, 8}, generator, kDouble), repeated = expand(row, {2, 3, 5, 8});
  EXPECT_THAT(attention(repeated, x, x).to_vector<double>(),
              Pointwise(IsClose(), attention(contiguous(repeated), x, x).to_vector<double>()));
}

TEST(Attention, OfTwoAxesHasOneHead) {
  Generator generator(8);
  const Tensor q = randn({5, 4}, generator, kDouble), k = randn({6, 4}, generator, kDouble);
  const Tensor v = randn({6, 3}, generator, kDouble);
  EXPECT_THAT(attention(q, k, v).to_vector<double>(),
              Pointwise(IsClose(), matmul(softmax(0.5 * matmul(q, transpose(k))), v).to_vector<double>()));
}

}  // namespace
}  // namespace reel::test
