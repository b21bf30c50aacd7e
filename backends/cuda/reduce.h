#pragma once

#include "reel/backends/cuda/group.h"
#include "reel/backends/cuda/last_block.h"
#include "reel/backends/cuda/reduction.h"

// The kernels of reductions over any axes, in an order that the number of reduced elements and the length of rows in memory
// decide. Results have two groups of axes, kept and reduced:
//   along     neighbouring threads take neighbouring reduced elements: some lanes of a warp, or a block, per result
//   across    neighbouring threads take neighbouring results, row lanes of the block share their elements
// Many reduced elements are cut into pieces, reduced on their own. Where there are too few results to fill the GPU each piece
// has its block, and the one that comes last joins them; where there are many, a block goes through all pieces of its results.
// A block has one tile of results: a loop over tiles would hold a third more registers.
// Memory is read in packs where it allows that, with several of them on their way: the order is the same as without.

namespace reel::cuda {

namespace device {
namespace {

inline constexpr int kPacksInFlight = 4;  // of a thread, along
inline constexpr int kRowsInFlight = 8;   // of a thread, across

/// Neighbours that a thread takes: a pack, but no more than four.
template <class T>
inline constexpr int kRun = kPack<T> < 4 ? kPack<T> : 4;

/// Threads of a block, along; with places there are not the registers for more.
template <class Acc>
inline constexpr int kMostAlong = sizeof(Acc) > 8 ? 512 : 1024;

/// x seen as [outputs, count], the reduced elements cut into pieces.
template <class T>
struct Problem {
  const T* x;
  int64_t outputs, count, piece, pieces;
  Nest<1> kept, reduced;

  REEL_DEVICE const T* start(int64_t output) const { return x + place(kept, output); }
  REEL_DEVICE int size_of(int64_t piece_number) const {
    return static_cast<int>(smaller(piece, count - piece_number * piece));
  }
  /// From one reduced element to the next where these lie on one axis.
  REEL_DEVICE int64_t stride() const { return reduced.rank > 0 ? reduced.strides[0][0] : 0; }
  /// Whether `step` reaches all reduced elements.
  REEL_DEVICE bool is_near() const { return reduced.rank <= 1 || count < int64_t{1} << 32; }
  REEL_DEVICE int64_t step(int64_t i) const {
    return reduced.rank <= 1 ? i * stride() : place(reduced, static_cast<uint32_t>(i));
  }
  template <class Position>
  REEL_DEVICE static int64_t place(const Nest<1>& nest, Position i) {
    if (nest.rank <= 1) return nest.rank == 0 ? 0 : i * nest.strides[0][0];
    int64_t at[1];
    find(nest, i, at);
    return at[0];
  }
};

/// Where results go: to y and which.
template <class Op, class T>
struct Target {
  T* y;
  int64_t* which;
  int64_t divisor;  // of a mean; else 0

