#pragma once

#include "reel/backends/cuda/context.h"
#include "reel/backends/cuda/status.h"

// The one way in which kernels are launched, and in which they get shared memory.

/// Inside a kernel: `name` is this block's dynamic shared memory, as much as the launch said. All shared memory is dynamic:
/// the executor of tests/cuda_on_cpu gives each block a fresh one.
#if !defined(REEL_DYNAMIC_SHARED)
#define REEL_DYNAMIC_SHARED(T, name)                               \
  extern __shared__ __align__(16) unsigned char reel_shared_raw[]; \
  T* const name = reinterpret_cast<T*>(reel_shared_raw)
#endif

namespace reel::cuda {

inline constexpr int kThreads = 256;

/// Blocks of `threads` threads. No blocks, no launch.
struct Grid {
  std::int64_t blocks = 1, y = 1, z = 1;
  int threads = kThreads;
  std::size_t shared_bytes = 0;
};

/// For kernels whose threads walk over `work` units with the grid's stride: enough blocks to fill the GPU, no more.
inline Grid grid_for(const Context& context, std::int64_t work, int threads = kThreads) {
  const std::int64_t most = std::int64_t{context.processors()} * (2048 / threads);
  const std::int64_t blocks = (work + threads - 1) / threads;
  return {.blocks = blocks < most ? blocks : most, .threads = threads};
}

inline constexpr std::int64_t kMostBlocks = 2147483647, kMostBlocksAcross = 65535;  // along x; along y and z

/// Throws DeviceError: that the op which runs needs more blocks than a grid has.
[[noreturn]] void refuse_grid(const char* name, const Grid& grid);

/// Puts a kernel on the GPU's stream; `name` is told in errors.
template <class... Parameters, class... Arguments>
void launch(const Context& context, const char* name, const Grid& grid, void (*kernel)(Parameters...),
            Arguments... arguments) {
  if (grid.blocks == 0 || grid.y == 0 || grid.z == 0) return;
  if (grid.blocks > kMostBlocks || grid.y > kMostBlocksAcross || grid.z > kMostBlocksAcross) [[unlikely]]
    refuse_grid(name, grid);
  context.use();
  cudaLaunchConfig_t config = {};
  config.gridDim =
      dim3(static_cast<unsigned>(grid.blocks), static_cast<unsigned>(grid.y), static_cast<unsigned>(grid.z));
  config.blockDim = dim3(static_cast<unsigned>(grid.threads));
  config.dynamicSmemBytes = grid.shared_bytes;
  config.stream = context.stream();
  check(cudaLaunchKernelEx(&config, kernel, static_cast<Parameters>(arguments)...), name);
}

}  // namespace reel::cuda
