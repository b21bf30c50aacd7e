// Recurrent cells: one step for n rows, which do not depend on each other. A row's gates lie side by side, each h numbers:
// i f g o (LSTM) or r z n (GRU), as PyTorch has them. The nonlinearities run over whole gates, the rest is one loop over h. Rows go
// through a step's stages together: a row alone would wait for the one before, a nonlinearity takes a hundred cycles.

#include "reel/backends/cpu/cpu_ops.h"
#include "reel/backends/cpu/piecewise_tables.h"
#include "reel/backends/cpu/vector_loops.h"
#include "reel/core/scalar/tanh.h"

namespace reel::cpu::REEL_CPU_ISA {
namespace {

template <class T>
REEL_INLINE Vec<T> sigmoid(Vec<T> x) {
  return each_lane(
      x, [](T lane) __attribute__((always_inline)) { return scalar::sigmoid(lane); });
}
template <class T>
REEL_INLINE Vec<T> tanh(Vec<T> x) {
  return each_lane(
      x, [](T lane) __attribute__((always_inline)) { return scalar::tanh(lane); });
}
#if defined(REEL_SIMD_AVX512)
// The bits of the ops of these names, by their tables.
static_assert(kSigmoid.function.high == kInfinity<float> && kTanh.function.high == kInfinity<float> &&
              kTanh.function.low == -kInfinity<float> && kTanh.function.rest == 0);
REEL_INLINE Vec<float> sigmoid(Vec<float> x) {
  const Vec<float> y = value_of(kSigmoid, smaller_magnitude(x, Vec<float>::broadcast(kSigmoid.function.limit)));
  const __mmask16 known = _mm512_cmp_ps_mask(x.raw, _mm512_set1_ps(kSigmoid.function.low), _CMP_GE_OQ);
  if (known == 0xffff) return y;
  return {_mm512_mask_mov_ps(sigmoid<float>(x).raw, known, y.raw)};
}
REEL_INLINE Vec<float> tanh(Vec<float> x) {
  const Vec<float> near = smaller_magnitude(x, Vec<float>::broadcast(kTanh.function.limit));
  const Vec<float> y = smaller_magnitude(near * value_of(kTanh, near), Vec<float>::broadcast(1));
  return {_mm512_mask_mov_ps(y.raw, _mm512_cmp_ps_mask(x.raw, x.raw, _CMP_UNORD_Q), x.raw)};
}
#endif

// Not inlined: one copy of each serves all cells.
template <class T>
__attribute__((noinline)) void sigmoid_of_sum(const T* a, const T* b, T* y, int64_t n) {
  for_each_vector<T>(
      0, n, [=](auto lanes, int64_t i) { lanes.store(y + i, sigmoid(lanes.load(a + i) + lanes.load(b + i))); });
}
template <class T>
__attribute__((noinline)) void tanh_run(const T* x, T* y, int64_t n) {
  for_each_vector<T>(0, n, [=](auto lanes, int64_t i) { lanes.store(y + i, tanh(lanes.load(x + i))); });
}
template <class T>
__attribute__((noinline)) void add_run(const T* a, const T* b, T* y, int64_t n) {
  for_each_vector<T>(0, n, [=](auto lanes, int64_t i) { lanes.store(y + i, lanes.load(a + i) + lanes.load(b + i)); });
}
template <class T>
REEL_INLINE void copy_run(const T* from, T* to, int64_t n) {
  __builtin_memcpy(to, from, static_cast<std::size_t>(n) * sizeof(T));
}

/// x (1 - x), a sigmoid's derivative, and (1 - x) (1 + x), that of a hyperbolic tangent, at their results.
template <class T>
REEL_INLINE Vec<T> sigmoid_slope(Vec<T> x) {
  return x * (Vec<T>::broadcast(1) - x);
}
template <class T>
REEL_INLINE Vec<T> tanh_slope(Vec<T> x) {
  const Vec<T> one = Vec<T>::broadcast(1);
  return (one - x) * (one + x);
}

// --- forward -----------------------------------------------------------------------------------------------------------

template <class T>
void rnn_rows(bool bent, int64_t rows, int64_t h, const T* x, const T* r, T* y, T* gates) {
  add_run(x, r, y, rows * h);
  if (bent) tanh_run(y, y, rows * h);
  else for_each_vector<T>(0, rows * h, [=](auto lanes, int64_t j) { lanes.store(y + j, relu(lanes.load(y + j))); });
  copy_run(y, gates, rows * h);
}

/// c = f c_prev + i g, y = o tanh(c).
template <class T>
void lstm_rows(int64_t rows, int64_t h, const T* x, const T* r, const T* c_prev, T* y, T* c, T* gates) {
  for (int64_t at = 0; at < rows * 4 * h; at += 4 * h) {
    const int64_t g = at + 2 * h, o = at + 3 * h;
    sigmoid_of_sum(x + at, r + at, gates + at, 2 * h);
    add_run(x + g, r + g, gates + g, h);
    tanh_run(gates + g, gates + g, h);
    sigmoid_of_sum(x + o, r + o, gates + o, h);
  }
  for (int64_t row = 0; row < rows; ++row) {
    const T* const i = gates + row * 4 * h;
    const int64_t at = row * h;
    for_each_vector<T>(0, h, [=](auto lanes, int64_t j) {
      const Vec<T> added = lanes.load(i + j) * lanes.load(i + 2 * h + j);
      lanes.store(c + at + j, fma(lanes.load(i + h + j), lanes.load(c_prev + at + j), added));
    });
  }
  tanh_run(c, y, rows * h);
  for (int64_t row = 0; row < rows; ++row) {
    const T* const o = gates + row * 4 * h + 3 * h;
    T* const to = y + row * h;
    for_each_vector<T>(0, h,
                       [=](auto lanes, int64_t j) { lanes.store(to + j, lanes.load(o + j) * lanes.load(to + j)); });
  }
}

/// n = tanh(x_n + r r_n), y = (1 - z) n + z h_prev.
template <class T>
void gru_rows(int64_t rows, int64_t h, const T* x, const T* r, const T* h_prev, T* y, T* gates) {
  for (int64_t at = 0; at < rows * 3 * h; at += 3 * h) {
    const T *const reset = gates + at, *const from = x + at + 2 * h, *const back = r + at + 2 * h;
    T* const n = gates + at + 2 * h;
    sigmoid_of_sum(x + at, r + at, gates + at, 2 * h);
    for_each_vector<T>(0, h, [=](auto lanes, int64_t j) {
      lanes.store(n + j, fma(lanes.load(reset + j), lanes.load(back + j), lanes.load(from + j)));
    });
  }
  for (int64_t row = 0; row < rows; ++row) {
    const T *const z = gates + row * 3 * h + h, *const before = h_prev + row * h;
    T *const n = gates + row * 3 * h + 2 * h, *const to = y + row * h;
    tanh_run(n, n, h);
    for_each_vector<T>(0, h, [=](auto lanes, int64_t j) {
      const Vec<T> keep = lanes.load(z + j);
      lanes.store(to + j, fma(keep, lanes.load(before + j), (Vec<T>::broadcast(1) - keep) * lanes.load(n + j)));
    });
  }
}

// --- backward ----------------------------------------------------------------------------------------------------------

template <class T>
void rnn_rows_backward(bool bent, int64_t rows, int64_t h, const T* y, const T* dh, T* dx, T* dh_prev) {
  for_each_vector<T>(0, rows * h, [=](auto lanes, int64_t j) {
    const Vec<T> value = lanes.load(y + j), grad = lanes.load(dh + j), zero = Vec<T>::zero();
    lanes.store(dx + j, bent ? grad * tanh_slope(value) : Vec<T>{value.raw <= zero.raw ? zero.raw : grad.raw});
    lanes.store(dh_prev + j, zero);
  });
}

template <class T>
void lstm_rows_backward(int64_t rows, int64_t h, const T* c_prev, const T* c, const T* gates, const T* dh, const T* dc,
                        T* dx, T* dh_prev, T* dc_prev) {
  // tanh(c), until its place is needed
  for (int64_t row = 0; row < rows; ++row) tanh_run(c + row * h, dx + row * 4 * h + 3 * h, h);
  for (int64_t row = 0; row < rows; ++row) {
    const T* const of_row = gates + row * 4 * h;
    T *const to = dx + row * 4 * h, *const bent = to + 3 * h;
    const int64_t at = row * h;
    for_each_vector<T>(0, h, [=](auto lanes, int64_t j) {
      const Vec<T> i = lanes.load(of_row + j), f = lanes.load(of_row + h + j), g = lanes.load(of_row + 2 * h + j);
      const Vec<T> o = lanes.load(of_row + 3 * h + j), tc = lanes.load(bent + j), grad = lanes.load(dh + at + j);
      const Vec<T> dcell = fma(grad * o, tanh_slope(tc), lanes.load(dc + at + j));
      lanes.store(to + j, dcell * g * sigmoid_slope(i));
      lanes.store(to + h + j, dcell * lanes.load(c_prev + at + j) * sigmoid_slope(f));
      lanes.store(to + 2 * h + j, dcell * i * tanh_slope(g));
      lanes.store(bent + j, grad * tc * sigmoid_slope(o));
      lanes.store(dc_prev + at + j, dcell * f);
      lanes.store(dh_prev + at + j, Vec<T>::zero());
    });
  }
}

template <class T>
void gru_row_backward(int64_t h, const T* r, const T* h_prev, const T* gates, const T* dh, T* dx, T* dr, T* dh_prev) {
  for_each_vector<T>(0, h, [=](auto lanes, int64_t j) {
    const Vec<T> reset = lanes.load(gates + j), z = lanes.load(gates + h + j), n = lanes.load(gates + 2 * h + j);
    const Vec<T> grad = lanes.load(dh + j);
    const Vec<T> dn = grad * (Vec<T>::broadcast(1) - z) * tanh_slope(n);
    const Vec<T> dreset = dn * lanes.load(r + 2 * h + j) * sigmoid_slope(reset);
    const Vec<T> dz = grad * (lanes.load(h_prev + j) - n) * sigmoid_slope(z);
    lanes.store(dx + j, dreset);
    lanes.store(dr + j, dreset);
    lanes.store(dx + h + j, dz);
    lanes.store(dr + h + j, dz);
    lanes.store(dx + 2 * h + j, dn);
    lanes.store(dr + 2 * h + j, dn * reset);
    lanes.store(dh_prev + j, grad * z);
  });
}

/// f(row, rows) for runs of the rows, in parallel. A nonlinearity counts as eight operations.
template <class F>
REEL_INLINE void for_each_rows(const Array& gates, F f) {
  const int64_t n = gates.shape[0];
  parallel_for(n, max<int64_t>(1, kGrain / (8 * max<int64_t>(1, gates.shape[1]))),
               [&](int64_t begin, int64_t end) { f(begin, end - begin); });
}

}  // namespace

void CpuOps::cell(CellOp op, const Array& x, const Array& r, const Array& h_prev, const Array* c_prev, const Array& h,
                  const Array* c, const Array& saved) {
  const int64_t n = h.shape[1], all = saved.shape[1];
  dispatch_floating(x.dtype, [&]<class T>() {
    for_each_rows(saved, [&](int64_t row, int64_t rows) {
      const int64_t at = row * n;
      const T *const in = x.as<T>() + row * all, *const back = r.as<T>() + row * all;
      T *const gates = saved.as<T>() + row * all, *const y = h.as<T>() + at;
      if (op == CellOp::lstm) lstm_rows(rows, n, in, back, c_prev->as<T>() + at, y, c->as<T>() + at, gates);
      else if (op == CellOp::gru) gru_rows(rows, n, in, back, h_prev.as<T>() + at, y, gates);
      else rnn_rows(op == CellOp::rnn_tanh, rows, n, in, back, y, gates);
    });
  });
}

void CpuOps::cell_backward(CellOp op, const Array& r, const Array& h_prev, const Array* c_prev, const Array& h,
                           const Array* c, const Array& saved, const Array& dh, const Array* dc, const Array& dx,
                           const Array& dr, const Array& dh_prev, const Array* dc_prev) {
  const int64_t n = h.shape[1], all = saved.shape[1];
  dispatch_floating(h.dtype, [&]<class T>() {
    for_each_rows(saved, [&](int64_t row, int64_t rows) {
      const int64_t at = row * n;
      const T *const gates = saved.as<T>() + row * all, *const grad = dh.as<T>() + at;
      T *const to = dx.as<T>() + row * all, *const back = dr.as<T>() + row * all, *const before = dh_prev.as<T>() + at;
      if (op == CellOp::gru) {
        for (int64_t k = 0; k < rows; ++k)
          gru_row_backward(n, r.as<T>() + (row + k) * all, h_prev.as<T>() + at + k * n, gates + k * all, grad + k * n,
                           to + k * all, back + k * all, before + k * n);
        return;
      }
      if (op == CellOp::lstm) {
        lstm_rows_backward(rows, n, c_prev->as<T>() + at, c->as<T>() + at, gates, grad, dc->as<T>() + at, to, before,
                           dc_prev->as<T>() + at);
      } else {
        rnn_rows_backward(op == CellOp::rnn_tanh, rows, n, h.as<T>() + at, grad, to, before);
      }
      if (back != to) copy_run(to, back, rows * all);
    });
  });
}

}  // namespace reel::cpu::REEL_CPU_ISA
