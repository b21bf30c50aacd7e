// Normalised rows that fit into registers: x, and for the gradient dy, are read once. The gradient's blocks go over many rows
// with the same threads on the same columns, so that the sums for weight and bias stay in registers until the end; the next row
// is on its way while one is worked on.

#include "reel/backends/cuda/normalize.h"

namespace reel::cuda {

namespace device {
namespace {

template <class T, int count, int packs>
__global__ void normalize_held(const T* x, bool center, T epsilon, const T* scale, const T* shift, T* y, T* mean,
                               T* rstd, int64_t rows, int n, Holders holders) {
  using Row = HeldRow<T, count, packs>;
  using Scratch = Sums<T, 2>;
  REEL_DYNAMIC_SHARED(Scratch, scratch);
  const int64_t r = holders.row();
  const int size = r < rows ? n : 0;
  Row row;
  row.load(x + r * n, size, holders, T(0));
  const T first = center && r < rows ? x[r * n] : T(0);
  const RowStatistics<T> s = statistics_of(
      first, n, center, epsilon,
      [&](T origin) {
        T sum = 0;
        Row::each_place(size, holders, [&](int p, int k, int) { sum += row.at[p].v[k] - origin; });
        return holders.sum(sum, reinterpret_cast<T*>(scratch));
      },
      [&](T origin) {
        Scratch sums{};
        Row::each_place(size, holders, [&](int p, int k, int) {
          const T d = row.at[p].v[k] - origin;
          sums.of[0] += d;
          sums.of[1] = scalar::fma(d, d, sums.of[1]);
        });
        return join_sums(holders, sums, scratch);
      });
  REEL_UNROLL
  for (int p = 0; p < packs; ++p) {
    const int i = Row::place(holders, p);
    if (i < size) store_pack(y + r * n + i, normalized(s, row.at[p], scale, shift, i));
  }
  if (size == 0 || holders.lane() != 0) return;
  if (mean != nullptr) mean[r] = s.mean + s.rest;
  rstd[r] = s.rstd;
}

/// A row of x and dy with its statistics.
template <class T, int packs>
struct GradientRow {
  HeldRow<T, kPack<T>, packs> x, dy;
  T center, rate;

