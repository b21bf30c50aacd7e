#pragma once

#include "reel/core/ops.h"

/// The gradients of recurrences in f32. Lines without gaps are walked number by number, so compiled once for the baseline, but for rows.
namespace reel::cpu {

/// Lines along an axis, or down the columns of segments: block b begins at row offsets[b], or at b length where offsets is null.
struct ScanBlocks {
  std::int64_t count, width;
  const std::int64_t* offsets;
  std::int64_t length;  // of a block, of the longest of segments

  std::int64_t first(std::int64_t block) const { return offsets == nullptr ? block * length : offsets[block]; }
};

/// What is done to a row of n columns side by side, by instance of the kernels. `state` and `carry` are those of each column.
struct ScanRow {
  /// The states to `before`, and on: state = factor state + x.
  void (*forward)(const float* factor, const float* x, double* state, double* before, std::int64_t n);
  /// The gradient of the state after an element is carry + own, and of it dx and, times `before`, dfactor; carry = factor carry +
  /// dy by.
  void (*backward)(const float* factor, const float* dy, const float* own, const float* by, const double* before,
                   double* carry, float* dx, float* dfactor, std::int64_t n);
};

/// As Ops::scan_backward and Ops::segment_scan_backward.
void scan_backward(const ScanRow& row, ScanOp op, const Array& x, const Array* factor, const ScanBlocks& blocks,
                   bool reverse, bool exclusive, const ScanGradients& gradients);

/// How many columns of a scan that touches so many bytes are a task's.
std::int64_t columns_of_a_task(const ScanBlocks& blocks, std::int64_t size, std::int64_t bytes);

}  // namespace reel::cpu
