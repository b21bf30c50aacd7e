#include "reel/nn/lazy.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

#include "reel/reel.h"
#include "reel/tests/error_of.h"

namespace reel::nn {
namespace {

using testing::HasSubstr;

struct Net : Module {
  using Module::Module;
  Conv2dRelu first{this, "first", {.out = 4, .kernel = 3}};
  Conv2d second{this, "second", {.out = 6, .kernel = {1, 3}, .groups = 2}};
  Linear head{this, "head", {.out = 10}};
  Tensor operator()(const Tensor& x) const { return head(flatten(second(first(x)), 1)); }
};

TEST(Lazy, SizesComeFromTheSample) {
  Net net;
  initialize(net, zeros({2, 3, 8, 8}));
  EXPECT_EQ(net.first.weight().shape(), (Shape{4, 3, 3, 3}));
  EXPECT_EQ(net.second.weight().shape(), (Shape{6, 2, 1, 3}));
  EXPECT_EQ(net.head.weight().shape(), (Shape{10, 6 * 6 * 4}));
  EXPECT_EQ(net.parameter_count(), 108 + 4 + 36 + 6 + 1440 + 10);
  EXPECT_EQ(net(randn({5, 3, 8, 8})).shape(), (Shape{5, 10}));
}

TEST(Lazy, ValuesAreThoseOfALayerWithGivenSizes) {
  manual_seed(3);
  const Linear given({.in = 5, .out = 7});
  Linear open({.out = 7});
  manual_seed(3);
  initialize(open, zeros({2, 5}));
  EXPECT_EQ(open.weight().value().to_vector<float>(), given.weight().value().to_vector<float>());
  EXPECT_EQ(open.bias().value().to_vector<float>(), given.bias().value().to_vector<float>());
}

TEST(Lazy, ANetIsTrainedAfterIt) {
  Linear layer({.out = 2});
  initialize(layer, zeros({1, 3}));
  Adam adam(layer.parameters(), {.lr = 0.1});
  const auto before = layer.weight().value().to_vector<float>();
  Tape tape;
  tape.backward(sum(layer(ones({4, 3}))));
  EXPECT_EQ(layer.weight().gradient().to_vector<float>(), std::vector<float>(6, 4));
  adam.step();
  EXPECT_NE(layer.weight().value().to_vector<float>(), before);
}

TEST(Lazy, RaggedInputsHaveSizesToo) {
  Linear layer({.out = 2});
  initialize(layer, Ragged::from_lengths(zeros({3, 4}), {0, 3}));
  EXPECT_EQ(layer.weight().shape(), (Shape{2, 4}));
}

TEST(Lazy, ALinearReluTakesItsSizeToo) {
  LinearRelu layer({.out = 2});
  EXPECT_THAT(error_of([&] { layer(zeros({1, 4})); }), HasSubstr("LinearRelu: a known size is required"));
  initialize(layer, zeros({1, 4}));
  EXPECT_EQ(layer.weight().shape(), (Shape{2, 4}));
}

TEST(Lazy, AFunctionMayCallTheNet) {
  Linear layer({.out = 2});
  initialize(layer, [&] { layer(zeros({1, 6})); });
  EXPECT_EQ(layer.weight().shape(), (Shape{2, 6}));
}

TEST(Lazy, KnownSizesAndTheirValuesStay) {
  Linear layer({.in = 3, .out = 2});
  const auto before = layer.weight().value().to_vector<float>();
  initialize(layer, zeros({1, 3}));
  EXPECT_EQ(layer.weight().value().to_vector<float>(), before);
  EXPECT_THAT(error_of([&] { initialize(layer, zeros({1, 4})); }), HasSubstr("linear: "));
}

TEST(Lazy, HandlesMadeBeforeSeeTheSize) {
  Net net;
  const Net copy = net;
  const Parameter weight = net.head.weight();
  initialize(net, zeros({1, 3, 8, 8}));
  EXPECT_EQ(weight.shape(), (Shape{10, 144}));
  EXPECT_EQ(copy(zeros({1, 3, 8, 8})).shape(), (Shape{1, 10}));
  const Sequential outer(copy);
  EXPECT_EQ(outer.parameters().size(), 6u);
}

TEST(Lazy, ACloneIsOpenToo) {
  Linear layer({.out = 2});
  Linear copy = clone(layer);
  initialize(copy, zeros({1, 5}));
  EXPECT_EQ(copy.weight().shape(), (Shape{2, 5}));
  EXPECT_THAT(error_of([&] { layer.parameters(); }), HasSubstr("known sizes"));
}

TEST(Lazy, WhatNeedsSizesNamesTheLayerThatHasNone) {
  Net net;
  const Sequential outer(net);
  const std::string path = testing::TempDir() + "lazy.safetensors";
  for (const auto& call : std::vector<std::function<void()>>{
           [&] { net.parameters(); }, [&] { net.named_parameters(); }, [&] { net.parameter_count(); },
           [&] { net.to(Device::cpu()); }, [&] { save(net, path); }}) {
    const std::string text = error_of(call);
    EXPECT_THAT(text, HasSubstr("known sizes are required, got Conv2dRelu '"));
    EXPECT_THAT(text, HasSubstr("first'"));
    EXPECT_THAT(text, HasSubstr("nn_lazy_test.cpp:"));
  }
}

TEST(Lazy, CallingAnOpenLayerSaysWhatIsMissing) {
  const Net net;
  const std::string text = error_of([&] { net.head(zeros({1, 3})); });
  EXPECT_THAT(text, HasSubstr("Linear: a known size is required, got [10, 0] for 'head.weight'"));
  EXPECT_THAT(text, HasSubstr("nn_lazy_test.cpp:"));
  EXPECT_THAT(error_of([&] { net.first(zeros({1, 3, 8, 8})); }), HasSubstr("'first.weight'"));
}

TEST(Lazy, AFailureLeavesAllAsItWas) {
  Net net;
  // The second layer's kernel does not fit any more when the first has been settled.
  EXPECT_THAT(error_of([&] { initialize(net, zeros({1, 3, 8, 4})); }), HasSubstr("conv2d"));
  EXPECT_TRUE(net.is_training());
  EXPECT_TRUE(net.head.is_training());
  EXPECT_EQ(net.first.weight().shape(), (Shape{4, 0, 3, 3}));
  EXPECT_THAT(error_of([&] { net.parameters(); }), HasSubstr("'first'"));
  initialize(net, zeros({1, 1, 8, 8}));
  EXPECT_EQ(net.first.weight().shape(), (Shape{4, 1, 3, 3}));
}

TEST(Lazy, ALayerThatTheCallDoesNotReachIsNamed) {
  struct Half : Module {
    Linear used{this, "used", {.out = 2}};
    Linear idle{this, "idle", {.out = 2}};
    Tensor operator()(const Tensor& x) const { return used(x); }
  } net;
  EXPECT_THAT(error_of([&] {
                initialize(net, zeros({1, 3}));
              }),
              HasSubstr("initialize: known sizes are required, got Linear 'idle'"));
  EXPECT_EQ(net.used.weight().shape(), (Shape{2, 0}));
}

TEST(Lazy, TheCallIsInEvaluationModeAndUnrecorded) {
  struct Watching : Module {
    Linear layer{this, "layer", {.out = 2}};
    mutable bool trained = true, tracked = true;
    Tensor operator()(const Tensor& x) const {
      trained = is_training() || layer.is_training();
      const Tensor y = layer(x);
      tracked = is_tracked(y);
      return y;
    }
  } net;
  const Tape tape;
  initialize(net, zeros({1, 3}));
  EXPECT_FALSE(net.trained);
  EXPECT_FALSE(net.tracked);
  EXPECT_TRUE(net.is_training() && net.layer.is_training());
}

TEST(Lazy, BadSamplesAreNamed) {
  Linear layer({.out = 2});
  EXPECT_THAT(error_of([&] {
                initialize(layer, zeros({3, 0}));
              }),
              HasSubstr("Linear: in >= 1 is required, got 0 (at "));
  EXPECT_THAT(error_of([&] { initialize(layer, zeros({})); }), HasSubstr("linear: "));
  Conv2d conv({.out = 4, .groups = 2});
  EXPECT_THAT(error_of([&] { initialize(conv, zeros({1, 3, 4, 4})); }), HasSubstr("Conv2d: a number of groups"));
  EXPECT_THAT(error_of([&] { initialize(conv, zeros({3})); }), HasSubstr("conv2d: "));
  EXPECT_THAT(error_of([&] { initialize(conv, zeros({3, 3})); }), HasSubstr("conv2d: "));
}

TEST(Lazy, AWeightInUseIsRefused) {
  Linear layer({.out = 2});
  Parameter weight = layer.weight();
  weight.set_gradient(zeros({2, 0}));
  EXPECT_THAT(error_of([&] { initialize(layer, zeros({1, 3})); }), HasSubstr("'weight'"));
}

TEST(Lazy, ASharedWeightsSizeIsGiven) {
  const Linear owner({.in = 3, .out = 2});
  EXPECT_THAT(error_of([&] { Linear({.out = 2, .weight = owner.weight()}); }),
              HasSubstr("Linear: in >= 1 is required"));
}

}  // namespace
}  // namespace reel::nn
