#pragma once

#include "reel/backends/cuda/kernel.h"
#include "reel/core/scalar/arithmetic.h"

namespace reel::cuda {

/// A Conv in numbers of the size in which a GPU computes addresses.
struct Geometry {
  int batch, in, out, groups;  // channels of all groups
  int input[3], kernel[3], output[3], stride[3], dilation[3], padding[3];
  PaddingMode mode;
  // Elements from image to image: arrays of images may lie in larger ones.
  int64_t x_image, y_image, mask_image;

  /// x and y: the images on either side, or their gradients.
  Geometry(const Conv& conv, const Array& x, const Array& y, const Array* relu_output);
  __host__ __device__ int in_group() const { return in / groups; }
  __host__ __device__ int out_group() const { return out / groups; }
  __host__ __device__ int taps() const { return kernel[0] * kernel[1] * kernel[2]; }
  __host__ __device__ int inputs() const { return input[0] * input[1] * input[2]; }
  __host__ __device__ int outputs() const { return output[0] * output[1] * output[2]; }
};

namespace device {

/// Position number `flat` along three axes.
struct Position {
  int at[3];
  REEL_DEVICE Position(int flat, const int (&sizes)[3]) {
    at[2] = flat % sizes[2];
    at[1] = flat / sizes[2] % sizes[1];
    at[0] = flat / sizes[2] / sizes[1];
  }
  /// The one behind it, without a division.
  REEL_DEVICE void next(const int (&sizes)[3]) {
    if (++at[2] < sizes[2]) return;
    at[2] = 0;
    if (++at[1] < sizes[1]) return;
    at[1] = 0;
    ++at[0];
  }
};

/// The element that stands for coordinate `i` along an axis of `n`: itself, its mirror image, an edge, or none (-1: zero
/// padding).
REEL_DEVICE int element_at(int i, int n, PaddingMode mode) {
  if (i >= 0 && i < n) return i;
  if (mode == PaddingMode::zero) return -1;
  if (mode == PaddingMode::replicate) return i < 0 ? 0 : n - 1;
  const int edge = mode == PaddingMode::symmetric ? 1 : 0;  // whether it is in the image
  return i < 0 ? -edge - i : 2 * n - 2 + edge - i;
}

/// How far something leads from a channel's first element: along three axes, and in memory. Numbers below 0 wrap around.
using Reach = Pack<uint32_t, 4>;

/// along(a): along axis a of `input`.
template <class Along>
REEL_DEVICE Reach reach_of(const int (&input)[3], Along along) {
  Reach reach{};
  REEL_UNROLL
  for (int a = 0; a < 3; ++a) {
    reach.v[a] = static_cast<uint32_t>(along(a));
    reach.v[3] = reach.v[3] * static_cast<uint32_t>(input[a]) + reach.v[a];
  }
  return reach;
}
/// The first element that an output position meets, and how far from there the one is that an element of the kernel meets.
template <class G>
REEL_DEVICE Reach reach_of_output(const G& g, const Position& output) {
  return reach_of(g.input, [&](int a) { return output.at[a] * g.stride[a] - g.padding[a]; });
}
template <class G>
REEL_DEVICE Reach reach_of_tap(const G& g, const Position& tap) {
  return reach_of(g.input, [&](int a) { return tap.at[a] * g.dilation[a]; });
}
/// Whether both together lead to an element of `input`, which is number a.v[3] + b.v[3] of the channel.
REEL_DEVICE bool is_inside(const int (&input)[3], const Reach& a, const Reach& b) {
  bool inside = true;
  REEL_UNROLL
  for (int axis = 0; axis < 3; ++axis) inside = inside && a.v[axis] + b.v[axis] < static_cast<uint32_t>(input[axis]);
  return inside;
}

/// Where the input element lies in its channel to which an output position and a tap lead; -1: in the zeros around it.
REEL_DEVICE int input_of(const Geometry& g, const Reach& position, const Reach& tap) {
  int offset = 0;
  for (int a = 0; a < 3; ++a) {
    const int i = element_at(static_cast<int>(position.v[a] + tap.v[a]), g.input[a], g.mode);
    if (i < 0) return -1;
    offset = offset * g.input[a] + i;
  }
  return offset;
}

/// Element i of an image's dz = dy, or dy where relu's output y is positive or NaN.
template <class T>
REEL_DEVICE T masked(const Geometry& g, const T* dy, const T* relu_output, int64_t image, int64_t i) {
  if (relu_output != nullptr && relu_output[image * g.mask_image + i] <= T(0)) return T(0);
  return dy[image * g.y_image + i];
}

}  // namespace device

}  // namespace reel::cuda
