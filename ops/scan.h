#pragma once

#include "reel/core/ragged.h"

/// Running sums and products along an axis of x [.., n, ..], or of a number as of a vector of one; the result has x's
/// shape. f32 (added and multiplied in f64 and rounded once per element), f64, and integers as i64. In the order of the
/// axis, whatever the number of threads. A Ragged without an axis, or with axis 0: within each sequence, down each
/// column of its values; with an axis behind that: per row. Gradients of any order, by scans in the other direction:
/// nothing is divided by, so zeros in a product are like other numbers. A state that is NaN stays NaN to the end of its
/// line; one beyond f64's range is infinite, and NaN behind a factor of 0. (CUDA joins runs of elements first: where
/// what one comes to leaves f64's range, inf, 0 or NaN may stand in the place of another number.) An element of f32
/// may be infinite and those behind it not. Throw DTypeError, DeviceError, and ShapeError.
namespace reel {

struct ScanOptions {
  bool reverse = false;    // from the end of the axis
  bool exclusive = false;  // y[i] without x[i]: the first is 0 for sums and 1 for products
};

/// y[i] = x[0] + ... + x[i]
REEL_API Tensor cumsum(const Tensor& x, int axis, ScanOptions options = {},
                       SourceLocation where = SourceLocation::current());
/// y[i] = x[0] ... x[i]
REEL_API Tensor cumprod(const Tensor& x, int axis, ScanOptions options = {},
                        SourceLocation where = SourceLocation::current());
/// y[i] = x[i] + factor[i] y[i - 1], a linear recurrence from y[-1] = 0; factor has x's shape; f32 or f64. Exclusive:
/// y[i] is the y[i - 1] of that.
REEL_API Tensor linear_scan(const Tensor& x, const Tensor& factor, int axis, ScanOptions options = {},
                            SourceLocation where = SourceLocation::current());

REEL_API Ragged cumsum(const Ragged& x, ScanOptions options = {}, SourceLocation where = SourceLocation::current());
REEL_API Ragged cumsum(const Ragged& x, int axis, ScanOptions options = {},
                       SourceLocation where = SourceLocation::current());
REEL_API Ragged cumprod(const Ragged& x, ScanOptions options = {}, SourceLocation where = SourceLocation::current());
REEL_API Ragged cumprod(const Ragged& x, int axis, ScanOptions options = {},
                        SourceLocation where = SourceLocation::current());
/// Both with the same lengths, along the sequences.
REEL_API Ragged linear_scan(const Ragged& x, const Ragged& factor, ScanOptions options = {},
                            SourceLocation where = SourceLocation::current());

namespace detail {
/// The gradient of the product along an axis, of which dy has one, and of each sequence, for that of the result: f32, unrecorded.
Tensor prod_gradient(const Tensor& x, const Tensor& dy, int axis);
Tensor prod_gradient(const Ragged& x, const Tensor& dy);
}  // namespace detail

}  // namespace reel
