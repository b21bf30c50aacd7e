#pragma once

#include "reel/backends/cpu/kernel.h"
#include "reel/backends/cpu/simd.h"
#include "reel/core/ops.h"

/// Where a convolution keeps its input while it works on it. The outputs are cut into blocks; the input that one block
/// needs is copied ("packed") with its padding, so that the kernels know neither borders nor strides: output o takes tap k
/// from position base(k) + o, along each axis, always.
namespace reel::cpu::REEL_CPU_ISA {

/// Images, contiguous each, `step` elements apart.
template <class T>
struct Images {
  T* data = nullptr;
  int64_t step = 0;

  /// Those from `first` on.
  REEL_INLINE Images from(int64_t first) const { return {data ? data + first * step : data, step}; }
};

/// None of a null array.
template <class T>
REEL_INLINE Images<T> images_of(const Array* array) {
  return array == nullptr ? Images<T>{} : Images<T>{static_cast<T*>(array->data), array->strides[0]};
}

/// One axis of a correlation: output o takes input o * stride + k * dilation - padding for k = 0 .. kernel - 1.
/// The padding may be negative, and the outputs may reach beyond the input on either side: what is not there is 0.
struct ConvAxis {
  int64_t input = 1, output = 1, kernel = 1, stride = 1, dilation = 1, padding = 0;
};

/// The positions along one axis for `count` consecutive outputs: `runs` runs of `length` positions each, and from one
/// position of a run to the next the input moves on by the stride. Either there is a run for each remainder of the input's
/// index divided by the stride, which taps share, or, where it is shorter (large dilation, few outputs), a run per tap.
struct AxisLayout {
  int64_t count = 1, runs = 1, length = 1;
  int64_t run_step = 1;  // input elements between the first positions of two runs
  bool run_per_tap = false;

  REEL_INLINE int64_t positions() const { return runs * length; }
  REEL_INLINE int64_t run_of(const ConvAxis& axis, int64_t k) const {
    return run_per_tap ? k : k * axis.dilation % axis.stride;
  }
  /// Tap k's position within its run for the first output.
  REEL_INLINE int64_t shift_of(const ConvAxis& axis, int64_t k) const {
    return run_per_tap ? 0 : k * axis.dilation / axis.stride;
  }
};

REEL_INLINE AxisLayout axis_layout(const ConvAxis& axis, int64_t count) {
  AxisLayout layout;
  layout.count = count;
  const int64_t shared = count + (axis.kernel - 1) * axis.dilation / axis.stride;
  if (axis.kernel * count < axis.stride * shared) {
    layout.runs = axis.kernel;
    layout.length = count;
    layout.run_step = axis.dilation;
    layout.run_per_tap = true;
  } else {
    layout.runs = axis.stride;
    layout.length = shared;
  }
  return layout;
}

/// The input index that padding makes of index i, or -1 for a zero.
REEL_INLINE int64_t padded_index(int64_t i, int64_t size, PaddingMode mode) {
  if (i >= 0 && i < size) return i;
  if (mode == PaddingMode::zero) return -1;
  if (mode == PaddingMode::replicate) return i < 0 ? 0 : size - 1;
  const int64_t edge = mode == PaddingMode::symmetric;  // mirrored too
  i = i < 0 ? -i - edge : 2 * (size - 1) - i + edge;
  return i >= 0 && i < size ? i : -1;  // beyond the mirror image: such positions serve outputs that do not exist
}

/// How the outputs of one image are cut into blocks, and the layout of a block's packed input: [channel][run of the last
/// axis][position on axis 0][position on axis 1][position in the run], or as `interleave` says. Depends on sizes only.
struct BlockLayout {
  static constexpr int64_t kLine = 16;  // elements of a cache line, and of a vector, or more

  AxisLayout axes[3];
  int64_t blocks[3];  // along each axis
  int64_t lead;       // unused elements before each run of the last axis
  int64_t pitch;      // elements between neighbours on axis 1
  int64_t channel;    // elements between channels

  REEL_INLINE int64_t count() const { return blocks[0] * blocks[1] * blocks[2]; }
  /// Elements of a block of so many channels.
  REEL_INLINE int64_t size(int64_t channels) const {
    return max(channels * channel, axes[2].runs * axes[0].positions() * axes[1].positions() * pitch);
  }

  /// From here on [run of the last axis][position on axis 0][position on axis 1][channel][position in the run]. A loop over
  /// channels that are far apart makes the processor fetch up to some twenty such distances ahead: lines of another thread's block,
  /// which are taken from it again and again. Side by side, that is what the loop reads next. Behind the last channel there is room
  /// for a vector: what its run spills, there would overwrite the first channel, which has been packed.
  REEL_INLINE void interleave(int64_t channels) {
    channel = pitch;
    pitch = apart(channels * pitch + kLine);
  }
  /// A distance of `elements` or somewhat more: what is a power of two apart fights for the same sets of the cache.
  static REEL_INLINE int64_t apart(int64_t elements) {
    elements = ceil_div(elements, kLine) * kLine;
    return elements % (16 * kLine) == 0 ? elements + kLine : elements;
  }

