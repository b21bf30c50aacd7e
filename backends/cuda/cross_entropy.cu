// Cross entropy with its softmax, along rows: held in registers, or cut into pieces where no block holds them, as in
// softmax.cu.

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
  *losses.mean = static_cast<T>(sum.loss / sum.count);
  losses.lse[rows] = static_cast<T>(sum.count);
}

/// The mean of losses [rows] that lie in memory.
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
      loss[k] = r < rows ? of_row[r] : T(0);
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

/// The gradients of the rows' losses: a stride from each other, or all the same, that of the mean of `count` rows.
template <class T>
struct LossGradients {
  const T* dloss;
  int64_t stride;
  const T* count;  // null: of each row

  REEL_DEVICE T of(int64_t r) const { return count != nullptr ? dloss[0] / count[0] : dloss[r * stride]; }
};

/// The gradient of a row's loss; a target that is ignored, or a row of -infinity, whose loss is NaN, has none.
template <class T>
struct RowGradient {
  T grad, level;
  int64_t wanted;
  bool none;

  REEL_DEVICE RowGradient(const Classes& classes, const T* lse, const LossGradients<T>& grads, int64_t r)
      : grad(grads.of(r)), level(lse[r]), wanted(classes.of(r)) {
    none = wanted == classes.ignore || level == -scalar::infinity<T>();
  }
  REEL_DEVICE T at(T probability, int64_t i) const {
    return none ? T(0) : grad * (probability - (i == wanted ? T(1) : T(0)));
  }
};

/// dx = grad (exp(x - lse) - (c == target)). Where lse is large its rounding error is that of every exponent: the row is
/// divided by its sum then.
template <class T, int count, int packs>
__global__ void cross_entropy_backward_held(const T* x, Classes classes, const T* lse, LossGradients<T> grads, T* dx,
                                            int64_t rows, int n, Holders holders) {
  using Row = HeldRow<T, count, packs>;
  REEL_DYNAMIC_SHARED(T, scratch);
  const int64_t r = holders.row();
  const int size = r < rows ? n : 0;
  Row row;
  row.load(x + r * n, size, holders, -scalar::infinity<T>());
  const RowGradient<T> gradient(classes, lse, grads, r < rows ? r : 0);
  T sum = 0;
  row.each([&](T& value) {
    value = exp_negative(value - gradient.level);
    sum += value;
  });
  sum = holders.sum(sum, scratch);
  const T inverse = gradient.level > T(8) || gradient.level < T(-8) ? T(1) / sum : T(1);
  Row::each_place(size, holders,
                  [&](int p, int k, int i) { row.at[p].v[k] = gradient.at(row.at[p].v[k] * inverse, i); });
  row.store(dx + r * n, size, holders);
}

/// The same of a piece, from the pieces' sums.
template <class T, int count>
__global__ void cross_entropy_backward_pieces(const T* x, Classes classes, const T* lse, LossGradients<T> grads,
                                              const PieceSum<T>* sums, T* dx, int64_t n, RowPieces pieces,
                                              Holders block) {
  using Row = HeldRow<T, count, kHeld<T> / count>;
  REEL_DYNAMIC_SHARED(T, scratch);
  const int64_t unit = gridDim.x - 1 - blockIdx.x, r = pieces.row(unit), begin = pieces.begin(unit);
  const int size = pieces.size(unit, n);
  Row row;
  row.load(x + r * n + begin, size, block, T(0));
  const PieceSum<T> whole = join_pieces(sums + r * pieces.count, pieces.count, T(1), block, scratch);
  const RowGradient<T> gradient(classes, lse, grads, r);
  const T inverse = T(1) / whole.sum;
  Row::each_place(size, block, [&](int p, int k, int i) {
    T& value = row.at[p].v[k];
    value = gradient.at(exp_negative(value - whole.greatest) * inverse, begin + i);
  });
  row.store(dx + r * n + begin, size, block);
}

}  // namespace
}  // namespace device

