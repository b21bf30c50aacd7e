#include "reel/backends/cpu/reduce.h"

#include "reel/backends/cpu/cpu_ops.h"

namespace reel::cpu::REEL_CPU_ISA {

namespace {

Scalar result_of_nothing(ReduceOp op, DType dtype) {
  if (is_mean(op)) return __builtin_nan("");
  if (op == ReduceOp::sum || is_of_squares(op)) return 0;
  if (op == ReduceOp::prod) return 1;
  return dispatch_arithmetic(
      dtype, [&]<class T>() -> Scalar { return op == ReduceOp::max ? Max::identity<T>() : Min::identity<T>(); });
}

/// Elements of a result from which on they are squared on the way. Of fewer, sums may be faster without: of f32 those of
/// several rows are taken at once, of up to four elements with no vectors.
constexpr int64_t kSquaredOnTheWay = 8 * Vec<float>::width;

/// The reduced axes by falling stride, so that memory is read in the order in which it lies. This alone lets the layout of
/// x into the bits of a result: when several axes are reduced at once and lie in another order.
void order_of_axes(const Array& x, const int* axes, int count, Shape& shape, int64_t* strides) {
  int order[kMaxRank];
  for (int i = 0; i < count; ++i) {
    int place = i;
    const int64_t stride = __builtin_llabs(x.strides[axes[i]]);
    for (; place > 0 && __builtin_llabs(x.strides[order[place - 1]]) < stride; --place) order[place] = order[place - 1];
    order[place] = axes[i];
  }
  for (int i = 0; i < count; ++i) {
    shape.push_back(x.shape[order[i]]);
    strides[i] = x.strides[order[i]];
  }
}

__attribute__((noinline)) void reduce_array_of_squares(CpuOps& ops, ReduceOp op, const Array& x, const Array& y) {
  std::size_t bytes = 0;  // x may repeat elements: its size is no number of bytes that are there
  if (__builtin_mul_overflow(static_cast<std::size_t>(x.size), size_of(x.dtype), &bytes)) bytes = SIZE_MAX;
  const Scratch room(bytes);
  Array squares = x;
  squares.data = room.as<void>();
  squares.contiguous = true;
  int64_t stride = 1;
  for (int axis = x.rank() - 1; axis >= 0; stride *= x.shape[axis--]) squares.strides[axis] = stride;
  ops.unary(UnaryOp::square, x, squares);
  ops.reduce(is_mean(op) ? ReduceOp::mean : ReduceOp::sum, squares, y, nullptr);
}

}  // namespace

void CpuOps::reduce(ReduceOp op, const Array& x, const Array& y, const Array* which) {
  if (y.size == 0) return;
  const int last = x.rank() - 1;
  const bool along_rows = last < 0 || y.shape[last] != x.shape[last];
  if (is_of_squares(op) && x.size > 0 && (!along_rows || x.size < kSquaredOnTheWay * y.size))
    return reduce_array_of_squares(*this, op, x, y);
  if (x.contiguous && !which && x.size > 0 && x.size <= kAlone) {  // losses and gradients of biases: often tiny
    if (y.size == 1 && (x.size == 1 || x.shape[last] > 1)) {
      reduce_dense_rows(op, x.dtype, x.data, 1, x.size, y.data);
      return;
    }
    if (last >= 0 && x.shape[last] > 1 && y.size * x.shape[last] == x.size && y.shape[last] == 1) {
      reduce_dense_rows(op, x.dtype, x.data, y.size, x.shape[last], y.data);
      return;
    }
    if (x.rank() == 2 && y.shape[0] == 1 && y.shape[1] == x.shape[1] &&
        reduce_small_matrix(op, x.dtype, x.data, x.shape[0], x.shape[1], y.data)) {
      return;
    }
  }
  if (x.size == 0) {
    fill(y, result_of_nothing(op, y.dtype));
    if (which) fill(*which, -1);
    return;
  }
  Shape kept_shape, reduced_shape;
  int64_t kept_strides[kMaxRank], reduced_strides[kMaxRank];
  int reduced_axes[kMaxRank];
  int reduced_count = 0;
  for (int axis = 0; axis < x.rank(); ++axis) {
    if (y.shape[axis] == x.shape[axis]) {  // an axis of size 1 is kept or reduced: the result is the same
      kept_strides[kept_shape.rank()] = x.strides[axis];
      kept_shape.push_back(x.shape[axis]);
    } else {
      reduced_axes[reduced_count++] = axis;
    }
  }
  order_of_axes(x, reduced_axes, reduced_count, reduced_shape, reduced_strides);

  Reduction reduction;
  reduction.op = op;
  reduction.dtype = x.dtype;
  reduction.x = x.data;
  reduction.y = y.data;
  reduction.kept = collapse<1>(kept_shape, {kept_strides});
  reduction.reduced = collapse<1>(reduced_shape, {reduced_strides});
  reduction.outputs = y.size;
  reduction.count = reduced_shape.size();

  if (which) {
    reduce_which(reduction, which->as<int64_t>());
  } else if (along_rows) {
    reduce_rows(reduction);
  } else {
    reduce_columns(reduction);
  }
}

}  // namespace reel::cpu::REEL_CPU_ISA
