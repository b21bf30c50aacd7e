// Rows brought to mean 0 and variance 1, or to root mean square 1. Those that fit into registers: normalize_held.cu. Here are
// the others: a warp or a block per row, 16 bytes per access where rows allow it; a row is read again from the caches, which
// hold what is being worked on. Few long rows (batch norm) are cut into pieces, a block each, whose sums are made by kernels
// of their own before.
//
// The variance is that of x - mean, with the mean taken from the row's first element on; what rounding takes from the mean
// (`rest`) is summed on the way and subtracted too, as on the CPU.

#include "reel/backends/cuda/normalize.h"

namespace reel::cuda {

namespace device {

namespace {

/// The sums of x - origin and of its square.
template <class T, int count>
REEL_DEVICE Sums<T, 2> sums_of(RowGroup group, const T* x, int64_t begin, int64_t end, T origin, Sums<T, 2>* scratch) {
  Sums<T, 2> sums{};
  each_pack<count>(group, begin, end, [&](int64_t i) { add_moments(sums, load_pack<T, count>(x + i), origin); });
  return join_sums(group, sums, scratch);
}

/// One pass over pieces of rows, a block each: the first, or the second where its sums are given. to [rows, pieces].
template <class T, int count>
__global__ void piece_sums(const T* x, bool center, const Sums<T, 2>* before, Sums<T, 2>* to, int64_t rows, int64_t n,
                           RowPieces pieces) {
  using Scratch = Sums<T, 2>;
  REEL_DYNAMIC_SHARED(Scratch, scratch);
  const RowGroup group{true};
  for (int64_t unit = group.first(); unit < rows * pieces.count; unit += group.step()) {
    const int64_t r = pieces.row(unit);
    T origin = center ? x[r * n] : T(0);
    if (before != nullptr)
      origin += join_pieces(group, before + r * pieces.count, pieces.count, scratch).of[0] / static_cast<T>(n);
    const Scratch sums = sums_of<T, count>(group, x + r * n, pieces.begin(unit), pieces.end(unit, n), origin, scratch);
    if (group.lane() == 0) to[unit] = sums;
  }
}

/// of_pieces [2, rows, pieces]: the sums of both passes where rows are cut.
template <class T, int count>
__global__ void normalize(const T* x, bool center, T epsilon, const T* scale, const T* shift, T* y, T* mean, T* rstd,
                          int64_t rows, int64_t n, const Sums<T, 2>* of_pieces, RowPieces pieces, RowGroup group) {
  using Scratch = Sums<T, 2>;
  REEL_DYNAMIC_SHARED(Scratch, scratch);
  for (int64_t unit = group.first(); unit < rows * pieces.count; unit += group.step()) {
    const int64_t r = pieces.row(unit), begin = pieces.begin(unit);
    const auto pass = [&](int which, T origin) {
      if (pieces.count == 1) return sums_of<T, count>(group, x + r * n, 0, n, origin, scratch);
      return join_pieces(group, of_pieces + (which * rows + r) * pieces.count, pieces.count, scratch);
    };
    const RowStatistics<T> s = statistics_of(
        x[r * n], n, center, epsilon, [&](T origin) { return pass(0, origin).of[0]; },
        [&](T origin) { return pass(center ? 1 : 0, origin); });
    each_pack<count>(group, begin, pieces.end(unit, n), [&](int64_t i) {
      store_pack(y + r * n + i, normalized(s, load_pack<T, count>(x + r * n + i), scale, shift, i));
    });
    if (group.lane() != 0 || begin != 0) continue;
    if (mean != nullptr) mean[r] = s.mean + s.rest;
    rstd[r] = s.rstd;
  }
}

/// The sums of g = dy scale, g (x - mean) and x - mean over a part of row r.
template <class T, int count>
REEL_DEVICE Sums<T, 3> gradient_sums(const Gradient<T>& g, RowGroup group, int64_t r, int64_t begin, int64_t end,
                                     Sums<T, 3>* scratch) {
  const T center = g.center(r), rate = g.rstd[r];
  Sums<T, 3> sums{};
  each_pack<count>(group, begin, end, [&](int64_t i) {
    const auto from = load_pack<T, count>(g.x + r * g.n + i);
    add_gradient(sums, from, g.scaled(load_pack<T, count>(g.dy + r * g.n + i), i), center, rate);
  });
  return join_sums(group, sums, scratch);
}

/// These sums for pieces of rows, a block each; to [rows, pieces].
template <class T, int count>
__global__ void gradient_piece_sums(const __grid_constant__ Gradient<T> g, Sums<T, 3>* to, RowPieces pieces) {
  using Scratch = Sums<T, 3>;
  REEL_DYNAMIC_SHARED(Scratch, scratch);
  const RowGroup group{true};
  for (int64_t unit = group.first(); unit < g.rows * pieces.count; unit += group.step()) {
    const Scratch sums =
        gradient_sums<T, count>(g, group, pieces.row(unit), pieces.begin(unit), pieces.end(unit, g.n), scratch);
    if (group.lane() == 0) to[unit] = sums;
  }
}

/// dx = (g - mean(g) - xhat mean(g xhat)) rstd with g = dy scale; without centering without mean(g). Each thread keeps its
/// columns' sums of dy xhat and dy, in shared memory if there is room.
template <class T, int count>
__global__ void normalize_backward(const __grid_constant__ Gradient<T> g, const Sums<T, 3>* of_pieces, RowPieces pieces,
                                   RowGroup group, bool in_shared) {
  using Unit = Pack<T, count>;
  using Scratch = Sums<T, 3>;
  REEL_DYNAMIC_SHARED(Scratch, scratch);
  T* const shared = reinterpret_cast<T*>(scratch + kWarp);
  const int64_t n = g.n, width = g.width();
  // Cut rows have a block per piece, which sums up its own columns of its row.
  T* const part = g.parts + (pieces.count > 1 ? pieces.row(blockIdx.x) : blockIdx.x) * width;
  T* const sums = in_shared ? shared + group.in_block() * width : part;
  T* const dscale = g.dscale ? sums : nullptr;
  T* const dshift = g.dshift ? sums + width - n : nullptr;
  const int64_t first = pieces.count > 1 ? pieces.begin(blockIdx.x) : 0;
  each_pack<count>(group, first, pieces.end(first / pieces.length, n), [&](int64_t i) {
    if (g.dscale) store_pack(dscale + i, Unit{});
    if (g.dshift) store_pack(dshift + i, Unit{});
  });
  for (int64_t unit = group.first(); unit < g.rows * pieces.count; unit += group.step()) {
    const int64_t r = pieces.row(unit);
    const Scratch total = pieces.count > 1 ? join_pieces(group, of_pieces + r * pieces.count, pieces.count, scratch)
                                           : gradient_sums<T, count>(g, group, r, 0, n, scratch);
    const RowGradient<T> gradient(total, g.center(r), g.rstd[r], g.mean != nullptr, n);
    each_pack<count>(group, pieces.begin(unit), pieces.end(unit, n), [&](int64_t i) {
      const auto from = load_pack<T, count>(g.x + r * n + i), grad = load_pack<T, count>(g.dy + r * n + i);
      const auto inner = g.scaled(grad, i);
      Unit xhat, to;
      REEL_UNROLL
      for (int k = 0; k < count; ++k) {
        xhat.v[k] = gradient.statistics.standardize(from.v[k]);
        to.v[k] = gradient.at(xhat.v[k], inner.v[k]);
      }
      if (g.dx != nullptr) {
        if (g.add) {
          const auto before = load_pack<T, count>(g.dx + r * n + i);
          REEL_UNROLL
          for (int k = 0; k < count; ++k) to.v[k] = before.v[k] + to.v[k];
        }
        store_pack(g.dx + r * n + i, to);
      }
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

void CudaOps::normalize(const Array& x, bool center, double epsilon, const Array* scale, const Array* shift,
                        const Array& y, const Array* mean, const Array& rstd) {
  if (x.size == 0) return;
  const int64_t rows = x.shape[0], n = x.shape[1];
  dispatch_floating(x.dtype, [&]<class T>() {
    using Sums = device::Sums<T, 2>;
    if (n <= kLongestHeld<T>) {
      normalize_held<T>(context_, x.as<T>(), center, epsilon, data_of<T>(scale), data_of<T>(shift), y.as<T>(),
                        data_of<T>(mean), rstd.as<T>(), rows, n);
      return;
    }
    device::RowGroup group{};
    Grid grid = row_grid(context_, rows, n, group.whole_block);
    const device::RowPieces pieces = pieces_for(context_, rows, n, grid);
    grid.shared_bytes = sizeof(Sums) * device::kWarp;
    const bool packed = in_packs<T>({x.data, data_of<T>(scale), data_of<T>(shift), y.data}, {n});
    const int64_t units = rows * pieces.count;
    const Workspace of_pieces(context_.memory(),
                              pieces.count > 1 ? sizeof(Sums) * 2 * static_cast<std::size_t>(units) : 0);
    const auto pass = [&](const Sums* before, Sums* to) {
      launch(context_, "normalize", grid, packed ? &device::piece_sums<T, kPack<T>> : &device::piece_sums<T, 1>,
             x.as<T>(), center, before, to, rows, n, pieces);
    };
    if (pieces.count > 1) {
      pass(nullptr, of_pieces.as<Sums>());
      if (center) pass(of_pieces.as<Sums>(), of_pieces.as<Sums>() + units);
    }
    launch(context_, "normalize", grid, packed ? &device::normalize<T, kPack<T>> : &device::normalize<T, 1>, x.as<T>(),
           center, static_cast<T>(epsilon), data_of<T>(scale), data_of<T>(shift), y.as<T>(), data_of<T>(mean),
           rstd.as<T>(), rows, n, of_pieces.as<Sums>(), pieces, group);
  });
}

void CudaOps::normalize_backward(const Array& x, bool, const Array* scale, const Array* mean, const Array& rstd,
                                 const Array& dy, const GradientSink& dx, const Array* dscale, const Array* dshift) {
  constexpr int64_t kRoom = 40 << 10, kRowsOfBlock = 32;
  if (x.shape[1] == 0) return;
  if (x.shape[0] == 0) {
    if (dscale != nullptr) fill(*dscale, 0);
    if (dshift != nullptr) fill(*dshift, 0);
    return;
  }
  dispatch_floating(x.dtype, [&]<class T>() {
    using Sums = device::Sums<T, 3>;
    device::Gradient<T> g{x.as<T>(),  data_of<T>(scale), data_of<T>(mean),  rstd.as<T>(),
                          dy.as<T>(), dx.to.as<T>(),     nullptr,           x.shape[0],
                          x.shape[1], dscale != nullptr, dshift != nullptr, dx.add};
    const int64_t width = g.width();
    const auto add_up = [&](const Array* to, T* from, int64_t part_rows) {
      if (to == nullptr) return;
      reduce(ReduceOp::sum, matrix_of(from, part_rows, g.n, width, *to), matrix_of(to->data, 1, g.n, g.n, *to),
             nullptr);
    };
    const auto add_up_parts = [&](int64_t part_rows) {
      add_up(dscale, g.parts, part_rows);
      if (dshift != nullptr) add_up(dshift, g.parts + (width - g.n), part_rows);
    };
    const bool packed = in_packs<T>({g.x, g.scale, g.dy, g.dx}, {g.n});
    if (packed && g.n <= kLongestHeldGradient<T>) {
      const HeldPlan plan = held_gradient_plan<T>(context_, g.rows, g.n, width);
      const Workspace parts(context_.memory(), sizeof(T) * static_cast<std::size_t>(plan.grid.blocks * width));
      g.parts = parts.as<T>();
      normalize_backward_held<T>(context_, plan, g);
      add_up_parts(plan.grid.blocks);
      return;
    }
    device::RowGroup group{};
    Grid grid = row_grid(context_, g.rows, g.n, group.whole_block);
    const device::RowPieces pieces = pieces_for(context_, g.rows, g.n, grid);
    const bool cut = pieces.count > 1;
    const auto room = [&] {
      return (group.whole_block ? 1 : grid.threads / device::kWarp) * width * static_cast<int64_t>(sizeof(T));
    };
    while (!group.whole_block && room() > kRoom) grid.threads /= 2;
    const bool in_shared = !cut && room() <= kRoom;
    grid.shared_bytes = sizeof(Sums) * device::kWarp + (in_shared ? static_cast<std::size_t>(room()) : 0);
    // Enough rows for each block that its sums cost little.
    if (!cut && width > 0 && grid.blocks > ceil_div(g.rows, kRowsOfBlock)) grid.blocks = ceil_div(g.rows, kRowsOfBlock);
    const int64_t part_rows = cut ? g.rows : grid.blocks;
    const Workspace parts(context_.memory(), sizeof(T) * static_cast<std::size_t>(part_rows * width));
    g.parts = parts.as<T>();
    const Workspace of_pieces(context_.memory(),
                              cut ? sizeof(Sums) * static_cast<std::size_t>(g.rows * pieces.count) : 0);
    if (cut)
      launch(context_, "normalize_backward", grid,
             packed ? &device::gradient_piece_sums<T, kPack<T>> : &device::gradient_piece_sums<T, 1>, g,
             of_pieces.as<Sums>(), pieces);
    launch(context_, "normalize_backward", grid,
           packed ? &device::normalize_backward<T, kPack<T>> : &device::normalize_backward<T, 1>, g,
           of_pieces.as<Sums>(), pieces, group, in_shared);
    add_up_parts(part_rows);
  });
}

}  // namespace reel::cuda
