#pragma once

#include <cstdint>

#include "reel/core/macros.h"

/// The bricks of the scalar maths: bits, fused multiply-add, polynomials. Everything in core/scalar/ is branch-free, so
/// that a plain loop over it is vectorised, and uses no function with linkage, so that it can be compiled once per
/// instruction set.
namespace reel::scalar {

/// The layout of the IEEE format of T.
template <class T>
struct Format;

template <>
struct Format<float> {
  using Bits = std::uint32_t;
  static constexpr int kMantissa = 23;            // stored bits of the significand
  static constexpr Bits kBias = 127;              // of the exponent
  static constexpr Bits kSign = 0x80000000u;      // mask
  static constexpr Bits kInfinity = 0x7f800000u;  // its bits
  static constexpr float kRound = 12582912.0f;    // 1.5 * 2^23: adding it leaves an integer in the low bits
  static constexpr float kMinNormal = 0x1p-126f;
};

template <>
struct Format<double> {
  using Bits = std::uint64_t;
  static constexpr int kMantissa = 52;
  static constexpr Bits kBias = 1023;
  static constexpr Bits kSign = 0x8000000000000000u;
  static constexpr Bits kInfinity = 0x7ff0000000000000u;
  static constexpr double kRound = 6755399441055744.0;  // 1.5 * 2^52
  static constexpr double kMinNormal = 0x1p-1022;
};

template <class T>
using Bits = typename Format<T>::Bits;

template <class T>
REEL_SCALAR constexpr Bits<T> to_bits(T x) {
  return __builtin_bit_cast(Bits<T>, x);
}

template <class T>
REEL_SCALAR constexpr T from_bits(Bits<T> bits) {
  return __builtin_bit_cast(T, bits);
}

template <class T>
REEL_SCALAR constexpr T infinity() {
  return from_bits<T>(Format<T>::kInfinity);
}

template <class T>
REEL_SCALAR constexpr T quiet_nan() {
  return from_bits<T>(Format<T>::kInfinity | (Bits<T>(1) << (Format<T>::kMantissa - 1)));
}

/// a b + c, rounded once where the machine has such an instruction and twice elsewhere: never by software. Formulas
/// that use it stay within their bound either way.
REEL_SCALAR float fma(float a, float b, float c) {
#if defined(__CUDA_ARCH__)
  return __fmaf_rn(a, b, c);
#elif defined(__FMA__)
  return __builtin_fmaf(a, b, c);
#else
  return a * b + c;
#endif
}

REEL_SCALAR double fma(double a, double b, double c) {
#if defined(__CUDA_ARCH__)
  return __fma_rn(a, b, c);
#elif defined(__FMA__)
  return __builtin_fma(a, b, c);
#else
  return a * b + c;
#endif
}

/// How a formula multiplies and adds: as the machine does best, or
struct MachineFma {
  template <class T>
  REEL_SCALAR static T fma(T a, T b, T c) {
    return scalar::fma(a, b, c);
  }
};
/// always in two steps, for the same bits on every machine (random numbers).
struct NoFma {
  template <class T>
  REEL_SCALAR static T fma(T a, T b, T c) {
    return a * b + c;
  }
};

/// c0 + c1 x + c2 x^2 + ... by Horner's rule. The coefficients are of x's type.
template <class Rule = MachineFma, class T>
REEL_SCALAR T polynomial(T, T c0) {
  return c0;
}
template <class Rule = MachineFma, class T, class... Rest>
REEL_SCALAR T polynomial(T x, T c0, Rest... rest) {
  return Rule::fma(polynomial<Rule>(x, rest...), x, c0);
}

template <class T>
REEL_SCALAR T abs(T x) {
#if defined(__CUDA_ARCH__)
  return from_bits<T>(to_bits(x) & ~Format<T>::kSign);
#else  // A choice between this and another number becomes a maximum or minimum only if it was not made of bits.
  return sizeof(T) == 4 ? static_cast<T>(__builtin_fabsf(static_cast<float>(x))) : static_cast<T>(__builtin_fabs(x));
#endif
}

/// |x|, or `limit` where that is less or x is NaN. By bits: compilers carry a choice between numbers into all that follows, and
/// vectors take two instructions for it.
REEL_SCALAR float smaller_magnitude(float x, float limit) {
  const Bits<float> bits = to_bits(abs(x));
  return from_bits<float>(bits < to_bits(limit) ? bits : to_bits(limit));
}

#if !defined(__CUDA_ARCH__)
/// 0, of which the compiler does not know. Each translation unit has its own: nothing is linked across instruction sets.
[[gnu::used]] static int unknown_zero = 0;
#endif

/// value, of which the compiler does not know: g++ makes one instruction of a comparison and a choice between x and a bound,
/// but three where the bound is a constant.
template <class T>
REEL_SCALAR T unknown(T value) {
#if defined(__CUDA_ARCH__)
  return value;
#else
  return from_bits<T>(to_bits(value) + static_cast<Bits<T>>(unknown_zero));
#endif
}

/// x, or `low` where x is less; NaN stays.
template <class T>
REEL_SCALAR T at_least(T x, T low) {
  const T bound = unknown(low);
  return x < bound ? bound : x;
}
/// x, or `high` where x is more; NaN stays.
template <class T>
REEL_SCALAR T at_most(T x, T high) {
  const T bound = unknown(high);
  return x > bound ? bound : x;
}

/// The magnitude of `magnitude` with the sign of `sign`.
template <class T>
REEL_SCALAR T copysign(T magnitude, T sign) {
  return from_bits<T>((to_bits(magnitude) & ~Format<T>::kSign) | (to_bits(sign) & Format<T>::kSign));
}

/// -1, 0 (of x's sign) or 1; NaN stays.
template <class T>
REEL_SCALAR T sign(T x) {
  const T unit = copysign(T(1), x);
  return x < T(0) || x > T(0) ? unit : x;
}

REEL_SCALAR float sqrt(float x) {
#if defined(__CUDA_ARCH__)
  return __fsqrt_rn(x);
#else
  return __builtin_sqrtf(x);
#endif
}

REEL_SCALAR double sqrt(double x) {
#if defined(__CUDA_ARCH__)
  return __dsqrt_rn(x);
#else
  return __builtin_sqrt(x);
#endif
}

/// 1 / b within 1 ULP or so, for formulas that compute what it lost; b and 1 / b are normal numbers.
REEL_SCALAR float rough_reciprocal(float b) {
#if defined(__CUDA_ARCH__)
  float reciprocal;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(reciprocal) : "f"(b));
  return reciprocal;
#else
  return 1.0f / b;
#endif
}
REEL_SCALAR double rough_reciprocal(double b) { return 1.0 / b; }

