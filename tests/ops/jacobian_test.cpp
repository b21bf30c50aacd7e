#include "reel/ops/jacobian.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>

#include "reel/core/parameter.h"
#include "reel/ops/arithmetic.h"
#include "reel/ops/convert.h"
#include "reel/ops/create.h"
#include "reel/ops/matmul.h"
#include "reel/ops/reduce.h"
#include "reel/ops/unary.h"
#include "reel/ops/views.h"
#include "reel/tests/expect.h"

namespace reel {
namespace {

Tensor vector(std::initializer_list<double> values) { return tensor(values, {.dtype = f64}); }
std::vector<double> values(const Tensor& x) { return x.to_vector<double>(); }

TEST(Jacobian, OfALinearMapIsItsMatrix) {
  const Tensor a = tensor({1, 2, 3, 4, 5, 6}, {2, 3}, {.dtype = f64});
  const Tensor j = jacobian([&](const Tensor& x) { return matmul(a, x); }, vector({7, 8, 9}));
  EXPECT_EQ(j.shape(), (Shape{2, 3}));
  EXPECT_EQ(values(j), values(a));
}

TEST(Jacobian, HasTheShapesOfResultAndArgument) {
  const Tensor x = tensor({1, 2, 3, 4, 5, 6}, {3, 2}, {.dtype = f64});
  const Tensor j = jacobian([](const Tensor& t) { return sum(t * t, 0); }, x);
  ASSERT_EQ(j.shape(), (Shape{2, 3, 2}));
  EXPECT_EQ(values(j), (std::vector<double>{2, 0, 6, 0, 10, 0, 0, 4, 0, 8, 0, 12}));
  EXPECT_EQ(jacobian([](const Tensor& t) { return sum(t); }, x).shape(), (Shape{3, 2}));
}

TEST(Jacobian, OfConstantsAndOfNothing) {
  const Tensor x = vector({1, 2});
  EXPECT_EQ(values(jacobian([](const Tensor&) { return ones({1}, {.dtype = f64}); }, x)), (std::vector<double>{0, 0}));
  EXPECT_EQ(jacobian([](const Tensor& t) { return t * t; }, zeros({0}, {.dtype = f64})).shape(), (Shape{0, 0}));
}

TEST(Jacobian, OfTheIdentityIsOneWhoeverKnowsTheArgument) {
  const auto identity = [](const Tensor& t) { return t; };
  const std::vector<double> one = {1, 0, 0, 1};
  Parameter p(vector({3, 4}));
  EXPECT_EQ(values(jacobian(identity, p)), one);
  EXPECT_EQ(values(jacobian(identity, vector({3, 4}))), one);
  Tape tape;
  const Tensor x = p * 2.0;
  EXPECT_EQ(values(jacobian(identity, x)), one);
  const Tensor j = jacobian([](const Tensor& t) { return t * t; }, x);
  tape.backward(sum(j));  // d (2 * 2 p) / dp
  EXPECT_EQ(values(p.gradient()), (std::vector<double>{4, 4}));
}

TEST(Jacobian, OfWhatOthersKnowAndTheArgumentDoesNotReachIsZero) {
  Parameter p(vector({3, 4}));
  const Tensor x = vector({1, 2});
  EXPECT_EQ(values(jacobian([&](const Tensor&) { return p.value(); }, x)), std::vector<double>(4));
  Tape tape;
  const Tensor before = p * 2.0;
  EXPECT_EQ(values(jacobian([&](const Tensor&) { return before; }, x)), std::vector<double>(4));
  EXPECT_EQ(values(hessian([&](const Tensor&) { return sum(before); }, x)), std::vector<double>(4));
  const Tensor first = before[0];
  EXPECT_EQ(values(hessian([&](const Tensor&) { return first; }, x)), std::vector<double>(4));
}

TEST(Jacobian, HasAtMostEightAxes) {
  const Tensor x = ones({1, 2, 1, 1, 1}, {.dtype = f64});
  EXPECT_EQ(jacobian(
                [](const Tensor& t) {
                  return reshape(t, {1, 1, 2});
                },
                x)
                .shape(),
            (Shape{1, 1, 2, 1, 2, 1, 1, 1}));
  EXPECT_THROW_WITH(jacobian(
                        [](const Tensor& t) {
                          return reshape(t, {1, 1, 1, 2});
                        },
                        x),
                    ShapeError,
                    "jacobian: the axes of x and f(x) must be at most 8 together, got [1, 2, 1, 1, 1] and [1, 1, 1, 2]",
                    "jacobian_test.cpp:");
}

TEST(Jacobian, LeavesParametersAlone) {
  const Parameter w(vector({2}));
  EXPECT_EQ(jacobian([&](const Tensor& t) { return t * w; }, vector({3})).item(), 2);
  EXPECT_EQ(jacobian([&](const Tensor& t) { return t * t; }, w).item(), 4);
  EXPECT_FALSE(w.has_gradient());
}

TEST(Jacobian, HasAJacobian) {
  const Tensor x = vector({1, 2});
  const auto cube = [](const Tensor& t) { return t * t * t; };
  const Tensor second = jacobian([&](const Tensor& t) { return jacobian(cube, t); }, x);
  EXPECT_EQ(values(second), (std::vector<double>{6, 0, 0, 0, 0, 0, 0, 12}));
}

TEST(Hessian, OfAQuadraticFormIsItsSymmetricPart) {
  const Tensor a = tensor({1, 2, 0, 5}, {2, 2}, {.dtype = f64});
  const Tensor h = hessian([&](const Tensor& x) { return sum(x * matmul(a, x)); }, vector({3, 4}));
  EXPECT_EQ(values(h), (std::vector<double>{2, 2, 2, 10}));
}

TEST(Hessian, ProductIsTheMatrixTimesTheVector) {
  const auto f = [](const Tensor& x) { return sum(sin(x) * sum(x * x)); };
  const Tensor x = vector({0.3, -1.2, 2}), v = vector({1, -2, 0.5});
  const std::vector<double> expected = values(matmul(hessian(f, x), v));
  const std::vector<double> got = values(hessian_vector_product(f, x, v));
  for (std::size_t i = 0; i < 3; ++i) EXPECT_NEAR(got[i], expected[i], 1e-13 * (1 + std::abs(expected[i])));
  EXPECT_EQ(values(hessian_vector_product([](const Tensor& t) { return sum(t); }, x, v)),
            (std::vector<double>{0, 0, 0}));
}

TEST(Hessian, NeedsOneElement) {
  const Tensor x = vector({1, 2});
  const auto f = [](const Tensor& t) { return t * t; };
  EXPECT_THROW_WITH(hessian(f, x), ShapeError, "hessian: f must give one element", "[2]", "jacobian_test.cpp");
  EXPECT_THROW_WITH(hessian_vector_product(f, x, x), ShapeError, "hessian_vector_product: f must give one element");
}

TEST(Hessian, ProductNeedsAVectorLikeTheInput) {
  const Tensor x = vector({1, 2});
  const auto g = [](const Tensor& t) { return sum(t * t); };
  const auto linear = [](const Tensor& t) { return sum(t); };  // whose second derivative asks nothing of v
  EXPECT_THROW_WITH(hessian_vector_product(g, x, vector({1})), ShapeError,
                    "hessian_vector_product: v must have shape [2], got [1]", "jacobian_test.cpp");
  EXPECT_THROW_WITH(hessian_vector_product(linear, x, vector({1})), ShapeError, "v must have shape [2], got [1]");
  EXPECT_THROW_WITH(hessian_vector_product(linear, x, ones({2})), DTypeError, "v must be f64 like x, got f32");
}

// d^n/dx^n exp(2 x) = 2^n exp(2 x), by n nested tapes.
TEST(NestedTapes, ToDepthFive) {
  const Tensor x = vector({0.25});
  const std::function<Tensor(int)> derivative = [&](int order) -> Tensor {
    if (order == 0) return exp(2 * x);
    Tape tape;
    tape.watch(x);
    return tape.gradient(derivative(order - 1), {x})[0];
  };
  for (int order = 1; order <= 5; ++order)
    EXPECT_NEAR(derivative(order).item(), std::pow(2, order) * std::exp(0.5), 1e-13 * std::pow(2, order)) << order;
}

}  // namespace
}  // namespace reel
