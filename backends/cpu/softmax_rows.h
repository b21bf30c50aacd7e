#pragma once

#include "reel/backends/cpu/transpose.h"
#include "reel/backends/cpu/vector_loops.h"
#include "reel/core/ops.h"

/// Softmax along one contiguous row: what the axis, the segment and the loss versions share. Three passes over memory that
/// stays in cache: maximum; exponentials and their sum; scaling.
///
/// exp((x - max) / temperature) is at most 1, so nothing overflows and nothing is clipped. Where all entries are -infinity
/// (max = -infinity) 0 is subtracted for max, which makes all exponentials 0 without a NaN. NaN and +infinity entries make
/// the sum, and so everything, NaN.
namespace reel::cpu::REEL_CPU_ISA {

template <class T>
REEL_INLINE T finite_shift(T max) {
  return max == -kInfinity<T> ? T(0) : max;
}

/// 1 / sum, or 0 where there is nothing to scale.
template <class T>
REEL_INLINE T inverse_or_zero(T sum) {
  return sum == T(0) ? T(0) : T(1) / sum;
}

/// While this row keeps the arithmetic busy, the row after it comes from memory.
template <class T>
REEL_INLINE void prefetch_next_row(const T* p, int64_t n) {
  __builtin_prefetch(reinterpret_cast<const char*>(p) + n * static_cast<int64_t>(sizeof(T)));
}
template <class T>
REEL_INLINE void prefetch_next_row(T* p, int64_t n) {
  __builtin_prefetch(reinterpret_cast<char*>(p) + n * static_cast<int64_t>(sizeof(T)), 1);
}

/// What is subtracted from a row, and the sum of exp((x - shift) rate). The lambdas below capture numbers, not vectors: they
/// may end up in memory.
template <class T>
struct RowSum {
  T shift, sum;
};

/// A row of up to two vectors, which stays in registers: the classes of most classifiers. Its sum has the order that sum_row
/// gives it, so that the length alone decides the bits.
template <class T>
inline constexpr int64_t kShortRow = 2 * Vec<T>::width;

template <class T, class F>
REEL_INLINE RowSum<T> exponentials_of_short_row(const T* x, int64_t n, T rate, F use) {
  constexpr int64_t width = Vec<T>::width;
  const auto exponential = [rate](Vec<T> v, T shift) __attribute__((always_inline)) {
    return exp_negative((v - Vec<T>::broadcast(shift)) * Vec<T>::broadcast(rate));
  };
  if (n <= width) {
    const FirstLanes<T> lanes(n);
    const Vec<T> v = lanes.load_for_max(x);
    const T shift = finite_shift(reduce_larger(v));
    const Vec<T> e = exponential(v, shift);
    const T sum = reduce_add(e);
    use(lanes, 0, e, sum);
    return {shift, sum};
  }
  const FirstLanes<T> lanes(n - width);
  const Vec<T> v = Vec<T>::load(x), w = lanes.load_for_max(x + width);
  const T shift = finite_shift(reduce_larger(larger(v, w)));
  const Vec<T> e = exponential(v, shift), f = exponential(w, shift);
  const T sum = reduce_add(e + f);
  use(AllLanes<T>{}, 0, e, sum);
  use(lanes, width, f, sum);
  return {shift, sum};
}

/// As many short rows as a vector has lanes, each in a lane of its own: exponentials fill whole vectors, no sum goes across
/// lanes, and no row waits for its own. The bits are those of exponentials_of_short_row.
template <class T>
class ShortRows {
 public:
  using V = Vec<T>;
  static constexpr int64_t kRows = V::width;

  /// Rows of n elements, one after the other.
  explicit ShortRows(int64_t n) : n_(n) {
    for (int64_t i = n; i < kShortRow<T>; ++i) V::zero().store(columns_ + i * kRows);  // sum() adds them
  }

  REEL_INLINE void load(const T* x) { transpose_matrix(x, kRows, n_, columns_); }
  REEL_INLINE void store(T* y) const { transpose_matrix(columns_, n_, kRows, y); }

  struct Sums {
    V shift, sum;
  };
  /// exp((x - shift) rate) in the place of each element.
  REEL_INLINE Sums exponentials(T rate) {
    const int64_t n = n_;
    const V lowest = V::broadcast(-kInfinity<T>), vrate = V::broadcast(rate);
    V highest = lowest;
    for (int64_t i = 0; i < n; ++i) highest = larger(column(i), highest);
    const V shift{highest.raw == lowest.raw ? V::zero().raw : highest.raw};
    for (int64_t i = 0; i < n; ++i) exp_negative((column(i) - shift) * vrate).store(columns_ + i * kRows);
    return {shift, sum()};
  }
  REEL_INLINE T at(int64_t row, int64_t i) const { return columns_[i * kRows + row]; }
  REEL_INLINE void scale(V by) {
    const int64_t n = n_;
    for (int64_t i = 0; i < n; ++i) (column(i) * by).store(columns_ + i * kRows);
  }

