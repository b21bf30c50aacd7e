#pragma once

// A program in which the calls of the runtime fail, one after the other.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <vector>

#include "reel/backends/cuda/cuda_ops.h"
#include "reel/core/error.h"
#include "reel/core/memory.h"
#include "reel/tests/cuda_on_cpu/executor.h"

namespace reel::test {

/// Bytes of a device's memory that tensors have; all that is cached is given back.
inline std::int64_t live(Device device) {
  cuda::Memory& memory = cuda::gpu(device.index).context().memory();
  memory.release_cached();
  EXPECT_EQ(memory.stats().live, cuda_on_cpu::device_bytes(device.index));
  return memory.stats().live;
}

inline std::vector<std::int64_t> live(const std::vector<Device>& devices) {
  std::vector<std::int64_t> bytes;
  for (const Device device : devices) bytes.push_back(live(device));
  return bytes;
}

/// Which calls fail: each of the first `each`; of those behind, leaving out `first`, every `step`-th.
struct Failing {
  int each = 1000, step = 1, first = 0;
};

/// Runs `program` with its first call failing, then with its second, and so on until none fails, of which `calls` may leave some
/// out. Each failure must be a DeviceError that names the GPU, and leave as much live on `devices` and the host as there was:
/// memory, tensors, recorded ops, pinned blocks, events, streams. After it the program must give the same again. What the errors
/// said, in order.
template <class Program>
std::vector<std::string> fail_each_call(Program program, const std::vector<Device>& devices, Failing calls = {}) {
  const auto expected = program();
  const std::vector<std::int64_t> before = live(devices);
  const std::string inventory = cuda_on_cpu::inventory().str();
  const MemoryStats on_host = memory_stats();
  std::vector<std::string> told;
  for (int n = 1; n <= 2000; n += n < calls.each ? 1 : n == calls.each ? 1 + calls.first : calls.step) {
    SCOPED_TRACE("failure of call " + std::to_string(n));
    cuda_on_cpu::fail_call(n);
    std::string error;
    try {
      program();
    } catch (const DeviceError& thrown) {
      error = thrown.what();
      EXPECT_THAT(error, testing::ContainsRegex("(^|: )cuda:[0-9]+: "));
    }
    const bool failed = cuda_on_cpu::call_failed();
    cuda_on_cpu::fail_call(0);
    EXPECT_EQ(!error.empty(), failed);
    EXPECT_EQ(live(devices), before);
    EXPECT_EQ(cuda_on_cpu::inventory().str(), inventory);
    const MemoryStats now = memory_stats();
    EXPECT_EQ(now.live_bytes, on_host.live_bytes);
    EXPECT_EQ(now.live_tensors, on_host.live_tensors);
    EXPECT_EQ(now.live_nodes, on_host.live_nodes);
    if (!failed) return told;
    told.push_back(error);
    EXPECT_TRUE(program() == expected);
    live(devices);
  }
  ADD_FAILURE() << "there is no end of failures";
  return told;
}

}  // namespace reel::test
