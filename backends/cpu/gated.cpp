#include "reel/backends/cpu/cpu_ops.h"
#include "reel/backends/cpu/long_formula.h"
#include "reel/backends/cpu/unary_runs.h"
#include "reel/core/scalar/gates.h"

// Each row of x is a | b, the row of y is a f(b): in f32 by the formulas of core/scalar/gates.h. In f64, and backwards, f and f' are
// the loops of the elementwise kernels, run over pieces of a row that stay in the first-level cache until they are multiplied.

namespace reel::cpu::REEL_CPU_ISA {

namespace {

constexpr int64_t kPiece = 512;

UnaryOp function_of(GateOp op) {
  return op == GateOp::sigmoid ? UnaryOp::sigmoid : op == GateOp::gelu ? UnaryOp::gelu : UnaryOp::silu;
}

template <class Gate>
void run_gate(const float* a, const float* b, float* y, int64_t count) {
  float seen = 0;  // NaN once there is a result that is not finite
#pragma omp simd reduction(+ : seen)
  for (int64_t j = 0; j < count; ++j) {
    y[j] = Gate::exact(a[j], b[j]);
    seen = scalar::fma(y[j], 0.0f, seen);
  }
  if (seen == 0) return;
#pragma omp simd
  for (int64_t j = 0; j < count; ++j) y[j] = Gate::forward(a[j], b[j]);
}

auto gate_of(GateOp op) {
  return op == GateOp::sigmoid ? run_gate<scalar::SigmoidGate>
         : op == GateOp::gelu  ? run_gate<scalar::GeluGate>
                               : run_gate<scalar::SiluGate>;
}

template <class T>
REEL_INLINE void multiply(const T* a, const T* b, T* y, int64_t count) {
#pragma omp simd
  for (int64_t j = 0; j < count; ++j) y[j] = a[j] * b[j];
}

/// f(row, column, count) for pieces of columns that together are all of [rows, n]. (On a Zen 3 an element
/// takes 2 to 4 ns in rows of geglu, and 1 in gelu: hence half as many for a task.)
template <class F>
REEL_INLINE void for_each_piece(DType dtype, int64_t rows, int64_t n, F f) {
  if (rows * n == 0) return;
  const int64_t piece = even_chunk(n, kPiece), pieces = ceil_div(n, piece);
  parallel_for(rows * pieces, max<int64_t>(1, alone_with_formula(dtype) / 2 / piece), [=](int64_t begin, int64_t end) {
    for (int64_t unit = begin; unit < end; ++unit) {
      const int64_t column = unit % pieces * piece;
      f(unit / pieces, column, min(piece, n - column));
    }
  });
}

}  // namespace

void CpuOps::gated(GateOp op, const Array& x, const Array& y) {
  const int64_t n = y.shape.back();
  const Run function = unary_run(function_of(op), x.dtype);
  const auto gate = gate_of(op);
  dispatch_floating(x.dtype, [&]<class T>() {
    const T* const from = x.as<T>();
    T* const to = y.as<T>();
    for_each_piece(x.dtype, y.shape[0], n, [=](int64_t row, int64_t column, int64_t count) {
      const T *const a = from + 2 * row * n + column, *const b = a + n;
      T* const result = to + row * n + column;
      if constexpr (sizeof(T) == sizeof(float)) {
        gate(a, b, result, count);
      } else {
        function(b, b, result, count);
        multiply(a, result, result, count);
      }
    });
  });
}

void CpuOps::gated_backward(GateOp op, const Array& x, const Array& dy, const Array& dx) {
  const int64_t n = dy.shape.back();
  const Run function = unary_run(function_of(op), x.dtype), slope = unary_backward_run(function_of(op), x.dtype);
  const bool of_output = op == GateOp::sigmoid;  // what its derivative is a function of
  dispatch_floating(x.dtype, [&]<class T>() {
    const T *const from = x.as<T>(), *const grads = dy.as<T>();
    T* const to = dx.as<T>();
    for_each_piece(x.dtype, dy.shape[0], n, [=](int64_t row, int64_t column, int64_t count) {
      alignas(64) T value[kPiece], product[kPiece];
      const T *const a = from + 2 * row * n + column, *const b = a + n, *const grad = grads + row * n + column;
      T *const da = to + 2 * row * n + column, *const db = da + n;
      function(b, b, value, count);
      multiply(grad, value, da, count);
      multiply(grad, a, product, count);
      slope(of_output ? value : b, product, db, count);
    });
  });
}

}  // namespace reel::cpu::REEL_CPU_ISA
