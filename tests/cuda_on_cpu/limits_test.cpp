// Sizes at the ends of what a grid of blocks and integers of 32 bits can count: right, or refused before anything is written.

#include <gtest/gtest.h>

#include <cmath>

#include "reel/core/error.h"
#include "reel/core/ops.h"
#include "reel/core/tape.h"
#include "reel/ops/conv.h"
#include "reel/ops/convert.h"
#include "reel/ops/create.h"
#include "reel/ops/padding.h"
#include "reel/tests/cuda_on_cpu/schedule.h"
#include "reel/tests/expect.h"

namespace reel {
namespace {

const Device kCuda = Device::cuda();

class CudaLimits : public testing::Test {
 protected:
  void SetUp() override { cuda_on_cpu::set_guard(false); }
  void TearDown() override { cuda_on_cpu::set_guard(true); }
};

/// The result of a correlation and its gradients.
Tensors correlation(const Shape& x_shape, const Shape& weight_shape, const ConvOptions& options, DType dtype,
                    Device device) {
  Generator generator(3);
  Tensors in;
  for (const Shape& shape : {x_shape, weight_shape, Shape{weight_shape[0]}})
    in.push_back(to(cast(randn(shape, generator), dtype), device));
  Tape tape;
  for (const Tensor& x : in) tape.watch(x);
  const Tensor y = conv2d(in[0], in[1], in[2], options);
  Tensors results = tape.gradient(y, ones(y.shape(), {.dtype = dtype, .device = device}), in);
  results.push_back(y);
  return results;
}

void expect_equal(const Tensors& got, const Tensors& expected) {
  for (std::size_t k = 0; k < expected.size(); ++k) {
    const std::vector<double> want = expected[k].to_vector<double>(), have = got[k].to_vector<double>();
    ASSERT_EQ(have.size(), want.size());
    for (std::size_t i = 0; i < want.size(); ++i)
      ASSERT_NEAR(have[i], want[i], 4e-5 * (1 + std::abs(want[i]))) << "result " << k << ", element " << i;
  }
}

TEST_F(CudaLimits, PadsEmptyTensorsOfAnySize) {
  const Tensor x = zeros({0, std::int64_t{1} << 32}, {.device = kCuda});
  Tape tape;
  tape.watch(x);
  for (const PaddingMode mode : {PaddingMode::zero, PaddingMode::reflect}) {
    const Tensor y = pad(x, {{1, 1, 1}}, mode);
    EXPECT_EQ(y.shape(), (Shape{0, (std::int64_t{1} << 32) + 2}));
    EXPECT_EQ(tape.gradient(y, ones_like(y), {x}, {.keep = true})[0].shape(), x.shape());
  }
}

// A grid has 65,535 blocks along y.
TEST_F(CudaLimits, MoreChannelsThanAGridHasBlocksAcross) {
  constexpr std::int64_t kChannels = 65'537;
  const auto results = [&](Device device) {
    Generator generator(3);
    const Tensor x = to(randn({1, kChannels, 1, 2}, generator), device);
    const Tensor weight = to(randn({kChannels, 1, 1, 2}, generator), device);
    Tape tape;
    tape.watch(x);
    tape.watch(weight);
    const Tensor y = conv2d(x, weight, {}, {.groups = kChannels});
    Tensors made = tape.gradient(y, ones(y.shape(), {.device = device}), {x, weight});
    made.push_back(y);
    return made;
  };
  expect_equal(results(kCuda), results(Device::cpu()));
}

// A block with many chunks adds the sums of one chain of them to those of the chains before. The gradient alone: the forward pass
// and the input's gradient have nothing of that and take longer.
TEST_F(CudaLimits, LongSumsOfACorrelationsWeightAreCutIntoChains) {
  Conv conv;
  conv.batch = 300, conv.in = conv.out = conv.groups = 270;
  for (const int a : {1, 2}) conv.input[a] = conv.output[a] = 2, conv.kernel[a] = 3, conv.padding[a] = 1;
  const auto gradients = [&](Device device) {
    Generator generator(3);
    const Shape images{conv.batch, conv.in, 2, 2};
    const Tensor x = to(randn(images, generator), device), dy = to(randn(images, generator), device);
    const Tensor dw = empty({conv.out, 1, 3, 3}, {.device = device}), db = empty({conv.out}, {.device = device});
    backend(device).conv_backward_weight(conv, x.array(), dy.array(), nullptr, dw.array(), &db.array());
    return Tensors{dw, db};
  };
  expect_equal(gradients(kCuda), gradients(Device::cpu()));
}

// Where there is one element along an axis, a step leads nowhere: one longer than what an int holds is as good as another.
TEST_F(CudaLimits, HugeStridesAndDilationsOfOneElement) {
  constexpr std::int64_t kHuge = std::int64_t{1} << 31;
  for (const DType dtype : {f32, f64})
    for (const PaddingMode mode : {PaddingMode::zero, PaddingMode::reflect}) {
      const auto expect_same = [&](const Shape& weight, auto options_for) {
        const Shape x{2, 6, 4, 5};
        const Tensors expected = correlation(x, weight, options_for(7), dtype, Device::cpu());
        for (const Device device : {Device::cpu(), kCuda})
          expect_equal(correlation(x, weight, options_for(kHuge), dtype, device), expected);
      };
      expect_same({6, 6, 3, 3}, [&](std::int64_t step) -> ConvOptions {
        return {.stride = {step, 1}, .padding = {0, 1}, .mode = mode};
      });
      expect_same({6, 6, 1, 3}, [&](std::int64_t step) -> ConvOptions {
        return {.padding = {0, 1}, .dilation = {step, 1}, .mode = mode};
      });
      expect_same({6, 6, 2, 3}, [&](std::int64_t step) -> ConvOptions { return {.stride = step, .mode = mode}; });
    }
}

// More pixels of the input than 2^30 would be in a tile.
TEST_F(CudaLimits, WidePaddingAroundOneElement) {
  const ConvOptions options{.stride = {1, 1024}, .padding = {512, 131072}, .dilation = {1024, 1024}};
  expect_equal(correlation({1, 1, 1, 1}, {1, 1, 2, 1}, options, f32, kCuda),
               correlation({1, 1, 1, 1}, {1, 1, 2, 1}, options, f32, Device::cpu()));
}

/// An array that says it has this shape, of which no element is ever touched.
Array pretended(const Shape& shape, void* data) {
  Array array;
  array.data = data;
  array.shape = shape;
  array.size = 1;
  for (int axis = shape.rank() - 1; axis >= 0; --axis) {
    array.strides[axis] = array.size;
    array.size *= shape[axis];
  }
  array.dtype = f32;
  array.device = kCuda;
  array.contiguous = true;
  return array;
}

TEST_F(CudaLimits, ConvolutionsThatDoNotFitAreRefusedBeforeAnythingIsWritten) {
  const Tensor memory = full({16}, 7, {.device = kCuda});
  void* const data = memory.array().data;
  struct Case {
    std::int64_t batch, in, out;
    std::int64_t input[2], kernel[2], output[2], padding;
    std::vector<const char*> words;
  };
  constexpr std::int64_t kHalf = std::int64_t{1} << 30;
  const Case cases[] = {
      {1, 1, 1, {46341, 46341}, {46341, 46341}, {1, 1}, 0, {"a channel of the input", "got 46341 x 46341"}},
      {1, 1, 1, {1, 1}, {1, 1}, {46341, 46341}, 0, {"a channel of the result", "got 46341 x 46341"}},
      {1, 1, 1, {1, 1}, {46341, 46341}, {1, 1}, 0, {"the kernel", "got 46341 x 46341"}},
      {kHalf + 1, 1, 1, {1, 1}, {1, 1}, {1, 1}, 0, {"the batch", "at most 1073741824", "got 1073741825"}},
      {1, kHalf + 1, 1, {1, 1}, {1, 1}, {1, 1}, 0, {"the channels of an image", "got 1073741825"}},
      {1, 1, kHalf + 1, {1, 1}, {1, 1}, {1, 1}, 0, {"the channels of an image", "got 1073741825"}},
      {1, 1, 1, {1, 3}, {1, 1}, {1, 1}, kHalf / 2, {"an axis of the padded input", "got 1073741827"}},
  };
  for (const Case& c : cases) {
    SCOPED_TRACE(c.words[0]);
    Conv conv;
    conv.batch = c.batch, conv.in = c.in, conv.out = c.out;
    for (int a = 0; a < 2; ++a) {
      conv.input[a + 1] = c.input[a], conv.kernel[a + 1] = c.kernel[a], conv.output[a + 1] = c.output[a];
    }
    conv.padding[2] = c.padding;
    const Array x = pretended({c.batch, c.in, c.input[0], c.input[1]}, data),
                weight = pretended({c.out, c.in, c.kernel[0], c.kernel[1]}, data),
                y = pretended({c.batch, c.out, c.output[0], c.output[1]}, data);
    Ops& ops = backend(kCuda);
    const auto refused = [&](auto call) {
      EXPECT_THROW_WITH(call(), ShapeError, c.words[0], c.words.back(), "elements on a GPU");
    };
    refused([&] { ops.conv(conv, x, weight, nullptr, Epilogue::none, y); });
    refused([&] { ops.conv_backward_input(conv, y, nullptr, weight, x); });
    refused([&] { ops.conv_backward_weight(conv, x, y, nullptr, weight, nullptr); });
  }
  EXPECT_EQ(memory.to_vector<float>(), std::vector<float>(16, 7));
}

// cuBLASLt counts the matrices of a batch in int: of 2^32 + 1 it would make one.
TEST_F(CudaLimits, BatchesOfMoreMatricesThanAnIntCountsAreRefused) {
  const Tensor memory = full({16}, 7, {.device = kCuda});
  float* const data = memory.array().as<float>();
  for (const std::int64_t batch : {std::int64_t{1} << 31, (std::int64_t{1} << 32) + 1}) {
    const Gemm gemm{
        .m = 1, .n = 1, .k = 1, .batch = batch, .a = data, .b = data + 1, .c = data + 2, .lda = 1, .ldb = 1, .ldc = 1};
    EXPECT_THROW_WITH(backend(kCuda).gemm(gemm), ShapeError, "the batch must have at most 2147483647 elements",
                      std::to_string(batch).c_str());
  }
  EXPECT_EQ(memory.to_vector<float>(), std::vector<float>(16, 7));
}

}  // namespace
}  // namespace reel
