// Which dtype comes of which, as PyTorch has it: its documentation's "Type promotion", written out op by op.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>

#include "reel/core/parallel.h"
#include "reel/core/tape.h"
#include "reel/ops/activations.h"
#include "reel/ops/arithmetic.h"
#include "reel/ops/convert.h"
#include "reel/ops/create.h"
#include "reel/ops/elementwise.h"
#include "reel/ops/logical.h"
#include "reel/ops/order.h"
#include "reel/ops/ragged.h"
#include "reel/ops/rearrange.h"
#include "reel/ops/reduce.h"
#include "reel/ops/scan.h"
#include "reel/ops/statistics.h"
#include "reel/ops/unary.h"
#include "reel/ops/views.h"
#include "reel/tests/expect.h"

namespace reel::test {
namespace {

using testing::ElementsAre;

// Three numbers; unsigned ones are their sizes.
Tensor numbers(DType dtype) {
  return cast(tensor({dtype == u8 || dtype == bool8 ? 2.0 : -2.0, 0, 3}, {.dtype = i64}), dtype);
}

void expect(const char* name, const Tensor& y, DType dtype, const std::vector<double>& values) {
  EXPECT_EQ(y.dtype(), dtype) << name;
  EXPECT_EQ(y.to_vector<double>(), values) << name << " in " << name_of(dtype);
}

struct Function {
  const char* name;
  std::function<Tensor(const Tensor&)> of;
  std::vector<double> of_signed, of_unsigned;  // of -2, 0, 3 and of 2, 0, 3
};

TEST(Promotion, IntegersStayIntegers) {
  const Function functions[] = {
      {"neg", [](const Tensor& x) { return neg(x); }, {2, 0, -3}, {254, 0, 253}},
      {"abs", [](const Tensor& x) { return abs(x); }, {2, 0, 3}, {2, 0, 3}},
      {"sign", [](const Tensor& x) { return sign(x); }, {-1, 0, 1}, {1, 0, 1}},
      {"square", [](const Tensor& x) { return square(x); }, {4, 0, 9}, {4, 0, 9}},
      {"relu", [](const Tensor& x) { return relu(x); }, {0, 0, 3}, {2, 0, 3}},
      {"clamp", [](const Tensor& x) { return clamp(x, -1, 2); }, {-1, 0, 2}, {2, 0, 2}},
      {"clamp far", [](const Tensor& x) { return clamp(x, std::int64_t{-1} << 40, 1); }, {-2, 0, 1}, {1, 0, 1}},
      {"pow", [](const Tensor& x) { return pow(x, 3); }, {-8, 0, 27}, {8, 0, 27}},
      {"add", [](const Tensor& x) { return x + 1; }, {-1, 1, 4}, {3, 1, 4}},
      {"maximum", [](const Tensor& x) { return maximum(x, 1); }, {1, 1, 3}, {2, 1, 3}},
      {"sort", [](const Tensor& x) { return sort(x).values; }, {-2, 0, 3}, {0, 2, 3}},
      {"topk", [](const Tensor& x) { return topk(x, 1).values; }, {3}, {3}},
      {"unique", [](const Tensor& x) { return unique(x).values; }, {-2, 0, 3}, {0, 2, 3}},
      {"max", [](const Tensor& x) { return max(x, 0); }, {3}, {3}},
      {"amin", [](const Tensor& x) { return amin(x, 0); }, {-2}, {0}},
      {"tril",
       [](const Tensor& x) {
         return tril(expand(x, {3, 3}), -2);
       },
       {0, 0, 0, 0, 0, 0, -2, 0, 0},
       {0, 0, 0, 0, 0, 0, 2, 0, 0}},
  };
  for (const Function& f : functions)
    for (const DType dtype : {i32, i64, u8})
      expect(f.name, f.of(numbers(dtype)), dtype, dtype == u8 ? f.of_unsigned : f.of_signed);
}

TEST(Promotion, IntegersAreCountedInI64) {
  for (const DType dtype : {i32, i64, u8, bool8}) {
    const Tensor x = numbers(dtype);
    const double first = dtype == bool8 ? 1 : x.to_vector<double>()[0], last = dtype == bool8 ? 1 : 3;
    expect("sum", sum(x, 0), i64, {first + last});
    expect("prod", prod(x, 0), i64, {0});
    expect("cumsum", cumsum(x, 0), i64, {first, first, first + last});
    expect("cumprod", cumprod(x, 0), i64, {first, 0, 0});
  }
}

TEST(Promotion, FractionsOfIntegersAreF32) {
  const std::pair<const char*, Tensor (*)(const Tensor&, SourceLocation)> functions[] = {
      {"exp", exp},     {"log", log},           {"tanh", tanh},     {"sigmoid", sigmoid}, {"sqrt", sqrt},
      {"expm1", expm1}, {"log1p", log1p},       {"rsqrt", rsqrt},   {"sin", sin},         {"cos", cos},
      {"erf", erf},     {"erfc", erfc},         {"lgamma", lgamma}, {"digamma", digamma}, {"log1mexp", log1mexp},
      {"logit", logit}, {"log_ndtr", log_ndtr},
  };
  for (const auto& [name, f] : functions)
    for (const DType dtype : {i32, i64, u8, bool8}) {
      const Tensor x = numbers(dtype), y = f(x, SourceLocation{}), expected = f(cast(x, f32), SourceLocation{});
      ASSERT_EQ(y.dtype(), f32) << name;
      const std::vector<double> got = y.to_vector<double>(), want = expected.to_vector<double>();
      for (std::size_t i = 0; i < got.size(); ++i)
        EXPECT_TRUE(got[i] == want[i] || (std::isnan(got[i]) && std::isnan(want[i])))
            << name << " of " << name_of(dtype);
    }
  for (const DType dtype : {i32, i64, u8}) {
    const Tensor x = numbers(dtype);
    expect("div", x / 2, f32, {dtype == u8 ? 1.0 : -1.0, 0, 1.5});
    expect("clamp", clamp(x, 0, 1.5), f32, {dtype == u8 ? 1.5 : 0.0, 0, 1.5});
    expect("add", x + 0.5, f32, {dtype == u8 ? 2.5 : -1.5, 0.5, 3.5});
    EXPECT_EQ(polygamma(1, x).dtype(), f32);
  }
}

TEST(Promotion, WhatHasNoMeaningForIntegersRefusesThem) {
  EXPECT_THROW_WITH(mean(arange(3)), DTypeError, "mean", "f32 or f64, got i64");
  EXPECT_THROW_WITH(var(arange(3)), DTypeError, "var", "f32 or f64, got i64");
  EXPECT_THROW_WITH(gelu(arange(3)), DTypeError, "gelu", "f32 or f64, got i64");
  const Tensor flags = arange(3) > 0;
  EXPECT_THROW_WITH(neg(flags), DTypeError, "neg", "x must be numbers, got bool8");
  EXPECT_THROW_WITH(relu(flags), DTypeError, "relu", "x must be numbers, got bool8");
  EXPECT_THROW_WITH(flags - flags, DTypeError, "sub", "two bool8");
  EXPECT_THROW_WITH(pow(flags, flags), DTypeError, "pow", "two bool8");
}

TEST(Promotion, OfBooleans) {
  const Tensor a = tensor({0, 0, 1, 1}) > 0, b = tensor({0, 1, 0, 1}) > 0;
  expect("add", a + b, bool8, {0, 1, 1, 1});
  expect("mul", a * b, bool8, {0, 0, 0, 1});
  expect("maximum", maximum(a, b), bool8, {0, 1, 1, 1});
  expect("minimum", minimum(a, b), bool8, {0, 0, 0, 1});
  EXPECT_EQ((a / b).dtype(), f32);
  expect("plus a number", a + 1, i64, {1, 1, 2, 2});
  expect("times a fraction", a * 0.5, f32, {0, 0, 0.5, 0.5});
  expect("max", max(a, 0), bool8, {1});
  expect("amin", amin(a), bool8, {0});
  expect("argmax", argmax(b, 0), i64, {1});
  expect("max_which", max_which(b, 0).which, i64, {1});
  expect("sort", sort(a, 0, Order::descending).values, bool8, {1, 1, 0, 0});
  expect("argsort", argsort(b, 0), i64, {0, 2, 1, 3});
  expect("unique", unique(a).values, bool8, {0, 1});
  expect("triu", triu(expand(a, {4, 4}), 3), bool8, {0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0});
}

TEST(Promotion, TheWiderOfTwoTensorsWins) {
  // From narrow to wide.
  constexpr DType order[] = {bool8, u8, i32, i64, f32, f64};
  const Tensor condition = numbers(bool8);
  for (int i = 0; i < 6; ++i)
    for (int j = 0; j < 6; ++j) {
      const Tensor a = numbers(order[i]), b = numbers(order[j]);
      const DType wider = order[std::max(i, j)];
      EXPECT_EQ((a + b).dtype(), wider) << i << " " << j;
      EXPECT_EQ(maximum(a, b).dtype(), wider) << i << " " << j;
      EXPECT_EQ(where(condition, a, b).dtype(), wider) << i << " " << j;
      EXPECT_EQ((a == b).dtype(), bool8);
    }
}

TEST(Promotion, TensorsWithoutAxesAndNumbersCountByTheirKind) {
  const Tensor x = numbers(f32), one = full({}, 1, {.dtype = f64}), count = full({}, 1, {.dtype = i64});
  EXPECT_EQ((x + one).dtype(), f32);
  EXPECT_EQ((numbers(u8) + count).dtype(), u8);
  EXPECT_EQ((numbers(i64) + one).dtype(), f64);
  const Tensor condition = numbers(bool8);
  EXPECT_EQ(where(condition, x, one).dtype(), f32);
  EXPECT_EQ(where(condition, numbers(u8), 1).dtype(), u8);
  EXPECT_EQ(where(condition, numbers(i64), 0.5).dtype(), f32);
  EXPECT_EQ(where(condition, condition, 1).dtype(), i64);
}

TEST(Promotion, WhereKeepsTheValuesOfBothSides) {
  const Tensor c = tensor({1, 0, 1}) > 0;
  expect("where", where(c, tensor({-7, 8, 9}, {.dtype = i64}), tensor({0.5, 1.5, 2.5})), f32, {-7, 1.5, 9});
  expect("where", where(c, numbers(i32), numbers(i64) * (std::int64_t{1} << 40)), i64, {-2, 0, 3});
  // The gradient goes to the floating side alone.
  const Tensor x = tensor({0.5, 1.5, 2.5});
  Tape tape;
  tape.watch(x);
  EXPECT_THAT(tape.gradient(sum(where(c, numbers(i64), x)), {x})[0].to_vector<double>(), ElementsAre(0, 1, 0));
}

TEST(Promotion, ComparisonsTakeNumbersBeyondTheTypeAsTheyAre) {
  const Tensor bytes = tensor({1, 255}, {.dtype = u8}), ints = tensor({1, -2}, {.dtype = i32});
  EXPECT_THAT((bytes == 257).to_vector<double>(), ElementsAre(0, 0));
  EXPECT_THAT((bytes > -1).to_vector<double>(), ElementsAre(1, 1));
  EXPECT_THAT((bytes >= 255).to_vector<double>(), ElementsAre(0, 1));
  EXPECT_THAT((ints < 3000000000).to_vector<double>(), ElementsAre(1, 1));
  EXPECT_THAT((-3000000000 < ints).to_vector<double>(), ElementsAre(1, 1));
}

TEST(Promotion, NumbersBeyondTheTypeAreRefused) {
  const Tensor bytes = tensor({1, 255}, {.dtype = u8}), ints = tensor({1, -2}, {.dtype = i32});
  constexpr std::int64_t kFar = std::int64_t{1} << 40;
  EXPECT_THROW_WITH(ints + kFar, Error, "add", "i32", "1099511627776", "promotion_test.cpp");
  EXPECT_THROW_WITH(kFar - ints, Error, "sub", "i32", "1099511627776", "promotion_test.cpp");
  EXPECT_THROW_WITH(bytes * 256, Error, "mul", "u8", "256");
  EXPECT_THROW_WITH(maximum(bytes, -1), Error, "maximum", "u8", "-1");
  EXPECT_THROW_WITH(minimum(ints, kFar), Error, "minimum", "i32");
  EXPECT_THROW_WITH(pow(bytes, 300), Error, "pow", "u8", "300");
  EXPECT_THROW_WITH(Ragged::from_lengths(ints, {2}) + kFar, Error, "add", "i32");
  EXPECT_THAT((bytes - 1).to_vector<double>(), ElementsAre(0, 254));
  EXPECT_THAT((bytes + -1).to_vector<double>(), ElementsAre(0, 254));
  EXPECT_THAT((ints / kFar).to_vector<double>(), ElementsAre(0x1p-40, -0x1p-39));
  EXPECT_EQ((arange(2) + kFar)[1].item<std::int64_t>(), kFar + 1);
}

TEST(Promotion, IntegersWrapAround) {
  const std::int64_t least = std::numeric_limits<std::int64_t>::min();
  const Tensor x = full({1}, least, {.dtype = i64});
  EXPECT_EQ(neg(x).item<std::int64_t>(), least);
  EXPECT_EQ(abs(x).item<std::int64_t>(), least);
  EXPECT_EQ(square(full({1}, 200, {.dtype = u8})).item(), 200 * 200 % 256);
}

// The op-case table's suite looks at f32 and f64.
TEST(Integers, AreTheSameForAnyNumberOfThreads) {
  Generator generator(1);
  const Tensor drawn = randint(-1000, 1000, {700, 300}, generator);
  const auto results = [&](DType dtype) {
    const Tensor x = cast(dtype == u8 ? clamp(abs(drawn), 0, 255) : drawn, dtype);
    const Ragged r = Ragged::from_lengths(x, {0, 400, 1, 299});
    Tensors all{cast(x, i32), x == 3, flip(x, 0), contiguous(transpose(x)), where(x != 0, x, 1)};
    for (const int axis : {0, 1}) {
      for (const Tensor& y : {sum(x, axis), prod(x, axis), max(x, axis), amin(x, axis), argmax(x, axis), any(x, axis)})
        all.push_back(y);
      for (const Tensor& y : {cumsum(x, axis), sort(x, axis).values, argsort(x, axis)}) all.push_back(y);
    }
    for (const Tensor& y : {sum(x), max(x), argmin(x, 0), unique(x).counts, sum(r), max(r), argmin(r)})
      all.push_back(y);
    if (dtype != bool8)
      for (const Tensor& y : {x + x, x * x, -x, abs(x), square(x), clamp(x, 1, 5), maximum(x, 2)}) all.push_back(y);
    return all;
  };
  const int before = num_threads();
  for (const DType dtype : {u8, i32, i64, bool8}) {
    set_num_threads(1);
    const Tensors expected = results(dtype);
    for (const int threads : {2, 3, 7, 16}) {
      set_num_threads(threads);
      const Tensors got = results(dtype);
      for (std::size_t i = 0; i < got.size(); ++i)
        EXPECT_EQ(got[i].to_vector<std::int64_t>(), expected[i].to_vector<std::int64_t>())
            << "result " << i << " in " << name_of(dtype) << ", " << threads << " threads";
    }
  }
  set_num_threads(before);
}

}  // namespace
}  // namespace reel::test
