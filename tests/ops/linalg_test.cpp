// What the op-case table cannot say about linear algebra: special matrices, what is not read, published examples of einsum.

#include "reel/ops/linalg.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "reel/core/ragged.h"
#include "reel/core/tape.h"
#include "reel/ops/arithmetic.h"
#include "reel/ops/convert.h"
#include "reel/ops/create.h"
#include "reel/ops/einsum.h"
#include "reel/ops/gradcheck.h"
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

// --- residuals --------------------------------------------------------------------------------------------------------

// The largest |a b - c| in units of epsilon (|a| |b| + |c|), element by element, in long double.
double residual(const Tensor& a, const Tensor& b, const Tensor& c) {
  const std::vector<double> x = a.to_vector<double>(), y = b.to_vector<double>(), z = c.to_vector<double>();
  const auto m = static_cast<std::size_t>(a.size(-2)), k = static_cast<std::size_t>(a.size(-1)),
             n = static_cast<std::size_t>(b.size(-1));
  const long double epsilon = a.dtype() == f32 ? 0x1p-23L : 0x1p-52L;
  long double worst = 0;
  for (std::size_t i = 0; i < m; ++i)
    for (std::size_t j = 0; j < n; ++j) {
      long double sum = -static_cast<long double>(z[i * n + j]), size = std::abs(sum);
      for (std::size_t p = 0; p < k; ++p) {
        const long double term = static_cast<long double>(x[i * k + p]) * y[p * n + j];
        sum += term;
        size += std::abs(term);
      }
      if (size > 0) worst = std::max(worst, std::abs(sum) / (epsilon * size));
    }
  return static_cast<double>(worst);
}