/// a / b for b and 1 / b that are normal numbers. CUDA's own division looks for others, which takes longer than the rest: here
/// one step sets the estimate right, to 0.51 ULP.
REEL_SCALAR float quotient(float a, float b) {
#if defined(__CUDA_ARCH__)
  const float reciprocal = rough_reciprocal(b);
  const float q = a * reciprocal;
  return fma(fma(-q, b, a), reciprocal, q);
#else
  return a / b;
#endif
}
REEL_SCALAR double quotient(double a, double b) { return a / b; }

/// The nearest integer, to even where two are; large numbers are integers already.
REEL_SCALAR double round_to_even(double x) {
#if defined(__CUDA_ARCH__)
  return ::rint(x);
#else
  return __builtin_rint(x);
#endif
}

/// a b - p for p = a b rounded: what the rounding lost. Without fma by halves of the significands (Dekker).
template <class T>
REEL_SCALAR T product_tail(T a, T b, T p) {
#if defined(__CUDA_ARCH__) || defined(__FMA__)
  return fma(a, b, -p);
#else
  constexpr Bits<T> mask = ~((Bits<T>(1) << ((Format<T>::kMantissa + 1) / 2 + sizeof(T) / 8)) - 1);
  const T a1 = from_bits<T>(to_bits(a) & mask), a2 = a - a1;
  const T b1 = from_bits<T>(to_bits(b) & mask), b2 = b - b1;
  return ((a1 * b1 - p) + a1 * b2 + a2 * b1) + a2 * b2;
#endif
}

/// a b + c where c takes away most of the product: rounded about once on every machine.
template <class T>
REEL_SCALAR T cancelling_fma(T a, T b, T c) {
#if defined(__CUDA_ARCH__) || defined(__FMA__)
  return fma(a, b, c);
#else
  const T p = a * b;
  return (p + c) + product_tail(a, b, p);
#endif
}

/// a + b - s for s = a + b rounded.
template <class T>
REEL_SCALAR T sum_tail(T a, T b, T s) {
  const T other = s - a;
  return (a - (s - other)) + (b - other);
}

/// 2^n for a two's complement n of a normal result.
template <class T>
REEL_SCALAR T power_of_two(Bits<T> n) {
  return from_bits<T>((n + Format<T>::kBias) << Format<T>::kMantissa);
}

/// p 2^n, rounded once, into the denormals and up to infinity: |n| < 2 * bias. Two factors, for 2^n alone may not
/// exist.
template <class T>
REEL_SCALAR T scale(T p, Bits<T> n) {
  const Bits<T> both = n + 2 * Format<T>::kBias;  // the sum of two biased exponents, so that it is positive
  const Bits<T> half = both >> 1;
  return p * from_bits<T>(half << Format<T>::kMantissa) * from_bits<T>((both - half) << Format<T>::kMantissa);
}

}  // namespace reel::scalar
