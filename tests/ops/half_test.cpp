// bf16 and f16: what moves, converts and multiplies them is right, and everything else says that it does not take them.

#include <gmock/gmock.h>

#include <random>
#include <set>

#include "reel/core/error.h"
#include "reel/core/ops.h"
#include "reel/core/parallel.h"
#include "reel/core/parameter.h"
#include "reel/ops/arithmetic.h"
#include "reel/ops/custom_op.h"
#include "reel/ops/logical.h"
#include "reel/ops/matmul.h"
#include "reel/ops/promote.h"
#include "reel/ops/reduce.h"
#include "reel/ops/unary.h"
#include "reel/tests/expect.h"
#include "reel/tests/ops/half_rows.h"

namespace reel::test {
namespace {

using testing::HasSubstr;

class HalfRow : public RowTest {};

TEST_P(HalfRow, IsRightOrRefused) {
  for (const DType dtype : {bf16, f16}) check_half_row(row(), dtype, Device::cpu());
}

INSTANTIATE_TEST_SUITE_P(Table, HalfRow, testing::ValuesIn(op_cases()), test_name);

TEST(HalfOps, MovingConvertingAndMultiplyingAreNotRefused) {
  const std::set<std::string> taken = {"matmul",        "linear",      "cast",    "clone",     "contiguous",
                                       "stop_gradient", "reshape",     "flatten", "transpose", "permute",
                                       "squeeze",       "unsqueeze",   "expand",  "slice",     "narrow",
                                       "select",        "concatenate", "stack",   "split"};
  std::set<std::string> seen;
  for (const OpCase& row : op_cases()) {
    const std::string name = row.name.substr(0, row.name.find('/'));
    const bool ragged = row.name.find("ragged") != std::string::npos;  // whose rows' gradients are added up
    if (taken.count(name) == 0 || ragged) continue;
    seen.insert(name);
    for (const DType dtype : {bf16, f16})
      EXPECT_TRUE(check_half_row(row, dtype, Device::cpu())) << row.name << " " << reel::name_of(dtype);
  }
  EXPECT_EQ(seen, taken) << "a name without a row";
}

Tensor normal(const Shape& shape, std::uint64_t seed, DType dtype) {
  Generator generator(seed);
  return cast(randn(shape, generator), dtype);
}

Tensor wide(const Tensor& x) { return cast(x, f32); }

TEST(HalfOps, ProductsAreTheF32ProductsRoundedOnce) {
  for (const DType dtype : {bf16, f16})
    for (const auto& [a, b] : {std::pair{Shape{3, 4}, Shape{4, 5}}, std::pair{Shape{65, 257}, Shape{257, 129}},
                               std::pair{Shape{2, 1, 7, 9}, Shape{3, 9, 4}}, std::pair{Shape{9}, Shape{9, 4}},
                               std::pair{Shape{33, 9}, Shape{9}}, std::pair{Shape{3, 0}, Shape{0, 2}},
                               std::pair{Shape{0, 3}, Shape{3, 2}}}) {
      const Tensor x = normal(a, 1, dtype), y = normal(b, 2, dtype);
      EXPECT_TRUE(same_bits(matmul(x, y), cast(matmul(wide(x), wide(y)), dtype))) << a.str() << b.str();
      const Tensor turned = a.rank() == 1 ? x : transpose(contiguous(transpose(x, -2, -1)), -2, -1);
      EXPECT_TRUE(same_bits(matmul(turned, y), matmul(x, y))) << a.str();
    }
  for (const DType dtype : {bf16, f16})
    for (const Epilogue epilogue : {Epilogue::none, Epilogue::relu}) {
      const Tensor x = normal({4, 33, 31}, 1, dtype), w = normal({17, 31}, 2, dtype), bias = normal({17}, 3, dtype);
      const Tensor y = linear(x, w, bias, epilogue);
      EXPECT_EQ(y.dtype(), dtype);
      EXPECT_TRUE(same_bits(y, cast(linear(wide(x), wide(w), wide(bias), epilogue), dtype)));
      EXPECT_TRUE(same_bits(linear(x[1], w, bias, epilogue), y[1]));
    }
}

// What the backends promise of it beyond what matmul and linear ask for: one matrix for a batch, rows with gaps, and a sum with
// what is there, in f32 and rounded once.
TEST(HalfOps, AProductOfTheBackendEqualsThatOfF32) {
  std::mt19937_64 random(3);
  for (int round = 0; round < 100; ++round) {
    const auto pick = [&](int most) { return static_cast<std::int64_t>(random() % static_cast<unsigned>(most)) + 1; };
    const DType dtype = round % 2 == 0 ? bf16 : f16;
    const std::int64_t batch = pick(3), m = pick(20), n = pick(40), k = pick(40), gap = pick(4) - 1;
    Gemm gemm{.m = m, .n = n, .k = k, .batch = batch, .trans_a = pick(2) == 1, .trans_b = pick(2) == 1};
    gemm.lda = (gemm.trans_a ? m : k) + gap;
    gemm.ldb = (gemm.trans_b ? k : n) + gap;
    gemm.ldc = n + gap;
    gemm.stride_a = pick(2) == 1 ? 0 : (gemm.trans_a ? k : m) * gemm.lda + gap;
    gemm.stride_b = pick(2) == 1 ? 0 : (gemm.trans_b ? n : k) * gemm.ldb;
    gemm.stride_c = m * gemm.ldc + gap;
    gemm.accumulate = pick(2) == 1;
    const Tensor a = normal({batch * 44 * 44}, random(), dtype), b = normal({batch * 44 * 44}, random(), dtype);
    const Tensor bias = normal({n}, random(), dtype), c = normal({batch * gemm.stride_c}, random(), dtype);
    const bool with_bias = pick(2) == 1;
    const auto run = [&](DType as) {
      const Tensor in[] = {cast(a, as), cast(b, as), cast(bias, as)}, out = clone(cast(c, as));
      Gemm problem = gemm;
      problem.dtype = as;
      problem.a = in[0].array().data;
      problem.b = in[1].array().data;
      problem.bias = with_bias ? in[2].array().data : nullptr;
      problem.c = out.array().data;
      backend(Device::cpu()).gemm(problem);
      return out;
    };
    ASSERT_TRUE(same_bits(run(dtype), cast(run(f32), dtype))) << round;  // between the rows too nothing is written
  }
}

TEST(HalfOps, ProductsHaveTheSameBitsForAnyNumberOfThreadsAndAlone) {
  const int before = num_threads();
  for (const DType dtype : {bf16, f16}) {
    const Tensor x = normal({301, 257}, 1, dtype), w = normal({515, 257}, 2, dtype), bias = normal({515}, 3, dtype);
    set_num_threads(1);
    const Tensor y = linear(x, w, bias);
    for (const int threads : {2, 3, 7, 16}) {
      set_num_threads(threads);
      EXPECT_TRUE(same_bits(linear(x, w, bias), y)) << threads;
      EXPECT_TRUE(same_bits(linear(narrow(x, 0, 300, 1), w, bias), narrow(y, 0, 300, 1))) << threads;
    }
  }
  set_num_threads(before);
}

// Half a unit in the last place, and the f32 chain's own error.
TEST(HalfOps, ProductsAreWithinTheirBoundOfDoubles) {
  for (const DType dtype : {bf16, f16}) {
    const Tensor a = normal({20, 301}, 1, dtype), b = normal({301, 30}, 2, dtype);
    const auto y = matmul(a, b).to_vector<double>();
    const Tensor exact = matmul(cast(a, f64), cast(b, f64)), sizes = matmul(abs(cast(a, f64)), abs(cast(b, f64)));
    const auto want = exact.to_vector<double>(), size = sizes.to_vector<double>();
    const double half_unit = dtype == bf16 ? 0x1p-8 : 0x1p-11;
    for (std::size_t i = 0; i < y.size(); ++i)
      ASSERT_LE(std::abs(y[i] - want[i]), half_unit * std::abs(want[i]) * 1.01 + 301 * 0x1p-24 * size[i]) << i;
  }
}

TEST(HalfOps, AProductBeyondTheRangeIsInfinityAndNaNStays) {
  const Tensor x = tensor({60000, 60000, NAN, 1}, {2, 2}, {.dtype = f16}), one = ones({2, 1}, {.dtype = f16});
  EXPECT_EQ(matmul(x, one)[0].item(), INFINITY);
  EXPECT_TRUE(std::isnan(matmul(x, one)[1].item()));
  EXPECT_TRUE(std::isnan(linear(x, ones({1, 2}, {.dtype = f16}), {}, Epilogue::relu)[1].item()));
}

// Gradients have the dtype of what they are gradients of; they are those of the same numbers in f32, each product
// rounded.
TEST(HalfOps, GradientsAreThoseOfF32Rounded) {
  for (const DType dtype : {bf16, f16}) {
    const auto gradients = [&](DType computed) {
      const Tensor x = cast(normal({6, 9}, 1, dtype), computed), w = cast(normal({5, 9}, 2, dtype), computed),
                   bias = cast(normal({5}, 3, dtype), computed), dy = cast(normal({6, 5}, 4, dtype), computed);
      Tape tape;
      for (const Tensor* leaf : {&x, &w, &bias}) tape.watch(*leaf);
      return tape.gradient(linear(x, w, bias, Epilogue::relu), dy, {x, w, bias});
    };
    const Tensors half = gradients(dtype), single = gradients(f32);
    for (std::size_t i = 0; i < half.size(); ++i)
      EXPECT_TRUE(same_bits(half[i], cast(single[i], dtype))) << "input " << i;
  }
}

TEST(HalfOps, TheGradientOfAMatrixThatABatchSharesIsRoundedOnce) {
  const Tensor shared = cast(ones({1, 1}), bf16), batch = cast(ones({9, 257, 1}), bf16);
  Tape tape;
  tape.watch(shared);
  const Tensor right = matmul(batch, shared), left = matmul(shared, unsqueeze(batch, 3));
  EXPECT_EQ(cast(tape.gradient(right, ones_like(right), {shared}, {.keep = true})[0], f32).item(), 2320);  // of 2313
  EXPECT_EQ(cast(tape.gradient(left, ones_like(left), {shared})[0], f32).item(), 2320);
}

TEST(HalfOps, GradientsThatMeetAreAddedUp) {
  for (const DType dtype : {bf16, f16})
    for (const bool recorded : {false, true}) {
      std::optional<Tape> outer;
      if (recorded) outer.emplace();
      const Tensor x = normal({4, 6}, 1, dtype), b = normal({6, 3}, 2, dtype);
      Tape tape;
      tape.watch(x);
      // Broadcast over a batch, used twice, and cut into parts.
      const Tensor y = cast(matmul(expand(x, {3, 4, 6}), b), f32),
                   parts = cast(concatenate({x[0], x[2], x[0]}, 0), f32);
      const Tensor loss = sum(y) + sum(parts);
      const Tensor dx = tape.gradient(loss, Tensors{x})[0];
      EXPECT_EQ(dx.dtype(), dtype);
      const Tensor expected = 3 * sum(wide(b), 1) + tensor({2, 0, 1, 0}, {4, 1});  // for each row of x
      for (std::int64_t i = 0; i < 24; ++i)
        EXPECT_NEAR(reshape(dx, {24})[i].item(), reshape(expected, {24})[i].item(), dtype == bf16 ? 0.2 : 0.02);
    }
}

TEST(HalfOps, MixedTrainingKeepsF32ParametersAndTheirGradients) {
  const Parameter w(cast(normal({5, 9}, 2, bf16), f32), "w");
  const Tensor x = normal({6, 9}, 1, bf16);
  Tape tape;
  const Tensor loss = sum(cast(linear(x, cast(w, bf16)), f32));
  tape.backward(loss);
  const Tensor expected = expand(sum(wide(x), 0), {5, 9});
  ASSERT_EQ(w.gradient().dtype(), f32);
  EXPECT_TRUE(same_bits(w.gradient(), wide(cast(contiguous(expected), bf16))));
  EXPECT_THROW_WITH(Parameter(x, "w"), DTypeError,
                    "Parameter: the initial value must be f32 or f64, got bf16; keep it in f32");
}

TEST(HalfOps, AWiderTypeWinsAndBothHalvesBecomeF32) {
  const Tensor brain = tensor({1.5, 2}, {.dtype = bf16}), half = tensor({1.5, 2}, {.dtype = f16});
  EXPECT_EQ((brain + tensor({1, 2})).dtype(), f32);
  EXPECT_EQ((tensor({1, 2}, {.dtype = f64}) * half).dtype(), f64);
  EXPECT_EQ((brain + half).dtype(), f32);
  EXPECT_EQ((brain + half).to_vector<float>(), (std::vector<float>{3, 4}));
  EXPECT_EQ((brain < half).to_vector<int>(), (std::vector<int>{0, 0}));
  // bf16 remains bf16 beside integers and numbers, as in PyTorch: but then there is no kernel.
  EXPECT_THROW_WITH(brain + 1, DTypeError, "add:", "got bf16; cast to f32 first", "half_test.cpp");
  EXPECT_THROW_WITH(half * tensor({1, 2}, {.dtype = i64}), DTypeError, "mul:", "got f16; cast to f32 first");
}

TEST(HalfOps, WhatIsRefusedNamesTheOpTheTypeAndTheLine) {
  const Tensor x = ones({2, 3}, {.dtype = bf16});
  EXPECT_THROW_WITH(x + x, DTypeError,
                    "add: numbers to compute with must be f32, f64 or integers, got bf16; cast to f32 first (at ",
                    "half_test.cpp");
  EXPECT_THROW_WITH(exp(x), DTypeError, "exp: x must be f32 or f64, got bf16; cast to f32 first", "half_test.cpp");
  EXPECT_THROW_WITH(sum(x), DTypeError, "sum: ", "got bf16; cast to f32 first", "half_test.cpp");
  EXPECT_THROW_WITH(x < x, DTypeError, "less: ", "got bf16; cast to f32 first", "half_test.cpp");
  // Made of other ops:
  for (const double exponent : {-1.0, -0.5, 0.0, 0.5, 1.0, 2.0, 3.0})
    EXPECT_THROW_WITH(pow(x, exponent), DTypeError, "pow: a must be f32 or f64, got bf16", "half_test.cpp");
  EXPECT_THROW_WITH(isinf(x), DTypeError, "isinf: x must be f32 or f64, got bf16", "half_test.cpp");
  EXPECT_THROW_WITH(isfinite(x), DTypeError, "isfinite: x must be f32 or f64, got bf16", "half_test.cpp");
  const Ragged rows = Ragged::from_lengths(x, {1, 1});
  EXPECT_THROW_WITH(amax(rows), DTypeError, "amax: x must be f32 or f64, got bf16", "half_test.cpp");
  EXPECT_THROW_WITH(amin(rows), DTypeError, "amin: x must be f32 or f64, got bf16", "half_test.cpp");
  EXPECT_THROW_WITH(argmax(rows), DTypeError, "argmax: x must be f32 or f64, got bf16", "half_test.cpp");
  EXPECT_THROW_WITH(argmin(rows), DTypeError, "argmin: x must be f32 or f64, got bf16", "half_test.cpp");
  EXPECT_THROW_WITH(matmul(x, ones({3, 2})), DTypeError, "matmul: b must be bf16 like a, got f32", "half_test.cpp");
  EXPECT_THROW_WITH(rand({2}, {.dtype = f16}), DTypeError, "rand: the dtype must be f32 or f64, got f16");
  EXPECT_THROW_WITH(arange(3, {.dtype = f16}), DTypeError, "arange: ", "got f16");
  const CustomOp op = CustomOp("mine").cpu([](const CpuContext&, Inputs, Outputs) {});
  EXPECT_THROW_WITH(op(x), DTypeError, "mine: input 0 must be f32 or f64, got bf16; cast to f32 first");
}

TEST(HalfOps, AStrictTapeFindsWhatIsNotFinite) {
  Tape tape({.check_finite = true});
  const Tensor x = tensor({60000, 60000}, {1, 2}, {.dtype = f16});
  tape.watch(x);
  EXPECT_THROW_WITH(matmul(x, ones({2, 1}, {.dtype = f16})), Error, "matmul: the result must be finite", "got inf");
}

}  // namespace
}  // namespace reel::test
