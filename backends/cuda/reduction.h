#pragma once

#include <type_traits>

#include "reel/backends/cuda/convert.h"
#include "reel/backends/cuda/kernel.h"
#include "reel/core/scalar/binary.h"

// What reductions join: each has an Acc, how an element becomes one, how two are joined, and what comes out.

namespace reel::cuda {

namespace device {

template <class T>
REEL_DEVICE T lowest() {
  if constexpr (std::is_integral_v<T>) return kLowest<T>;
  else return -scalar::infinity<T>();
}
template <class T>
REEL_DEVICE T highest() {
  if constexpr (std::is_integral_v<T>) return kHighest<T>;
  else return scalar::infinity<T>();
}

template <class T>
struct Sum {
  using Acc = T;
  REEL_DEVICE static Acc identity() { return T(0); }
  REEL_DEVICE static Acc from(T x, int64_t) { return x; }
  REEL_DEVICE static Acc join(Acc a, Acc b) {
    if constexpr (std::is_integral_v<T>) {
      using Unsigned = std::make_unsigned_t<T>;
      return static_cast<T>(static_cast<Unsigned>(a) + static_cast<Unsigned>(b));  // wraps
    } else {
      return a + b;
    }
  }
  REEL_DEVICE static T value(Acc a) { return a; }
};

template <class T>
struct SumOfSquares : Sum<T> {
  REEL_DEVICE static T from(T x, int64_t) { return x * x; }
};

template <class T>
struct Product {
  using Acc = T;
  REEL_DEVICE static Acc identity() { return T(1); }
  REEL_DEVICE static Acc from(T x, int64_t) { return x; }
  REEL_DEVICE static Acc join(Acc a, Acc b) {
    if constexpr (std::is_integral_v<T>)
      return static_cast<T>(static_cast<std::uint64_t>(a) * static_cast<std::uint64_t>(b));
    else return a * b;
  }
  REEL_DEVICE static T value(Acc a) { return a; }
};

template <class T>
struct Max {
  using Acc = T;
  REEL_DEVICE static Acc identity() { return lowest<T>(); }
  REEL_DEVICE static Acc from(T x, int64_t) { return x; }
  REEL_DEVICE static Acc join(Acc a, Acc b) { return scalar::Maximum::forward(a, b); }
  REEL_DEVICE static T value(Acc a) { return a; }
};

template <class T>
struct Min {
  using Acc = T;
  REEL_DEVICE static Acc identity() { return highest<T>(); }
  REEL_DEVICE static Acc from(T x, int64_t) { return x; }
  REEL_DEVICE static Acc join(Acc a, Acc b) { return scalar::Minimum::forward(a, b); }
  REEL_DEVICE static T value(Acc a) { return a; }
};

/// An element and its place among those that are reduced; place -1: none.
template <class T>
struct Located {
  T value;
  int64_t place;
};
template <class T>
REEL_DEVICE Located<T> from_lane(Located<T> x, int other) {
  return {from_lane(x.value, other), from_lane(x.place, other)};
}

/// The best element with its place; NaN is best, and of equals the first: whatever the order of joining. No place comes last.
template <class T, bool largest>
struct Best {
  using Acc = Located<T>;
  REEL_DEVICE static Acc identity() { return {largest ? lowest<T>() : highest<T>(), -1}; }
  REEL_DEVICE static Acc from(T x, int64_t place) { return {x, place}; }
  REEL_DEVICE static Acc join(Acc a, Acc b) {
    const bool b_first = static_cast<std::uint64_t>(b.place) < static_cast<std::uint64_t>(a.place);
    const bool nan_a = a.value != a.value, nan_b = b.value != b.value;
    const bool a_holds = largest ? b.value <= a.value : b.value >= a.value;  // not if b is NaN
    const bool b_wins = nan_a ? nan_b && b_first : !a_holds || (a.value == b.value && b_first);
    return {b_wins ? b.value : a.value, b_wins ? b.place : a.place};
  }
  REEL_DEVICE static T value(Acc a) { return a.value; }
};

/// What is joined of `count` neighbouring columns.
template <class Acc, int count>
struct alignas(sizeof(Acc) * count <= kPackBytes ? sizeof(Acc) * count : alignof(Acc)) Several {
  Acc v[count];
};

template <class Op, int count>
REEL_DEVICE Several<typename Op::Acc, count> identities() {
  Several<typename Op::Acc, count> acc;
  REEL_UNROLL
  for (int j = 0; j < count; ++j) acc.v[j] = Op::identity();
  return acc;
}
template <class Op, class Acc, int count>
REEL_DEVICE Several<Acc, count> join_each(const Several<Acc, count>& a, const Several<Acc, count>& b) {
  Several<Acc, count> both;
  REEL_UNROLL
  for (int j = 0; j < count; ++j) both.v[j] = Op::join(a.v[j], b.v[j]);
  return both;
}
/// Joins each column's element of the row `place` to it.
template <class Op, class Acc, int count, class T>
REEL_DEVICE void join_pack(Several<Acc, count>& acc, const Pack<T, count>& row, int64_t place) {
  REEL_UNROLL
  for (int j = 0; j < count; ++j) acc.v[j] = Op::join(acc.v[j], Op::from(row.v[j], place));
}

}  // namespace device

/// f.template operator()<Op>() for what an op joins of elements T; with_place: max and min with the winner's place.
template <class T, class F>
void dispatch_reduction(ReduceOp op, bool with_place, F&& f) {
  switch (op) {
    case ReduceOp::sum:
    case ReduceOp::mean:
      return f.template operator()<device::Sum<T>>();
    case ReduceOp::sum_of_squares:  // of `reduce` alone
    case ReduceOp::mean_of_squares:
      return;
    case ReduceOp::prod:
      return f.template operator()<device::Product<T>>();
    case ReduceOp::max:
      return with_place ? f.template operator()<device::Best<T, true>>() : f.template operator()<device::Max<T>>();
    case ReduceOp::min:
      return with_place ? f.template operator()<device::Best<T, false>>() : f.template operator()<device::Min<T>>();
  }
}

}  // namespace reel::cuda
