// Correlations with kernels of 3 x 3 and stride 1 along two axes. A block makes a tile of positions, 32 across, of some
// channels; patches of the other side and the weights pass through shared memory, a few channels at a time, the next ones
// being on their way in registers while these are computed with. A thread makes neighbouring positions of neighbouring
// channels: a number read from shared memory is used many times. Each result is one chain of fma over the channels and the
// kernel's elements in row-major order, whichever tile makes it.

#include "reel/backends/cuda/conv_tiled.h"

#include <limits>

namespace reel::cuda {

namespace device {
namespace {

inline constexpr int kAcross = 32;          // positions of a tile
inline constexpr int kPitch = kAcross + 4;  // of a patch's rows: those and one on either side, in whole packs
inline constexpr int kTaps = 9;

/// Each thread makes `pixels` positions in a row of `outs` channels; `warps_out` warps lie side by side over the channels,
/// `warps_down` over the rows. `chunk` channels pass at a time; `resident` blocks are to fit on a multiprocessor.
template <int outs_, int pixels_, int warps_out_, int warps_down_, int chunk_, int resident_>
struct Tile {
  static constexpr int outs = outs_, pixels = pixels_, warps_out = warps_out_, chunk = chunk_, resident = resident_;
  static constexpr int threads = kWarp * warps_out * warps_down_;
  static constexpr int channels = outs * warps_out, rows = pixels * warps_down_;
  static constexpr int lanes_across = kAcross / pixels;
  static constexpr int plane = (rows + 2) * kPitch, patch = chunk * plane;
  // Threads store a warp's weights as 4 taps of 8 channels: no two in one bank.
  static constexpr int terms = chunk * kTaps, weight_pitch = channels >= 16 ? channels + 8 : channels;
  static constexpr int stage = (patch + terms * weight_pitch + 3) / 4 * 4;
  static constexpr int plane_slots = (plane + threads - 1) / threads;
  static constexpr int term_step = threads / channels, weight_slots = (terms + term_step - 1) / term_step;
  static_assert(threads % (4 * channels) == 0 && patch % 4 == 0);
};

/// The patches of some channels of x after the others, on their way from global to shared memory.
template <class S>
struct PatchLoad {
  const float *x, *mask;
  bool masked;
  int plane;                   // elements of a channel
  int offset[S::plane_slots];  // there; -1: in the zeros around it
  float value[S::chunk][S::plane_slots], gate[S::chunk][S::plane_slots];

  REEL_DEVICE PatchLoad(const Correlation& g, const float* x_, const float* mask_, int row, int column)
      : x(x_), mask(mask_), masked(mask_ != nullptr), plane(g.inputs()) {
    REEL_UNROLL
    for (int s = 0; s < S::plane_slots; ++s) {
      const int i = threadIdx.x + s * S::threads, r = row + i / kPitch, c = column + i % kPitch;
      const bool inside = i < S::plane && r >= 0 && r < g.input[1] && c >= 0 && c < g.input[2];
      offset[s] = inside ? r * g.input[2] + c : -1;
    }
  }
  REEL_DEVICE void fetch(int channels) {
    REEL_UNROLL
    for (int c = 0; c < S::chunk; ++c) {
      if (c >= channels) continue;
      REEL_UNROLL
      for (int s = 0; s < S::plane_slots; ++s) {
        value[c][s] = offset[s] >= 0 ? x[offset[s]] : 0.0f;
        gate[c][s] = masked && offset[s] >= 0 ? mask[offset[s]] : 1.0f;
      }
      x += plane;
      mask += masked ? plane : 0;
    }
  }
  REEL_DEVICE void store(float* to, int channels) const {
    REEL_UNROLL
    for (int c = 0; c < S::chunk; ++c) {
      if (c >= channels) continue;
      REEL_UNROLL
      for (int s = 0; s < S::plane_slots; ++s) {
        const int i = threadIdx.x + s * S::threads;
        if (i < S::plane) to[c * S::plane + i] = gate[c][s] <= 0.0f ? 0.0f : value[c][s];
      }
    }
  }
};

/// The weights between some channels of x after the others and the block's: a thread's are all of one of the latter.
template <class S>
struct WeightLoad {
  const float* weight;
  int step;  // from channel to channel
  int term, out;
  bool exists;  // the latter
  int offset[S::weight_slots];
  float value[S::weight_slots];

