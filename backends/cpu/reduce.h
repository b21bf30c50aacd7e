#pragma once

#include <type_traits>

#include "reel/backends/cpu/convert.h"
#include "reel/backends/cpu/kernel.h"
#include "reel/backends/cpu/simd.h"
#include "reel/core/ops.h"

/// Reductions in a fixed order. The elements of one result are cut into leaves, in the order of the reduced axes, and the
/// leaves are combined in a binary tree over their numbers: 0 with 1, 2 with 3, then pairs with pairs, and so on. A run of
/// 2^k leaves that starts at a multiple of 2^k is a whole subtree, so tasks may be cut there without a change to any bit.
/// What a leaf is depends on whether the last axis is reduced (rows) or kept (columns); nothing depends on the number of
/// results, on strides (but see CpuOps::reduce) or on threads. The error of a sum grows with log n.
namespace reel::cpu::REEL_CPU_ISA {

struct Sum {
  template <class T>
  REEL_INLINE static constexpr T identity() {
    return T(0);
  }
  template <class T>
  REEL_INLINE static T combine(T a, T b) {
    if constexpr (std::is_integral_v<T>) {
      using Unsigned = std::make_unsigned_t<T>;
      return static_cast<T>(static_cast<Unsigned>(a) + static_cast<Unsigned>(b));  // wraps
    } else {
      return a + b;
    }
  }
};

struct Prod {
  template <class T>
  REEL_INLINE static constexpr T identity() {
    return T(1);
  }
  template <class T>
  REEL_INLINE static T combine(T a, T b) {
    if constexpr (std::is_integral_v<T>) {
      return static_cast<T>(static_cast<std::uint64_t>(a) * static_cast<std::uint64_t>(b));  // wraps
    } else {
      return a * b;
    }
  }
};

struct Max {
  template <class T>
  REEL_INLINE static constexpr T identity() {
    if constexpr (std::is_integral_v<T>) {
      return kLowest<T>;
    } else {
      return -static_cast<T>(__builtin_inf());
    }
  }
  /// b if either is NaN.
  template <class T>
  REEL_INLINE static T of_numbers(T a, T b) {
    return a > b ? a : b;
  }
  template <class T>
  REEL_INLINE static T combine(T a, T b) {
    if constexpr (std::is_arithmetic_v<T>) {
      return a != a ? a : of_numbers(a, b);
    } else {
      return max(a, b);
    }
  }
};

struct Min {
  template <class T>
  REEL_INLINE static constexpr T identity() {
    if constexpr (std::is_integral_v<T>) {
      return kHighest<T>;
    } else {
      return static_cast<T>(__builtin_inf());
    }
  }
  template <class T>
  REEL_INLINE static T of_numbers(T a, T b) {
    return a < b ? a : b;
  }
  template <class T>
  REEL_INLINE static T combine(T a, T b) {
    if constexpr (std::is_arithmetic_v<T>) {
      return a != a ? a : of_numbers(a, b);
    } else {
      return min(a, b);
    }
  }
};

/// f.template operator()<Op, T>() for an op and a dtype. Means, which are divided at the end, and sums of squares are sums.
/// Products of integers are of i64 alone.
template <class F>
REEL_INLINE decltype(auto) dispatch_reduction(ReduceOp op, DType dtype, F&& f) {
  return dispatch_arithmetic(dtype, [&]<class T>() {
    if (op == ReduceOp::max) return f.template operator()<Max, T>();
    if (op == ReduceOp::min) return f.template operator()<Min, T>();
    if constexpr (sizeof(T) == 8 || !std::is_integral_v<T>)
      if (op == ReduceOp::prod) return f.template operator()<Prod, T>();
    return f.template operator()<Sum, T>();
  });
}

/// Partial results on their way up the tree of leaves. Older operands stay on the left.
template <class Op, class Partial>
struct Tree {
  Partial levels[56];  // up to 2^56 leaves
  int64_t pushed = 0;
  int top = 0;

  REEL_INLINE void push(Partial value) {
    for (int64_t merges = pushed++; merges & 1; merges >>= 1) value = Op::combine(levels[--top], value);
    levels[top++] = value;
  }
  REEL_INLINE Partial total() {
    for (; top > 1; --top) levels[top - 2] = Op::combine(levels[top - 2], levels[top - 1]);
    return levels[0];
  }
};

/// One call of reduce, in terms of its two groups of axes. `count` > 0 elements make each of the `outputs` > 0 results.
struct Reduction {
  ReduceOp op = ReduceOp::sum;
  DType dtype = DType::f32;
  const void* x = nullptr;
  void* y = nullptr;
  Nest<1> kept;     // in y's order, which is contiguous
  Nest<1> reduced;  // in the order of summation
  int64_t outputs = 1, count = 1;
};

/// A leaf of floating elements in rows: so many steps of so many vectors.
inline constexpr int64_t kLeafSteps = 32, kLeafVectors = 8;

/// The last axis is reduced. Sums of squares too.
void reduce_rows(const Reduction& reduction);
/// The same where rows of at most one leaf lie side by side; false: they do not, nothing was done.
bool reduce_rows_side_by_side(const Reduction& reduction);
/// The rows of a contiguous matrix, count > 0 elements each, as reduce_rows gives them, on this thread.
void reduce_dense_rows(ReduceOp op, DType dtype, const void* x, int64_t rows, int64_t count, void* y);
/// The last axis is kept. No sums of squares, here and below.
void reduce_columns(const Reduction& reduction);
/// The column results of a contiguous matrix, as reduce_columns gives them, if it is small enough to need no tasks.
bool reduce_small_matrix(ReduceOp op, DType dtype, const void* x, int64_t rows, int64_t width, void* y);
/// max or min over exactly one axis, with the index of the first winner.
void reduce_which(const Reduction& reduction, int64_t* which);

}  // namespace reel::cpu::REEL_CPU_ISA
