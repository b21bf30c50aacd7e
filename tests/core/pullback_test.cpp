// pullback() on layers and ops, composed by hand, with a tape, with several inputs and outputs.

#include "reel/core/pullback.h"

#include <gtest/gtest.h>

#include "reel/nn/conv.h"
#include "reel/nn/embedding.h"
#include "reel/nn/linear.h"
#include "reel/nn/sequential.h"
#include "reel/ops/activations.h"
#include "reel/ops/arithmetic.h"
#include "reel/ops/convert.h"
#include "reel/ops/create.h"
#include "reel/ops/ragged.h"
#include "reel/ops/reduce.h"
#include "reel/ops/softmax.h"
#include "reel/ops/unary.h"
#include "reel/ops/views.h"
#include "reel/tests/expect.h"

namespace reel {
namespace {

Tensor vector(std::initializer_list<double> values) { return tensor(values, {.dtype = f64}); }

// What a tape gives for the same layer, input and gradient of the result: dx, then the parameters' gradients.
template <class Layer>
Tensors by_tape(Layer& layer, const Tensor& x, const Tensor& dy) {
  Tape tape;
  tape.watch(x);
  Tensors wanted{x};
  for (const Parameter& p : layer.parameters()) wanted.push_back(p.value());
  return tape.gradient(layer(x), dy, wanted);
}

template <class Layer>
void expect_as_by_tape(Layer& layer, const Tensor& x) {
  auto [y, backprop] = pullback(layer, x);
  EXPECT_FALSE(is_recording());
  Generator generator(3);
  const Tensor dy = randn(y.shape(), generator);
  const Tensor dx = backprop(dy);
  const Tensors expected = by_tape(layer, x, dy);
  EXPECT_EQ(dx.to_vector<float>(), expected[0].to_vector<float>());
  std::size_t i = 1;
  for (const Parameter& p : layer.parameters())
    EXPECT_EQ(p.gradient().to_vector<float>(), expected[i++].template to_vector<float>()) << p.name();
}

TEST(PullbackOfLayers, GivesWhatATapeGives) {
  nn::Linear linear({.in = 3, .out = 2});
  expect_as_by_tape(linear, randn({4, 3}));
  nn::LinearRelu hidden({.in = 3, .out = 2});
  expect_as_by_tape(hidden, randn({4, 3}));
  nn::Conv2d conv({.in = 2, .out = 3, .kernel = 3, .padding = 1});
  expect_as_by_tape(conv, randn({2, 2, 5, 5}));
  nn::Conv2dRelu relu_conv({.in = 2, .out = 3, .kernel = 3});
  expect_as_by_tape(relu_conv, randn({2, 2, 5, 5}));
  nn::Sequential both(nn::Linear({.in = 3, .out = 5}), nn::Linear({.in = 5, .out = 2}));
  expect_as_by_tape(both, randn({4, 3}));
}

TEST(PullbackOfLayers, TakesRagged) {
  nn::Linear linear({.in = 2, .out = 2});
  const Ragged x = Ragged::from_lengths(randn({5, 2}), {2, 0, 3});
  auto [y, backprop] = pullback(linear, x);
  const Ragged dx = backprop(y.with(ones_like(y.values())));
  EXPECT_EQ(dx.offsets().lengths(), x.offsets().lengths());
  const Tensors expected = by_tape(linear, x.values(), ones({5, 2}));
  EXPECT_EQ(dx.values().to_vector<float>(), expected[0].to_vector<float>());
}

TEST(PullbackOfLayers, AnIntegerInputHasNoGradientButTheParametersDo) {
  nn::Embedding embedding({.rows = 4, .width = 2});
  auto [y, backprop] = pullback(embedding, from_vector<std::int64_t>({1, 3, 1}, {3}));
  EXPECT_FALSE(backprop(ones_like(y)).defined());
  EXPECT_EQ(embedding.parameters()[0].gradient().to_vector<float>(), (std::vector<float>{0, 0, 2, 2, 0, 0, 1, 1}));
}

TEST(Pullback, SeveralOutputsGoBackTogether) {
  const Tensor x = vector({2, 3});
  const Parameter w(vector({5, 7}));
  auto [ys, backprop] = pullback([&](const Tensor& t) { return Tensors{t * w, argmax(t, 0), sum(t * t)}; }, x);
  EXPECT_EQ(ys[2].item(), 13);
  const Tensor dx = backprop({vector({1, 10}), Tensor(), full({}, 0.5, {.dtype = f64})});
  EXPECT_EQ(dx.to_vector<double>(), (std::vector<double>{5 + 2, 70 + 3}));
  EXPECT_EQ(w.gradient().to_vector<double>(), (std::vector<double>{2, 30}));
  EXPECT_EQ(backprop({Tensor(), Tensor(), full({}, 1, {.dtype = f64})}).to_vector<double>(),
            (std::vector<double>{4, 6}));
  const auto& back = backprop;
  EXPECT_THROW_WITH(back({vector({1, 10})}), Error, "one gradient per output is required, 3, got 1",
                    "pullback_test.cpp:");
  EXPECT_THROW_WITH(back({vector({1}), Tensor(), Tensor()}), ShapeError, "dy must have y's shape [2], got [1]");
}

TEST(Pullback, SeveralOutputsUnderATapeCanBeDifferentiatedAgain) {
  const Tensor x = vector({2});
  Tape tape;
  tape.watch(x);
  auto [ys, backprop] = pullback([](const Tensor& t) { return Tensors{t * t, t * t * t}; }, x);
  const Tensor dx = backprop({ones({1}, {.dtype = f64}), ones({1}, {.dtype = f64})});
  EXPECT_EQ(dx.item(), 4 + 12);
  EXPECT_EQ(tape.gradient(dx, {x})[0].item(), 2 + 12);
}

void expect_near(const Tensor& x, const std::vector<double>& expected) {
  for (std::size_t i = 0; i < expected.size(); ++i) EXPECT_NEAR(x.to_vector<double>()[i], expected[i], 1e-15);
}

// A chain of two, one by pullback and one by the tape, either way round.
TEST(Pullback, OfAConstantSaysSo) {
  const Tensor x = ones({3});
  auto [y, backprop] = pullback([](const Tensor& t) { return stop_gradient(t) * 2; }, x);
  EXPECT_THROW_WITH(backprop(y), Error, "pullback: f's result must depend on its inputs", "got a constant",
                    "pullback_test.cpp:");
}

TEST(Pullback, MixesWithATape) {
  const Tensor x = vector({0.3, -0.7});
  const auto expected = [&] {
    Tape tape;
    tape.watch(x);
    const Tensor h = tanh(x);
    return tape.gradient(sum(h * h * h), {x})[0].to_vector<double>();
  }();
  {
    Tape tape;
    tape.watch(x);
    auto [h, back] = pullback([](const Tensor& t) { return tanh(t); }, x);
    const Tensor dh = tape.gradient(sum(h * h * h), {h}, {.keep = true})[0];
    expect_near(back(dh), expected);
    expect_near(tape.gradient(sum(h * h * h), {x})[0], expected);
  }
  auto [h, back] = pullback([](const Tensor& t) { return tanh(t); }, x);
  Tape tape;
  tape.watch(h);
  expect_near(back(tape.gradient(sum(h * h * h), {h})[0]), expected);
}

TEST(Pullback, RaggedSequencesAreReducedAndComeBackRagged) {
  const Ragged x = Ragged::from_lengths(vector({1, 2, 3, 4}), {1, 0, 3});
  auto [y, backprop] = pullback([](const Ragged& r) { return sum(r * r); }, x);
  EXPECT_EQ(y.to_vector<double>(), (std::vector<double>{1, 0, 29}));
  const Ragged dx = backprop(vector({1, 5, 10}));
  EXPECT_EQ(dx.values().to_vector<double>(), (std::vector<double>{2, 40, 60, 80}));
}

TEST(Pullback, ACallbackThatThrowsLeavesParametersGradients) {
  const Parameter w(vector({2}));
  auto [y, backprop] = pullback(
      [&](const Tensor& t) {
        const Tensor h =
            record("broken", {t}, untaped([&] { return t * 1; }), [](const Tensor&) -> Tensor { throw Error("no"); });
        return h * w;
      },
      vector({3}));
  const auto& back = backprop;
  const Tensor dy = ones_like(y);
  EXPECT_THROW_WITH(back(dy), Error, "backward of broken", "no");
  EXPECT_FALSE(w.has_gradient());
}

}  // namespace
}  // namespace reel
