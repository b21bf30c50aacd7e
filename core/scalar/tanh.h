#pragma once

#include "reel/core/scalar/exp.h"

namespace reel::scalar {

/// e^x - 1, also where it is small.
template <class T>
REEL_SCALAR T expm1(T x) {
  // 2^n (1 + q) - 1 = 2^n q + (2^n - 1), with half the power of two, for 2^n alone may overflow.
  constexpr T low = sizeof(T) == 4 ? T(-20) : T(-40);  // beyond it -1 + e^x is -1
  constexpr T high = sizeof(T) == 4 ? T(89) : T(710);
  T clamped = x < low ? low : x;
  clamped = clamped > high ? high : clamped;
  const ReducedExponent<T> e = reduce_exponent(clamped);
  const T half = power_of_two<T>(e.bits - 1);
  const T y = T(2) * fma(half, expm1_polynomial(e.r), half - T(0.5));
  return e.n == T(0) ? expm1_polynomial(x) : y;  // keeps denormals and the sign of zero
}

/// Hyperbolic tangent: with u = e^(2|x|) - 1, tanh |x| = u / (u + 2), which loses nothing near 0 and is 1 from about 9 (f32),
/// 19 (f64) on.
template <class T>
REEL_SCALAR T tanh(T x) {
  constexpr T high = sizeof(T) == 4 ? T(20) : T(40);
  const T a = abs(x);
  const T twice = T(2) * (a > high ? high : a);
  const ReducedExponent<T> e = reduce_exponent(twice);
  const T power = power_of_two<T>(e.bits);
  const T u = fma(power, expm1_polynomial(e.r), power - T(1));
  return copysign(u / (u + T(2)), x);
}

/// 1 / (1 + e^-x), with relative accuracy in the left tail, down to the denormals.
template <class T>
REEL_SCALAR T sigmoid(T x) {
  const T e = exp(-abs(x));
  return (x < T(0) ? e : T(1)) / (T(1) + e);
}

}  // namespace reel::scalar
