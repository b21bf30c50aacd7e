#pragma once

#include "reel/backends/cpu/stream.h"
#include "reel/backends/cpu/vector_loops.h"
#include "reel/core/ops.h"

/// Softmax down the columns of a block of rows, in the three passes of softmax_rows.h. Each pass is a function of some rows
/// [row, last) of K vectors of columns from column j on, so that a long block can be cut into pieces: maxima and sums of
/// pieces are joined, sums in the order of `pairwise`.
namespace reel::cpu::REEL_CPU_ISA {

/// Vectors of columns that a pass takes at once. Memory gives whole rows of 64 f32 faster than halves.
template <class T>
inline constexpr int kSoftmaxVectors = sizeof(T) == 4 && kVectorBytes == 32 ? 8 : 4;

/// x, y [rows, .], rows `stride` apart; rate = 1 / temperature.
template <class T>
struct SoftmaxColumns {
  using V = Vec<T>;
  SoftmaxOp op;
  const T* x;
  T* y;
  int64_t stride;
  T rate;

  REEL_INLINE int64_t at(int64_t row, int64_t j, int k) const { return row * stride + j + k * V::width; }

  /// Passes over NaN, which the sum will show.
  template <int K, class Lanes>
  REEL_INLINE Pack<T, K> max(Lanes lanes, int64_t j, int64_t row, int64_t last) const {
    Pack<T, K> acc = Pack<T, K>::broadcast(-kInfinity<T>);
    for (; row < last; ++row) {
      for (int k = 0; k < K; ++k) acc.v[k] = larger(lanes.load(x + at(row, j, k)), acc.v[k]);
    }
    return acc;
  }

  /// The maximum, or 0 where all entries are -infinity.
  template <int K>
  REEL_INLINE Pack<T, K> shift(Pack<T, K> max) const {
    const V lowest = V::broadcast(-kInfinity<T>), zero = V::zero();
    for (int k = 0; k < K; ++k) max.v[k] = {max.v[k].raw == lowest.raw ? zero.raw : max.v[k].raw};
    return max;
  }

  /// Of exp((x - shift) rate), which y keeps for softmax.
  template <int K, class Lanes>
  REEL_INLINE Pack<T, K> sum(Lanes lanes, int64_t j, int64_t row, int64_t last, const Pack<T, K>& shift) const {
    const auto piece = [=, this](int64_t from, int64_t to) {
      Pack<T, K> acc = Pack<T, K>::broadcast(0);
      for (; from < to; ++from) {
        for (int k = 0; k < K; k += 64 / kVectorBytes) {  // the rows after these come while there is arithmetic
          __builtin_prefetch(x + at(from + last - row, j, k));
          __builtin_prefetch(y + at(from + last - row, j, k), 1);
        }
        for (int k = 0; k < K; ++k) {
          const V e = exp_negative(lanes.load(x + at(from, j, k)) - shift.v[k], rate);
          if (op == SoftmaxOp::softmax) lanes.store(y + at(from, j, k), e);
          acc.v[k] = acc.v[k] + e;
        }
      }
      return acc;
    };
    return pairwise(row, last, kLeafRows, piece);
  }

  /// What the last pass multiplies by or, for the logarithm, subtracts; 0 where all entries are -infinity.
  template <int K>
  REEL_INLINE Pack<T, K> correction(Pack<T, K> sum) const {
    const V zero = V::zero();
    for (int k = 0; k < K; ++k) {
      const V value = op == SoftmaxOp::softmax ? V::broadcast(1) / sum.v[k] : log(sum.v[k]);
      sum.v[k] = {sum.v[k].raw == zero.raw ? zero.raw : value.raw};
    }
    return sum;
  }

  template <int K, class Lanes>
  REEL_INLINE void finish(Lanes lanes, int64_t j, int64_t row, int64_t last, const Pack<T, K>& shift,
                          const Pack<T, K>& correction) const {
    const V vrate = V::broadcast(rate);
    for (; row < last; ++row) {
      for (int k = 0; k < K; ++k) {
        const int64_t i = at(row, j, k);
        lanes.store(y + i, op == SoftmaxOp::softmax ? lanes.load(y + i) * correction.v[k]
                                                    : (lanes.load(x + i) - shift.v[k]) * vrate - correction.v[k]);
      }
    }
  }

