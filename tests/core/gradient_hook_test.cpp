// Hooks that see a gradient: of a tensor on a tape, of a parameter.

#include <gtest/gtest.h>

#include <stdexcept>

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

}  // namespace
}  // namespace reel
