// Reductions over the rows of each segment, their gradients, and the ways to and from padded arrays. A reduction: a block
// takes a segment and a tile of columns, its row lanes the rows. Their gradients: lanes of a warp take a row, with its
// segment's values. Neighbouring columns go in packs where memory allows that.

#include "reel/backends/cuda/reduction.h"
#include "reel/backends/cuda/segment_rows.h"

namespace reel::cuda {

namespace device {
namespace {

inline constexpr int kReduceThreads = 128;  // of a block

/// Rows on their way to a thread; fewer where places need the registers.
template <class Acc>
inline constexpr int kRowsInFlight = sizeof(Acc) > 8 ? 4 : 8;

/// `run` neighbouring columns per thread; `width` is a multiple of it. A row lane takes every rows()-th row in turn: lanes
/// beyond the segment's rows change nothing, so that a segment's result is that of any number of lanes that it does not fill.
template <class Op, class T, int run>
__global__ void __launch_bounds__(kReduceThreads)
    segment_reduce(const T* x, const int64_t* offsets, int64_t segments, int64_t width, bool mean, T* y, int64_t* which,
                   Lanes lanes) {
  using Values = Several<typename Op::Acc, run>;
  constexpr int kInFlight = kRowsInFlight<typename Op::Acc>;
  REEL_DYNAMIC_SHARED(Values, scratch);
  for (int64_t s = blockIdx.x; s < segments; s += gridDim.x) {
    const int64_t first = offsets[s], rows = offsets[s + 1] - first;
    for (int64_t tile = static_cast<int64_t>(blockIdx.y) * lanes.columns * run; tile < width;
         tile += static_cast<int64_t>(gridDim.y) * lanes.columns * run) {
      const int64_t column = tile + lanes.column() * run;
      Values acc = identities<Op, run>();
      const T* const from = x + first * width + column;
      for (int64_t i = lanes.row(); i < rows && column < width; i += kInFlight * lanes.rows()) {
        Pack<T, run> row[kInFlight];
        REEL_UNROLL
        for (int k = 0; k < kInFlight; ++k)
          if (i + k * lanes.rows() < rows) row[k] = load_pack<T, run>(from + (i + k * lanes.rows()) * width);
        REEL_UNROLL
        for (int k = 0; k < kInFlight; ++k)
          if (i + k * lanes.rows() < rows) join_pack<Op>(acc, row[k], i + k * lanes.rows());
      }
      acc = lanes.join(acc, scratch, [](const Values& a, const Values& b) { return join_each<Op>(a, b); });
      if (lanes.row() != 0 || column >= width) continue;
      REEL_UNROLL
      for (int j = 0; j < run; ++j) {
        const int64_t at = s * width + column + j;
        const T value = Op::value(acc.v[j]);
        y[at] = mean && rows > 0 ? value / static_cast<T>(rows) : value;
        if constexpr (!std::is_same_v<typename Op::Acc, T>) which[at] = acc.v[j].place;
      }
    }
  }
}

template <class T, int run>
__global__ void segment_broadcast(const RowRuns rows, const T* x, int64_t width, bool mean, T* y) {
  rows.for_each([&](int64_t row, int64_t s, int lane) {
    const T count = mean ? static_cast<T>(rows.offsets[s + 1] - rows.offsets[s]) : T(1);
    for (int64_t j = lane * run; j < width; j += rows.lanes * run) {
      Pack<T, run> value = load_pack<T, run>(x + s * width + j);
      if (mean) {
        REEL_UNROLL
        for (int k = 0; k < run; ++k) value.v[k] /= count;
      }
      store_pack(y + row * width + j, value);
    }
  });
}

template <class T, int run>
__global__ void segment_select_backward(const RowRuns rows, const T* dy, const int64_t* which, int64_t width, T* dx) {
  rows.for_each([&](int64_t row, int64_t s, int lane) {
    const int64_t place = row - rows.offsets[s];
    for (int64_t j = lane * run; j < width; j += rows.lanes * run) {
      const Pack<int64_t, run> winner = load_pack<int64_t, run>(which + s * width + j);
      Pack<T, run> value = load_pack<T, run>(dy + s * width + j);
      REEL_UNROLL
      for (int k = 0; k < run; ++k) value.v[k] = winner.v[k] == place ? value.v[k] : T(0);
      store_pack(dx + row * width + j, value);
    }
  });
}

/// y [segments, length, width], an element per thread and step.
template <class T>
__global__ void segment_pad(const T* x, const int64_t* offsets, int64_t segments, int64_t length, int64_t width,
                            T padding, T* y) {
  for (int64_t i = first_unit(); i < segments * length * width; i += unit_step()) {
    const int64_t place = i / width, s = place / length, row = place - s * length;
    const int64_t first = offsets[s];
    y[i] = row < offsets[s + 1] - first ? x[(first + row) * width + (i - place * width)] : padding;
  }
}

template <class T>
__global__ void segment_unpad(const T* x, const int64_t* offsets, int64_t segments, int64_t total, int64_t length,
                              int64_t width, T* y) {
  for_each_element(total, width, offsets, segments, [&](int64_t i, int64_t row, int64_t s, int64_t j) {
    y[i] = x[(s * length + row - offsets[s]) * width + j];
  });
}

}  // namespace
}  // namespace device

namespace {

/// f.template operator()<run>() for how many columns of rows of `width` elements a thread may take at a time: a pack, or one.
template <class T, class F>
void dispatch_run(int64_t width, std::initializer_list<const void*> arrays, F&& f) {
  if (in_packs<T>(arrays, {width})) return f.template operator()<kPack<T>>();
  f.template operator()<1>();
}

}  // namespace

void CudaOps::segment_reduce(ReduceOp op, const Array& x, const Segments& segments, const Array& y,
                             const Array* which) {
  if (y.size == 0) return;
  const int64_t width = y.shape.back();
  dispatch_floating(x.dtype, [&]<class T>() {
    dispatch_reduction<T>(op, which != nullptr, [&]<class Op>() {
      dispatch_run<T>(width, {x.data}, [&]<int run>() {
        LaneGrid shape = lane_grid(context_, segments.count, segments.max_length, ceil_div(width, run),
                                   run * sizeof(typename Op::Acc));
        if (shape.grid.threads > device::kReduceThreads) shape.grid.threads = device::kReduceThreads;
        if (op == ReduceOp::prod) shape.lanes.columns = shape.grid.threads;  // in order, by one thread for each column
        launch(context_, "segment_reduce", shape.grid, &device::segment_reduce<Op, T, run>, x.as<T>(), segments.offsets,
               segments.count, width, op == ReduceOp::mean, y.as<T>(),
               which != nullptr ? which->as<int64_t>() : nullptr, shape.lanes);
      });
    });
  });
}

void CudaOps::segment_broadcast(const Array& x, const Segments& segments, bool mean, const Array& y) {
  if (y.size == 0) return;
  const int64_t width = y.shape.back();
  dispatch_floating(x.dtype, [&]<class T>() {
    dispatch_run<T>(width, {x.data, y.data}, [&]<int run>() {
      const RowRunGrid shape =
          row_run_grid(context_, segments.offsets, segments.count, segments.total, ceil_div(width, run));
      launch(context_, "segment_broadcast", shape.grid, &device::segment_broadcast<T, run>, shape.rows, x.as<T>(),
             width, mean, y.as<T>());
    });
  });
}

void CudaOps::segment_select_backward(const Array& dy, const Array& which, const Segments& segments, const Array& dx) {
  if (dx.size == 0) return;
  const int64_t width = dx.shape.back();
  dispatch_floating(dy.dtype, [&]<class T>() {
    const bool packed = is_aligned(which.data, sizeof(int64_t), kPack<T>);
    dispatch_run<T>(packed ? width : 1, {dy.data, dx.data}, [&]<int run>() {
      const RowRunGrid shape =
          row_run_grid(context_, segments.offsets, segments.count, segments.total, ceil_div(width, run));
      launch(context_, "segment_select_backward", shape.grid, &device::segment_select_backward<T, run>, shape.rows,
             dy.as<T>(), which.as<int64_t>(), width, dx.as<T>());
    });
  });
}

void CudaOps::segment_pad(const Array& x, const Segments& segments, Scalar padding, const Array& y) {
  dispatch_all(x.dtype, [&]<class T>() {
    launch(context_, "segment_pad", grid_for(context_, y.size), &device::segment_pad<T>, x.as<T>(), segments.offsets,
           segments.count, y.shape[1], y.shape.back(), convert_scalar<T>(padding), y.as<T>());
  });
}

void CudaOps::segment_unpad(const Array& x, const Segments& segments, const Array& y) {
  dispatch_bytes(size_of(x.dtype), [&]<class T>() {
    launch(context_, "segment_unpad", grid_for(context_, y.size), &device::segment_unpad<T>, x.as<T>(),
           segments.offsets, segments.count, segments.total, x.shape[1], y.shape.back(), y.as<T>());
  });
}

}  // namespace reel::cuda
