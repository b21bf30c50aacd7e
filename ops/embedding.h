#pragma once

#include "reel/core/ragged.h"

namespace reel {

/// Rows of a table by index: table [rows, ...], index [...] (i32 or i64) in [0, rows); the result has index's shape
/// followed by the table's other axes. The table's gradient sums the rows of equal index in order; backward keeps the
/// index. A copy. Throws ShapeError, DTypeError, DeviceError, IndexError (position and value).
REEL_API Tensor embedding(const Tensor& table, const Tensor& index, SourceLocation where = SourceLocation::current());
/// Per row of index, values [total, ...].
REEL_API Ragged embedding(const Tensor& table, const Ragged& index, SourceLocation where = SourceLocation::current());

}  // namespace reel
