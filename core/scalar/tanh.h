#pragma once

#include "reel/core/scalar/exp.h"

namespace reel::scalar {

/// e^x - 1, also where it is small.
template <class T>
REEL_SCALAR T expm1(T x) {
  // 2^n (1 + q) - 1 = 2^n q + (2^n - 1), with half the power of two, for 2^n alone may overflow.
  constexpr T low = sizeof(T) == 4 ? T(-20) : T(-40);  // beyond it -1 + e^x is -1
  constexpr T high = sizeof(T) == 4 ? T(89) : T(710);
  const T clamped = at_most(at_least(x, low), high);
  const ReducedExponent<T> e = reduce_exponent(clamped);
  const T half = power_of_two<T>(e.bits - 1);
  const T y = T(2) * fma(half, expm1_polynomial(e.r), half - T(0.5));
  return copysign(e.n == T(0) ? expm1_polynomial(x) : y, x);  // for the sign of zero
}

/// With u = e^(2a) - 1, tanh a = u / (u + 2), which loses little near 0 and is 1 from about 9 (f32), 19 (f64) on; 0 <= a <= 40.
template <class T>
REEL_SCALAR T tanh_by_exponential(T a) {
  const ReducedExponent<T> e = reduce_exponent(T(2) * a);
  const T power = power_of_two<T>(e.bits);
  const T u = fma(power, expm1_polynomial(e.r), power - T(1));
  return quotient(u, u + T(2));
}

/// Hyperbolic tangent. In f32 the quotient is good for 2.6 ULP near 0, so that small x take an odd polynomial instead:
/// x + x^3 P(x^2) for |x| < 0.53, degree 4, error 2^-30.4.
REEL_SCALAR float tanh(float x) {
  const float a = abs(x);
  const float z = a * a;
  const float p = polynomial(z, -0.33333322f, 0.13332771f, -0.053873908f, 0.021170102f, -0.006427325f);
  const float small = fma(a * z, p, a);
  return copysign(a >= 0.53f ? tanh_by_exponential(smaller_magnitude(x, 20.0f)) : small, x);  // NaN is small
}
REEL_SCALAR double tanh(double x) {
  const double a = abs(x);
  return copysign(tanh_by_exponential(at_most(a, 40.0)), x);
}

/// 1 / (1 + e^-x), with relative accuracy in the left tail, down to the denormals.
template <class T>
REEL_SCALAR T sigmoid(T x) {
  const T e = bounded_exp(falling_exponent(abs(x)));
  const T t = quotient(e, T(1) + e);
  return x < T(0) ? fma(-e, t, e) : T(1) - t;  // e (1 - t) is better than t: the rounding of 1 + e matters less
}

}  // namespace reel::scalar
