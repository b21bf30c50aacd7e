#pragma once

// Private to ops/: what convolutions and transposed convolutions are made of.

#include "reel/ops/windows.h"

namespace reel::detail {

// A correlation is linear in x and in the weight, and so are its two adjoints: each one's gradients are the others. With
// these three, recorded, any order of derivative is there. `shape` is that of the result.

Tensor correlate(const Conv& conv, const Tensor& x, const Tensor& weight, const Shape& shape);
/// The adjoint in x, from dy; recorded under the name `op`.
Tensor correlate_input(const Conv& conv, const Tensor& dy, const Tensor& weight, const Shape& shape,
                       const char* op = "conv_input_gradient", SourceLocation where = {});
/// The adjoint in the weight.
Tensor correlate_weight(const Conv& conv, const Tensor& x, const Tensor& dy, const Shape& shape);

/// x, or a contiguous copy unless it is contiguous behind axis 0; unrecorded, for kernels.
Tensor packed_images(const Tensor& x);

/// DTypeError, DeviceError, ShapeError unless x are images with `axes` axes, weight has as many behind its two of channels,
/// which errors write as `channels`.
void check_correlation(const char* op, int axes, const Tensor& x, const Tensor& weight, const char* channels,
                       SourceLocation where);
/// ShapeError unless `groups` divide the channels and weight [out, in / groups, ...] has as many as x.
void check_groups(const char* op, const Tensor& x, const Tensor& weight, std::int64_t in, std::int64_t groups,
                  SourceLocation where);
/// The same unless bias is undefined or [out].
void check_bias(const char* op, const Tensor& bias, const Tensor& x, std::int64_t out, SourceLocation where);
/// The kernel's sizes as a weight has them.
PerAxis kernel_of(const Tensor& weight);

}  // namespace reel::detail
