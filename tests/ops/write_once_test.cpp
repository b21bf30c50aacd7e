#include "reel/ops/write_once.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "reel/core/error.h"
#include "reel/core/memory.h"
#include "reel/core/parallel.h"
#include "reel/core/tape.h"
#include "reel/ops/arithmetic.h"
#include "reel/ops/conv.h"
#include "reel/ops/create.h"
#include "reel/ops/reduce.h"
#include "reel/ops/unary.h"
#include "reel/ops/views.h"

namespace reel::test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

const TensorOptions kDouble{.dtype = f64};

Tensor shaped(std::initializer_list<double> values, const Shape& shape) {
  return reshape(tensor(values, kDouble), shape);
}

template <class F>
std::string message_of(F&& f) {
  try {
    f();
  } catch (const Error& error) {
    return error.what();
  }
  return "nothing was thrown";
}

// A dense net: each layer reads all channels so far and gives `growth` more. The channels of all of them.
struct DenseNet {
  Tensors weights, biases;
  std::int64_t in, growth;

  DenseNet(std::int64_t in_, std::int64_t growth_, int layers, TensorOptions options = kDouble)
      : in(in_), growth(growth_) {
    for (int i = 0; i < layers; ++i) {
      weights.push_back(rand({growth, in + i * growth, 3, 3}, options) * 0.4 - 0.15);
      biases.push_back(rand({growth}, options));
    }
  }
  std::int64_t channels() const { return in + static_cast<std::int64_t>(weights.size()) * growth; }
  ConvOptions options(std::size_t layer) const {
    const auto dilation = static_cast<std::int64_t>(layer % 3 + 1);
    return {.padding = dilation, .dilation = dilation};
  }

  Tensor concatenating(const Tensor& x) const {
    Tensor all = x;
    for (std::size_t i = 0; i < weights.size(); ++i)
      all = concatenate({all, conv2d_relu(all, weights[i], biases[i], options(i))}, 1);
    return all;
  }
  Tensor in_one_buffer(const Tensor& x) const {
    const Shape& s = x.shape();
    WriteOnce buffer({s[0], channels(), s[2], s[3]}, {.dtype = x.dtype()});
    buffer.append(x);
    for (std::size_t i = 0; i < weights.size(); ++i) {
      ConvOptions with = options(i);
      with.into = buffer.part(buffer.end(), buffer.end() + growth);
      conv2d_relu(buffer.view(0, buffer.end()), weights[i], biases[i], with);
    }
    return buffer.view(0, channels());
  }
  Tensors all() const {
    Tensors list;
    for (const Tensor& weight : weights) list.push_back(weight);
    for (const Tensor& bias : biases) list.push_back(bias);
    return list;
  }
};

Tensors values_and_gradients(const DenseNet& net, const Tensor& x, Tensor (DenseNet::*run)(const Tensor&) const) {
  Tape tape;
  Tensors wanted = net.all();
  wanted.push_back(x);
  for (const Tensor& w : wanted) tape.watch(w);
  const Tensor y = (net.*run)(x);
  Tensors results = tape.gradient(sum(y * y), wanted);
  results.push_back(y);
  return results;
}

TEST(WriteOnce, DenseNetOfTenLayersEqualsConcatenation) {
  manual_seed(1);
  const DenseNet net(2, 3, 10);
  const Tensor x = randn({3, 2, 9, 8}, kDouble);
  const Tensors expected = values_and_gradients(net, x, &DenseNet::concatenating);
  const auto compare = [&](const Tensors& results) {
    ASSERT_EQ(results.size(), expected.size());
    for (std::size_t i = 0; i < results.size(); ++i) {
      const std::vector<double> a = results[i].to_vector<double>(), b = expected[i].to_vector<double>();
      ASSERT_EQ(a.size(), b.size());
      for (std::size_t k = 0; k < a.size(); ++k) ASSERT_NEAR(a[k], b[k], 1e-11 * (1 + std::abs(b[k]))) << i << " " << k;
    }
  };
  compare(values_and_gradients(net, x, &DenseNet::in_one_buffer));
  Tape outer;  // in recorded ops
  compare(values_and_gradients(net, x, &DenseNet::in_one_buffer));
}

TEST(WriteOnce, SecondDerivativesOfADenseNetEqualThoseOfConcatenation) {
  manual_seed(2);
  const DenseNet net(1, 2, 3);
  const Tensor x = randn({2, 1, 6, 5}, kDouble), direction = randn({2, 1, 6, 5}, kDouble);
  const auto second = [&](Tensor (DenseNet::*run)(const Tensor&) const) {
    Tape outer;
    outer.watch(x);
    const Tensor first = [&] {
      Tape inner;
      const Tensor y = (net.*run)(x);
      return inner.gradient(sum(y * y * y), {x})[0];
    }();
    return outer.gradient(sum(first * direction), {x})[0].to_vector<double>();
  };
  const std::vector<double> expected = second(&DenseNet::concatenating), got = second(&DenseNet::in_one_buffer);
  for (std::size_t i = 0; i < got.size(); ++i) ASSERT_NEAR(got[i], expected[i], 1e-9 * (1 + std::abs(expected[i])));
}

