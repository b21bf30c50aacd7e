#pragma once

#include "reel/core/tensors.h"
#include "reel/ops/axes.h"

/// Other shapes of the same elements. Those that say "view" share x's memory; all are recorded. Negative axes count from the
/// last; an axis out of range throws ShapeError.
namespace reel {

/// x's elements in row-major order with another shape of the same size; one size may be -1, for what is left. A view if x is
/// contiguous, else a copy. Throws ShapeError if the sizes do not fit.
REEL_API Tensor reshape(const Tensor& x, const Shape& shape, SourceLocation where = SourceLocation::current());
/// Axes first .. last become one. Throws ShapeError unless first <= last.
REEL_API Tensor flatten(const Tensor& x, int first = 0, int last = -1,
                        SourceLocation where = SourceLocation::current());
/// Two axes change places. A view.
REEL_API Tensor transpose(const Tensor& x, int a = -2, int b = -1, SourceLocation where = SourceLocation::current());
/// Axis i of the result is axis order[i] of x. A view. Throws ShapeError unless `order` names each axis once.
REEL_API Tensor permute(const Tensor& x, const Shape& order, SourceLocation where = SourceLocation::current());
/// A new axis of size 1. A view.
REEL_API Tensor unsqueeze(const Tensor& x, int axis, SourceLocation where = SourceLocation::current());
/// Without an axis of size 1. A view. Throws ShapeError if its size is another.
REEL_API Tensor squeeze(const Tensor& x, int axis, SourceLocation where = SourceLocation::current());
/// Axes of size 1, and new leading axes, repeated to `shape`, in which -1 keeps the size of an axis of x. A view. Throws
/// ShapeError if it does not broadcast.
REEL_API Tensor expand(const Tensor& x, const Shape& shape, SourceLocation where = SourceLocation::current());
/// Indices begin, begin + step, ... below end along an axis; begin and end may count from the end, and are clipped as in
/// Python; step >= 1. A view.
REEL_API Tensor slice(const Tensor& x, int axis, std::int64_t begin, std::int64_t end, std::int64_t step = 1,
                      SourceLocation where = SourceLocation::current());
/// `length` indices from `begin` on. A view. Throws IndexError if they are not all there.
REEL_API Tensor narrow(const Tensor& x, int axis, std::int64_t begin, std::int64_t length,
                       SourceLocation where = SourceLocation::current());
/// Index `index` of an axis, which goes. A view. Throws IndexError.
REEL_API Tensor select(const Tensor& x, int axis, std::int64_t index, SourceLocation where = SourceLocation::current());

/// Tensors one after the other along an axis, on which alone their sizes may differ; at least one. One dtype, one device.
/// A copy. Throws ShapeError, DTypeError, DeviceError.
REEL_API Tensor concatenate(const Tensors& parts, int axis = 0, SourceLocation where = SourceLocation::current());
/// Tensors of one shape along a new axis.
REEL_API Tensor stack(const Tensors& parts, int axis = 0, SourceLocation where = SourceLocation::current());

namespace detail {
/// concatenate() for the call named `op`.
Tensor concatenated(const char* op, const Tensors& parts, int axis, SourceLocation where);
}  // namespace detail

}  // namespace reel