  REEL_DEVICE void store(int64_t output, typename Op::Acc acc) const {
    const T value = Op::value(acc);
    y[output] = divisor > 0 ? static_cast<T>(value / static_cast<T>(divisor)) : value;
    if constexpr (!std::is_same_v<typename Op::Acc, T>) which[output] = acc.place;
  }
};

/// The results of pieces, [pieces, outputs]; null if there is but one piece. Shared: blocks take a piece each of a tile of
/// outputs; else all of them.
template <class Acc>
struct Pieces {
  Acc* partial;
  bool shared;
};

/// Joins the results of pieces first, first + by, .. before `pieces`, in this order. `partial` is that of the first piece; from
/// one to the next it is `stride`.
template <class Values, class Acc, class Join>
REEL_DEVICE Values fold_pieces(Values acc, const Acc* partial, int64_t stride, int pieces, int first, int by,
                               Join join) {
  constexpr int kInFlight = sizeof(Values) > kPackBytes ? 1 : 4;
  const Acc* at = partial + first * stride;
  const int64_t step = by * stride;
  REEL_ROLLED
  for (int i = first; i < pieces; i += kInFlight * by, at += kInFlight * step) {
    Values v[kInFlight];
    REEL_UNROLL
    for (int k = 0; k < kInFlight; ++k)
      if (i + k * by < pieces) v[k] = *reinterpret_cast<const Values*>(at + k * step);
    REEL_UNROLL
    for (int k = 0; k < kInFlight; ++k)
      if (i + k * by < pieces) acc = join(acc, v[k]);
  }
  return acc;
}

/// What a thread joins of elements begin + first, begin + first + by, .. before begin + n of a result whose first element is at
/// x, where their places need 64 bits.
template <class Op, class T>
REEL_DEVICE typename Op::Acc fold_far(const Problem<T>& p, const T* x, int64_t begin, int n, int first, int by) {
  typename Op::Acc acc = Op::identity();
  REEL_ROLLED
  for (int i = first; i < n; i += by) acc = Op::join(acc, Op::from(x[p.place(p.reduced, begin + i)], begin + i));
  return acc;
}

/// What a thread joins of elements begin .. begin + n - 1 of a result: runs of neighbours, `width` threads taking one each, and
/// each thread the next one after that. `x` is the first of them, and each run a pack in memory.
template <class Op, class T>
REEL_DEVICE typename Op::Acc fold_packs_along(const T* x, int64_t begin, int n, int lane, int width) {
  constexpr int run = kRun<T>;
  typename Op::Acc acc[kPacksInFlight];
  REEL_UNROLL
  for (int k = 0; k < kPacksInFlight; ++k) acc[k] = Op::identity();
  const int packs = n / run;
  for (int i = lane; i < packs; i += kPacksInFlight * width) {
    Pack<T, run> v[kPacksInFlight];
    REEL_UNROLL
    for (int k = 0; k < kPacksInFlight; ++k)
      if (i + k * width < packs) v[k] = load_pack<T, run>(x + (i + k * width) * run);
    REEL_UNROLL
    for (int k = 0; k < kPacksInFlight; ++k) {
      REEL_UNROLL
      for (int j = 0; j < run; ++j)
        if (i + k * width < packs) acc[k] = Op::join(acc[k], Op::from(v[k].v[j], begin + (i + k * width) * run + j));
    }
  }
  auto all = Op::join(Op::join(acc[0], acc[1]), Op::join(acc[2], acc[3]));
  if (lane != packs % width) return all;
  REEL_ROLLED
  for (int i = packs * run; i < n; ++i) all = Op::join(all, Op::from(x[i], begin + i));  // less than a run
  return all;
}

/// The same in the same order, element by element, wherever they lie from `x` on, the result's first element.
template <class Op, class T>
REEL_DEVICE typename Op::Acc fold_along(const Problem<T>& p, const T* x, int64_t begin, int n, int lane, int width) {
  if (!p.is_near()) return fold_far<Op>(p, x, begin, n, lane, width);
  constexpr int run = kRun<T>;
  typename Op::Acc acc[kPacksInFlight];
  REEL_UNROLL
  for (int k = 0; k < kPacksInFlight; ++k) acc[k] = Op::identity();
  const int runs = n / run;
  for (int i = lane; i < runs; i += kPacksInFlight * width) {
    REEL_ROLLED
    for (int j = 0; j < run; ++j) {
      REEL_UNROLL
      for (int k = 0; k < kPacksInFlight; ++k) {
        const int64_t at = begin + (i + k * width) * run + j;
        if (i + k * width < runs) acc[k] = Op::join(acc[k], Op::from(x[p.step(at)], at));
      }
    }
  }
  auto all = Op::join(Op::join(acc[0], acc[1]), Op::join(acc[2], acc[3]));
  if (lane != runs % width) return all;
  REEL_ROLLED
  for (int64_t at = begin + runs * run; at < begin + n; ++at) all = Op::join(all, Op::from(x[p.step(at)], at));
  return all;
}

/// `width` threads per result: a power of two of a warp's lanes, or the block.
template <class Op, class T, bool packed>
__global__ void __launch_bounds__(kMostAlong<typename Op::Acc>, 1)
    reduce_along(const __grid_constant__ Problem<T> p, const Target<Op, T> target,
                 const Pieces<typename Op::Acc> pieces, int width) {
  using Acc = typename Op::Acc;
  REEL_DYNAMIC_SHARED(Acc, scratch);
  const auto join = [](Acc a, Acc b) { return Op::join(a, b); };
  const bool whole_block = width > kWarp;
  const int lane = threadIdx.x % width;
  const int64_t unit = int64_t{blockIdx.x} * (blockDim.x / width) + threadIdx.x / width;
  const int64_t output = pieces.shared ? unit / p.pieces : unit;
  const bool exists = output < p.outputs;
  const T* const x = exists ? p.start(output) : p.x;
  const int64_t first_piece = pieces.shared ? unit - output * p.pieces : 0;
  const int64_t end_piece = pieces.shared ? first_piece + 1 : p.pieces;
  Acc acc = Op::identity();
  for (int64_t piece = first_piece; piece < end_piece; ++piece) {
    const int64_t begin = piece * p.piece;
    const int n = exists ? p.size_of(piece) : 0;
    if constexpr (packed) acc = fold_packs_along<Op>(x + begin, begin, n, lane, width);
    else acc = fold_along<Op>(p, x, begin, n, lane, width);
    acc = whole_block ? join_block(acc, scratch, join) : join_lanes(acc, join, width);
    if (pieces.partial != nullptr && lane == 0) pieces.partial[piece * p.outputs + output] = acc;
  }
  if (pieces.partial != nullptr) {  // the whole block
    if (pieces.shared && !is_last_of(output, p.pieces)) return;
    __syncthreads();
    acc =
        fold_pieces(Op::identity(), pieces.partial + output, p.outputs, static_cast<int>(p.pieces), lane, width, join);
    acc = join_block(acc, scratch, join);
  }
  if (lane == 0 && exists) target.store(output, acc);
}

/// What a thread joins of elements `row`, row + rows, .. before n of `run` neighbouring results, in this order. Elements are
/// numbered from `begin`; x is where that of the first result lies.
template <class Op, int run, class T>
REEL_DEVICE Several<typename Op::Acc, run> fold_packs_across(const T* x, int64_t stride, int64_t begin, int n, int row,
                                                             int rows) {
  auto acc = identities<Op, run>();
  for (int i = row; i < n; i += kRowsInFlight * rows) {
    Pack<T, run> v[kRowsInFlight];
    REEL_UNROLL
    for (int k = 0; k < kRowsInFlight; ++k)
      if (i + k * rows < n) v[k] = load_pack<T, run>(x + (i + k * rows) * stride);
    REEL_UNROLL
    for (int k = 0; k < kRowsInFlight; ++k)
      if (i + k * rows < n) join_pack<Op>(acc, v[k], begin + i + k * rows);
  }
  return acc;
}

/// The same of one result, wherever the elements lie from `x` on, the result's first element.
template <class Op, class T>
REEL_DEVICE Several<typename Op::Acc, 1> fold_across(const Problem<T>& p, const T* x, int64_t begin, int n, int row,
                                                     int rows) {
  if (!p.is_near()) return {{fold_far<Op>(p, x, begin, n, row, rows)}};
  typename Op::Acc acc = Op::identity();
  for (int i = row; i < n; i += kRowsInFlight * rows) {
    T v[kRowsInFlight];
    REEL_UNROLL
    for (int k = 0; k < kRowsInFlight; ++k)
      if (i + k * rows < n) v[k] = x[p.step(begin + i + k * rows)];
    REEL_UNROLL
    for (int k = 0; k < kRowsInFlight; ++k)
      if (i + k * rows < n) acc = Op::join(acc, Op::from(v[k], begin + i + k * rows));
  }
  return {{acc}};
}

/// A tile of lanes.columns times `run` neighbouring results per block: neighbouring threads take neighbouring runs, the row
/// lanes every rows()-th element of them.
template <class Op, class T, bool packed>
__global__ void __launch_bounds__(kThreads, sizeof(typename Op::Acc) <= 4 ? 4 : 3)
    reduce_across(const __grid_constant__ Problem<T> p, const Target<Op, T> target,
                  const Pieces<typename Op::Acc> pieces, Lanes lanes) {
  constexpr int run = packed ? kRun<T> : 1;
  using Values = Several<typename Op::Acc, run>;
  REEL_DYNAMIC_SHARED(Values, scratch);
  const auto join = [](const Values& a, const Values& b) { return join_each<Op>(a, b); };
  const int64_t width = int64_t{lanes.columns} * run, tiles = (p.outputs + width - 1) / width;
  const int64_t tile = pieces.shared ? blockIdx.x % tiles : blockIdx.x, output = tile * width + lanes.column() * run;
  const bool exists = output < p.outputs;
  const T* const x = exists ? p.start(output) : p.x;
  const int64_t first_piece = pieces.shared ? blockIdx.x / tiles : 0;
  const int64_t end_piece = pieces.shared ? first_piece + 1 : p.pieces;
  Values acc = identities<Op, run>();
  for (int64_t piece = first_piece; piece < end_piece; ++piece) {
    const int64_t begin = piece * p.piece;
    const int n = exists ? p.size_of(piece) : 0;
    if constexpr (packed)
      acc = fold_packs_across<Op, run>(x + begin * p.stride(), p.stride(), begin, n, lanes.row(), lanes.rows());
    else acc = fold_across<Op>(p, x, begin, n, lanes.row(), lanes.rows());
    acc = lanes.join(acc, scratch, join);
    if (pieces.partial != nullptr && lanes.row() == 0 && exists)
      *reinterpret_cast<Values*>(pieces.partial + piece * p.outputs + output) = acc;
  }
  if (pieces.partial != nullptr) {
    if (pieces.shared && !is_last_of(tile, p.pieces)) return;
    __syncthreads();
    acc = fold_pieces(identities<Op, run>(), pieces.partial + output, p.outputs,
                      exists ? static_cast<int>(p.pieces) : 0, lanes.row(), lanes.rows(), join);
    acc = lanes.join(acc, scratch, join);
  }
  if (lanes.row() != 0 || !exists) return;
  REEL_UNROLL
  for (int j = 0; j < run; ++j) target.store(output + j, acc.v[j]);
}

}  // namespace
}  // namespace device

}  // namespace reel::cuda
