// Reductions over any axes: how they are cut and which kernels take them.

#include "reel/backends/cuda/reduce.h"

namespace reel::cuda {

namespace {

Scalar result_of_nothing(ReduceOp op, DType dtype) {
  if (op == ReduceOp::sum || op == ReduceOp::sum_of_squares) return 0;
  if (op == ReduceOp::prod) return 1;
  if (is_mean(op)) return __builtin_nan("");
  Scalar result;
  dispatch_arithmetic(dtype, [&]<class T>() {
    if constexpr (std::is_integral_v<T>) result = op == ReduceOp::max ? kLowest<T> : kHighest<T>;
    else result = op == ReduceOp::max ? -__builtin_inf() : __builtin_inf();
  });
  return result;
}

/// The axes that x and y have in common, and those that are reduced, by falling stride: memory is read as it lies.
void sort_axes(const Array& x, const Array& y, Nest<1>& kept, Nest<1>& reduced) {
  Shape shape;
  int64_t strides[kMaxRank];
  for (int axis = 0; axis < x.rank(); ++axis) {
    if (y.shape[axis] == x.shape[axis]) {  // an axis of size 1 is kept or reduced: the result is the same
      kept.push_back(x.shape[axis], {x.strides[axis]});
    } else {
      strides[shape.rank()] = x.strides[axis];
      shape.push_back(x.shape[axis]);
    }
  }
  Array order;
  for (int axis = 0; axis < shape.rank(); ++axis) order.strides[axis] = strides[axis];
  reduced = nest_in_order_of<1>(order, shape, {strides});
}

/// Whether the `inner` axes can be walked in packs of `run` elements: they have no gaps, and neither they nor the `other` ones
/// lead off the packs' boundaries.
bool walks_in_packs(const void* x, std::size_t size, int run, const Nest<1>& inner, const Nest<1>& other) {
  if (inner.rank == 0 || inner.strides[0][inner.rank - 1] != 1 || !is_aligned(x, size, run)) return false;
  for (int axis = 0; axis + 1 < inner.rank; ++axis)
    if (inner.strides[0][axis] % run != 0) return false;
  for (int axis = 0; axis < other.rank; ++axis)
    if (other.strides[0][axis] % run != 0) return false;
  return inner.rank == 1 || inner.sizes[inner.rank - 1] % run == 0;
}

/// Which reductions have kernels that read packs.
template <class Op, class T>
constexpr bool kReadsPacks = sizeof(T) >= 4 && !std::is_same_v<Op, device::Product<T>>;

/// The kernel that reads packs, or the other one.
template <class Op, class T>
auto kernel_along(bool packed) {
  if constexpr (kReadsPacks<Op, T>)
    if (packed) return &device::reduce_along<Op, T, true>;
  return &device::reduce_along<Op, T, false>;
}
template <class Op, class T>
auto kernel_across(bool packed) {
  if constexpr (kReadsPacks<Op, T>)
    if (packed) return &device::reduce_across<Op, T, true>;
  return &device::reduce_across<Op, T, false>;
}

/// Room for the results of pieces of p.piece elements each, if there are several; of few tiles, blocks share each.
template <class Acc>
struct Cut {
  Workspace memory;
  device::Pieces<Acc> pieces;

