#pragma once

#include "reel/core/ragged.h"
#include "reel/ops/axes.h"

/// Reductions over some or all axes. x [..., f32 or f64]; all but mean take integers too. The result has x's shape
/// without the reduced axes, or with size 1 there (Keep::yes). An axis out of range or named twice throws ShapeError;
/// a tensor without axes counts as a vector of one. Results have memory of their own. Gradients of any order; backward
/// keeps nothing for sum and mean, x for prod, the winners' places for max and min over one axis, and else x and the
/// result.
///
/// A Ragged (mean: f32 or f64) without axes: one row per sequence, values [total, ...] give [n, ...]; with axes, which
/// lie behind the values' first: per row. sum, mean, max and min of a Ragged stand in ragged.h.
namespace reel {

/// 0 of nothing. bool8 and u8 are summed as i64, i32 too.
REEL_API Tensor sum(const Tensor& x, const Axes& axes = {}, Keep keep = Keep::no,
                    SourceLocation where = SourceLocation::current());
/// NaN of nothing. Throws DTypeError unless x is f32 or f64.
REEL_API Tensor mean(const Tensor& x, const Axes& axes = {}, Keep keep = Keep::no,
                     SourceLocation where = SourceLocation::current());
/// NaN if there is one; -inf of nothing. Over one axis the gradient goes to the first maximum; over several or all it
/// is split evenly among the maxima.
REEL_API Tensor max(const Tensor& x, const Axes& axes = {}, Keep keep = Keep::no,
                    SourceLocation where = SourceLocation::current());
/// The same for the smallest; +inf of nothing.
REEL_API Tensor min(const Tensor& x, const Axes& axes = {}, Keep keep = Keep::no,
                    SourceLocation where = SourceLocation::current());
/// 1 of nothing. Integers as sum. The gradient is the product of all other elements, so zeros are like other numbers.
REEL_API Tensor prod(const Tensor& x, const Axes& axes = {}, Keep keep = Keep::no,
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
/// Over all axes: the place in the order of rows, [], i64. Throws ShapeError if x is empty.
REEL_API Tensor argmax(const Tensor& x, SourceLocation where = SourceLocation::current());
REEL_API Tensor argmin(const Tensor& x, SourceLocation where = SourceLocation::current());

/// What won, and where: its index along the axis, i64.
struct Winners {
  Tensor y;
  Tensor which;
};
/// max or min over one axis with the index of the first winner; the gradient goes there. Throws ShapeError for an empty
/// axis.
REEL_API Winners max_which(const Tensor& x, int axis, Keep keep = Keep::no,
                           SourceLocation where = SourceLocation::current());
REEL_API Winners min_which(const Tensor& x, int axis, Keep keep = Keep::no,
                           SourceLocation where = SourceLocation::current());

/// The same for a Ragged, per row.
struct RaggedWinners {
  Ragged y, which;
};

/// Per sequence: 1 of none (integers and bool8 as i64), and -inf, +inf (an integer's least and greatest) for amax and
/// amin; argmax and argmin count from the sequence's first row, -1 if there is none.
REEL_API Tensor prod(const Ragged& x, SourceLocation where = SourceLocation::current());
REEL_API Tensor amax(const Ragged& x, SourceLocation where = SourceLocation::current());
REEL_API Tensor amin(const Ragged& x, SourceLocation where = SourceLocation::current());
REEL_API Tensor argmax(const Ragged& x, SourceLocation where = SourceLocation::current());
REEL_API Tensor argmin(const Ragged& x, SourceLocation where = SourceLocation::current());
REEL_API Winners max_which(const Ragged& x, SourceLocation where = SourceLocation::current());
REEL_API Winners min_which(const Ragged& x, SourceLocation where = SourceLocation::current());
/// Per row.
REEL_API Ragged prod(const Ragged& x, const Axes& axes, Keep keep = Keep::no,
                     SourceLocation where = SourceLocation::current());
REEL_API Ragged amax(const Ragged& x, const Axes& axes, Keep keep = Keep::no,
                     SourceLocation where = SourceLocation::current());
REEL_API Ragged amin(const Ragged& x, const Axes& axes, Keep keep = Keep::no,
                     SourceLocation where = SourceLocation::current());
REEL_API Ragged argmax(const Ragged& x, int axis, Keep keep = Keep::no,
                       SourceLocation where = SourceLocation::current());
REEL_API Ragged argmin(const Ragged& x, int axis, Keep keep = Keep::no,
                       SourceLocation where = SourceLocation::current());
REEL_API RaggedWinners max_which(const Ragged& x, int axis, Keep keep = Keep::no,
                                 SourceLocation where = SourceLocation::current());
REEL_API RaggedWinners min_which(const Ragged& x, int axis, Keep keep = Keep::no,
                                 SourceLocation where = SourceLocation::current());

namespace detail {
/// Sum over the axes whose bits are set, keeping them with size 1; recorded.
REEL_API Tensor sum_over(const Tensor& x, std::uint32_t axes);

/// sum(square(x)) or mean(square(x)), as `op` is sum_of_squares or mean_of_squares, in one pass; with the same bits where x is
/// contiguous. Recorded as `name`. x f32 or f64.
Tensor reduced_squares(const char* name, ReduceOp op, const Tensor& x, const Axes& axes, Keep keep,
                       SourceLocation where);
}  // namespace detail

}  // namespace reel
