// Bugs with several devices, planted: each must be reported.

#include <gtest/gtest.h>

#include <thread>
#include <vector>

#include "reel/tests/cuda_on_cpu/report.h"

namespace cuda_on_cpu {
namespace {

void copy(const float* x, float* y) { y[threadIdx.x] = x[threadIdx.x]; }

constexpr std::size_t kCount = 32, kBytes = kCount * sizeof(float);

/// Two devices with a stream, an event and two blocks of memory each.
class Devices : public testing::Test {
 protected:
  struct Device {
    cudaStream_t stream = nullptr;
    cudaEvent_t event = nullptr;
    float *x = nullptr, *y = nullptr;
  };

  void SetUp() override {
    set_device_count(2);
    for (int i = 0; i < 2; ++i) {
      ASSERT_EQ(cudaSetDevice(i), cudaSuccess);
      Device& device = devices_[i];
      ASSERT_EQ(cudaStreamCreateWithFlags(&device.stream, cudaStreamNonBlocking), cudaSuccess);
      ASSERT_EQ(cudaEventCreateWithFlags(&device.event, cudaEventDisableTiming), cudaSuccess);
      device.x = block(device.stream);
      device.y = block(device.stream);
      const std::vector<float> values(kCount, static_cast<float>(10 + i));
      cudaMemcpyAsync(device.x, values.data(), kBytes, cudaMemcpyHostToDevice, device.stream);
      cudaStreamSynchronize(device.stream);
    }
    cudaSetDevice(0);
  }
  void TearDown() override {
    for (const Device& device : devices_) cudaStreamSynchronize(device.stream);
    for (const Device& device : devices_) {
      cudaFreeAsync(device.x, device.stream);
      cudaFreeAsync(device.y, device.stream);
      cudaEventDestroy(device.event);
      cudaStreamDestroy(device.stream);
    }
    cudaSetDevice(0);
    set_device_count(1);
    EXPECT_TRUE(inventory().empty()) << inventory().str();
  }

  static float* block(cudaStream_t stream) {
    void* memory = nullptr;
    EXPECT_EQ(cudaMallocAsync(&memory, kBytes, stream), cudaSuccess);
    return static_cast<float*>(memory);
  }
  static cudaError_t run(cudaStream_t stream, const float* x, float* y) {
    cudaLaunchConfig_t config;
    config.blockDim = dim3(kCount);
    config.stream = stream;
    return cudaLaunchKernelEx(&config, copy, x, y);
  }
  /// What is put on the stream of `later` from now on comes after what that of `earlier` was given.
  void follow(int later, int earlier) {
    EXPECT_EQ(cudaEventRecord(devices_[earlier].event, devices_[earlier].stream), cudaSuccess);
    EXPECT_EQ(cudaStreamWaitEvent(devices_[later].stream, devices_[earlier].event, 0), cudaSuccess);
  }
  cudaError_t copy_to_1(const float* from) {
    return cudaMemcpyPeerAsync(devices_[1].y, 1, from, 0, kBytes, devices_[1].stream);
  }
  float first(int device, const float* block) {
    float value = -1;
    cudaMemcpyAsync(&value, block, sizeof value, cudaMemcpyDeviceToHost, devices_[device].stream);
    cudaStreamSynchronize(devices_[device].stream);
    return value;
  }

