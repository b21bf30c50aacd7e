// Correlations with any kernel, stride and dilation along three axes, as a product: terms (channel, kernel's element) pass
// through shared memory a few at a time, x's elements being gathered for a run of positions. A thread makes 8 channels of
// kPixels positions a warp apart. Each result is one chain of fma over the terms in order.

#include <limits>

#include "reel/backends/cuda/conv_tiled.h"

namespace reel::cuda {

namespace device {
namespace {

inline constexpr int kOuts = 8, kPixels = 4, kWarps = 4, kTerms = 16;
inline constexpr int kGatherThreads = kWarps * kWarp;

/// Each of the block's warps makes kOuts channels of kPixels * kWarp positions; `warps_out` of them lie side by side over the
/// channels.
template <int warps_out>
struct Gather {
  static constexpr int channels = kOuts * warps_out, positions = kPixels * kWarp * kWarps / warps_out;
  static constexpr int weight_pitch = channels + 4;  // threads that store different terms: in different banks
  static constexpr int shared = kTerms * (positions + weight_pitch);
};

/// blockIdx.x: positions, blockIdx.y: channels, blockIdx.z: image.
template <int warps_out>
__global__ void __launch_bounds__(kGatherThreads, 4)
    conv_gathered(const __grid_constant__ Correlation g, const float* x, const float* mask, const float* weight,
                  const float* bias, bool relu, float* y) {
  using S = Gather<warps_out>;
  REEL_DYNAMIC_SHARED(float, values);                     // [kTerms, positions]
  float* const weights = values + kTerms * S::positions;  // [kTerms, weight_pitch]
  const int64_t image = blockIdx.z, plane = g.inputs();
  const int begin = blockIdx.x * S::positions, first = blockIdx.y * S::channels, outs = g.out - first;
  const int lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp;
  const int out = warp % warps_out * kOuts, position = warp / warps_out * kPixels * kWarp + lane;
  const int taps = g.kernel[0] * g.kernel[1] * g.kernel[2], terms = g.in * taps;
  x += image * g.x_image;
  if (mask != nullptr) mask += image * g.mask_image;

  float sum[kOuts][kPixels];
  REEL_UNROLL
  for (int o = 0; o < kOuts; ++o) {
    const float start = bias != nullptr && out + o < outs ? bias[first + out + o] : 0.0f;
    REEL_UNROLL
    for (int p = 0; p < kPixels; ++p) sum[o][p] = start;
  }

  // A thread gathers every (threads / positions)-th term of one position, or all terms of some.
  constexpr int runs = S::positions / kGatherThreads;
  static_assert(runs >= 1);
  REEL_ROLLED
  for (int done = 0; done < terms; done += kTerms) {
    const int count = smaller(kTerms, terms - done);
    __syncthreads();  // all are done with the terms before
    REEL_ROLLED
    for (int r = 0; r < runs; ++r) {
      const int at = threadIdx.x + r * kGatherThreads;
      const bool exists = begin + at < g.outputs();
      const Position output(exists ? begin + at : 0, g.output);
      int channel = done / taps;
      Position tap(done % taps, g.kernel);
      REEL_UNROLL
      for (int half = 0; half < kTerms; half += kTerms / 2) {  // as many loads at once
        float value[kTerms / 2], gate[kTerms / 2];
        REEL_UNROLL
        for (int k = 0; k < kTerms / 2; ++k) {
          const int offset = exists && half + k < count ? element_of(g, output, tap) : -1;
          value[k] = offset >= 0 ? x[channel * plane + offset] : 0.0f;
          gate[k] = mask != nullptr && offset >= 0 ? mask[channel * plane + offset] : 1.0f;
          tap.next(g.kernel);
          if (tap.at[0] < g.kernel[0]) continue;
          tap.at[0] = 0;
          ++channel;
        }
        REEL_UNROLL
        for (int k = 0; k < kTerms / 2; ++k) values[(half + k) * S::positions + at] = gate[k] <= 0.0f ? 0.0f : value[k];
      }
    }
    for (int i = threadIdx.x; i < kTerms * S::channels; i += kGatherThreads) {
      const int k = i % kTerms, o = i / kTerms, channel = (done + k) / taps, tap = (done + k) % taps;
      weights[k * S::weight_pitch + o] =
          k < count && o < outs
              ? weight[static_cast<int64_t>(first + o) * g.weight_out + static_cast<int64_t>(channel) * g.weight_in +
                       (g.backwards ? taps - 1 - tap : tap)]
              : 0.0f;
    }
    __syncthreads();
    if (out >= outs) continue;
    REEL_UNROLL
    for (int k = 0; k < kTerms; ++k) {
      float w[kOuts], v[kPixels];
      REEL_UNROLL
      for (int o = 0; o < kOuts; o += 4) {
        const Pack<float, 4> pack = load_pack<float, 4>(weights + k * S::weight_pitch + out + o);
        REEL_UNROLL
        for (int i = 0; i < 4; ++i) w[o + i] = pack.v[i];
      }
      REEL_UNROLL
      for (int p = 0; p < kPixels; ++p) v[p] = values[k * S::positions + position + p * kWarp];
      REEL_UNROLL
      for (int o = 0; o < kOuts; ++o) REEL_UNROLL
      for (int p = 0; p < kPixels; ++p) sum[o][p] = scalar::fma(v[p], w[o], sum[o][p]);
    }
  }

  y += image * g.y_image;
  REEL_UNROLL
  for (int p = 0; p < kPixels; ++p) {
    const int at = begin + position + p * kWarp;
    if (at >= g.outputs()) continue;
    REEL_UNROLL
    for (int o = 0; o < kOuts; ++o)
      if (out + o < outs)
        y[static_cast<int64_t>(first + out + o) * g.outputs() + at] = relu && sum[o][p] <= 0.0f ? 0.0f : sum[o][p];
  }
}

}  // namespace
}  // namespace device

bool conv_gathered(const Context& context, const Correlation& g, const float* x, const float* mask, const float* weight,
                   const float* bias, bool relu, float* y) {
  constexpr int kMostBlocks = 65535;  // along the grid's y and z
  const int64_t taps = int64_t{g.kernel[0]} * g.kernel[1] * g.kernel[2];
  if (g.out <= 4 || g.in * taps > std::numeric_limits<int>::max() - device::kTerms) return false;
  if (g.batch > kMostBlocks || g.out > kMostBlocks) return false;
  // Zeros between x's elements, unlike those around it, are no terms: an infinite weight is not to meet them.
  for (const int spread : g.spread)
    if (spread != 1) return false;
  const auto run = [&]<int warps_out>() {
    using S = device::Gather<warps_out>;
    launch(context, "conv",
           {.blocks = ceil_div(g.outputs(), S::positions),
            .y = ceil_div(g.out, S::channels),
            .z = g.batch,
            .threads = device::kGatherThreads,
            .shared_bytes = sizeof(float) * S::shared},
           &device::conv_gathered<warps_out>, g, x, mask, weight, bias, relu, y);
    return true;
  };
  if (g.out <= 8) return run.template operator()<1>();
  if (g.out <= 16) return run.template operator()<2>();
  return run.template operator()<4>();
}

}  // namespace reel::cuda
