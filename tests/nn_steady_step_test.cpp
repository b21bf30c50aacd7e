// A training step that has been made before asks the system for no memory.

#include <gtest/gtest.h>

#include "reel/reel.h"
#include "reel/tests/malloc_count.h"

namespace reel::nn {
namespace {

struct Net : Module {
  Conv2dRelu conv1{this, "conv1", {.in = 1, .out = 16, .padding = 1}};
  Conv2dRelu conv2{this, "conv2", {.in = 16, .out = 16, .padding = 2, .dilation = 2}};
  Linear head{this, "head", {.in = 16 * 64, .out = 10}};
  Tensor operator()(const Tensor& x) { return head(flatten(conv2(conv1(x)), 1)); }
};

template <class Optimizer>
void expect_no_calls(Net& net, Optimizer& optimizer) {
  constexpr int kWarm = 10, kSteps = 5;
  // Nothing but steps: what a loop takes at an epoch's end is its own.
  int step = 0;
  std::int64_t before = 0;
  for (auto [images, labels] : batches(digits::train(), {.size = 64, .shuffle = true, .seed = 1})) {
    if (step == kWarm) before = malloc_calls();
    {
      Tape tape;
      tape.backward(cross_entropy(net(images), labels));
      optimizer.clip_gradients(1);
      optimizer.step();
    }
    if (++step == kWarm + kSteps) break;
  }
  EXPECT_EQ(malloc_calls() - before, 0);
}

TEST(SteadyStep, CallsMallocZeroTimes) {
  if (!malloc_is_counted()) GTEST_SKIP() << "a sanitizer has a malloc of its own";
  const std::int64_t before = malloc_calls();
  Net net;
  Adam adam(net.parameters(), {.lr = schedule::cosine(1e-3, 100)});
  expect_no_calls(net, adam);
  SGD sgd(net.parameters(), {.lr = 1e-3, .momentum = 0.9});
  net.conv1.set_group("slow");
  sgd.group("slow", {.lr = 1e-4});
  expect_no_calls(net, sgd);
  AdamW clipped(net.parameters(), {.lr = 1e-3, .max_norm = 1});
  expect_no_calls(net, clipped);
  EXPECT_GT(malloc_calls(), before);  // the first steps did
}

TEST(SteadyStep, CallsMallocZeroTimesWithAnyNumberOfThreads) {
  if (!malloc_is_counted()) GTEST_SKIP() << "a sanitizer has a malloc of its own";
  const int before = num_threads();
  for (const int threads : {3, 16}) {
    SCOPED_TRACE(threads);
    set_num_threads(threads);
    Net net;
    Adam adam(net.parameters(), {.lr = 1e-3});
    expect_no_calls(net, adam);
    SGD sgd(net.parameters(), {.lr = 1e-3, .momentum = 0.9, .max_norm = 1});
    expect_no_calls(net, sgd);
  }
  set_num_threads(before);
}

TEST(SteadyStep, OfARecurrentNetCallsMallocZeroTimes) {
  if (!malloc_is_counted()) GTEST_SKIP() << "a sanitizer has a malloc of its own";
  constexpr std::int64_t kHidden = 16;
  Generator generator(1);
  std::vector<Parameter> parameters;
  for (const std::int64_t in : {std::int64_t{8}, kHidden})
    for (const Shape& shape :
         {Shape{4 * kHidden, in}, Shape{4 * kHidden, kHidden}, Shape{4 * kHidden}, Shape{4 * kHidden}})
      parameters.push_back(Parameter(randn(shape, generator)));
  flatten_parameters(parameters);
  const std::vector<RecurrentWeights> weights = {{parameters[0], parameters[1], parameters[2], parameters[3]},
                                                 {parameters[4], parameters[5], parameters[6], parameters[7]}};
  RMSprop optimizer(parameters, {.lr = 1e-3, .momentum = 0.9, .centered = true});
  Ema ema(parameters);
  const Ragged x = Ragged::from_lengths(randn({40, 8}, generator), {3, 0, 20, 7, 10});
  std::int64_t before = 0;
  for (int step = 0; step < 12; ++step) {
    if (step == 6) before = malloc_calls();
    {
      Tape tape;
      const auto out = lstm(x + position_encoding(x), weights);
      tape.backward(sum(out.y.values()) + sum(out.h) + sum(reduce_last(reverse(out.y))));
    }
    if (step % 2 == 0) {
      optimizer.step();
      ema.update();
    } else {
      optimizer.step(ema);
    }
  }
  EXPECT_EQ(malloc_calls() - before, 0);
}

TEST(SteadyStep, CallsMallocZeroTimesInOneBufferAndWithinSequences) {
  if (!malloc_is_counted()) GTEST_SKIP() << "a sanitizer has a malloc of its own";
  const Tensor weights[] = {randn({1, 1, 3, 3}), randn({1, 2, 3, 3}), randn({4, 3, 5})};
  const Tensor image = randn({1, 1, 20, 20});
  const Ragged sequences = Ragged::from_lengths(randn({40, 3}), {7, 0, 33});
  std::int64_t before = 0;
  for (int step = 0; step < 15; ++step) {
    if (step == 10) before = malloc_calls();
    Tape tape;
    for (const Tensor& weight : weights) tape.watch(weight);
    WriteOnce buffer({1, 3, 20, 20});
    buffer.append(image);
    for (int i = 0; i < 2; ++i)
      conv2d_relu(buffer.view(0, i + 1), weights[i], {}, {.padding = 1, .into = buffer.part(i + 1, i + 2)});
    const Ragged y = conv1d(sequences, weights[2], {}, {.padding = 2});
    tape.gradient(sum(buffer.view(0, 3)) + sum(y.values()), {weights[0], weights[1], weights[2]});
  }
  EXPECT_EQ(malloc_calls() - before, 0);
}

}  // namespace
}  // namespace reel::nn
