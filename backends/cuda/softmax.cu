// Softmax along rows without gaps, and cross entropy with its softmax. A warp or a block takes a row; what fits is kept in
// shared memory between the passes (greatest element, sum of exponentials, result): one read and one write. Each thread
// reads back only what it put there itself. Softmax down columns: segment_softmax.cu.

#include "reel/backends/cuda/group.h"
#include "reel/backends/cuda/softmax.h"

namespace reel::cuda {

namespace device {
namespace {

/// The row's threads, a place for joining, and one for the row (null: it does not fit).
template <class T>
struct RowMemory {
  RowGroup group;
  T* scratch;
  T* row;

  REEL_DEVICE RowMemory(RowGroup g, T* shared, int64_t n, bool staged)
      : group(g), scratch(shared), row(staged ? shared + kWarp + g.in_block() * n : nullptr) {}

  template <class F>
  REEL_DEVICE void each(int64_t n, F f) const {
    for (int64_t i = group.lane(); i < n; i += group.width()) f(i);
  }
  REEL_DEVICE T max_of(const T* x, int64_t n) const {
    T greatest = -scalar::infinity<T>();
    each(n, [&](int64_t i) {
      const T value = x[i];
      if (row != nullptr) row[i] = value;
      greatest = larger(greatest, value);
    });
    return group.join(greatest, scratch, [](T a, T b) { return larger(a, b); });
  }
  template <class F>
  REEL_DEVICE T sum_of(int64_t n, F f) const {
    T sum = 0;
    each(n, [&](int64_t i) { sum += f(i); });
    return group.join(sum, scratch, [](T a, T b) { return a + b; });
  }
};

/// y = softmax or log_softmax of x / temperature = x rate; x, y [rows, n].
template <class T>
__global__ void softmax_rows(SoftmaxOp op, const T* x, T* y, int64_t rows, int64_t n, T rate, bool staged,
                             RowGroup group) {
  REEL_DYNAMIC_SHARED(T, shared);
  const RowMemory<T> memory(group, shared, n, staged);
  for (int64_t r = group.first(); r < rows; r += group.step()) {
    const T* const from = x + r * n;
    T* const to = y + r * n;
    const T shift = finite_shift(memory.max_of(from, n));
    const T* const values = staged ? memory.row : from;
    const bool keeps = staged && op == SoftmaxOp::softmax;  // the exponentials
    const T sum = memory.sum_of(n, [&](int64_t i) {
      const T e = scalar::exp((values[i] - shift) * rate);
      if (keeps) memory.row[i] = e;
      return e;
    });
    const T correction = softmax_correction(op, sum);
    memory.each(n, [&](int64_t i) {
      to[i] = keeps ? values[i] * correction : softmax_result(op, (values[i] - shift) * rate, correction);
    });
  }
}

/// dx = y (dy - sum(y dy)) rate, or (dy - exp(y) sum(dy)) rate for log_softmax, where a row of -infinity has none.
template <class T>
__global__ void softmax_backward_rows(SoftmaxOp op, const T* y, const T* dy, T* dx, int64_t rows, int64_t n, T rate,
                                      RowGroup group) {
  REEL_DYNAMIC_SHARED(T, shared);
  const RowMemory<T> memory(group, shared, n, false);
  for (int64_t r = group.first(); r < rows; r += group.step()) {
    const T *const value = y + r * n, *const grad = dy + r * n;
    T* const to = dx + r * n;
    const T sum = memory.sum_of(n, [&](int64_t i) { return softmax_gradient_term(op, value[i], grad[i]); });
    T reachable = 1;
    if (op == SoftmaxOp::log_softmax)
      reachable = memory.sum_of(n, [&](int64_t i) { return value[i] == -scalar::infinity<T>() ? T(0) : T(1); });
    memory.each(
        n, [&](int64_t i) { to[i] = reachable == T(0) ? T(0) : softmax_gradient(op, value[i], grad[i], sum) * rate; });
  }
}

/// loss = (max - x[target]) + log sum exp(x - max): both terms are small where the loss is, however large the logits are.
template <class T, class Index>
__global__ void cross_entropy(const T* x, const Index* target, int64_t ignore, T* loss, T* lse, int64_t rows, int64_t n,
                              bool staged, RowGroup group) {
  REEL_DYNAMIC_SHARED(T, shared);
  const RowMemory<T> memory(group, shared, n, staged);
  for (int64_t r = group.first(); r < rows; r += group.step()) {
    const T* const from = x + r * n;
    const T shift = finite_shift(memory.max_of(from, n));
    const T* const values = staged ? memory.row : from;
    const T log_sum = scalar::log(memory.sum_of(n, [&](int64_t i) { return scalar::exp(values[i] - shift); }));
    if (group.lane() != 0) continue;
    lse[r] = shift + log_sum;
    const int64_t wanted = target[r];
    if (wanted == ignore) loss[r] = 0;
    else loss[r] = wanted >= 0 && wanted < n ? (shift - from[wanted]) + log_sum : scalar::quiet_nan<T>();
  }
}

/// dx = grad (exp(x - lse) - (c == target)). Where lse is large its rounding error is that of every exponent: the row is
/// divided by its sum then.
template <class T, class Index>
__global__ void cross_entropy_backward(const T* x, const Index* target, int64_t ignore, const T* lse, const T* dloss,
                                       int64_t dloss_stride, T* dx, int64_t rows, int64_t n, RowGroup group) {
  REEL_DYNAMIC_SHARED(T, shared);
  const RowMemory<T> memory(group, shared, n, false);
  for (int64_t r = group.first(); r < rows; r += group.step()) {
    const T* const from = x + r * n;
    T* const to = dx + r * n;
    const T level = lse[r];
    const int64_t wanted = target[r];
    if (wanted == ignore || level == -scalar::infinity<T>()) {  // an all -infinity row: loss NaN, gradient 0
      memory.each(n, [&](int64_t i) { to[i] = 0; });
      continue;
    }
    T inverse = 1;
    if (level > T(8) || level < T(-8))
      inverse = T(1) / memory.sum_of(n, [&](int64_t i) { return scalar::exp(from[i] - level); });
    const T grad = dloss[r * dloss_stride];
    memory.each(
        n, [&](int64_t i) { to[i] = grad * (scalar::exp(from[i] - level) * inverse - (i == wanted ? T(1) : T(0))); });
  }
}

}  // namespace
}  // namespace device

namespace {

/// The launch for rows of n elements, staged in shared memory where they fit.
template <class T>
Grid softmax_grid(const Context& context, int64_t rows, int64_t n, device::RowGroup& group, bool* staged) {
  Grid grid = row_grid(context, rows, n, group.whole_block);
  const int64_t in_block = group.whole_block ? 1 : grid.threads / device::kWarp;
  const int64_t bytes = in_block * n * static_cast<int64_t>(sizeof(T));
  const bool fits = bytes <= (40 << 10);
  if (staged != nullptr) *staged = fits;
  grid.shared_bytes = device::kWarp * sizeof(T) + (staged != nullptr && fits ? static_cast<std::size_t>(bytes) : 0);
  return grid;
}

}  // namespace

void CudaOps::softmax(SoftmaxOp op, const Array& x, int axis, double temperature, const Array& y) {
  if (x.size == 0) return;
  const Blocks blocks(x.shape, axis);
  dispatch_floating(x.dtype, [&]<class T>() {
    const T rate = static_cast<T>(1 / temperature);
    if (blocks.inner > 1) {
      softmax_columns<T>(context_, op, x.as<T>(), y.as<T>(), blocks.outer, {nullptr, blocks.n}, blocks.n, blocks.inner,
                         rate);
      return;
    }
    device::RowGroup group{};
    bool staged = false;
    const Grid grid = softmax_grid<T>(context_, blocks.outer, blocks.n, group, &staged);
    launch(context_, "softmax", grid, &device::softmax_rows<T>, op, x.as<T>(), y.as<T>(), blocks.outer, blocks.n, rate,
           staged, group);
  });
}

void CudaOps::softmax_backward(SoftmaxOp op, const Array& y, const Array& dy, int axis, double temperature,
                               const Array& dx) {
  if (y.size == 0) return;
  const Blocks blocks(y.shape, axis);
  dispatch_floating(y.dtype, [&]<class T>() {
    const T rate = static_cast<T>(1 / temperature);
    if (blocks.inner > 1) {
      softmax_backward_columns<T>(context_, op, y.as<T>(), dy.as<T>(), dx.as<T>(), blocks.outer, {nullptr, blocks.n},
                                  blocks.n, blocks.inner, rate);
      return;
    }
    device::RowGroup group{};
    const Grid grid = softmax_grid<T>(context_, blocks.outer, blocks.n, group, nullptr);
    launch(context_, "softmax_backward", grid, &device::softmax_backward_rows<T>, op, y.as<T>(), dy.as<T>(), dx.as<T>(),
           blocks.outer, blocks.n, rate, group);
  });
}

void CudaOps::cross_entropy(const Array& logits, const Array& target, std::int64_t ignore, const Array& loss,
                            const Array& lse) {
  const int64_t rows = logits.shape[0], n = logits.shape[1];
  dispatch_floating(logits.dtype, [&]<class T>() {
    dispatch_index(target.dtype, [&]<class Index>() {
      device::RowGroup group{};
      bool staged = false;
      const Grid grid = softmax_grid<T>(context_, rows, n, group, &staged);
      launch(context_, "cross_entropy", grid, &device::cross_entropy<T, Index>, logits.as<T>(), target.as<Index>(),
             ignore, loss.as<T>(), lse.as<T>(), rows, n, staged, group);
    });
  });
}

void CudaOps::cross_entropy_backward(const Array& logits, const Array& target, std::int64_t ignore, const Array& lse,
                                     const Array& dloss, const Array& dlogits) {
  const int64_t rows = logits.shape[0], n = logits.shape[1];
  dispatch_floating(logits.dtype, [&]<class T>() {
    dispatch_index(target.dtype, [&]<class Index>() {
      device::RowGroup group{};
      const Grid grid = softmax_grid<T>(context_, rows, n, group, nullptr);
      launch(context_, "cross_entropy_backward", grid, &device::cross_entropy_backward<T, Index>, logits.as<T>(),
             target.as<Index>(), ignore, lse.as<T>(), dloss.as<T>(), dloss.strides[0], dlogits.as<T>(), rows, n, group);
    });
  });
}

}  // namespace reel::cuda
