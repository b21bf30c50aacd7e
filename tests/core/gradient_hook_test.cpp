// Hooks that see a gradient: of a tensor on a tape, of a parameter; where a parameter's gradient lies.

#include <gtest/gtest.h>

#include <cstdint>
#include <optional>
#include <random>
#include <stdexcept>
#include <string>
#include <vector>

#include "reel/core/checkpoint.h"
#include "reel/core/parameter.h"
#include "reel/ops/arithmetic.h"
#include "reel/ops/create.h"
#include "reel/ops/elementwise.h"
#include "reel/ops/ragged.h"
#include "reel/ops/reduce.h"
#include "reel/tests/expect.h"

namespace reel {
namespace {

constexpr TensorOptions kDouble{.dtype = f64};

Tensor vector(std::initializer_list<double> values) { return tensor(values, kDouble); }
std::vector<double> values(const Tensor& x) { return x.to_vector<double>(); }

TEST(GradientHook, SeesTheCompleteGradientOnce) {
  const Tensor x = vector({2});
  std::vector<double> seen;
  Tape tape;
  tape.watch(x);
  const Tensor h = gradient_hook(x * 3, [&seen](const Tensor& dy) { seen.push_back(dy.item()); });
  EXPECT_EQ(tape.gradient(h * h + h, {x})[0].item(), 3 * 13);
  EXPECT_EQ(seen, (std::vector<double>{13}));
}

TEST(GradientHook, ReplacesOrStopsIt) {
  const Tensor x = vector({2});
  Tape tape;
  tape.watch(x);
  const Tensor clipped = gradient_hook(x, [](const Tensor& dy) { return minimum(dy, 1.0); });
  EXPECT_EQ(tape.gradient(clipped * 5, {x})[0].item(), 1);
  const Tensor stopped = gradient_hook(x, [](const Tensor&) { return Tensor(); });
  EXPECT_EQ(tape.gradient(stopped * 5, {x})[0].item(), 0);
  const Tensor wrong = gradient_hook(x, [](const Tensor&) { return ones({2}, kDouble); });
  EXPECT_THROW_WITH(tape.gradient(wrong * 5, {x}), ShapeError, "backward of gradient_hook", "must have shape [1]");
}

TEST(GradientHook, TakesRaggedAndIsRecordedUnderAnOuterTape) {
  const Ragged x = Ragged::from_lengths(vector({1, 2, 3}), {1, 2});
  Tape outer;
  outer.watch(x.values());
  Tensor dx;
  {
    Tape inner;
    const Ragged h = gradient_hook(x, [](const Ragged& dy) { return dy * 10.0; });
    dx = inner.gradient(sum(h.values() * h.values()), {x.values()})[0];
  }
  EXPECT_EQ(values(dx), (std::vector<double>{20, 40, 60}));
  // The second sweep passes h, and the hook, as well.
  EXPECT_EQ(values(outer.gradient(sum(dx), {x.values()})[0]), (std::vector<double>{200, 200, 200}));
}

TEST(GradientHook, OfARaggedMayOnlyLook) {
  const Ragged x = Ragged::from_lengths(vector({1, 2, 3}), {1, 2});
  Tape tape;
  tape.watch(x.values());
  std::vector<double> seen;
  const Ragged h = gradient_hook(x, [&seen](const Ragged& dy) { seen = values(dy.values()); });
  EXPECT_EQ(values(tape.gradient(sum(h.values() * h.values()), {x.values()})[0]), (std::vector<double>{2, 4, 6}));
  EXPECT_EQ(seen, (std::vector<double>{2, 4, 6}));
}

TEST(GradientHook, AConstantStaysWhatItIs) {
  const Tensor x = vector({2});
  const Tensor y = gradient_hook(x, [](const Tensor&) { FAIL(); });
  EXPECT_TRUE(y.is(x));
}

TEST(GradientHook, OfAParameterRunsWhenItsGradientIsComplete) {
  Parameter w(vector({2})), unreached(vector({1}));
  flatten_parameters({w, unreached});
  std::vector<double> seen;
  w.on_gradient([&seen](Parameter& p) {
    seen.push_back(p.gradient().item());
    p.set_gradient(p.gradient() * 0.5);
  });
  unreached.on_gradient([](Parameter&) { FAIL(); });
  Tape tape;
  tape.backward(w * w + w, {.keep = true});  // 5, halved
  tape.backward(w * 3);                      // 2.5 + 3, halved
  EXPECT_EQ(seen, (std::vector<double>{5, 5.5}));
  EXPECT_EQ(w.gradient().item(), 2.75);
  w.on_gradient({});
  tape.backward(w * 1);
  EXPECT_EQ(seen.size(), 2u);
}

TEST(GradientHook, OneThatThrowsLeavesEveryGradientAsItWas) {
  Parameter a(vector({2})), b(vector({3})),
      alone(vector({5}));  // two buffers: the hooks of one may run before the other's
  flatten_parameters({a, b});
  a.on_gradient([](Parameter& p) { p.set_gradient(p.gradient() * 100); });
  const auto fails = [](Parameter&) { throw std::runtime_error("no"); };
  const auto sweep = [&] {
    Tape tape;
    tape.backward(a * b * alone);
  };
  for (Parameter* last : {&b, &alone}) {
    last->on_gradient(fails);
    EXPECT_THROW(sweep(), std::runtime_error);
    for (const Parameter& p : {a, b, alone}) EXPECT_FALSE(p.has_gradient());
    last->on_gradient({});
  }
  sweep();
  EXPECT_EQ(a.gradient().item(), 1500);
  alone.clear_gradient();
  b.on_gradient(fails);
  EXPECT_THROW(sweep(), std::runtime_error);
  EXPECT_EQ(a.gradient().item(), 1500);
  EXPECT_EQ(b.gradient().item(), 10);
  EXPECT_FALSE(alone.has_gradient());
  b.on_gradient({});
  a.on_gradient({});
  sweep();  // on from there
  EXPECT_EQ(a.gradient().item(), 1515);
  EXPECT_EQ(b.gradient().item(), 20);
  EXPECT_EQ(alone.gradient().item(), 6);
}

// Sweeps to some of them, gradients that are set and cleared, and new layouts of some, in any order.
TEST(Parameter, KeepTheirGradientsWhereverTheyLie) {
  std::mt19937_64 random(9);
  for (int round = 0; round < 50; ++round) {
    std::vector<Parameter> parameters;
    std::vector<std::optional<double>> expected(6);
    for (int i = 0; i < 6; ++i) parameters.emplace_back(ones({i + 1}), std::string(1, static_cast<char>('a' + i)));
    for (int step = 0; step < 30; ++step) {
      std::vector<std::size_t> some;
      for (std::size_t i = 0; i < parameters.size(); ++i)
        if (random() % 3 == 0) some.push_back(i);
      const double number = static_cast<double>(random() % 9) - 4;
      const std::uint64_t what = random() % 5;
      if (what < 2 && !some.empty()) {
        Tape tape;
        Tensor y = zeros({});
        for (const std::size_t i : some) y = y + number * sum(parameters[i]);
        tape.backward(y);
        for (const std::size_t i : some) expected[i] = expected[i].value_or(0) + number;
      } else if (what == 2) {
        for (const std::size_t i : some) parameters[i].clear_gradient(), expected[i].reset();
      } else if (what == 3) {
        for (const std::size_t i : some) {
          parameters[i].set_gradient(full(parameters[i].shape(), number));
          expected[i] = number;
        }
      } else {
        std::vector<Parameter> together;
        for (const std::size_t i : some) together.push_back(parameters[i]);
        flatten_parameters(together);
      }
      for (std::size_t i = 0; i < parameters.size(); ++i) {
        ASSERT_EQ(parameters[i].has_gradient(), expected[i].has_value()) << round << ", " << step << ", " << i;
        if (!expected[i]) continue;
        for (const double element : values(parameters[i].gradient())) ASSERT_EQ(element, *expected[i]);
      }
    }
  }
}

}  // namespace
}  // namespace reel
