#pragma once

// Tests with two devices. On the executor the program says that there are two before anybody asks.

#include <gtest/gtest.h>

#include "reel/core/error.h"
#include "reel/core/ops.h"

#if !defined(REEL_ON_GPU)
#include "reel/tests/cuda_on_cpu/executor.h"
#endif

namespace reel::test {

inline constexpr Device kFirst = Device::cuda(0), kSecond = Device::cuda(1);

/// Skipped where there is one GPU.
template <class Test>
class WithTwoDevices : public Test {
 protected:
  void SetUp() override {
    Test::SetUp();
#if defined(REEL_ON_GPU)
    try {
      backend(kSecond);
    } catch (const DeviceError& error) {
      GTEST_SKIP() << error.what();
    }
#endif
  }
};
using OnTwoDevices = WithTwoDevices<testing::Test>;

#if !defined(REEL_ON_GPU)
inline const bool two_devices = (cuda_on_cpu::set_device_count(2), true);
#endif

}  // namespace reel::test
