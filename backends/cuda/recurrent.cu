// All steps of a recurrent layer in one kernel, for small layers. Sequences do not depend on each other: a block takes a few of
// them through all steps. Its threads keep the recurrent weights in registers; what goes from step to step is handed around
// in shared memory, in two places in turn, so that one barrier per step is enough.
// Four neighbouring threads share a unit: each has a quarter of its sums' terms, and they join in a fixed tree. A sequence's
// numbers do not depend on how many others there are.

#include "reel/backends/cuda/cell.h"

namespace reel::cuda {

namespace device {
namespace {

constexpr int kLanes = 4;              // that share a unit
constexpr int kMostUnits = 64;         // of a layer; smaller ones are filled up with zeros
constexpr int kRoom = kMostUnits + 8;  // of a row in shared memory: four rows begin in different banks
constexpr int kMostThreads = kLanes * kMostUnits;

/// The rows of each step, in the order in which steps are computed.
struct Steps {
  const int64_t* offsets;  // null: all steps have `rows` rows
  int64_t count, rows;
  bool reverse;

  REEL_DEVICE int64_t at(int64_t i) const { return reverse ? count - 1 - i : i; }
  /// A sequence's row in the i-th step, -1 if it has none.
  REEL_DEVICE int64_t row(int64_t i, int64_t sequence) const {
    if (i < 0 || i >= count) return -1;
    const int64_t t = at(i);
    if (offsets == nullptr) return t * rows + sequence;
    const int64_t begin = offsets[t];
    return sequence < offsets[t + 1] - begin ? begin + sequence : -1;
  }
};

/// What a thread works on: a unit of one of the block's `rows` sequences (4, one per lane, or 1, which all lanes compute and
/// the first one writes).
template <int rows>
struct Place {
  int lane, unit, slot;
  int64_t sequence;
  bool exists, writes;  // this unit of this sequence; and it is this thread that writes it

  REEL_DEVICE Place(int64_t sequences, int hidden)
      : lane(threadIdx.x % kLanes),
        unit(threadIdx.x / kLanes),
        slot(rows == 1 ? 0 : lane),
        sequence(static_cast<int64_t>(blockIdx.x) * rows + slot),
        exists(unit < hidden && sequence < sequences),
        writes(exists && lane < rows) {}
};

/// A lane's quarter of the weights of a unit: of every kLanes packs of terms one.
template <class T, int gates>
struct Quarter {
  static constexpr int kPacks = kMostUnits / (kLanes * kPack<T>);
  Pack<T> v[gates][kPacks];

  REEL_DEVICE static int term(int i, int lane) { return (i * kLanes + lane) * kPack<T>; }

