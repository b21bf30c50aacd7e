#pragma once

#include <cstdint>

#include "reel/core/ragged.h"

/// Sums of rows of a table, without a copy of the rows (but for Bag::max): a Ragged of column indices and one of values
/// are a sparse matrix, row by row (CSR). table [rows, ...] is f32 or f64, index i32 or i64 in [0, rows). Each sum runs
/// over its indices in order; a table row's gradient over all that name it, in order. Gradients of any order; backward
/// keeps the indices and, with weights, weights and table. Throw DTypeError, DeviceError, ShapeError, IndexError
/// (position and value).
namespace reel {

/// The sum of k rows for each output: index [..., k] gives [..., the table's other axes]. (HashEmbed's lookup.)
REEL_API Tensor gather_add(const Tensor& table, const Tensor& index, SourceLocation where = SourceLocation::current());
/// Per row: values [total, k].
REEL_API Ragged gather_add(const Tensor& table, const Ragged& index, SourceLocation where = SourceLocation::current());

/// How the rows of a bag become one.
enum class Bag : std::uint8_t { sum, mean, max };

/// One row for each sequence of indices [total]: [n, ...] is the sum, mean or maximum of the table's rows that it
/// names. An empty bag gives 0, its maximum -inf; the maximum's gradient goes to the first winner.
REEL_API Tensor embedding_bag(const Tensor& table, const Ragged& index, Bag bag = Bag::sum,
                              SourceLocation where = SourceLocation::current());
/// The rows times their weights [total], of the table's dtype and index's lengths. Mean: divided by the number of rows,
/// not by the weights' sum. Throws Error for Bag::max.
REEL_API Tensor embedding_bag(const Tensor& table, const Ragged& index, const Ragged& weights, Bag bag = Bag::sum,
                              SourceLocation where = SourceLocation::current());

/// A sparse matrix times a dense one: row i has values[i] [its length] in the columns index[i], of which one may stand
/// more than once; dense [columns, ...] gives [n, ...].
REEL_API Tensor spmm(const Ragged& index, const Ragged& values, const Tensor& dense,
                     SourceLocation where = SourceLocation::current());

}  // namespace reel
