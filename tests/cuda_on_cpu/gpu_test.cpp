// What only a GPU can show: memory that is really short, an error that really leaves the GPU unusable, a fork, and threads.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <string>
#include <thread>
#include <vector>

#include "reel/core/error.h"
#include "reel/core/precision.h"
#include "reel/core/tape.h"
#include "reel/ops/arithmetic.h"
#include "reel/ops/convert.h"
#include "reel/ops/create.h"
#include "reel/ops/custom_op.h"
#include "reel/ops/matmul.h"
#include "reel/ops/reduce.h"
#include "reel/ops/softmax.h"
#include "reel/ops/unary.h"
#include "reel/tests/expect.h"

namespace reel {
namespace {

const Device kCuda = Device::cuda();
constexpr TensorOptions kOnGpu{.device = Device::cuda()};

TEST(GpuMemory, MoreThanThereIsIsRefusedAndTheGpuWorksOn) {
  EXPECT_THROW_WITH(empty({std::int64_t{1} << 42}, kOnGpu), OutOfMemory, "cuda:0: 17592186044416 bytes requested",
                    "bytes live", "cached", "free of");
  EXPECT_EQ(sum(ones({1000}, kOnGpu)).item(), 1000);
}

// Blocks until there are none; half of them are given back to the cache, and one that is as large as two of them is asked for: the
// cache must go back to the system for it.
TEST(GpuMemory, TheCacheIsGivenBackWhenItIsShort) {
  constexpr std::int64_t kBlock = std::int64_t{1} << 30;  // elements: 4 GiB
  std::vector<Tensor> blocks;
  try {
    while (blocks.size() < 200) blocks.push_back(empty({kBlock}, kOnGpu));
  } catch (const OutOfMemory&) {
  }
  ASSERT_GE(blocks.size(), 4u) << "too little memory for this test";
  blocks.resize(blocks.size() - 3);
  EXPECT_EQ(empty({2 * kBlock}, kOnGpu).size(), 2 * kBlock);
}

// Relative to the sum of the sizes of what is added.
double error_of_product(const Tensor& a, const Tensor& b) {
  const std::vector<double> got = matmul(to(a, kCuda), to(b, kCuda)).to_vector<double>();
  const Tensor x = cast(a, f64), y = cast(b, f64);
  const std::vector<double> exact = matmul(x, y).to_vector<double>(), size = matmul(abs(x), abs(y)).to_vector<double>();
  double worst = 0;
  for (std::size_t i = 0; i < got.size(); ++i) worst = std::max(worst, std::abs(got[i] - exact[i]) / size[i]);
  return worst;
}

TEST(GpuProducts, AreInF32UnlessTf32IsAllowed) {
  Generator generator(3);
  const Tensor a = randn({500, 700}, generator), b = randn({700, 600}, generator);
  EXPECT_LT(error_of_product(a, b), 2e-7);
  set_matmul_precision(MatmulPrecision::high);
  const double rounded = error_of_product(a, b);
  EXPECT_LT(error_of_product(cast(a, f64), cast(b, f64)), 1e-15);
  set_matmul_precision(MatmulPrecision::highest);
  EXPECT_LT(rounded, 1e-3);
  EXPECT_GT(rounded, 2e-6) << "TF32 was asked for and not taken";
  EXPECT_LT(error_of_product(a, b), 2e-7);
}

std::vector<double> some_work(int seed) {
  Generator generator(static_cast<std::uint64_t>(seed));
  const Tensor x = to(randn({100, 300}, generator, {.dtype = f64}), kCuda);
  Tensor y = x;
  for (int i = 0; i < 20; ++i) {
    Tape tape;
    tape.watch(y);
    y = tape.gradient(sum(log_softmax(y) * x), {y})[0];
  }
  return y.to_vector<double>();
}

TEST(GpuThreads, ShareTheGpuAndGetWhatOneAloneGets) {
  std::vector<std::vector<double>> alone, together(8);
  for (int i = 0; i < 8; ++i) alone.push_back(some_work(i));
  std::vector<std::thread> threads;
  for (int i = 0; i < 8; ++i)
    threads.emplace_back([&together, i] { together[static_cast<std::size_t>(i)] = some_work(i); });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(together, alone);
}

// CUDA itself would fail there in some call.
TEST(GpuProcess, AForkedOneIsToldThatItCannotUseTheGpu) {
  const Tensor x = ones({3}, kOnGpu);
  EXPECT_EQ(sum(x).item(), 3);
  const auto child = [](const Tensor& mine) {
    try {
      (void)sum(mine).item();
    } catch (const DeviceError& error) {
      std::_Exit(std::string(error.what()).find("got one forked from it") != std::string::npos ? 0 : 1);
    }
    std::_Exit(2);
  };
  EXPECT_EXIT(child(x), testing::ExitedWithCode(0), "");
  EXPECT_EQ(sum(x).item(), 3);
}

// In a process of its own, whose GPU is lost.
TEST(GpuFailureDeathTest, AStickyErrorIsToldByEachLaterCall) {
  testing::FLAGS_gtest_death_test_style = "threadsafe";
  const auto child = [] {
    const CustomOp op = CustomOp("stray")
                            .cuda_source(
                                "template <class T> __global__ void stray(long long n, const T* x, T* y) {"
                                "  *reinterpret_cast<T*>(0x10) = x[0];"
                                "}",
                                "stray<T>")
                            .by_element();
    int told = 0;
    for (int i = 0; i < 3; ++i) {
      try {
        op(ones({10}, kOnGpu)).to_vector<float>();
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

}  // namespace
}  // namespace reel
