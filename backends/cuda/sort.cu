// A stable radix sort, 4 bits per pass: each block counts the digits of its tile, the counts of all blocks are summed up
// digit by digit, and each block moves its elements to where the sums say. No order depends on timing.

#include "reel/backends/cuda/sort.h"

namespace reel::cuda {

namespace device {
namespace {

inline constexpr int kDigits = 16, kBits = 4, kPerThread = 4, kSortTile = kThreads * kPerThread;

REEL_DEVICE uint32_t digit_of(uint32_t key, int shift) { return (key >> shift) & (kDigits - 1); }

/// counts [kDigits, threads]: how often each digit occurs among this thread's elements [begin, end).
REEL_DEVICE void count_own(const uint32_t* keys, int64_t begin, int64_t end, int shift, uint32_t* counts) {
  for (int d = 0; d < kDigits; ++d) counts[d * kThreads + threadIdx.x] = 0;
  for (int64_t i = begin; i < end; ++i) ++counts[digit_of(keys[i], shift) * kThreads + threadIdx.x];
}

/// values [count] to the sums of what stands before each, by one warp; returns the sum of all.
REEL_DEVICE uint32_t scan_by_warp(uint32_t* values, int count) {
  const int lane = threadIdx.x % kWarp, each = (count + kWarp - 1) / kWarp;
  const int begin = smaller(lane * each, count), end = smaller(begin + each, count);
  uint32_t own = 0;
  for (int i = begin; i < end; ++i) own += values[i];
  uint32_t before = own;  // with this lane's, at first
  for (int step = 1; step < kWarp; step *= 2) {
    const uint32_t theirs = __shfl_sync(kAllLanes, before, lane >= step ? lane - step : lane);
    if (lane >= step) before += theirs;
  }
  const uint32_t total = __shfl_sync(kAllLanes, before, kWarp - 1);
  before -= own;
  for (int i = begin; i < end; ++i) {
    const uint32_t value = values[i];
    values[i] = before;
    before += value;
  }
  return total;
}

__global__ void number(uint32_t* order, int64_t n) {
  for (int64_t i = first_unit(); i < n; i += unit_step()) order[i] = static_cast<uint32_t>(i);
}

/// totals [kDigits, blocks]; a block counts one tile.
__global__ void count_digits(const uint32_t* keys, int64_t n, int shift, uint32_t* totals) {
  REEL_DYNAMIC_SHARED(uint32_t, counts);
  const int64_t begin = static_cast<int64_t>(blockIdx.x) * kSortTile + threadIdx.x * kPerThread;
  count_own(keys, begin, smaller(begin + kPerThread, n), shift, counts);
  __syncthreads();
  for (int d = threadIdx.x / kWarp; d < kDigits; d += kThreads / kWarp) {
    const uint32_t total = scan_by_warp(counts + d * kThreads, kThreads);
    if (threadIdx.x % kWarp == 0) totals[static_cast<int64_t>(d) * gridDim.x + blockIdx.x] = total;
  }
}

/// totals [count] to the sums of what stands before each, by one warp.
__global__ void scan_totals(uint32_t* totals, int count) { scan_by_warp(totals, count); }

/// A block moves one tile.
__global__ void move(const uint32_t* keys, const uint32_t* order, uint32_t* to_keys, uint32_t* to_order, int64_t n,
                     int shift, const uint32_t* starts) {
  REEL_DYNAMIC_SHARED(uint32_t, counts);
  const int64_t begin = static_cast<int64_t>(blockIdx.x) * kSortTile + threadIdx.x * kPerThread;
  const int64_t end = smaller(begin + kPerThread, n);
  count_own(keys, begin, end, shift, counts);
  __syncthreads();
  for (int d = threadIdx.x / kWarp; d < kDigits; d += kThreads / kWarp) scan_by_warp(counts + d * kThreads, kThreads);
  __syncthreads();
  for (int64_t i = begin; i < end; ++i) {
    const uint32_t d = digit_of(keys[i], shift);
    const uint32_t to = starts[static_cast<int64_t>(d) * gridDim.x + blockIdx.x] + counts[d * kThreads + threadIdx.x]++;
    to_keys[to] = keys[i];
    to_order[to] = order[i];
  }
}

}  // namespace
}  // namespace device

SortMemory::SortMemory(const Context& context, int64_t n)
    : n_(n),
      memory_(context.memory(),
              sizeof(uint32_t) * static_cast<std::size_t>(4 * n + device::kDigits * ceil_div(n, device::kSortTile))) {}

SortedKeys sort_keys(const Context& context, const SortMemory& memory, int64_t n, int bits) {
  launch(context, "sort", grid_for(context, n), &device::number, memory.order(0), n);
  const int64_t tiles = ceil_div(n, device::kSortTile);
  const Grid grid{.blocks = tiles, .shared_bytes = sizeof(uint32_t) * device::kDigits * kThreads};
  int side = 0;
  for (int shift = 0; shift < bits; shift += device::kBits, side ^= 1) {
    launch(context, "sort", grid, &device::count_digits, memory.keys(side), n, shift, memory.counts());
    launch(context, "sort", {.threads = device::kWarp}, &device::scan_totals, memory.counts(),
           static_cast<int>(device::kDigits * tiles));
    launch(context, "sort", grid, &device::move, memory.keys(side), memory.order(side), memory.keys(side ^ 1),
           memory.order(side ^ 1), n, shift, memory.counts());
  }
  return {memory.keys(side), memory.order(side)};
}

}  // namespace reel::cuda
