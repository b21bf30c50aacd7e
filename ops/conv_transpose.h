#pragma once

#include "reel/core/tensors.h"
#include "reel/ops/per_axis.h"

/// Transposed convolution, as PyTorch's: the adjoint in x of the convolution with the same options, which spreads each element
/// of x over a window of y. In letters for two axes: x [n, in, h, w], weight [in, out / groups, kh, kw], bias [out] or
/// undefined, all f32 or f64; y [n, out, h', w'] with
/// h' = (h - 1) stride - 2 padding + dilation (kh - 1) + output_padding + 1; the same for x [n, in, l] and [n, in, d, h, w].
/// Throw ShapeError, DTypeError, DeviceError. Gradients of any order; backward keeps x and weight.
namespace reel {

/// What a transposed convolution needs besides its tensors.
struct ConvTransposeOptions {
  PerAxis stride = 1;
  PerAxis padding = 0;  // is cut off at both ends of each axis of y
  PerAxis output_padding =
      0;  // is added at the far end, for sizes that strides cannot tell apart: below stride or dilation
  PerAxis dilation = 1;
  std::int64_t groups = 1;  // divides in and out
};

REEL_API Tensor conv_transpose1d(const Tensor& x, const Tensor& weight, const Tensor& bias = {},
                                 const ConvTransposeOptions& options = {},
                                 SourceLocation where = SourceLocation::current());
REEL_API Tensor conv_transpose2d(const Tensor& x, const Tensor& weight, const Tensor& bias = {},
                                 const ConvTransposeOptions& options = {},
                                 SourceLocation where = SourceLocation::current());
REEL_API Tensor conv_transpose3d(const Tensor& x, const Tensor& weight, const Tensor& bias = {},
                                 const ConvTransposeOptions& options = {},
                                 SourceLocation where = SourceLocation::current());

}  // namespace reel
