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

/// Elements of a result up to which rows with gaps are squared first: those side by side are combined where they lie.
constexpr int64_t kSquaredFirst = 1024;
/// Elements of a result from which on they are squared on the way. Of fewer, sums may be faster without: of f32 those of
/// several rows are taken at once, of up to four elements with no vectors.
constexpr int64_t kSquaredOnTheWay = 8 * Vec<float>::width;

/// Axes by falling stride, as memory lies.
void in_memory_order(const Array& x, int* axes, int count) {
  for (int i = 1; i < count; ++i) {
    const int axis = axes[i];
    const int64_t stride = __builtin_llabs(x.strides[axis]);
    int place = i;
    for (; place > 0 && __builtin_llabs(x.strides[axes[place - 1]]) < stride; --place) axes[place] = axes[place - 1];
    axes[place] = axis;
  }
}

Nest<1> nest_of(const Array& x, const int* axes, int count) {
  Shape shape;
  int64_t strides[kMaxRank];
  for (int i = 0; i < count; ++i) {
    shape.push_back(x.shape[axes[i]]);
    strides[i] = x.strides[axes[i]];
  }
  return collapse<1>(shape, {strides});
}

/// y in other memory, its axes in the given order.
Array laid_out(const Array& y, const int* axes, int count, void* data) {
  Array other = y;
  other.data = data;
  other.contiguous = false;
  int64_t stride = 1;
  for (int i = count - 1; i >= 0; stride *= y.shape[axes[i--]]) other.strides[axes[i]] = stride;
  return other;
}

__attribute__((noinline)) void reduce_array_of_squares(CpuOps& ops, ReduceOp op, const Array& x, const Array& y) {
  std::size_t bytes = 0;  // x may repeat elements: its size is no number of bytes that are there
  if (__builtin_mul_overflow(static_cast<std::size_t>(x.size), size_of(x.dtype), &bytes)) bytes = SIZE_MAX;
  const Scratch room(bytes);
  int axes[kMaxRank];
  for (int axis = 0; axis < x.rank(); ++axis) axes[axis] = axis;
  in_memory_order(x, axes, x.rank());
  Array squares = laid_out(x, axes, x.rank(), room.as<void>());
  squares.contiguous = x.contiguous;
  ops.unary(UnaryOp::square, x, squares);
  ops.reduce(is_mean(op) ? ReduceOp::mean : ReduceOp::sum, squares, y, nullptr);
}

}  // namespace

void CpuOps::reduce(ReduceOp op, const Array& x, const Array& y, const Array* which) {
  if (y.size == 0) return;
  const int last = x.rank() - 1;
  const bool along_rows = last < 0 || y.shape[last] != x.shape[last];
  if (is_of_squares(op) && x.size > 0) {
    const bool has_gaps = last >= 0 && __builtin_llabs(x.strides[last]) > 1 && x.size <= kSquaredFirst * y.size;
    if (!along_rows || has_gaps || x.size < kSquaredOnTheWay * y.size) return reduce_array_of_squares(*this, op, x, y);
  }
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
  int kept[kMaxRank] = {}, reduced[kMaxRank] = {}, kept_count = 0, reduced_count = 0;
  for (int axis = 0; axis < x.rank(); ++axis) {
    if (x.shape[axis] == 1) continue;
    if (y.shape[axis] == x.shape[axis]) kept[kept_count++] = axis;
    else reduced[reduced_count++] = axis;
  }
  // This alone lets the layout of x into the bits of a result: when several axes are reduced at once and lie in another order.
  in_memory_order(x, reduced, reduced_count);

  Reduction reduction;
  reduction.op = op;
  reduction.dtype = x.dtype;
  reduction.x = x.data;
  reduction.y = y.data;
  reduction.kept = nest_of(x, kept, kept_count);
  reduction.reduced = nest_of(x, reduced, reduced_count);
  reduction.outputs = y.size;
  reduction.count = x.size / y.size;

  const auto reduce_to = [&](int64_t* places) {
    if (which) reduce_which(reduction, places);
    else if (along_rows) reduce_rows(reduction);
    else reduce_columns(reduction);
  };
  if (kept_count > 1 && reduction.kept.inner_stride(0) != 1 && reduction.reduced.inner_stride(0) != 1) {
    // Results side by side in x, but not in y, are put there afterwards.
    in_memory_order(x, kept, kept_count);
    if (x.strides[kept[kept_count - 1]] == 1) {
      const Scratch room(static_cast<std::size_t>(y.size) * (sizeof(int64_t) + size_of(y.dtype)));
      int64_t* const places = room.as<int64_t>();
      reduction.y = places + y.size;
      reduction.kept = nest_of(x, kept, kept_count);
      reduce_to(places);
      copy(laid_out(y, kept, kept_count, reduction.y), y);
      if (which) copy(laid_out(*which, kept, kept_count, places), *which);
      return;
    }
  }
  reduce_to(which ? which->as<int64_t>() : nullptr);
}

}  // namespace reel::cpu::REEL_CPU_ISA
