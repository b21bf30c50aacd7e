// Rows brought to mean 0 and variance 1, or to root mean square 1: a warp or a block per row, 16 bytes per access where rows
// allow it. A row is read once from memory and again from the L1 cache, which holds the rows that are being worked on.
//
// The variance is that of x - mean, with the mean taken from the row's first element on; what rounding takes from the mean
// (`rest`) is summed on the way and subtracted too, as on the CPU.

#include "reel/backends/cuda/group.h"
#include "reel/core/scalar/math.h"

namespace reel::cuda {

namespace device {

template <class T, int K>
struct Sums {
  T of[K];
};
template <class T, int K>
REEL_DEVICE Sums<T, K> from_lane(const Sums<T, K>& sums, int other) {
  Sums<T, K> theirs;
  REEL_UNROLL
  for (int k = 0; k < K; ++k) theirs.of[k] = from_lane(sums.of[k], other);
  return theirs;
}

namespace {

template <class T, int K>
REEL_DEVICE Sums<T, K> join_sums(RowGroup group, const Sums<T, K>& own, Sums<T, K>* scratch) {
  return group.join(own, scratch, [](const Sums<T, K>& a, const Sums<T, K>& b) {
    Sums<T, K> sums;
    REEL_UNROLL
    for (int k = 0; k < K; ++k) sums.of[k] = a.of[k] + b.of[k];
    return sums;
  });
}

/// f(i) for the packs of `count` elements of a row that are this thread's.
template <int count, class F>
REEL_DEVICE void each_pack(RowGroup group, int64_t n, F f) {
  for (int64_t i = static_cast<int64_t>(group.lane()) * count; i < n; i += static_cast<int64_t>(group.width()) * count)
    f(i);
}

/// The mean is mean + rest, which is 0 without centering.
template <class T>
struct RowStatistics {
  T mean, rest, rstd;
  REEL_DEVICE T standardize(T x) const { return scalar::fma(x - mean, rstd, -rest * rstd); }
};

template <class T, int count>
REEL_DEVICE RowStatistics<T> statistics_of(RowGroup group, const T* x, int64_t n, bool center, T epsilon,
                                           Sums<T, 2>* scratch) {
  // The sums of x - origin and of its square.
  const auto sums_from = [&](T origin) {
    Sums<T, 2> sums{};
    each_pack<count>(group, n, [&](int64_t i) {
      const Pack<T, count> from = load_pack<T, count>(x + i);
      REEL_UNROLL
      for (int k = 0; k < count; ++k) {
        const T d = from.v[k] - origin;
        sums.of[0] += d;
        sums.of[1] = scalar::fma(d, d, sums.of[1]);
      }
    });
    return join_sums(group, sums, scratch);
  };
  const T size = static_cast<T>(n);
  if (!center) return {0, 0, T(1) / scalar::sqrt(sums_from(T(0)).of[1] / size + epsilon)};
  const T mean = x[0] + sums_from(x[0]).of[0] / size;
  const Sums<T, 2> sums = sums_from(mean);
  const T rest = sums.of[0] / size;
  return {mean, rest, T(1) / scalar::sqrt(sums.of[1] / size - rest * rest + epsilon)};
}

template <class T, int count>
__global__ void normalize(const T* x, bool center, T epsilon, const T* scale, const T* shift, T* y, T* mean, T* rstd,
                          int64_t rows, int64_t n, RowGroup group) {
  using Unit = Pack<T, count>;
  using Scratch = Sums<T, 2>;
  REEL_DYNAMIC_SHARED(Scratch, scratch);
  for (int64_t r = group.first(); r < rows; r += group.step()) {
    const RowStatistics<T> s = statistics_of<T, count>(group, x + r * n, n, center, epsilon, scratch);
    each_pack<count>(group, n, [&](int64_t i) {
      Unit value = load_pack<T, count>(x + r * n + i), factor, term;
      if (scale != nullptr) factor = load_pack<T, count>(scale + i);
      if (shift != nullptr) term = load_pack<T, count>(shift + i);
      REEL_UNROLL
      for (int k = 0; k < count; ++k) {
        value.v[k] = s.standardize(value.v[k]);
        if (scale != nullptr) value.v[k] *= factor.v[k];
        if (shift != nullptr) value.v[k] += term.v[k];
      }
      store_pack(y + r * n + i, value);
    });
    if (group.lane() != 0) continue;
    if (mean != nullptr) mean[r] = s.mean + s.rest;
    rstd[r] = s.rstd;
  }
}

/// What backward reads and writes; null: not there, not wanted.
template <class T>
struct Gradient {
  const T *x, *scale, *mean, *rstd, *dy;
  T *dx, *parts;  // parts [blocks, width]: each block's sums for dscale, then dshift
  int64_t rows, n;
  bool dscale, dshift;

