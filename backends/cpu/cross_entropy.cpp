// Cross entropy with its softmax: forward reads the logits and keeps log sum exp of each row, backward reads them again.
// Probabilities are never stored.

#include "reel/backends/cpu/cpu_ops.h"
#include "reel/backends/cpu/softmax_rows.h"
#include "reel/core/scratch.h"

namespace reel::cpu::REEL_CPU_ISA {
namespace {

constexpr int64_t kLossGrain = kGrain / 4;

REEL_INLINE int64_t rows_per_chunk(int64_t cols) { return max<int64_t>(1, kLossGrain / max<int64_t>(cols, 8)); }

/// loss = (max - x[target]) + log sum exp(x - max): both terms are small where the loss is, however large the logits are.
template <class T, class Index>
void loss_rows(const T* x, int64_t rows, int64_t cols, const Index* target, int64_t ignore, T* loss, T* lse) {
  for (int64_t first = 0; first < rows; first += kLogRows<T>) {
    const int64_t count = min(kLogRows<T>, rows - first);
    T shifts[kLogRows<T>], log_sums[kLogRows<T>];  // log sum: -infinity if all entries of the row are
    log_sum_exp_rows(x + first * cols, count, cols, T(1), shifts, log_sums);
    for (int64_t k = 0; k < count; ++k) {
      const int64_t r = first + k;
      lse[r] = shifts[k] + log_sums[k];
      loss[r] = target[r] == ignore ? T(0) : (shifts[k] - x[r * cols + target[r]]) + log_sums[k];
    }
  }
}

template <class Index>
int64_t count_others(const Index* index, int64_t n, int64_t value) {
  int64_t count = 0;
  for (int64_t i = 0; i < n; ++i) count += index[i] != value;
  return count;
}

/// Writes grad (exp(x - lse) - (c == target)).
///
/// lse is rounded, and where it is large its error is that of every exponent. As the error is the same for the whole row,
/// dividing by the sum of the exponentials removes it; below 8 it is at most 4 ULP and that pass is saved.
template <class T>
__attribute__((noinline)) void gradient_row(const T* x, int64_t cols, int64_t target, T lse, T grad, T* dx) {
  const auto exponential = [=](Vec<T> v) __attribute__((always_inline)) {
    return exp_negative(v - Vec<T>::broadcast(lse));
  };
  if (lse > T(8) || lse < T(-8)) {
    const T sum = sum_row<T>(
        cols, [=](Vec<T> acc, auto lanes, int64_t i) __attribute__((always_inline)) {
          const Vec<T> e = exponential(lanes.load_for_max(x + i));
          lanes.store(dx + i, e);
          return acc + e;
        });
    const T inverse = T(1) / sum, at_target = grad * (dx[target] * inverse - T(1));
    const Vec<T> scale = Vec<T>::broadcast(grad * inverse);
    for_each_vector<T>(0, cols, [=](auto lanes, int64_t i) { lanes.store(dx + i, lanes.load(dx + i) * scale); });
    dx[target] = at_target;
    return;
  }
  const Vec<T> scale = Vec<T>::broadcast(grad);
  for_each_vector<T>(
      0, cols, [=](auto lanes, int64_t i) __attribute__((always_inline)) {
        lanes.store(dx + i, exponential(lanes.load(x + i)) * scale);
      });
  dx[target] = grad * (exponential(Vec<T>::broadcast(x[target])).raw[0] - T(1));
}

}  // namespace

void CpuOps::cross_entropy(const Array& logits, const Array& target, int64_t ignore, const Array& loss,
                           const Array& lse) {
  const int64_t rows = logits.shape[0], cols = logits.shape[1];
  if (loss.rank() == 0) {
    const Scratch room(static_cast<std::size_t>(rows) * size_of(loss.dtype));
    Array losses = loss, total = loss;
    losses.data = room.as<void>();
    losses.size = rows;
    losses.shape = {rows};
    total.shape = {1};
    losses.strides[0] = total.strides[0] = 1;
    cross_entropy(logits, target, ignore, losses, lse);
    reduce(ReduceOp::sum, losses, total, nullptr);
    dispatch_floating(loss.dtype, [&]<class T>() {
      const T count = static_cast<T>(
          dispatch_index(target.dtype, [&]<class Index>() { return count_others(target.as<Index>(), rows, ignore); }));
      lse.as<T>()[rows] = count;
      *loss.as<T>() /= count;
    });
    return;
  }
  dispatch_floating(logits.dtype, [&]<class T>() {
    dispatch_index(target.dtype, [&]<class Index>() {
      const T* const x = logits.as<T>();
      const Index* const wanted = target.as<Index>();
      T *const losses = loss.as<T>(), *const lses = lse.as<T>();
      parallel_for(rows, rows_per_chunk(cols), [=](int64_t begin, int64_t end) {
        loss_rows(x + begin * cols, end - begin, cols, wanted + begin, ignore, losses + begin, lses + begin);
      });
    });
  });
}

void CpuOps::cross_entropy_backward(const Array& logits, const Array& target, int64_t ignore, const Array& lse,
                                    const Array& dloss, const Array& dlogits) {
  const int64_t rows = logits.shape[0], cols = logits.shape[1];
  const bool mean = dloss.rank() == 0;
  const int64_t stride = mean ? 0 : dloss.strides[0];
  dispatch_floating(logits.dtype, [&]<class T>() {
    dispatch_index(target.dtype, [&]<class Index>() {
      const T *const x = logits.as<T>(), *const lses = lse.as<T>(), *const grads = dloss.as<T>();
      const Index* const wanted = target.as<Index>();
      T* const dx = dlogits.as<T>();
      const T of_mean = mean ? grads[0] / lses[rows] : T(0);
      parallel_for(rows, rows_per_chunk(cols), [=](int64_t begin, int64_t end) {
        for (int64_t r = begin; r < end; ++r) {
          T* const row = dx + r * cols;
          if (wanted[r] == ignore || lses[r] == -kInfinity<T>) {  // an all -infinity row: loss NaN, gradient 0
            for (int64_t c = 0; c < cols; ++c) row[c] = 0;
          } else {
            gradient_row<T>(x + r * cols, cols, wanted[r], lses[r], mean ? of_mean : grads[r * stride], row);
          }
        }
      });
    });
  });
}

}  // namespace reel::cpu::REEL_CPU_ISA
