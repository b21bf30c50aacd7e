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

/// Runs `program` with its first call failing, then with its second, and so on until none fails. Each failure must be a
/// DeviceError that names the GPU, and leave as much memory live on `devices` and the host as there was; after it the program
/// must give the same again. What the errors said, in order.
template <class Program>
std::vector<std::string> fail_each_call(Program program, const std::vector<Device>& devices) {
  const double expected = program();
  const std::vector<std::int64_t> before = live(devices);
  const std::int64_t on_host = memory_stats().live_bytes;
  std::vector<std::string> told;
  while (told.size() < 1000) {
    cuda_on_cpu::fail_call(static_cast<std::int64_t>(told.size()) + 1);
    std::string error;
    try {
      program();
    } catch (const DeviceError& thrown) {
      error = thrown.what();
      EXPECT_THAT(error, testing::ContainsRegex("(^|: )cuda:[0-9]+: ")) << "failure " << told.size();
    }
    const bool failed = cuda_on_cpu::call_failed();
    cuda_on_cpu::fail_call(0);
    EXPECT_EQ(!error.empty(), failed) << "failure " << told.size();
    EXPECT_EQ(live(devices), before) << "after failure " << told.size();
    EXPECT_EQ(memory_stats().live_bytes, on_host) << "after failure " << told.size();
    if (!failed) return told;
    told.push_back(error);
    EXPECT_EQ(program(), expected) << "after failure " << told.size();
    live(devices);
  }
  ADD_FAILURE() << "there is no end of failures";
  return told;
}

}  // namespace reel::test
