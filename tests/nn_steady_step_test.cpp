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
  EXPECT_GT(malloc_calls(), before);  // the first steps did
}

}  // namespace
}  // namespace reel::nn
