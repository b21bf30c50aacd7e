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

  /// Rows will have n elements.
  REEL_INLINE void start(int64_t n) {
    n_ = n;
    for (int64_t i = n; i < kShortRow<T>; ++i) V::zero().store(column(i));  // sum() adds them
  }
  /// Rows one after the other.
  REEL_INLINE void load(const T* x) {
    const V lowest = V::broadcast(-kInfinity<T>), highest = load(x, lowest);
    V{highest.raw == lowest.raw ? V::zero().raw : highest.raw}.store(shift_);
  }
  REEL_INLINE V shift() const { return V::load(shift_); }

  /// exp((x - shift) rate) in the place of each element; their sums.
  REEL_INLINE V exponentials(T rate) {
    const V vshift = shift(), vrate = V::broadcast(rate);
    T* const end = column(n_);
    for (T* p = column(0); p != end; p += kRows) exp_negative((V::load(p) - vshift) * vrate).store(p);
    return sum<1>(0);
  }
  REEL_INLINE T at(int64_t row, int64_t i) const { return columns_[i * kRows + row]; }

  /// y = the exponentials times `by`.
  REEL_INLINE void store_scaled(V by, T* y) const {
    const int64_t n = n_;
    if (n < kStrip<T>) {
      for (int64_t i = 0; i < n; ++i) {
        T scaled[kRows];
        (V::load(column(i)) * by).store(scaled);
        for (int64_t r = 0; r < kRows; ++r) y[r * n + i] = scaled[r];
      }
      return;
    }
    for_each_strip([=, this](int64_t i) {
      V strip[kStrip<T>];
#pragma GCC unroll 4
      for (int k = 0; k < kStrip<T>; ++k) strip[k] = V::load(column(i + k)) * by;
      store_strip(strip, [=](int r) { return y + r * n + i; });
    });
  }

 private:
  int64_t n_;
  alignas(kVectorBytes) T shift_[kRows];
  alignas(kVectorBytes) T columns_[kShortRow<T> * kRows];  // [kShortRow, kRows]

  REEL_INLINE T* column(int64_t i) { return columns_ + i * kRows; }
  REEL_INLINE const T* column(int64_t i) const { return columns_ + i * kRows; }

  /// f(first column) for strips of the columns, the last of which reaches back over the one before.
  template <class F>
  REEL_INLINE void for_each_strip(F f) const {
    for (int64_t i = 0; i < n_; i += kStrip<T>) f(min(i, n_ - kStrip<T>));
  }

  /// The largest of each row and `highest`.
  REEL_INLINE V load(const T* x, V highest) {
    const int64_t n = n_;
    if (n < kStrip<T>) {
      for (int64_t i = 0; i < n; ++i) {
        for (int64_t r = 0; r < kRows; ++r) column(i)[r] = x[r * n + i];
        highest = larger(V::load(column(i)), highest);
      }
      return highest;
    }
    for_each_strip([=, this, &highest](int64_t i) {
      V strip[kStrip<T>];
      load_strip([=](int r) { return x + r * n + i; }, strip);
#pragma GCC unroll 4
      for (int k = 0; k < kStrip<T>; ++k) {
        strip[k].store(column(i + k));
        highest = larger(strip[k], highest);
      }
    });
    return highest;
  }

  /// In the order of reduce_add for a row in one or two vectors: the terms i, i + step, i + 2 step, ...
  template <int step>
  REEL_INLINE V sum(int64_t i) const {
    if constexpr (step == V::width) {
      return V::load(column(i)) + V::load(column(i + step));
    } else {
      return sum<2 * step>(i) + sum<2 * step>(i + step);
    }
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
    ShortRows<T> tile;
    tile.start(n);
    tile.load(x);
    tile.shift().store(shifts);
    log(tile.exponentials(rate)).store(log_sums);
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
    // Tiles go through each phase together: one has work to do while another waits for its results.
    using Tile = ShortRows<T>;
    constexpr int64_t kTiles = 4, kRows = Tile::kRows;
    const int64_t together = min(kTiles, rows / kRows);
    Tile tiles[kTiles];
    alignas(kVectorBytes) T scales[kTiles][kRows];
    for (int64_t t = 0; t < together; ++t) tiles[t].start(n);
    while (r + kRows <= rows) {
      const int64_t count = min(together, (rows - r) / kRows);
      for (int64_t t = 0; t < count; ++t) tiles[t].load(x + (r + t * kRows) * n);
      for (int64_t t = 0; t < count; ++t) {
        const Vec<T> sum = tiles[t].exponentials(rate), zero = Vec<T>::zero();
        const Vec<T> scale{sum.raw == zero.raw ? zero.raw : (Vec<T>::broadcast(1) / sum).raw};
        scale.store(scales[t]);
      }
      for (int64_t t = 0; t < count; ++t) tiles[t].store_scaled(Vec<T>::load(scales[t]), y + (r + t * kRows) * n);
      r += count * kRows;
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
