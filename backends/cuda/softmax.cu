// Softmax along rows without gaps. The length of a row alone decides how:
//   tiles    rows of a few elements that are no whole packs, a thread to a row: softmax_tiles.cu
//   held     in the registers of a part of a warp, a warp or a block: one read and one write
//   pieces   what no block holds is cut, a block to a piece: the pieces' sums, then the results. The second kernel goes
//            backwards, for what the first one read last is still in the L2 cache.
// Softmax down columns: segment_softmax.cu.

#include "reel/backends/cuda/softmax.h"

namespace reel::cuda {

namespace device {
namespace {

/// The row's shift; its elements become (x - shift) rate, or the exponentials of that if `exponentials`; their sum.
template <class T, int count, int packs>
REEL_DEVICE PieceSum<T> sum_exponentials(HeldRow<T, count, packs>& row, bool exponentials, T rate, Holders holders,
                                         T* scratch) {
  T greatest = -scalar::infinity<T>(), sum = 0;
  row.each([&](T value) { greatest = larger(greatest, value); });
  greatest = holders.join(greatest, scratch, [](T a, T b) { return larger(a, b); });
  const T shift = finite_shift(greatest);
  if (exponentials) {
    row.each([&](T& value) {
      value = exp_negative((value - shift) * rate);
      sum += value;
    });
  } else {
    row.each([&](T& value) {
      value = (value - shift) * rate;
      sum += exp_negative(value);
    });
  }
  return {greatest, holders.sum(sum, scratch)};
}

template <class T, int count, int packs>
__global__ void softmax_held(SoftmaxOp op, const T* x, T* y, int64_t rows, int n, T rate, Holders holders) {
  REEL_DYNAMIC_SHARED(T, scratch);
  const int64_t r = holders.row();
  const int size = r < rows ? n : 0;
  HeldRow<T, count, packs> row;
  row.load(x + r * n, size, holders, -scalar::infinity<T>());
  const bool keeps = op == SoftmaxOp::softmax;
  const T correction = softmax_correction(op, sum_exponentials(row, keeps, rate, holders, scratch).sum);
  if (keeps) row.each([&](T& value) { value *= correction; });
  else row.each([&](T& value) { value -= correction; });
  row.store(y + r * n, size, holders);
}

/// The sum for the gradient, and whether anything in the row is not -infinity.
template <class T>
struct GradientSum {
  T sum, reachable;
};

template <class T, int count, int packs>
REEL_DEVICE GradientSum<T> sum_gradient(SoftmaxOp op, HeldRow<T, count, packs>& value, HeldRow<T, count, packs>& grad,
                                        Holders holders, T* scratch) {
  GradientSum<T> sums{0, 1};
  HeldRow<T, count, packs>::each_index(
      [&](int p, int k) { sums.sum = add_gradient_term(op, value.at[p].v[k], grad.at[p].v[k], sums.sum); });
  sums.sum = holders.sum(sums.sum, scratch);
  if (op == SoftmaxOp::softmax) return sums;
  T greatest = -scalar::infinity<T>();  // NaN counts as well
  value.each([&](T y) { greatest = y > greatest || y != y ? T(0) : greatest; });
  greatest = holders.join(greatest, scratch, [](T a, T b) { return larger(a, b); });
  sums.reachable = greatest == T(0) ? T(1) : T(0);
  return sums;
}

/// grad becomes dx.
template <class T, int count, int packs>
REEL_DEVICE void finish_gradient(SoftmaxOp op, HeldRow<T, count, packs>& value, HeldRow<T, count, packs>& grad,
                                 GradientSum<T> sums, T rate) {
  HeldRow<T, count, packs>::each_index([&](int p, int k) {
    T& g = grad.at[p].v[k];
    g = sums.reachable == T(0) ? T(0) : softmax_gradient(op, value.at[p].v[k], g, sums.sum) * rate;
  });
}

template <class T, int count, int packs>
__global__ void softmax_backward_held(SoftmaxOp op, const T* y, const T* dy, T* dx, int64_t rows, int n, T rate,
                                      Holders holders) {
  REEL_DYNAMIC_SHARED(T, scratch);
  const int64_t r = holders.row();
  const int size = r < rows ? n : 0;
  HeldRow<T, count, packs> value, grad;
  value.load(y + r * n, size, holders, op == SoftmaxOp::softmax ? T(0) : -scalar::infinity<T>());
  grad.load(dy + r * n, size, holders, T(0));
  finish_gradient(op, value, grad, sum_gradient(op, value, grad, holders, scratch), rate);
  grad.store(dx + r * n, size, holders);
}

/// A piece per block; to [rows, pieces].
template <class T, int count>
__global__ void piece_sums(const T* x, PieceSum<T>* to, int64_t n, T rate, RowPieces pieces, Holders block) {
  REEL_DYNAMIC_SHARED(T, scratch);
  const int64_t unit = blockIdx.x;
  HeldRow<T, count, kHeld<T> / count> row;
  row.load(x + pieces.row(unit) * n + pieces.begin(unit), pieces.size(unit, n), block, -scalar::infinity<T>());
  const PieceSum<T> sums = sum_exponentials(row, true, rate, block, scratch);
  if (block.lane() == 0) to[unit] = sums;
}

template <class T, int count>
__global__ void softmax_pieces(SoftmaxOp op, const T* x, T* y, const PieceSum<T>* sums, int64_t n, T rate,
                               RowPieces pieces, Holders block) {
  REEL_DYNAMIC_SHARED(T, scratch);
  const int64_t unit = gridDim.x - 1 - blockIdx.x, r = pieces.row(unit);
  const int64_t start = r * n + pieces.begin(unit);
  HeldRow<T, count, kHeld<T> / count> row;
  row.load(x + start, pieces.size(unit, n), block, T(0));
  const PieceSum<T> whole = join_pieces(sums + r * pieces.count, pieces.count, rate, block, scratch);
  const T correction = softmax_correction(op, whole.sum);
  row.each([&](T& value) { value = softmax_result(op, (value - whole.greatest) * rate, correction); });
  row.store(y + start, pieces.size(unit, n), block);
}

/// The two passes of the gradient: `sums` [rows, pieces] are made, or used if `finishes`.
template <class T, int count>
__global__ void softmax_backward_pieces(SoftmaxOp op, const T* y, const T* dy, T* dx, GradientSum<T>* sums,
                                        bool finishes, int64_t n, T rate, RowPieces pieces, Holders block) {
  REEL_DYNAMIC_SHARED(T, scratch);
  const int64_t unit = finishes ? gridDim.x - 1 - blockIdx.x : blockIdx.x, r = pieces.row(unit);
  const int64_t start = r * n + pieces.begin(unit);
  const int size = pieces.size(unit, n);
  HeldRow<T, count, kHeld<T> / count> value, grad;
  value.load(y + start, size, block, op == SoftmaxOp::softmax ? T(0) : -scalar::infinity<T>());
  grad.load(dy + start, size, block, T(0));
  if (!finishes) {
    const GradientSum<T> own = sum_gradient(op, value, grad, block, scratch);
    if (block.lane() == 0) sums[unit] = own;
    return;
  }
  GradientSum<T> whole{0, 0};
  for (int64_t p = block.lane(); p < pieces.count; p += block.lanes) {
    whole.sum += sums[r * pieces.count + p].sum;
    whole.reachable = larger(whole.reachable, sums[r * pieces.count + p].reachable);
  }
  whole.sum = block.sum(whole.sum, scratch);
  whole.reachable = block.join(whole.reachable, scratch, [](T a, T b) { return larger(a, b); });
  finish_gradient(op, value, grad, whole, rate);
  grad.store(dx + start, size, block);
}

}  // namespace
}  // namespace device

namespace {

template <class T>
void softmax_rows(const Context& context, SoftmaxOp op, const T* x, T* y, int64_t rows, int64_t n, T rate) {
  if (in_tiles<T>(n)) return softmax_tiles<T>(context, op, x, y, rows, n, rate);
  const bool packed = in_packs<T>({x, y}, {n});
  if (n <= kLongestHeld<T>) {
    const HeldPlan plan = held_plan<T>(rows, n, packed, sizeof(T));
    dispatch_held<T>(plan, [&]<int count, int packs>() {
      launch(context, "softmax", plan.grid, &device::softmax_held<T, count, packs>, op, x, y, rows, static_cast<int>(n),
             rate, plan.holders);
    });
    return;
  }
  const PiecePlan<T> plan(rows, n);
  const Workspace sums(context.memory(), sizeof(device::PieceSum<T>) * plan.units());
  softmax_piece_sums<T>(context, plan, x, sums.as<device::PieceSum<T>>(), n, rate);
  launch(context, "softmax", plan.grid, packed ? &device::softmax_pieces<T, kPack<T>> : &device::softmax_pieces<T, 1>,
         op, x, y, sums.as<device::PieceSum<T>>(), n, rate, plan.pieces, plan.block);
}

template <class T>
void softmax_backward_rows(const Context& context, SoftmaxOp op, const T* y, const T* dy, T* dx, int64_t rows,
                           int64_t n, T rate) {
  constexpr const char* kName = "softmax_backward";
  if (in_tiles<T>(n)) return softmax_backward_tiles<T>(context, op, y, dy, dx, rows, n, rate);
  const bool packed = in_packs<T>({y, dy, dx}, {n});
  if (n <= kLongestHeld<T>) {
    const HeldPlan plan = held_plan<T>(rows, n, packed, sizeof(T));
    dispatch_held<T>(plan, [&]<int count, int packs>() {
      launch(context, kName, plan.grid, &device::softmax_backward_held<T, count, packs>, op, y, dy, dx, rows,
             static_cast<int>(n), rate, plan.holders);
    });
    return;
  }
  using Sums = device::GradientSum<T>;
  const PiecePlan<T> plan(rows, n);
  const Workspace sums(context.memory(), sizeof(Sums) * plan.units());
  for (const bool finishes : {false, true})
    launch(context, kName, plan.grid,
           packed ? &device::softmax_backward_pieces<T, kPack<T>> : &device::softmax_backward_pieces<T, 1>, op, y, dy,
           dx, sums.as<Sums>(), finishes, n, rate, plan.pieces, plan.block);
}

}  // namespace

template <class T>
void softmax_piece_sums(const Context& context, const PiecePlan<T>& plan, const T* x, device::PieceSum<T>* to,
                        int64_t n, T rate) {
  launch(context, "softmax", plan.grid,
         in_packs<T>({x}, {n}) ? &device::piece_sums<T, kPack<T>> : &device::piece_sums<T, 1>, x, to, n, rate,
         plan.pieces, plan.block);
}
template void softmax_piece_sums(const Context&, const PiecePlan<float>&, const float*, device::PieceSum<float>*,
                                 int64_t, float);
template void softmax_piece_sums(const Context&, const PiecePlan<double>&, const double*, device::PieceSum<double>*,
                                 int64_t, double);

void CudaOps::softmax(SoftmaxOp op, const Array& x, int axis, double temperature, const Array& y) {
  if (x.size == 0) return;
  const Blocks blocks(x.shape, axis);
  dispatch_floating(x.dtype, [&]<class T>() {
    const T rate = static_cast<T>(1 / temperature);
    if (blocks.inner > 1)
      softmax_columns<T>(context_, op, x.as<T>(), y.as<T>(), blocks.outer, {nullptr, blocks.n}, blocks.n, blocks.inner,
                         rate);
    else softmax_rows<T>(context_, op, x.as<T>(), y.as<T>(), blocks.outer, blocks.n, rate);
  });
}

void CudaOps::softmax_backward(SoftmaxOp op, const Array& y, const Array& dy, int axis, double temperature,
                               const Array& dx) {
  if (y.size == 0) return;
  const Blocks blocks(y.shape, axis);
  dispatch_floating(y.dtype, [&]<class T>() {
    const T rate = static_cast<T>(1 / temperature);
    if (blocks.inner > 1)
      softmax_backward_columns<T>(context_, op, y.as<T>(), dy.as<T>(), dx.as<T>(), blocks.outer, {nullptr, blocks.n},
                                  blocks.n, blocks.inner, rate);
    else softmax_backward_rows<T>(context_, op, y.as<T>(), dy.as<T>(), dx.as<T>(), blocks.outer, blocks.n, rate);
  });
}

}  // namespace reel::cuda
