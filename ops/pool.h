#pragma once

#include "reel/core/tensors.h"
#include "reel/ops/per_axis.h"

/// Pooling over windows that slide over the last one, two or three axes, as PyTorch's: x [n, channels, sizes...] (f32 or f64)
/// gives y [n, channels, sizes'...], each size' = (size + 2 padding - dilation (kernel - 1) - 1) / stride + 1, rounded down, or
/// up with `ceil`, but without windows that would begin behind the input and its padding. Throw DTypeError; ShapeError if the
/// kernel does not fit or the padding is more than half of it.
namespace reel {

struct MaxPoolOptions {
  PerAxis kernel = 2;
  PerAxis stride = {};  // the kernel
  PerAxis padding = 0;  // at both ends of each axis; never wins
  PerAxis dilation = 1;
  bool ceil = false;
};

struct AvgPoolOptions {
  PerAxis kernel = 2;
  PerAxis stride = {};  // the kernel
  PerAxis padding = 0;  // at both ends of each axis, of zeros
  bool ceil = false;
  bool count_padding = true;  // divide by the window's size, else by the number of elements of x in it
};

/// The largest element of each window; a NaN wins. The gradient goes to the first of equals; backward keeps where that was.
/// The second derivative is that of a choice. Also throws ShapeError if a window sees nothing but padding.
REEL_API Tensor max_pool1d(const Tensor& x, const MaxPoolOptions& options = {},
                           SourceLocation where = SourceLocation::current());
REEL_API Tensor max_pool2d(const Tensor& x, const MaxPoolOptions& options = {},
                           SourceLocation where = SourceLocation::current());
REEL_API Tensor max_pool3d(const Tensor& x, const MaxPoolOptions& options = {},
                           SourceLocation where = SourceLocation::current());

/// Maxima, and where in their plane (sizes... as one axis) they were, i64.
struct MaxPooled {
  Tensor values, which;
};
REEL_API MaxPooled max_pool1d_which(const Tensor& x, const MaxPoolOptions& options = {},
                                    SourceLocation where = SourceLocation::current());
REEL_API MaxPooled max_pool2d_which(const Tensor& x, const MaxPoolOptions& options = {},
                                    SourceLocation where = SourceLocation::current());
REEL_API MaxPooled max_pool3d_which(const Tensor& x, const MaxPoolOptions& options = {},
                                    SourceLocation where = SourceLocation::current());

/// The average of each window; what of it lies beyond the padding is not counted. Gradients of any order; backward keeps
/// nothing.
REEL_API Tensor avg_pool1d(const Tensor& x, const AvgPoolOptions& options = {},
                           SourceLocation where = SourceLocation::current());
REEL_API Tensor avg_pool2d(const Tensor& x, const AvgPoolOptions& options = {},
                           SourceLocation where = SourceLocation::current());
REEL_API Tensor avg_pool3d(const Tensor& x, const AvgPoolOptions& options = {},
                           SourceLocation where = SourceLocation::current());

}  // namespace reel
