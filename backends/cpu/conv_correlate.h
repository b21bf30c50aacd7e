#pragma once

#include "reel/backends/cpu/conv_layout.h"

namespace reel::cpu::REEL_CPU_ISA {

/// What both the forward pass and the gradient of the input are: for each image and group,
///   y[o, position] = epilogue(bias[o] + sum over i and taps of weight[o, i, tap] x[i, position * stride + tap * dilation - padding]).
/// Every element of y is one fma chain over i, then the taps in row-major order, starting from the bias (or 0). Zeros of
/// the padding take part like any other number, so that an infinite weight meets them as NaN.
template <class T>
struct Correlation {
  int64_t images = 0, groups = 1;
  int64_t in = 0, out = 0;  // channels of one group
  ConvAxis axis[3];
  PaddingMode mode = PaddingMode::zero;

  Images<const T> x;     // [images, groups * in, input...]
  Images<const T> mask;  // like x, or none: x counts as 0 where this is <= 0

  // Element [group, o, i, k0, k1, k2] of the weight, in elements from its start.
  const T* weight = nullptr;
  int64_t weight_group = 0, weight_out = 0, weight_in = 0, weight_tap[3] = {0, 0, 0};

  const T* bias = nullptr;  // [groups * out] or null
  bool relu = false;

  // Element [image, channel, position...] of y, in elements from its start; channel counts through the groups.
  Images<T> y;
  int64_t y_channel = 0, y_step[3] = {0, 0, 0};
};

/// Computes y, in parallel over images, groups and blocks of positions.
template <class T>
void correlate(const Correlation<T>& correlation);

}  // namespace reel::cpu::REEL_CPU_ISA