  /// All passes over columns [begin, end) of `rows` rows. Not inlined: one copy serves softmax along axes and in segments.
  __attribute__((noinline)) void run(int64_t rows, int64_t begin, int64_t end) const {
    for_each_column_block<T, kSoftmaxVectors<T>>(begin, end, [=, this]<int K>(auto lanes, int64_t j) {
      const Pack<T, K> shift_by = shift(this->template max<K>(lanes, j, 0, rows));
      this->finish(lanes, j, 0, rows, shift_by, correction(this->sum(lanes, j, 0, rows, shift_by)));
    });
  }
};

/// softmax: dx = y (dy - sum(y dy)) rate. log_softmax: dx = (dy - exp(y) sum(dy)) rate, and 0 for a column whose y is all
/// -infinity, for which the maximum of y is looked at.
template <class T>
struct SoftmaxGradientColumns {
  using V = Vec<T>;
  SoftmaxOp op;
  const T* y;
  const T* dy;
  T* dx;
  int64_t stride;
  T rate;
  RowStream<T> writer;  // of the whole dx; the task finishes it

  REEL_INLINE int64_t at(int64_t row, int64_t j, int k) const { return row * stride + j + k * V::width; }

  template <int K, class Lanes>
  REEL_INLINE Pack<T, K> sum(Lanes lanes, int64_t j, int64_t row, int64_t last) const {
    const auto piece = [=, this](int64_t from, int64_t to) {
      Pack<T, K> acc = Pack<T, K>::broadcast(0);
      for (; from < to; ++from) {
        for (int k = 0; k < K; ++k) {
          const V grad = lanes.load(dy + at(from, j, k));
          acc.v[k] = op == SoftmaxOp::softmax ? fma(lanes.load(y + at(from, j, k)), grad, acc.v[k]) : acc.v[k] + grad;
        }
      }
      return acc;
    };
    return pairwise(row, last, kLeafRows, piece);
  }

  /// NaN counts as larger than -infinity. Not needed for softmax.
  template <int K, class Lanes>
  REEL_INLINE Pack<T, K> highest(Lanes lanes, int64_t j, int64_t row, int64_t last) const {
    Pack<T, K> acc = Pack<T, K>::broadcast(-kInfinity<T>);
    if (op == SoftmaxOp::softmax) return acc;
    for (; row < last; ++row) {
      for (int k = 0; k < K; ++k) acc.v[k] = max(lanes.load(y + at(row, j, k)), acc.v[k]);
    }
    return acc;
  }

  template <int K, class Lanes>
  REEL_INLINE void finish(Lanes lanes, int64_t j, int64_t row, int64_t last, const Pack<T, K>& sum,
                          const Pack<T, K>& highest) const {
    const V vrate = V::broadcast(rate), lowest = V::broadcast(-kInfinity<T>), zero = V::zero();
    writer.template write<K>(lanes, dx + at(row, j, 0), last - row, [&](int64_t r, int k) {
      const int64_t i = at(row + r, j, k);
      const V value = lanes.load(y + i), grad = lanes.load(dy + i);
      if (op == SoftmaxOp::softmax) return value * (grad - sum.v[k]) * vrate;
      const V result = (grad - exp_negative(value) * sum.v[k]) * vrate;
      return V{highest.v[k].raw == lowest.raw ? zero.raw : result.raw};
    });
  }

  __attribute__((noinline)) void run(int64_t rows, int64_t begin, int64_t end) const {
    for_each_column_block<T, kSoftmaxVectors<T>>(begin, end, [=, this]<int K>(auto lanes, int64_t j) {
      const Pack<T, K> total = this->template sum<K>(lanes, j, 0, rows);
      this->finish(lanes, j, 0, rows, total, this->template highest<K>(lanes, j, 0, rows));
    });
  }
};

}  // namespace reel::cpu::REEL_CPU_ISA