// Higham, "Accuracy and Stability of Numerical Algorithms", theorems 8.5 and 10.3: both are at most about n, whatever the
// condition. The numbers asserted are those of docs/numerics.md.
TEST(Residuals, AreAFewRoundingsWhateverTheCondition) {
  double cholesky_worst = 0, triangular_worst = 0, solve_worst = 0;
  for (const DType dtype : {f32, f64})
    for (const std::int64_t n : {1, 2, 5, 31, 33, 64, 129, 300}) {
      Generator generator(static_cast<std::uint64_t>(n));
      // Rows and columns of very different sizes: the condition is some e^30.
      const TensorOptions options{.dtype = dtype};
      const Tensor g = randn({n, n}, generator, options), size = exp(4.0 * randn({n}, generator, options));
      const Tensor even = matmul(g, transpose(g)) + eye(n, options);
      const Tensor a = 0.5 * (even + transpose(even)) * outer(size, size), b = randn({n, 7}, generator, options);
      const Tensor l = cholesky(a);
      cholesky_worst = std::max(cholesky_worst, residual(l, transpose(l), a));
      triangular_worst = std::max(triangular_worst, residual(l, triangular_solve(l, b), b));
      const Tensor back = triangular_solve(l, b, {.transpose = true});
      triangular_worst = std::max(triangular_worst, residual(transpose(l), back, b));
      const Tensor square = randn({n, n}, generator, options);
      solve_worst = std::max(solve_worst, residual(square, solve(square, b), b));
    }
  EXPECT_LE(cholesky_worst, 8);
  EXPECT_LE(triangular_worst, 8);
  EXPECT_LE(solve_worst, 4);
  RecordProperty("cholesky", std::to_string(cholesky_worst));
  RecordProperty("triangular_solve", std::to_string(triangular_worst));
  RecordProperty("solve", std::to_string(solve_worst));
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

// The first derivative as a function whose second derivative is compared with differences.
template <class F>
GradcheckReport third_order(F&& f, const Tensors& inputs) {
  return gradcheck(std::function<Tensor(const Tensors&)>([&](const Tensors& in) {
                     Tape inner;
                     inner.watch(in[0]);
                     const Tensor y = f(in);
                     return inner.gradient(sum(y * y), {in[0]})[0];
                   }),
                   inputs);
}

TEST(LinearAlgebra, HasThirdDerivatives) {
  Generator generator(6);
  const Tensor a = 3.0 * eye(3, kDouble) + randn({3, 3}, generator, kDouble), b = randn({3, 2}, generator, kDouble);
  const auto symmetric = [](const Tensor& x) { return matmul(x, transpose(x)); };
  const std::function<Tensor(const Tensors&)> functions[] = {
      [&](const Tensors& in) { return cholesky(symmetric(in[0])); },
      [](const Tensors& in) { return triangular_solve(in[0], in[1], {.upper = true}); },
      [](const Tensors& in) { return inverse(in[0]); },
      [](const Tensors& in) { return solve(in[0], in[1]); },
      [](const Tensors& in) { return logdet(in[0]); },
      [](const Tensors& in) {
        return einsum("ij,jk,ki->i", {in[0], in[0], in[0]}) + sum(in[1]);
      }};
  for (const auto& f : functions) {
    const GradcheckReport report = third_order(f, {a, b});
    EXPECT_TRUE(report) << report;
  }
}

TEST(LinearAlgebra, MatricesWithoutRowsAreLegal) {
  const Tensor a = zeros({2, 0, 0}, kDouble);
  EXPECT_EQ(cholesky(a).shape(), Shape(2, 0, 0));
  EXPECT_EQ(inverse(a).shape(), Shape(2, 0, 0));
  EXPECT_EQ(triangular_solve(a, zeros({2, 0, 3}, kDouble)).shape(), Shape(2, 0, 3));
  EXPECT_EQ(solve(a, zeros({0, 3}, kDouble)).shape(), Shape(2, 0, 3));
  EXPECT_EQ(solve(eye(3), zeros({3, 0})).shape(), Shape(3, 0));
  EXPECT_EQ(solve(eye(3), zeros({0, 3, 2})).shape(), Shape(0, 3, 2));
  EXPECT_EQ(solve(zeros({0, 3, 3}), zeros({3, 2})).shape(), Shape(0, 3, 2));
  EXPECT_EQ(solve(ones({2, 1, 1, 1}), zeros({0, 1, 2})).shape(), Shape(2, 0, 1, 2));
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

TEST(Solve, BroadcastsBatchesToTheSameBits) {
  Generator generator(7);
  const Tensor a = randn({2, 1, 20, 20}, generator), b = randn({3, 20, 4}, generator), x = solve(a, b);
  ASSERT_EQ(x.shape(), Shape(2, 3, 20, 4));
  const Tensor one = select(select(a, 0, 1), 0, 0), of_one = solve(one, reshape(b, {1, 3, 20, 4}));
  ASSERT_EQ(of_one.shape(), Shape(1, 3, 20, 4));
  EXPECT_TRUE(of_one.is_contiguous());
  for (std::int64_t i = 0; i < 3; ++i) {
    const auto alone = solve(one, select(b, 0, i)).to_vector<float>();
    EXPECT_EQ(select(select(x, 0, 1), 0, i).to_vector<float>(), alone);
    EXPECT_EQ(select(select(of_one, 0, 0), 0, i).to_vector<float>(), alone);
    EXPECT_EQ(select(solve(unsqueeze(one, 0), b), 0, i).to_vector<float>(), alone);
  }
}

TEST(Solve, NamesTheSingularMatrixOfAsOwnBatch) {
  const Tensor a = concatenate({eye(3), zeros({3, 3})}, 0), b = ones({4, 2, 3, 1});
  EXPECT_THROW_WITH(solve(reshape(a, {2, 3, 3}), b), Error, "a must be invertible, got matrix [1] that is singular");
}

TEST(Solve, HasGradientsWhereRowsChangePlaces) {
  for (const std::int64_t n : {5, 40}) {
    Generator generator(8);
    const Tensor a = randn({2, n, n}, generator, kDouble), b = randn({n, 3}, generator, kDouble);
    const Tensor dx = randn({2, n, 3}, generator, kDouble);
    Tape tape;
    tape.watch(a);
    tape.watch(b);
    const Tensor x = solve(a, b);
    const Tensors grads = tape.gradient(x, dx, {a, b});
    const Tensor db = matmul(transpose(inverse(a)), dx), da = matmul(db, transpose(x));
    EXPECT_LE(largest(grads[0] + da), 1e-10 * largest(da));
    EXPECT_LE(largest(grads[1] - sum(db, 0)), 1e-10 * largest(db));
  }
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

TEST(Einsum, GivesOnnxsDocumentedForms) {
  Generator generator(5);
  const Tensor x = randn({3, 5, 5}, generator, kDouble), y = randn({3, 5, 2}, generator, kDouble);
  const Tensor diagonal = einsum("...ii ->...i", {x});
  ASSERT_EQ(diagonal.shape(), Shape(3, 5));
  for (std::int64_t b = 0; b < 3; ++b)
    for (std::int64_t i = 0; i < 5; ++i) EXPECT_EQ(diagonal[b][i].item(), x[b][i][i].item());
  EXPECT_LE(largest(einsum("bij, bjk -> bik", {x, y}) - matmul(x, y)), 1e-14);
  EXPECT_LE(largest(einsum("i,i", {x[0][0], x[0][1]}) - sum(x[0][0] * x[0][1])), 1e-14);
  EXPECT_EQ(einsum("ij->ji", {y[0]}).to_vector<double>(), transpose(y[0]).to_vector<double>());
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

TEST(Matmul, GradientsHaveTheShapesOfOperandsWithoutElementsToo) {
  for (const std::int64_t m : {0, 2})
    for (const std::int64_t k : {0, 3})
      for (const std::int64_t n : {0, 4})
        for (const auto& [before_a, before_b] : {std::pair{Shape{2, 1}, Shape{2, 2}},
                                                 {Shape{}, Shape{5}},
                                                 {Shape{5}, Shape{}},
                                                 {Shape{1, 5}, Shape{3, 1}},
                                                 {Shape{0}, Shape{1}},
                                                 {Shape{1}, Shape{0}}}) {
          Shape a_shape = before_a, b_shape = before_b;
          a_shape.push_back(m);
          a_shape.push_back(k);
          b_shape.push_back(k);
          b_shape.push_back(n);
          const Tensor a = ones(a_shape), b = ones(b_shape);
          Tape tape;
          tape.watch(a);
          tape.watch(b);
          const Tensor c = matmul(a, b);
          const Tensors gradients = tape.gradient(c, ones_like(c), {a, b});
          EXPECT_EQ(gradients[0].shape(), a_shape);
          EXPECT_EQ(gradients[1].shape(), b_shape);
          const double batch = static_cast<double>(c.size()) / static_cast<double>(std::max<std::int64_t>(1, m * n));
          if (a.size() * b.size() * c.size() > 0) {
            EXPECT_EQ(sum(gradients[0]).item(), batch * static_cast<double>(m * k * n));
            EXPECT_EQ(sum(gradients[1]).item(), batch * static_cast<double>(m * k * n));
          }
        }
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
