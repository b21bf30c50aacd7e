#include "reel/backends/cpu/cpu_ops.h"
#include "reel/backends/cpu/kernel.h"
#include "reel/core/scalar/unary.h"

// Each row of x is a | b, the row of y is a f(b). Rows are cut into pieces of columns where they are long.

namespace reel::cpu::REEL_CPU_ISA {

namespace {

/// f and f' of an op whose derivative is one of the input or of the output.
template <class Op>
struct Gate {
  template <class T>
  REEL_INLINE static T derivative(T b, T value) {
    return Op::derivative(Op::saved == scalar::Saved::output ? value : b);
  }
};

template <class Op, class T>
void forward(const T* a, const T* b, T* y, int64_t count) {
#pragma omp simd
  for (int64_t j = 0; j < count; ++j) y[j] = a[j] * Op::forward(b[j]);
}

template <class Op, class T>
void backward(const T* a, const T* b, const T* dy, T* da, T* db, int64_t count) {
#pragma omp simd
  for (int64_t j = 0; j < count; ++j) {
    const T value = Op::forward(b[j]);
    db[j] = dy[j] * a[j] * Gate<Op>::derivative(b[j], value);
    da[j] = dy[j] * value;
  }
}

template <class F>
REEL_INLINE void dispatch_gate(GateOp op, F&& f) {
  if (op == GateOp::sigmoid) return f.template operator()<scalar::Sigmoid>();
  if (op == GateOp::gelu) return f.template operator()<scalar::Gelu>();
  return f.template operator()<scalar::Silu>();
}

/// f(row, column, count) for runs of columns that together are all of [rows, n].
template <class F>
REEL_INLINE void for_each_piece(int64_t rows, int64_t n, F&& f) {
  if (rows * n == 0) return;
  const int64_t piece = even_chunk(n), pieces = ceil_div(n, piece);
  parallel_for(rows * pieces, max<int64_t>(1, kGrain / piece), [&](int64_t begin, int64_t end) {
    for (int64_t unit = begin; unit < end; ++unit) {
      const int64_t column = unit % pieces * piece;
      f(unit / pieces, column, min(piece, n - column));
    }
  });
}

}  // namespace

void CpuOps::gated(GateOp op, const Array& x, const Array& y) {
  const int64_t n = y.shape.back();
  dispatch_floating(x.dtype, [&]<class T>() {
    dispatch_gate(op, [&]<class Op>() {
      for_each_piece(y.shape[0], n, [&](int64_t row, int64_t column, int64_t count) {
        const T* const a = x.as<T>() + 2 * row * n + column;
        forward<Op>(a, a + n, y.as<T>() + row * n + column, count);
      });
    });
  });
}

void CpuOps::gated_backward(GateOp op, const Array& x, const Array& dy, const Array& dx) {
  const int64_t n = dy.shape.back();
  dispatch_floating(x.dtype, [&]<class T>() {
    dispatch_gate(op, [&]<class Op>() {
      for_each_piece(dy.shape[0], n, [&](int64_t row, int64_t column, int64_t count) {
        const T* const a = x.as<T>() + 2 * row * n + column;
        T* const da = dx.as<T>() + 2 * row * n + column;
        backward<Op>(a, a + n, dy.as<T>() + row * n + column, da, da + n, count);
      });
    });
  });
}

}  // namespace reel::cpu::REEL_CPU_ISA
