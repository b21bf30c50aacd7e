// Reductions over any axes, in an order that the sizes alone decide. Results have two groups of axes, kept and reduced:
//   along     neighbouring threads take neighbouring reduced elements: a warp or a block per result
//   across    neighbouring threads take neighbouring results: 32 of them and 8 row lanes per block
// Where there are too few results to fill the GPU, the reduced elements are cut into pieces, each reduced on its own, and
// their results are reduced again.

#include "reel/backends/cuda/group.h"
#include "reel/backends/cuda/reduction.h"

namespace reel::cuda {

namespace device {
namespace {

/// x seen as [outputs, count], the reduced elements cut into pieces.
template <class Source>
struct Problem {
  const Source* x;
  int64_t outputs, count, piece, pieces;
  Nest<1> kept, reduced;

  REEL_DEVICE int64_t start(int64_t output) const {
    int64_t at[1];
    find(kept, output, at);
    return at[0];
  }
  REEL_DEVICE int64_t step(int64_t i) const {
    if (reduced.rank <= 1) return reduced.rank == 0 ? 0 : i * reduced.strides[0][0];
    int64_t at[1];
    if (count < int64_t{1} << 32) find(reduced, static_cast<uint32_t>(i), at);
    else find(reduced, i, at);
    return at[0];
  }
};

/// Where results go: to y and which, or to `partial` [pieces, outputs] if there are pieces to be joined.
template <class Op, class T>
struct Target {
  T* y;
  int64_t* which;
  typename Op::Acc* partial;
  int64_t outputs, divisor;  // of a mean; else 0

