#pragma once

#include "reel/backends/cuda/conv.h"

namespace reel::cuda {

/// A correlation, or the gradient of its input, which is one too: of the gradient, with the kernel backwards and the channels'
/// roles exchanged. x: what is read, y: what is made. Zero padding, one group.
struct Correlation {
  int batch, in, out;
  int input[3], kernel[3], output[3], stride[3], dilation[3], padding[3];
  int spread[3];  // x's elements lie so far apart, with zeros between them
  int64_t x_image, y_image, mask_image = 0;
  int64_t weight_in, weight_out;  // elements of the weight from channel to channel
  bool backwards = false;         // the kernel

  __host__ __device__ int inputs() const { return input[0] * input[1] * input[2]; }
  __host__ __device__ int outputs() const { return output[0] * output[1] * output[2]; }
  __host__ __device__ int taps() const { return kernel[0] * kernel[1] * kernel[2]; }
};

inline Correlation forward_of(const Geometry& g) {
  Correlation c;
  c.batch = g.batch;
  c.in = g.in;
  c.out = g.out;
  c.x_image = g.x_image;
  c.y_image = g.y_image;
  c.weight_in = g.taps();
  c.weight_out = int64_t{g.in} * g.taps();
  for (int a = 0; a < 3; ++a) {
    c.input[a] = g.input[a];
    c.kernel[a] = g.kernel[a];
    c.output[a] = g.output[a];
    c.stride[a] = g.stride[a];
    c.dilation[a] = g.dilation[a];
    c.padding[a] = g.padding[a];
    c.spread[a] = 1;
  }
  return c;
}

inline Correlation input_gradient_of(const Geometry& g) {
  Correlation c;
  c.batch = g.batch;
  c.in = g.out;
  c.out = g.in;
  c.x_image = g.y_image;
  c.y_image = g.x_image;
  c.mask_image = g.mask_image;
  c.weight_in = int64_t{g.in} * g.taps();
  c.weight_out = g.taps();
  c.backwards = true;
  for (int a = 0; a < 3; ++a) {
    c.input[a] = g.output[a];
    c.kernel[a] = g.kernel[a];
    c.output[a] = g.input[a];
    c.stride[a] = 1;
    c.dilation[a] = g.dilation[a];
    c.padding[a] = g.dilation[a] * (g.kernel[a] - 1) - g.padding[a];
    c.spread[a] = g.stride[a];
  }
  return c;
}

/// y [batch, out, outputs] = relu(bias + correlation of x), x being 0 where relu's output `mask` [as x] is not positive. mask
/// and bias may be null. False, and nothing done, where the kernel does not fit: that of conv_tiled is for 3 x 3 without
/// strides, that of conv_gathered for more than 4 channels and for gradients.
bool conv_tiled(const Context& context, const Correlation& g, const float* x, const float* mask, const float* weight,
                const float* bias, bool relu, float* y);
bool conv_gathered(const Context& context, const Correlation& g, const float* x, const float* mask, const float* weight,
                   const float* bias, bool relu, float* y);

}  // namespace reel::cuda