  /// Term j of gate g is at[g * gate_step + j * term_step].
  REEL_DEVICE Quarter(const T* at, int gate_step, int term_step, int lane, int unit, int hidden) {
    REEL_UNROLL
    for (int g = 0; g < gates; ++g) {
      REEL_UNROLL
      for (int i = 0; i < kPacks; ++i) {
        REEL_UNROLL
        for (int e = 0; e < kPack<T>; ++e) {
          const int j = term(i, lane) + e;
          v[g][i].v[e] = unit < hidden && j < hidden ? at[g * gate_step + j * term_step] : T(0);
        }
      }
    }
  }
  /// Sums of this lane's terms for each row: in[row * row_room + g * gate_room + term].
  template <int rows>
  REEL_DEVICE void multiply(const T* in, int row_room, int gate_room, int lane, T (&sums)[rows][gates]) const {
    REEL_UNROLL
    for (int row = 0; row < rows; ++row) {
      REEL_UNROLL
      for (int g = 0; g < gates; ++g) sums[row][g] = 0;
    }
    REEL_UNROLL
    for (int i = 0; i < kPacks; ++i) {
      REEL_UNROLL
      for (int row = 0; row < rows; ++row) {
        REEL_UNROLL
        for (int g = 0; g < gates; ++g) {
          const auto x = load_pack<T, kPack<T>>(in + row * row_room + g * gate_room + term(i, lane));
          REEL_UNROLL
          for (int e = 0; e < kPack<T>; ++e) sums[row][g] = scalar::fma(x.v[e], v[g][i].v[e], sums[row][g]);
        }
      }
    }
  }
};

/// Joins the four lanes' sums, ((0 + 1) + (2 + 3)): of four rows each lane gets its own, of one row all get it.
template <class T, int count>
REEL_DEVICE void join_rows(const T (&sums)[1][count], int, T (&to)[count]) {
  REEL_UNROLL
  for (int k = 0; k < count; ++k) {
    const T pair = sums[0][k] + from_lane(sums[0][k], 1);
    to[k] = pair + from_lane(pair, 2);
  }
}
template <class T, int count>
REEL_DEVICE void join_rows(const T (&sums)[kLanes][count], int lane, T (&to)[count]) {
  const bool odd = lane % 2 == 1, high = lane >= 2;
  REEL_UNROLL
  for (int k = 0; k < count; ++k) {
    T pair[2];
    REEL_UNROLL
    for (int i = 0; i < 2; ++i) {
      const T even_row = sums[2 * i][k], odd_row = sums[2 * i + 1][k];
      pair[i] = (odd ? odd_row : even_row) + from_lane(odd ? even_row : odd_row, 1);
    }
    to[k] = (high ? pair[1] : pair[0]) + from_lane(high ? pair[0] : pair[1], 2);
  }
}

/// Zeros, which stay where there is no unit or no sequence. All threads of the block must call it.
template <class T>
REEL_DEVICE void clear(T* shared, int count) {
  for (int i = threadIdx.x; i < count; i += blockDim.x) shared[i] = 0;
  __syncthreads();
}

template <class T>
struct Forward {
  Steps steps;
  int64_t sequences;
  int hidden;
  const T *x, *weight, *bias, *h0, *c0;
  T *h, *c, *y, *states, *saved, *back;
};

/// The gates of a unit in a row of x.
template <class T, int gates>
struct RowGates {
  int64_t row;  // -1: none
  T v[gates];
  REEL_DEVICE RowGates(const T* x, int64_t row_, int unit, int hidden) : row(row_) {
    const T* const from = x + row * gates * hidden + unit;
    REEL_UNROLL
    for (int g = 0; g < gates; ++g) v[g] = row >= 0 ? from[g * hidden] : T(0);
  }
};

template <class Cell, class T, int rows>
__global__ void __launch_bounds__(kMostThreads, 1) recurrent(const __grid_constant__ Forward<T> p) {
  constexpr int gates = Cell::kGates;
  REEL_DYNAMIC_SHARED(T, shared);  // [2][rows][kRoom]: h before this step, and after it
  const Place<rows> place(p.sequences, p.hidden);
  const int unit = place.unit, hidden = p.hidden;
  const Quarter<T, gates> weight(p.weight + unit * hidden, hidden * hidden, 1, place.lane, unit, hidden);
  clear(shared, 2 * rows * kRoom);

  T bias[gates], h = 0, c = 0;
  REEL_UNROLL
  for (int g = 0; g < gates; ++g) bias[g] = p.bias != nullptr && place.exists ? p.bias[g * hidden + unit] : T(0);
  const int64_t state_at = place.sequence * hidden + unit;
  if (place.exists) {
    h = p.h0[state_at];
    if (p.c0 != nullptr) c = p.c0[state_at];
  }
  const int own = place.slot * kRoom + unit;
  if (place.writes) shared[own] = h;
  const auto row_at = [&](int64_t i) { return place.exists ? p.steps.row(i, place.sequence) : -1; };
  RowGates<T, gates> next(p.x, row_at(0), unit, hidden);
  __syncthreads();  // also before the gates are written where x was: a step's are read before the barrier of the one before

  REEL_ROLLED
  for (int64_t i = 0; i < p.steps.count; ++i) {
    const RowGates<T, gates> x = next;
    next = {p.x, row_at(i + 1), unit, hidden};  // on its way while this step is computed
    T sums[rows][gates], r[gates];
    weight.multiply(shared + i % 2 * rows * kRoom, kRoom, 0, place.lane, sums);
    join_rows(sums, place.lane, r);
    if (x.row >= 0) {
      T kept[gates], state = p.c0 != nullptr ? c : h;
      REEL_UNROLL
      for (int g = 0; g < gates; ++g) r[g] += bias[g];
      h = Cell::forward(x.v, r, state, kept);
      if (p.c0 != nullptr) c = state;
      if (place.writes) {
        const int64_t at = x.row * hidden + unit, gate = x.row * gates * hidden + unit;
        p.y[at] = h;
        if (p.states != nullptr) p.states[at] = c;
        REEL_UNROLL
        for (int g = 0; g < gates; ++g) {
          if (p.saved != nullptr) p.saved[gate + g * hidden] = kept[g];
          if (p.back != nullptr) p.back[gate + g * hidden] = r[g];
        }
      }
    }
    if (place.writes) shared[(i + 1) % 2 * rows * kRoom + own] = h;
    __syncthreads();
  }
  if (!place.writes) return;
  p.h[state_at] = h;
  if (p.c != nullptr) p.c[state_at] = c;
}

template <class T>
struct Backward {
  Steps steps;
  int64_t sequences;
  int hidden;
  const T *weight, *h0, *c0, *y, *states, *saved, *back, *dy, *dh, *dc;
  T *dx, *dback, *before, *dh0, *dc0;
};

/// What a step back needs of a unit of a row.
template <class T, int gates>
struct Kept {
  int64_t row;  // -1: none
  T saved[gates], back = 0, c = 0, c_prev = 0, h_prev = 0, dy = 0;

