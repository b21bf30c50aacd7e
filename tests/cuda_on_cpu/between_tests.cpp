// After each test the backend's cache is given back to the executor: closing the pages of what one test had used would make all
// kernels of the later ones slow.

#include <gtest/gtest.h>

#include "reel/backends/cuda/cuda_ops.h"

namespace reel {
namespace {

class BetweenTests : public testing::EmptyTestEventListener {
  void OnTestEnd(const testing::TestInfo&) override {
    int count = 0;
    cudaGetDeviceCount(&count);
    for (int i = 0; i < count; ++i) cuda::gpu(i).context().memory().release_cached();
  }
};

const bool listens = (testing::UnitTest::GetInstance()->listeners().Append(new BetweenTests), true);

}  // namespace
}  // namespace reel
