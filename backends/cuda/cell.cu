// Recurrent cells, one step of n rows: a thread takes a pack of neighbouring units of one row, and all of their gates.

#include "reel/backends/cuda/cell.h"

namespace reel::cuda {

namespace device {
namespace {

/// The gates of a pack of units: [kGates] packs, `n` elements apart.
template <class T, int gates, int count>
REEL_DEVICE void load_gates(const T* from, int64_t n, Pack<T, count> (&to)[gates]) {
  REEL_UNROLL
  for (int k = 0; k < gates; ++k) to[k] = load_pack<T, count>(from + k * n);
}
template <class T, int gates, int count>
REEL_DEVICE void store_gates(const Pack<T, count> (&from)[gates], int64_t n, T* to) {
  REEL_UNROLL
  for (int k = 0; k < gates; ++k) store_pack(to + k * n, from[k]);
}
template <class T, int gates, int count>
REEL_DEVICE void unit_of(const Pack<T, count> (&packs)[gates], int unit, T (&to)[gates]) {
  REEL_UNROLL
  for (int k = 0; k < gates; ++k) to[k] = packs[k].v[unit];
}
template <class T, int gates, int count>
REEL_DEVICE void set_unit(const T (&from)[gates], int unit, Pack<T, count> (&packs)[gates]) {
  REEL_UNROLL
  for (int k = 0; k < gates; ++k) packs[k].v[unit] = from[k];
}

/// x, r, saved [rows, kGates n]; before, h, c [rows, n], where there are a state before and c.
template <class Cell, class T, int count>
__global__ void cell(const T* x, const T* r, const T* before, T* h, T* c, T* saved, int64_t rows, int64_t n) {
  constexpr int gates = Cell::kGates;
  const int64_t packs = n / count;
  for (int64_t i = first_unit(); i < rows * packs; i += unit_step()) {
    const int64_t row = i / packs, at = i * count, gate = row * n * (gates - 1) + at;
    Pack<T, count> in[gates], back[gates], kept[gates], state{}, result;
    load_gates(x + gate, n, in);
    load_gates(r + gate, n, back);
    if (before != nullptr) state = load_pack<T, count>(before + at);
    REEL_UNROLL
    for (int e = 0; e < count; ++e) {
      T x_e[gates], r_e[gates], gates_e[gates];
      unit_of(in, e, x_e);
      unit_of(back, e, r_e);
      result.v[e] = Cell::forward(x_e, r_e, state.v[e], gates_e);
      set_unit(gates_e, e, kept);
    }
    store_gates(kept, n, saved + gate);
    store_pack(h + at, result);
    if (c != nullptr) store_pack(c + at, state);
  }
}

/// dh_prev gets what does not go through r: with a cell state (c) nothing, then `carried` goes to dc_prev.
template <class Cell, class T, int count>
__global__ void cell_backward(const T* r, const T* before, const T* c, const T* saved, const T* dh, const T* dc, T* dx,
                              T* dr, T* dh_prev, T* dc_prev, int64_t rows, int64_t n) {
  constexpr int gates = Cell::kGates;
  const int64_t packs = n / count;
  for (int64_t i = first_unit(); i < rows * packs; i += unit_step()) {
    const int64_t row = i / packs, at = i * count, gate = row * n * (gates - 1) + at;
    Pack<T, count> kept[gates], grads[gates], back[gates], last{}, state{}, next{}, carried{};
    load_gates(saved + gate, n, kept);
    const Pack<T, count> grad = load_pack<T, count>(dh + at);
    if (r != nullptr) last = load_pack<T, count>(r + gate + (gates - 1) * n);
    if (before != nullptr) state = load_pack<T, count>(before + at);
    if (c != nullptr) {
      next = load_pack<T, count>(c + at);
      carried = load_pack<T, count>(dc + at);
    }
    REEL_UNROLL
    for (int e = 0; e < count; ++e) {
      T gates_e[gates], dx_e[gates], dr_e[gates];
      unit_of(kept, e, gates_e);
      Cell::backward(gates_e, last.v[e], state.v[e], next.v[e], grad.v[e], carried.v[e], dx_e, dr_e);
      set_unit(dx_e, e, grads);
      set_unit(dr_e, e, back);
    }
    store_gates(grads, n, dx + gate);
    if (dr != dx) store_gates(back, n, dr + gate);
    if (c != nullptr) store_pack(dc_prev + at, carried);
    store_pack(dh_prev + at, c != nullptr ? Pack<T, count>{} : carried);
  }
}

}  // namespace
}  // namespace device

namespace {

/// f.template operator()<Cell, T, count>() with the units that a thread takes: a pack if rows and addresses allow it.
template <class F>
void dispatch(CellOp op, const Array& h, std::initializer_list<const void*> addresses, F&& f) {
  dispatch_floating(h.dtype, [&]<class T>() {
    const bool packed = in_packs<T>(addresses, {h.shape[1]});
    dispatch_cell(op, [&]<class Cell>() {
      packed ? f.template operator()<Cell, T, kPack<T>>() : f.template operator()<Cell, T, 1>();
    });
  });
}

}  // namespace

void CudaOps::cell(CellOp op, const Array& x, const Array& r, const Array& h_prev, const Array* c_prev, const Array& h,
                   const Array* c, const Array& saved) {
  if (h.size == 0) return;
  const void* const before = op == CellOp::lstm ? c_prev->data : op == CellOp::gru ? h_prev.data : nullptr;
  dispatch(op, h, {x.data, r.data, before, h.data, data_of<void>(c), saved.data},
           [&]<class Cell, class T, int count>() {
             launch(context_, "cell", grid_for(context_, h.size / count), &device::cell<Cell, T, count>, x.as<T>(),
                    r.as<T>(), static_cast<const T*>(before), h.as<T>(), data_of<T>(c), saved.as<T>(), h.shape[0],
                    h.shape[1]);
           });
}

void CudaOps::cell_backward(CellOp op, const Array& r, const Array& h_prev, const Array* c_prev, const Array& h,
                            const Array* c, const Array& saved, const Array& dh, const Array* dc, const Array& dx,
                            const Array& dr, const Array& dh_prev, const Array* dc_prev) {
  if (h.size == 0) return;
  const bool gru = op == CellOp::gru;
  const void* const back = gru ? r.data : nullptr;
  const void* const before = gru ? h_prev.data : data_of<void>(c_prev);
  dispatch(op, h,
           {back, before, data_of<void>(c), saved.data, dh.data, data_of<void>(dc), dx.data, dr.data, dh_prev.data,
            data_of<void>(dc_prev)},
           [&]<class Cell, class T, int count>() {
             launch(context_, "cell_backward", grid_for(context_, h.size / count),
                    &device::cell_backward<Cell, T, count>, static_cast<const T*>(back), static_cast<const T*>(before),
                    data_of<T>(c), saved.as<T>(), dh.as<T>(), data_of<T>(dc), dx.as<T>(), dr.as<T>(), dh_prev.as<T>(),
                    data_of<T>(dc_prev), h.shape[0], h.shape[1]);
           });
}

}  // namespace reel::cuda
