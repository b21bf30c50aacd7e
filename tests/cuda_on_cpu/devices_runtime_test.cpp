// The backend's runtime with two devices, as only the executor can ask it: whose memory is whose, and calls that fail.

#include <gtest/gtest.h>

#include <cstdlib>
#include <thread>

#include "reel/backends/cuda/cuda_ops.h"
#include "reel/core/tape.h"
#include "reel/ops/arithmetic.h"
#include "reel/ops/convert.h"
#include "reel/ops/create.h"
#include "reel/ops/matmul.h"
#include "reel/ops/reduce.h"
#include "reel/ops/softmax.h"
#include "reel/ops/unary.h"
#include "reel/ops/views.h"
#include "reel/tests/cuda_on_cpu/devices.h"
#include "reel/tests/cuda_on_cpu/failures.h"
#include "reel/tests/expect.h"

namespace reel {
namespace {

using test::kFirst;
using test::kSecond;
using test::live;

TEST(DevicesMemory, GoesBackToWhereItCameFrom) {
  const std::int64_t first = live(kFirst), second = live(kSecond);
  {
    const Tensor x = empty({1000}, {.device = kFirst}), y = to(x, kSecond);
    EXPECT_EQ(live(kFirst) - first, 4096);
    EXPECT_EQ(live(kSecond) - second, 4096);
    EXPECT_EQ(empty({1000}, {.device = kSecond}).size(), 1000);  // the thread's last call was for the second
  }
  EXPECT_EQ(live(kFirst), first);
  EXPECT_EQ(live(kSecond), second);
}

TEST(DevicesMemory, ThatCannotBeHadIsToldWithTheGpu) {
  live(kFirst);
  live(kSecond);
  const Tensor x = empty({1 << 17}, {.device = kFirst});  // 512 KiB that the second knows nothing of
  cuda_on_cpu::set_capacity((1 << 20) + 1024);            // beside the device word
  EXPECT_THROW_WITH(empty({1 << 20}, {.device = kSecond}), OutOfMemory, "cuda:1: 4194304 bytes requested", "cached",
                    "free of 1049600");
  EXPECT_EQ(empty({1 << 18}, {.device = kSecond}).size(), 1 << 18);
  EXPECT_THROW_WITH(empty({1 << 18}, {.device = kFirst}), OutOfMemory, "cuda:0: 1048576 bytes requested");
  cuda_on_cpu::set_capacity(std::size_t{1} << 30);
}

TEST(DevicesCurrent, IsSetByEachCallWhateverOthersDid) {
  const Tensor x = ones({3}, {.device = kFirst}), y = ones({3}, {.device = kSecond});
  cudaSetDevice(1);  // someone else's
  EXPECT_EQ(sum(x + x).item(), 6);
  cudaSetDevice(0);
  EXPECT_EQ(sum(y + y).item(), 6);
  std::thread([&] { EXPECT_EQ(sum(to(y * 2, kFirst) + x).item(), 9); }).join();
}

// A GPU is set up in a thread that works on another one.
TEST(DevicesCurrent, AnotherContextTakesNothingAway) {
  const Tensor x = ones({3}, {.device = kFirst});
  { const cuda::CudaOps ops(1); }
  EXPECT_EQ(sum(x + x).item(), 6);
}

// --- failures ---------------------------------------------------------------------------------------------------------------

double small_program() {
  const Tensor x = to(from_vector<float>({1, 2, 3, 4, 5, 6}, {2, 3}), kFirst);
  Tape tape;
  tape.watch(x);
  const Tensor there = cast(to(x, kSecond), f16);
  const Tensor y = sum(log_softmax(to(x, kSecond)) * cast(matmul(there, matmul(transpose(there), there)), f32));
  return sum(tape.gradient(y, {x})[0] * x).item();
}

// The GPU is the one at which it came to that.
TEST(DevicesFailure, AnyCallMayFailWithoutALeak) {
  const std::vector<std::string> told = test::fail_each_call(small_program, {kFirst, kSecond});
  EXPECT_GT(told.size(), 40u);
  EXPECT_THAT(told, testing::Contains(testing::StartsWith("cuda:0: ")));
  EXPECT_THAT(told, testing::Contains(testing::StartsWith("cuda:1: cublasLtMatmul must succeed, got CUBLAS_STATUS_")));
  EXPECT_THAT(told,
              testing::Not(testing::Contains(testing::HasSubstr("cuda:0: cublasLt"))));  // products are made there
}

// The way between two GPUs is opened at the first copy, in a context of its own here; copies work without it.
TEST(DevicesFailure, AWayThatCannotBeOpenedIsDoneWithout) {
  for (int n = 1; n <= 3; ++n) {
    cuda::Context source(0), target(1);
    const cuda::Workspace from(source.memory(), 12), to(target.memory(), 12);
    const float x[3] = {1, 2, 3};
    source.from_host(x, from.as<void>(), sizeof x);
    target.use();
    cuda_on_cpu::fail_call(n);
    target.from_peer(source, from.as<void>(), to.as<void>(), sizeof x);
    EXPECT_TRUE(cuda_on_cpu::call_failed()) << n;
    cuda_on_cpu::fail_call(0);
    float y[3] = {};
    target.to_host(to.as<void>(), y, sizeof y);
    EXPECT_EQ(y[2], 3);
  }
}

TEST(DevicesFailure, AnUnusableGpuLeavesTheOtherUsable) {
  testing::FLAGS_gtest_death_test_style = "threadsafe";
  const auto child = [] {
    const Tensor x = ones({3}, {.device = kSecond});
    small_program();
    cuda_on_cpu::fail_call(1, cudaErrorIllegalAddress);
    int told = 0;
    for (int i = 0; i < 3; ++i) {
      try {
        small_program();
      } catch (const DeviceError& error) {
        const std::string text = error.what();
        if (text.find("cuda:0: ") == std::string::npos) std::_Exit(2);
        if (text.find("cudaErrorIllegalAddress") == std::string::npos) std::_Exit(3);
        told += text.find("an earlier error left it unusable") != std::string::npos;
      }
    }
    if (sum(x * 2).item() != 6) std::_Exit(4);
    std::_Exit(told == 2 ? 0 : 1);
  };
  EXPECT_EXIT(child(), testing::ExitedWithCode(0), "");
}

}  // namespace
}  // namespace reel
