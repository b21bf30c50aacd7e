#pragma once

#include "reel/core/scalar/arithmetic.h"

namespace reel::scalar {

/// x, or 0 where it is denormal: for what decays step by step, such as an optimiser's moment of a weight whose gradient stays 0. It
/// would end as one of the last numbers before 0, which rounding keeps there for good, and each of which takes Intel's processors
/// some hundred cycles.
template <class T>
REEL_SCALAR T decayed(T x) {
  return abs(x) < Format<T>::kMinNormal ? T(0) : x;
}

}  // namespace reel::scalar
