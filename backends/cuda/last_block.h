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

/// Blocks that each hold a piece of a row and need what all of them found. A block waits for the others a while, for they run
/// at the same time; if they do not, it leaves its piece to the one that comes last, which waits for none: whatever the order
/// in which blocks run, they come to an end, with the same bits.
struct Meeting {
  static constexpr int kPolls = 4096;  // some milliseconds
  enum : unsigned { waiting, left, met };

  unsigned* of_piece;  // [rows, pieces], `waiting` at first; null: no meeting

  /// Whether this block is to go on with its piece: then it sees what the row's other blocks have written before. For each of
  /// the last one's threads, `inherits`: whether the piece of the thread's number was left to this block. All threads must call
  /// it.
  REEL_DEVICE bool attend(int64_t row, int64_t pieces, bool& inherits) const {
    unsigned* const of_row = of_piece + row * pieces;
    const int64_t own = blockIdx.x - row * pieces, p = threadIdx.x;
    if (is_last_of(row, pieces)) {
      inherits = p < pieces && p != own && atomicCAS(of_row + p, unsigned{waiting}, unsigned{met}) == left;
      return true;
    }
    inherits = false;
    bool goes_on = false;
    if (threadIdx.x == 0) {
      const volatile unsigned* const word = of_row + own;
      for (int poll = 0; poll < kPolls && *word != met; ++poll) {
      }
      goes_on = atomicCAS(of_row + own, unsigned{waiting}, unsigned{left}) == met;
    }
    goes_on = __syncthreads_or(goes_on);
    __threadfence();
    return goes_on;
  }
};

}  // namespace
}  // namespace device

}  // namespace reel::cuda
