#pragma once

#include "reel/backends/cuda/kernel.h"

// Results that several blocks make together: the one that comes last joins what all of them have written.

namespace reel::cuda {

namespace device {
namespace {

/// Tiles of results that blocks may share.
inline constexpr int kSharedTiles = 2048;

/// How many blocks have come to each tile; 0 between launches, of which a device runs one at a time.
__device__ unsigned arrived[kSharedTiles];

/// Whether this block is the last of `blocks` of a tile: then it sees what the others have written. All threads must call it.
/// One thread fences for all: what the block has written before the barrier comes before its fence.
REEL_DEVICE bool is_last_of(int64_t tile, int64_t blocks) {
  __syncthreads();
  bool last = false;
  if (threadIdx.x == 0) {
    __threadfence();
    last = atomicAdd(&arrived[tile], 1u) + 1 == static_cast<unsigned>(blocks);
    if (last) arrived[tile] = 0;
    if (last) __threadfence();
  }
  return __syncthreads_or(last);
}

}  // namespace
}  // namespace device

}  // namespace reel::cuda
