// Cross entropy with its softmax. If a gradient is wanted, forward leaves it along with the loss, so that each exponential is
// computed once.

#include "reel/backends/cpu/cpu_ops.h"
#include "reel/backends/cpu/softmax_rows.h"
#include "reel/core/scratch.h"

namespace reel::cpu::REEL_CPU_ISA {
namespace {

/// Of two chunks two threads take 0.75 to 0.8 of one's time, with the gradient too (rows of 64; benchmark_grains).
constexpr int64_t kLossGrain = kGrain / 4;

REEL_INLINE int64_t rows_per_chunk(int64_t cols) { return max<int64_t>(1, kLossGrain / max<int64_t>(cols, 8)); }

/// Bytes that lines to be written to are asked for ahead: near enough that they are still there. Not beyond a thread's rows, or the
/// next one's would be taken from it: 256 rows of 64 took 1.4 times as long. (32 rows of 50,257 take 0.95 of the time with 2048 for
/// 8192 where vectors are of 64 bytes, 1.04 where they are of 32: a Zen 4.)
constexpr int64_t kWriteAhead = kVectorBytes == 64 ? 2048 : 8192;

/// A row of exponentials that still has to be scaled to its gradient.
template <class T>
struct Unscaled {
  const T* last;    // the last element that its thread writes
  T* dx = nullptr;  // null: none
  T scale = 0, at_target = 0;
  int64_t target = 0;

