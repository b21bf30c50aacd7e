#pragma once

#include "reel/backends/cuda/kernel.h"

namespace reel::cuda {

/// Keys [n] and the positions from which they came, sorted by key; equal keys in order of position.
struct SortedKeys {
  const uint32_t* keys;
  const uint32_t* order;
};

/// Memory for sort_keys.
class SortMemory {
 public:
  SortMemory(const Context& context, int64_t n);
  uint32_t* keys(int side) const { return memory_.as<uint32_t>() + side * n_; }
  uint32_t* order(int side) const { return memory_.as<uint32_t>() + (2 + side) * n_; }
  uint32_t* counts() const { return memory_.as<uint32_t>() + 4 * n_; }

 private:
  int64_t n_;
  Workspace memory_;
};

/// Sorts memory.keys(0) [n], of which only the lowest `bits` bits count; n < 2^32. memory.order(0) is written here.
SortedKeys sort_keys(const Context& context, const SortMemory& memory, int64_t n, int bits);

}  // namespace reel::cuda
