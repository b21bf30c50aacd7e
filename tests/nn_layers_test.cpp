#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "reel/reel.h"
#include "reel/tests/error_of.h"

namespace reel::nn {
namespace {

using testing::HasSubstr;

TEST(Layers, ComputeWhatTheirOpsDo) {
  const Linear dense({.in = 5, .out = 3});
  const Tensor x = randn({2, 4, 5});
  EXPECT_EQ(dense(x).to_vector<float>(), linear(x, dense.weight(), dense.bias()).to_vector<float>());
  const Ragged sequences = Ragged::from_lengths(randn({5, 5}), {2, 0, 3});
  EXPECT_EQ(dense(sequences).values().to_vector<float>(),
            linear(sequences.values(), dense.weight(), dense.bias()).to_vector<float>());
  EXPECT_EQ(dense(sequences).offsets(), sequences.offsets());
  const LinearRelu hidden({.in = 5, .out = 3});
  const Tensor shifted = linear(x, hidden.weight(), hidden.bias());
  EXPECT_LT(min(shifted).item(), 0);
  EXPECT_EQ(hidden(x).to_vector<float>(), relu(shifted).to_vector<float>());
  EXPECT_EQ(hidden(sequences).values().to_vector<float>(),
            relu(linear(sequences.values(), hidden.weight(), hidden.bias())).to_vector<float>());
  EXPECT_EQ(hidden(sequences).offsets(), sequences.offsets());

  const Conv2dLayerOptions options{.in = 4,
                                   .out = 6,
                                   .kernel = {3, 2},
                                   .stride = {2, 1},
                                   .padding = 1,
                                   .dilation = {1, 2},
                                   .groups = 2,
                                   .padding_mode = PaddingMode::symmetric};
  const ConvOptions plain{
      .stride = {2, 1}, .padding = {1, 1}, .dilation = {1, 2}, .groups = 2, .mode = PaddingMode::symmetric};
  const Tensor image = randn({2, 4, 7, 6});
  const Conv2d conv(options);
  EXPECT_EQ(conv.weight().shape(), (Shape{6, 2, 3, 2}));
  EXPECT_EQ(conv(image).to_vector<float>(), conv2d(image, conv.weight(), conv.bias(), plain).to_vector<float>());
  const Conv2dRelu conv_relu(options);
  EXPECT_EQ(conv_relu(image).to_vector<float>(),
            conv2d_relu(image, conv_relu.weight(), conv_relu.bias(), plain).to_vector<float>());

  const Embedding table({.rows = 4, .width = 3});
  const Tensor index = tensor({3, 0, 3}, {.dtype = i64});
  EXPECT_EQ(table(index).to_vector<float>(), embedding(table.weight(), index).to_vector<float>());
}

TEST(Layers, WorkWithoutABias) {
  const Linear dense({.in = 2, .out = 2, .bias = false});
  EXPECT_FALSE(dense.bias().defined());
  EXPECT_EQ(dense(zeros({1, 2})).to_vector<float>(), (std::vector<float>{0, 0}));
  const Conv2d conv({.in = 1, .out = 1, .bias = false});
  EXPECT_EQ(conv.parameters().size(), 1u);
  EXPECT_EQ(conv(zeros({1, 1, 3, 3})).item(), 0);
}

TEST(Layers, LinearReluHasTheGradientsOfBoth) {
  const LinearRelu hidden({.in = 5, .out = 3});
  const Tensor x = randn({4, 5});
  const auto gradients = [&](auto f) {
    Tape tape;
    tape.watch(x);
    return tape.gradient(sum(square(f(x))), {x, hidden.weight(), hidden.bias()});
  };
  const auto fused = gradients([&](const Tensor& x) { return hidden(x); });
  const auto apart = gradients([&](const Tensor& x) { return relu(linear(x, hidden.weight(), hidden.bias())); });
  for (std::size_t i = 0; i < 3; ++i) EXPECT_EQ(fused[i].to_vector<float>(), apart[i].to_vector<float>());
}

TEST(Layers, ErrorsNameTheUsersLine) {
  const Linear dense({.in = 5, .out = 3});
  const LinearRelu hidden({.in = 5, .out = 3});
  const Sequential net(dense);
  const Conv2dRelu conv({.in = 1, .out = 1});
  EXPECT_THAT(error_of([&] { dense(zeros({2, 4})); }), HasSubstr("nn_layers_test.cpp:"));
  EXPECT_THAT(error_of([&] { hidden(zeros({2, 4})); }), HasSubstr("nn_layers_test.cpp:"));
  EXPECT_THAT(error_of([&] { net(zeros({2, 4})); }), HasSubstr("nn_layers_test.cpp:"));
  EXPECT_THAT(error_of([&] { conv(zeros({2, 4})); }), HasSubstr("nn_layers_test.cpp:"));
}

TEST(Sequential, RefusesWhatALayerDoesNotTake) {
  const Sequential net([](const Tensor& x) { return x; });
  const Ragged x = Ragged::from_lengths(zeros({2, 1}), {2});
  EXPECT_THAT(error_of([&] { net(x); }), HasSubstr("a Ragged is required"));
  const Sequential both(Linear({.in = 1, .out = 2}), [](const auto& h) { return relu(h); });
  EXPECT_EQ(both(x).values().shape(), (Shape{2, 2}));
  EXPECT_EQ(both(zeros({3, 1})).shape(), (Shape{3, 2}));
  EXPECT_EQ(Sequential()(zeros({3, 1})).shape(), (Shape{3, 1}));
}

}  // namespace
}  // namespace reel::nn
