#pragma once

#include "reel/core/scalar/exp.h"

namespace reel::scalar {

/// log(1 + f) for sqrt(1/2) <= 1 + f <= sqrt(2), without the leading f.
/// f32: -f^2/2 + f^3 q(f), degree 7, error 2^-27.3 of the logarithm.
REEL_SCALAR float log1p_tail(float f) {
  const float q = polynomial(f, 0.3333333f, -0.25000823f, 0.20001237f, -0.16623312f, 0.14201723f, -0.13160695f,
                             0.12761216f, -0.07632024f);
  return f * f * fma(f, q, -0.5f);
}
/// f64: with s = f / (2 + f), log(1 + f) = 2 atanh(s) = 2 s + s z q(z), z = s^2, and 2 s = f - s f, so that no rounding error
/// of s reaches the leading f. Degree 6, error 2^-59.4 of the logarithm. (The arrangement is that of Sun's fdlibm.)
REEL_SCALAR double log1p_tail(double f) {
  const double s = f / (2.0 + f);
  const double z = s * s;
  const double q = polynomial(z, 0x1.5555555555596p-1, 0x1.999999997e8edp-2, 0x1.249249432a98fp-2, 0x1.c71c50fbb2af8p-3,
                              0x1.7466792b3233ep-3, 0x1.399b92ed4b387p-3, 0x1.2f46257e42b41p-3);
  const double half = 0.5 * f * f;
  return fma(s, fma(z, q, half), -half);
}

/// x = m 2^k with sqrt(1/2) <= m < sqrt(2), for x > 0; denormals too.
template <class T>
struct Normalized {
  T m;
  T k;
};

template <class T>
REEL_SCALAR Normalized<T> normalize(T x) {
  constexpr int mantissa = Format<T>::kMantissa;
  constexpr Bits<T> root_half = sizeof(T) == 4 ? Bits<T>(0x3f3504f3u) : Bits<T>(0x3fe6a09e667f3bcdu);  // sqrt(1/2)
  constexpr Bits<T> one = Format<T>::kBias << mantissa;
  const bool tiny = x < Format<T>::kMinNormal;
  const Bits<T> bits = to_bits(tiny ? x * (T(1) / Format<T>::kMinNormal) : x) - root_half;
  // The exponent, 0 when it is -bias, is put into the significand of 2^mantissa: a conversion that every vector unit has.
  const Bits<T> biased = (bits + one) >> mantissa;
  constexpr T base = T(Bits<T>(1) << mantissa);
  const T k =
      from_bits<T>(to_bits(base) | biased) - (base + T(Format<T>::kBias)) - (tiny ? T(Format<T>::kBias - 1) : T(0));
  const T m = from_bits<T>((bits & ((Bits<T>(1) << mantissa) - 1)) + root_half);
  return {m, k};
}

/// Natural logarithm: -infinity at 0, NaN below.
template <class T>
REEL_SCALAR T log(T x) {
  const Normalized<T> v = normalize(x);
  const T f = v.m - T(1);
  const T small = f + fma(v.k, ln2_low<T>(), log1p_tail(f));
  T y = fma(v.k, ln2_high<T>(), small);
  y = x < infinity<T>() ? y : x;  // infinity and NaN
  y = x == T(0) ? -infinity<T>() : y;
  return x < T(0) ? quiet_nan<T>() : y;
}

}  // namespace reel::scalar
