// What the op-case table cannot say about distributions and transforms: edges, normalisation, Jacobians, shapes of samples.

#include "reel/ops/distributions.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "reel/core/tape.h"
#include "reel/ops/arithmetic.h"
#include "reel/ops/convert.h"
#include "reel/ops/create.h"
#include "reel/ops/linalg.h"
#include "reel/ops/matmul.h"
#include "reel/ops/rearrange.h"
#include "reel/ops/reduce.h"
#include "reel/ops/transforms.h"
#include "reel/ops/unary.h"
#include "reel/ops/views.h"
#include "reel/tests/expect.h"

namespace reel::test {
namespace {

using testing::Each;
using testing::ElementsAre;
using testing::FloatEq;
using testing::IsNan;

namespace d = distributions;
namespace t = transforms;
const TensorOptions kDouble{.dtype = f64};

// d sum(f(x)) / dx
template <class F>
std::vector<double> slopes(const Tensor& x, F&& f) {
  Tape tape;
  tape.watch(x);
  return tape.gradient(sum(f(x)), {x})[0].template to_vector<double>();
}

double largest(const Tensor& x) { return max(abs(x)).item(); }

// --- edges ------------------------------------------------------------------------------------------------------------

TEST(LogProb, IsFiniteAtTheEndsOfTheSupportWhereTheDensityIs) {
  const Tensor zero = zeros({1}, kDouble), one = ones({1}, kDouble);
  EXPECT_DOUBLE_EQ(d::Gamma(1, 2).log_prob(zero).item(), std::log(2));
  EXPECT_EQ(d::Gamma(2, 2).log_prob(zero).item(), -INFINITY);
  EXPECT_EQ(d::Gamma(0.5, 2).log_prob(zero).item(), INFINITY);
  EXPECT_EQ(d::Beta(1, 1).log_prob(zero).item(), 0);
  EXPECT_EQ(d::Beta(1, 1).log_prob(one).item(), 0);
  EXPECT_EQ(d::Poisson(0).log_prob(zero).item(), 0);
  EXPECT_EQ(d::Poisson(0).log_prob(one).item(), -INFINITY);
  EXPECT_THAT(slopes(zero, [](const Tensor& x) { return d::Gamma(1, 2).log_prob(x); }), ElementsAre(-2));
  EXPECT_THAT(slopes(zero, [](const Tensor& rate) { return d::Poisson(rate).log_prob(zeros({1}, kDouble)); }),
              ElementsAre(-1));
}

TEST(LogProb, OfBernoulliIsAccurateWhereItIsTiny) {
  const Tensor logits = tensor({800, 40, -40, INFINITY}, kDouble);
  EXPECT_THAT(d::Bernoulli(logits).log_prob(ones({}, kDouble)).to_vector<double>(),
              ElementsAre(0, -std::exp(-40), -40 - std::exp(-40), 0));
  EXPECT_THAT(d::Bernoulli(logits).log_prob(zeros({}, kDouble)).to_vector<double>(),
              ElementsAre(-800, -40, -std::exp(-40), -INFINITY));
}

TEST(LogProb, OfHalfCauchyIsMinusInfinityBelowZeroWithoutGradient) {
  const Tensor x = tensor({-1, 0, NAN}, kDouble);
  EXPECT_THAT(d::HalfCauchy(1).log_prob(x).to_vector<double>(),
              ElementsAre(-INFINITY, testing::DoubleEq(std::log(2 / std::acos(-1.0))), IsNan()));
  EXPECT_THAT(slopes(x, [](const Tensor& x) { return d::HalfCauchy(1).log_prob(x); }), ElementsAre(0, 0, IsNan()));
}

TEST(LogProb, OfCategoricalKnowsImpossibleClassesAndBroadcasts) {
  const d::Categorical two(tensor({0, -INFINITY, 0, 0, 0, -INFINITY}, {2, 3}, kDouble));
  const Tensor p = two.log_prob(reshape(arange(3), {3, 1}));
  ASSERT_EQ(p.shape(), Shape(3, 2));
  const double half = -std::log(2);
  EXPECT_THAT(p.to_vector<double>(), ElementsAre(half, half, -INFINITY, half, half, -INFINITY));
  EXPECT_THROW_WITH(two.log_prob(full({1}, -100, {.dtype = i64})), IndexError, "-100", "distributions_test.cpp");
}

TEST(LogProb, TakesWholeNumbersOfAnyIntegerType) {
  const Tensor k = arange(4);
  EXPECT_EQ(d::Poisson(full({4}, 2)).log_prob(k).dtype(), f32);
  EXPECT_EQ(d::Poisson(2).log_prob(k).dtype(), f64);
  EXPECT_EQ(d::Poisson(2).log_prob(cast(k, i32)).to_vector<double>(),
            d::Poisson(2).log_prob(cast(k, f64)).to_vector<double>());
}

TEST(LogProb, OfCountsHasTheDtypeOfTheParametersWithAxes) {
  const Tensor counts = tensor({1, 2}, {.dtype = i64});
  EXPECT_EQ(d::Normal(0.0, ones({2})).log_prob(counts).dtype(), f32);
  EXPECT_EQ(d::NegativeBinomial(5.0, zeros({2})).log_prob(counts).dtype(), f32);
  EXPECT_EQ(d::Normal(0.0, 1.0).log_prob(counts).dtype(), f64);
}

TEST(LogProb, AtInfinityIsThatOfTheLimit) {
  EXPECT_EQ(d::Gamma(1.0, 1.0).log_prob(full({}, INFINITY, {.dtype = f64})).item(), -INFINITY);
  EXPECT_EQ(d::Poisson(INFINITY).log_prob(zeros({}, {.dtype = f64})).item(), -INFINITY);
}

TEST(LogProb, ThroughShapesHasHigherDerivatives) {
  const Tensor a = full({1}, 2.5, kDouble), x = ones({1}, kDouble);
  const auto order = [&](int n) {
    const auto f = [&](const Tensor& a) { return sum(d::Gamma(a, 1).log_prob(x)); };
    Tape one;
    one.watch(a);
    Tape two;
    Tape three;
    Tensor y = three.gradient(f(a), {a})[0];
    if (n > 1) y = two.gradient(sum(y), {a})[0];
    if (n > 2) y = one.gradient(sum(y), {a})[0];
    return y.item();
  };
  EXPECT_NEAR(order(1), -0.7031566406452432, 1e-14);  // -psi(2.5)
  EXPECT_NEAR(order(2), -0.4903577561002349, 1e-14);  // -psi'(2.5)
  EXPECT_NEAR(order(3), 0.236204051641727, 1e-14);    // -psi''(2.5)
}

// --- normalisation ----------------------------------------------------------------------------------------------------

TEST(LogProb, OfCountsSumsUpToOne) {
  const Tensor k = arange(2000, kDouble);
  EXPECT_NEAR(sum(exp(d::Poisson(300).log_prob(k))).item(), 1, 1e-11);
  EXPECT_NEAR(sum(exp(d::NegativeBinomial(3.5, 2).log_prob(k))).item(), 1, 1e-11);
}

// Over all of R^3 through the transform: the trapezoidal rule is exact for smooth functions that vanish far out.
TEST(LogProb, OfLKJIntegratesToOneThroughItsTransform) {
  const std::int64_t n = 61;
  const Tensor grid = linspace(-9, 9, n, kDouble), zero = zeros({n, n, n}, kDouble);
  const Tensor x =
      reshape(stack({reshape(grid, {n, 1, 1}) + zero, reshape(grid, {n, 1}) + zero, grid + zero}, -1), {-1, 3});
  const t::CorrelationCholesky transform;
  for (const double concentration : {0.7, 1.0, 3.0}) {
    const Tensor log_density =
        d::LKJCholesky(3, concentration).log_prob(transform.forward(x)) + transform.log_abs_det_jacobian(x);
    EXPECT_NEAR(sum(exp(log_density)).item() * std::pow(0.3, 3), 1, 1e-4) << concentration;
  }
  const Tensor y = reshape(grid, {n, 1});
  const Tensor two = d::LKJCholesky(2, 1.5).log_prob(transform.forward(y)) + transform.log_abs_det_jacobian(y);
  EXPECT_NEAR(sum(exp(two)).item() * 0.3, 1, 1e-9);
}

// --- transforms -------------------------------------------------------------------------------------------------------

// The determinant of the derivatives of all of f's elements by all of x's.
template <class F>
double log_det_of(const Tensor& x, F&& f) {
  Tape tape;
  tape.watch(x);
  const Tensor y = f(x);
  Tensors rows;
  for (std::int64_t i = 0; i < y.size(); ++i) {
    const Tensor seed = reshape(cast(arange(y.size()) == i, f64), y.shape());
    rows.push_back(reshape(tape.gradient(y, seed, {x}, {.keep = true})[0], {x.size()}));
  }
  return slogdet(stack(rows)).logdet.item();
}

TEST(Transforms, LogDeterminantsAreThoseOfTheJacobian) {
  Generator generator(3);
  const Tensor x = 1.5 * randn({10}, generator, kDouble), few = narrow(x, 0, 0, 6);
  const auto check = [](const char* name, const auto& transform, const Tensor& x, auto&& free) {
    const Tensor expected = transform.log_abs_det_jacobian(x);
    EXPECT_NEAR(sum(expected).item(), log_det_of(x, [&](const Tensor& x) { return free(transform.forward(x)); }), 1e-11)
        << name;
    EXPECT_LE(largest(transform.inverse(transform.forward(x)) - x), 1e-11) << name;
  };
  const auto all = [](const Tensor& y) { return y; };
  check("exp", t::Exp(), x, all);
  check("affine", t::Affine(1, tensor({1, 2, 3, 4, 5, -1, -2, -3, -4, -5}, kDouble)), x, all);
  check("interval", t::Interval(-2, 5), x, all);
  check("ordered", t::Ordered(), x, all);
  check("simplex", t::Simplex(), x, [](const Tensor& y) { return narrow(y, -1, 0, y.size(-1) - 1); });
  check("correlation", t::CorrelationCholesky(), few, [](const Tensor& y) {
    Tensors below;
    for (std::int64_t i = 1; i < 4; ++i) below.push_back(narrow(y[i], 0, 0, i));
    return concatenate(below);
  });
}

TEST(Transforms, KeepTheirConstraintsFarOut) {
  Generator generator(4);
  const Tensor x = 30.0 * randn({50, 15}, generator, kDouble);
  const Tensor simplex = t::Simplex().forward(x);
  EXPECT_GE(min(simplex).item(), 0);
  EXPECT_LE(largest(sum(simplex, -1) - 1.0), 1e-14);
  const Tensor l = t::CorrelationCholesky().forward(x);
  EXPECT_LE(largest(sum(l * l, -1) - 1.0), 1e-12);
  EXPECT_EQ(largest(triu(l, 1)), 0);
  EXPECT_FALSE(std::isnan(sum(t::Simplex().log_abs_det_jacobian(x)).item()));
  EXPECT_FALSE(std::isnan(sum(t::CorrelationCholesky().log_abs_det_jacobian(x)).item()));
  EXPECT_THAT(t::Simplex().forward(zeros({3})).to_vector<float>(), Each(testing::FloatEq(0.25f)));
}

TEST(Transforms, WhatOverflowsLeavesTheElementsBeforeItAsTheyAre) {
  EXPECT_THAT(t::Ordered().forward(tensor({0, 1, 100, 1})).to_vector<float>(),
              ElementsAre(0, FloatEq(std::exp(1.f)), INFINITY, INFINITY));
  EXPECT_THAT(t::Simplex().forward(tensor({0, INFINITY, 0})).to_vector<float>(),
              ElementsAre(FloatEq(0.25), FloatEq(0.75), 0, 0));
}

TEST(Transforms, OfInfinityAreThoseOfTheLimit) {
  for (const double end : {INFINITY, -INFINITY})
    EXPECT_THAT(t::CorrelationCholesky().forward(full({1}, end, {.dtype = f64})).to_vector<double>(),
                ElementsAre(1, 0, std::copysign(1, end), 0));
  EXPECT_THROW(t::Interval(-1e308, 1e308), Error);
}

TEST(Transforms, OfTheSmallestVectorsAreLegal) {
  EXPECT_THAT(t::Simplex().forward(zeros({2, 0})).to_vector<double>(), ElementsAre(1, 1));
  EXPECT_THAT(t::CorrelationCholesky().forward(zeros({2, 0})).to_vector<double>(), ElementsAre(1, 1));
  EXPECT_EQ(t::CorrelationCholesky().inverse(ones({2, 1, 1})).shape(), Shape(2, 0));
  EXPECT_THAT(t::Ordered().forward(tensor({3})).to_vector<double>(), ElementsAre(3));
  EXPECT_EQ(t::Ordered().forward(zeros({0, 3})).shape(), Shape(0, 3));
}

// --- samples ----------------------------------------------------------------------------------------------------------

TEST(Sample, HasTheShapeAskedForInFrontOfTheParameters) {
  const d::Normal normal(zeros({3, 1}), ones({4}));
  EXPECT_EQ(normal.sample().shape(), Shape(3, 4));
  EXPECT_EQ(normal.sample({2, 5}).shape(), Shape(2, 5, 3, 4));
  EXPECT_EQ(normal.sample({0}).shape(), Shape(0, 3, 4));
  EXPECT_EQ(d::Categorical(zeros({3, 4})).sample({2}).shape(), Shape(2, 3));
  EXPECT_EQ(d::LKJCholesky(5, ones({3})).sample({2}).shape(), Shape(2, 3, 5, 5));
  EXPECT_THROW_WITH(normal.sample({1, 1, 1, 1, 1, 1, 1}), ShapeError, "sample: the result must have at most 8 axes");
}

TEST(Sample, HasTheParametersDtype) {
  EXPECT_EQ(d::Normal(0, 1).sample().dtype(), f64);
  EXPECT_EQ(d::Normal(zeros({2}), 1).sample().dtype(), f32);
  EXPECT_EQ(d::Gamma(ones({2}), ones({2}, kDouble)).sample().dtype(), f64);
  EXPECT_EQ(d::Poisson(ones({2})).sample().dtype(), f32);
  EXPECT_EQ(d::Bernoulli(zeros({2})).sample().dtype(), f32);
  EXPECT_EQ(d::Categorical(zeros({2})).sample().dtype(), i64);
}

TEST(Sample, ComesFromTheGeneratorThatIsGiven) {
  const d::StudentT t(full({3}, 4));
  Generator a(7), b(7);
  EXPECT_EQ(t.sample({50}, &a).to_vector<double>(), t.sample({50}, &b).to_vector<double>());
  EXPECT_NE(t.sample({50}, &a).to_vector<double>(), t.sample({50}).to_vector<double>());
}

TEST(Sample, IsAConstantButARsampleHasGradients) {
  const Tensor scale = full({1000}, 2, kDouble);
  Tape tape;
  tape.watch(scale);
  const d::Normal normal(3, scale);
  EXPECT_FALSE(is_tracked(normal.sample()));
  const Tensor x = normal.rsample();
  const Tensor ds = tape.gradient(sum(x), {scale})[0];
  EXPECT_LE(largest(ds - (x - 3.0) / scale), 1e-14);
}

TEST(Sample, OfLKJIsAFactorOfACorrelationMatrix) {
  const Tensor l = d::LKJCholesky(6, 1).sample({200});
  EXPECT_LE(largest(sum(l * l, -1) - 1.0), 1e-14);
  EXPECT_EQ(largest(triu(l, 1)), 0);
  EXPECT_GT(logdet(matmul(l, transpose(l))).to_vector<double>()[0], -INFINITY);
  EXPECT_THAT(d::LKJCholesky(1, 1).sample({2}).to_vector<double>(), ElementsAre(1, 1));
  EXPECT_EQ(d::LKJCholesky(1, 1).log_prob(ones({1, 1})).item(), 0);
  EXPECT_THROW_WITH(d::LKJCholesky(0, 1), ShapeError, "dim must be at least 1, got 0", "distributions_test.cpp");
  EXPECT_THROW_WITH(d::LKJCholesky(3, 1).log_prob(eye(2)), ShapeError, "[..., 3, 3], got [2, 2]");
}

}  // namespace
}  // namespace reel::test
