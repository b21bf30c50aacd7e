#pragma once

#include "reel/core/ragged.h"
#include "reel/ops/per_axis.h"
#include "reel/ops/write_once.h"

/// Cross-correlation over one, two or three axes, as PyTorch's convolutions: in letters for two axes,
///   y[n, o] = sum over i of x[n, i] * weight[o, i] + bias[o].
/// x [n, in, h, w], weight [out, in / groups, kh, kw], bias [out] or undefined, all f32 or f64; y [n, out, h', w'] with
/// h' = (h + 2 padding - dilation (kh - 1) - 1) / stride + 1, rounded down; the same for x [n, in, l] and [n, in, d, h, w].
/// Throw ShapeError, DTypeError, DeviceError. Gradients of any order; backward keeps x and weight, and with relu the result;
/// the weight's gradient is deterministic.
namespace reel {

/// What a convolution needs besides its tensors.
struct ConvOptions {
  PerAxis stride = 1;
  PerAxis padding = 0;  // at both ends of each axis
  PerAxis dilation = 1;
  std::int64_t groups = 1;               // divides in and out
  PaddingMode mode = PaddingMode::zero;  // of all axes
  WriteOnce::Part into = {};             // part of a buffer that the result is written to; else it gets its own memory
};

REEL_API Tensor conv1d(const Tensor& x, const Tensor& weight, const Tensor& bias = {}, const ConvOptions& options = {},
                       SourceLocation where = SourceLocation::current());
REEL_API Tensor conv2d(const Tensor& x, const Tensor& weight, const Tensor& bias = {}, const ConvOptions& options = {},
                       SourceLocation where = SourceLocation::current());
REEL_API Tensor conv3d(const Tensor& x, const Tensor& weight, const Tensor& bias = {}, const ConvOptions& options = {},
                       SourceLocation where = SourceLocation::current());

/// max(conv(...), 0) in one kernel. NaN passes.
REEL_API Tensor conv1d_relu(const Tensor& x, const Tensor& weight, const Tensor& bias = {},
                            const ConvOptions& options = {}, SourceLocation where = SourceLocation::current());
REEL_API Tensor conv2d_relu(const Tensor& x, const Tensor& weight, const Tensor& bias = {},
                            const ConvOptions& options = {}, SourceLocation where = SourceLocation::current());
REEL_API Tensor conv3d_relu(const Tensor& x, const Tensor& weight, const Tensor& bias = {},
                            const ConvOptions& options = {}, SourceLocation where = SourceLocation::current());

/// Over the rows of each sequence for itself, padded at both its ends as by pad(), in any mode: values [total, in] give
/// [total', out], as if each sequence were transposed to [1, in, length] and back. A sequence has (length + 2 padding -
/// dilation (k - 1)) / stride results, rounded up, or none if that is negative; with stride 1, k odd and padding =
/// dilation (k - 1) / 2 as many as rows. The result has its own memory: no `into`.
REEL_API Ragged conv1d(const Ragged& x, const Tensor& weight, const Tensor& bias = {}, const ConvOptions& options = {},
                       SourceLocation where = SourceLocation::current());
REEL_API Ragged conv1d_relu(const Ragged& x, const Tensor& weight, const Tensor& bias = {},
                            const ConvOptions& options = {}, SourceLocation where = SourceLocation::current());

}  // namespace reel
