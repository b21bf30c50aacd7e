#pragma once

#include "reel/core/scalar/arithmetic.h"

namespace reel::scalar {

/// x, or 0 where it is less than `least`, the smallest number that is not denormal: for what decays step by step, such as an
/// optimiser's moment of a weight whose gradient stays 0. It would end as one of the last numbers before 0, which rounding keeps
/// there for good, and each of which takes Intel's processors some hundred cycles.
template <class T>
REEL_SCALAR T decayed(T x, T least = Format<T>::kMinNormal) {
  return abs(x) < least ? T(0) : x;
}

/// The least of a moment whose root, plus epsilon, divides: none becomes 0 where epsilon is 0.
template <class T>
REEL_SCALAR T least_divisor(T epsilon) {
  return epsilon > T(0) ? Format<T>::kMinNormal : T(0);
}

}  // namespace reel::scalar
