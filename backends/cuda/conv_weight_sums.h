#pragma once

#include "reel/backends/cuda/conv_weight_tiles.h"

// The sums that a thread of conv_weight_tiles.cu keeps, and how pixels in shared memory are added to them.

namespace reel::cuda::device {

/// `count` neighbours from shared memory in accesses of up to 16 bytes; the address is one of a pack.
template <int count, class T>
REEL_DEVICE void load_neighbours(const T* address, T (&v)[count]) {
  constexpr int width = kPack<T>;
  REEL_UNROLL
  for (int k = 0; k + width <= count; k += width) {
    const auto pack = load_pack<T, width>(address + k);
    REEL_UNROLL
    for (int i = 0; i < width; ++i) v[k + i] = pack.v[i];
  }
  if constexpr (count % width != 0) {
    constexpr int rest = count % width;
    const auto pack = load_pack<T, rest>(address + count - rest);
    REEL_UNROLL
    for (int i = 0; i < rest; ++i) v[count - rest + i] = pack.v[i];
  }
}

/// A thread's sums.
template <class T, class Size>
struct WeightSums {
  T weight[Size::out][Size::in][Size::taps] = {}, bias[Size::out] = {};

  /// f(number, sum), numbers from 0 to Size::sums - 1.
  template <class F>
  REEL_DEVICE void for_each(F f) {
    REEL_UNROLL
    for (int o = 0; o < Size::out; ++o) {
      REEL_UNROLL
      for (int i = 0; i < Size::in; ++i) {
        REEL_UNROLL
        for (int tap = 0; tap < Size::taps; ++tap) f((o * Size::in + i) * Size::taps + tap, weight[o][i][tap]);
      }
    }
    REEL_UNROLL
    for (int o = 0; o < Size::out; ++o) f(Size::weights + o, bias[o]);
  }

  /// Adds four pixels side by side, with stride and dilation 1 along the row. dz, seen: of this thread's first channels.
  REEL_DEVICE void add_run(const WeightTiling& w, const T* dz, const T* seen, bool with_bias) {
    constexpr int run = WeightTiling::kRun;
    T z[Size::out][run];
    REEL_UNROLL
    for (int o = 0; o < Size::out; ++o) load_neighbours<run>(dz + o * w.out_threads * w.z_pitch, z[o]);
    REEL_UNROLL
    for (int i = 0; i < Size::in; ++i) {
      REEL_UNROLL
      for (int row = 0; row < Size::rows; ++row) {
        T v[run + Size::cols - 1];
        load_neighbours<run + Size::cols - 1>(seen + i * w.in_threads * w.x_plane + row * w.g.dilation[1] * w.x_pitch,
                                              v);
        REEL_UNROLL
        for (int k = 0; k < run; ++k) {
          REEL_UNROLL
          for (int o = 0; o < Size::out; ++o) {
            REEL_UNROLL
            for (int col = 0; col < Size::cols; ++col) {
              T& sum = weight[o][i][row * Size::cols + col];
              sum = scalar::fma(z[o][k], v[k + col], sum);
            }
          }
        }
      }
    }
    if (!with_bias) return;
    REEL_UNROLL
    for (int o = 0; o < Size::out; ++o) bias[o] += (z[o][0] + z[o][1]) + (z[o][2] + z[o][3]);
  }

  /// Adds one pixel, with any stride and dilation.
  REEL_DEVICE void add_pixel(const WeightTiling& w, const T* dz, const T* seen) {
    T z[Size::out];
    REEL_UNROLL
    for (int o = 0; o < Size::out; ++o) {
      z[o] = dz[o * w.out_threads * w.z_pitch];
      bias[o] += z[o];
    }
    REEL_UNROLL
    for (int i = 0; i < Size::in; ++i) {
      REEL_UNROLL
      for (int tap = 0; tap < Size::taps; ++tap) {
        const T v = seen[i * w.in_threads * w.x_plane + tap / Size::cols * w.g.dilation[1] * w.x_pitch +
                         tap % Size::cols * w.g.dilation[2]];
        REEL_UNROLL
        for (int o = 0; o < Size::out; ++o) weight[o][i][tap] = scalar::fma(z[o], v, weight[o][i][tap]);
      }
    }
  }
};

}  // namespace reel::cuda::device