  REEL_DEVICE Kept(const Backward<T>& p, int64_t i, int64_t sequence, bool exists, int unit)
      : row(exists ? p.steps.row(i, sequence) : -1) {
    REEL_UNROLL
    for (int g = 0; g < gates; ++g) saved[g] = 0;
    if (row < 0) return;
    const int hidden = p.hidden;
    const int64_t at = row * hidden + unit, gate = row * gates * hidden + unit;
    const int64_t earlier = p.steps.row(i - 1, sequence);  // before the first of its steps: the initial state
    const int64_t prev = (earlier >= 0 ? earlier : sequence) * hidden + unit;
    REEL_UNROLL
    for (int g = 0; g < gates; ++g) saved[g] = p.saved[gate + g * hidden];
    h_prev = (earlier >= 0 ? p.y : p.h0)[prev];
    if (p.states != nullptr) {
      c = p.states[at];
      c_prev = (earlier >= 0 ? p.states : p.c0)[prev];
    }
    if (p.back != nullptr) back = p.back[gate + (gates - 1) * hidden];
    if (p.dy != nullptr) dy = p.dy[at];
  }
};

template <class Cell, class T, int rows>
__global__ void __launch_bounds__(kMostThreads, 1) recurrent_backward(const __grid_constant__ Backward<T> p) {
  constexpr int gates = Cell::kGates;
  REEL_DYNAMIC_SHARED(T, shared);  // [2][rows][gates][kRoom]: dback of this step
  const Place<rows> place(p.sequences, p.hidden);
  const int unit = place.unit, hidden = p.hidden;
  const Quarter<T, gates> weight(p.weight + unit, hidden * hidden, hidden, place.lane, unit, hidden);
  clear(shared, 2 * rows * gates * kRoom);

  const int64_t state_at = place.sequence * hidden + unit;
  T dh = place.exists && p.dh != nullptr ? p.dh[state_at] : T(0);
  T dc = place.exists && p.dc != nullptr ? p.dc[state_at] : T(0);
  Kept<T, gates> next(p, p.steps.count - 1, place.sequence, place.exists, unit);
  REEL_ROLLED
  for (int64_t i = p.steps.count - 1; i >= 0; --i) {
    const Kept<T, gates> kept = next;
    next = {p, i - 1, place.sequence, place.exists, unit};  // on its way while this step is computed
    T* const stage = shared + i % 2 * rows * gates * kRoom;
    T dx[gates], dback[gates], carried = dc;
    REEL_UNROLL
    for (int g = 0; g < gates; ++g) dback[g] = 0;
    if (kept.row >= 0) {
      const T state = p.states != nullptr ? kept.c_prev : kept.h_prev;
      Cell::backward(kept.saved, kept.back, state, kept.c, dh + kept.dy, carried, dx, dback);
      if (place.writes) {
        const int64_t gate = kept.row * gates * hidden + unit;
        p.before[kept.row * hidden + unit] = kept.h_prev;
        REEL_UNROLL
        for (int g = 0; g < gates; ++g) {
          p.dx[gate + g * hidden] = dx[g];
          if (p.dback != p.dx) p.dback[gate + g * hidden] = dback[g];
        }
      }
    }
    if (place.writes) {
      REEL_UNROLL
      for (int g = 0; g < gates; ++g) stage[(place.slot * gates + g) * kRoom + unit] = dback[g];
    }
    __syncthreads();
    T sums[rows][gates], parts[rows][1], sum[1];
    weight.multiply(stage, gates * kRoom, kRoom, place.lane, sums);
    REEL_UNROLL
    for (int row = 0; row < rows; ++row) {
      parts[row][0] = sums[row][0];
      REEL_UNROLL
      for (int g = 1; g < gates; ++g) parts[row][0] += sums[row][g];
    }
    join_rows(parts, place.lane, sum);
    if (kept.row < 0) continue;
    dh = p.states != nullptr ? sum[0] : carried + sum[0];
    if (p.states != nullptr) dc = carried;
  }
  if (!place.writes) return;
  if (p.dh0 != nullptr) p.dh0[state_at] = dh;
  if (p.dc0 != nullptr) p.dc0[state_at] = dc;
}

}  // namespace
}  // namespace device

namespace {

device::Steps steps_of(const Recurrence& recurrence) {
  const Segments& steps = recurrence.steps;
  return {steps.offsets, steps.count, steps.max_length, recurrence.reverse};
}

/// f.template operator()<Cell, T, rows>(grid): a sequence per block while that fills the GPU no more than a few times, else
/// four. `packs`: elements of shared memory per sequence, in rows.
template <class F>
void dispatch_recurrent(const Context& context, CellOp op, const Array& h0, bool backward, F&& f) {
  dispatch_floating(h0.dtype, [&]<class T>() {
    dispatch_cell(op, [&]<class Cell>() {
      const auto run = [&]<int rows>() {
        const int64_t units = ceil_div(h0.shape[1], device::kWarp / device::kLanes) * (device::kWarp / device::kLanes);
        const int64_t shared_rows = 2 * rows * (backward ? Cell::kGates : 1);
        f.template operator()<Cell, T, rows>(
            Grid{.blocks = ceil_div(h0.shape[0], rows),
                 .threads = static_cast<int>(device::kLanes * units),
                 .shared_bytes = sizeof(T) * static_cast<std::size_t>(shared_rows * device::kRoom)});
      };
      constexpr int64_t kFewPerProcessor = 2;
      h0.shape[0] <= kFewPerProcessor* context.processors() ? run.template operator()<1>()
                                                            : run.template operator()<device::kLanes>();
    });
  });
}

}  // namespace

bool CudaOps::fuses_steps(DType, int64_t hidden) const { return hidden > 0 && hidden <= device::kMostUnits; }

void CudaOps::recurrent(const Recurrence& recurrence, const Array& x, const RecurrentLayer& layer, const Array& h0,
                        const Array* c0, const Array& h, const Array* c, const Array& y, const Array* states,
                        const Array* saved, const Array* back) {
  const int64_t rows = x.shape[0], all = layer.recurrent.shape[0];
  // The input's part of the gates lies where the gates will: a unit's threads have read it before one writes them.
  const Workspace room(context_.memory(),
                       saved != nullptr ? 0 : size_of(x.dtype) * static_cast<std::size_t>(rows * all));
  void* const gates = saved != nullptr ? saved->data : room.as<void>();
  Gemm of_input = gemm_of(x, false, layer.input, true, gates);
  if (layer.input_bias != nullptr) of_input.bias = layer.input_bias->data;
  gemm(of_input);
  dispatch_recurrent(context_, recurrence.op, h0, false, [&]<class Cell, class T, int rows>(const Grid& grid) {
    const device::Forward<T> problem{steps_of(recurrence),
                                     h0.shape[0],
                                     static_cast<int>(h0.shape[1]),
                                     static_cast<const T*>(gates),
                                     layer.recurrent.as<T>(),
                                     data_of<T>(layer.recurrent_bias),
                                     h0.as<T>(),
                                     data_of<T>(c0),
                                     h.as<T>(),
                                     data_of<T>(c),
                                     y.as<T>(),
                                     data_of<T>(states),
                                     data_of<T>(saved),
                                     data_of<T>(back)};
    launch(context_, "recurrent", grid, &device::recurrent<Cell, T, rows>, problem);
  });
}

void CudaOps::recurrent_backward(const Recurrence& recurrence, const Array& x, const RecurrentLayer& layer,
                                 const Array& h0, const Array* c0, const Array& y, const Array* states,
                                 const Array& saved, const Array* back, const Array* dy, const Array* dh,
                                 const Array* dc, const RecurrentGradients& to) {
  const bool gru = recurrence.op == CellOp::gru;
  const Workspace of_gates(context_.memory(), size_of(saved.dtype) * static_cast<std::size_t>(saved.size));
  const Workspace of_back(context_.memory(), gru ? size_of(saved.dtype) * static_cast<std::size_t>(saved.size) : 0);
  const Workspace of_states(context_.memory(), size_of(y.dtype) * static_cast<std::size_t>(y.size));
  Array dz = saved, dback = saved, before = y;
  dz.data = of_gates.as<void>();
  dback.data = gru ? of_back.as<void>() : dz.data;
  before.data = of_states.as<void>();
  dispatch_recurrent(context_, recurrence.op, h0, true, [&]<class Cell, class T, int rows>(const Grid& grid) {
    const device::Backward<T> problem{steps_of(recurrence),
                                      h0.shape[0],
                                      static_cast<int>(h0.shape[1]),
                                      layer.recurrent.as<T>(),
                                      h0.as<T>(),
                                      data_of<T>(c0),
                                      y.as<T>(),
                                      data_of<T>(states),
                                      saved.as<T>(),
                                      data_of<T>(back),
                                      data_of<T>(dy),
                                      data_of<T>(dh),
                                      data_of<T>(dc),
                                      dz.as<T>(),
                                      dback.as<T>(),
                                      before.as<T>(),
                                      data_of<T>(to.h0),
                                      data_of<T>(to.c0)};
    launch(context_, "recurrent_backward", grid, &device::recurrent_backward<Cell, T, rows>, problem);
  });
  recurrent_gradients(x, layer, dz, dback, before, to);
}

}  // namespace reel::cuda
