// Cross entropy with its softmax, along rows: held in registers, or cut into pieces where no block holds them, as in
// softmax.cu. If a gradient is wanted, forward leaves it along with the loss: one read of the logits and one write.

#include "reel/backends/cuda/last_block.h"
#include "reel/backends/cuda/softmax.h"

namespace reel::cuda {

namespace device {
namespace {

/// The class of each row, as i32 or i64.
struct Classes {
  const void* index;
  bool wide;
  int64_t ignore;

  REEL_DEVICE int64_t of(int64_t r) const {
    return wide ? static_cast<const int64_t*>(index)[r] : static_cast<const std::int32_t*>(index)[r];
  }
};

/// The losses of some rows, and how many of them count. In f64: exact for any number of rows.
struct LossSum {
  double loss, count;
};

/// Where losses go: each row's, or their mean.
template <class T>
struct Losses {
  T *of_row, *lse, *mean;  // of_row or mean is null
  LossSum* of_block;       // for the mean
};

/// loss = (shift - x[target]) + log sum exp(x - shift): both terms are small where the loss is, however large the logits are.
template <class T>
REEL_DEVICE LossSum store_loss(const Classes& classes, const T* x, int64_t r, int64_t n, PieceSum<T> shift_and_sum,
                               const Losses<T>& losses) {
  const T shift = shift_and_sum.greatest, log_sum = scalar::log(shift_and_sum.sum);
  losses.lse[r] = shift + log_sum;
  const int64_t wanted = classes.of(r);
  const bool counts = wanted != classes.ignore;
  T loss = 0;
  if (counts) loss = wanted >= 0 && wanted < n ? (shift - x[r * n + wanted]) + log_sum : scalar::quiet_nan<T>();
  if (losses.of_row != nullptr) losses.of_row[r] = loss;
  return {static_cast<double>(loss), counts ? 1.0 : 0.0};
}

REEL_DEVICE LossSum operator+(LossSum a, LossSum b) { return {a.loss + b.loss, a.count + b.count}; }
REEL_DEVICE LossSum from_lane(LossSum sum, int other) {
  return {device::from_lane(sum.loss, other), device::from_lane(sum.count, other)};
}
REEL_DEVICE LossSum of_block(LossSum own, LossSum* scratch) {
  return join_block(own, scratch, [](LossSum a, LossSum b) { return a + b; });
}

/// The last of the blocks joins what all have stored: the mean, and after the rows' lse how many count.
template <class T>
REEL_DEVICE void add_to_mean(LossSum own, int64_t rows, const Losses<T>& losses, LossSum* scratch) {
  own = of_block(own, scratch);
  if (threadIdx.x == 0) losses.of_block[blockIdx.x] = own;
  if (!is_last_of(0, gridDim.x)) return;
  LossSum sum{0, 0};
  for (int64_t i = threadIdx.x; i < gridDim.x; i += blockDim.x) sum = sum + losses.of_block[i];
  sum = of_block(sum, scratch);
  if (threadIdx.x > 0) return;
  if (losses.mean != nullptr) *losses.mean = static_cast<T>(sum.loss / sum.count);
  losses.lse[rows] = static_cast<T>(sum.count);
}

/// The mean of losses [rows] that lie in memory; if they are null, only how many rows count.
template <class T>
__global__ void mean_of_losses(const T* of_row, Classes classes, Losses<T> losses, int64_t rows) {
  constexpr int kInFlight = 4;
  REEL_DYNAMIC_SHARED(LossSum, scratch);
  LossSum own{0, 0};
  for (int64_t first = first_unit(); first < rows; first += kInFlight * unit_step()) {
    T loss[kInFlight];
    bool counts[kInFlight];
    REEL_UNROLL
    for (int k = 0; k < kInFlight; ++k) {
      const int64_t r = first + k * unit_step();
      loss[k] = r < rows && of_row != nullptr ? of_row[r] : T(0);
      counts[k] = r < rows && classes.of(r) != classes.ignore;
    }
    REEL_UNROLL
    for (int k = 0; k < kInFlight; ++k) own = own + LossSum{static_cast<double>(loss[k]), counts[k] ? 1.0 : 0.0};
  }
  add_to_mean(own, rows, losses, scratch);
}

/// `threads`: the most that a block has. Of 256 of them in f32 five blocks fit at a time, with registers for just the row.
template <class T, int count, int packs, int threads>
__global__ void __launch_bounds__(threads, threads == kThreads && sizeof(T) == 4 ? resident_blocks(threads, 5) : 1)
    cross_entropy_held(const T* x, Classes classes, Losses<T> losses, int64_t rows, int n, Holders holders) {
  REEL_DYNAMIC_SHARED(LossSum, wide_scratch);
  T* const scratch = reinterpret_cast<T*>(wide_scratch);
  const int64_t r = holders.row();
  HeldRow<T, count, packs> row;
  row.load(x + r * n, r < rows ? n : 0, holders, -scalar::infinity<T>());
  T greatest = -scalar::infinity<T>(), sum = 0;
  row.each([&](T value) { greatest = larger(greatest, value); });
  const T shift = finite_shift(holders.join(greatest, scratch, [](T a, T b) { return larger(a, b); }));
  row.each([&](T value) { sum += exp_negative(value - shift); });
  sum = holders.sum(sum, scratch);
  LossSum own{0, 0};
  if (r < rows && holders.lane() == 0) own = store_loss(classes, x, r, n, PieceSum<T>{shift, sum}, losses);
  if (losses.mean != nullptr) add_to_mean(own, rows, losses, wide_scratch);
}

/// A warp per row joins its pieces.
template <class T>
__global__ void cross_entropy_pieces(const T* x, Classes classes, const PieceSum<T>* sums, Losses<T> losses,
                                     int64_t rows, int64_t n, RowPieces pieces, Holders warp) {
  REEL_DYNAMIC_SHARED(LossSum, scratch);
  const int64_t r = warp.row();
  T* const no_scratch = nullptr;
  const PieceSum<T> whole = join_pieces(sums + r * pieces.count, r < rows ? pieces.count : 0, T(1), warp, no_scratch);
  LossSum own{0, 0};
  if (r < rows && warp.lane() == 0) own = store_loss(classes, x, r, n, whole, losses);
  if (losses.mean != nullptr) add_to_mean(own, rows, losses, scratch);
}

/// Where the gradient goes that is made along with the losses, and of what: of their sum, or of the mean of those that count.
template <class T>
struct Ahead {
  T* dx;
  bool of_mean;
  const T* count;  // null: each block counts

