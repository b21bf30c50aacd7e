#pragma once

// Private to ops/: shapes of batches of matrices, which lie in the last two axes.

#include "reel/ops/check.h"

namespace reel::detail {

/// The axes in front of the matrices.
inline Shape batch_of(const Shape& shape) { return Shape::of(shape.begin(), shape.rank() - 2); }

inline Shape with_matrix(Shape batch, std::int64_t rows, std::int64_t cols) {
  batch.push_back(rows);
  batch.push_back(cols);
  return batch;
}

/// x contiguous, as [batch, rows, cols]; unrecorded.
inline Tensor flat_batch(const Tensor& x) {
  const Tensor dense = packed(x);
  const int r = x.rank();
  return reshaped(dense, {batch_of(x.shape()).size(), x.shape()[r - 2], x.shape()[r - 1]});
}

}  // namespace reel::detail
