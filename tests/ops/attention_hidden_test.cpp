// What a query does not see must reach neither its result nor a gradient, nor it the key: whatever stands there, the results
// are those of zeros there. By kernels and, under an outer tape, by recorded ops.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <optional>

#include "reel/core/tape.h"
#include "reel/ops/arithmetic.h"
#include "reel/ops/attention.h"
#include "reel/ops/convert.h"
#include "reel/ops/create.h"
#include "reel/ops/logical.h"
#include "reel/ops/matmul.h"
#include "reel/ops/ragged.h"
#include "reel/ops/reduce.h"
#include "reel/ops/unary.h"
#include "reel/ops/views.h"
#include "reel/tests/expect.h"

namespace reel::test {
namespace {

using testing::Each;
using Function = std::function<Tensor(const Tensors&)>;

constexpr double kPoisons[] = {NAN, INFINITY, -INFINITY};

// Rows [first, first + count) of axis `axis` of a copy of x are `value`.
Tensor with_rows(const Tensor& x, int axis, std::int64_t first, std::int64_t count, double value) {
  Tensor y = clone(x);
  narrow(y, axis, first, count).fill_(value);
  return y;
}

// The result, and the gradients of all inputs for the result's gradient dy.
Tensors with_gradients(const Function& f, const Tensors& in, const Tensor& dy) {
  Tape tape;
  for (const Tensor& x : in) tape.watch(x);
  const Tensor y = f(in);
  Tensors results = tape.gradient(y, dy, in);
  results.push_back(y);
  return results;
}

std::vector<double> numbers(const Tensor& x) { return x.to_vector<double>(); }

void expect_near(const Tensor& got, const Tensor& expected, double bound) {
  const std::vector<double> a = numbers(got), b = numbers(expected);
  ASSERT_EQ(a.size(), b.size());
  for (std::size_t i = 0; i < a.size(); ++i) ASSERT_NEAR(a[i], b[i], bound) << "element " << i;
}

// f(q, k, v) has the same results and gradients whatever stands in the keys and values from `end` on of axis `axis`.
void expect_hidden(const Function& f, const Tensors& in, int axis, std::int64_t end) {
  const std::int64_t keys = in[1].shape()[axis];
  const auto with = [&](double value) {
    Tensors changed = in;
    for (const std::size_t i : {1, 2}) changed[i] = with_rows(in[i], axis, end, keys - end, value);
    return changed;
  };
  Generator generator(1);
  const Tensor dy = randn(f(in).shape(), generator, {.dtype = in[0].dtype()});
  const Tensors expected = with_gradients(f, with(0), dy);
  for (const std::size_t i : {1, 2}) EXPECT_THAT(numbers(narrow(expected[i], axis, end, keys - end)), Each(0));
  const double bound = in[0].dtype() == f32 ? 1e-5 : 1e-13;
  for (const double poison : kPoisons) {
    SCOPED_TRACE(poison);
    const Tensors got = with_gradients(f, with(poison), dy);
    for (std::size_t i = 0; i < got.size(); ++i) EXPECT_EQ(numbers(got[i]), numbers(expected[i])) << i;
    Tape outer;
    const Tensors recorded = with_gradients(f, with(poison), dy);
    for (std::size_t i = 0; i < got.size(); ++i) expect_near(recorded[i], expected[i], bound);
  }
}

// q [2, 2, queries, 4], k and v [2, 2, keys, 4 and 3]; `by_row`: stored as a layer splits its width into heads.
Tensors operands(std::int64_t queries, std::int64_t keys, DType dtype, bool by_row) {
  Generator generator(2);
  const auto make = [&](std::int64_t rows, std::int64_t width) {
    if (!by_row) return randn({2, 2, rows, width}, generator, {.dtype = dtype});
    return transpose(randn({2, rows, 2, width}, generator, {.dtype = dtype}), 1, 2);
  };
  return {make(queries, 4), make(keys, 4), make(keys, 3)};
}

TEST(HiddenKeys, OfAMaskMayBeAnything) {
  struct Sizes {
    std::int64_t queries, keys, end;  // the last: of the keys that are seen
  };
  for (const auto& [queries, keys, end] : {Sizes{3, 5, 2}, Sizes{150, 300, 131}, Sizes{1, 40, 0}})
    for (const DType dtype : {f32, f64})
      for (const bool by_row : {false, true})
        for (const bool causal : {false, true}) {
          SCOPED_TRACE(std::to_string(keys) + " keys, " + name_of(dtype) + (by_row ? ", by row" : "") +
                       (causal ? ", causal" : ""));
          const Tensor seen = arange(keys) < static_cast<double>(end);
          for (const Tensor& mask : {seen, log(cast(seen, dtype))}) {
            const auto f = [&](const Tensors& in) {
              return scaled_dot_product_attention(in[0], in[1], in[2], {.mask = mask, .causal = causal});
            };
            expect_hidden(f, operands(queries, keys, dtype, by_row), 2, end);
          }
        }
}

TEST(HiddenKeys, OfAMaskOverSequencesMayBeAnything) {
  Generator generator(3);
  const std::vector<std::int64_t> queries = {4, 0, 130, 2}, keys = {3, 7, 200, 5};
  const Tensors in{randn({136, 2, 4}, generator), randn({215, 2, 4}, generator), randn({215, 2, 3}, generator)};
  for (const bool causal : {false, true}) {
    // The last two keys of the last sequence: its keys 3 and 4, which no sequence sees.
    const Tensor mask = logical_or(arange(200) < 3.0, arange(200) > 4.0);
    const auto f = [&](const Tensors& in) {
      const Ragged k = Ragged::from_lengths(in[1], keys);
      return scaled_dot_product_attention(Ragged::from_lengths(in[0], queries), k, k.with(in[2]),
                                          {.mask = mask, .causal = causal})
          .values();
    };
    expect_hidden(f, in, 0, 213);
  }
}

TEST(HiddenKeys, OfAMaskWithAGradientMayBeAnything) {
  Tensors in = operands(6, 9, f64, false);
  in.push_back(with_rows(zeros({6, 9}, {.dtype = f64}), 1, 7, 2, -INFINITY));
  const auto f = [](const Tensors& in) { return scaled_dot_product_attention(in[0], in[1], in[2], {.mask = in[3]}); };
  expect_hidden(f, in, 2, 7);
}

TEST(HiddenKeys, OfLaterQueriesAloneDoNotReachEarlierOnes) {
  for (const DType dtype : {f32, f64})
    for (const std::int64_t length : {6, 200}) {
      const Tensors in = operands(length, length, dtype, false);
      const std::int64_t from = length - 3;  // the first query that sees what is poisoned
      const Tensor mask = unsqueeze(arange(length), 1) >= arange(length);
      for (const AttentionOptions& options : {AttentionOptions{.causal = true}, AttentionOptions{.mask = mask}})
        for (const double poison : kPoisons)
          for (const std::size_t operand : {1, 2})
            for (const bool recorded : {false, true}) {
              const auto f = [&](const Tensors& in) {
                return scaled_dot_product_attention(in[0], in[1], in[2], options);
              };
              Tensors poisoned = in;
              poisoned[operand] = with_rows(in[operand], 2, from, 1, poison);
              Generator generator(4);
              const Tensor dy = randn(f(in).shape(), generator, {.dtype = dtype});
              const Tensors expected = with_gradients(f, in, dy);
              std::optional<Tape> outer;
              if (recorded) outer.emplace();
              const Tensors got = with_gradients(f, poisoned, dy);
              for (const std::size_t i : {0, 3}) {
                expect_near(narrow(got[i], 2, 0, from), narrow(expected[i], 2, 0, from), dtype == f32 ? 1e-5 : 1e-13);
                EXPECT_GT(sum(isnan(narrow(got[i], 2, from, 3)) + isinf(narrow(got[i], 2, from, 3))).item(), 0);
              }
            }
    }
}

TEST(HiddenKeys, HaveNothingOfTheQueriesThatDoNotSeeThem) {
  for (const DType dtype : {f32, f64})
    for (const std::int64_t length : {6, 200}) {
      const Tensors in = operands(length, length, dtype, false);
      const std::int64_t from = 2;  // the query that is poisoned sees the keys up to itself
      const auto f = [&](const Tensors& in) {
        return scaled_dot_product_attention(in[0], in[1], in[2], {.causal = true});
      };
      Generator generator(5);
      const Tensor dy = randn(f(in).shape(), generator, {.dtype = dtype});
      const Tensors expected = with_gradients(f, in, dy);
      for (const double poison : kPoisons)
        for (const bool of_dy : {false, true})
          for (const bool recorded : {false, true}) {
            Tensors poisoned = in;
            if (!of_dy) poisoned[0] = with_rows(in[0], 2, from, 1, poison);
            std::optional<Tape> outer;
            if (recorded) outer.emplace();
            const Tensors got = with_gradients(f, poisoned, of_dy ? with_rows(dy, 2, from, 1, poison) : dy);
            for (const std::size_t i : {1, 2}) {
              const auto rest = [&](const Tensor& x) { return narrow(x, 2, from + 1, length - from - 1); };
              expect_near(rest(got[i]), rest(expected[i]), dtype == f32 ? 1e-5 : 1e-13);
              EXPECT_FALSE(std::isfinite(sum(narrow(got[i], 2, 0, from + 1)).item()));
            }
          }
    }
}

TEST(HiddenKeys, HaveNoPartInSecondDerivatives) {
  const Tensors in = operands(4, 7, f64, false);
  const Tensor seen = arange(7) < 5.0;
  const auto products = [&](double value) {
    const Tensor k = with_rows(in[1], 2, 5, 2, value), v = with_rows(in[2], 2, 5, 2, value);
    Tape outer;
    for (const Tensor* x : {&in[0], &k, &v}) outer.watch(*x);
    const Tensors first = [&] {
      Tape inner;
      const Tensor y = scaled_dot_product_attention(in[0], k, v, {.mask = seen, .causal = true});
      return inner.gradient(sum(square(y)), {in[0], k, v});
    }();
    return outer.gradient(sum(square(first[0])) + sum(square(first[1])) + sum(square(first[2])), {in[0], k, v});
  };
  const Tensors expected = products(0);
  for (const double poison : kPoisons) {
    const Tensors got = products(poison);
    for (std::size_t i = 0; i < 3; ++i) expect_near(got[i], expected[i], 1e-12);
  }
}

TEST(Attention, GradientsOfEqualKeysAreEqualHoweverLargeTheScore) {
  // The logarithm of the sum would be lost beside a score of 1e12.
  const Tensor q = full({1, 1}, 1e6), k = full({2, 1}, 1e6), v = tensor({1, 3}, {2, 1});
  for (const bool recorded : {false, true}) {
    std::optional<Tape> outer;
    if (recorded) outer.emplace();
    const Tensors d = with_gradients(
        [](const Tensors& in) { return scaled_dot_product_attention(in[0], in[1], in[2]); }, {q, k, v}, ones({1, 1}));
    EXPECT_THAT(numbers(d[2]), Each(0.5));
    EXPECT_THAT(numbers(d[3]), Each(2));
  }
}

}  // namespace
}  // namespace reel::test
