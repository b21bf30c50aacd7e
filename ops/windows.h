#pragma once

// Private to ops/: where windows lie that slide over the last axes of images, for convolutions and pooling.

#include "reel/ops/check.h"
#include "reel/ops/per_axis.h"

namespace reel::detail {

/// Images [n, channels, sizes...] as errors write them, for 1, 2 or 3 axes.
const char* image_form(int axes);

/// Sets kernel, stride, padding and dilation of the last `axes` of conv's three. ShapeError if one has neither one number nor
/// one per axis, or is too small.
void set_windows(Conv& conv, const char* op, int axes, const PerAxis& kernel, const PerAxis& stride,
                 const PerAxis& padding, const PerAxis& dilation, SourceLocation where);

/// From one end of a window along an axis to the other.
inline std::int64_t reach(const Conv& conv, int axis) { return conv.dilation[axis] * (conv.kernel[axis] - 1) + 1; }

/// Sets input, and output as core/ops.h has it, from images x. ShapeError if a window does not fit.
void set_sizes(Conv& conv, const char* op, int axes, const Tensor& x, SourceLocation where);

/// [first, second, sizes...] of the last `axes` axes.
Shape image_shape(std::int64_t first, std::int64_t second, const std::int64_t (&sizes)[3], int axes);

}  // namespace reel::detail
