// Correlations with any kernel, stride and dilation along three axes, as a product: terms (channel, kernel's element) pass
// through shared memory a few at a time, x's elements being gathered for a run of positions. A thread makes 8 channels of
// kPixels positions a warp apart. Each result is one chain of fma over the terms in order. The gradient of the input of a
// strided one is a correlation for each phase of its positions: those of one remainder modulo the stride meet the same
// elements of the kernel.

#include <limits>
#include <numeric>

#include "reel/backends/cuda/conv_tiled.h"

namespace reel::cuda {

namespace device {
namespace {

inline constexpr int kOuts = 8, kPixels = 4, kWarps = 4, kTerms = 16;
inline constexpr int kGatherThreads = kWarps * kWarp;
inline constexpr uint32_t kNowhere = 1u << 31;  // outside of any axis

/// Each of the block's warps makes kOuts channels of kPixels * kWarp positions; `warps_out` of them lie side by side over the
/// channels.
template <int warps_out>
struct Gather {
  static constexpr int channels = kOuts * warps_out, positions = kPixels * kWarp * kWarps / warps_out;
  static constexpr int weight_pitch = channels + 4;  // threads that store different terms: in different banks
  static constexpr int shared = kTerms * (positions + weight_pitch + 4);
};

/// Positions and elements of the kernel that meet, numbered from 0 along each axis; every `spread`-th of y's and every
/// tap_step-th of the kernel's, from a first one on.
struct Phases {
  static constexpr int kMost = 8;  // along an axis
  struct Axis {
    int first_tap, kernel, output, padding;
  };
  int count[3], tap_step[3], dilation[3];
  Axis axis[3][kMost];
};

/// One of them.
struct Phase {
  int first[3], first_tap[3];
  int input[3], kernel[3], output[3], stride[3], dilation[3], padding[3];

