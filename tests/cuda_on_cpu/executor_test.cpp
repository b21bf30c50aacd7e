// Bugs planted in small kernels: each must be reported.

#include "reel/tests/cuda_on_cpu/executor.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "reel/tests/cuda_on_cpu/report.h"

namespace cuda_on_cpu {
namespace {

constexpr unsigned kAllLanes = 0xffffffffu;

// --- kernels ----------------------------------------------------------------------------------------------------------------

// Sums the block's numbers; `correct` has the barrier between writing and reading that the other lacks.
template <bool correct>
void block_sum(const float* x, float* y) {
  REEL_DYNAMIC_SHARED(float, partial);
  float sum = x[blockIdx.x * blockDim.x + threadIdx.x];
  for (int other = 1; other < 32; other *= 2) sum += __shfl_xor_sync(kAllLanes, sum, other);
  if (threadIdx.x % 32 == 0) partial[threadIdx.x / 32] = sum;
  if (correct) __syncthreads();
  sum = 0;
  for (unsigned i = 0; i < blockDim.x / 32; ++i) sum += partial[i];
  if (threadIdx.x == 0) y[blockIdx.x] = sum;
}

// Two sums through one place; `correct` has the barrier between the first one's last read and the second one's write.
template <bool correct>
void two_sums(const float* x, float* y) {
  REEL_DYNAMIC_SHARED(float, partial);
  const float own = x[threadIdx.x];
  for (int round = 0; round < 2; ++round) {
    if (threadIdx.x % 32 == 0) partial[threadIdx.x / 32] = own + static_cast<float>(100 * round);
    __syncthreads();
    float sum = 0;
    for (unsigned i = 0; i < blockDim.x / 32; ++i) sum += partial[i];
    y[round * blockDim.x + threadIdx.x] = sum;
    if (correct) __syncthreads();
  }
}

// Twice over, each lane takes its warp's next lane's number through shared memory. With `before`, there is the warp's barrier
// between writing and reading, with `behind`, that between reading and writing the next one.
template <bool before, bool behind>
void next_numbers(const float* x, float* y) {
  REEL_DYNAMIC_SHARED(float, numbers);
  const unsigned warp = threadIdx.x / 32 * 32, next = warp + (threadIdx.x + 1) % 32;
  for (unsigned round = 0; round < 2; ++round) {
    numbers[threadIdx.x] = x[threadIdx.x] + static_cast<float>(100 * round);
    if (before) __syncwarp();
    y[round * blockDim.x + threadIdx.x] = numbers[next];
    if (behind) __syncwarp();
  }
}

void divergent_barrier(int* y) {
  if (threadIdx.x < 32) {
    __syncthreads();
    y[threadIdx.x] = 1;
  } else {
    __syncthreads();
    y[threadIdx.x] = 2;
  }
}

void exited_threads(int* y) {
  if (threadIdx.x >= 48) return;
  __syncthreads();
  y[threadIdx.x] = 1;
}

void divergent_shuffle(int* y) {
  if (threadIdx.x < 16) y[threadIdx.x] = __shfl_xor_sync(kAllLanes, 1, 1);
}

void read_beyond(const float* x, float* y, int n) { y[threadIdx.x] = x[threadIdx.x + n]; }

void overflow(const int* x, int* y) { y[threadIdx.x] = x[threadIdx.x] + 1; }

// Thread 0 reads or writes one byte of shared memory.
template <bool writes>
void touch_shared(int place, char* y) {
  REEL_DYNAMIC_SHARED(char, shared);
  if (threadIdx.x > 0) return;
  if (writes) shared[place] = 1;
  else y[0] = shared[place];
}

void copy(const float* x, float* y) { y[threadIdx.x] = x[threadIdx.x]; }

void votes(unsigned* y) {
  const unsigned mask = __ballot_sync(kAllLanes, threadIdx.x % 3 == 0);
  if (threadIdx.x == 0) *y = mask;
}

// Of two barriers: whether any thread has `one`, and whether any has a number that none has.
void any_votes(int one, int* y) {
  const bool some = __syncthreads_or(static_cast<int>(threadIdx.x) == one), none = __syncthreads_or(false);
  y[threadIdx.x] = 2 * some + none;
}

void count(int* y) { atomicAdd(y, 1); }

// --- the host's side ----------------------------------------------------------------------------------------------------------

class Executor : public testing::Test {
 protected:
  void SetUp() override { ASSERT_EQ(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), cudaSuccess); }
  void TearDown() override {
    set_schedule(Schedule::in_order);
    for (void* block : blocks_) cudaFreeAsync(block, stream_);
    cudaStreamDestroy(stream_);
    EXPECT_TRUE(inventory().empty()) << inventory().str();
  }