  __host__ __device__ int64_t width() const { return (dscale ? n : 0) + (dshift ? n : 0); }
};

/// dx = (g - mean(g) - xhat mean(g xhat)) rstd with g = dy scale; without centering without mean(g). Each thread keeps its
/// columns' sums of dy xhat and dy, in shared memory if there is room.
template <class T, int count>
__global__ void normalize_backward(const __grid_constant__ Gradient<T> g, RowGroup group, bool in_shared) {
  using Unit = Pack<T, count>;
  using Scratch = Sums<T, 3>;
  REEL_DYNAMIC_SHARED(Scratch, scratch);
  T* const shared = reinterpret_cast<T*>(scratch + kWarp);
  const int64_t n = g.n, width = g.width();
  T* const part = g.parts + blockIdx.x * width;
  T* const sums = in_shared ? shared + group.in_block() * width : part;
  T* const dscale = g.dscale ? sums : nullptr;
  T* const dshift = g.dshift ? sums + width - n : nullptr;
  each_pack<count>(group, n, [&](int64_t i) {
    if (g.dscale) store_pack(dscale + i, Unit{});
    if (g.dshift) store_pack(dshift + i, Unit{});
  });
  for (int64_t r = group.first(); r < g.rows; r += group.step()) {
    const T *const x = g.x + r * n, *const dy = g.dy + r * n;
    const T center = g.mean != nullptr ? g.mean[r] : T(0), rate = g.rstd[r], size = static_cast<T>(n);
    const auto scaled = [&](const Unit& grad, int64_t i) {
      Unit result = grad;
      if (g.scale == nullptr) return result;
      const Unit factor = load_pack<T, count>(g.scale + i);
      REEL_UNROLL
      for (int k = 0; k < count; ++k) result.v[k] *= factor.v[k];
      return result;
    };
    Sums<T, 3> own{};
    each_pack<count>(group, n, [&](int64_t i) {
      const Unit from = load_pack<T, count>(x + i), grad = scaled(load_pack<T, count>(dy + i), i);
      REEL_UNROLL
      for (int k = 0; k < count; ++k) {
        const T d = from.v[k] - center;
        own.of[0] += grad.v[k];
        own.of[1] = scalar::fma(grad.v[k], d, own.of[1]);
        own.of[2] += d;
      }
    });
    const Sums<T, 3> total = join_sums(group, own, scratch);
    const bool centered = g.mean != nullptr;
    const RowStatistics<T> s{center, centered ? total.of[2] / size : T(0), rate};
    const T shift = centered ? -total.of[0] / size * rate : T(0);
    const T slope = -(total.of[1] - s.rest * total.of[0]) * rate / size * rate;
    each_pack<count>(group, n, [&](int64_t i) {
      const Unit from = load_pack<T, count>(x + i), grad = load_pack<T, count>(dy + i), inner = scaled(grad, i);
      Unit xhat, to;
      REEL_UNROLL
      for (int k = 0; k < count; ++k) {
        xhat.v[k] = s.standardize(from.v[k]);
        to.v[k] = scalar::fma(xhat.v[k], slope, scalar::fma(inner.v[k], rate, shift));
      }
      if (g.dx != nullptr) store_pack(g.dx + r * n + i, to);
      REEL_UNROLL
      for (int k = 0; k < count; ++k) {
        if (g.dscale) dscale[i + k] = scalar::fma(grad.v[k], xhat.v[k], dscale[i + k]);
        if (g.dshift) dshift[i + k] += grad.v[k];
      }
    });
  }
  if (!in_shared) return;
  __syncthreads();
  const int groups = group.whole_block ? 1 : blockDim.x / kWarp;
  for (int64_t j = threadIdx.x; j < width; j += blockDim.x) {
    T sum = shared[j];
    for (int k = 1; k < groups; ++k) sum += shared[k * width + j];
    part[j] = sum;
  }
}

}  // namespace
}  // namespace device

namespace {

template <class T>
T* pointer(const Array* array) {
  return array != nullptr ? array->as<T>() : nullptr;
}

/// Whether rows of n elements can be read in packs at all of these addresses (null: not there).
template <class T>
bool in_packs(int64_t n, std::initializer_list<const T*> addresses) {
  bool packed = n % kPack<T> == 0;
  for (const T* address : addresses) packed = packed && is_aligned(address, sizeof(T), kPack<T>);
  return packed;
}

}  // namespace

void CudaOps::normalize(const Array& x, bool center, double epsilon, const Array* scale, const Array* shift,
                        const Array& y, const Array* mean, const Array& rstd) {
  if (x.size == 0) return;
  const int64_t rows = x.shape[0], n = x.shape[1];
  dispatch_floating(x.dtype, [&]<class T>() {
    device::RowGroup group{};
    Grid grid = row_grid(context_, rows, n, group.whole_block);
    grid.shared_bytes = sizeof(device::Sums<T, 2>) * device::kWarp;
    const bool packed = in_packs<T>(n, {x.as<T>(), pointer<T>(scale), pointer<T>(shift), y.as<T>()});
    launch(context_, "normalize", grid, packed ? &device::normalize<T, kPack<T>> : &device::normalize<T, 1>, x.as<T>(),
           center, static_cast<T>(epsilon), pointer<T>(scale), pointer<T>(shift), y.as<T>(), pointer<T>(mean),
           rstd.as<T>(), rows, n, group);
  });
}

void CudaOps::normalize_backward(const Array& x, bool, const Array* scale, const Array* mean, const Array& rstd,
                                 const Array& dy, const Array* dx, const Array* dscale, const Array* dshift) {
  constexpr int64_t kRoom = 40 << 10, kRowsOfBlock = 32;
  if (x.shape[1] == 0) return;
  if (x.shape[0] == 0) {
    if (dscale != nullptr) fill(*dscale, 0);
    if (dshift != nullptr) fill(*dshift, 0);
    return;
  }
  dispatch_floating(x.dtype, [&]<class T>() {
    device::Gradient<T> g{x.as<T>(),  pointer<T>(scale), pointer<T>(mean), rstd.as<T>(),
                          dy.as<T>(), pointer<T>(dx),    nullptr,          x.shape[0],
                          x.shape[1], dscale != nullptr, dshift != nullptr};
    const int64_t width = g.width();
    device::RowGroup group{};
    Grid grid = row_grid(context_, g.rows, g.n, group.whole_block);
    const auto room = [&] {
      return (group.whole_block ? 1 : grid.threads / device::kWarp) * width * static_cast<int64_t>(sizeof(T));
    };
    while (!group.whole_block && room() > kRoom) grid.threads /= 2;
    const bool in_shared = room() <= kRoom;
    grid.shared_bytes = sizeof(device::Sums<T, 3>) * device::kWarp + (in_shared ? static_cast<std::size_t>(room()) : 0);
    // Enough rows for each block that its sums cost little.
    if (width > 0 && grid.blocks > ceil_div(g.rows, kRowsOfBlock)) grid.blocks = ceil_div(g.rows, kRowsOfBlock);
    const Workspace parts(context_.memory(), sizeof(T) * static_cast<std::size_t>(grid.blocks * width));
    g.parts = parts.as<T>();
    const bool packed = in_packs<T>(g.n, {g.x, g.scale, g.dy, g.dx});
    launch(context_, "normalize_backward", grid,
           packed ? &device::normalize_backward<T, kPack<T>> : &device::normalize_backward<T, 1>, g, group, in_shared);
    const auto add_up = [&](const Array* to, T* from) {
      if (to == nullptr) return;
      reduce(ReduceOp::sum, matrix_of(from, grid.blocks, g.n, width, *to), matrix_of(to->data, 1, g.n, g.n, *to),
             nullptr);
    };
    add_up(dscale, g.parts);
    add_up(dshift, g.parts + (width - g.n));
  });
}

}  // namespace reel::cuda
