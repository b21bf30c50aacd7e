#pragma once

#include "reel/backends/cpu/transpose.h"
#include "reel/backends/cpu/vector_loops.h"
#include "reel/core/ops.h"

/// Softmax along one contiguous row: what the axis, the segment and the loss versions share. Three passes over memory that
/// stays in cache: maximum; exponentials and their sum; scaling. The online softmax, one pass for the maximum and the sum and one for
/// the result, computes each exponential twice: it takes 1.6 times as long for rows of 50,257, and 1.3 for a million, which no second
/// cache holds (rows softmax_*@online of the benchmarks; a Xeon).
///
/// exp((x - max) / temperature) is at most 1, so nothing overflows and nothing is clipped. Where all entries are -infinity
/// (max = -infinity) 0 is subtracted for max, which makes all exponentials 0 without a NaN. NaN and +infinity entries make
/// the sum, and so everything, NaN.
namespace reel::cpu::REEL_CPU_ISA {

/// What is subtracted; never -0, for which of two zeros is the largest is a matter of order.
template <class T>
REEL_INLINE T finite_shift(T max) {
  return max == -kInfinity<T> ? T(0) : max + T(0);
}

/// 1 / sum, or 0 where there is nothing to scale.
template <class T>
REEL_INLINE T inverse_or_zero(T sum) {
  return sum == T(0) ? T(0) : T(1) / sum;
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
    return exp_negative(v - Vec<T>::broadcast(shift), rate);
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

/// Tiles of as many short rows as a vector has lanes, [kRows, n], without gaps: exponentials fill whole vectors, wherever rows end
/// in them, and the maxima and sums of all rows are taken at once. The bits are those of exponentials_of_short_row.
/// (Vectors go in and out through memory: where they are arguments, g++ 12 leaves their upper halves set behind the last call,
/// which slows down all SSE code that comes after.)
template <class T>
class ShortRows {
 public:
  using V = Vec<T>;
  static constexpr int kRows = V::width;
  static constexpr int64_t kSize = kShortRow<T> * kRows;  // elements of the largest tile
  static constexpr int64_t kTogether = 8;  // tiles that go through a step together: one has work while another waits

  /// For `rows` rows of n elements.
  REEL_INLINE ShortRows(int64_t rows, int64_t n) : fit_(rows >= kRows && n <= kShortRow<T>), n_(n) {
    if (!fit_) return;
    for (int r = 0; r < kRows; ++r) {  // what goes beyond a row is overwritten by the next
      std::int32_t* const row = row_of_ + r * n * kWords;
#pragma omp simd
      for (int i = 0; i < kShortRow<T> * kWords; ++i) row[i] = r * kWords + i % kWords;
    }
  }
  /// Whether rows are short, and enough for a tile.
  REEL_INLINE bool fit() const { return fit_; }

  /// What is subtracted from each row of `tiles` tiles.
  __attribute__((noinline)) void shifts(const T* x, int64_t tiles, V* to) const {
    const V lowest = V::broadcast(-kInfinity<T>);
    for (int64_t t = 0; t < tiles; ++t, x += n_ * kRows) {
      V rows[kRows];
      if (n_ > kRows) {
#pragma GCC unroll 16
        for (int r = 0; r < kRows; ++r) rows[r] = larger(V::load(x + r * n_), V::load(x + r * n_ + n_ - kRows));
      } else {
        const FirstLanes<T> lanes(n_);
#pragma GCC unroll 16
        for (int r = 0; r < kRows; ++r) rows[r] = lanes.load_for_max(x + r * n_);
      }
      const V highest = reduce_each(rows, [](V a, V b) { return larger(a, b); });
      to[t] = {highest.raw == lowest.raw ? V::zero().raw : (highest + V::zero()).raw};
    }
  }

  /// e = exp((x - shift) rate), in two goes over e: more vectors of fewer steps are under way at once.
  __attribute__((noinline)) void exponentials(const T* x, int64_t tiles, const V* shifts, T rate, T* e) const {
    const int64_t size = n_ * kRows;
    for (int64_t t = 0; t < tiles; ++t) {
      const V shift = shifts[t];
      for (int64_t i = 0; i < size; i += kRows) (V::load(x + t * size + i) - spread(shift, i)).store(e + t * size + i);
    }
    for (int64_t i = 0; i < size * tiles; i += kRows) exp_negative(V::load(e + i), rate).store(e + i);
  }

  /// Of each row.
  __attribute__((noinline)) void sums(const T* e, int64_t tiles, V* to) const {
    for (int64_t t = 0; t < tiles; ++t, e += n_ * kRows) {
      V rows[kRows];
      if (n_ > kRows) {
        const FirstLanes<T> lanes(n_ - kRows);
#pragma GCC unroll 16
        for (int r = 0; r < kRows; ++r) rows[r] = V::load(e + r * n_) + lanes.load(e + r * n_ + kRows);
      } else {
        const FirstLanes<T> lanes(n_);
#pragma GCC unroll 16
        for (int r = 0; r < kRows; ++r) rows[r] = lanes.load(e + r * n_);
      }
      to[t] = reduce_each(rows, [](V a, V b) { return a + b; });
    }
  }

  /// Rows times `by`.
  __attribute__((noinline)) void scale(T* e, int64_t tiles, const V* by) const {
    const int64_t size = n_ * kRows;
    for (int64_t t = 0; t < tiles; ++t, e += size) {
      const V factor = by[t];
      for (int64_t i = 0; i < size; i += kRows) (V::load(e + i) * spread(factor, i)).store(e + i);
    }
  }

 private:
  static constexpr int kWords = static_cast<int>(sizeof(T)) / 4;  // of an element
  bool fit_;
  int64_t n_;
  alignas(kVectorBytes) std::int32_t row_of_[kSize * kWords];  // an element's row, as `permute` wants it

  /// Of numbers of rows, those of elements [i, i + kRows).
  REEL_INLINE V spread(V of_row, int64_t i) const { return permute(of_row, row_of_ + i * kWords); }
};

template <class T>
REEL_INLINE RowSum<T> sum_exp_row(const T* x, int64_t n, T rate) {
  if (n <= kShortRow<T>) return exponentials_of_short_row(x, n, rate, [](auto, int64_t, Vec<T>, T) {});
  const T shift = finite_shift(max_of_row(x, n));
  const T sum = sum_row<T>(
      n, [=](Vec<T> acc, auto lanes, int64_t i) __attribute__((always_inline)) {
        prefetch_long_row(x + i, n);
        return acc + exp_negative(lanes.load_for_max(x + i) - Vec<T>::broadcast(shift), rate);
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
        const Vec<T> e = exp_negative(lanes.load_for_max(x + i) - Vec<T>::broadcast(shift), rate);
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

/// The shift and the logarithm of the sum of up to kLogRows rows: logarithms are taken of whole vectors.
template <class T>
inline constexpr int64_t kLogRows = ShortRows<T>::kTogether* ShortRows<T>::kRows;

template <class T, class F>
REEL_INLINE void log_sum_exp_rows(int64_t rows, T* shifts, T* log_sums, F sum_exp) {
  constexpr int width = Vec<T>::width;
  alignas(kVectorBytes) T sums[kLogRows<T>];
  Vec<T>::broadcast(1).store(sums + (rows - 1) / width * width);
  for (int64_t r = 0; r < rows; ++r) {
    const RowSum<T> row = sum_exp(r);
    shifts[r] = row.shift;
    sums[r] = row.sum;
  }
  for (int64_t r = 0; r < rows; r += width) log(Vec<T>::load(sums + r)).store(log_sums + r);
}
template <class T>
__attribute__((noinline)) void log_sum_exp_rows(const T* x, int64_t rows, int64_t n, T rate, const ShortRows<T>& tile,
                                                T* shifts, T* log_sums) {
  using Tile = ShortRows<T>;
  int64_t r = 0;
  if (tile.fit()) {
    const int64_t tiles = rows / Tile::kRows;
    alignas(kVectorBytes) T e[Tile::kTogether * Tile::kSize];
    Vec<T> shift[Tile::kTogether], sum[Tile::kTogether];
    tile.shifts(x, tiles, shift);
    tile.exponentials(x, tiles, shift, rate, e);
    tile.sums(e, tiles, sum);
    for (int64_t t = 0; t < tiles; ++t, r += Tile::kRows) {
      shift[t].store(shifts + r);
      log(sum[t]).store(log_sums + r);
    }
  }
  if (r == rows) return;
  log_sum_exp_rows(rows - r, shifts + r, log_sums + r,
                   [=](int64_t k) { return sum_exp_row(x + (r + k) * n, n, rate); });
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
  const ShortRows<T> tile(rows, n);
  if (tile.fit()) {
    using Tile = ShortRows<T>;
    const Vec<T> zero = Vec<T>::zero();
    Vec<T> of_rows[Tile::kTogether];
    for (int64_t tiles; r + Tile::kRows <= rows; r += tiles * Tile::kRows) {
      tiles = min(Tile::kTogether, (rows - r) / Tile::kRows);
      tile.shifts(x + r * n, tiles, of_rows);
      tile.exponentials(x + r * n, tiles, of_rows, rate, y + r * n);
      tile.sums(y + r * n, tiles, of_rows);
      for (int64_t t = 0; t < tiles; ++t) {
        const Vec<T> sum = of_rows[t];
        of_rows[t] = {sum.raw == zero.raw ? zero.raw : (Vec<T>::broadcast(1) / sum).raw};
      }
      tile.scale(y + r * n, tiles, of_rows);
    }
  }
  for (; r < rows; ++r) softmax_row(x + r * n, y + r * n, n, rate);
}

template <class T>
__attribute__((noinline)) void log_softmax_rows(const T* x, T* y, int64_t rows, int64_t n, T rate) {
  const ShortRows<T> tile(rows, n);
  // So many that they are still in the second cache when they are read again.
  const int64_t together =
      max<int64_t>(1, min(kLogRows<T>, kLongRow / max<int64_t>(1, n * static_cast<int64_t>(sizeof(T)))));
  for (int64_t first = 0; first < rows; first += together) {
    const int64_t count = min(together, rows - first);
    T shifts[kLogRows<T>], log_sums[kLogRows<T>];
    log_sum_exp_rows(x + first * n, count, n, rate, tile, shifts, log_sums);
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
