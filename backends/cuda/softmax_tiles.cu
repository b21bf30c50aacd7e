// Softmax along rows of a few elements that cannot be read in packs: a thread takes a row, and a warp brings 32 of them, which
// follow each other in memory, through shared memory. Only the lanes of a warp wait for each other.

#include "reel/backends/cuda/softmax.h"

namespace reel::cuda {

namespace device {
namespace {

/// A row of up to `most` elements in one thread.
template <class T, int most>
struct ShortRow {
  T v[most];

  REEL_DEVICE void load(const T* from, int n) {
    REEL_UNROLL
    for (int i = 0; i < most; ++i)
      if (i < n) v[i] = from[i];
  }
  REEL_DEVICE void store(T* to, int n) const {
    REEL_UNROLL
    for (int i = 0; i < most; ++i)
      if (i < n) to[i] = v[i];
  }
  /// f(element, i) in order.
  template <class F>
  REEL_DEVICE void each(int n, F f) {
    REEL_UNROLL
    for (int i = 0; i < most; ++i)
      if (i < n) f(v[i], i);
  }
};

/// Elements that follow each other, moved by a warp between memory and shared memory; at most `most` for each lane. In packs
/// if `packed`: then both begin at a 16-byte boundary.
template <class T, int most>
REEL_DEVICE void copy_tile(const T* from, T* to, int size, bool packed) {
  const int lane = threadIdx.x % kWarp;
  int done = 0;
  if (packed) {
    constexpr int packs = (most + kPack<T> - 1) / kPack<T>;
    Pack<T> held[packs];
    const int whole = size / kPack<T>;
    REEL_UNROLL
    for (int p = 0; p < packs; ++p)
      if (p * kWarp + lane < whole) held[p] = load_pack<T, kPack<T>>(from + (p * kWarp + lane) * kPack<T>);
    REEL_UNROLL
    for (int p = 0; p < packs; ++p)
      if (p * kWarp + lane < whole) store_pack(to + (p * kWarp + lane) * kPack<T>, held[p]);
    done = whole * kPack<T>;
  }
  REEL_ROLLED
  for (int i = done + lane; i < size; i += kWarp) to[i] = from[i];
}

/// The rows of a warp: `count` of them from element `start` on, a row of n for each of the first lanes.
struct RowTile {
  int64_t start;
  int count;

