#pragma once

#include "reel/core/ragged.h"

/// Ops that know the order of rows within sequences. Empty sequences and empty batches are legal.
namespace reel {

/// Each row with its `window` neighbours on both sides, from the first to the last, zeros beyond the sequence's ends (Thinc's
/// seq2col): values [total, width] give [total, (2 window + 1) width]. Any dtype; gradients of any order for f32 and f64.
/// Throws ShapeError for values of another rank or a negative window. Backward keeps nothing.
REEL_API Ragged seq2col(const Ragged& x, std::int64_t window, SourceLocation where = SourceLocation::current());

/// The first or last row of each sequence, 0 for an empty one: values [total, ...] give [n, ...]. Any dtype; gradients of any
/// order for f32 and f64.
REEL_API Tensor reduce_first(const Ragged& x, SourceLocation where = SourceLocation::current());
REEL_API Tensor reduce_last(const Ragged& x, SourceLocation where = SourceLocation::current());

/// The rows of each sequence from the last to the first. Any dtype; gradients of any order for f32 and f64.
REEL_API Ragged reverse(const Ragged& x, SourceLocation where = SourceLocation::current());

/// Each row's place in its sequence, from 0 on: i64 values [total] on x's device.
REEL_API Ragged positions(const Ragged& x, SourceLocation where = SourceLocation::current());

/// Sines and cosines of positions 0, 1, ..., length - 1 (Vaswani et al., 2017): y [length, width] with
/// y[p, 2 i] = sin(p / base^(2 i / width)) and y[p, 2 i + 1] = cos of the same; computed in f64. f32 or f64 by options, a
/// constant. Throws DTypeError, ShapeError for negative sizes, Error unless base > 0.
REEL_API Tensor position_encoding(std::int64_t length, std::int64_t width, TensorOptions options = {},
                                  double base = 10000, SourceLocation where = SourceLocation::current());
/// What can be added to x's rows: like x's values [total, width], with positions that begin at 0 in each sequence.
REEL_API Ragged position_encoding(const Ragged& x, double base = 10000,
                                  SourceLocation where = SourceLocation::current());

namespace detail {
/// i64 [count] on `device`, which fill(numbers) writes.
template <class F>
Tensor numbers_on(Device device, std::int64_t count, F&& fill) {
  const Tensor numbers = empty({count}, {.dtype = i64});
  fill(numbers.array().template as<std::int64_t>());
  return transferred(numbers, device);
}

/// y[i] = x[order[i]] for a permutation `order` of the rows of x [n, ...] and its inverse, both i64 [n] on x's device.
/// Recorded.
Tensor permuted_rows(const Tensor& x, const Tensor& order, const Tensor& inverse);
}  // namespace detail

}  // namespace reel