  /// Position of tap (k0, k1, k2) of channel 0 for a block's first output.
  REEL_INLINE int64_t tap(const ConvAxis (&axis)[3], int64_t k0, int64_t k1, int64_t k2) const {
    const int64_t p0 = axes[0].run_of(axis[0], k0) * axes[0].length + axes[0].shift_of(axis[0], k0);
    const int64_t p1 = axes[1].run_of(axis[1], k1) * axes[1].length + axes[1].shift_of(axis[1], k1);
    const int64_t run = axes[2].run_of(axis[2], k2);
    return ((run * axes[0].positions() + p0) * axes[1].positions() + p1) * pitch + lead + axes[2].shift_of(axis[2], k2);
  }
};

/// Where each tap of each channel lies in the packed block, for the first output: offset [channels, taps].
REEL_INLINE void tap_offsets(const ConvAxis (&axis)[3], const BlockLayout& layout, int64_t channels, int64_t* offset) {
  for (int64_t c = 0; c < channels; ++c) {
    for (int64_t k0 = 0; k0 < axis[0].kernel; ++k0) {
      for (int64_t k1 = 0; k1 < axis[1].kernel; ++k1) {
        for (int64_t k2 = 0; k2 < axis[2].kernel; ++k2) {
          *offset++ = c * layout.channel + layout.tap(axis, k0, k1, k2);
        }
      }
    }
  }
}

/// A block's cost in fused multiply-adds that is worth a task of its own, about 5 us. Of two chunks two threads take 0.6 to 1.0 of
/// one's time (images of 8 x 8 and 32 x 32, forward and backward), 0.9 to 1.2 of two of one image (benchmark_grains).
inline constexpr int64_t kConvGrain = 262144;
/// Packed blocks should stay in the second-level cache, beside what is copied into them and what comes out: of half a megabyte
/// on processors without AVX-512.
inline constexpr int64_t kConvBlockBytes = (kVectorBytes == 64 ? 384 : 208) * 1024;

/// Whether the rows of a plane are worked on as one run, with the positions between them as rubbish that nobody reads: for
/// narrow images, where that makes fewer vectors.
REEL_INLINE bool runs_join(const BlockLayout& block, int64_t width) {
  const int64_t rows = block.axes[1].count, columns = block.axes[2].count;
  return 8 * ceil_div((rows - 1) * block.axes[2].length + columns, width) < 7 * rows * ceil_div(columns, width);
}

/// `cost` is that of one output position, over all output channels; `width` the elements of a vector; `most` the number of
/// elements that all channels of a block should not exceed; `narrow` the columns down to which a block rather keeps four rows.
REEL_INLINE BlockLayout block_layout(const ConvAxis (&axis)[3], int64_t channels, int64_t cost, int64_t width,
                                     int64_t most, int64_t narrow = 512) {
  int64_t counts[3] = {axis[0].output, axis[1].output, axis[2].output};
  BlockLayout block;
  const auto lay_out = [&] {
    for (int a = 0; a < 3; ++a) block.axes[a] = axis_layout(axis[a], counts[a]);
    block.lead = 0;
    block.pitch = block.axes[2].length;
    if (!runs_join(block, width) && axis[2].stride == 1) {
      // What was aligned in the input stays aligned: stores that straddle cache lines are slow.
      block.lead = axis[2].padding > 0 ? (width - axis[2].padding % width) % width : 0;
      block.pitch = ceil_div(block.lead + block.pitch, width) * width;
    }
    block.channel = block.axes[2].runs * block.axes[0].positions() * block.axes[1].positions() * block.pitch;
  };
  const auto too_large = [&] { return channels * block.channel > most; };
  const auto too_long = [&] { return counts[0] * counts[1] * counts[2] > max<int64_t>(1, kConvGrain / cost); };
  // Short blocks pack their borders again and again, so first only down to these sizes, then to what fits the cache.
  const int64_t least[4][3] = {
      {4, max<int64_t>(16, 4 * axis[1].dilation), 512}, {1, 4, 512}, {1, 4, narrow}, {1, 1, 64}};
  lay_out();
  for (int round = 0; round < 4; ++round) {
    for (int a = 0; a < 3; ++a) {
      while (counts[a] > least[round][a] && (too_large() || (round == 0 && too_long()))) {
        counts[a] = max(least[round][a], ceil_div(counts[a], 2));
        lay_out();
      }
    }
  }
  for (int a = 0; a < 3; ++a) block.blocks[a] = ceil_div(axis[a].output, counts[a]);
  block.channel = block.apart(block.channel);
  return block;
}

}  // namespace reel::cpu::REEL_CPU_ISA
