// What newcomers do to modules, optimisers and data: each is told with the call and the line, and nothing crashes.

#include <gtest/gtest.h>

#include <cmath>
#include <cstdio>

#include "reel/reel.h"
#include "reel/tests/expect.h"
#include "reel/tests/told.h"

namespace reel::nn {
namespace {

TEST(Misuse, AnUndefinedInputOfALayerWithAnOpenSizeIsRefused) {
  Linear dense({.out = 2});
  Conv2d conv({.out = 2, .kernel = 3});
  Conv2dRelu relu({.out = 2, .kernel = 3});
  expect_told("linear", [&] { dense(Tensor()); });
  expect_told("linear", [&] { dense(Ragged()); });
  expect_told("conv2d", [&] { conv(Tensor()); });
  expect_told("conv2d_relu", [&] { relu(Tensor()); });
  expect_told("linear", [&] { initialize(dense, Tensor()); });
  expect_told("nn::save", [&] { save(dense, "/dev/null"); });
}

TEST(Misuse, ALayerTooLargeNamesTheLayer) {
  const std::int64_t large = std::int64_t{1} << 40;
  expect_told("Linear", [&] { Linear({.in = large, .out = large}); });
  expect_told("Linear", [&] { Linear({.in = large, .out = 1 << 10}); });
  expect_told("Conv2d", [&] { Conv2d({.in = large, .out = 1 << 10, .kernel = 1}); });
  expect_told("Embedding", [&] { Embedding({.rows = large, .width = 1 << 10}); });
}

TEST(Misuse, ASequentialPartNamesTheProgram) {
  struct Twice : Module {
    Sequential first{this, "part", Linear({.in = 1, .out = 1})};
    Sequential second{this, "part", Linear({.in = 1, .out = 1})};
  };
  EXPECT_THROW_WITH(Twice(), Error, "got 'part' twice", "nn_misuse_test.cpp:");
}

TEST(Misuse, OptionsThatAreNoNumbersAreRefused) {
  const std::vector<Parameter> all{Parameter(ones({2}))};
  expect_told("SGD", [&] { SGD(all, {.momentum = NAN}); });
  expect_told("SGD", [&] { SGD(all, {.dampening = NAN}); });
  expect_told("Adam", [&] { Adam(all, {.beta1 = NAN}); });
  expect_told("Adam", [&] { Adam(all, {.eps = NAN}); });
  expect_told("RMSprop", [&] { RMSprop(all, {.alpha = NAN}); });
  expect_told("Adagrad", [&] { Adagrad(all, {.lr_decay = NAN}); });
  expect_told("Ema", [&] { Ema(all, {.decay = NAN}); });
  SGD none({});
  none.step();  // nothing to do
  EXPECT_EQ(none.steps(), 1);
  SGD sgd(all, {.lr = NAN});
  expect_told("SGD::step", [&] { sgd.step(); });
  expect_told("SGD", [&] { (void)sgd.rate(); });
  Parameter(all[0]).set_group("slow");
  EXPECT_THROW_WITH(sgd.group("slow", {.weight_decay = -2}), Error, "SGD: weight_decay >= 0 is required, got -2");
}

TEST(Misuse, BatchesNameTheLineThatMadeThem) {
  const Dataset data{ones({4, 2}), ones({4})};
  expect_told("batches", [&] { batches(data, {.size = 0}); });
  expect_told("batches", [&] { batches(data, {.size = -1}); });
  expect_told("batches", [&] { batches({}); });
  expect_told("batches", [&] { batches({ones({4}), ones({3})}); });
  int rows = 0;
  for (const auto& [inputs, targets] : batches(data, {.size = std::int64_t{1} << 62}))
    rows += static_cast<int>(inputs.size(0));
  EXPECT_EQ(rows, 4);
  const std::int64_t far = std::int64_t{1} << 45;
  Batches wide = batches({expand(ones({1, 1}), {4, far}), ones({4})}, {.size = 4, .shuffle = true});
  Batch batch;
  EXPECT_THROW_WITH(wide.next(batch), OutOfMemory, "batches: ", end_of_error(__FILE__, __LINE__ - 2).c_str());
}

TEST(Misuse, AnUndefinedTensorOfTheProgramIsNotSaved) {
  Linear net({.in = 1, .out = 1});
  SGD sgd(net.parameters());
  Training training{net, sgd, nullptr, {{"history", Tensor()}}};
  const std::string path = testing::TempDir() + "misuse.safetensors";
  expect_told("nn::save_training", [&] { save_training(training, path); });
  training.tensors[0].tensor = ones({1});
  save_training(training, path);
  training.tensors[0].tensor = Tensor();
  expect_told("nn::load_training", [&] { load_training(training, path); });
  std::remove(path.c_str());
}

}  // namespace
}  // namespace reel::nn
