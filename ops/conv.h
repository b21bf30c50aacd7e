#pragma once

#include "reel/core/ops.h"
#include "reel/core/tensors.h"

namespace reel {

/// What a 2-d convolution needs besides its tensors; height first, then width.
struct Conv2dOptions {
  std::int64_t stride[2] = {1, 1};
  std::int64_t padding[2] = {0, 0};
  std::int64_t dilation[2] = {1, 1};
  std::int64_t groups = 1;
  PaddingMode mode = PaddingMode::zero;  // symmetric: the edge pixel is repeated, -1 -> 0, -2 -> 1
};

/// y[n, o] = sum over i of x[n, i] * weight[o, i] + bias[o] (cross-correlation, as in PyTorch).
/// x [n, in, h, w], weight [out, in / groups, kh, kw], bias [out] or undefined, f32 or f64; y [n, out, h', w'] with
/// h' = (h + 2 padding - dilation (kh - 1) - 1) / stride + 1, rounded down. Throws ShapeError, DTypeError, DeviceError.
/// Backward keeps x and weight; the weight's gradient is deterministic.
REEL_API Tensor conv2d(const Tensor& x, const Tensor& weight, const Tensor& bias = {},
                       const Conv2dOptions& options = {}, SourceLocation where = SourceLocation::current());
/// max(conv2d(...), 0) in one kernel. NaN passes. Backward keeps the result too.
REEL_API Tensor conv2d_relu(const Tensor& x, const Tensor& weight, const Tensor& bias = {},
                            const Conv2dOptions& options = {}, SourceLocation where = SourceLocation::current());

}  // namespace reel