  template <class T>
  Cut(const Context& context, device::Problem<T>& p, int64_t tiles)
      : memory(context.memory(),
               p.piece < p.count ? sizeof(Acc) * static_cast<std::size_t>(ceil_div(p.count, p.piece) * p.outputs) : 0),
        pieces{memory.as<Acc>(), p.piece < p.count && tiles <= device::kSharedTiles} {
    p.pieces = ceil_div(p.count, p.piece);
  }
};

template <class Op, class T>
void reduce_along(const Context& context, device::Problem<T> p, const device::Target<Op, T>& target) {
  using Acc = typename Op::Acc;
  // Elements of a result that a warp takes, and that one block takes: at first more threads for more of them, for a second
  // block has to wait for the first. Pieces beyond: long ones, for each costs a fence; but not so long that sums lose digits.
  constexpr int64_t kShort = 1024, kUncut = 32768, kPieces = 1024, kLeastPiece = 8192, kMostPiece = 65536;
  constexpr int kRun = device::kRun<T>;
  const bool cuts = p.count > kUncut;
  const int width = p.count <= kShort ? power_of_two_from(ceil_div(p.count, kRun), 1, device::kWarp)
                    : cuts            ? kThreads
                                      : power_of_two_from(ceil_div(p.count, 32), 128, device::kMostAlong<Acc>);
  p.piece = cuts ? power_of_two_from(ceil_div(p.count, kPieces), kLeastPiece, kMostPiece) : p.count;
  const Cut<Acc> cut(context, p, p.outputs);
  Grid grid;
  grid.threads = width > device::kWarp ? width : kThreads;
  grid.blocks = ceil_div(p.outputs * (cut.pieces.shared ? p.pieces : 1), grid.threads / width);
  grid.shared_bytes = sizeof(Acc) * static_cast<std::size_t>(grid.threads / device::kWarp);
  const bool packed = p.reduced.rank == 1 && walks_in_packs(p.x, sizeof(T), kRun, p.reduced, p.kept);
  launch(context, "reduce", grid, kernel_along<Op, T>(packed), p, target, cut.pieces, width);
}

template <class Op, class T>
void reduce_across(const Context& context, device::Problem<T> p, const device::Target<Op, T>& target) {
  using Acc = typename Op::Acc;
  constexpr int64_t kFew = 2048, kMostPieces = 512, kUnits = 2048;  // rows that are not cut; pieces; of all columns
  const int64_t inner = p.kept.sizes[p.kept.rank - 1];
  const bool packed = kReadsPacks<Op, T> && p.reduced.rank <= 1 && inner % device::kRun<T> == 0 &&
                      walks_in_packs(p.x, sizeof(T), device::kRun<T>, p.kept, p.reduced);
  const int run = packed ? device::kRun<T> : 1;
  // Row lanes decide the order, packs do not. Of few rows a lane takes few, and blocks fewer columns.
  const int rows = p.count <= kFew ? power_of_two_from(ceil_div(p.count, device::kRowsInFlight), 1, 64)
                                   : kThreads / power_of_two_from(inner, 4, device::kWarp);
  const int least = rows < device::kWarp ? device::kWarp / rows : 1;
  const device::Lanes lanes{power_of_two_from(ceil_div(inner, run), least, kThreads / rows)};
  // Pieces are longer where there are many columns, for each costs a fence.
  const int64_t of_columns = ceil_div(p.count * ceil_div(inner, 4 * device::kWarp), kUnits);
  const int64_t least_piece = power_of_two_from(of_columns, 16 * rows, 64 * rows);
  p.piece = p.count <= kFew ? p.count
                            : power_of_two_from(ceil_div(p.count, kMostPieces), static_cast<int>(least_piece), 1 << 30);
  const int64_t tiles = ceil_div(p.outputs, int64_t{lanes.columns} * run);
  const Cut<Acc> cut(context, p, tiles);
  Grid grid;
  grid.threads = rows * lanes.columns;
  grid.blocks = tiles * (cut.pieces.shared ? p.pieces : 1);
  grid.shared_bytes = sizeof(Acc) * static_cast<std::size_t>(run * grid.threads);
  launch(context, "reduce", grid, kernel_across<Op, T>(packed), p, target, cut.pieces, lanes);
}

}  // namespace

void CudaOps::reduce(ReduceOp op, const Array& x, const Array& y, const Array* which) {
  if (y.size == 0) return;
  if (x.size == 0) {
    fill(y, result_of_nothing(op, y.dtype));
    if (which != nullptr) fill(*which, -1);
    return;
  }
  Nest<1> kept, reduced;
  sort_axes(x, y, kept, reduced);
  const int64_t count = x.size / y.size;
  const auto inner_step = [](const Nest<1>& nest) { return __builtin_llabs(nest.strides[0][nest.rank - 1]); };
  const bool along = kept.rank == 0 || reduced.rank == 0 ||
                     inner_step(kept) == 0 ||  // neighbouring results of one element
                     inner_step(reduced) <= inner_step(kept);
  dispatch_arithmetic(x.dtype, [&]<class T>() {
    const auto run = [&]<class Op>() {
      const device::Problem<T> p{x.as<T>(), y.size, count, count, 1, kept, reduced};
      const device::Target<Op, T> target{y.as<T>(), which != nullptr ? which->as<int64_t>() : nullptr,
                                         is_mean(op) ? count : 0};
      if (along) reduce_along(context_, p, target);
      else reduce_across(context_, p, target);
    };
    if constexpr (std::is_floating_point_v<T>)
      if (is_of_squares(op)) return run.template operator()<device::SumOfSquares<T>>();
    dispatch_reduction<T>(op, which != nullptr, run);
  });
}

}  // namespace reel::cuda
