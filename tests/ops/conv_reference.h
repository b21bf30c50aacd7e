#pragma once

// Convolutions from their definition: the sum over taps, for one to three axes.

#include <algorithm>

#include "reel/ops/conv.h"
#include "reel/ops/conv_transpose.h"
#include "reel/tests/ops/reference.h"

namespace reel::test {

// As if there were always three axes: the leading ones have one element.
struct Window {
  std::int64_t input[3] = {1, 1, 1}, output[3] = {1, 1, 1}, kernel[3] = {1, 1, 1};
  std::int64_t stride[3] = {1, 1, 1}, dilation[3] = {1, 1, 1}, padding[3] = {0, 0, 0};
  std::int64_t groups = 1;
  PaddingMode mode = PaddingMode::zero;
};

template <class Options>
Window window_of(const Shape& weight, const Options& options) {
  Window w;
  const int axes = weight.rank() - 2;
  for (int i = 0; i < axes; ++i) {
    const int a = 3 - axes + i;
    w.kernel[a] = weight[2 + i];
    w.stride[a] = options.stride[i];
    w.dilation[a] = options.dilation[i];
    w.padding[a] = options.padding[i];
  }
  w.groups = options.groups;
  return w;
}

// The index behind a padded one, or -1.
inline std::int64_t source(std::int64_t i, std::int64_t n, PaddingMode mode) {
  if (i >= 0 && i < n) return i;
  switch (mode) {
    case PaddingMode::zero:
      return -1;
    case PaddingMode::symmetric:
      return i < 0 ? -i - 1 : 2 * n - 1 - i;
    case PaddingMode::reflect:
      return i < 0 ? -i : 2 * n - 2 - i;
    case PaddingMode::replicate:
      break;
  }
  return i < 0 ? 0 : n - 1;
}

// Calls term(x, weight, y) with the flat indices of each product of y[n, o, ...] = sum x[n, i, ...] weight[o, i, ...].
template <class F>
void for_each_term(const Window& w, std::int64_t batch, std::int64_t out, std::int64_t in_per_group, F&& term) {
  const auto product = [](const std::int64_t(&n)[3]) { return n[0] * n[1] * n[2]; };
  const auto index = [](std::int64_t flat, const std::int64_t(&n)[3], std::int64_t(&at)[3]) {
    at[2] = flat % n[2];
    at[1] = flat / n[2] % n[1];
    at[0] = flat / n[2] / n[1];
  };
  const std::int64_t outputs = product(w.output), inputs = product(w.input), taps = product(w.kernel);
  const std::int64_t in = in_per_group * w.groups;
  for (std::int64_t y = 0; y < batch * out * outputs; ++y) {
    const std::int64_t n = y / outputs / out, o = y / outputs % out;
    std::int64_t to[3], tap[3];
    index(y % outputs, w.output, to);
    for (std::int64_t i = 0; i < in_per_group; ++i)
      for (std::int64_t k = 0; k < taps; ++k) {
        index(k, w.kernel, tap);
        std::int64_t x = n * in + o / (out / w.groups) * in_per_group + i;
        bool inside = true;
        for (int a = 0; a < 3; ++a) {
          const std::int64_t from =
              source(to[a] * w.stride[a] + tap[a] * w.dilation[a] - w.padding[a], w.input[a], w.mode);
          inside = inside && from >= 0;
          x = x * w.input[a] + from;
        }
        if (inside && inputs > 0) term(x, (o * in_per_group + i) * taps + k, y);
      }
  }
}

inline Shape with_sizes(std::int64_t n, std::int64_t channels, const std::int64_t (&sizes)[3], int axes) {
  Shape shape{n, channels};
  for (int a = 3 - axes; a < 3; ++a) shape.push_back(sizes[a]);
  return shape;
}

inline Ref convolved(const Ref& x, const Ref& weight, const Ref& bias, const ConvOptions& options, bool relu) {
  Window w = window_of(weight.shape, options);
  w.mode = options.mode;
  const int axes = weight.shape.rank() - 2;
  for (int a = 3 - axes; a < 3; ++a) {
    w.input[a] = x.shape[2 + a - (3 - axes)];
    w.output[a] = (w.input[a] + 2 * w.padding[a] - w.dilation[a] * (w.kernel[a] - 1) - 1) / w.stride[a] + 1;
  }
  Ref y = filled(with_sizes(x.shape[0], weight.shape[0], w.output, axes),
                 [&](const auto& i) { return bias.v[static_cast<std::size_t>(i[1])]; });
  for_each_term(w, x.shape[0], weight.shape[0], weight.shape[1], [&](auto i, auto k, auto o) {
    y.v[static_cast<std::size_t>(o)] += x.v[static_cast<std::size_t>(i)] * weight.v[static_cast<std::size_t>(k)];
  });
  if (relu)
    for (double& v : y.v) v = std::max(v, 0.0);
  return y;
}

// Each element of x goes to all places of y from which a convolution would have read it.
inline Ref transposed(const Ref& x, const Ref& weight, const Ref& bias, const ConvTransposeOptions& options) {
  Window w = window_of(weight.shape, options);
  const int axes = weight.shape.rank() - 2;
  const std::int64_t out = weight.shape[1] * options.groups;
  for (int a = 3 - axes; a < 3; ++a) {
    const int i = a - (3 - axes);
    w.output[a] = x.shape[2 + i];
    w.input[a] = (w.output[a] - 1) * w.stride[a] - 2 * w.padding[a] + w.dilation[a] * (w.kernel[a] - 1) +
                 options.output_padding[i] + 1;
  }
  Ref y = filled(with_sizes(x.shape[0], out, w.input, axes),
                 [&](const auto& i) { return bias.v[static_cast<std::size_t>(i[1])]; });
  for_each_term(w, x.shape[0], x.shape[1], weight.shape[1], [&](auto i, auto k, auto o) {
    y.v[static_cast<std::size_t>(i)] += x.v[static_cast<std::size_t>(o)] * weight.v[static_cast<std::size_t>(k)];
  });
  return y;
}

}  // namespace reel::test
