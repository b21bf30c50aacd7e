// Recurrent cells: one step for n rows, which do not depend on each other. A row's gates lie side by side, each h numbers:
// i f g o (LSTM) or r z n (GRU), as PyTorch has them. The nonlinearities run in place over whole gates, the rest is one loop
// over h.

#include "reel/backends/cpu/cpu_ops.h"
#include "reel/backends/cpu/vector_loops.h"
#include "reel/core/scalar/tanh.h"

namespace reel::cpu::REEL_CPU_ISA {
namespace {

// Not inlined: one copy of each serves all cells.
template <class T>
__attribute__((noinline)) void sigmoid_run(T* p, int64_t n) {
  for_each_vector<T>(0, n, [p](auto lanes, int64_t i) {
    lanes.store(p + i, each_lane(
                           lanes.load(p + i), [](T x) __attribute__((always_inline)) { return scalar::sigmoid(x); }));
  });
}
template <class T>
__attribute__((noinline)) void tanh_run(T* p, int64_t n) {
  for_each_vector<T>(0, n, [p](auto lanes, int64_t i) {
    lanes.store(p + i, each_lane(
                           lanes.load(p + i), [](T x) __attribute__((always_inline)) { return scalar::tanh(x); }));
  });
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

// --- one row forward ---------------------------------------------------------------------------------------------------

template <class T>
void rnn_row(bool bent, int64_t h, const T* x, const T* r, T* y, T* gates) {
  add_run(x, r, y, h);
  if (bent) tanh_run(y, h);
  else for_each_vector<T>(0, h, [=](auto lanes, int64_t j) { lanes.store(y + j, relu(lanes.load(y + j))); });
  copy_run(y, gates, h);
}

/// c = f c_prev + i g, y = o tanh(c).
template <class T>
void lstm_row(int64_t h, const T* x, const T* r, const T* c_prev, T* y, T* c, T* gates) {
  add_run(x, r, gates, 4 * h);
  sigmoid_run(gates, 2 * h);
  tanh_run(gates + 2 * h, h);
  sigmoid_run(gates + 3 * h, h);
  for_each_vector<T>(0, h, [=](auto lanes, int64_t j) {
    const Vec<T> added = lanes.load(gates + j) * lanes.load(gates + 2 * h + j);
    const Vec<T> next = fma(lanes.load(gates + h + j), lanes.load(c_prev + j), added);
    lanes.store(c + j, next);
    lanes.store(y + j, next);
  });
  tanh_run(y, h);
  for_each_vector<T>(
      0, h, [=](auto lanes, int64_t j) { lanes.store(y + j, lanes.load(gates + 3 * h + j) * lanes.load(y + j)); });
}

/// n = tanh(x_n + r r_n), y = (1 - z) n + z h_prev.
template <class T>
void gru_row(int64_t h, const T* x, const T* r, const T* h_prev, T* y, T* gates) {
  add_run(x, r, gates, 2 * h);
  sigmoid_run(gates, 2 * h);
  T* const n = gates + 2 * h;
  for_each_vector<T>(0, h, [=](auto lanes, int64_t j) {
    lanes.store(n + j, fma(lanes.load(gates + j), lanes.load(r + 2 * h + j), lanes.load(x + 2 * h + j)));
  });
  tanh_run(n, h);
  for_each_vector<T>(0, h, [=](auto lanes, int64_t j) {
    const Vec<T> z = lanes.load(gates + h + j);
    lanes.store(y + j, fma(z, lanes.load(h_prev + j), (Vec<T>::broadcast(1) - z) * lanes.load(n + j)));
  });
}

// --- one row backward --------------------------------------------------------------------------------------------------

template <class T>
void rnn_row_backward(bool bent, int64_t h, const T* y, const T* dh, T* dx, T* dh_prev) {
  for_each_vector<T>(0, h, [=](auto lanes, int64_t j) {
    const Vec<T> value = lanes.load(y + j), grad = lanes.load(dh + j), zero = Vec<T>::zero();
    lanes.store(dx + j, bent ? grad * tanh_slope(value) : Vec<T>{value.raw <= zero.raw ? zero.raw : grad.raw});
    lanes.store(dh_prev + j, zero);
  });
}

template <class T>
void lstm_row_backward(int64_t h, const T* c_prev, const T* c, const T* gates, const T* dh, const T* dc, T* dx,
                       T* dh_prev, T* dc_prev) {
  T* const bent = dx + 3 * h;  // tanh(c), until its place is needed
  copy_run(c, bent, h);
  tanh_run(bent, h);
  for_each_vector<T>(0, h, [=](auto lanes, int64_t j) {
    const Vec<T> i = lanes.load(gates + j), f = lanes.load(gates + h + j), g = lanes.load(gates + 2 * h + j);
    const Vec<T> o = lanes.load(gates + 3 * h + j), tc = lanes.load(bent + j), grad = lanes.load(dh + j);
    const Vec<T> dcell = fma(grad * o, tanh_slope(tc), lanes.load(dc + j));
    lanes.store(dx + j, dcell * g * sigmoid_slope(i));
    lanes.store(dx + h + j, dcell * lanes.load(c_prev + j) * sigmoid_slope(f));
    lanes.store(dx + 2 * h + j, dcell * i * tanh_slope(g));
    lanes.store(bent + j, grad * tc * sigmoid_slope(o));
    lanes.store(dc_prev + j, dcell * f);
    lanes.store(dh_prev + j, Vec<T>::zero());
  });
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

/// f(row) for all rows, in parallel. A nonlinearity counts as eight operations.
template <class F>
REEL_INLINE void for_each_row(const Array& gates, F f) {
  const int64_t n = gates.shape[0];
  parallel_for(n, max<int64_t>(1, kGrain / (8 * max<int64_t>(1, gates.shape[1]))), [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) f(row);
  });
}

}  // namespace

void CpuOps::cell(CellOp op, const Array& x, const Array& r, const Array& h_prev, const Array* c_prev, const Array& h,
                  const Array* c, const Array& saved) {
  const int64_t n = h.shape[1], all = saved.shape[1];
  dispatch_floating(x.dtype, [&]<class T>() {
    for_each_row(saved, [&](int64_t row) {
      const T *const in = x.as<T>() + row * all, *const back = r.as<T>() + row * all;
      T *const gates = saved.as<T>() + row * all, *const y = h.as<T>() + row * n;
      if (op == CellOp::lstm) lstm_row(n, in, back, c_prev->as<T>() + row * n, y, c->as<T>() + row * n, gates);
      else if (op == CellOp::gru) gru_row(n, in, back, h_prev.as<T>() + row * n, y, gates);
      else rnn_row(op == CellOp::rnn_tanh, n, in, back, y, gates);
    });
  });
}

void CpuOps::cell_backward(CellOp op, const Array& r, const Array& h_prev, const Array* c_prev, const Array& h,
                           const Array* c, const Array& saved, const Array& dh, const Array* dc, const Array& dx,
                           const Array& dr, const Array& dh_prev, const Array* dc_prev) {
  const int64_t n = h.shape[1], all = saved.shape[1];
  dispatch_floating(h.dtype, [&]<class T>() {
    for_each_row(saved, [&](int64_t row) {
      const int64_t at = row * n;
      const T *const gates = saved.as<T>() + row * all, *const grad = dh.as<T>() + at;
      T *const to = dx.as<T>() + row * all, *const back = dr.as<T>() + row * all, *const before = dh_prev.as<T>() + at;
      if (op == CellOp::gru) {
        gru_row_backward(n, r.as<T>() + row * all, h_prev.as<T>() + at, gates, grad, to, back, before);
        return;
      }
      if (op == CellOp::lstm) {
        lstm_row_backward(n, c_prev->as<T>() + at, c->as<T>() + at, gates, grad, dc->as<T>() + at, to, before,
                          dc_prev->as<T>() + at);
      } else {
        rnn_row_backward(op == CellOp::rnn_tanh, n, h.as<T>() + at, grad, to, before);
      }
      if (back != to) copy_run(to, back, all);
    });
  });
}

}  // namespace reel::cpu::REEL_CPU_ISA
