#pragma once

#include <vector>

#include "reel/core/ragged.h"
#include "reel/ops/axes.h"

/// Other shapes of the rows of a Ragged: the ops of views.h and rearrange.h as they are called on the values [total, ...],
/// whose axis 0, the rows, stays where it is. Axes count as those of the values, from the front or the last; a shape begins with
/// the rows, written as -1 or their number. What would move rows between sequences throws ShapeError; else each op does, throws
/// and records what it does on a tensor, for sequences without rows and empty batches too.
namespace reel {

/// reshape(x, {-1, 4, 16}): each row gets the shape [4, 16]. One more size may be -1, for what is left of a row.
REEL_API Ragged reshape(const Ragged& x, const Shape& shape, SourceLocation where = SourceLocation::current());
REEL_API Ragged flatten(const Ragged& x, int first = 1, int last = -1,
                        SourceLocation where = SourceLocation::current());
REEL_API Ragged transpose(const Ragged& x, int a = -2, int b = -1, SourceLocation where = SourceLocation::current());
/// `order` begins with 0.
REEL_API Ragged permute(const Ragged& x, const Shape& order, SourceLocation where = SourceLocation::current());
REEL_API Ragged unsqueeze(const Ragged& x, int axis, SourceLocation where = SourceLocation::current());
REEL_API Ragged squeeze(const Ragged& x, int axis, SourceLocation where = SourceLocation::current());
/// As many axes as the values; -1 keeps a size.
REEL_API Ragged expand(const Ragged& x, const Shape& shape, SourceLocation where = SourceLocation::current());
/// Of each row; rows themselves are cut by slice(x, begin, end).
REEL_API Ragged slice(const Ragged& x, int axis, std::int64_t begin, std::int64_t end, std::int64_t step = 1,
                      SourceLocation where = SourceLocation::current());
REEL_API Ragged narrow(const Ragged& x, int axis, std::int64_t begin, std::int64_t length,
                       SourceLocation where = SourceLocation::current());
REEL_API Ragged select(const Ragged& x, int axis, std::int64_t index, SourceLocation where = SourceLocation::current());
REEL_API std::vector<Ragged> split(const Ragged& x, const std::vector<std::int64_t>& sizes, int axis = 1,
                                   SourceLocation where = SourceLocation::current());
/// All with the same lengths. Throws ShapeError also if there is none.
REEL_API Ragged stack(const std::vector<Ragged>& parts, int axis = 1, SourceLocation where = SourceLocation::current());
REEL_API Ragged tril(const Ragged& x, std::int64_t diagonal = 0, SourceLocation where = SourceLocation::current());
REEL_API Ragged triu(const Ragged& x, std::int64_t diagonal = 0, SourceLocation where = SourceLocation::current());

/// Axis 0 stands for the rows of each sequence by itself: flip turns them round, roll moves them in a circle, tile lays a
/// sequence behind itself, repeat_interleave repeats each of its rows. tile takes no more repeats than the values have axes.
REEL_API Ragged flip(const Ragged& x, const Axes& axes, SourceLocation where = SourceLocation::current());
REEL_API Ragged roll(const Ragged& x, std::int64_t shift, int axis, SourceLocation where = SourceLocation::current());
REEL_API Ragged tile(const Ragged& x, const Shape& repeats, SourceLocation where = SourceLocation::current());
REEL_API Ragged repeat_interleave(const Ragged& x, std::int64_t repeats, int axis,
                                  SourceLocation where = SourceLocation::current());

/// Sequences begin .. end - 1 of the batch; both may count from its end, and are clipped as in Python. A view of their rows.
/// (take() takes any sequences, slice(x, begin, end) rows of each.)
REEL_API Ragged slice_batch(const Ragged& x, std::int64_t begin, std::int64_t end,
                            SourceLocation where = SourceLocation::current());

}  // namespace reel