  REEL_DEVICE WeightLoad(const Correlation& g, const float* weight_, int first)
      : weight(weight_),
        step(static_cast<int>(g.weight_in)),
        term(threadIdx.x % 4 + threadIdx.x / (4 * S::channels) * 4),
        out(threadIdx.x / 4 % S::channels),
        exists(first + out < g.out) {
    REEL_UNROLL
    for (int s = 0; s < S::weight_slots; ++s) {
      const int i = term + s * S::term_step, tap = i % kTaps;
      offset[s] =
          (first + out) * static_cast<int>(g.weight_out) + i / kTaps * step + (g.backwards ? kTaps - 1 - tap : tap);
    }
  }
  REEL_DEVICE void fetch(int channels) {
    const int terms = exists ? smaller<int>(S::terms, channels * kTaps) : 0;
    REEL_UNROLL
    for (int s = 0; s < S::weight_slots; ++s) value[s] = term + s * S::term_step < terms ? weight[offset[s]] : 0.0f;
    weight += static_cast<int64_t>(S::chunk) * step;
  }
  REEL_DEVICE void store(float* to) const {
    REEL_UNROLL
    for (int s = 0; s < S::weight_slots; ++s) {
      const int i = term + s * S::term_step;
      if (i < S::terms) to[i * S::weight_pitch + out] = value[s];
    }
  }
};

/// `count` neighbours from shared memory, in packs as wide as `from`, a multiple of `unit` elements, allows.
template <int count, int unit>
REEL_DEVICE void read(const float* from, float (&to)[count]) {
  constexpr int width = unit < 4 ? unit : 4;
  REEL_UNROLL
  for (int i = 0; i + width <= count; i += width) {
    const Pack<float, width> pack = load_pack<float, width>(from + i);
    REEL_UNROLL
    for (int k = 0; k < width; ++k) to[i + k] = pack.v[k];
  }
  if constexpr (count % width != 0) {
    static_assert(count % width == 2);
    const Pack<float, 2> pack = load_pack<float, 2>(from + count - 2);
    to[count - 2] = pack.v[0];
    to[count - 1] = pack.v[1];
  }
}

/// sum [outs, pixels] += one channel's terms. patch: where the thread's first position begins; weight [taps, weight_pitch].
template <class S>
REEL_DEVICE void add_channel(const float* patch, const float* weight, float (&sum)[S::outs][S::pixels]) {
  REEL_UNROLL
  for (int down = 0; down < 3; ++down) {
    float x[S::pixels + 2];
    read<S::pixels + 2, S::pixels>(patch + down * kPitch, x);
    REEL_UNROLL
    for (int across = 0; across < 3; ++across) {
      float w[S::outs];
      read<S::outs, S::outs>(weight + (down * 3 + across) * S::weight_pitch, w);
      REEL_UNROLL
      for (int o = 0; o < S::outs; ++o) REEL_UNROLL
      for (int p = 0; p < S::pixels; ++p) sum[o][p] = scalar::fma(x[across + p], w[o], sum[o][p]);
    }
  }
}

/// blockIdx.x: tile of positions, blockIdx.y: channels, blockIdx.z: image. packed: y's rows begin at whole packs.
template <class S>
__global__ void __launch_bounds__(S::threads, S::resident)
    conv_tiled(const __grid_constant__ Correlation g, const float* x, const float* mask, const float* weight,
               const float* bias, bool relu, float* y, bool packed) {
  REEL_DYNAMIC_SHARED(float, shared);
  const int tiles_across = (g.output[2] + kAcross - 1) / kAcross;
  const int64_t image = blockIdx.z;
  const int top = blockIdx.x / tiles_across * S::rows, left = blockIdx.x % tiles_across * kAcross;
  const int first = blockIdx.y * S::channels;  // of y's channels
  const int lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp;
  const int out = warp % S::warps_out * S::outs;  // of the block's channels
  const int row = warp / S::warps_out * S::pixels + lane / S::lanes_across, column = lane % S::lanes_across * S::pixels;
  const int outs = g.out - first;

  PatchLoad<S> patch(g, x + image * g.x_image, mask != nullptr ? mask + image * g.mask_image : nullptr,
                     top - g.padding[1], left - g.padding[2]);
  WeightLoad<S> weights(g, weight, first);
  const auto fetch = [&](int c) {
    patch.fetch(g.in - c);
    weights.fetch(g.in - c);
  };
  const auto store = [&](int c, float* stage) {
    patch.store(stage, g.in - c);
    weights.store(stage + S::patch);
  };

  float sum[S::outs][S::pixels];
  REEL_UNROLL
  for (int o = 0; o < S::outs; ++o) {
    const float start = bias != nullptr && out + o < outs ? bias[first + out + o] : 0.0f;
    REEL_UNROLL
    for (int p = 0; p < S::pixels; ++p) sum[o][p] = start;
  }
  float *now = shared, *next = shared + S::stage;
  if (g.in > 0) {
    fetch(0);
    store(0, now);
  }
  REEL_ROLLED
  for (int begin = 0; begin < g.in; begin += S::chunk) {
    __syncthreads();  // this chunk is there, and all are done with the one before
    const int ahead = begin + S::chunk, count = smaller<int>(S::chunk, g.in - begin);
    if (ahead < g.in) fetch(ahead);
    if (out < outs) {
      REEL_ROLLED
      for (int c = 0; c < count; ++c)
        add_channel<S>(now + c * S::plane + row * kPitch + column, now + S::patch + c * kTaps * S::weight_pitch + out,
                       sum);
    }
    if (ahead < g.in) store(ahead, next);
    float* const done = now;
    now = next;
    next = done;
  }

  if (top + row >= g.output[1]) return;
  const int room = g.output[2] - left - column;
  y += image * g.y_image + (top + row) * g.output[2] + left + column;
  REEL_UNROLL
  for (int o = 0; o < S::outs; ++o) {
    if (out + o >= outs) continue;
    float* const to = y + static_cast<int64_t>(first + out + o) * g.outputs();
    REEL_UNROLL
    for (int p = 0; p < S::pixels; ++p)
      if (relu && sum[o][p] <= 0.0f) sum[o][p] = 0.0f;
    constexpr int width = S::pixels < 4 ? S::pixels : 4;
    if (packed && room >= S::pixels) {
      REEL_UNROLL
      for (int p = 0; p < S::pixels; p += width) {
        Pack<float, width> pack;
        REEL_UNROLL
        for (int k = 0; k < width; ++k) pack.v[k] = sum[o][p + k];
        store_pack(to + p, pack);
      }
    } else {
      REEL_UNROLL
      for (int p = 0; p < S::pixels; ++p)
        if (p < room) to[p] = sum[o][p];
    }
  }
}

}  // namespace
}  // namespace device

namespace {

// Channels at a time x positions down, for images that fill the GPU; and for those that do not.
//                              outs pixels warps: channels, down; chunk resident
using Tile64x8 = device::Tile<8, 8, 8, 1, 1, 2>;
using Tile32x4 = device::Tile<8, 4, 4, 1, 2, 4>;
using Tile16x8 = device::Tile<8, 4, 2, 2, 2, 4>;
using Tile8x16 = device::Tile<8, 4, 1, 4, 2, 4>;
using Tile4x16 = device::Tile<4, 4, 1, 4, 2, 5>;
using Tile1x16 = device::Tile<1, 4, 1, 4, 2, 6>;
using Tile16x2 = device::Tile<4, 2, 4, 1, 4, 5>;
using Tile1x8 = device::Tile<1, 2, 1, 4, 4, 6>;

}  // namespace

bool conv_tiled(const Context& context, const Correlation& g, const float* x, const float* mask, const float* weight,
                const float* bias, bool relu, float* y) {
  const bool flat = g.input[0] == 1 && g.kernel[0] == 1 && g.output[0] == 1 && g.padding[0] == 0;
  if (!flat || int64_t{g.in} * g.out * device::kTaps > std::numeric_limits<int>::max()) return false;
  if (g.batch > kMostBlocksAcross || g.out > kMostBlocksAcross) return false;
  for (int a = 1; a < 3; ++a)
    if (g.kernel[a] != 3 || g.stride[a] != 1 || g.dilation[a] != 1 || g.spread[a] != 1) return false;

  const auto grid_of = [&]<class S>() {
    return Grid{.blocks = ceil_div(g.output[1], S::rows) * ceil_div(g.output[2], device::kAcross),
                .y = ceil_div(g.out, S::channels),
                .z = g.batch,
                .threads = S::threads,
                .shared_bytes = sizeof(float) * 2 * S::stage};
  };
  // Whether there is a block for more than half of the multiprocessors.
  const auto fills = [&]<class S>() {
    const Grid grid = grid_of.template operator()<S>();
    return 2 * grid.blocks * grid.y * grid.z > context.processors();
  };
  const auto run = [&]<class S>() {
    const bool packed = in_packs<float>({y}, {g.output[2], g.y_image});
    launch(context, "conv", grid_of.template operator()<S>(), &device::conv_tiled<S>, g, x, mask, weight, bias, relu, y,
           packed);
    return true;
  };
  const auto run_if_filled = [&]<class Large, class Small>() {
    return fills.template operator()<Large>() ? run.template operator()<Large>() : run.template operator()<Small>();
  };
  // One channel of many takes as long as their patches are on their way: more of them at a time.
  if (g.out == 1 && g.in > Tile1x16::chunk) return run.template operator()<Tile1x8>();
  if (g.out == 1) return run_if_filled.template operator()<Tile1x16, Tile1x8>();
  if (g.out <= 4) return run_if_filled.template operator()<Tile4x16, Tile16x2>();
  if (g.out <= 8) return run_if_filled.template operator()<Tile8x16, Tile16x2>();
  if (g.out <= 16) return run_if_filled.template operator()<Tile16x8, Tile16x2>();
  if (g.out > 32 && fills.template operator()<Tile64x8>()) return run.template operator()<Tile64x8>();
  return run_if_filled.template operator()<Tile32x4, Tile16x2>();
}

}  // namespace reel::cuda
