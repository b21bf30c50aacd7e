// The main function of the tests that need a GPU.

#include <gtest/gtest.h>

#include <cstdio>

#include "reel/core/error.h"
#include "reel/core/ops.h"

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  try {
    reel::backend(reel::Device::cuda());
  } catch (const reel::DeviceError& error) {
    std::printf("skipped: %s\n", error.what());
    return 77;  // CTest counts it as skipped
  }
  return RUN_ALL_TESTS();
}
