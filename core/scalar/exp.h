#pragma once

#include "reel/core/scalar/arithmetic.h"

namespace reel::scalar {

/// x = n ln 2 + r with |r| <= ln 2 / 2, n an integer as a number and as bits; `low` is what r lost in rounding.
template <class T>
struct ReducedExponent {
  T r;
  T low;
  T n;
  Bits<T> bits;
};

/// ln 2 in two parts; the first has trailing zeros so that n times it is exact.
template <class T>
REEL_SCALAR constexpr T ln2_high() {
  return sizeof(T) == 4 ? T(0x1.63p-1) : T(0x1.62e42fee00000p-1);
}
template <class T>
REEL_SCALAR constexpr T ln2_low() {
  return sizeof(T) == 4 ? T(-0x1.bd0105c610ca8p-13) : T(0x1.a39ef35793c76p-33);
}

template <class T>
REEL_SCALAR ReducedExponent<T> reduce_exponent(T x) {
  constexpr T log2_e = T(1.4426950408889634074);
  const T shifted = fma(x, log2_e, Format<T>::kRound);
  const T n = shifted - Format<T>::kRound;
  const T first = fma(n, -ln2_high<T>(), x);  // exact
  const T r = fma(n, -ln2_low<T>(), first);
  const T low = fma(n, -ln2_low<T>(), first - r);
  return {r, low, n, to_bits(shifted) - to_bits(Format<T>::kRound)};
}

/// exp(r) - 1 for |r| <= ln 2 / 2: r + r^2 q(r), minimax in the error relative to exp(r).
/// f32: degree 4, 2^-28.2. f64: degree 9, 2^-57.9.
REEL_SCALAR float expm1_polynomial(float r) {
  const float q = polynomial(r, 0.5f, 0.16666518f, 0.041666456f, 0.008368968f, 0.0013935817f);
  return fma(r * r, q, r);
}
REEL_SCALAR double expm1_polynomial(double r) {
  const double q = polynomial(r, 0x1.000000000000cp-1, 0x1.555555555555cp-3, 0x1.555555554fdd6p-5, 0x1.111111110e8b2p-7,
                              0x1.6c16c1861780cp-10, 0x1.a01a01b4f7a32p-13, 0x1.a01995832bb38p-16,
                              0x1.71ddec7de2da7p-19, 0x1.28b131b1b7b09p-22, 0x1.af720c1ed76d3p-26);
  return fma(r * r, q, r);
}

/// Beyond these exp is 0 and infinity: they keep n in range. NaN passes.
template <class T>
REEL_SCALAR T clamp_exponent(T x) {
  constexpr T low = sizeof(T) == 4 ? T(-104) : T(-746);
  constexpr T high = sizeof(T) == 4 ? T(89) : T(710);
  return at_most(at_least(x, low), high);
}

/// -a for a >= 0, in the same range: one bound is enough. NaN passes.
template <class T>
REEL_SCALAR T falling_exponent(T a) {
  constexpr T high = sizeof(T) == 4 ? T(104) : T(746);
  return -at_most(a, high);
}

/// exp for |x| <= 150 (f32), 1000 (f64), or NaN.
template <class T>
REEL_SCALAR T bounded_exp(T x) {
  const ReducedExponent<T> e = reduce_exponent(x);
  return scale(T(1) + expm1_polynomial(e.r), e.bits);
}

/// e^x; underflow is gradual.
template <class T>
REEL_SCALAR T exp(T x) {
  return bounded_exp(clamp_exponent(x));
}

}  // namespace reel::scalar
