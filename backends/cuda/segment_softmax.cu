// Softmax down the columns of segments of rows: a block takes a segment and a tile of columns, its row lanes the rows. Threads
// hold what they take of a segment, read once; of one that is too long for that a part at a time, read once per pass.

#include "reel/backends/cuda/softmax.h"

namespace reel::cuda {

namespace device {
namespace {

inline constexpr int kRowsHeld = 8;  // of a thread

/// f(first element, rows) for the segments and this thread's columns; a thread without a column gets no rows, but the block's
/// barriers wait for it.
template <int run, class F>
REEL_DEVICE void for_each_column(Lanes lanes, int64_t segments, Rows rows, int64_t width, F f) {
  const int64_t tile = int64_t{lanes.columns} * run;
  for (int64_t s = blockIdx.x; s < segments; s += gridDim.x) {
    for (int64_t first = blockIdx.y * tile; first < width; first += gridDim.y * tile) {
      const int64_t j = first + lanes.column() * run;
      f(rows.begin(s) * width + j, j < width ? rows.count(s) : 0);
    }
  }
}

template <class T, int run, class F>
REEL_DEVICE Pack<T, run> join_packs(const Pack<T, run>& a, const Pack<T, run>& b, F f) {
  Pack<T, run> c;
  REEL_UNROLL
  for (int k = 0; k < run; ++k) c.v[k] = f(a.v[k], b.v[k]);
  return c;
}

template <class T, int run>
REEL_DEVICE Pack<T, run> all_of(T value) {
  Pack<T, run> pack;
  REEL_UNROLL
  for (int k = 0; k < run; ++k) pack.v[k] = value;
  return pack;
}

/// What a thread holds of its `run` columns: of a part of the rows every lanes.rows()-th.
template <class T, int run>
struct HeldColumns {
  Pack<T, run> at[kRowsHeld];

