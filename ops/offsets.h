#pragma once

// Private to ops/: what ops on Ragged check, and how kernels see their values.

#include <limits>
#include <string>

#include "reel/core/error.h"
#include "reel/core/given_numbers.h"
#include "reel/core/ragged.h"
#include "reel/ops/axes.h"
#include "reel/ops/check.h"

namespace reel::check {

/// ShapeError unless both have the same lengths.
inline void same_lengths(const char* op, const Ragged& a, const Ragged& b, SourceLocation where) {
  if (!(a.offsets() == b.offsets()))
    throw ShapeError(std::string(op) + ": Ragged operands must have the same lengths, got " +
                         std::to_string(a.count()) + " sequences of " + std::to_string(a.total()) + " rows and " +
                         std::to_string(b.count()) + " of " + std::to_string(b.total()),
                     where);
}

/// The axis from the front; ShapeError unless it lies behind axis 0, that of the rows. `more`: of so many axes more.
inline int row_axis(const char* op, const Ragged& x, int axis, SourceLocation where, int more = 0) {
  defined(op, "x", x.values(), where);
  axis = check::axis(op, axis, x.values().rank() + more, where);
  if (axis == 0) throw ShapeError(std::string(op) + ": an axis of a Ragged must lie behind the rows' axis 0", where);
  return axis;
}

/// ShapeError if axis 0, that of the rows, is among the axes.
inline void row_axes(const char* op, const Ragged& x, const Axes& axes, SourceLocation where) {
  defined(op, "x", x.values(), where);
  if ((axes.mask(op, x.values().rank(), where) & 1) != 0)
    throw ShapeError(
        std::string(op) + ": axes of a Ragged must lie behind the rows' axis 0; without axes it acts per sequence",
        where);
}

}  // namespace reel::check

namespace reel::detail {

/// x, or a contiguous copy, seen as [rows, width]; unrecorded.
inline Tensor as_rows(const Tensor& x) {
  std::int64_t width = 1;
  for (int i = 1; i < x.rank(); ++i) width *= x.shape()[i];
  return reshaped(packed(x), {x.shape()[0], width});
}

/// softmax or log_softmax of x / temperature within each sequence, for the op `name`.
Ragged softmax_of_sequences(SoftmaxOp op, const char* name, const Ragged& x, double temperature, SourceLocation where);

/// While it lives, a tape with check_finite takes the infinity that is the largest (or the least) row of none as given.
class InfinityOfNoRows {
 public:
  InfinityOfNoRows(ReduceOp op, const Offsets& offsets)
      : value_((op == ReduceOp::max ? -1 : 1) * std::numeric_limits<double>::infinity()),
        given_(&value_, thread_tape.strict && any_empty(offsets)) {}

 private:
  static bool any_empty(const Offsets& offsets) {
    for (std::int64_t i = 0; i < offsets.count(); ++i)
      if (offsets.length(i) == 0) return true;
    return false;
  }

  Scalar value_;
  GivenNumbers given_;
};

}  // namespace reel::detail
