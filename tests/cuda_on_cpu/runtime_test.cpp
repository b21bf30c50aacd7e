// The backend's runtime on the executor: memory, transfers, the device word, errors, and a whole model.

#include <gtest/gtest.h>

#include <cstdlib>

#include "reel/backends/cuda/cuda_ops.h"
#include "reel/core/error.h"
#include "reel/core/ragged.h"
#include "reel/core/tape.h"
#include "reel/nn/conv.h"
#include "reel/nn/linear.h"
#include "reel/nn/optimizer.h"
#include "reel/ops/arithmetic.h"
#include "reel/ops/convert.h"
#include "reel/ops/create.h"
#include "reel/ops/embedding.h"
#include "reel/ops/losses.h"
#include "reel/ops/ragged.h"
#include "reel/ops/reduce.h"
#include "reel/ops/softmax.h"
#include "reel/ops/views.h"
#include "reel/tests/cuda_on_cpu/executor.h"
#include "reel/tests/expect.h"

namespace reel {
namespace {

const Device kCuda = Device::cuda();

cuda::Context& context() { return static_cast<cuda::CudaOps&>(backend(kCuda)).context(); }

TEST(CudaDevice, IsTheBestOne) { EXPECT_EQ(Device::best(), kCuda); }

TEST(CudaDevice, NumbersAreChecked) {
  EXPECT_THROW_WITH(zeros({2}, {.device = Device::cuda(1)}), DeviceError, "cuda:0 to cuda:0, got cuda:1");
}

TEST(CudaDevice, MixingWithTheCpuIsRefused) {
  EXPECT_THROW_WITH(zeros({2}) + zeros({2}, {.device = kCuda}), DeviceError, "cuda:0", "cpu");
}

TEST(CudaTransfer, LargeTensorsGoThroughPinnedMemoryInParts) {
  const Tensor x = arange(1'500'000, {.dtype = i64});
  EXPECT_EQ(to(to(x, kCuda), Device::cpu()).to_vector<std::int64_t>(), x.to_vector<std::int64_t>());
}

TEST(CudaTransfer, EmptyTensorsMove) { EXPECT_EQ(to(to(zeros({0, 3}), kCuda), Device::cpu()).shape(), Shape(0, 3)); }

TEST(CudaTensor, ItemPrintAndFillWork) {
  Tensor x = zeros({2, 2}, {.device = kCuda});
  x.fill_(3);
  EXPECT_EQ(sum(x).item(), 12);
  EXPECT_NE(to_string(x).find("3"), std::string::npos);
}

// --- memory -----------------------------------------------------------------------------------------------------------------

TEST(CudaMemory, BlocksAreReused) {
  { const Tensor x = zeros({1000}, {.device = kCuda}); }
  const std::int64_t cached = context().memory().stats().cached, blocks = cuda_on_cpu::inventory().device_blocks;
  { const Tensor x = zeros({1000}, {.device = kCuda}); }
  EXPECT_EQ(context().memory().stats().cached, cached);
  EXPECT_EQ(cuda_on_cpu::inventory().device_blocks, blocks);
}

TEST(CudaMemory, IsCountedAndGivenBack) {
  const std::int64_t live = context().memory().stats().live;
  {
    const Tensor x = empty({1000}, {.device = kCuda});
    EXPECT_EQ(context().memory().stats().live - live, 4096);
  }
  EXPECT_EQ(context().memory().stats().live, live);
  context().memory().release_cached();
  EXPECT_EQ(context().memory().stats().cached, 0);
  EXPECT_EQ(cuda_on_cpu::inventory().device_bytes, live);
}

TEST(CudaMemory, WhenItIsShortTheCacheIsGivenBackFirst) {
  context().memory().release_cached();
  { const Tensor x = empty({1 << 18}, {.device = kCuda}); }  // 1 MiB, cached now
  cuda_on_cpu::set_capacity((1 << 20) + (1 << 19));
  EXPECT_EQ(empty({5 << 16}, {.device = kCuda}).size(), 5 << 16);  // another class
  cuda_on_cpu::set_capacity(std::size_t{1} << 30);
}

TEST(CudaMemory, ThatCannotBeHadIsTold) {
  cuda_on_cpu::set_capacity(1 << 20);
  EXPECT_THROW_WITH(empty({1 << 20}, {.device = kCuda}), OutOfMemory, "cuda: 4194304 bytes requested", "bytes live",
                    "cached", "free of 1048576");
  cuda_on_cpu::set_capacity(std::size_t{1} << 30);
  EXPECT_EQ(sum(ones({1 << 20}, {.device = kCuda})).item(), 1 << 20);
}

Tensor kept_until_exit;  // its end must not call CUDA

TEST(CudaMemory, MayOutliveTheProgram) { kept_until_exit = ones({3}, {.device = kCuda}); }

// --- the device word --------------------------------------------------------------------------------------------------------

TEST(CudaIndices, ABadOneIsToldWhenTheHostWaits) {
  const Tensor table = ones({4, 3}, {.device = kCuda});
  const Tensor bad = to(from_vector<std::int64_t>({1, 9, -3}, {3}), kCuda);
  const Tensor good = to(from_vector<std::int64_t>({1, 0, 3}, {3}), kCuda);
  Tensor y = embedding(table, bad);  // the line that is told
  const int line = __LINE__ - 1;
  embedding(table, to(from_vector<std::int64_t>({7}, {1}), kCuda));  // a later fault does not hide the first
  EXPECT_THROW_WITH(y.to_vector<float>(), IndexError, "embedding: indices must be in [0, 4), got 9 at position 1",
                    "runtime_test.cpp:", std::to_string(line).c_str());
  EXPECT_EQ(sum(embedding(table, good)).item(), 9);  // the GPU works on
}

TEST(CudaIndices, OptimisersWaitWhileABadOneIsUntold) {
  Parameter w(ones({4, 3}, {.device = kCuda}), "w");
  nn::Adam adam({w}, {.lr = 0.5});
  {
    Tape tape;
    tape.backward(sum(embedding(w, to(from_vector<std::int64_t>({1, 4}, {2}), kCuda))));
  }
  adam.step();
  EXPECT_THROW(sum(w.value()).item(), IndexError);
  EXPECT_EQ(sum(w.value()).item(), 12);  // unchanged
}

// --- failures ---------------------------------------------------------------------------------------------------------------

double small_program() {
  const Tensor x = to(from_vector<float>({1, 2, 3, 4, 5, 6}, {2, 3}), kCuda);
  Tape tape;
  tape.watch(x);
  const Tensor y = sum(log_softmax(x) * x);
  return sum(tape.gradient(y, {x})[0] * x).item();
}

TEST(CudaFailure, AnyCallMayFailWithoutALeak) {
  const double expected = small_program();
  context().memory().release_cached();
  const std::int64_t live = context().memory().stats().live;
  int failures = 0;
  for (;; ++failures) {
    ASSERT_LT(failures, 1000);
    cuda_on_cpu::fail_call(failures + 1);
    bool threw = false;
    try {
      small_program();
    } catch (const DeviceError& error) {
      threw = true;
      EXPECT_NE(std::string(error.what()).find("cuda: "), std::string::npos) << error.what();
    }
    const bool failed = cuda_on_cpu::call_failed();
    cuda_on_cpu::fail_call(0);
    EXPECT_EQ(threw, failed);
    EXPECT_EQ(context().memory().stats().live, live) << "after failure " << failures;
    context().memory().release_cached();
    if (!failed) break;
    ASSERT_EQ(small_program(), expected);
    context().memory().release_cached();
  }
  EXPECT_GT(failures, 10);
}

TEST(CudaFailure, ADeviceThatCannotBeSetUpLeavesNothingBehind) {
  const auto before = cuda_on_cpu::inventory();
  for (int n = 1;; ++n) {
    ASSERT_LT(n, 100);
    cuda_on_cpu::fail_call(n);
    try {
      cuda::CudaOps ops(0);
      float x[3] = {1, 2, 3};
      void* block = ops.allocate(sizeof x);
      try {
        ops.from_host(x, block, sizeof x);
        ops.to_host(block, x, sizeof x);
      } catch (...) {
        ops.deallocate(block, sizeof x);
        throw;
      }
      ops.deallocate(block, sizeof x);
    } catch (const DeviceError&) {
    }
    const bool failed = cuda_on_cpu::call_failed();
    cuda_on_cpu::fail_call(0);
    EXPECT_EQ(cuda_on_cpu::inventory().str(), before.str()) << n;
    if (!failed) break;
  }
}

TEST(CudaFailure, AStickyErrorIsToldByEachLaterCall) {
  const auto child = [] {
    cuda_on_cpu::fail_call(1, cudaErrorIllegalAddress);
    int told = 0;
    for (int i = 0; i < 3; ++i) {
      try {
        small_program();
      } catch (const DeviceError& error) {
        const std::string text = error.what();
        if (text.find("cudaErrorIllegalAddress") == std::string::npos) std::exit(2);
        told += text.find("an earlier error left it unusable") != std::string::npos;
      }
    }
    std::exit(told == 2 ? 0 : 1);
  };
  EXPECT_EXIT(child(), testing::ExitedWithCode(0), "");
}

// --- ragged tensors and models ----------------------------------------------------------------------------------------------

TEST(CudaRagged, OffsetsAreCopiedOnce) {
  const Ragged x = to(Ragged::from_lengths(arange(5, {.dtype = f32}), {2, 0, 3}), kCuda);
  const std::int64_t* first = x.segments().offsets;
  EXPECT_EQ(x.segments().offsets, first);
  EXPECT_EQ(x.with(x.values() * 2).segments().offsets, first);
  EXPECT_EQ(sum(x).to_vector<float>(), (std::vector<float>{1, 0, 9}));
}

struct Net : nn::Module {
  nn::Conv2dRelu conv1{this, "conv1", {.in = 1, .out = 3, .kernel = 3, .padding = 1}};
  nn::Conv2dRelu conv2{this, "conv2", {.in = 3, .out = 5, .kernel = 3, .padding = 2, .dilation = 2}};
  nn::Linear head{this, "head", {.in = 5 * 36, .out = 4}};
  Tensor operator()(const Tensor& x) { return head(flatten(conv2(conv1(x)), 1)); }
};

std::vector<double> losses_on(Device device) {
  manual_seed(1);
  Net net;
  net.to(device);
  nn::Adam adam(net.parameters(), {.lr = 1e-2});
  Generator generator(2);
  const Tensor images = to(randn({7, 1, 6, 6}, generator), device);
  const Tensor labels = to(from_vector<std::int64_t>({0, 1, 2, 3, 0, 1, 2}, {7}), device);
  std::vector<double> losses;
  for (int step = 0; step < 6; ++step) {
    Tape tape;
    const Tensor loss = cross_entropy(net(images), labels);
    tape.backward(loss);
    adam.step();
    losses.push_back(loss.item());
  }
  return losses;
}

TEST(CudaModel, TrainsAsOnTheCpu) {
  const std::vector<double> expected = losses_on(Device::cpu()), losses = losses_on(kCuda);
  for (std::size_t i = 0; i < losses.size(); ++i) EXPECT_NEAR(losses[i], expected[i], 2e-4) << "step " << i;
  EXPECT_LT(losses.back(), 0.7 * losses.front());
}

}  // namespace
}  // namespace reel
