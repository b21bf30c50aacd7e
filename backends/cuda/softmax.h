#pragma once

#include "reel/backends/cuda/held_rows.h"
#include "reel/core/scalar/math.h"

// What softmax along rows, softmax down columns and cross entropy share.

namespace reel::cuda {

namespace device {

/// What is taken from every element; 0 where all are -infinity, so that exponentials become 0 and not NaN.
template <class T>
REEL_DEVICE T finite_shift(T greatest) {
  return greatest == -scalar::infinity<T>() ? T(0) : greatest;
}

/// e^x for x <= 0, or above by no more than rounding: scalar::exp but that what would be denormal is 0.
template <class T>
REEL_DEVICE T exp_negative(T x) {
  constexpr T least = sizeof(T) == 4 ? T(-87.336544) : T(-708.39641853226408);  // log of the smallest normal number
  const scalar::ReducedExponent<T> e = scalar::reduce_exponent(x);
  // The product keeps NaN.
  const T y = (T(1) + scalar::expm1_polynomial(e.r)) * scalar::power_of_two<T>(e.bits);
  return x < least ? T(0) : y;
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
  return op == SoftmaxOp::softmax ? exp_negative(shifted) * correction : shifted - correction;
}

/// What the gradient sums up, added to `sum`.
template <class T>
REEL_DEVICE T add_gradient_term(SoftmaxOp op, T y, T dy, T sum) {
  return op == SoftmaxOp::softmax ? scalar::fma(y, dy, sum) : sum + dy;
}
template <class T>
REEL_DEVICE T softmax_gradient(SoftmaxOp op, T y, T dy, T sum) {
  return op == SoftmaxOp::softmax ? y * (dy - sum) : dy - exp_negative(y) * sum;
}

/// Of a piece of a row: its greatest element, and the sum of exp((x - greatest) rate).
template <class T>
struct PieceSum {
  T greatest, sum;
};

/// What a row's pieces, a block each, make of the whole row: its shift and the sum of exp((x - shift) rate).
template <class T>
REEL_DEVICE PieceSum<T> join_pieces(const PieceSum<T>* pieces, int64_t count, T rate, Holders block, T* scratch) {
  T greatest = -scalar::infinity<T>();
  for (int64_t p = block.lane(); p < count; p += block.lanes) greatest = larger(greatest, pieces[p].greatest);
  const T shift = finite_shift(block.join(greatest, scratch, [](T a, T b) { return larger(a, b); }));
  T sum = 0;
  for (int64_t p = block.lane(); p < count; p += block.lanes)
    sum = scalar::fma(pieces[p].sum, exp_negative((pieces[p].greatest - shift) * rate), sum);
  return {shift, block.sum(sum, scratch)};
}

}  // namespace device

/// Rows of n elements that no block holds, cut into pieces that one does, and the launch for those; the cuts depend on n alone.
template <class T>
struct PiecePlan {
  static constexpr int kLength = kThreads * kHeld<T>;
  device::RowPieces pieces;
  device::Holders block{kThreads};
  Grid grid;

  PiecePlan(int64_t rows, int64_t n)
      : pieces{ceil_div(n, kLength), kLength},
        grid{.blocks = rows * pieces.count, .shared_bytes = device::kWarp * sizeof(T)} {}
  [[nodiscard]] std::size_t units() const { return static_cast<std::size_t>(grid.blocks); }
};

/// The sums of the pieces of rows of x [rows, n]: to [rows, pieces].
template <class T>
void softmax_piece_sums(const Context& context, const PiecePlan<T>& plan, const T* x, device::PieceSum<T>* to,
                        int64_t n, T rate);

/// Whether rows of n elements go the way of softmax_tiles.cu: x, y, dy, dx [rows, n].
template <class T>
inline constexpr int kTileRow = kHeld<T>;
template <class T>
bool in_tiles(int64_t n) {
  return n <= kTileRow<T> && n % kPack<T> != 0;
}
template <class T>
void softmax_tiles(const Context& context, SoftmaxOp op, const T* x, T* y, int64_t rows, int64_t n, T rate);
template <class T>
void softmax_backward_tiles(const Context& context, SoftmaxOp op, const T* y, const T* dy, T* dx, int64_t rows,
                            int64_t n, T rate);

/// Softmax of x rate down each of `width` columns of each segment; x, y [total, width]. In segment_softmax.cu.
template <class T>
void softmax_columns(const Context& context, SoftmaxOp op, const T* x, T* y, int64_t segments, device::Rows rows,
                     int64_t longest, int64_t width, T rate);
template <class T>
void softmax_backward_columns(const Context& context, SoftmaxOp op, const T* y, const T* dy, T* dx, int64_t segments,
                              device::Rows rows, int64_t longest, int64_t width, T rate);

}  // namespace reel::cuda
