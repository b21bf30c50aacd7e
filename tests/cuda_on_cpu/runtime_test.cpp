// The backend's runtime, as only the executor can ask it: memory that is short, and calls that fail.

#include <gtest/gtest.h>

#include <cstdlib>
#include <string>

#include "reel/backends/cuda/conv_weight_tiles.h"
#include "reel/backends/cuda/cuda.h"
#include "reel/backends/cuda/cuda_ops.h"
#include "reel/backends/cuda/launch.h"
#include "reel/core/error.h"
#include "reel/core/tape.h"
#include "reel/ops/arithmetic.h"
#include "reel/ops/convert.h"
#include "reel/ops/create.h"
#include "reel/ops/matmul.h"
#include "reel/ops/recurrent.h"
#include "reel/ops/reduce.h"
#include "reel/ops/softmax.h"
#include "reel/ops/unary.h"
#include "reel/ops/views.h"
#include "reel/tests/cuda_on_cpu/failures.h"
#include "reel/tests/expect.h"

namespace reel {
namespace {

const Device kCuda = Device::cuda();

cuda::Context& context() { return static_cast<cuda::CudaOps&>(backend(kCuda)).context(); }

// The kernels of these tests are compiled for 7.5 and more, as it were: see CMakeLists.txt.
TEST(CudaDevices, OnlyThoseThatThereAreKernelsForAreCounted) {
  const auto count = [](int first, int second) {
    cuda_on_cpu::set_capability(0, first);
    cuda_on_cpu::set_capability(1, second);
    const char* missing = "";
    const int devices = reel_cuda_ops()->device_count(&missing);
    return std::to_string(devices) + missing;
  };
  cuda_on_cpu::set_device_count(2);
  EXPECT_EQ(count(90, 80), "2");
  EXPECT_EQ(count(75, 100), "2");
  EXPECT_EQ(count(86, 70),
            "1this library was compiled for GPUs from compute capability 7.5 on, and number 1 of this machine has 7.0 "
            "(CUDA_VISIBLE_DEVICES can leave it out)");
  EXPECT_EQ(count(61, 90),
            "0this library was compiled for GPUs from compute capability 7.5 on, and number 0 of this machine has 6.1 "
            "(CUDA_VISIBLE_DEVICES can leave it out)");
  EXPECT_EQ(count(90, 90), "2");
  cuda_on_cpu::set_device_count(1);
}

TEST(CudaDevices, WhyOneIsNotCountedIsTold) {
  testing::FLAGS_gtest_death_test_style = "threadsafe";  // a process that has not counted them
  const auto child = [](int first, int second, int asked_for, const char* told) {
    cuda_on_cpu::set_device_count(2);
    cuda_on_cpu::set_capability(0, first);
    cuda_on_cpu::set_capability(1, second);
    try {
      zeros({1}, {.device = Device::cuda(asked_for)});
    } catch (const DeviceError& error) {
      std::_Exit(std::string(error.what()).find(told) != std::string::npos ? 0 : 1);
    }
    std::_Exit(2);
  };
  EXPECT_EXIT(child(86, 70, 1, "to cuda:0, got cuda:1; this library was compiled for GPUs from"),
              testing::ExitedWithCode(0), "");
  EXPECT_EXIT(child(61, 90, 0, "cuda:0 is not to be had: this library was compiled for GPUs from"),
              testing::ExitedWithCode(0), "");
  EXPECT_EXIT(child(90, 80, 1, ""), testing::ExitedWithCode(2), "");
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
  EXPECT_THROW_WITH(empty({1 << 20}, {.device = kCuda}), OutOfMemory, "cuda:0: 4194304 bytes requested", "bytes live",
                    "cached", "free of 1048576");
  cuda_on_cpu::set_capacity(std::size_t{1} << 30);
  EXPECT_EQ(sum(ones({1 << 20}, {.device = kCuda})).item(), 1 << 20);
}

TEST(CudaMemory, WhatIsCachedBeyondTheMostThatWasLiveIsGivenBack) {
  constexpr std::int64_t kMiB = 1 << 20;
  const std::int64_t before = test::live(kCuda);
  cuda::Memory memory(0, context().stream());
  const auto cached_after = [&](std::int64_t mib) {
    const auto bytes = static_cast<std::size_t>(mib * kMiB);
    memory.deallocate(memory.allocate(bytes), bytes);
    return memory.stats().cached / kMiB;
  };
  EXPECT_EQ(cached_after(160), 160);
  EXPECT_EQ(cached_after(192), 352);  // up to 192 + 256
  EXPECT_EQ(cached_after(224), 352);  // up to 224 + 256
  EXPECT_EQ(memory.stats().peak, 224 * kMiB);
  EXPECT_EQ(cuda_on_cpu::device_bytes(0), before + 352 * kMiB);
}

TEST(CudaMemory, AnErrorThatItIsShortHoldsNoTensors) {
  const std::int64_t before = test::live(kCuda);
  std::exception_ptr error;
  cuda_on_cpu::set_capacity(1 << 20);
  try {
    Tape tape;
    const Tensor x = ones({1000}, {.device = kCuda});
    tape.watch(x);
    const Tensor y = reshape(x * 2, {1000, 1});
    (void)(y * reshape(y, {1, 1000}));
  } catch (const OutOfMemory&) {
    error = std::current_exception();
  }
  cuda_on_cpu::set_capacity(std::size_t{1} << 30);
  EXPECT_NE(error, nullptr);
  EXPECT_EQ(test::live(kCuda), before);
}

Tensor kept_until_exit;  // its end must not call CUDA

TEST(CudaMemory, MayOutliveTheProgram) { kept_until_exit = ones({3}, {.device = kCuda}); }

// --- grids ------------------------------------------------------------------------------------------------------------------

void mark(int* y) { *y = 1; }

TEST(CudaGrid, WithMoreBlocksThanThereAreIsRefused) {
  const Tensor y = zeros({1}, {.dtype = i32, .device = kCuda});
  const auto run = [&](const cuda::Grid& grid) { cuda::launch(context(), "mark", grid, &mark, y.array().as<int>()); };
  constexpr std::int64_t kMany = (std::int64_t{1} << 32) + 1;  // 1, if it was cut to 32 bits
  EXPECT_THROW_WITH(run({.blocks = kMany}), DeviceError, "a launch of mark with 2147483647 x 65535 x 65535 blocks",
                    "got 4294967297 x 1 x 1");
  EXPECT_THROW_WITH(run({.y = 65536}), DeviceError, "got 1 x 65536 x 1");
  EXPECT_THROW_WITH(run({.z = 65536}), DeviceError, "got 1 x 1 x 65536");
  EXPECT_EQ(y.item(), 0);
  run({.y = 2, .threads = 32});
  EXPECT_EQ(y.item(), 1);
}

// As many tiles as there are go by the kernel for tiles.
TEST(CudaGrid, HoldsAnyNumberOfTilesOfWeights) {
  Conv conv;
  conv.batch = 1, conv.in = conv.out = conv.groups = 70'000;
  conv.input[2] = 2, conv.kernel[2] = 2;
  Array any;
  cuda::WeightTiling tiling(cuda::Geometry(conv, any, any, nullptr));
  tiling.micro_out = tiling.micro_in = tiling.micro_rows = 1, tiling.micro_cols = 3;
  tiling.bias = false;
  EXPECT_TRUE(tiling.plan(sizeof(float), 528));
  EXPECT_EQ(tiling.tiles(), 70'000);
  EXPECT_EQ(tiling.splits, 1);
}

// --- steps of a layer -------------------------------------------------------------------------------------------------------

// What streams are given for a step of a layer of more than 64 units.
struct Step {
  std::uint64_t forward, training;
  bool operator==(const Step&) const = default;
};

template <class F>
Step work_of_a_step(F layer, std::int64_t gates) {
  constexpr std::int64_t kHidden = 70, kRows = 3;
  const auto random = [](const Shape& shape) {
    Generator generator(1);
    return to(randn(shape, generator), kCuda);
  };
  const std::vector<RecurrentWeights> weights = {{random({gates * kHidden, 5}), random({gates * kHidden, kHidden}),
                                                  random({gates * kHidden}), random({gates * kHidden})}};
  const auto work = [&](std::int64_t steps, bool training) {
    const Tensor x = random({steps, kRows, 5});
    const auto run = [&] {
      Tape tape;
      if (training) tape.watch(x);
      const Tensor y = layer(x, weights);
      if (training) tape.gradient(y, ones_like(y), {x});
    };
    run();  // what comes from the system alone is cached now
    const std::uint64_t before = cuda_on_cpu::work();
    run();
    return cuda_on_cpu::work() - before;
  };
  const auto of_a_step = [&](bool training) { return (work(11, training) - work(7, training)) / 4; };
  return {of_a_step(false), of_a_step(true)};
}

// Forward a product and a cell; backward the sum of the gradients that meet, a cell, a product.
TEST(CudaRecurrent, AStepOfALargeLayerIsAProductAndACell) {
  const Step expected{2, 5};
  EXPECT_EQ(work_of_a_step([](const Tensor& x, const auto& w) { return lstm(x, w).y; }, 4), expected);
  EXPECT_EQ(work_of_a_step([](const Tensor& x, const auto& w) { return gru(x, w).y; }, 3), expected);
  EXPECT_EQ(work_of_a_step([](const Tensor& x, const auto& w) { return rnn(x, w).y; }, 1), expected);
  const RecurrentOptions both{.bidirectional = true};
  EXPECT_EQ(work_of_a_step(
                [&](const Tensor& x, const auto& w) {
                  return lstm(x, {w[0], w[0]}, both).y;
                },
                4),
            (Step{4, 10}));
}

// --- failures ---------------------------------------------------------------------------------------------------------------

double small_program() {
  const Tensor x = to(from_vector<float>({1, 2, 3, 4, 5, 6}, {2, 3}), kCuda);
  Tape tape;
  tape.watch(x);
  const Tensor y = sum(log_softmax(x) * matmul(x, cast(matmul(transpose(cast(x, f16)), cast(x, f16)), f32)));
  return sum(tape.gradient(y, {x})[0] * x).item();
}

TEST(CudaFailure, AnyCallMayFailWithoutALeak) {
  const std::vector<std::string> told = test::fail_each_call(small_program, {kCuda});
  EXPECT_GT(told.size(), 30u);
  EXPECT_THAT(told, testing::Contains(testing::StartsWith("cuda:0: cublasLtMatmul must succeed, got CUBLAS_STATUS_")));
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
  testing::FLAGS_gtest_death_test_style = "threadsafe";
  const auto child = [] {
    cuda_on_cpu::fail_call(1, cudaErrorIllegalAddress);
    int told = 0;
    for (int i = 0; i < 3; ++i) {
      try {
        small_program();
      } catch (const DeviceError& error) {
        const std::string text = error.what();
        if (text.find("cudaErrorIllegalAddress") == std::string::npos) std::_Exit(2);
        told += text.find("an earlier error left it unusable") != std::string::npos;
      }
    }
    std::_Exit(told == 2 ? 0 : 1);
  };
  EXPECT_EXIT(child(), testing::ExitedWithCode(0), "");
}

// Of those that CUDA's manual says end all use of it, also where a later call does not say so itself.
TEST(CudaFailure, EveryErrorThatEndsAllUseOfCudaIsTold) {
  testing::FLAGS_gtest_death_test_style = "threadsafe";
  const auto child = [](int code) {
    Device::best();  // counts the devices
    cuda_on_cpu::fail_call(1, static_cast<cudaError_t>(code));
    int told = 0;
    for (int i = 0; i < 2; ++i) {
      try {
        small_program();
      } catch (const DeviceError& error) {
        told += std::string(error.what()).find("an earlier error left it unusable") != std::string::npos;
      }
    }
    std::_Exit(told);
  };
  for (const int code : {226, 719, 721, 810, 911}) EXPECT_EXIT(child(code), testing::ExitedWithCode(1), "") << code;
  EXPECT_EXIT(child(cudaErrorUnknown), testing::ExitedWithCode(0), "");
}

}  // namespace
}  // namespace reel
