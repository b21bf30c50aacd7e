// The programs that the design promises, as users would write them.

#include <gtest/gtest.h>
#include <reel/reel.h>

#include "reel/tests/expect.h"

using namespace reel;

namespace {

// --- a custom op with a backprop callback ---------------------------------------------------------------------------------

Tensor cube(const Tensor& x) {
  Tensor y = untaped([&] { return x * x * x; });
  return record("cube", {x}, y, [x](const Tensor& dy) { return Tensors{dy * 3.0 * x * x}; });
}

Tensor wrong_cube(const Tensor& x) {
  Tensor y = untaped([&] { return x * x * x; });
  return record("wrong_cube", {x}, y, [x](const Tensor& dy) { return Tensors{dy * 2.0 * x * x}; });
}

// Right to first order, but its callback hides its dependence on x from an outer tape.
Tensor shallow_cube(const Tensor& x) {
  Tensor y = untaped([&] { return x * x * x; });
  return record("shallow_cube", {x}, y, [x](const Tensor& dy) { return Tensors{dy * stop_gradient(3.0 * x * x)}; });
}

TEST(CustomOp, IsCheckedToFirstAndSecondOrder) {
  const GradcheckReport report = gradcheck(cube, {randn({3, 5}, {.dtype = f64})});
  EXPECT_TRUE(report) << report;
  EXPECT_EQ(report.checks, 30);
  EXPECT_THROW(gradcheck(cube, {randn({3, 5})}), DTypeError);  // differences are taken in f64
}

TEST(CustomOp, AWrongCallbackIsFoundAndTheWorstElementNamed) {
  const GradcheckReport report = gradcheck(wrong_cube, {tensor({1, 2}, {.dtype = f64})});
  EXPECT_FALSE(report);
  EXPECT_EQ(missing_words(report.worst, {"first derivative", "input 0", "analytic", "numeric"}), "");
}

TEST(CustomOp, AWrongSecondDerivativeIsFound) {
  const GradcheckReport report = gradcheck(shallow_cube, {tensor({1, 2}, {.dtype = f64})});
  EXPECT_FALSE(report);
  EXPECT_EQ(missing_words(report.worst, {"second derivative"}), "");
  EXPECT_TRUE(gradcheck(shallow_cube, {tensor({1, 2}, {.dtype = f64})}, {.order = 1}));
}

TEST(CustomOp, ManyInputsAreCheckedInRandomDirections) {
  EXPECT_TRUE(gradcheck(cube, {randn({20, 20}, {.dtype = f64})}));
  EXPECT_FALSE(gradcheck(wrong_cube, {randn({20, 20}, {.dtype = f64})}));
}

// --- ragged ---------------------------------------------------------------------------------------------------------------

TEST(RaggedProgram, AttentionPoolingWithoutPadding) {
  manual_seed(0);
  const Tensor a = randn({3, 64}), b = randn({0, 64}), c = randn({17, 64});
  const Parameter W(randn({64, 64}) * 0.1), bias(zeros({64})), query(randn({64}));

  Tape tape;
  Ragged tokens = Ragged::from_list({a, b, c});
  Ragged h = relu(linear(tokens, W, bias));
  Ragged p = softmax(sum(h * query, -1, Keep::yes));
  Tensor pooled = sum(p * h);

  EXPECT_EQ(pooled.shape(), (Shape{3, 64}));
  EXPECT_EQ(pooled[1].to_vector<float>(), std::vector<float>(64, 0.0f));
  EXPECT_EQ(p.values().shape(), (Shape{20, 1}));
  EXPECT_NEAR(sum(p)[2].item(), 1, 1e-6);

  // One sequence by itself.
  const Tensor rows = relu(linear(c, W, bias));
  const Tensor weights = softmax(matmul(rows, query.value()), 0);
  const Tensor expected = matmul(weights, rows);
  for (int i = 0; i < 64; ++i) EXPECT_NEAR(pooled[2][i].item(), expected[i].item(), 1e-5);

  tape.backward(sum(pooled * pooled));
  EXPECT_TRUE(W.has_gradient() && bias.has_gradient() && query.has_gradient());
}

// --- Thinc's style --------------------------------------------------------------------------------------------------------

TEST(Pullback, GivesTheOutputAndACallback) {
  const Parameter W(tensor({1, 2, 3, 4}, {2, 2}, {.dtype = f64}));
  const auto layer = [&](const Tensor& x) { return linear(x, W); };
  const Tensor x = tensor({1, 1}, {1, 2}, {.dtype = f64});
  auto [y, backprop] = pullback(layer, x);
  EXPECT_EQ(y.to_vector<double>(), (std::vector<double>{3, 7}));
  EXPECT_FALSE(is_recording());
  Tensor dx = backprop(tensor({1, 10}, {1, 2}, {.dtype = f64}));
  EXPECT_EQ(dx.to_vector<double>(), (std::vector<double>{31, 42}));
  EXPECT_EQ(W.gradient().to_vector<double>(), (std::vector<double>{1, 1, 10, 10}));
  backprop(tensor({1, 10}, {1, 2}, {.dtype = f64}));  // adds to the parameter's gradient
  EXPECT_EQ(W.gradient().to_vector<double>(), (std::vector<double>{2, 2, 20, 20}));
}

TEST(Pullback, ComposesByHand) {
  const Tensor x = tensor({0.3, -0.7}, {.dtype = f64});
  auto [h, back_h] = pullback([](const Tensor& t) { return tanh(t); }, x);
  auto [y, back_y] = pullback([](const Tensor& t) { return t * t; }, h);
  const Tensor by_hand = back_h(back_y(ones_like(y)));
  Tape tape;
  tape.watch(x);
  const Tensor t = tanh(x);
  const Tensor at_once = tape.gradient(sum(t * t), {x})[0];
  EXPECT_EQ(by_hand.to_vector<double>(), at_once.to_vector<double>());
}

TEST(Pullback, TakesSeveralInputsAndRagged) {
  const Ragged x = Ragged::from_lengths(tensor({1, 2, 3}, {3, 1}, {.dtype = f64}), {1, 2});
  const Tensor scale = tensor({2}, {.dtype = f64});
  auto [y, backprop] = pullback([](const Ragged& r, const Tensor& s) { return r * s; }, x, scale);
  const Tensors g = backprop(y.with(ones_like(y.values())));
  EXPECT_EQ(g[0].to_vector<double>(), (std::vector<double>{2, 2, 2}));
  EXPECT_EQ(g[1].item(), 6);
  auto [z, back] = pullback([](const Ragged& r) { return softmax(r); }, x);
  EXPECT_EQ(back(z.with(ones_like(z.values()))).values().shape(), (Shape{3, 1}));
}

TEST(Pullback, UnderATapeIsARangeOfItAndEndsWithIt) {
  const Tensor x = tensor({3}, {.dtype = f64});
  const auto make = [&] {
    Tape tape;
    tape.watch(x);
    auto pair = pullback([](const Tensor& t) { return t * t; }, x);
    EXPECT_EQ(pair.second(ones_like(x)).item(), 6);
    EXPECT_EQ(tape.gradient(pair.first * 2, {x})[0].item(), 12);
    return pair;
  };
  const auto pair = make();
  EXPECT_THROW_WITH(pair.second(ones_like(x)), Error, "pullback", "has ended");
}

TEST(Pullback, TheFunctionMayDifferentiateByItself) {
  const Tensor x = tensor({2}, {.dtype = f64});
  auto [y, backprop] = pullback(
      [](const Tensor& t) {
        Tape tape;
        return tape.gradient(t * t * t, {t})[0];  // 3 t^2
      },
      x);
  EXPECT_EQ(y.item(), 12);
  EXPECT_EQ(backprop(ones_like(y)).item(), 12);  // 6 t
}

TEST(Pullback, ChecksTheGradientItIsGiven) {
  auto [y, backprop] = pullback([](const Tensor& t) { return t * 2; }, tensor({1, 2}));
  const auto& back = backprop;
  EXPECT_THROW_WITH(back(tensor({1})), ShapeError, "dy must have y's shape [2], got [1]");
}

// --- gradients as values --------------------------------------------------------------------------------------------------

TEST(HigherOrder, HessianVectorProduct) {
  const Tensor q = tensor({1, 2, 3}, {.dtype = f64}), v = tensor({1, 0, 2}, {.dtype = f64});
  const auto energy = [](const Tensor& x) { return sum(x * x * x) + sum(x) * sum(x); };
  Tape outer;
  outer.watch(q);
  Tensors first = [&] {
    Tape inner;
    return inner.gradient(energy(q), {q});
  }();
  Tensor hvp = outer.gradient(sum(first[0] * v), {q})[0];
  // 6 diag(q) v + 2 (1 . v)
  EXPECT_EQ(hvp.to_vector<double>(), (std::vector<double>{6 + 6, 6, 36 + 6}));
}

TEST(HigherOrder, ThirdDerivativesOfAConvolution) {
  // One pixel and a 1x1 kernel: y = x w, so that df/dx of f = y^3 is 3 x^2 w^3, and its square has the w-derivative 54 x^4 w^5.
  const Tensor x = full({1, 1, 1, 1}, 2, {.dtype = f64}), w = full({1, 1, 1, 1}, 3, {.dtype = f64});
  Tape third;
  third.watch(x);
  third.watch(w);
  Tensor mixed;
  {
    Tape second;
    Tensor dx;
    {
      Tape first;
      const Tensor y = conv2d(x, w);
      dx = first.gradient(sum(y * y * y), {x})[0];
    }
    mixed = second.gradient(sum(dx * dx), {w})[0];
  }
  const Tensors g = third.gradient(sum(mixed), {x, w});
  EXPECT_DOUBLE_EQ(mixed.item(), 54 * 16 * 243);
  EXPECT_DOUBLE_EQ(g[0].item(), 216 * 8 * 243);
  EXPECT_DOUBLE_EQ(g[1].item(), 270 * 16 * 81);
}

TEST(HigherOrder, DigammaHasDerivativesOfAnyOrder) {
  const Tensor x = tensor({1.5}, {.dtype = f64});
  Tape outer;
  outer.watch(x);
  Tensors first = [&] {
    Tape inner;
    return inner.gradient(digamma(x), {x});
  }();
  EXPECT_NEAR(first[0].item(), 0.93480220054467930942, 1e-14);  // trigamma(3/2) = pi^2 / 2 - 4
  // psi''(3/2) = 16 - 14 zeta(3)
  EXPECT_NEAR(outer.gradient(first[0], {x})[0].item(), -0.82879664423431999, 1e-14);
}

TEST(HigherOrder, ADigammaGradientIsLinearInTheGradientItStartsFrom) {
  const Tensor x = tensor({1.5}, {.dtype = f64}), dy = tensor({2}, {.dtype = f64});
  Tape outer;
  outer.watch(dy);
  Tensors first = [&] {
    Tape inner;
    inner.watch(x);
    return inner.gradient(digamma(x), dy, {x});
  }();
  EXPECT_NEAR(outer.gradient(first[0], {dy})[0].item(), 0.93480220054467930942, 1e-14);
}

// --- details of gradients -------------------------------------------------------------------------------------------------

TEST(Gradients, ACallbackMayReturnOneTensor) {
  const Tensor x = tensor({3}, {.dtype = f64});
  Tape tape;
  tape.watch(x);
  const Tensor y = record("twice", {x}, untaped([&] { return 2 * x; }), [](const Tensor& dy) { return 2 * dy; });
  EXPECT_EQ(tape.gradient(y, {x})[0].item(), 2);
}

TEST(Gradients, CastTakesThemBackToItsInputsDtype) {
  const Tensor x = tensor({1, 2});
  Tape tape;
  tape.watch(x);
  const Tensor dx = tape.gradient(sum(cast(x, f64) * 3), {x})[0];
  EXPECT_EQ(dx.dtype(), f32);
  EXPECT_EQ(dx.to_vector<float>(), (std::vector<float>{3, 3}));
}

TEST(Gradients, EqualOperandsOfMaximumAndMinimumGetHalfEach) {
  const Tensor a = tensor({1, 2}, {.dtype = f64}), b = tensor({1, 3}, {.dtype = f64});
  Tape tape;
  tape.watch(a);
  tape.watch(b);
  const Tensors most = tape.gradient(sum(maximum(a, b)), {a, b}, {.keep = true});
  EXPECT_EQ(most[0].to_vector<double>(), (std::vector<double>{0.5, 0}));
  EXPECT_EQ(most[1].to_vector<double>(), (std::vector<double>{0.5, 1}));
  const Tensors least = tape.gradient(sum(minimum(a, b)), {a, b});
  EXPECT_EQ(least[0].to_vector<double>(), (std::vector<double>{0.5, 1}));
  EXPECT_EQ(least[1].to_vector<double>(), (std::vector<double>{0.5, 0}));
}

TEST(Gradients, ALaterSweepReachesAnotherParameterOfTheSameBuffer) {
  Parameter a(tensor({2})), b(tensor({3}));
  flatten_parameters({a, b});
  Tape tape;
  tape.backward(a * a);
  tape.backward(b * 5);
  EXPECT_EQ(a.gradient().item(), 4);
  EXPECT_EQ(b.gradient().item(), 5);
}

}  // namespace
