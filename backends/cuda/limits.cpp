#include "reel/backends/cuda/limits.h"

#include "reel/backends/cuda/launch.h"
#include "reel/core/error.h"
#include "reel/core/running.h"

namespace reel::cuda {

void refuse_size(const char* what, std::int64_t most, const std::string& got) {
  throw ShapeError(detail::running_op() + ": " + what + " must have at most " + std::to_string(most) +
                       " elements on a GPU, got " + got,
                   SourceLocation{});
}

void refuse_grid(const char* name, const Grid& grid) {
  const auto text = [](std::int64_t x, std::int64_t y, std::int64_t z) {
    return std::to_string(x) + " x " + std::to_string(y) + " x " + std::to_string(z);
  };
  throw DeviceError(detail::running_op() + ": the tensors must be small enough for a launch of " + name + " with " +
                        text(kMostBlocks, kMostBlocksAcross, kMostBlocksAcross) + " blocks on a GPU, got " +
                        text(grid.blocks, grid.y, grid.z),
                    SourceLocation{});
}

}  // namespace reel::cuda
