#pragma once

#include <vector>

#include "reel/core/ragged.h"
#include "reel/ops/axes.h"

/// Elements moved, repeated or masked, of any dtype. Copies but where "view" is said; all are recorded. Negative axes
/// count from the last; an axis out of range throws ShapeError.
namespace reel {

/// Consecutive parts of the given sizes along an axis. Views. Throws ShapeError unless the sizes are at least 0 and sum up to
/// the axis's.
REEL_API Tensors split(const Tensor& x, const std::vector<std::int64_t>& sizes, int axis = 0,
                       SourceLocation where = SourceLocation::current());

/// The order reversed along each of the axes.
REEL_API Tensor flip(const Tensor& x, const Axes& axes = {}, SourceLocation where = SourceLocation::current());

/// Element i moves to i + shift along an axis, and from the end back to the beginning; a negative shift goes the other way.
REEL_API Tensor roll(const Tensor& x, std::int64_t shift, int axis, SourceLocation where = SourceLocation::current());

/// x laid side by side repeats[i] times along axis i; the shorter of x's shape and `repeats` gets leading ones, as in numpy.
/// Throws ShapeError for a negative number.
REEL_API Tensor tile(const Tensor& x, const Shape& repeats, SourceLocation where = SourceLocation::current());

/// Each element along an axis `repeats` times in a row. Throws ShapeError for a negative number.
REEL_API Tensor repeat_interleave(const Tensor& x, std::int64_t repeats, int axis,
                                  SourceLocation where = SourceLocation::current());

/// The matrices in the last two axes with 0 above (tril) or below (triu) a diagonal: 0 is the main one, 1 the next above it.
/// Throw ShapeError unless x has two axes.
REEL_API Tensor tril(const Tensor& x, std::int64_t diagonal = 0, SourceLocation where = SourceLocation::current());
REEL_API Tensor triu(const Tensor& x, std::int64_t diagonal = 0, SourceLocation where = SourceLocation::current());

/// 1 at each index of 0 .. classes - 1, 0 elsewhere: index [...] (i32 or i64) gives [..., classes] of `dtype`. No gradient.
/// Throws DTypeError, IndexError (position and value), ShapeError unless classes > 0.
REEL_API Tensor one_hot(const Tensor& index, std::int64_t classes, DType dtype = i64,
                        SourceLocation where = SourceLocation::current());
/// Per row.
REEL_API Ragged one_hot(const Ragged& index, std::int64_t classes, DType dtype = i64,
                        SourceLocation where = SourceLocation::current());

}  // namespace reel
