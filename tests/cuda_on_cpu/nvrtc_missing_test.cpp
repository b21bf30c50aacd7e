// Without NVRTC: REEL_NVRTC names a file that is not there.

#include <gtest/gtest.h>

#include "reel/backends/cuda/nvrtc.h"
#include "reel/tests/expect.h"

namespace reel::cuda {
namespace {

TEST(NvrtcMissing, IsToldWithWhatWasLookedFor) {
  EXPECT_THROW_WITH(Nvrtc::get({"user.cpp", 7}), DeviceError, "kernels in source form need", "libnvrtc",
                    "/nowhere/libnvrtc.so", "user.cpp:7");
}

}  // namespace
}  // namespace reel::cuda