  /// How many rows a part has.
  REEL_DEVICE static int64_t part(Lanes lanes) { return int64_t{lanes.rows()} * kRowsHeld; }
  /// The part from row `first` on; what lies beyond the rows becomes `outside`.
  REEL_DEVICE void load(const T* from, int64_t width, int64_t first, int64_t rows, Lanes lanes, T outside) {
    REEL_UNROLL
    for (int p = 0; p < kRowsHeld; ++p) {
      const int64_t i = first + p * lanes.rows() + lanes.row();
      at[p] = i < rows ? load_pack<T, run>(from + i * width) : all_of<T, run>(outside);
    }
  }
  REEL_DEVICE void store(T* to, int64_t width, int64_t first, int64_t rows, Lanes lanes) const {
    REEL_UNROLL
    for (int p = 0; p < kRowsHeld; ++p) {
      const int64_t i = first + p * lanes.rows() + lanes.row();
      if (i < rows) store_pack(to + i * width, at[p]);
    }
  }
  /// f(p, k) for all elements.
  template <class F>
  REEL_DEVICE static void each(F f) {
    REEL_UNROLL
    for (int p = 0; p < kRowsHeld; ++p) {
      REEL_UNROLL
      for (int k = 0; k < run; ++k) f(p, k);
    }
  }
  /// Joins term(p, k) of each column. With Lanes::join it is one tree over the part's rows, those far apart first: the same for
  /// any number of row lanes.
  template <class Term, class Join>
  REEL_DEVICE static Pack<T, run> join(Term term, Join f) {
    HeldColumns terms;
    each([&](int p, int k) { terms.at[p].v[k] = term(p, k); });
    REEL_UNROLL
    for (int half = kRowsHeld / 2; half > 0; half /= 2) {
      REEL_UNROLL
      for (int p = 0; p < half; ++p) terms.at[p] = join_packs(terms.at[p], terms.at[p + half], f);
    }
    return terms.at[0];
  }
};

/// Joins the columns' values of all row lanes.
template <class T, int run, class F>
REEL_DEVICE Pack<T, run> join_lanes_of(Lanes lanes, const Pack<T, run>& own, Pack<T, run>* scratch, F f) {
  using Column = Pack<T, run>;
  return lanes.join(own, scratch, [&](const Column& a, const Column& b) { return join_packs(a, b, f); });
}

template <class T, int run>
__global__ void __launch_bounds__(kThreads, kPack<T> < 4 ? 2 : 3)
    softmax(SoftmaxOp op, const T* x, T* y, int64_t segments, Rows rows, int64_t width, T rate, Lanes lanes) {
  using Column = Pack<T, run>;
  using Held = HeldColumns<T, run>;
  REEL_DYNAMIC_SHARED(Column, scratch);
  const auto greater = [](T a, T b) { return larger(a, b); };
  const auto add = [](T a, T b) { return a + b; };
  for_each_column<run>(lanes, segments, rows, width, [&](int64_t start, int64_t count) {
    Held held;
    const int64_t part = Held::part(lanes);
    const bool whole = count <= part;
    const auto load = [&](int64_t first) { held.load(x + start, width, first, count, lanes, -scalar::infinity<T>()); };
    Column greatest = all_of<T, run>(-scalar::infinity<T>()), sum = all_of<T, run>(T(0)), correction;
    for (int64_t first = 0; first < count; first += part) {
      load(first);
      greatest = join_packs(greatest, Held::join([&](int p, int k) { return held.at[p].v[k]; }, greater), greater);
    }
    const Column shift = join_lanes_of(lanes, greatest, scratch, greater);
    const auto take_shift = [&] {
      Held::each([&](int p, int k) { held.at[p].v[k] = (held.at[p].v[k] - finite_shift(shift.v[k])) * rate; });
    };
    for (int64_t first = 0; first < count; first += part) {
      if (!whole) load(first);
      take_shift();
      sum = join_packs(sum, Held::join([&](int p, int k) { return exp_negative(held.at[p].v[k]); }, add), add);
    }
    sum = join_lanes_of(lanes, sum, scratch, add);
    REEL_UNROLL
    for (int k = 0; k < run; ++k) correction.v[k] = softmax_correction(op, sum.v[k]);
    for (int64_t first = 0; first < count; first += part) {
      if (!whole) {
        load(first);
        take_shift();
      }
      Held::each([&](int p, int k) { held.at[p].v[k] = softmax_result(op, held.at[p].v[k], correction.v[k]); });
      held.store(y + start, width, first, count, lanes);
    }
  });
}

template <class T, int run>
__global__ void __launch_bounds__(kThreads, 2)
    softmax_backward(SoftmaxOp op, const T* y, const T* dy, T* dx, int64_t segments, Rows rows, int64_t width, T rate,
                     Lanes lanes) {
  using Column = Pack<T, run>;
  using Held = HeldColumns<T, run>;
  REEL_DYNAMIC_SHARED(Column, scratch);
  const auto greater = [](T a, T b) { return larger(a, b); };
  const auto add = [](T a, T b) { return a + b; };
  for_each_column<run>(lanes, segments, rows, width, [&](int64_t start, int64_t count) {
    Held value, grad;
    const int64_t part = Held::part(lanes);
    const T beyond = op == SoftmaxOp::softmax ? T(0) : -scalar::infinity<T>();
    const auto load = [&](int64_t first) {
      value.load(y + start, width, first, count, lanes, beyond);
      grad.load(dy + start, width, first, count, lanes, T(0));
    };
    const auto term = [&](int p, int k) { return add_gradient_term(op, value.at[p].v[k], grad.at[p].v[k], T(0)); };
    Column sum = all_of<T, run>(T(0)), reachable = sum;
    for (int64_t first = 0; first < count; first += part) {
      load(first);
      sum = join_packs(sum, Held::join(term, add), add);
      Held::each([&](int p, int k) {
        if (value.at[p].v[k] != -scalar::infinity<T>()) reachable.v[k] = 1;
      });
    }
    sum = join_lanes_of(lanes, sum, scratch, add);
    if (op == SoftmaxOp::log_softmax) reachable = join_lanes_of(lanes, reachable, scratch, greater);
    for (int64_t first = 0; first < count; first += part) {
      if (count > part) load(first);
      Held::each([&](int p, int k) {
        const bool none = op == SoftmaxOp::log_softmax && reachable.v[k] == T(0);
        T& g = grad.at[p].v[k];
        g = none ? T(0) : softmax_gradient(op, value.at[p].v[k], g, sum.v[k]) * rate;
      });
      grad.store(dx + start, width, first, count, lanes);
    }
  });
}

}  // namespace
}  // namespace device

namespace {

/// A launch for columns read in packs of `run`. How many row lanes a block has at most depends on the columns alone, and on whether
/// they are read in packs, so that
/// the longest segment is not seen in the others' bits.
template <class T>
LaneGrid column_grid(const Context& context, int64_t segments, int64_t longest, int64_t width, int run) {
  const int columns = power_of_two_from(ceil_div(width, run), 1, device::kWarp / run);
  const int lanes =
      power_of_two_from(ceil_div(longest, device::kRowsHeld), device::kWarp / columns, kThreads / columns);
  const int threads = columns * lanes;
  const int64_t most = int64_t{context.processors()} * (2048 / threads),
                tiles = ceil_div(width, int64_t{columns} * run);
  return {{.blocks = segments < most ? segments : most,
           .y = tiles < 65535 ? tiles : 65535,
           .threads = threads,
           .shared_bytes = sizeof(T) * static_cast<std::size_t>(run * threads)},
          {columns}};
}

}  // namespace

template <class T>
void softmax_columns(const Context& context, SoftmaxOp op, const T* x, T* y, int64_t segments, device::Rows rows,
                     int64_t longest, int64_t width, T rate) {
  const bool packed = in_packs<T>({x, y}, {width});
  const LaneGrid shape = column_grid<T>(context, segments, longest, width, packed ? kPack<T> : 1);
  launch(context, "softmax", shape.grid, packed ? &device::softmax<T, kPack<T>> : &device::softmax<T, 1>, op, x, y,
         segments, rows, width, rate, shape.lanes);
}

template <class T>
void softmax_backward_columns(const Context& context, SoftmaxOp op, const T* y, const T* dy, T* dx, int64_t segments,
                              device::Rows rows, int64_t longest, int64_t width, T rate) {
  const bool packed = in_packs<T>({y, dy, dx}, {width});
  const LaneGrid shape = column_grid<T>(context, segments, longest, width, packed ? kPack<T> : 1);
  launch(context, "softmax_backward", shape.grid,
         packed ? &device::softmax_backward<T, kPack<T>> : &device::softmax_backward<T, 1>, op, y, dy, dx, segments,
         rows, width, rate, shape.lanes);
}

template void softmax_columns(const Context&, SoftmaxOp, const float*, float*, int64_t, device::Rows, int64_t, int64_t,
                              float);
template void softmax_columns(const Context&, SoftmaxOp, const double*, double*, int64_t, device::Rows, int64_t,
                              int64_t, double);
template void softmax_backward_columns(const Context&, SoftmaxOp, const float*, const float*, float*, int64_t,
                                       device::Rows, int64_t, int64_t, float);
template void softmax_backward_columns(const Context&, SoftmaxOp, const double*, const double*, double*, int64_t,
                                       device::Rows, int64_t, int64_t, double);

void CudaOps::segment_softmax(SoftmaxOp op, const Array& x, const Segments& segments, double temperature,
                              const Array& y) {
  if (x.size == 0) return;
  dispatch_floating(x.dtype, [&]<class T>() {
    const T rate = static_cast<T>(1 / temperature);
    softmax_columns<T>(context_, op, x.as<T>(), y.as<T>(), segments.count, {segments.offsets, 0}, segments.max_length,
                       x.shape.back(), rate);
  });
}

void CudaOps::segment_softmax_backward(SoftmaxOp op, const Array& y, const Array& dy, const Segments& segments,
                                       double temperature, const Array& dx) {
  if (y.size == 0) return;
  dispatch_floating(y.dtype, [&]<class T>() {
    const T rate = static_cast<T>(1 / temperature);
    softmax_backward_columns<T>(context_, op, y.as<T>(), dy.as<T>(), dx.as<T>(), segments.count, {segments.offsets, 0},
                                segments.max_length, y.shape.back(), rate);
  });
}

}  // namespace reel::cuda