  REEL_DEVICE Phase(const Correlation& g, const Phases& phases, int number) {
    REEL_UNROLL
    for (int a = 2; a >= 0; --a) {
      first[a] = number % phases.count[a];
      number /= phases.count[a];
      const Phases::Axis& axis = phases.axis[a][first[a]];
      first_tap[a] = axis.first_tap;
      input[a] = g.input[a];
      kernel[a] = axis.kernel;
      output[a] = axis.output;
      stride[a] = g.stride[a];
      dilation[a] = phases.dilation[a];
      padding[a] = axis.padding;
    }
  }
  REEL_DEVICE int taps() const { return kernel[0] * kernel[1] * kernel[2]; }
  REEL_DEVICE int outputs() const { return output[0] * output[1] * output[2]; }
};

/// blockIdx.x: positions of all images one after the other, blockIdx.y: channels, blockIdx.z: phase.
template <int warps_out>
__global__ void __launch_bounds__(kGatherThreads, 4)
    conv_gathered(const __grid_constant__ Correlation g, const __grid_constant__ Phases phases, const float* x,
                  const float* mask, const float* weight, const float* bias, bool relu, float* y) {
  using S = Gather<warps_out>;
  REEL_DYNAMIC_SHARED(float, values);                                                  // [kTerms, positions]
  float* const weights = values + kTerms * S::positions;                               // [kTerms, weight_pitch]
  auto* const list = reinterpret_cast<uint32_t*>(weights + kTerms * S::weight_pitch);  // [kTerms, 4]
  const Phase phase(g, phases, blockIdx.z);
  const int plane = g.inputs(), outputs = phase.outputs(), total = g.batch * outputs;
  const int begin = blockIdx.x * S::positions, first = blockIdx.y * S::channels, outs = g.out - first;
  if (begin >= total) return;  // phases differ in size
  const int lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp;
  const int out = warp % warps_out * kOuts, position = warp / warps_out * kPixels * kWarp + lane;
  const int taps = phase.taps(), terms = g.in * taps;

  float sum[kOuts][kPixels];
  REEL_UNROLL
  for (int o = 0; o < kOuts; ++o) {
    const float start = bias != nullptr && out + o < outs ? bias[first + out + o] : 0.0f;
    REEL_UNROLL
    for (int p = 0; p < kPixels; ++p) sum[o][p] = start;
  }

  // Which elements of x the next terms are of, seen from a position's first: how far along each axis, and in memory.
  const auto list_terms = [&](int done) {
    const int k = threadIdx.x;
    if (k >= kTerms || done >= terms) return;
    const int channel = (done + k) / taps - done / taps;
    const Position tap((done + k) % taps, phase.kernel);
    Reach term = reach_of_tap(phase, tap);
    term.v[3] += static_cast<uint32_t>(channel * plane);
    if (done + k >= terms) term.v[0] = kNowhere;
    store_pack(list + 4 * k, term);
  };
  list_terms(0);

  // A thread gathers all terms of some positions.
  constexpr int runs = S::positions / kGatherThreads;
  static_assert(runs >= 1);
  REEL_ROLLED
  for (int done = 0; done < terms; done += kTerms) {
    const int count = smaller(kTerms, terms - done);
    const int64_t first_channel = static_cast<int64_t>(done / taps) * plane;
    __syncthreads();  // all are done with the terms before
    REEL_ROLLED
    for (int r = 0; r < runs; ++r) {
      const int at = threadIdx.x + r * kGatherThreads;
      const bool exists = begin + at < total;
      const int image = exists ? (begin + at) / outputs : 0;
      const Position output(exists ? begin + at - image * outputs : 0, phase.output);
      const float* const from = x + image * g.x_image + first_channel;
      const int64_t gates = image * g.mask_image + first_channel;
      const Reach own = reach_of_output(phase, output);
      REEL_UNROLL
      for (int half = 0; half < kTerms; half += kTerms / 2) {  // as many loads at once
        float value[kTerms / 2], gate[kTerms / 2];
        REEL_UNROLL
        for (int k = 0; k < kTerms / 2; ++k) {
          const Reach term = load_pack<uint32_t, 4>(list + 4 * (half + k));
          const bool inside = exists && is_inside(phase.input, own, term);
          const auto offset = static_cast<int>(own.v[3] + term.v[3]);
          value[k] = inside ? from[offset] : 0.0f;
          gate[k] = mask != nullptr && inside ? mask[gates + offset] : 1.0f;
        }
        REEL_UNROLL
        for (int k = 0; k < kTerms / 2; ++k) values[(half + k) * S::positions + at] = gate[k] <= 0.0f ? 0.0f : value[k];
      }
    }
    // A thread's weights are all of one term.
    const int own = threadIdx.x % kTerms, channel = (done + own) / taps;
    const Position own_tap((done + own) % taps, phase.kernel);
    int tap = 0;
    REEL_UNROLL
    for (int a = 0; a < 3; ++a) tap = tap * g.kernel[a] + phase.first_tap[a] + own_tap.at[a] * phases.tap_step[a];
    const float* const of = weight + channel * g.weight_in + (g.backwards ? g.taps() - 1 - tap : tap);
    for (int o = threadIdx.x / kTerms; o < S::channels; o += kGatherThreads / kTerms)
      weights[own * S::weight_pitch + o] = own < count && o < outs ? of[(first + o) * g.weight_out] : 0.0f;
    __syncthreads();
    list_terms(done + kTerms);
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

  REEL_UNROLL
  for (int p = 0; p < kPixels; ++p) {
    const int at = begin + position + p * kWarp;
    if (at >= total) continue;
    const int image = at / outputs;
    const Position place(at - image * outputs, phase.output);
    int offset = 0;
    REEL_UNROLL
    for (int a = 0; a < 3; ++a) offset = offset * g.output[a] + phase.first[a] + place.at[a] * g.spread[a];
    float* const to = y + image * g.y_image + static_cast<int64_t>(first + out) * g.outputs() + offset;
    REEL_UNROLL
    for (int o = 0; o < kOuts; ++o)
      if (out + o < outs) to[static_cast<int64_t>(o) * g.outputs()] = relu && sum[o][p] <= 0.0f ? 0.0f : sum[o][p];
  }
}

}  // namespace
}  // namespace device

namespace {

/// Every tap_step-th element of the kernel meets an element of x rather than the zeros between those.
device::Phases phases_of(const Correlation& g) {
  device::Phases phases;
  for (int a = 0; a < 3; ++a) {
    const int spread = g.spread[a], common = std::gcd(spread, g.dilation[a]), step = spread / common;
    phases.tap_step[a] = step;
    phases.dilation[a] = g.dilation[a] / common;
    phases.count[a] = spread < g.output[a] ? spread : g.output[a];
    for (int first = 0; first < phases.count[a]; ++first) {
      int tap = 0;
      const auto reach = [&] { return first + tap * g.dilation[a] - g.padding[a]; };
      while (tap < step && tap < g.kernel[a] && reach() % spread != 0) ++tap;
      const bool meets = tap < step && tap < g.kernel[a];
      phases.axis[a][first] = {.first_tap = tap,
                               .kernel = meets ? (g.kernel[a] - tap + step - 1) / step : 0,
                               .output = (g.output[a] - first + spread - 1) / spread,
                               .padding = meets ? -reach() / spread : 0};
    }
  }
  return phases;
}

}  // namespace

bool conv_gathered(const Context& context, const Correlation& g, const float* x, const float* mask, const float* weight,
                   const float* bias, bool relu, float* y) {
  constexpr int kMost = std::numeric_limits<int>::max();
  for (const int spread : g.spread)
    if (spread > device::Phases::kMost) return false;
  // Few channels fill no thread: forward, the direct kernel has the fewest instructions for them.
  if ((g.out <= 4 && !g.backwards) || g.out > kMostBlocksAcross) return false;
  if (int64_t{g.in} * g.taps() > kMost - device::kTerms || g.inputs() > kMost / device::kTerms) return false;
  const device::Phases phases = phases_of(g);
  // The first phase is the largest.
  const int64_t total =
      int64_t{g.batch} * phases.axis[0][0].output * phases.axis[1][0].output * phases.axis[2][0].output;
  if (total > kMost - device::kGatherThreads * device::kPixels) return false;
  const auto run = [&]<int warps_out>() {
    using S = device::Gather<warps_out>;
    launch(context, "conv",
           {.blocks = ceil_div(total, S::positions),
            .y = ceil_div(g.out, S::channels),
            .z = phases.count[0] * phases.count[1] * phases.count[2],
            .threads = device::kGatherThreads,
            .shared_bytes = sizeof(float) * S::shared},
           &device::conv_gathered<warps_out>, g, phases, x, mask, weight, bias, relu, y);
    return true;
  };
  if (g.out <= 8) return run.template operator()<1>();
  if (g.out <= 16) return run.template operator()<2>();
  return run.template operator()<4>();
}

}  // namespace reel::cuda