  /// The gradient of a row's loss. All threads of the block must call it.
  REEL_DEVICE T weight(const Classes& classes, int64_t rows, T* scratch) const {
    if (!of_mean) return T(1);
    if (count != nullptr) return T(1) / *count;
    T own = 0;
    for (int64_t r = threadIdx.x; r < rows; r += blockDim.x) own += classes.of(r) != classes.ignore ? T(1) : T(0);
    return T(1) / join_block(own, scratch, [](T a, T b) { return a + b; });
  }
};

/// The gradient of a row from its exponentials e: (e / sum - (c == target)) weight. A row whose target is ignored, or of
/// -infinity, whose loss is NaN, has none.
template <class T>
struct RowGradient {
  T sum, scale;
  int wanted;  // from the `begin`-th element on; -1: not there
  bool none;

  REEL_DEVICE RowGradient(const Classes& classes, int64_t r, int64_t begin, int size, T sum, T weight)
      : sum(sum), scale(weight / sum) {
    const int64_t target = classes.of(r), place = target - begin;
    wanted = place >= 0 && place < size ? static_cast<int>(place) : -1;
    none = target == classes.ignore || sum == T(0);
  }
  template <int count, int packs>
  REEL_DEVICE void make(HeldRow<T, count, packs>& e, int size, Holders holders) const {
    e.each_place(size, holders, [&](int p, int k, int i) {
      T& value = e.at[p].v[k];
      value = none ? T(0) : (i == wanted ? value - sum : value) * scale;
    });
  }
};

/// `threads`: as for cross_entropy_held, with four blocks at a time.
template <class T, int count, int packs, int threads>
__global__ void __launch_bounds__(threads, threads == kThreads && sizeof(T) == 4 ? resident_blocks(threads, 4) : 1)
    cross_entropy_ahead_held(const T* x, Classes classes, Losses<T> losses, Ahead<T> ahead, int64_t rows, int n,
                             Holders holders) {
  REEL_DYNAMIC_SHARED(LossSum, wide_scratch);
  T* const scratch = reinterpret_cast<T*>(wide_scratch);
  const int64_t r = holders.row();
  const int size = r < rows ? n : 0;
  HeldRow<T, count, packs> row;
  row.load(x + r * n, size, holders, -scalar::infinity<T>());
  const T weight = ahead.weight(classes, rows, scratch);
  T greatest = -scalar::infinity<T>(), sum = 0;
  row.each([&](T value) { greatest = larger(greatest, value); });
  const T shift = finite_shift(holders.join(greatest, scratch, [](T a, T b) { return larger(a, b); }));
  row.each([&](T& value) {
    value = exp_negative(value - shift);
    sum += value;
  });
  sum = holders.sum(sum, scratch);
  LossSum own{0, 0};
  if (r < rows) {
    RowGradient<T>(classes, r, 0, size, sum, weight).make(row, size, holders);
    row.store(ahead.dx + r * n, size, holders);
    if (holders.lane() == 0) own = store_loss(classes, x, r, n, PieceSum<T>{shift, sum}, losses);
  }
  if (losses.mean != nullptr) add_to_mean(own, rows, losses, wide_scratch);
}

/// The gradient of a piece, from the sums of its row's pieces.
template <class T, int count>
__global__ void cross_entropy_ahead_pieces(const T* x, Classes classes, const PieceSum<T>* sums, Ahead<T> ahead,
                                           int64_t rows, int64_t n, RowPieces pieces, Holders block) {
  REEL_DYNAMIC_SHARED(T, scratch);
  const int64_t unit = gridDim.x - 1 - blockIdx.x, r = pieces.row(unit), begin = pieces.begin(unit);
  const int size = pieces.size(unit, n);
  HeldRow<T, count, kHeld<T> / count> row;
  row.load(x + r * n + begin, size, block, T(0));
  const T weight = ahead.weight(classes, rows, scratch);
  const PieceSum<T> whole = join_pieces(sums + r * pieces.count, pieces.count, T(1), block, scratch);
  row.each([&](T& value) { value = exp_negative(value - whole.greatest); });
  RowGradient<T>(classes, r, begin, size, whole.sum, weight).make(row, size, block);
  row.store(ahead.dx + r * n + begin, size, block);
}

/// dx[r, :] *= dloss[r], in packs of `count` elements of a row. Nothing is read of dx if there is one dloss for all, and that
/// is 1.
template <class T, int count>
__global__ void scale_rows(T* dx, Classes classes, const T* lse, const T* dloss, int64_t stride, int64_t rows,
                           int64_t n) {
  constexpr int kInFlight = 4;
  const T of_all = dloss[0];
  if (stride == 0 && of_all == T(1)) return;
  const bool same = stride == 0 && of_all > T(0) && of_all < scalar::infinity<T>();  // zeros stay zeros
  const int64_t size = rows * n, step = unit_step() * count;
  for (int64_t first = first_unit() * count; first < size; first += kInFlight * step) {
    Pack<T, count> pack[kInFlight];
    T factor[kInFlight];
    REEL_UNROLL
    for (int s = 0; s < kInFlight; ++s) {
      const int64_t i = first + s * step;
      factor[s] = of_all;
      if (i >= size) continue;
      pack[s] = load_pack<T, count>(dx + i);
      if (same) continue;
      const int64_t r = i / n;
      const bool none = classes.of(r) == classes.ignore || lse[r] == -scalar::infinity<T>();
      factor[s] = none ? T(1) : dloss[r * stride];  // zeros, whatever dloss is
    }
    REEL_UNROLL
    for (int s = 0; s < kInFlight; ++s) {
      const int64_t i = first + s * step;
      REEL_UNROLL
      for (int k = 0; k < count; ++k) pack[s].v[k] *= factor[s];
      if (i < size) store_pack(dx + i, pack[s]);
    }
  }
}

}  // namespace
}  // namespace device

void CudaOps::cross_entropy(const Array& logits, const Array& target, std::int64_t ignore, const Array& loss,
                            const Array& lse, const Array* dlogits) {
  constexpr const char* kName = "cross_entropy";
  // Blocks that join their losses themselves: more would wait for each other. Rows of one thread of a kernel that joins them.
  // Rows that each block counts itself, where rows are not cut: more are counted by a kernel.
  constexpr int64_t kMostJoined = 256, kRowsOfThread = 4, kMostCounted = 2048;
  const int64_t rows = logits.shape[0], n = logits.shape[1];
  const device::Classes classes{target.data, target.dtype == DType::i64, ignore};
  const bool mean = loss.rank() == 0;
  dispatch_floating(logits.dtype, [&]<class T>() {
    const T* const x = logits.as<T>();
    T* const dx = data_of<T>(dlogits);
    // start(grid, where the losses go, where the gradient goes) puts the kernel on the stream that leaves the rows' losses.
    const auto run = [&](Grid grid, auto start) {
      if (mean && grid.blocks == 0) grid.blocks = 1;  // the mean of nothing is something
      grid.shared_bytes = sizeof(device::LossSum) * device::kWarp;
      T* const y = loss.as<T>();
      device::Ahead<T> ahead{dx, mean, nullptr};
      if (!mean) return start(grid, device::Losses<T>{y, lse.as<T>(), nullptr, nullptr}, ahead);
      const Workspace of_block(context_.memory(), sizeof(device::LossSum) * kMostJoined);
      const device::Losses<T> losses{nullptr, lse.as<T>(), y, of_block.as<device::LossSum>()};
      const auto join = [&](const T* of_row, T* to) {
        const int64_t blocks = ceil_div(rows, kRowsOfThread * kThreads);
        launch(context_, kName,
               {.blocks = blocks < kMostJoined ? blocks : kMostJoined, .shared_bytes = grid.shared_bytes},
               &device::mean_of_losses<T>, of_row, classes, device::Losses<T>{nullptr, losses.lse, to, losses.of_block},
               rows);
      };
      if (dx != nullptr && (rows > kMostCounted || n > kLongestHeld<T>)) {
        join(nullptr, nullptr);
        ahead.count = losses.lse + rows;
      }
      if (grid.blocks <= kMostJoined) return start(grid, losses, ahead);
      const Workspace of_row(context_.memory(), sizeof(T) * static_cast<std::size_t>(rows));
      start(grid, device::Losses<T>{of_row.as<T>(), losses.lse, nullptr, nullptr}, ahead);
      join(of_row.as<T>(), y);
    };
    if (n <= kLongestHeld<T>) {
      const HeldPlan plan = held_plan<T>(rows, n, in_packs<T>({x, dx}, {n}), sizeof(T));
      run(plan.grid, [&](const Grid& grid, const device::Losses<T>& losses, const device::Ahead<T>& ahead) {
        dispatch_held<T>(plan, [&]<int count, int packs>() {
          const bool wide = grid.threads > kThreads;
          if (dx != nullptr) {
            const auto kernel = wide ? &device::cross_entropy_ahead_held<T, count, packs, kMostThreads>
                                     : &device::cross_entropy_ahead_held<T, count, packs, kThreads>;
            launch(context_, kName, grid, kernel, x, classes, losses, ahead, rows, static_cast<int>(n), plan.holders);
          } else {
            const auto kernel = wide ? &device::cross_entropy_held<T, count, packs, kMostThreads>
                                     : &device::cross_entropy_held<T, count, packs, kThreads>;
            launch(context_, kName, grid, kernel, x, classes, losses, rows, static_cast<int>(n), plan.holders);
          }
        });
      });
      return;
    }
    const PiecePlan<T> plan(rows, n);
    const Workspace of_piece(context_.memory(), sizeof(device::PieceSum<T>) * plan.units());
    const auto* const sums = of_piece.as<device::PieceSum<T>>();
    softmax_piece_sums<T>(context_, plan, x, of_piece.as<device::PieceSum<T>>(), n, T(1));
    run({.blocks = ceil_div(rows, kThreads / device::kWarp)},
        [&](const Grid& grid, const device::Losses<T>& losses, const device::Ahead<T>& ahead) {
          launch(context_, kName, grid, &device::cross_entropy_pieces<T>, x, classes, sums, losses, rows, n,
                 plan.pieces, device::Holders{device::kWarp});
          if (dx == nullptr) return;
          launch(context_, kName, plan.grid,
                 in_packs<T>({x, dx}, {n}) ? &device::cross_entropy_ahead_pieces<T, kPack<T>>
                                           : &device::cross_entropy_ahead_pieces<T, 1>,
                 x, classes, sums, ahead, rows, n, plan.pieces, plan.block);
        });
  });
}

void CudaOps::cross_entropy_scale(const Array& lse, const Array& target, std::int64_t ignore, const Array& dloss,
                                  const Array& dlogits) {
  if (dlogits.size == 0) return;
  const int64_t rows = dlogits.shape[0], n = dlogits.shape[1];
  const device::Classes classes{target.data, target.dtype == DType::i64, ignore};
  const int64_t stride = dloss.rank() == 0 ? 0 : dloss.strides[0];
  dispatch_floating(dlogits.dtype, [&]<class T>() {
    T* const dx = dlogits.as<T>();
    const bool packed = in_packs<T>({dx}, {n});
    const int64_t units = dlogits.size / (packed ? kPack<T> : 1);
    launch(context_, "cross_entropy_scale", grid_for(context_, units),
           packed ? &device::scale_rows<T, kPack<T>> : &device::scale_rows<T, 1>, dx, classes, lse.as<T>(),
           dloss.as<T>(), stride, rows, n);
  });
}

}  // namespace reel::cuda