 private:
  int64_t n_;
  alignas(kVectorBytes) T columns_[kShortRow<T> * kRows];  // [kShortRow, kRows]

  REEL_INLINE V column(int64_t i) const { return V::load(columns_ + i * kRows); }

  /// In the order of reduce_add for a row in one or two vectors.
  REEL_INLINE V sum() const {
    const bool two = n_ > V::width;
    V sums[V::width];
#pragma GCC unroll 16
    for (int i = 0; i < V::width; ++i) sums[i] = two ? column(i) + column(i + V::width) : column(i);
#pragma GCC unroll 4
    for (int half = V::width / 2; half >= 1; half /= 2) {
#pragma GCC unroll 8
      for (int i = 0; i < half; ++i) sums[i] = sums[i] + sums[i + half];
    }
    return sums[0];
  }
};

template <class T>
REEL_INLINE RowSum<T> sum_exp_row(const T* x, int64_t n, T rate) {
  if (n <= kShortRow<T>) return exponentials_of_short_row(x, n, rate, [](auto, int64_t, Vec<T>, T) {});
  const T shift = finite_shift(max_of_row(x, n));
  const T sum = sum_row<T>(
      n, [=](Vec<T> acc, auto lanes, int64_t i) __attribute__((always_inline)) {
        prefetch_next_row(x + i, n);
        return acc + exp_negative((lanes.load_for_max(x + i) - Vec<T>::broadcast(shift)) * Vec<T>::broadcast(rate));
      });
  return {shift, sum};
}

/// rate = 1 / temperature.
template <class T>
REEL_INLINE void softmax_row(const T* x, T* y, int64_t n, T rate) {
  if (n <= kShortRow<T>) {
    exponentials_of_short_row(
        x, n, rate, [y](auto lanes, int64_t i, Vec<T> e, T sum) __attribute__((always_inline)) {
          lanes.store(y + i, e * Vec<T>::broadcast(inverse_or_zero(sum)));
        });
    return;
  }
  const T shift = finite_shift(max_of_row(x, n));
  const T sum = sum_row<T>(
      n, [=](Vec<T> acc, auto lanes, int64_t i) __attribute__((always_inline)) {
        const Vec<T> v = lanes.load_for_max(x + i) - Vec<T>::broadcast(shift);
        const Vec<T> e = exp_negative(v * Vec<T>::broadcast(rate));
        prefetch_next_row(x + i, n);
        prefetch_next_row(y + i, n);
        lanes.store(y + i, e);
        return acc + e;
      });
  const Vec<T> scale = Vec<T>::broadcast(inverse_or_zero(sum));
  for_each_vector<T>(0, n, [=](auto lanes, int64_t i) { lanes.store(y + i, lanes.load(y + i) * scale); });
}

/// y = (x - shift) rate - log_sum
template <class T>
REEL_INLINE void log_softmax_row(const T* x, T* y, int64_t n, T rate, T shift, T log_sum) {
  const Vec<T> vshift = Vec<T>::broadcast(shift), vrate = Vec<T>::broadcast(rate), vlog = Vec<T>::broadcast(log_sum);
  for_each_vector<T>(0, n,
                     [=](auto lanes, int64_t i) { lanes.store(y + i, (lanes.load(x + i) - vshift) * vrate - vlog); });
}

/// The shift and the logarithm of the sum of up to kLogRows rows: their logarithms are taken at once.
template <class T>
inline constexpr int64_t kLogRows = ShortRows<T>::kRows;

template <class T, class F>
REEL_INLINE void log_sum_exp_rows(int64_t rows, T* shifts, T* log_sums, F sum_exp) {
  alignas(kVectorBytes) T sums[kLogRows<T>];
  for (int64_t r = 0; r < kLogRows<T>; ++r) sums[r] = 1;
  for (int64_t r = 0; r < rows; ++r) {
    const RowSum<T> row = sum_exp(r);
    shifts[r] = row.shift;
    sums[r] = row.sum;
  }
  log(Vec<T>::load(sums)).store(log_sums);
}
template <class T>
__attribute__((noinline)) void log_sum_exp_rows(const T* x, int64_t rows, int64_t n, T rate, T* shifts, T* log_sums) {
  if (rows == kLogRows<T> && n <= kShortRow<T>) {
    ShortRows<T> tile(n);
    tile.load(x);
    const auto [shift, sum] = tile.exponentials(rate);
    shift.store(shifts);
    log(sum).store(log_sums);
    return;
  }
  log_sum_exp_rows(rows, shifts, log_sums, [=](int64_t r) { return sum_exp_row(x + r * n, n, rate); });
}

/// dx = y (dy - sum(y dy)) rate
template <class T>
REEL_INLINE void softmax_backward_row(const T* y, const T* dy, T* dx, int64_t n, T rate) {
  const Vec<T> vrate = Vec<T>::broadcast(rate);
  const T dot = sum_row<T>(n, [=](Vec<T> acc, auto lanes, int64_t i) {
    prefetch_next_row(y + i, n);
    prefetch_next_row(dy + i, n);
    return fma(lanes.load(y + i), lanes.load(dy + i), acc);
  });
  const Vec<T> vdot = Vec<T>::broadcast(dot);
  for_each_vector<T>(0, n, [=](auto lanes, int64_t i) {
    prefetch_next_row(dx + i, n);
    lanes.store(dx + i, lanes.load(y + i) * (lanes.load(dy + i) - vdot) * vrate);
  });
}

/// dx = (dy - exp(y) sum(dy)) rate, and 0 for a row whose y is all -infinity.
template <class T>
REEL_INLINE void log_softmax_backward_row(const T* y, const T* dy, T* dx, int64_t n, T rate) {
  int64_t reachable = 0;
  while (reachable < n && y[reachable] == -kInfinity<T>) ++reachable;
  if (reachable == n) {
    for (int64_t i = 0; i < n; ++i) dx[i] = 0;
    return;
  }
  const Vec<T> vrate = Vec<T>::broadcast(rate);
  const T sum = sum_row<T>(n, [=](Vec<T> acc, auto lanes, int64_t i) { return acc + lanes.load(dy + i); });
  const Vec<T> vsum = Vec<T>::broadcast(sum);
  for_each_vector<T>(
      0, n, [=](auto lanes, int64_t i) __attribute__((always_inline)) {
        lanes.store(dx + i, (lanes.load(dy + i) - exp_negative(lanes.load(y + i)) * vsum) * vrate);
      });
}

// --- rows one after the other: not inlined, so that one copy serves softmax along axes and in segments -----------------------

template <class T>
__attribute__((noinline)) void softmax_rows(const T* x, T* y, int64_t rows, int64_t n, T rate) {
  int64_t r = 0;
  if (n <= kShortRow<T>) {
    ShortRows<T> tile(n);
    for (; r + tile.kRows <= rows; r += tile.kRows) {
      tile.load(x + r * n);
      const Vec<T> sum = tile.exponentials(rate).sum, zero = Vec<T>::zero();
      tile.scale({sum.raw == zero.raw ? zero.raw : (Vec<T>::broadcast(1) / sum).raw});
      tile.store(y + r * n);
    }
  }
  for (; r < rows; ++r) softmax_row(x + r * n, y + r * n, n, rate);
}

template <class T>
__attribute__((noinline)) void log_softmax_rows(const T* x, T* y, int64_t rows, int64_t n, T rate) {
  for (int64_t first = 0; first < rows; first += kLogRows<T>) {
    const int64_t count = min(kLogRows<T>, rows - first);
    T shifts[kLogRows<T>], log_sums[kLogRows<T>];
    log_sum_exp_rows(x + first * n, count, n, rate, shifts, log_sums);
    for (int64_t k = 0; k < count; ++k) {
      const int64_t offset = (first + k) * n;
      // A sum of 0: every x - shift is -infinity, and so is y.
      log_softmax_row(x + offset, y + offset, n, rate, shifts[k], log_sums[k] == -kInfinity<T> ? T(0) : log_sums[k]);
    }
  }
}

template <class T>
__attribute__((noinline)) void softmax_backward_rows(SoftmaxOp op, const T* y, const T* dy, T* dx, int64_t rows,
                                                     int64_t n, T rate) {
  for (int64_t r = 0, i = 0; r < rows; ++r, i += n) {
    if (op == SoftmaxOp::softmax) {
      softmax_backward_row(y + i, dy + i, dx + i, n, rate);
    } else {
      log_softmax_backward_row(y + i, dy + i, dx + i, n, rate);
    }
  }
}

}  // namespace reel::cpu::REEL_CPU_ISA
