#pragma once

#include "reel/backends/cuda/group.h"
#include "reel/core/scalar/math.h"

// The formulas that softmax along rows and down columns share.

namespace reel::cuda {

namespace device {

/// What is taken from every element; 0 where all are -infinity, so that exponentials become 0 and not NaN.
template <class T>
REEL_DEVICE T finite_shift(T greatest) {
  return greatest == -scalar::infinity<T>() ? T(0) : greatest;
}

/// The factor of the exponentials, or the logarithm that is subtracted. A sum of 0: all elements are -infinity.
template <class T>
REEL_DEVICE T softmax_correction(SoftmaxOp op, T sum) {
  if (sum == T(0)) return T(0);
  return op == SoftmaxOp::softmax ? T(1) / sum : scalar::log(sum);
}

/// From the shifted, scaled element.
template <class T>
REEL_DEVICE T softmax_result(SoftmaxOp op, T shifted, T correction) {
  return op == SoftmaxOp::softmax ? scalar::exp(shifted) * correction : shifted - correction;
}

/// What the gradient sums up.
template <class T>
REEL_DEVICE T softmax_gradient_term(SoftmaxOp op, T y, T dy) {
  return op == SoftmaxOp::softmax ? y * dy : dy;
}
template <class T>
REEL_DEVICE T softmax_gradient(SoftmaxOp op, T y, T dy, T sum) {
  return op == SoftmaxOp::softmax ? y * (dy - sum) : dy - scalar::exp(y) * sum;
}

}  // namespace device

/// Softmax of x rate down each of `width` columns of each segment; x, y [total, width]. In segment_softmax.cu.
template <class T>
void softmax_columns(const Context& context, SoftmaxOp op, const T* x, T* y, int64_t segments, device::Rows rows,
                     int64_t longest, int64_t width, T rate);
template <class T>
void softmax_backward_columns(const Context& context, SoftmaxOp op, const T* y, const T* dy, T* dx, int64_t segments,
                              device::Rows rows, int64_t longest, int64_t width, T rate);

}  // namespace reel::cuda