// Bytes beyond what was there before, at most, of a step that keeps what backward needs.
std::int64_t peak_of_step(int layers, Tensor (DenseNet::*run)(const Tensor&) const) {
  manual_seed(3);
  const DenseNet net(1, 1, layers, {});
  const Tensor x = randn({1, 1, 128, 128});
  for (int round = 0;; ++round) {
    reset_peak_memory();
    const std::int64_t before = memory_stats().live_bytes;
    Tape tape;
    for (const Tensor& w : net.all()) tape.watch(w);
    const Tensor y = (net.*run)(x);
    tape.gradient(y, y, net.all());
    if (round == 1) return memory_stats().peak_bytes - before;
  }
}

constexpr double kImage = 128 * 128 * sizeof(float);

TEST(WriteOnce, DenseNetNeedsMemoryLinearInItsLayers) {
  const int before = num_threads();
  set_num_threads(1);  // each further one works in memory of its own, see below
  const double few = static_cast<double>(peak_of_step(10, &DenseNet::in_one_buffer)) / kImage,
               many = static_cast<double>(peak_of_step(40, &DenseNet::in_one_buffer)) / kImage,
               concatenated = static_cast<double>(peak_of_step(40, &DenseNet::concatenating)) / kImage;
  // The buffer, its gradient, the gradient of one layer's input, and what kernels work in.
  EXPECT_LT(few, 3 * 11 + 20);
  EXPECT_LT(many, 3 * 41 + 20 + 20);
  EXPECT_GT(concatenated, 40 * 41 / 2);
  RecordProperty("images_10_layers", std::to_string(few));
  RecordProperty("images_40_layers", std::to_string(many));
  RecordProperty("images_40_layers_concatenated", std::to_string(concatenated));
  set_num_threads(before);
}

// A thread packs a part of a layer's input that fits a cache (kConvBlockBytes, kUnitBytes for weights), however wide the layer.
TEST(WriteOnce, AThreadWorksInAsMuchMemoryAsItsCacheHolds) {
  const int before = num_threads();
  const auto working_bytes = [](std::int64_t channels) {
    const Tensor x = randn({1, channels, 128, 128}), weight = randn({1, channels, 3, 3});
    std::int64_t bytes = 0;
    for (int round = 0; round < 2; ++round) {
      Tape tape;
      tape.watch(weight);
      const Tensor y = conv2d(x, weight, {}, {.padding = 1});
      reset_peak_memory();
      const std::int64_t live = memory_stats().live_bytes;
      tape.gradient(y, y, {weight});
      bytes = memory_stats().peak_bytes - live;
    }
    return bytes;
  };
  set_num_threads(1);
  constexpr std::int64_t kMost = std::int64_t{1536} * 1024;
  for (const std::int64_t channels : {10, 40, 160}) EXPECT_LT(working_bytes(channels), kMost) << channels;
  set_num_threads(16);
  for (const std::int64_t channels : {10, 40, 160}) EXPECT_LT(working_bytes(channels), 16 * kMost) << channels;
  set_num_threads(before);
}

TEST(WriteOnce, PartsMayBeWrittenInAnyOrderAndReadAsOne) {
  WriteOnce buffer({2, 4}, {.dtype = f64});
  buffer.part(2, 4).write(shaped({3, 4, 7, 8}, {2, 2}));
  EXPECT_EQ(buffer.end(), 4);
  const Tensor late = buffer.view(2, 4);
  buffer.part(0, 1).write(shaped({1, 5}, {2, 1}));
  buffer.part(1, 2).write(shaped({2, 6}, {2, 1}));
  EXPECT_THAT(buffer.view(0, 4).to_vector<double>(), ElementsAre(1, 2, 3, 4, 5, 6, 7, 8));
  EXPECT_THAT(late.to_vector<double>(), ElementsAre(3, 4, 7, 8));
  EXPECT_EQ(buffer.view(1, 1).size(), 0);
  EXPECT_EQ(late.version(), 0u);
}

