// The radix sort of sort.h. Lines are cut into tiles, a block each: it counts the digits of its keys, the counts of a line's
// tiles are summed up digit by digit, and each block brings its tile in order in shared memory and moves it, digit after
// digit, to where the sums say. No order depends on timing.

#include "reel/backends/cuda/scan.h"
#include "reel/backends/cuda/sort.h"

namespace reel::cuda {

namespace device {
namespace {

inline constexpr int kDigitBits = 8, kDigits = 1 << kDigitBits, kWarps = kThreads / kWarp;
static_assert(kDigits == kThreads, "a thread per digit");

/// Keys of a thread: what fits into 48 KiB of shared memory with their places.
template <class Key>
inline constexpr int kKeys = sizeof(Key) == 4 ? 16 : 8;
template <class Key>
inline constexpr int kSortTile = kKeys<Key>* kThreads;

template <class Key>
REEL_DEVICE int digit_of(Key key, int shift) {
  return static_cast<int>(key >> shift & (kDigits - 1));
}

/// starts [segments + 1]: how many tiles the lines of each segment are cut into; 0 if they are left alone.
__global__ void count_tiles(const Rows rows, int64_t segments, int64_t shortest, int64_t tile, int64_t* starts) {
  for (int64_t s = first_unit(); s <= segments; s += unit_step()) {
    const int64_t count = s < segments ? rows.count(s) : 0;
    starts[s] = count > shortest ? (count + tile - 1) / tile : 0;
  }
}

/// What a block works on: places [begin, end) of a line that starts at `base`. Its counts lie from `counts` on, `step` apart.
struct Tile {
  int64_t base = 0, begin = 0, end = 0, counts = 0, step = 1, first_count = 0;
  bool exists = false;