  template <class T>
  T* device(std::size_t n) {
    void* block = nullptr;
    EXPECT_EQ(cudaMallocAsync(&block, n * sizeof(T), stream_), cudaSuccess);
    blocks_.push_back(block);
    return static_cast<T*>(block);
  }
  template <class T>
  T* device(const std::vector<T>& values) {
    T* block = device<T>(values.size());
    cudaMemcpyAsync(block, values.data(), values.size() * sizeof(T), cudaMemcpyHostToDevice, stream_);
    return block;
  }
  template <class T>
  std::vector<T> host(const T* block, std::size_t n) {
    std::vector<T> values(n);
    cudaMemcpyAsync(values.data(), block, n * sizeof(T), cudaMemcpyDeviceToHost, stream_);
    cudaStreamSynchronize(stream_);
    return values;
  }
  template <class... P, class... A>
  void run(unsigned blocks, unsigned threads, void (*kernel)(P...), A... arguments) {
    cudaLaunchConfig_t config;
    config.gridDim = dim3(blocks);
    config.blockDim = dim3(threads);
    config.dynamicSmemBytes = shared_bytes_;
    config.stream = stream_;
    ASSERT_EQ(cudaLaunchKernelEx(&config, kernel, arguments...), cudaSuccess);
  }

  cudaStream_t stream_ = nullptr;
  std::size_t shared_bytes_ = 256;
  std::vector<void*> blocks_;
};

std::vector<float> numbers(int n) {
  std::vector<float> x;
  for (int i = 0; i < n; ++i) x.push_back(static_cast<float>(i % 7));
  return x;
}

TEST_F(Executor, RunsACorrectKernelUnderEverySchedule) {
  const std::vector<float> x = numbers(1024);
  const float* from = device(x);
  float* to = device<float>(4);
  for (const Schedule schedule : {Schedule::in_order, Schedule::reversed, Schedule::random}) {
    set_schedule(schedule);
    run(4, 256, block_sum<true>, from, to);
    const std::vector<float> y = host(to, 4);
    for (int b = 0; b < 4; ++b) {
      float sum = 0;
      for (int i = 0; i < 256; ++i) sum += x[static_cast<std::size_t>(256 * b + i)];
      EXPECT_EQ(y[static_cast<std::size_t>(b)], sum);
    }
  }
}

TEST_F(Executor, VotesAndAtomicsWork) {
  unsigned* vote = device<unsigned>(1);
  run(1, 32, votes, vote);
  EXPECT_EQ(host(vote, 1)[0], 0x49249249u);
  int* sum = device(std::vector<int>{0});
  run(3, 64, count, sum);
  EXPECT_EQ(host(sum, 1)[0], 192);
}

TEST_F(Executor, ABarrierTellsWhetherAnyThreadOfTheBlockVoted) {
  for (const Schedule schedule : {Schedule::in_order, Schedule::reversed, Schedule::random}) {
    set_schedule(schedule);
    for (const int one : {0, 70, 95, 96}) {  // 96: a thread that there is not
      int* y = device<int>(96);
      run(1, 96, any_votes, one, y);
      EXPECT_EQ(host(y, 96), std::vector<int>(96, one < 96 ? 2 : 0));
    }
  }
}

TEST_F(Executor, AMissingBarrierShows) {
  const float* from = device(numbers(256));
  float* to = device<float>(1);
  run(1, 256, block_sum<false>, from, to);
  EXPECT_TRUE(std::isnan(host(to, 1)[0]));  // the partial sums of the other warps were not there yet
}

TEST_F(Executor, ABarrierThatIsMissingBeforeMemoryIsReusedShows) {
  const float* from = device(numbers(256));
  float* to = device<float>(512);
  for (const Schedule schedule : {Schedule::in_order, Schedule::reversed, Schedule::random}) {
    set_schedule(schedule);
    run(1, 256, two_sums<true>, from, to);
    const std::vector<float> expected = host(to, 512);
    run(1, 256, two_sums<false>, from, to);
    EXPECT_NE(host(to, 512), expected);
    EXPECT_EQ(std::count(expected.begin(), expected.begin() + 256, expected[0]), 256);
  }
}

TEST_F(Executor, AMissingBarrierOfAWarpShows) {
  const std::vector<float> x = numbers(64);
  const float* from = device(x);
  float* to = device<float>(128);
  for (const Schedule schedule : {Schedule::in_order, Schedule::reversed, Schedule::random}) {
    set_schedule(schedule);
    run(1, 64, next_numbers<true, true>, from, to);
    const std::vector<float> expected = host(to, 128);
    for (std::size_t i = 0; i < 128; ++i)
      EXPECT_EQ(expected[i], x[i % 64 / 32 * 32 + (i + 1) % 32] + static_cast<float>(i / 64 * 100));
    run(1, 64, next_numbers<false, true>, from, to);
    EXPECT_TRUE(std::isnan(host(to, 128)[schedule == Schedule::in_order ? 0 : 31]) || schedule == Schedule::random);
    EXPECT_NE(host(to, 128), expected);  // a lane that ran before the next one has written
    run(1, 64, next_numbers<true, false>, from, to);
    EXPECT_NE(host(to, 128), expected);  // a lane that ran on before the one ahead of it has read
  }
}

TEST_F(Executor, ADivergentBarrierIsReported) {
  const std::string text = report([&] { run(1, 64, divergent_barrier, device<int>(64)); });
  EXPECT_NE(text.find("barrier divergence: threads wait at"), std::string::npos) << text;
  EXPECT_NE(text.find("executor_test.cpp"), std::string::npos) << text;
}

TEST_F(Executor, ABarrierThatSomeThreadsNeverReachIsReported) {
  const std::string text = report([&] { run(1, 64, exited_threads, device<int>(64)); });
  EXPECT_NE(text.find("16 threads had ended"), std::string::npos) << text;
}

TEST_F(Executor, AShuffleThatSomeLanesMissIsReported) {
  const std::string text = report([&] { run(1, 32, divergent_shuffle, device<int>(32)); });
  EXPECT_NE(text.find("a lane waits for others of its warp"), std::string::npos) << text;
}

TEST_F(Executor, AnUninitialisedReadGivesNaN) {
  float* to = device<float>(32);
  run(1, 32, copy, device<float>(32), to);
  for (const float value : host(to, 32)) EXPECT_TRUE(std::isnan(value));
}

TEST_F(Executor, AnUninitialisedReadOfReusedMemoryGivesNaN) {
  float* block = device(numbers(32));
  block_returned(block, 256);
  block_handed_out(block, 128, 256);
  float* to = device<float>(32);
  run(1, 32, copy, block, to);
  for (const float value : host(to, 32)) EXPECT_TRUE(std::isnan(value));
}

TEST_F(Executor, AWriteIntoTheRestOfABlockIsReported) {
  char* block = device<char>(256);
  block_handed_out(block, 100, 256);
  EXPECT_DEATH(cudaMemsetAsync(block + 100, 1, 1, stream_), "AddressSanitizer: use-after-poison");
  block_handed_out(block, 256, 256);
}

TEST_F(Executor, AUseOfABlockThatWasGivenBackIsReported) {
  float* block = device(numbers(32));
  float* to = device<float>(32);
  block_returned(block, 256);
  EXPECT_DEATH(run(1, 32, copy, block, to), "AddressSanitizer: use-after-poison");
  EXPECT_DEATH(run(1, 32, copy, to, block), "AddressSanitizer: use-after-poison");
  block_handed_out(block, 128, 256);
}

TEST_F(Executor, AReadOutOfBoundsIsReported) {
  float* from = device(numbers(64));
  float* to = device<float>(32);
  EXPECT_DEATH(run(1, 32, read_beyond, from, to, 64), "AddressSanitizer: use-after-poison");
}

TEST_F(Executor, UndefinedBehaviourIsReported) {
  const int* from = device(std::vector<int>(32, std::numeric_limits<int>::max()));
  int* to = device<int>(32);
  EXPECT_DEATH(run(1, 32, overflow, from, to), "signed integer overflow");
}

// Of a launch that asks for too little of it.
TEST_F(Executor, SharedMemoryThatWasNotAskedForIsOutOfBounds) {
  char* y = device<char>(1);
  for (const std::size_t bytes : {0, 250, 256, 48 << 10}) {
    shared_bytes_ = bytes;
    if (bytes > 0) run(1, 32, touch_shared<true>, static_cast<int>(bytes) - 1, y);
    constexpr const char* kReport = "AddressSanitizer: use-after-poison";
    EXPECT_DEATH(run(1, 32, touch_shared<false>, static_cast<int>(bytes), y), kReport);
    EXPECT_DEATH(run(1, 32, touch_shared<true>, static_cast<int>(bytes), y), kReport);
    EXPECT_DEATH(run(1, 32, touch_shared<false>, static_cast<int>(bytes) + 4000, y), kReport);
    EXPECT_DEATH(run(1, 32, touch_shared<true>, static_cast<int>(bytes) + 4000, y), kReport);
  }
}

TEST_F(Executor, AWrongSpaceCopyIsReported) {
  float host_memory[32] = {};
  float* block = device<float>(32);
  std::string text = report([&] { cudaMemcpyAsync(host_memory, host_memory, 128, cudaMemcpyHostToDevice, stream_); });
  EXPECT_NE(text.find("wrong-space copy: the target must be device memory"), std::string::npos) << text;
  text = report([&] { cudaMemcpyAsync(block, block, 128, cudaMemcpyHostToDevice, stream_); });
  EXPECT_NE(text.find("wrong-space copy: the source must be host memory"), std::string::npos) << text;
  text = report([&] { cudaMemcpyAsync(host_memory, block, 129, cudaMemcpyDeviceToHost, stream_); });
  EXPECT_NE(text.find("leaves its block"), std::string::npos) << text;
}

TEST_F(Executor, HostCodeCannotReadDeviceMemory) {
  volatile float* block = device(numbers(32));
  EXPECT_DEATH((void)*block, "");
}

TEST_F(Executor, WhatIsCopiedToTheHostArrivesWhenItWaits) {
  const float* block = device(numbers(3));
  float values[3] = {-1, -1, -1};
  cudaMemcpyAsync(values, block, sizeof values, cudaMemcpyDeviceToHost, stream_);
  EXPECT_EQ(values[2], -1);
  cudaStreamSynchronize(stream_);
  EXPECT_EQ(values[2], 2);
}

TEST_F(Executor, ALeakIsCounted) {
  void* block = nullptr;
  cudaMallocAsync(&block, 100, stream_);
  EXPECT_EQ(inventory().device_blocks, 1);
  EXPECT_EQ(inventory().device_bytes, 100);
  EXPECT_NE(inventory().str().find("leak: 1 device blocks of 100 bytes"), std::string::npos);
  blocks_.push_back(block);
}

TEST_F(Executor, TheNthCallFails) {
  fail_call(2, cudaErrorUnknown);
  void* block = nullptr;
  EXPECT_EQ(cudaMallocAsync(&block, 16, stream_), cudaSuccess);
  blocks_.push_back(block);
  EXPECT_EQ(cudaMemsetAsync(block, 0, 16, stream_), cudaErrorUnknown);
  EXPECT_TRUE(call_failed());
  EXPECT_EQ(cudaMemsetAsync(block, 0, 16, stream_), cudaSuccess);
  fail_call(0);
}

TEST_F(Executor, AfterAnIllegalAddressAllCallsFail) {
  fail_call(1, cudaErrorIllegalAddress);
  void* block = nullptr;
  for (int i = 0; i < 3; ++i) EXPECT_EQ(cudaMallocAsync(&block, 16, stream_), cudaErrorIllegalAddress);
  EXPECT_EQ(cudaGetLastError(), cudaErrorIllegalAddress);
  EXPECT_EQ(cudaGetLastError(), cudaSuccess);
  fail_call(0);
}

}  // namespace
}  // namespace cuda_on_cpu