  REEL_DEVICE void load(const Gradient<T>& g, int64_t r, Holders holders) {
    const bool there = r < g.rows;
    const int size = there ? static_cast<int>(g.n) : 0;
    x.load(g.x + r * g.n, size, holders, T(0));
    dy.load(g.dy + r * g.n, size, holders, T(0));
    center = there ? g.center(r) : T(0);
    rate = there ? g.rstd[r] : T(0);
  }
};

/// dx, and the block's sums of dy xhat and dy for each column in its row of g.parts. Rows are dealt out over the grid.
template <class T, int packs>
__global__ void normalize_backward_held(const __grid_constant__ Gradient<T> g, Holders holders) {
  using Row = HeldRow<T, kPack<T>, packs>;
  using Scratch = Sums<T, 3>;
  constexpr bool ahead = packs <= 2;  // there are registers for the row that comes next
  REEL_DYNAMIC_SHARED(Scratch, scratch);
  const int n = static_cast<int>(g.n);
  Row scale, dscale{}, dshift{};
  if (g.scale != nullptr) scale.load(g.scale, n, holders, T(0));
  else scale.each([](T& factor) { factor = 1; });
  const int64_t rows_of_block = holders.rows_of_block(), step = gridDim.x * rows_of_block;
  int64_t r = holders.row();
  GradientRow<T, packs> row, next;
  row.load(g, r, holders);
  for (int64_t block_row = blockIdx.x * rows_of_block; block_row < g.rows; block_row += step, r += step) {
    if (ahead) next.load(g, r + step, holders);
    const int size = r < g.rows ? n : 0;
    Scratch sums{};
    Row::each_place(size, holders, [&](int p, int k, int) {
      const T d = row.x.at[p].v[k] - row.center, grad = row.dy.at[p].v[k] * scale.at[p].v[k];
      sums.of[0] += grad;
      sums.of[1] = scalar::fma(grad, d * row.rate, sums.of[1]);
      sums.of[2] += d;
    });
    const RowGradient<T> gradient(join_sums(holders, sums, scratch), row.center, row.rate, g.mean != nullptr, n);
    Row::each_place(size, holders, [&](int p, int k, int) {
      const T dy = row.dy.at[p].v[k], xhat = gradient.statistics.standardize(row.x.at[p].v[k]);
      dscale.at[p].v[k] = scalar::fma(dy, xhat, dscale.at[p].v[k]);
      dshift.at[p].v[k] += dy;
      row.x.at[p].v[k] = gradient.at(xhat, dy * scale.at[p].v[k]);
    });
    if (g.add) {
      row.dy.load(g.dx + r * n, size, holders, T(0));
      Row::each_place(size, holders,
                      [&](int p, int k, int) { row.x.at[p].v[k] = row.dy.at[p].v[k] + row.x.at[p].v[k]; });
    }
    if (g.dx != nullptr) row.x.store(g.dx + r * n, size, holders);
    if (ahead) row = next;
    else row.load(g, r + step, holders);
  }
  const int64_t width = g.width();
  T* const part = g.parts + blockIdx.x * width;
  // Several rows of a block at a time: their threads' sums are added up in shared memory.
  T* const shared = reinterpret_cast<T*>(scratch + kWarp);
  T* const sums = holders.whole_block() ? part : shared + holders.in_block() * width;
  if (g.dscale) dscale.store(sums, n, holders);
  if (g.dshift) dshift.store(sums + width - n, n, holders);
  if (holders.whole_block()) return;
  __syncthreads();
  for (int64_t j = threadIdx.x; j < width; j += blockDim.x) {
    T sum = shared[j];
    for (int64_t k = 1; k < rows_of_block; ++k) sum += shared[k * width + j];
    part[j] = sum;
  }
}

}  // namespace
}  // namespace device

template <class T>
void normalize_held(const Context& context, const T* x, bool center, double epsilon, const T* scale, const T* shift,
                    T* y, T* mean, T* rstd, int64_t rows, int64_t n) {
  const HeldPlan plan = held_plan<T>(rows, n, in_packs<T>({x, scale, shift, y}, {n}), sizeof(device::Sums<T, 2>));
  dispatch_held<T>(plan, [&]<int count, int packs>() {
    launch(context, "normalize", plan.grid, &device::normalize_held<T, count, packs>, x, center,
           static_cast<T>(epsilon), scale, shift, y, mean, rstd, rows, static_cast<int>(n), plan.holders);
  });
}

template <class T>
HeldPlan held_gradient_plan(const Context& context, int64_t rows, int64_t n, int64_t width) {
  constexpr int64_t kRowsOfThread = 2;  // at least, that the sums cost little
  HeldPlan plan{true, 1, {device::kWarp}, {}};
  const int64_t units = n / kPack<T>;
  // Two packs per thread rather than one: half as many threads join sums, which costs more than the elements do.
  if (units > device::kWarp) plan.packs = units > int64_t{kMostThreads} * 2 ? 4 : 2;
  const int threads_of_processor = plan.packs == 1 ? 1024 : plan.packs == 2 ? 640 : 512;  // for which registers suffice
  if (plan.packs == 2) plan.grid.threads = 128;
  const int64_t lanes = ceil_div(units, plan.packs);
  if (lanes <= device::kWarp) plan.holders.lanes = power_of_two_from(lanes, 1, device::kWarp);
  else plan.holders.lanes = plan.grid.threads = static_cast<int>(ceil_div(lanes, device::kWarp) * device::kWarp);
  const int64_t rows_of_block = plan.grid.threads / plan.holders.lanes;
  const int64_t most = int64_t{context.processors()} * (threads_of_processor / plan.grid.threads);
  const int64_t blocks = ceil_div(rows, rows_of_block * (width > 0 ? kRowsOfThread : 1));
  plan.grid.blocks = blocks < most ? blocks : most;
  plan.grid.shared_bytes = sizeof(device::Sums<T, 3>) * device::kWarp;
  if (rows_of_block > 1) plan.grid.shared_bytes += sizeof(T) * static_cast<std::size_t>(rows_of_block * width);
  return plan;
}

template <class T>
void normalize_backward_held(const Context& context, const HeldPlan& plan, const device::Gradient<T>& g) {
  const auto kernel = plan.packs == 1   ? &device::normalize_backward_held<T, 1>
                      : plan.packs == 2 ? &device::normalize_backward_held<T, 2>
                                        : &device::normalize_backward_held<T, 4>;
  launch(context, "normalize_backward", plan.grid, kernel, g, plan.holders);
}

template void normalize_held(const Context&, const float*, bool, double, const float*, const float*, float*, float*,
                             float*, int64_t, int64_t);
template void normalize_held(const Context&, const double*, bool, double, const double*, const double*, double*,
                             double*, double*, int64_t, int64_t);
template HeldPlan held_gradient_plan<float>(const Context&, int64_t, int64_t, int64_t);
template HeldPlan held_gradient_plan<double>(const Context&, int64_t, int64_t, int64_t);
template void normalize_backward_held(const Context&, const HeldPlan&, const device::Gradient<float>&);
template void normalize_backward_held(const Context&, const HeldPlan&, const device::Gradient<double>&);

}  // namespace reel::cuda