TEST(WriteOnce, RefusesToWriteTwiceAndToReadWhatIsNotThere) {
  WriteOnce buffer({1, 3});
  buffer.append(ones({1, 2}));
  EXPECT_THAT(message_of([&] {
                buffer.part(1, 2).write(ones({1, 1}));
              }),
              testing::AllOf(HasSubstr("written once, got [1, 2)"), HasSubstr("write_once_test.cpp")));
  EXPECT_THROW(buffer.part(1, 2).write(ones({1, 1})), VersionError);
  EXPECT_THAT(message_of([&] { buffer.view(1, 3); }), HasSubstr("index 2 was not"));
  EXPECT_THROW(buffer.view(1, 3), IndexError);
  EXPECT_THAT(message_of([&] {
                buffer.append(ones({1, 2}));
              }),
              HasSubstr("within the 3 indices of axis 1, got [2, 4)"));
  EXPECT_THAT(message_of([&] { buffer.append(ones({2})); }), HasSubstr("x must have shape [1, 3]"));
  EXPECT_THAT(message_of([&] { buffer.part(2, 3).write(ones({2, 1})); }), HasSubstr("must have shape [2, 1]"));
  EXPECT_THAT(message_of([&] { buffer.append(ones({1, 1}, kDouble)); }), HasSubstr("must be f64 like x, got f32"));
  EXPECT_EQ(buffer.end(), 2);  // what was refused was not written
  buffer.append(ones({1, 1}));
  EXPECT_EQ(buffer.view(0, 3).size(), 3);
}

TEST(WriteOnce, ConvolutionRefusesABufferDividedAlongItsImages) {
  const WriteOnce buffer({1, 1, 4, 4}, {.axis = 3});
  EXPECT_THAT(message_of([&] {
                conv2d(ones({1, 1, 4, 2}), ones({1, 1, 1, 1}), {}, {.into = buffer.part(1, 3)});
              }),
              HasSubstr("divided along axis 0 or 1"));
}

TEST(WriteOnce, GradientsReachWhatWasWritten) {
  const Tensor a = shaped({2}, {1, 1}), b = shaped({3}, {1, 1});
  Tape tape;
  tape.watch(a);
  tape.watch(b);
  WriteOnce buffer({1, 4}, {.dtype = f64});
  buffer.append(a);
  const Tensor first = buffer.append(b * 2);  // read as the part
  buffer.append(buffer.view(0, 2) * 10);      // and through views
  const Tensor y = sum(buffer.view(0, 4)) + sum(first * first);
  // y = a + 2b + 10a + 20b + (2b)^2
  const Tensors gradients = tape.gradient(y, {a, b}, {.keep = true});
  EXPECT_EQ(gradients[0].item(), 11);
  EXPECT_EQ(gradients[1].item(), 22 + 8 * 3);
  // Several sweeps over the same buffer, one of them wanting the buffer itself.
  const Tensor whole = buffer.view(0, 4);
  const Tensors again = tape.gradient(sum(whole * whole) + y, {a, whole, b});
  EXPECT_THAT(again[1].to_vector<double>(), ElementsAre(2 * 2 + 1, 2 * 6 + 1, 2 * 20 + 1, 2 * 60 + 1));
  EXPECT_EQ(again[0].item(), 11 + 2 * 2 + 10 * 2 * 20);
  EXPECT_EQ(again[2].item(), 22 + 24 + 2 * (2 * 6) + 10 * 2 * (2 * 60));
}

TEST(WriteOnce, WhatWasWrittenWithoutATapeIsConstant) {
  const Tensor a = shaped({2}, {1, 1});
  WriteOnce buffer({1, 3}, {.dtype = f64});
  buffer.append(a);
  Tape tape;
  tape.watch(a);
  buffer.append(a * a);
  untaped([&] { buffer.append(a * a * a); });
  EXPECT_EQ(tape.gradient(sum(buffer.view(0, 3)), {a})[0].item(), 4);
}

TEST(WriteOnce, OutlivesItsTapesAsAConstant) {
  const Tensor a = shaped({2}, {1, 1});
  WriteOnce buffer({1, 2}, {.dtype = f64});
  {
    Tape tape;
    tape.watch(a);
    buffer.append(a * 3);
  }
  Tape tape;
  tape.watch(a);
  buffer.append(a * 5);
  EXPECT_EQ(tape.gradient(sum(buffer.view(0, 2)), {a})[0].item(), 5);
}

TEST(WriteOnce, CheckForNaNDoesNotLookAtWhatIsNotWritten) {
  const Tensor a = shaped({2}, {1, 1});
  WriteOnce buffer({1, 2}, {.dtype = f64});
  Tape strict{{.check_finite = true}};
  strict.watch(a);
  buffer.append(a * 3);
  EXPECT_EQ(strict.gradient(sum(buffer.view(0, 1)), {a})[0].item(), 3);
}

}  // namespace
}  // namespace reel::test
