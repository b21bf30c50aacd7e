#pragma once

#include "reel/core/scalar/exp.h"

namespace reel::scalar {

/// log(1 + f) for sqrt(1/2) <= 1 + f <= sqrt(2), without the leading f.
/// f32: -f^2/2 + f^3 q(f), degree 7, error 2^-27.3 of the logarithm.
template <class Rule = MachineFma>
REEL_SCALAR float log1p_tail(float f) {
  const float q = polynomial<Rule>(f, 0.3333333f, -0.25000823f, 0.20001237f, -0.16623312f, 0.14201723f, -0.13160695f,
                                   0.12761216f, -0.07632024f);
  return f * f * Rule::fma(f, q, -0.5f);
}
/// f64: with s = f / (2 + f), log(1 + f) = 2 atanh(s) = 2 s + s z q(z), z = s^2, and 2 s = f - s f, so that no rounding
/// error of s reaches the leading f. Degree 6, error 2^-59.4 of the logarithm. (The arrangement is that of Sun's
/// fdlibm.)
template <class Rule = MachineFma>
REEL_SCALAR double log1p_tail(double f) {
  const double s = f / (2.0 + f);
  const double z = s * s;
  const double q =
      polynomial<Rule>(z, 0x1.5555555555596p-1, 0x1.999999997e8edp-2, 0x1.249249432a98fp-2, 0x1.c71c50fbb2af8p-3,
                       0x1.7466792b3233ep-3, 0x1.399b92ed4b387p-3, 0x1.2f46257e42b41p-3);
  const double half = 0.5 * f * f;
  return Rule::fma(s, Rule::fma(z, q, half), -half);
}

/// x = m 2^k with sqrt(1/2) <= m < sqrt(2), for x > 0; denormals too.
template <class T>
struct Normalized {
  T m;
  T k;
  Bits<T> biased;  // k + bias, before a denormal was taken into account
};

/// 2^mantissa + bias, as which a number with exponent 0 has its exponent in `normalize_normal`.
template <class T>
REEL_SCALAR constexpr T exponent_of_one() {
  return T(Bits<T>(1) << Format<T>::kMantissa) + T(Format<T>::kBias);
}
/// The same for a number that is not denormal; k is counted from `exponent`.
template <class T>
REEL_SCALAR Normalized<T> normalize_normal(T x, T exponent = exponent_of_one<T>()) {
  constexpr int mantissa = Format<T>::kMantissa;
  constexpr Bits<T> root_half = sizeof(T) == 4 ? Bits<T>(0x3f3504f3u) : Bits<T>(0x3fe6a09e667f3bcdu);  // sqrt(1/2)
  constexpr Bits<T> one = Format<T>::kBias << mantissa;
  const Bits<T> bits = to_bits(x) - root_half;
  // The exponent is put into the significand of 2^mantissa: a conversion that every vector unit has.
  const Bits<T> biased = (bits + one) >> mantissa;
  const T k = from_bits<T>(to_bits(T(Bits<T>(1) << mantissa)) | biased) - exponent;
  const T m = from_bits<T>((bits & ((Bits<T>(1) << mantissa) - 1)) + root_half);
  return {m, k, biased};
}
template <class T>
REEL_SCALAR Normalized<T> normalize(T x) {
  constexpr T bias = T(Format<T>::kBias);
  const bool tiny = x < Format<T>::kMinNormal;
  return normalize_normal(tiny ? x * (T(1) / Format<T>::kMinNormal) : x,
                          tiny ? exponent_of_one<T>() + (bias - T(1)) : exponent_of_one<T>());
}

/// log(2^k (1 + f)).
template <class Rule = MachineFma, class T>
REEL_SCALAR T log_of_parts(T k, T f) {
  const T small = f + Rule::fma(k, ln2_low<T>(), log1p_tail<Rule>(f));
  return Rule::fma(k, ln2_high<T>(), small);
}

/// Natural logarithm: -infinity at 0, NaN below.
template <class Rule = MachineFma, class T>
REEL_SCALAR T log(T x) {
  const Normalized<T> v = normalize(x);
  T y = log_of_parts<Rule>(v.k, v.m - T(1));
  y = x < infinity<T>() ? y : x;  // infinity and NaN
  y = x == T(0) ? -infinity<T>() : y;
  return x < T(0) ? quiet_nan<T>() : y;
}

/// The same of normal numbers above 0, but not of infinity.
template <class T>
REEL_SCALAR T log_of_normal(T x) {
  const Normalized<T> v = normalize_normal(x);
  return log_of_parts(v.k, v.m - T(1));
}

/// log(u + rest), u > 0 not denormal, |rest| no more than the rounding error of u.
template <class T>
REEL_SCALAR T log_of_sum(T u, T rest) {
  const Normalized<T> v = normalize(u);
  const T inverse = T(0.5) * power_of_two<T>(Format<T>::kBias + 1 - v.biased);  // 2^-k, or 0 where that is denormal
  return log_of_parts(v.k, (v.m - T(1)) + rest * inverse);
}

/// log(1 + x), also where x is small.
template <class T>
REEL_SCALAR T log1p(T x) {
  const T u = T(1) + x;
  const T rest = x < T(1) ? x - (u - T(1)) : T(1) - (u - x);
  T y = log_of_sum(u, rest);
  y = x < infinity<T>() ? y : x;               // infinity and NaN
  y = abs(x) < Format<T>::kMinNormal ? x : y;  // keeps denormals and the sign of zero
  y = x == T(-1) ? -infinity<T>() : y;
  return x < T(-1) ? quiet_nan<T>() : y;
}

}  // namespace reel::scalar