void CudaOps::cross_entropy(const Array& logits, const Array& target, std::int64_t ignore, const Array& loss,
                            const Array& lse) {
  // Blocks that join their losses themselves: more would wait for each other. Rows of one thread of a kernel that joins them.
  constexpr int64_t kMostJoined = 256, kRowsOfThread = 4;
  const int64_t rows = logits.shape[0], n = logits.shape[1];
  const device::Classes classes{target.data, target.dtype == DType::i64, ignore};
  const bool mean = loss.rank() == 0;
  dispatch_floating(logits.dtype, [&]<class T>() {
    const T* const x = logits.as<T>();
    const auto run = [&](Grid grid, auto start) {
      if (mean && grid.blocks == 0) grid.blocks = 1;  // the mean of nothing is something
      grid.shared_bytes = sizeof(device::LossSum) * device::kWarp;
      T* const y = loss.as<T>();
      if (!mean) return start(grid, device::Losses<T>{y, lse.as<T>(), nullptr, nullptr});
      const Workspace of_block(context_.memory(), sizeof(device::LossSum) * kMostJoined);
      device::Losses<T> losses{nullptr, lse.as<T>(), y, of_block.as<device::LossSum>()};
      if (grid.blocks <= kMostJoined) return start(grid, losses);
      const Workspace of_row(context_.memory(), sizeof(T) * static_cast<std::size_t>(rows));
      start(grid, device::Losses<T>{of_row.as<T>(), lse.as<T>(), nullptr, nullptr});
      const int64_t blocks = ceil_div(rows, kRowsOfThread * kThreads);
      launch(context_, "cross_entropy",
             {.blocks = blocks < kMostJoined ? blocks : kMostJoined, .shared_bytes = grid.shared_bytes},
             &device::mean_of_losses<T>, of_row.as<T>(), classes, losses, rows);
    };
    if (n <= kLongestHeld<T>) {
      const HeldPlan plan = held_plan<T>(rows, n, in_packs<T>({x}, {n}), sizeof(T));
      run(plan.grid, [&](const Grid& grid, const device::Losses<T>& losses) {
        dispatch_held<T>(plan, [&]<int count, int packs>() {
          const auto kernel = grid.threads > kThreads ? &device::cross_entropy_held<T, count, packs, kMostThreads>
                                                      : &device::cross_entropy_held<T, count, packs, kThreads>;
          launch(context_, "cross_entropy", grid, kernel, x, classes, losses, rows, static_cast<int>(n), plan.holders);
        });
      });
      return;
    }
    const PiecePlan<T> plan(rows, n);
    const Workspace sums(context_.memory(), sizeof(device::PieceSum<T>) * plan.units());
    softmax_piece_sums<T>(context_, plan, x, sums.as<device::PieceSum<T>>(), n, T(1));
    run({.blocks = ceil_div(rows, kThreads / device::kWarp)}, [&](const Grid& grid, const device::Losses<T>& losses) {
      launch(context_, "cross_entropy", grid, &device::cross_entropy_pieces<T>, x, classes,
             sums.as<device::PieceSum<T>>(), losses, rows, n, plan.pieces, device::Holders{device::kWarp});
    });
  });
}

void CudaOps::cross_entropy_backward(const Array& logits, const Array& target, std::int64_t ignore, const Array& lse,
                                     const Array& dloss, const Array& dlogits) {
  constexpr const char* kName = "cross_entropy_backward";
  if (logits.size == 0) return;
  const int64_t rows = logits.shape[0], n = logits.shape[1];
  const device::Classes classes{target.data, target.dtype == DType::i64, ignore};
  dispatch_floating(logits.dtype, [&]<class T>() {
    const T* const x = logits.as<T>();
    T* const dx = dlogits.as<T>();
    const bool packed = in_packs<T>({x, dx}, {n});
    const bool mean = dloss.rank() == 0;
    const device::LossGradients<T> grads{dloss.as<T>(), mean ? 0 : dloss.strides[0],
                                         mean ? lse.as<T>() + rows : nullptr};
    if (n <= kLongestHeld<T>) {
      const HeldPlan plan = held_plan<T>(rows, n, packed, sizeof(T));
      dispatch_held<T>(plan, [&]<int count, int packs>() {
        launch(context_, kName, plan.grid, &device::cross_entropy_backward_held<T, count, packs>, x, classes,
               lse.as<T>(), grads, dx, rows, static_cast<int>(n), plan.holders);
      });
      return;
    }
    const PiecePlan<T> plan(rows, n);
    const Workspace sums(context_.memory(), sizeof(device::PieceSum<T>) * plan.units());
    softmax_piece_sums<T>(context_, plan, x, sums.as<device::PieceSum<T>>(), n, T(1));
    launch(context_, kName, plan.grid,
           packed ? &device::cross_entropy_backward_pieces<T, kPack<T>> : &device::cross_entropy_backward_pieces<T, 1>,
           x, classes, lse.as<T>(), grads, sums.as<device::PieceSum<T>>(), dx, n, plan.pieces, plan.block);
  });
}

}  // namespace reel::cuda
