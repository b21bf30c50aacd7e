// The places of a mask that are set: each block counts those of its tile, the counts are summed up, and each block writes
// where the sums say.

#include "reel/backends/cuda/group.h"
#include "reel/backends/cuda/scan.h"

namespace reel::cuda {

namespace device {
namespace {

inline constexpr int kBytes = 16, kMaskTile = kThreads * kBytes;

/// The bytes [begin, begin + kBytes) of the mask, each 0 or 1, as bits; those beyond n are 0.
REEL_DEVICE uint32_t bits_of_mask(const std::uint8_t* mask, int64_t begin, int64_t n, bool packed) {
  uint32_t bits = 0;
  if (packed && begin + kBytes <= n) {
    const Pack<std::uint8_t> pack = load_pack<std::uint8_t, kBytes>(mask + begin);
    REEL_UNROLL
    for (int k = 0; k < kBytes; ++k) bits |= static_cast<uint32_t>(pack.v[k] != 0) << k;
  } else {
    for (int k = 0; k < kBytes && begin + k < n; ++k) bits |= static_cast<uint32_t>(mask[begin + k] != 0) << k;
  }
  return bits;
}

/// A block takes a tile, a thread 16 bytes. Without `index` the tile's hits go to starts[tile], else starts[tile] is where the
/// first of them goes.
__global__ void nonzero(const std::uint8_t* mask, int64_t n, bool packed, int64_t* starts, int64_t* index) {
  REEL_DYNAMIC_SHARED(int, scratch);
  const int64_t begin = static_cast<int64_t>(blockIdx.x) * kMaskTile + threadIdx.x * kBytes;
  const uint32_t bits = bits_of_mask(mask, begin, n, packed);
  int hits = 0, all = 0;
  REEL_UNROLL
  for (int k = 0; k < kBytes; ++k) hits += static_cast<int>(bits >> k & 1);
  const int before = Lanes{1}.before(hits, scratch, 0, all, [](int a, int b) { return a + b; });
  if (index == nullptr) {
    if (threadIdx.x == 0) starts[blockIdx.x] = all;
    return;
  }
  int64_t* to = index + starts[blockIdx.x] + before;
  for (int k = 0; k < kBytes; ++k)
    if ((bits >> k & 1) != 0) *to++ = begin + k;
}

}  // namespace
}  // namespace device

std::int64_t CudaOps::nonzero(const Array& mask, const Array& index) {
  const int64_t n = mask.size, tiles = ceil_div(n, device::kMaskTile);
  if (n == 0) return 0;
  const Workspace starts(context_.memory(), sizeof(int64_t) * static_cast<std::size_t>(tiles + 1));
  const Grid grid{.blocks = tiles, .shared_bytes = kThreads * sizeof(int)};
  const auto* set = mask.as<std::uint8_t>();
  const bool packed = is_aligned(set, 1, device::kBytes);
  context_.use();
  check(cudaMemsetAsync(starts.as<int64_t>() + tiles, 0, sizeof(int64_t), context_.stream()), "cudaMemsetAsync");
  launch(context_, "nonzero", grid, &device::nonzero, set, n, packed, starts.as<int64_t>(),
         static_cast<int64_t*>(nullptr));
  exclusive_sums(context_, starts.as<int64_t>(), tiles + 1);
  launch(context_, "nonzero", grid, &device::nonzero, set, n, packed, starts.as<int64_t>(), index.as<int64_t>());
  int64_t count = 0;
  context_.to_host(starts.as<int64_t>() + tiles, &count, sizeof count);
  return count;
}

}  // namespace reel::cuda