  REEL_DEVICE void store(int64_t output, int64_t piece, typename Op::Acc acc) const {
    if (partial != nullptr) {
      partial[piece * outputs + output] = acc;
      return;
    }
    const T value = Op::value(acc);
    y[output] = divisor > 0 ? static_cast<T>(value / static_cast<T>(divisor)) : value;
    if constexpr (!std::is_same_v<typename Op::Acc, T>) which[output] = acc.place;
  }
};

template <class Op, class Source>
REEL_DEVICE typename Op::Acc fold(const Problem<Source>& p, int64_t start, int64_t begin, int64_t end, int64_t step) {
  using Acc = typename Op::Acc;
  const Source* const x = p.x + start;
  Acc acc[4] = {Op::identity(), Op::identity(), Op::identity(), Op::identity()};  // four loads on their way
  int64_t i = begin;
  for (; i + 3 * step < end; i += 4 * step) {
    REEL_UNROLL
    for (int k = 0; k < 4; ++k) acc[k] = Op::join(acc[k], Op::from(x[p.step(i + k * step)], i + k * step));
  }
  for (; i < end; i += step) acc[0] = Op::join(acc[0], Op::from(x[p.step(i)], i));
  return Op::join(Op::join(acc[0], acc[1]), Op::join(acc[2], acc[3]));
}

template <class Op, class T, class Source>
__global__ void reduce_along(const __grid_constant__ Problem<Source> p, const Target<Op, T> target, RowGroup group) {
  REEL_DYNAMIC_SHARED(typename Op::Acc, scratch);
  for (int64_t unit = group.first(); unit < p.outputs * p.pieces; unit += group.step()) {
    const int64_t output = unit / p.pieces, piece = unit % p.pieces;
    const int64_t begin = piece * p.piece, end = smaller(begin + p.piece, p.count);
    const auto acc = group.join(fold<Op>(p, p.start(output), begin + group.lane(), end, group.width()), scratch,
                                [](auto a, auto b) { return Op::join(a, b); });
    if (group.lane() == 0) target.store(output, piece, acc);
  }
}

template <class Op, class T, class Source>
__global__ void reduce_across(const __grid_constant__ Problem<Source> p, const Target<Op, T> target, Lanes lanes) {
  REEL_DYNAMIC_SHARED(typename Op::Acc, scratch);
  const int64_t tiles = (p.outputs + lanes.columns - 1) / lanes.columns;
  for (int64_t unit = blockIdx.x; unit < tiles * p.pieces; unit += gridDim.x) {
    const int64_t output = unit % tiles * lanes.columns + lanes.column(), piece = unit / tiles;
    const int64_t begin = piece * p.piece, end = output < p.outputs ? smaller(begin + p.piece, p.count) : 0;
    const int64_t start = output < p.outputs ? p.start(output) : 0;
    const auto acc = lanes.join(fold<Op>(p, start, begin + lanes.row(), end, lanes.rows()), scratch,
                                [](auto a, auto b) { return Op::join(a, b); });
    if (lanes.row() == 0 && output < p.outputs) target.store(output, piece, acc);
  }
}

}  // namespace
}  // namespace device

namespace {

Scalar result_of_nothing(ReduceOp op, DType dtype) {
  if (op == ReduceOp::sum) return 0;
  if (op == ReduceOp::prod) return 1;
  if (op == ReduceOp::mean) return __builtin_nan("");
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

template <class Op, class T, class Source>
void reduce_problem(const Context& context, device::Problem<Source> p, device::Target<Op, T> target) {
  using Acc = typename Op::Acc;
  constexpr int64_t kLeast = 2048;  // elements of a piece, at least
  const int64_t inner_kept = p.kept.rank == 0 ? INT64_MAX : __builtin_llabs(p.kept.strides[0][p.kept.rank - 1]);
  const int64_t inner_reduced = p.reduced.rank == 0 ? 0 : __builtin_llabs(p.reduced.strides[0][p.reduced.rank - 1]);
  const bool along = inner_reduced <= inner_kept;
  const int64_t units = along ? p.outputs : ceil_div(p.outputs, device::kWarp);
  const int64_t wanted = ceil_div(int64_t{context.processors()} * 8, units), room = p.count / kLeast;
  p.pieces = wanted < room ? wanted : room;
  if (p.pieces < 1) p.pieces = 1;
  p.piece = ceil_div(p.count, p.pieces);
  p.pieces = ceil_div(p.count, p.piece);
  const Workspace partial(context.memory(),
                          p.pieces > 1 ? sizeof(Acc) * static_cast<std::size_t>(p.pieces * p.outputs) : 0);
  device::Target<Op, T> first = target;
  first.partial = partial.as<Acc>();
  if (along) {
    device::RowGroup group{};
    Grid grid = row_grid(context, p.outputs * p.pieces, p.piece, group.whole_block);
    grid.shared_bytes = sizeof(Acc) * static_cast<std::size_t>(grid.threads / device::kWarp);
    launch(context, "reduce", grid, &device::reduce_along<Op, T, Source>, p, first, group);
  } else {
    const LaneGrid shape = lane_grid(context, units * p.pieces, p.piece, device::kWarp, sizeof(Acc));
    launch(context, "reduce", shape.grid, &device::reduce_across<Op, T, Source>, p, first, shape.lanes);
  }
  if (p.pieces == 1) return;
  device::Problem<Acc> rest{partial.as<Acc>(), p.outputs, p.pieces, p.pieces, 1, {}, {}};
  rest.kept.push_back(p.outputs, {1});
  rest.reduced.push_back(p.pieces, {p.outputs});
  reduce_problem<Op, T, Acc>(context, rest, target);
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
  dispatch_arithmetic(x.dtype, [&]<class T>() {
    dispatch_reduction<T>(op, which != nullptr, [&]<class Op>() {
      int64_t* const places = which != nullptr ? which->as<int64_t>() : nullptr;
      reduce_problem<Op, T, T>(context_, {x.as<T>(), y.size, count, count, 1, kept, reduced},
                               {y.as<T>(), places, nullptr, y.size, op == ReduceOp::mean ? count : 0});
    });
  });
}

}  // namespace reel::cuda