  REEL_DEVICE RowTile(int64_t rows, int64_t n) {
    const int64_t first = first_unit() - threadIdx.x % kWarp;
    start = first * n;
    count = static_cast<int>(larger<int64_t>(0, smaller<int64_t>(kWarp, rows - first)));
  }
  REEL_DEVICE bool has_row() const { return static_cast<int>(threadIdx.x % kWarp) < count; }
};

/// y = softmax or log_softmax of x / temperature = x rate; x, y [rows, n], n <= most.
template <class T, int most, bool exact>
__global__ void softmax_tiles(SoftmaxOp op, const T* x, T* y, int64_t rows, int size, T rate, bool packed) {
  const int n = exact ? most : size;
  REEL_DYNAMIC_SHARED(T, shared);
  T* const tile = shared + threadIdx.x / kWarp * kWarp * n;
  T* const own = tile + threadIdx.x % kWarp * n;
  const RowTile here(rows, n);
  copy_tile<T, most>(x + here.start, tile, here.count * n, packed);
  __syncwarp();
  if (here.has_row()) {
    ShortRow<T, most> row;
    row.load(own, n);
    T greatest = -scalar::infinity<T>(), sum = 0;
    row.each(n, [&](T value, int) { greatest = larger(greatest, value); });
    const T shift = finite_shift(greatest);
    row.each(n, [&](T& value, int) {
      value = (value - shift) * rate;
      const T e = exp_negative(value);
      sum += e;
      if (op == SoftmaxOp::softmax) value = e;
    });
    const T correction = softmax_correction(op, sum);
    row.each(n, [&](T& value, int) { value = op == SoftmaxOp::softmax ? value * correction : value - correction; });
    row.store(own, n);
  }
  __syncwarp();
  copy_tile<T, most>(tile, y + here.start, here.count * n, packed);
}

/// dx = y (dy - sum(y dy)) rate, or (dy - exp(y) sum(dy)) rate for log_softmax, where a row of -infinity has none.
template <class T, int most, bool exact>
__global__ void softmax_backward_tiles(SoftmaxOp op, const T* y, const T* dy, T* dx, int64_t rows, int size, T rate,
                                       bool packed) {
  const int n = exact ? most : size;
  REEL_DYNAMIC_SHARED(T, shared);
  T* const tile = shared + threadIdx.x / kWarp * 2 * kWarp * n;
  T* const grads = tile + kWarp * n;
  const int own = threadIdx.x % kWarp * n;
  const RowTile here(rows, n);
  copy_tile<T, most>(y + here.start, tile, here.count * n, packed);
  copy_tile<T, most>(dy + here.start, grads, here.count * n, packed);
  __syncwarp();
  if (here.has_row()) {
    ShortRow<T, most> value, grad;
    value.load(tile + own, n);
    grad.load(grads + own, n);
    T sum = 0;
    bool reachable = op == SoftmaxOp::softmax;
    value.each(n, [&](T v, int i) {
      sum = add_gradient_term(op, v, grad.v[i], sum);
      reachable = reachable || v != -scalar::infinity<T>();
    });
    grad.each(n, [&](T& g, int i) { g = reachable ? softmax_gradient(op, value.v[i], g, sum) * rate : T(0); });
    grad.store(grads + own, n);
  }
  __syncwarp();
  copy_tile<T, most>(grads, dx + here.start, here.count * n, packed);
}

}  // namespace
}  // namespace device

namespace {

/// f.template operator()<most, exact>(): short rows of f32 have kernels of their own, whose loops have no step too many.
template <class T, int most = 1, class F>
void dispatch_tile(int64_t n, F&& f) {
  if constexpr (std::is_same_v<T, double> || most > kTileRow<T> / 2) return f.template operator()<kTileRow<T>, false>();
  else if constexpr (most % kPack<T> == 0) return dispatch_tile<T, most + 1>(n, f);
  else if (n == most) return f.template operator()<most, true>();
  else return dispatch_tile<T, most + 1>(n, f);
}

/// The launch for rows in tiles, `arrays` of which go through shared memory.
template <class T>
Grid tile_grid(int64_t rows, int64_t n, int arrays) {
  constexpr std::size_t kRoom = 40 << 10;
  const std::size_t bytes = static_cast<std::size_t>(n * arrays) * sizeof(T);  // of a thread
  Grid grid{.threads = 128};
  while (grid.threads > device::kWarp && bytes * static_cast<std::size_t>(grid.threads) > kRoom) grid.threads /= 2;
  grid.shared_bytes = bytes * static_cast<std::size_t>(grid.threads);
  grid.blocks = ceil_div(rows, grid.threads);
  return grid;
}

}  // namespace

template <class T>
void softmax_tiles(const Context& context, SoftmaxOp op, const T* x, T* y, int64_t rows, int64_t n, T rate) {
  dispatch_tile<T>(n, [&]<int most, bool exact>() {
    launch(context, "softmax", tile_grid<T>(rows, n, 1), &device::softmax_tiles<T, most, exact>, op, x, y, rows,
           static_cast<int>(n), rate, in_packs<T>({x, y}));
  });
}

template <class T>
void softmax_backward_tiles(const Context& context, SoftmaxOp op, const T* y, const T* dy, T* dx, int64_t rows,
                            int64_t n, T rate) {
  dispatch_tile<T>(n, [&]<int most, bool exact>() {
    launch(context, "softmax_backward", tile_grid<T>(rows, n, 2), &device::softmax_backward_tiles<T, most, exact>, op,
           y, dy, dx, rows, static_cast<int>(n), rate, in_packs<T>({y, dy, dx}));
  });
}

template void softmax_tiles(const Context&, SoftmaxOp, const float*, float*, int64_t, int64_t, float);
template void softmax_tiles(const Context&, SoftmaxOp, const double*, double*, int64_t, int64_t, double);
template void softmax_backward_tiles(const Context&, SoftmaxOp, const float*, const float*, float*, int64_t, int64_t,
                                     float);
template void softmax_backward_tiles(const Context&, SoftmaxOp, const double*, const double*, double*, int64_t, int64_t,
                                     double);

}  // namespace reel::cuda
