#pragma once

#include <type_traits>

#include "reel/core/scalar/arithmetic.h"

/// Ops whose formula ends at |x| = Op::near<T>, and which have slow twins, far_forward and far_derivative, for what lies beyond (sin
/// and cos). A kernel runs over its arguments through for_near_and_far.
namespace reel::scalar {

template <class Op, class = void>
inline constexpr bool kHasFar = false;
template <class Op>
inline constexpr bool kHasFar<Op, std::void_t<decltype(Op::template near<float>)>> = true;

/// Op for all arguments: the same bits as Op's where that has a result.
template <class Op>
struct WithFar {
  template <class T>
  REEL_SCALAR static T forward(T x) {
    return abs(x) > Op::template near<T> ? Op::far_forward(x) : Op::forward(x);
  }
  template <class T>
  REEL_SCALAR static T derivative(T x) {
    return abs(x) > Op::template near<T> ? Op::far_derivative(x) : Op::derivative(x);
  }
};

/// Calls run(F, begin, end), which loops over arguments [begin, end) with F = Op or, where some of a block are far out, WithFar.
template <class Op, class T, class Run>
REEL_SCALAR void for_near_and_far(std::int64_t count, const T* x, Run run) {
  if constexpr (kHasFar<Op>) {
    constexpr std::int64_t block = 512;
    for (std::int64_t begin = 0; begin < count; begin += block) {
      const std::int64_t end = count - begin < block ? count : begin + block;
      Bits<T> far = 0;
      for (std::int64_t i = begin; i < end; ++i) far |= abs(x[i]) > Op::template near<T> ? 1 : 0;
      if (far != 0) {
        run(WithFar<Op>{}, begin, end);
      } else {
        run(Op{}, begin, end);
      }
    }
  } else {
    run(Op{}, std::int64_t(0), count);
  }
}

}  // namespace reel::scalar