  REEL_DEVICE Tile(const Lines& lines, const int64_t* starts, int64_t length) {
    const int64_t unit = blockIdx.x / lines.width, column = blockIdx.x % lines.width;
    exists = unit < starts[lines.segments];
    counts = static_cast<int64_t>(blockIdx.x) * kDigits;  // of a block without a tile: behind all others
    if (!exists) return;
    const int64_t s = segment_of(unit, starts, 0, lines.segments), count = lines.rows.count(s);
    step = starts[s + 1] - starts[s];
    base = line_start(lines, s * lines.width + column);
    begin = (unit - starts[s]) * length;
    end = smaller(begin + length, count);
    first_count = (starts[s] * lines.width + column * step) * kDigits;
    counts = first_count + unit - starts[s];
  }
};

/// counts [lines, kDigits, tiles of the line].
template <class Key>
__global__ void count_digits(const Key* keys, const Lines lines, const int64_t* starts, int shift, int64_t* counts) {
  REEL_DYNAMIC_SHARED(uint32_t, own);  // [kWarps, kDigits]
  const Tile tile(lines, starts, kSortTile<Key>);
  for (int w = 0; w < kWarps; ++w) own[w * kDigits + threadIdx.x] = 0;
  __syncthreads();
  if (tile.exists)
    for (int64_t i = tile.begin + threadIdx.x; i < tile.end; i += kThreads)
      atomicAdd(&own[threadIdx.x / kWarp * kDigits + digit_of(keys[tile.base + i], shift)], 1u);
  __syncthreads();
  uint32_t sum = 0;
  for (int w = 0; w < kWarps; ++w) sum += own[w * kDigits + threadIdx.x];
  counts[tile.counts + threadIdx.x * tile.step] = sum;
}

/// The lanes of the warp that have this lane's digit.
REEL_DEVICE unsigned lanes_with(int digit) {
  unsigned same = kAllLanes;
  REEL_UNROLL
  for (int bit = 0; bit < kDigitBits; ++bit) {
    const bool set = (digit >> bit & 1) != 0;
    const unsigned vote = __ballot_sync(kAllLanes, set);
    same &= set ? vote : ~vote;
  }
  return same;
}

/// Keys and places to where `counts`, summed up, says; `places` null: they are in order still.
template <class Key>
__global__ void move_keys(const Key* keys, const uint32_t* places, const Lines lines, const int64_t* starts, int shift,
                          const int64_t* counts, Key* to_keys, uint32_t* to_places) {
  REEL_DYNAMIC_SHARED(int64_t, target);                             // [kDigits], where each digit goes
  Key* const tile_keys = reinterpret_cast<Key*>(target + kDigits);  // [tile]
  auto* const tile_places = reinterpret_cast<uint32_t*>(tile_keys + kSortTile<Key>);  // [tile]
  uint32_t* const next = tile_places + kSortTile<Key>;                                // [kWarps, kDigits]
  uint32_t* const scratch = next + kWarps * kDigits;                                  // [kThreads]
  const Tile tile(lines, starts, kSortTile<Key>);
  if (!tile.exists) return;  // the whole block
  const int digit = threadIdx.x, lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp;
  for (int w = 0; w < kWarps; ++w) next[w * kDigits + digit] = 0;
  __syncthreads();

  // A warp takes neighbouring keys, 32 at a time: how many of the same digit are before each in the warp's part. Beyond the
  // end: the largest digit, behind all keys that are there.
  Key key[kKeys<Key>];
  uint32_t rank[kKeys<Key>];
  const int64_t first = tile.begin + warp * kKeys<Key> * kWarp + lane;
  REEL_UNROLL
  for (int k = 0; k < kKeys<Key>; ++k) {
    const int64_t i = first + k * kWarp;
    key[k] = i < tile.end ? keys[tile.base + i] : static_cast<Key>(~Key(0));
    uint32_t& count = next[warp * kDigits + digit_of(key[k], shift)];
    const unsigned same = lanes_with(digit_of(key[k], shift)), before = same & ((1u << lane) - 1);
    rank[k] = count + static_cast<uint32_t>(__popc(before));
    __syncwarp();
    if (before == 0) count += static_cast<uint32_t>(__popc(same));
    __syncwarp();
  }
  __syncthreads();

  // A thread per digit: where it starts in the tile for each warp, and where in the line.
  uint32_t sum = 0, all = 0;
  for (int w = 0; w < kWarps; ++w) sum += next[w * kDigits + digit];
  uint32_t start = Lanes{1}.before(sum, scratch, 0u, all, [](uint32_t a, uint32_t b) { return a + b; });
  target[digit] = tile.base + counts[tile.counts + digit * tile.step] - counts[tile.first_count] - start;
  for (int w = 0; w < kWarps; ++w) {
    const uint32_t count = next[w * kDigits + digit];
    next[w * kDigits + digit] = start;
    start += count;
  }
  __syncthreads();

  REEL_UNROLL
  for (int k = 0; k < kKeys<Key>; ++k) {
    const int64_t i = first + k * kWarp;
    const uint32_t to = next[warp * kDigits + digit_of(key[k], shift)] + rank[k];
    tile_keys[to] = key[k];
    if (i < tile.end) tile_places[to] = places != nullptr ? places[tile.base + i] : static_cast<uint32_t>(i);
  }
  __syncthreads();
  for (int64_t i = threadIdx.x; i < tile.end - tile.begin; i += kThreads) {
    const int64_t to = target[digit_of(tile_keys[i], shift)] + i;
    to_keys[to] = tile_keys[i];
    to_places[to] = tile_places[i];
  }
}

}  // namespace
}  // namespace device

namespace {

/// The tiles of the lines of all segments, at most, for one column.
template <class Key>
int64_t most_tiles(const device::Lines& lines, int64_t rows, int64_t shortest) {
  constexpr int64_t tile = device::kSortTile<Key>;
  if (lines.rows.offsets == nullptr) return lines.segments * ceil_div(lines.rows.length, tile);
  const int64_t cut = rows / (shortest + 1);  // segments
  return rows / tile + (cut < lines.segments ? cut : lines.segments);
}

template <class Key>
std::size_t bytes_of(int64_t total, int64_t segments, int64_t tiles) {
  const int64_t integers = tiles * device::kDigits + segments + 1;
  return sizeof(int64_t) * static_cast<std::size_t>(integers) +
         2 * (sizeof(Key) + sizeof(uint32_t)) * static_cast<std::size_t>(total);
}

}  // namespace

template <class Key>
RadixSort<Key>::RadixSort(const Context& context, const device::Lines& lines, int64_t total, int64_t shortest)
    : context_(context),
      lines_(lines),
      shortest_(shortest),
      tiles_(most_tiles<Key>(lines, total / lines.width, shortest) * lines.width),
      memory_(context.memory(), bytes_of<Key>(total, lines.segments, tiles_)) {
  counts_ = memory_.as<int64_t>();
  starts_ = counts_ + tiles_ * device::kDigits;
  keys_[0] = reinterpret_cast<Key*>(starts_ + lines.segments + 1);
  keys_[1] = keys_[0] + total;
  places_[0] = reinterpret_cast<uint32_t*>(keys_[1] + total);
  places_[1] = places_[0] + total;
}

template <class Key>
void RadixSort<Key>::sort(int bits) {
  launch(context_, "sort", grid_for(context_, lines_.segments + 1), &device::count_tiles, lines_.rows, lines_.segments,
         shortest_, std::int64_t{device::kSortTile<Key>}, starts_);
  exclusive_sums(context_, starts_, lines_.segments + 1);
  const std::size_t warp_counts = sizeof(uint32_t) * device::kWarps * device::kDigits;
  const Grid counting{.blocks = tiles_, .shared_bytes = warp_counts};
  const Grid moving{.blocks = tiles_,
                    .shared_bytes = sizeof(int64_t) * device::kDigits + warp_counts + sizeof(uint32_t) * kThreads +
                                    (sizeof(Key) + sizeof(uint32_t)) * device::kSortTile<Key>};
  for (int shift = 0; shift < bits; shift += device::kDigitBits, side_ ^= 1) {
    launch(context_, "sort", counting, &device::count_digits<Key>, keys_[side_], lines_, starts_, shift, counts_);
    exclusive_sums(context_, counts_, tiles_ * device::kDigits);
    launch(context_, "sort", moving, &device::move_keys<Key>, keys_[side_], shift > 0 ? places_[side_] : nullptr,
           lines_, starts_, shift, counts_, keys_[side_ ^ 1], places_[side_ ^ 1]);
  }
}

template class RadixSort<std::uint32_t>;
template class RadixSort<std::uint64_t>;

}  // namespace reel::cuda
