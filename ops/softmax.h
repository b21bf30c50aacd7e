#pragma once

#include "reel/core/ragged.h"
#include "reel/ops/reduction.h"

namespace reel {

/// exp(x / temperature) / sum exp(x / temperature) along `axis`, without overflow and without clipping; f32 or f64. A row
/// that is all -inf gives 0, with zero gradient; a NaN or +inf makes its row NaN. Throws DTypeError, ShapeError.
/// Backward keeps the result.
REEL_API Tensor softmax(const Tensor& x, int axis = -1, double temperature = 1,
                        SourceLocation where = SourceLocation::current());
/// log(softmax(x)), accurate where the softmax is tiny. A row that is all -inf gives -inf, with zero gradient.
REEL_API Tensor log_softmax(const Tensor& x, int axis = -1, double temperature = 1,
                            SourceLocation where = SourceLocation::current());

/// Within each sequence, down each column of values [total, ...].
REEL_API Ragged softmax(const Ragged& x, SourceLocation where = SourceLocation::current());
REEL_API Ragged log_softmax(const Ragged& x, SourceLocation where = SourceLocation::current());
/// Per row, along an axis of the values behind the first.
REEL_API Ragged softmax(const Ragged& x, int axis, double temperature = 1,
                        SourceLocation where = SourceLocation::current());
REEL_API Ragged log_softmax(const Ragged& x, int axis, double temperature = 1,
                            SourceLocation where = SourceLocation::current());

struct CrossEntropyOptions {
  Reduction reduction = Reduction::mean;  // mean: over the rows that are not ignored; NaN if there is none
  std::int64_t ignore = -100;             // rows with this target do not count
};

/// -log softmax(logits)[target] per row: logits [rows, classes] (f32 or f64), target [rows] (i32 or i64) in [0, classes).
/// One element, or [rows] with Reduction::none. Throws ShapeError, DTypeError, DeviceError, IndexError (row and value).
REEL_API Tensor cross_entropy(const Tensor& logits, const Tensor& target, CrossEntropyOptions options = {},
                              SourceLocation where = SourceLocation::current());
/// Per row of the values.
REEL_API Tensor cross_entropy(const Ragged& logits, const Tensor& target, CrossEntropyOptions options = {},
                              SourceLocation where = SourceLocation::current());

}  // namespace reel
