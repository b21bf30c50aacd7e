// What the op-case table cannot say about linear algebra: special matrices, what is not read, published examples of einsum.

#include "reel/ops/linalg.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "reel/core/ragged.h"
#include "reel/core/tape.h"
#include "reel/ops/arithmetic.h"
#include "reel/ops/convert.h"
#include "reel/ops/create.h"
#include "reel/ops/einsum.h"
#include "reel/ops/matmul.h"
#include "reel/ops/ragged.h"
#include "reel/ops/rearrange.h"
#include "reel/ops/reduce.h"
#include "reel/ops/unary.h"
#include "reel/ops/views.h"
#include "reel/tests/expect.h"

namespace reel::test {
namespace {

using testing::Each;
using testing::ElementsAre;
using testing::IsNan;

const TensorOptions kDouble{.dtype = f64};

// 1 / (i + j + 1): positive definite, with a condition of about e^(3.5 n).
Tensor hilbert(std::int64_t n) {
  const Tensor i = arange(n, kDouble);
  return 1.0 / (unsqueeze(i, 1) + i + 1.0);
}

double largest(const Tensor& x) { return max(abs(x)).item(); }

TEST(Cholesky, OfAnIllConditionedMatrixMultipliesBackToIt) {
  const Tensor a = hilbert(11), l = cholesky(a);
  EXPECT_LE(largest(matmul(l, transpose(l)) - a), 4 * 0x1p-52);
  EXPECT_THROW_WITH(cholesky(hilbert(40)), Error, "positive definite", "leading minor of order");
}

TEST(Cholesky, ReadsTheLowerTriangleAlone) {
  const Tensor a = tensor({4, NAN, 2, 10}, {2, 2});
  EXPECT_THAT(cholesky(a).to_vector<double>(), ElementsAre(2, 0, 1, 3));
}

TEST(Cholesky, RefusesNaNInfinityAndZero) {
  for (const double bad : {double(NAN), 0.0, -1.0, double(-INFINITY)})
    EXPECT_THROW_WITH(cholesky(full({1, 1}, bad)), Error, "leading minor of order 1 is not positive");
  // In the second block of rows, and in the last row.
  for (const std::int64_t place : {40, 69}) {
    const Tensor a = eye(70, kDouble) - 2.0 * cast(arange(70) == place, f64);
    EXPECT_THROW_WITH(cholesky(a), Error, ("leading minor of order " + std::to_string(place + 1) + " ").c_str());
  }
}

TEST(Cholesky, GradientIsSymmetric) {
  const Tensor a = hilbert(5);
  Tape tape;
  tape.watch(a);
  const Tensor l = cholesky(a);
  const Tensor da = tape.gradient(sum(l * l * l), {a})[0];
  EXPECT_EQ(largest(da - transpose(da)), 0);
}

TEST(LinearAlgebra, MatricesWithoutRowsAreLegal) {
  const Tensor a = zeros({2, 0, 0}, kDouble);
  EXPECT_EQ(cholesky(a).shape(), Shape(2, 0, 0));
  EXPECT_EQ(inverse(a).shape(), Shape(2, 0, 0));
  EXPECT_EQ(triangular_solve(a, zeros({2, 0, 3}, kDouble)).shape(), Shape(2, 0, 3));
  EXPECT_EQ(solve(a, zeros({0, 3}, kDouble)).shape(), Shape(2, 0, 3));
  EXPECT_THAT(logdet(a).to_vector<double>(), Each(0));
  EXPECT_THAT(slogdet(a).sign.to_vector<double>(), Each(1));
  EXPECT_EQ(triangular_solve(eye(3), zeros({3, 0})).shape(), Shape(3, 0));
}

TEST(TriangularSolve, ReadsOneTriangleAndNoUnitDiagonal) {
  const Tensor b = tensor({2, 7}, {2, 1});
  EXPECT_THAT(triangular_solve(tensor({2, NAN, 3, 4}, {2, 2}), b).to_vector<double>(), ElementsAre(1, 1));
  EXPECT_THAT(triangular_solve(tensor({NAN, NAN, 3, NAN}, {2, 2}), b, {.unit_diagonal = true}).to_vector<double>(),
              ElementsAre(2, 1));
  EXPECT_THAT(triangular_solve(tensor({NAN, 3, NAN, NAN}, {2, 2}), b, {.upper = true, .unit_diagonal = true})
                  .to_vector<double>(),
              ElementsAre(-19, 7));
}

TEST(TriangularSolve, OfAZeroOnTheDiagonalIsInfinite) {
  EXPECT_EQ(triangular_solve(zeros({1, 1}), ones({1, 1})).item(), INFINITY);
}

TEST(Solve, LeavesAResidualOfAFewRoundings) {
  // The condition is 1e13: the solution has three digits, its residual sixteen.
  const Tensor a = hilbert(10), b = ones({10, 1}, kDouble), x = solve(a, b);
  EXPECT_LE(largest(matmul(a, x) - b), 1e-13 * largest(x));
}

TEST(Logdet, TellsTheSignOfTheDeterminant) {
  const Tensor a = tensor({2, 0, 0, 3, 0, 1, 2, 0, 1, 1, 1, 1}, {3, 2, 2}, kDouble);
  EXPECT_THAT(logdet(a).to_vector<double>(), ElementsAre(std::log(6.0), IsNan(), -INFINITY));
  const SignAndLogdet y = slogdet(a);
  EXPECT_THAT(y.sign.to_vector<double>(), ElementsAre(1, -1, 0));
  EXPECT_THAT(y.logdet.to_vector<double>(), ElementsAre(std::log(6.0), std::log(2.0), -INFINITY));
}

TEST(Logdet, NeitherOverflowsNorHidesNaN) {
  EXPECT_NEAR(logdet(1e100 * eye(50, kDouble)).item(), 5000 * std::log(10.0), 1e-10);
  EXPECT_TRUE(std::isnan(logdet(full({2, 2}, NAN)).item()));
  EXPECT_TRUE(std::isnan(slogdet(full({2, 2}, NAN)).sign.item()));
  EXPECT_THAT(inverse(full({2, 2}, NAN)).to_vector<double>(), Each(IsNan()));
}

// --- einsum: numpy's documented examples, from their definitions ------------------------------------------------------

Tensor counted(const Shape& shape) { return reshape(arange(shape.size(), kDouble), shape); }

TEST(Einsum, GivesNumpysDocumentedResults) {
  const Tensor a = counted({5, 5}), b = counted({5}), c = counted({2, 3});
  EXPECT_EQ(einsum("ii", {a}).item(), 60);
  EXPECT_THAT(einsum("ii->i", {a}).to_vector<double>(), ElementsAre(0, 6, 12, 18, 24));
  EXPECT_THAT(einsum("ij->i", {a}).to_vector<double>(), ElementsAre(10, 35, 60, 85, 110));
  EXPECT_THAT(einsum("...j->...", {a}).to_vector<double>(), ElementsAre(10, 35, 60, 85, 110));
  EXPECT_THAT(einsum("i...->...", {a}).to_vector<double>(), ElementsAre(50, 55, 60, 65, 70));
  EXPECT_THAT(einsum("ji", {c}).to_vector<double>(), ElementsAre(0, 3, 1, 4, 2, 5));
  EXPECT_EQ(einsum("i,i", {b, b}).item(), 30);
  EXPECT_THAT(einsum("ij,j", {a, b}).to_vector<double>(), ElementsAre(30, 80, 130, 180, 230));
  EXPECT_THAT(einsum("..., ...", {full({}, 3, kDouble), c}).to_vector<double>(), ElementsAre(0, 3, 6, 9, 12, 15));
  EXPECT_THAT(einsum("i,j", {counted({2}) + 1.0, b}).to_vector<double>(), ElementsAre(0, 1, 2, 3, 4, 0, 2, 4, 6, 8));
  EXPECT_THAT(einsum("ijk,jil->kl", {counted({3, 4, 5}), counted({4, 3, 2})}).to_vector<double>(),
              ElementsAre(4400, 4730, 4532, 4874, 4664, 5018, 4796, 5162, 4928, 5306));
  EXPECT_THAT(einsum("ki,...k->i...", {counted({3, 2}), counted({4, 3})}).to_vector<double>(),
              ElementsAre(10, 28, 46, 64, 13, 40, 67, 94));
}

TEST(Einsum, OfNothingIsZero) {
  EXPECT_EQ(einsum("ij,jk->ik", {zeros({2, 0}), zeros({0, 3})}).shape(), Shape(2, 3));
  EXPECT_THAT(einsum("ij,jk->ik", {zeros({2, 0}), zeros({0, 3})}).to_vector<double>(), Each(0));
  EXPECT_EQ(einsum("i,i", {zeros({0}), zeros({0})}).item(), 0);
  EXPECT_EQ(einsum("ii->i", {zeros({0, 0})}).shape(), Shape(0));
}

TEST(Einsum, ADiagonalLeaksNothingFromBesideIt) {
  const Tensor a = tensor({1, NAN, INFINITY, 2}, {2, 2});
  EXPECT_EQ(einsum("ii", {a}).item(), 3);
}

// --- ragged products ---------------------------------------------------------------------------------------------------

TEST(RaggedMatmul, IsAProductPerSequence) {
  Generator generator(3);
  const Ragged x = Ragged::from_lengths(randn({9, 4}, generator), {0, 5, 1, 3, 0});
  const Tensor w = randn({5, 4, 6}, generator), shared = randn({4, 6}, generator);
  const Ragged y = matmul(x, w), z = matmul(x, shared);
  ASSERT_EQ(y.values().shape(), Shape(9, 6));
  for (std::int64_t s = 0; s < 5; ++s) {
    EXPECT_EQ(y[s].to_vector<float>(), matmul(x[s], w[s]).to_vector<float>());
    EXPECT_EQ(z[s].to_vector<float>(), matmul(x[s], shared).to_vector<float>());
  }
  EXPECT_EQ(matmul(Ragged::from_lengths(zeros({0, 4}), {}), zeros({0, 4, 2})).values().shape(), Shape(0, 2));
}

}  // namespace
}  // namespace reel::test
