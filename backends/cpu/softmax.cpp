// Softmax over one axis. x is [outer, n, inner]: along rows where inner is 1, else down the columns of each [n, inner] block.

#include "reel/backends/cpu/cpu_ops.h"
#include "reel/backends/cpu/softmax_columns.h"
#include "reel/backends/cpu/softmax_rows.h"

namespace reel::cpu::REEL_CPU_ISA {
namespace {

struct Layout {
  int64_t outer = 1, n = 1, inner = 1;

  Layout(const Shape& shape, int axis) {
    for (int i = 0; i < axis; ++i) outer *= shape[i];
    n = shape[axis];
    for (int i = axis + 1; i < shape.rank(); ++i) inner *= shape[i];
  }
};

// An exponential costs as much as several plain operations. Of two chunks two threads take 0.7 to 1.0 of one's time, backward,
// without exponentials, 1.1 to 1.8 (rows of 64; benchmark_grains).
constexpr int64_t kSoftmaxGrain = kGrain / 4;

/// rows(offset, count) for pieces of the rows.
template <class F>
REEL_INLINE void for_each_rows(const Layout& layout, F rows) {
  parallel_for(layout.outer, max<int64_t>(1, kSoftmaxGrain / layout.n),
               [&](int64_t begin, int64_t end) { rows(begin * layout.n, end - begin); });
}

/// columns(offset, begin, end) for pieces of the columns of each block, and finish() at a task's end.
template <class F, class Finish = Nothing>
REEL_INLINE void for_each_block(const Layout& layout, F columns, Finish finish = {}) {
  const int64_t piece = even_chunk(layout.inner, max<int64_t>(64, kSoftmaxGrain / layout.n));
  const int64_t pieces = ceil_div(layout.inner, piece);
  const int64_t units = max<int64_t>(1, kSoftmaxGrain / (layout.n * piece));
  parallel_for(layout.outer * pieces, units, [&](int64_t begin, int64_t end) {
    for (int64_t unit = begin; unit < end; ++unit) {
      const int64_t first = unit % pieces * piece;
      columns(unit / pieces * layout.n * layout.inner, first, min(first + piece, layout.inner));
    }
    finish();
  });
}

}  // namespace

void CpuOps::softmax(SoftmaxOp op, const Array& x, int axis, double temperature, const Array& y) {
  if (x.size == 0) return;
  const Layout layout(x.shape, axis);
  dispatch_floating(x.dtype, [&]<class T>() {
    const T* const from = x.as<T>();
    T* const to = y.as<T>();
    const T rate = static_cast<T>(1 / temperature);
    if (layout.inner > 1) {
      for_each_block(layout, [=](int64_t offset, int64_t begin, int64_t end) {
        SoftmaxColumns<T>{op, from + offset, to + offset, layout.inner, rate}.run(layout.n, begin, end);
      });
    } else if (op == SoftmaxOp::softmax) {
      for_each_rows(layout, [=](int64_t offset, int64_t count) {
        softmax_rows(from + offset, to + offset, count, layout.n, rate);
      });
    } else {
      for_each_rows(layout, [=](int64_t offset, int64_t count) {
        log_softmax_rows(from + offset, to + offset, count, layout.n, rate);
      });
    }
  });
}

void CpuOps::softmax_backward(SoftmaxOp op, const Array& y, const Array& dy, int axis, double temperature,
                              const Array& dx) {
  if (y.size == 0) return;
  const Layout layout(y.shape, axis);
  dispatch_floating(y.dtype, [&]<class T>() {
    const T *const value = y.as<T>(), *const grad = dy.as<T>();
    T* const to = dx.as<T>();
    const T rate = static_cast<T>(1 / temperature);
    if (layout.inner > 1) {
      const RowStream<T> writer(to, dx.size, layout.inner);
      const auto columns = [=](int64_t offset, int64_t begin, int64_t end) {
        const T *const v = value + offset, *const g = grad + offset;
        SoftmaxGradientColumns<T>{op, v, g, to + offset, layout.inner, rate, writer}.run(layout.n, begin, end);
      };
      for_each_block(layout, columns, [=] { writer.finish(); });
    } else {
      for_each_rows(layout, [=](int64_t offset, int64_t count) {
        softmax_backward_rows(op, value + offset, grad + offset, to + offset, count, layout.n, rate);
      });
    }
  });
}

}  // namespace reel::cpu::REEL_CPU_ISA