  Device devices_[2];
};

#define EXPECT_REPORT(statement, words)                                          \
  do {                                                                           \
    const std::string text = report([&] { statement; });                         \
    EXPECT_NE(text.find(words), std::string::npos) << text << ", not " << words; \
  } while (false)

TEST_F(Devices, ACopyBetweenTwoInOrderOfTheirStreamsIsRight) {
  EXPECT_EQ(run(devices_[0].stream, devices_[0].x, devices_[0].y), cudaSuccess);
  follow(1, 0);
  EXPECT_EQ(copy_to_1(devices_[0].y), cudaSuccess);
  follow(0, 1);
  cudaMemsetAsync(devices_[0].y, 0, kBytes, devices_[0].stream);
  EXPECT_EQ(first(1, devices_[1].y), 10);
  EXPECT_EQ(first(0, devices_[0].y), 0);
}

TEST_F(Devices, ACopyThatMayComeTooEarlyIsReported) {
  EXPECT_EQ(run(devices_[0].stream, devices_[0].x, devices_[0].y), cudaSuccess);
  EXPECT_REPORT(copy_to_1(devices_[0].y), "may come before the end of what device 0 was given earlier");
  follow(1, 0);
  EXPECT_EQ(run(devices_[0].stream, devices_[0].x, devices_[0].y), cudaSuccess);  // after the event
  EXPECT_REPORT(copy_to_1(devices_[0].y), "may come before the end of what device 0 was given earlier");
  cudaStreamSynchronize(devices_[0].stream);  // the host may wait, too
  EXPECT_EQ(copy_to_1(devices_[0].y), cudaSuccess);
  cudaStreamSynchronize(devices_[1].stream);
}

TEST_F(Devices, WorkThatMayComeBeforeTheEndOfACopyIsReported) {
  follow(1, 0);
  EXPECT_EQ(copy_to_1(devices_[0].x), cudaSuccess);
  EXPECT_REPORT(cudaMemsetAsync(devices_[0].x, 0, kBytes, devices_[0].stream),
                "work of device 0 may come before the end of a copy by device 1");
  EXPECT_REPORT(cudaFreeAsync(devices_[0].x, devices_[0].stream), "may come before the end of a copy");
  follow(0, 1);
  EXPECT_EQ(cudaMemsetAsync(devices_[0].x, 0, kBytes, devices_[0].stream), cudaSuccess);
}

TEST_F(Devices, AKernelThatTouchesTheMemoryOfAnotherIsReported) {
  EXPECT_DEATH(run(devices_[0].stream, devices_[1].x, devices_[0].y), "AddressSanitizer: SEGV");
  EXPECT_DEATH(run(devices_[0].stream, devices_[0].x, devices_[1].y), "AddressSanitizer: SEGV");
  EXPECT_EQ(run(devices_[0].stream, devices_[0].x, devices_[0].y), cudaSuccess);
}

TEST_F(Devices, AStreamOfAnotherIsRefused) {
  EXPECT_EQ(run(devices_[1].stream, devices_[1].x, devices_[1].y), cudaErrorInvalidResourceHandle);
  EXPECT_EQ(cudaGetLastError(), cudaErrorInvalidResourceHandle);
  EXPECT_EQ(cudaEventRecord(devices_[0].event, devices_[1].stream), cudaErrorInvalidResourceHandle);
  cudaSetDevice(1);
  EXPECT_EQ(run(devices_[1].stream, devices_[1].x, devices_[1].y), cudaSuccess);
  EXPECT_EQ(first(1, devices_[1].y), 11);
}

TEST_F(Devices, MemoryOfTheWrongOneIsReported) {
  float value = 0;
  EXPECT_REPORT(cudaMemcpyAsync(&value, devices_[1].x, sizeof value, cudaMemcpyDeviceToHost, devices_[0].stream),
                "the source is memory of device 1, and the stream is of device 0");
  EXPECT_REPORT(cudaMemsetAsync(devices_[1].x, 0, kBytes, devices_[0].stream), "memory of the stream's device");
  EXPECT_REPORT(cudaFreeAsync(devices_[1].x, devices_[0].stream),
                "a block of device 1 was freed on a stream of device 0");
  EXPECT_REPORT(cudaMemcpyPeerAsync(devices_[1].y, 0, devices_[0].x, 0, kBytes, devices_[1].stream),
                "the target must be memory of device 0");
  EXPECT_REPORT(cudaMemcpyPeerAsync(devices_[1].y, 1, devices_[0].x, 0, kBytes + 1, devices_[1].stream),
                "leaves its block");
}

TEST_F(Devices, EachHasItsOwnBytes) {
  EXPECT_EQ(device_bytes(0), 2 * kBytes);
  void* more = nullptr;
  cudaMallocAsync(&more, 100, devices_[1].stream);  // of the stream's device, not of the thread's
  EXPECT_EQ(device_bytes(0), 2 * kBytes);
  EXPECT_EQ(device_bytes(1), 2 * kBytes + 100);
  cudaFreeAsync(more, devices_[1].stream);
}

TEST_F(Devices, EachThreadHasItsOwnAndStartsWithTheFirst) {
  cudaSetDevice(1);
  int other = -1, own = -1;
  std::thread([&] { cudaGetDevice(&other); }).join();
  cudaGetDevice(&own);
  EXPECT_EQ(other, 0);
  EXPECT_EQ(own, 1);
  EXPECT_EQ(cudaSetDevice(2), cudaErrorInvalidDevice);
  cudaGetDevice(&own);
  EXPECT_EQ(own, 1);
}

TEST_F(Devices, AnIllegalAddressCostsOneOfThem) {
  fail_call(1, cudaErrorIllegalAddress);
  EXPECT_EQ(cudaMemsetAsync(devices_[0].y, 0, kBytes, devices_[0].stream), cudaErrorIllegalAddress);
  EXPECT_EQ(cudaMemsetAsync(devices_[0].y, 0, kBytes, devices_[0].stream), cudaErrorIllegalAddress);
  EXPECT_EQ(cudaSetDevice(1), cudaSuccess);
  EXPECT_EQ(cudaMemsetAsync(devices_[1].y, 0, kBytes, devices_[1].stream), cudaSuccess);
  EXPECT_EQ(cudaSetDevice(0), cudaErrorIllegalAddress);
  fail_call(0);
}

}  // namespace
}  // namespace cuda_on_cpu
