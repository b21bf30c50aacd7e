#pragma once

#include "reel/core/tensor.h"
#include "reel/ops/axes.h"

/// Reductions over some or all axes. x [..., f32 or f64]; sum, max and min take integers too. The result has x's shape
/// without the reduced axes, or with size 1 there (Keep::yes). An axis out of range or named twice throws ShapeError.
namespace reel {

/// 0 of nothing. bool8 and u8 are summed as i64, i32 too.
REEL_API Tensor sum(const Tensor& x, const Axes& axes = {}, Keep keep = Keep::no,
                    SourceLocation where = SourceLocation::current());
/// NaN of nothing. Throws DTypeError unless x is f32 or f64.
REEL_API Tensor mean(const Tensor& x, const Axes& axes = {}, Keep keep = Keep::no,
                     SourceLocation where = SourceLocation::current());
/// NaN if there is one; -inf of nothing. Over one axis the gradient goes to the first maximum; over several or all it is
/// split evenly among the maxima.
REEL_API Tensor max(const Tensor& x, const Axes& axes = {}, Keep keep = Keep::no,
                    SourceLocation where = SourceLocation::current());
/// The same for the smallest; +inf of nothing.
REEL_API Tensor min(const Tensor& x, const Axes& axes = {}, Keep keep = Keep::no,
                    SourceLocation where = SourceLocation::current());
/// Over any axes, the gradient split evenly among the maxima.
REEL_API Tensor amax(const Tensor& x, const Axes& axes = {}, Keep keep = Keep::no,
                     SourceLocation where = SourceLocation::current());
REEL_API Tensor amin(const Tensor& x, const Axes& axes = {}, Keep keep = Keep::no,
                     SourceLocation where = SourceLocation::current());
/// Index of the first maximum along an axis, i64; a NaN counts as the largest. Throws ShapeError for an empty axis.
REEL_API Tensor argmax(const Tensor& x, int axis, Keep keep = Keep::no,
                       SourceLocation where = SourceLocation::current());
REEL_API Tensor argmin(const Tensor& x, int axis, Keep keep = Keep::no,
                       SourceLocation where = SourceLocation::current());

namespace detail {
/// Sum over the axes whose bits are set, keeping them with size 1; recorded.
REEL_API Tensor sum_over(const Tensor& x, std::uint32_t axes);
}  // namespace detail

}  // namespace reel
