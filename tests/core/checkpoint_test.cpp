#include "reel/core/checkpoint.h"

#include <gtest/gtest.h>

#include <cmath>
#include <thread>

#include "reel/core/memory.h"
#include "reel/core/parameter.h"
#include "reel/core/random.h"
#include "reel/ops/arithmetic.h"
#include "reel/ops/create.h"
#include "reel/ops/dropout.h"
#include "reel/ops/matmul.h"
#include "reel/ops/ragged.h"
#include "reel/ops/reduce.h"
#include "reel/ops/unary.h"
#include "reel/ops/views.h"
#include "reel/tests/expect.h"

namespace reel {
namespace {

constexpr TensorOptions kDouble{.dtype = f64};

Tensor vector(std::initializer_list<double> values) { return tensor(values, kDouble); }
std::vector<double> values(const Tensor& x) { return x.to_vector<double>(); }

// Two layers, of which the hidden one is recomputed or not.
struct Net {
  Parameter w1, w2;
  explicit Net(std::uint64_t seed) {
    Generator generator(seed);
    w1 = Parameter(randn({4, 3}, generator));
    w2 = Parameter(randn({2, 4}, generator));
  }
  Tensor inside(const Tensor& x) const { return dropout(tanh(linear(x, w1)), 0.5); }
  Tensor loss(const Tensor& x, bool checkpointed) const {
    const auto f = [this](const Tensor& t) { return inside(t); };
    const Tensor h = checkpointed ? checkpoint(f, x) : f(x);
    const Tensor y = linear(h, w2);
    return sum(y * y);
  }
};

TEST(Checkpoint, TakesAnyNumberOfInputs) {
  const Tensor a = vector({1, 2}), b = vector({3}), c = vector({-1, 4}), d = vector({2});
  const Ragged r = Ragged::from_lengths(vector({5, 6}), {1, 1});
  const auto f = [](const Tensor& v, const Tensor& w, const Ragged& x, const Tensor& y, const Tensor& z) {
    return sum(v * w * x.values() + y * z);
  };
  Tape tape;
  for (const Tensor& x : {a, b, r.values(), c, d}) tape.watch(x);
  const Tensors wanted{a, b, r.values(), c, d};
  const Tensors plain = tape.gradient(f(a, b, r, c, d), wanted);
  const Tensors again = tape.gradient(checkpoint(f, a, b, r, c, d), wanted);
  for (std::size_t i = 0; i < wanted.size(); ++i) EXPECT_EQ(values(again[i]), values(plain[i])) << i;
  const auto no_result = [](const Tensor&, const Tensor&, const Tensor& x, const Tensor&) {
    exp(x);
    return Tensor();
  };
  EXPECT_THROW_WITH(checkpoint(no_result, a, b, c, d), Error, "checkpoint: f's results must be defined",
                    "checkpoint_test.cpp:");
}

TEST(Checkpoint, IsFiniteWhateverLiesInMemory) {
  const Tensor x = vector({1, 2});
  Tape tape({.check_finite = true});
  tape.watch(x);
  const Tensor y = sum(checkpoint([](const Tensor& a) { return a * 2.0; }, x));
  {
    Tensors all;
    for (int i = 0; i < 200; ++i) all.push_back(full({}, std::nan("")));
  }
  EXPECT_EQ(values(tape.gradient(y, {x})[0]), (std::vector<double>{2, 2}));
}

TEST(Checkpoint, GivesTheBitsOfThePlainCallDropoutIncluded) {
  Net net(1);
  Generator generator(2);
  const Tensor x = randn({5, 3}, generator);
  std::vector<Tensor> gradients[2], losses;
  for (const bool checkpointed : {false, true}) {
    manual_seed(7);
    Tape tape;
    tape.watch(x);
    const Tensor loss = net.loss(x, checkpointed);
    const Tensor between = dropout(x, 0.5);  // draws between the two calls
    losses.push_back(loss);
    const Tensor dx = tape.gradient(loss, {x}, {.keep = true})[0];
    tape.backward(loss);
    gradients[checkpointed] = {dx, net.w1.gradient(), net.w2.gradient(), between};
    net.w1.clear_gradient();
    net.w2.clear_gradient();
  }
  EXPECT_EQ(values(losses[0]), values(losses[1]));
  for (int i = 0; i < 4; ++i)
    EXPECT_EQ(values(gradients[0][static_cast<std::size_t>(i)]), values(gradients[1][static_cast<std::size_t>(i)]))
        << i;
}

TEST(Checkpoint, OtherThreadsMayDrawMeanwhile) {
  manual_seed(3);
  const Tensor x = ones({64});
  Tape tape;
  tape.watch(x);
  const Tensor y = checkpoint(
      [](const Tensor& t) {
        std::thread([] { rand({17}); }).join();
        return dropout(t, 0.5);
      },
      x);
  EXPECT_EQ(values(tape.gradient(y, ones({64}), {x})[0]), values(y));  // dropout of ones is its own derivative
}

TEST(Checkpoint, AFirstLayersParametersGetGradientsThoughNoInputIsTracked) {
  const Parameter w(vector({2, 3}));
  const Tensor x = vector({5, 7});
  Tape tape;
  tape.backward(sum(checkpoint([&](const Tensor& t) { return t * w * w; }, x)));
  EXPECT_EQ(values(w.gradient()), (std::vector<double>{20, 42}));
}

TEST(Checkpoint, CapturedTensorsGetTheirs) {
  const Tensor x = vector({2}), a = vector({3});
  Tape tape;
  tape.watch(x);
  tape.watch(a);
  const Tensor b = a * a;
  const Tensor y = checkpoint([&](const Tensor& t) { return t * b; }, x);
  const Tensors g = tape.gradient(y, {x, a});
  EXPECT_EQ(g[0].item(), 9);
  EXPECT_EQ(g[1].item(), 12);
}

TEST(Checkpoint, FrozenParametersAndConstantsStayConstants) {
  Parameter frozen(vector({2}));
  frozen.set_trainable(false);
  const Tensor x = vector({1});
  Tape tape;
  EXPECT_FALSE(is_tracked(checkpoint([&](const Tensor& t) { return t * frozen; }, x)));
}

TEST(Checkpoint, WithoutATapeItIsAPlainCall) {
  const std::int64_t before = memory_stats().live_nodes;
  EXPECT_EQ(checkpoint([](const Tensor& t) { return t * 2; }, vector({3})).item(), 6);
  EXPECT_EQ(memory_stats().live_nodes, before);
}

TEST(Checkpoint, KeepsNothingOfTheInside) {
  const Tensor x = ones({1000}, kDouble);
  const auto deep = [](Tensor t) {
    for (int i = 0; i < 20; ++i) t = tanh(t);
    return t;
  };
  Tape tape;
  tape.watch(x);
  const MemoryStats before = memory_stats();
  const Tensor y = checkpoint(deep, x);
  EXPECT_LE(memory_stats().live_bytes - before.live_bytes, 2 * 8000);
  EXPECT_EQ(memory_stats().live_nodes - before.live_nodes, 1);
  tape.gradient(y, ones_like(y), {x}, {.keep = true});
  EXPECT_EQ(memory_stats().live_nodes - before.live_nodes, 1);  // nor of the second call
  EXPECT_LE(memory_stats().live_bytes - before.live_bytes, 2 * 8000);
}

TEST(Checkpoint, Nests) {
  const Parameter w(vector({0.5, -0.3}));
  const Tensor x = vector({0.2, 0.4});
  const auto inner = [&](const Tensor& t) { return tanh(t * w); };
  const auto outer = [&](const Tensor& t) { return inner(inner(t) + t); };
  const auto nested = [&](const Tensor& t) { return checkpoint(inner, checkpoint(inner, t) + t); };
  std::vector<std::vector<double>> gradients;
  for (const bool checkpointed : {false, true}) {
    Parameter handle = w;
    handle.clear_gradient();
    Tape tape;
    tape.backward(sum(checkpointed ? checkpoint(nested, x) : outer(x)));
    gradients.push_back(values(w.gradient()));
  }
  EXPECT_EQ(gradients[0], gradients[1]);
}

TEST(Checkpoint, TakesAndGivesRaggedAndSeveralResults) {
  const Ragged x = Ragged::from_lengths(vector({1, 2, 3}), {1, 0, 2});
  const Tensor scale = full({}, 2, kDouble);
  Tape tape;
  tape.watch(x.values());
  tape.watch(scale);
  const auto f = [](const Ragged& r, const Tensor& s) { return std::tuple(r * s, sum(r * r)); };
  const auto [scaled, squares] = checkpoint(f, x, scale);
  EXPECT_EQ(scaled.count(), 3);
  EXPECT_EQ(values(squares), (std::vector<double>{1, 0, 13}));
  const Tensors g = tape.gradient(sum(scaled.values()) + sum(squares), {x.values(), scale});
  EXPECT_EQ(values(g[0]), (std::vector<double>{4, 6, 8}));
  EXPECT_EQ(g[1].item(), 6);
}

TEST(Checkpoint, AnInputMayBeAResult) {
  const Tensor x = vector({3});
  Tape tape;
  tape.watch(x);
  const auto [same, square] = checkpoint([](const Tensor& t) { return std::tuple(t, t * t); }, x);
  EXPECT_EQ(tape.gradient(same * 10 + square, {x})[0].item(), 16);
}

TEST(Checkpoint, WhatWasCapturedMayBeAResult) {
  const Tensor x = vector({3}), a = vector({5});
  const Parameter w(vector({2}));
  Tape tape;
  tape.watch(x);
  tape.watch(a);
  const auto [b, c, square] =
      checkpoint([&](const Tensor& t) { return std::tuple<Tensor, Tensor, Tensor>(a, w, t * t); }, x);
  const Tensor y = b * 10 + c * 7 + square;
  EXPECT_EQ(tape.gradient(y, {a}, {.keep = true})[0].item(), 10);
  tape.backward(y);
  EXPECT_EQ(w.gradient().item(), 7);
}

TEST(Checkpoint, MayBeDifferentiatedFourTimes) {
  const Tensor x = vector({1.5});
  const auto f = [](const Tensor& t) { return checkpoint([](const Tensor& u) { return u * u * u * u * u; }, t); };
  Tape first, second, third, fourth;
  first.watch(x);
  // The innermost tape sweeps first; each outer one differentiates what the one inside it gave.
  const Tensor d1 = fourth.gradient(f(x), {x}, {.keep = true})[0];
  const Tensor d2 = third.gradient(d1, {x})[0];
  const Tensor d3 = second.gradient(d2, {x})[0];
  const Tensor d4 = first.gradient(d3, {x})[0];
  EXPECT_DOUBLE_EQ(d1.item(), 5 * std::pow(1.5, 4));
  EXPECT_DOUBLE_EQ(d2.item(), 20 * std::pow(1.5, 3));
  EXPECT_DOUBLE_EQ(d3.item(), 60 * std::pow(1.5, 2));
  EXPECT_DOUBLE_EQ(d4.item(), 120 * 1.5);
}

TEST(Checkpoint, MayDifferentiateInside) {
  const Tensor x = vector({2});
  Tape tape;
  tape.watch(x);
  const Tensor slope = checkpoint(
      [](const Tensor& t) {
        Tape inner;
        inner.watch(t);
        return inner.gradient(t * t * t, {t})[0];
      },
      x);
  EXPECT_EQ(slope.item(), 12);
  EXPECT_EQ(tape.gradient(slope, {x})[0].item(), 12);
}

TEST(Checkpoint, WorksInAPullback) {
  const Parameter w(vector({3}));
  auto [y, backprop] =
      pullback([&](const Tensor& t) { return checkpoint([&](const Tensor& u) { return u * u * w; }, t); }, vector({2}));
  EXPECT_EQ(backprop(ones_like(y)).item(), 12);
  EXPECT_EQ(w.gradient().item(), 4);
  EXPECT_EQ(backprop(ones_like(y)).item(), 12);
  EXPECT_EQ(w.gradient().item(), 8);
}

TEST(Checkpoint, RefusesAParameterThatWasWrittenSince) {
  Parameter w(vector({3}));
  Tape tape;
  const Tensor y = checkpoint([&](const Tensor& t) { return t * w; }, vector({2}));
  w.set_value(vector({4}));
  EXPECT_THROW_WITH(tape.backward(y), VersionError, "backward of checkpoint", "checkpoint_test.cpp", "written since");
}

TEST(Checkpoint, RefusesAFunctionThatDoesOtherThingsWhenCalledAgain) {
  const Tensor x = vector({2});
  int calls = 0;
  Tape tape;
  tape.watch(x);
  const Tensor y = checkpoint([&calls](const Tensor& t) { return t * ones({++calls}, kDouble); }, x);
  EXPECT_THROW_WITH(tape.gradient(y, {x}), ShapeError, "backward of checkpoint", "shape [1] each time", "got [2]");
  const Tensor z = checkpoint([&calls](const Tensor& t) { return ++calls < 4 ? t * 2 : dropout(t, 0.5); }, x);
  EXPECT_THROW_WITH(tape.gradient(z, {x}), Error, "the same random numbers");
}

TEST(Checkpoint, WhatLeakedFromTheInsideHasNoWayBack) {
  const Tensor x = vector({2});
  Tensor leaked;
  Tape tape;
  tape.watch(x);
  checkpoint([&leaked](const Tensor& t) { return leaked = t * 3; }, x);
  EXPECT_THROW_WITH(tape.gradient(leaked * 2, {x}), Error, "inside checkpoint", "mul");
}

// --- several sweeps -------------------------------------------------------------------------------------------------------

TEST(GradientAccumulation, MicroBatchesAddUpToTheBigBatch) {
  const Net net(4);
  const auto loss = [&](const Tensor& x) {
    const Tensor y = linear(tanh(linear(x, net.w1)), net.w2);
    return sum(y * y) / 12.0;  // each divides by the size of the whole
  };
  Generator generator(5);
  const Tensor x = randn({12, 3}, generator);
  {
    Tape tape;
    tape.backward(loss(x));
  }
  const std::vector<double> whole = values(net.w1.gradient());
  Parameter(net.w1).clear_gradient();
  for (const auto& [begin, size] : {std::pair{0, 5}, {5, 0}, {5, 7}}) {
    Tape tape;
    tape.backward(loss(narrow(x, 0, begin, size)));
  }
  const std::vector<double> parts = values(net.w1.gradient());
  for (std::size_t i = 0; i < whole.size(); ++i) EXPECT_NEAR(parts[i], whole[i], 1e-6 * (1 + std::abs(whole[i])));
}

}  // namespace
}  // namespace reel