  REEL_INLINE void finish(int64_t cols) {
    if (dx == nullptr) return;
    const Vec<T> by = Vec<T>::broadcast(scale);
    for_each_vector<T>(0, cols, [to = dx, by](auto lanes, int64_t i) { lanes.store(to + i, lanes.load(to + i) * by); });
    dx[target] = at_target;
    dx = nullptr;
  }
};

/// The exponentials of a row and their sum; a row before it is scaled on the way, while there is arithmetic.
template <bool scales, class T>
__attribute__((noinline)) T exponentials_of_row(const T* x, int64_t cols, T shift, T* dx, const T* last, T* before,
                                                T scale) {
  return sum_row<T>(
      cols, [=](Vec<T> acc, auto lanes, int64_t i) __attribute__((always_inline)) {
        const Vec<T> e = exp_negative(lanes.load_for_max(x + i) - Vec<T>::broadcast(shift));
        if constexpr (kVectorBytes == 64) {
          prefetch_next_row(x + i, cols);
        } else {  // the exponentials take longer, while more can come: with AVX2 0.9 of the time
          prefetch_long_row(x + i, cols);
        }
        const T* const ahead = dx + i + kWriteAhead / static_cast<int64_t>(sizeof(T));
        __builtin_prefetch(ahead < last ? ahead : last, 1);
        // Loaded before the store: as far into a page, as rows of 1,024 are, a load would wait for it.
        const Vec<T> scaled = scales ? lanes.load(before + i) * Vec<T>::broadcast(scale) : e;
        lanes.store(dx + i, e);
        if (scales) lanes.store(before + i, scaled);
        return acc + e;
      });
}

/// w (softmax(x) - (c == target)) to dx, up to what `row` says is left to do, and what loss_rows needs of the row. What was left
/// of the row before is done. w = 0: zeros, also beside a NaN.
template <class T>
__attribute__((noinline)) RowSum<T> gradient_of_row(const T* x, int64_t cols, int64_t target, T w, T* dx,
                                                    Unscaled<T>& row) {
  const T shift = finite_shift(max_of_row(x, cols));
  T sum;
  if (row.dx != nullptr) {
    sum = exponentials_of_row<true>(x, cols, shift, dx, row.last, row.dx, row.scale);
    row.dx[row.target] = row.at_target;
    row.dx = nullptr;
  } else {
    sum = exponentials_of_row<false>(x, cols, shift, dx, row.last, dx, T(1));
  }
  if (w == T(0) || sum == T(0)) {  // an all -infinity row: loss NaN, gradient 0
    for_each_vector<T>(0, cols, [=](auto lanes, int64_t i) { lanes.store(dx + i, Vec<T>::zero()); });
    return {shift, sum};
  }
  const T inverse = T(1) / sum;
  row = {row.last, dx, w * inverse, w * (dx[target] * inverse - T(1)), target};
  return {shift, sum};
}

/// The same for a tile of short rows, whose exponentials are in dx, to the bit; log of the sums. False, with dx still to be
/// written, if some row is ignored or all -infinity.
template <class T, class Index>
__attribute__((noinline)) bool gradient_of_short_rows(const ShortRows<T>& tile, int64_t cols, const Index* target,
                                                      int64_t ignore, T w, T* log_sums, T* dx) {
  using V = Vec<T>;
  V sum;
  tile.sums(dx, 1, &sum);
  alignas(kVectorBytes) T at_target[V::width], sums[V::width];
  sum.store(sums);
  for (int k = 0; k < V::width; ++k) {
    if (target[k] == ignore || sums[k] == T(0)) return false;
    at_target[k] = dx[k * cols + target[k]];
  }
  log(sum).store(log_sums);
  const V one = V::broadcast(1), inverse = one / sum;
  (V::broadcast(w) * (V::load(at_target) * inverse - one)).store(at_target);
  const V scale = V::broadcast(w) * inverse;
  tile.scale(dx, 1, &scale);
  for (int k = 0; k < V::width; ++k) dx[k * cols + target[k]] = at_target[k];
  return true;
}

/// w (softmax(x) - (c == target)) to dx, and the shift and log of the sum of up to kLogRows rows.
template <class T, class Index>
void gradient_rows(const ShortRows<T>& tile, const T* x, int64_t rows, int64_t cols, const Index* target,
                   int64_t ignore, T w, T* shifts, T* log_sums, T* dx, Unscaled<T>& unscaled) {
  using Tile = ShortRows<T>;
  const int64_t tiles = tile.fit() && w != T(0) ? rows / Tile::kRows : 0;
  Vec<T> shift[Tile::kTogether];
  if (tiles > 0) {
    tile.shifts(x, tiles, shift);
    tile.exponentials(x, tiles, shift, T(1), dx);
  }
  for (int64_t first = 0; first < rows; first += Tile::kRows) {
    const int64_t t = first / Tile::kRows;
    if (t < tiles) {
      shift[t].store(shifts + first);
      if (gradient_of_short_rows(tile, cols, target + first, ignore, w, log_sums + first, dx + first * cols)) continue;
    }
    log_sum_exp_rows(
        min<int64_t>(Tile::kRows, rows - first), shifts + first, log_sums + first, [=, &unscaled](int64_t k) {
          const int64_t r = first + k, wanted = target[r];
          const bool counts = wanted != ignore;
          return gradient_of_row(x + r * cols, cols, counts ? wanted : 0, counts ? w : T(0), dx + r * cols, unscaled);
        });
  }
}

/// loss = (max - x[target]) + log sum exp(x - max): both terms are small where the loss is, however large the logits are.
/// dx: null, or for the gradient of w times the sum.
template <class T, class Index>
void loss_rows(const T* x, int64_t rows, int64_t cols, const Index* target, int64_t ignore, T* loss, T* lse, T w,
               T* dx) {
  const ShortRows<T> tile(rows, cols);
  Unscaled<T> unscaled{.last = dx == nullptr ? nullptr : dx + rows * cols - 1};
  for (int64_t first = 0; first < rows; first += kLogRows<T>) {
    const int64_t count = min(kLogRows<T>, rows - first);
    const T* const from = x + first * cols;
    T shifts[kLogRows<T>], log_sums[kLogRows<T>];  // log sum: -infinity if all entries of the row are
    if (dx == nullptr) {
      log_sum_exp_rows(from, count, cols, T(1), tile, shifts, log_sums);
    } else {
      gradient_rows(tile, from, count, cols, target + first, ignore, w, shifts, log_sums, dx + first * cols, unscaled);
    }
    for (int64_t k = 0; k < count; ++k) {
      const int64_t r = first + k;
      lse[r] = shifts[k] + log_sums[k];
      loss[r] = target[r] == ignore ? T(0) : (shifts[k] - x[r * cols + target[r]]) + log_sums[k];
    }
  }
  unscaled.finish(cols);
}

template <class Index>
int64_t count_others(const Index* index, int64_t n, int64_t value) {
  int64_t count = 0;
  for (int64_t i = 0; i < n; ++i) count += index[i] != value;
  return count;
}

}  // namespace

void CpuOps::cross_entropy(const Array& logits, const Array& target, int64_t ignore, const Array& loss,
                           const Array& lse, const Array* dlogits) {
  const int64_t rows = logits.shape[0], cols = logits.shape[1];
  const bool mean = loss.rank() == 0;
  dispatch_floating(logits.dtype, [&]<class T>() {
    dispatch_index(target.dtype, [&]<class Index>() {
      const T* const x = logits.as<T>();
      const Index* const wanted = target.as<Index>();
      const Scratch room(mean ? static_cast<std::size_t>(rows) * sizeof(T) : 0);
      T *const each = mean ? room.as<T>() : loss.as<T>(), *const lses = lse.as<T>();
      const T count = mean ? static_cast<T>(count_others(wanted, rows, ignore)) : T(1);
      T* const dx = dlogits != nullptr ? dlogits->as<T>() : nullptr;
      parallel_for(rows, rows_per_chunk(cols), [=](int64_t begin, int64_t end) {
        loss_rows(x + begin * cols, end - begin, cols, wanted + begin, ignore, each + begin, lses + begin, T(1) / count,
                  dx != nullptr ? dx + begin * cols : nullptr);
      });
      if (!mean) return;
      Array all = loss, total = loss;
      all.data = each;
      all.size = rows;
      all.shape = {rows};
      total.shape = {1};
      all.strides[0] = total.strides[0] = 1;
      reduce(ReduceOp::sum, all, total, nullptr);
      lses[rows] = count;
      *loss.as<T>() /= count;
    });
  });
}

void CpuOps::cross_entropy_scale(const Array& lse, const Array& target, int64_t ignore, const Array& dloss,
                                 const Array& dlogits) {
  const int64_t rows = dlogits.shape[0], cols = dlogits.shape[1];
  const int64_t stride = dloss.rank() == 0 ? 0 : dloss.strides[0];
  dispatch_floating(dlogits.dtype, [&]<class T>() {
    const T *const lses = lse.as<T>(), *const grads = dloss.as<T>();
    T* const dx = dlogits.as<T>();
    if (stride == 0 && *grads == T(1)) return;
    if (stride == 0 && *grads > T(0) && *grads < kInfinity<T>) {  // zeros stay: rows need not be told apart
      const int64_t size = rows * cols;
      parallel_for(size, even_chunk(size), [=, factor = *grads](int64_t begin, int64_t end) {
        const Vec<T> scale = Vec<T>::broadcast(factor);
        for_each_vector<T>(begin, end, [=](auto lanes, int64_t i) { lanes.store(dx + i, lanes.load(dx + i) * scale); });
      });
      return;
    }
    dispatch_index(target.dtype, [&]<class Index>() {
      const Index* const wanted = target.as<Index>();
      parallel_for(rows, rows_per_chunk(cols), [=](int64_t begin, int64_t end) {
        for (int64_t r = begin; r < end; ++r) {
          if (wanted[r] == ignore || lses[r] == -kInfinity<T>) continue;  // stays 0, whatever dloss is
          T* const row = dx + r * cols;
          const Vec<T> scale = Vec<T>::broadcast(grads[r * stride]);
          for_each_vector<T>(0, cols,
                             [=](auto lanes, int64_t i) { lanes.store(row + i, lanes.load(row + i) * scale); });
        }
      });
    });
  });
}

}  // namespace reel::cpu::REEL_CPU_ISA
