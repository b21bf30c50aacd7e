#include "reel/core/tape.h"

#include <gtest/gtest.h>

#include <stdexcept>

#include "reel/core/memory.h"
#include "reel/core/parameter.h"
#include "reel/ops/arithmetic.h"
#include "reel/ops/convert.h"
#include "reel/ops/create.h"
#include "reel/ops/reduce.h"
#include "reel/ops/unary.h"
#include "reel/ops/views.h"
#include "reel/tests/expect.h"

namespace reel {
namespace {

Tensor vector(std::initializer_list<double> values) { return tensor(values, {.dtype = f64}); }

TEST(Tape, GradientsOfParametersAreTheirs) {
  Parameter w(vector({2, 3}));
  Tape tape;
  tape.backward(sum(w * w));
  EXPECT_EQ(w.gradient().to_vector<double>(), (std::vector<double>{4, 6}));
}

TEST(Tape, WithoutATapeNothingIsRecorded) {
  Parameter w(vector({2}));
  const std::int64_t before = memory_stats().live_nodes;
  const Tensor y = w * w;
  EXPECT_EQ(memory_stats().live_nodes, before);
  Tape tape;
  EXPECT_THROW_WITH(tape.backward(y), Error, "backward: y must depend on a trainable parameter");
}

TEST(Tape, WhatDependsOnNothingTrainableIsNotRecorded) {
  Parameter frozen(vector({2}));
  frozen.set_trainable(false);
  Tape tape;
  const std::int64_t before = memory_stats().live_nodes;
  const Tensor y = frozen * frozen + exp(vector({1}));
  EXPECT_EQ(memory_stats().live_nodes, before);
  EXPECT_FALSE(is_tracked(y));
}

TEST(Tape, UntapedPausesRecording) {
  Parameter w(vector({2}));
  Tape tape;
  EXPECT_FALSE(is_tracked(untaped([&] { return w * w; })));
  EXPECT_TRUE(is_tracked(w * w));
}

TEST(Tape, GradientsOfOneParameterAddUpWithinASweepAndAcrossSweeps) {
  Parameter w(vector({2}));
  for (int step = 1; step <= 2; ++step) {
    Tape tape;
    tape.backward(sum(w * 3 + w * 4 + w));
    EXPECT_EQ(w.gradient().item(), 8 * step);
  }
}

TEST(Tape, AParameterThatTheSweepDidNotReachHasNoGradient) {
  Parameter a(vector({2})), b(vector({3}));
  flatten_parameters({a, b});
  Tape tape;
  tape.backward(sum(a * a));
  EXPECT_TRUE(a.has_gradient());
  EXPECT_FALSE(b.has_gradient());
  EXPECT_FALSE(b.gradient().defined());
}

TEST(Tape, SecondSweepSaysThatTheFirstReleasedTheCallbacks) {
  Parameter w(vector({2}));
  Tape tape;
  const Tensor y = sum(w * w);
  tape.backward(y);
  EXPECT_THROW_WITH(tape.backward(y), Error, "swept before", "sum", "tape_test.cpp", ".keep = true");
}

TEST(Tape, KeepAllowsSeveralSweeps) {
  Parameter w(vector({2}));
  Tape tape;
  const Tensor y = sum(w * w);
  tape.backward(y, {.keep = true});
  tape.backward(y);
  EXPECT_EQ(w.gradient().item(), 8);
}

TEST(Tape, CallbacksAreReleasedAsTheyRun) {
  const auto token = std::make_shared<int>(0);
  std::vector<long> uses;
  Parameter w(vector({1}));
  Tape tape;
  Tensor y = w.value();
  for (int i = 0; i < 3; ++i) {
    const Tensor x = y;
    y = record("step", {x}, untaped([&] { return x * 1; }), [token, &uses](const Tensor& dy) {
      uses.push_back(token.use_count());
      return dy;
    });
  }
  tape.backward(y);
  // The test's own, and one in each callback that has not been released yet.
  EXPECT_EQ(uses, (std::vector<long>{4, 3, 2}));
  EXPECT_EQ(token.use_count(), 1);
}

TEST(Tape, CallbacksLearnWhichInputsNeedAGradient) {
  Parameter w(vector({2}));
  std::vector<bool> seen;
  Tape tape;
  const Tensor constant = vector({5});
  const Tensor y =
      record("pair", {constant, w}, untaped([&] { return constant * w; }), [&](const Tensor& dy, Needed needed) {
        seen = {needed[0], needed[1]};
        return Tensors{Tensor(), dy * constant};
      });
  tape.backward(y);
  EXPECT_EQ(seen, (std::vector<bool>{false, true}));
  EXPECT_EQ(w.gradient().item(), 5);
}

TEST(Tape, AWatchedTensorIsNotNeededByBackward) {
  Parameter w(vector({2}));
  const Tensor x = vector({3});
  bool needed_x = true;
  Tape tape;
  tape.watch(x);
  const Tensor y = record("pair", {x, w}, untaped([&] { return x * w; }), [&](const Tensor& dy, Needed needed) {
    needed_x = needed[0];
    return Tensors{dy * w, dy * x};
  });
  tape.backward(y, {.keep = true});
  EXPECT_FALSE(needed_x);
  EXPECT_EQ(tape.gradient(y, {x})[0].item(), 2);
  EXPECT_TRUE(needed_x);
}

TEST(Tape, ExceptionInACallbackLeavesEveryGradientAsItWas) {
  Parameter a(vector({2})), b(vector({3}));
  flatten_parameters({a, b});
  {
    Tape tape;
    tape.backward(sum(a * b));
  }
  const auto before_a = a.gradient().to_vector<double>(), before_b = b.gradient().to_vector<double>();
  Tape tape;
  const Tensor broken = record("broken", {a}, untaped([&] { return a * 1; }),
                               [](const Tensor&) -> Tensor { throw std::runtime_error("out of luck"); });
  const Tensor y = sum(broken + b * b);
  EXPECT_THROW(tape.backward(y), std::runtime_error);
  EXPECT_EQ(a.gradient().to_vector<double>(), before_a);
  EXPECT_EQ(b.gradient().to_vector<double>(), before_b);
}

TEST(Tape, ErrorsInBackwardNameTheOpAndTheLineOfTheForwardCall) {
  Parameter w(vector({2, 3}));
  Tape tape;
  const Tensor y = record("halve", {w}, untaped([&] { return sum(w * 1); }), [](const Tensor& dy) { return dy; });
  EXPECT_THROW_WITH(tape.backward(y), ShapeError, "backward of halve", "tape_test.cpp", "input 0", "[2]", "[]");
}

TEST(Tape, WrongNumberOfGradientsSaysSo) {
  Parameter w(vector({2}));
  Tape tape;
  const Tensor y = record("one", {w}, untaped([&] { return w * 1; }), [](const Tensor& dy) { return Tensors{dy, dy}; });
  EXPECT_THROW_WITH(tape.backward(y), Error, "backward of one", "one gradient per input, 1, got 2");
}

TEST(Tape, WritingASavedTensorIsNoticed) {
  Parameter w(vector({2}));
  Tensor x = vector({3});
  Tape tape;
  const Tensor y = sum(w * x);
  x.fill_(7);
  EXPECT_THROW_WITH(tape.backward(y), VersionError, "backward of mul", "written since", "fill_", "tape_test.cpp");
}

TEST(Tape, WritingThroughAViewOfASavedTensorIsNoticed) {
  Parameter w(vector({2, 3}));
  Tensor x = vector({3, 4});
  Tape tape;
  const Tensor y = sum(w * x);
  x[1].fill_(7);
  EXPECT_THROW(tape.backward(y), VersionError);
}

TEST(Tape, SavedNarrowsWhatIsChecked) {
  Parameter w(vector({2}));
  Tensor unused = vector({3});
  Tape tape;
  const Tensor y = record("narrow", {w, unused}, untaped([&] { return w * 2; }), saved(w), [](const Tensor& dy) {
    return Tensors{dy * 2, Tensor()};
  });
  unused.fill_(1);
  tape.backward(y);
  EXPECT_EQ(w.gradient().item(), 2);
}

TEST(Tape, TensorsOnALiveTapeCannotBeWritten) {
  Parameter w(vector({2}));
  Tape tape;
  Tensor y = w * w;
  EXPECT_THROW_WITH(y.fill_(0), VersionError, "fill_", "live tape");
  EXPECT_THROW(y.copy_(vector({1})), VersionError);
  EXPECT_THROW(y.mutable_data<double>(), VersionError);
  EXPECT_EQ(y.item(), 4);
}

TEST(Tape, ATensorThatOutlivesItsTapeIsAConstant) {
  Parameter w(vector({2}));
  Tensor y;
  {
    Tape tape;
    y = w * w;
  }
  Tape tape;
  EXPECT_FALSE(is_tracked(y));
  tape.backward(sum(w * y));
  EXPECT_EQ(w.gradient().item(), 4);
  y.fill_(1);
}

TEST(Tape, RecordRefusesOutputsThatAreOnATape) {
  Parameter w(vector({2}));
  Tape tape;
  const auto same = [](const Tensor& dy) { return dy; };
  EXPECT_THROW_WITH(record("twice", {w}, w * w, same), Error, "twice", "not on a tape yet");
  EXPECT_THROW(record("itself", {w}, w.value(), same), Error);
}

TEST(Tape, SeveralOutputsGetTheirGradients) {
  Parameter w(vector({3}));
  const auto both = [&] {
    return record("both", {w}, untaped([&] {
                    return Tensors{w * 2, w * 5};
                  }),
                  [](const Tensors& dys) {
                    Tensor dx = dys[0].defined() ? dys[0] * 2 : zeros_like(dys[1]);
                    return Tensors{dys[1].defined() ? dx + dys[1] * 5 : dx};
                  });
  };
  {
    Tape tape;
    const Tensors ys = both();
    tape.backward(sum(ys[0] + ys[1]));
    EXPECT_EQ(w.gradient().item(), 7);
  }
  w.clear_gradient();
  Tape tape;
  tape.backward(both()[0]);
  EXPECT_EQ(w.gradient().item(), 2);
}

TEST(Tape, GradientGivesValuesAndLeavesParametersAlone) {
  Parameter w(vector({2}));
  Tape tape;
  const Tensors g = tape.gradient(w * w * w, {w});
  EXPECT_EQ(g[0].item(), 12);
  EXPECT_FALSE(w.has_gradient());
}

TEST(Tape, GradientOfWhatWasNotWatchedSaysSo) {
  Parameter w(vector({2}));
  const Tensor x = vector({1});
  Tape tape;
  EXPECT_THROW_WITH(tape.gradient(w * x, {x}), Error, "gradient", "wanted tensor 0", "was not watched");
}

TEST(Tape, GradientIsZeroWhereThereIsNoDependence) {
  const Tensor x = vector({1}), z = vector({2, 3});
  Tape tape;
  tape.watch(x);
  tape.watch(z);
  EXPECT_EQ(tape.gradient(x * x, {z})[0].to_vector<double>(), (std::vector<double>{0, 0}));
}

TEST(Tape, IntermediateResultsCanBeWanted) {
  const Tensor x = vector({3});
  Tape tape;
  tape.watch(x);
  const Tensor square = x * x;
  const Tensors g = tape.gradient(square * square, {square, x});
  EXPECT_EQ(g[0].item(), 18);
  EXPECT_EQ(g[1].item(), 108);
}

TEST(Tape, NestedTapesGiveDerivativesOfAnyOrder) {
  const Tensor x = vector({2});
  Tape first;
  first.watch(x);
  Tensor d3;
  {
    Tape second;
    Tensor d2;
    {
      Tape third;
      d2 = third.gradient(x * x * x * x, {x})[0];  // 4 x^3
    }
    d3 = second.gradient(d2, {x})[0];  // 12 x^2
  }
  EXPECT_EQ(d3.item(), 48);
  EXPECT_EQ(first.gradient(d3, {x})[0].item(), 48);  // 24 x
}

TEST(Tape, AnInnerTapeSeesWhatWasRecordedSinceItBegan) {
  const Tensor x = vector({2});
  Tape outer;
  outer.watch(x);
  const Tensor y = x * x;
  Tape inner;
  EXPECT_THROW_WITH(inner.gradient(y, {x}), Error, "before this tape began");
  EXPECT_EQ(inner.gradient(y * 3, {y})[0].item(), 3);
  EXPECT_THROW_WITH(inner.gradient(y * 3, {x}), Error, "by way of mul", "before this tape began");
}

TEST(Tape, SweepsAreReentrant) {
  Parameter w(vector({3}));
  Tape tape;
  const Tensor y = record("cube", {w}, untaped([&] { return w * w * w; }), [&](const Tensor& dy) {
    Tape inside;  // differentiates while the outer sweep runs
    const Tensor x = stop_gradient(w.value());
    inside.watch(x);
    return dy * inside.gradient(x * x * x, {x})[0];
  });
  tape.backward(y);
  EXPECT_EQ(w.gradient().item(), 27);
}

TEST(Tape, TheStartingGradientMustFitTheResult) {
  Parameter w(vector({2, 3}));
  Tape tape;
  const Tensor y = w * 2;
  EXPECT_THROW_WITH(tape.backward(y), ShapeError, "one element", "[2]");
  EXPECT_THROW_WITH(tape.backward(y, vector({1})), ShapeError, "dy must have y's shape [2], got [1]");
  EXPECT_THROW_WITH(tape.backward(y, tensor({1, 2})), DTypeError, "dy must be f64");
  tape.backward(y, vector({1, 10}));
  EXPECT_EQ(w.gradient().to_vector<double>(), (std::vector<double>{2, 20}));
}

TEST(Tape, OnlyFloatingTensorsCanBeWatched) {
  Tape tape;
  EXPECT_THROW_WITH(tape.watch(arange(3)), DTypeError, "watch", "i64");
}

TEST(Tape, CheckFiniteStopsAtTheFirstBadResult) {
  const Tensor x = vector({1, 0, 2});
  Tape strict{{.check_finite = true}};
  strict.watch(x);
  EXPECT_THROW_WITH(log(x) * 2, Error, "log: the result must be finite", "-inf at index [1]", "in [0, 2]",
                    "tape_test.cpp");
}

TEST(Tape, CheckFiniteStopsAtTheFirstBadGradient) {
  const Tensor x = vector({0});
  Tape strict{{.check_finite = true}};
  strict.watch(x);
  const Tensor y = sqrt(x);
  EXPECT_THROW_WITH(strict.gradient(y, {x}), Error, "backward of sqrt", "must be finite", "inf");
}

}  // namespace
}  // namespace reel
