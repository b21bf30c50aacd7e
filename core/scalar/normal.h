#pragma once

#include "reel/core/scalar/exp.h"
#include "reel/core/scalar/log.h"

/// Functions of the normal distribution and its tails: erf, erfc, gelu, log_ndtr. For f32 they are computed in f64 with short
/// polynomials: shorter and more accurate than f32 with compensated steps.
namespace reel::scalar {

/// e^(high + low) = 2^n (1 + y) for a result of type T. `low` is what `high` lost in rounding; f32 does not need it.
template <class T>
struct Exponential;

template <>
struct Exponential<float> {
  double y;
  Bits<double> n;

  /// Not below e^-600.
  REEL_SCALAR explicit Exponential(double high, double = 0) {
    const double shifted = fma(high, 1.4426950408889634, Format<double>::kRound);
    const double r = fma(shifted - Format<double>::kRound, -0.69314718055994531, high);
    const double q = polynomial(r, 0.5, 0.16666518, 0.041666456, 0.008368968, 0.0013935817);  // as in expm1_polynomial
    y = fma(r * r, q, r);
    n = to_bits(shifted) - to_bits(Format<double>::kRound);
  }
  REEL_SCALAR double times(double factor) const { return fma(y, factor, factor) * power_of_two<double>(n); }
};

template <>
struct Exponential<double> {
  double y;
  Bits<double> n;

  REEL_SCALAR explicit Exponential(double high, double low = 0) {
    double clamped = high < -800.0 ? -800.0 : high;  // not -746, for the factor may be large
    clamped = clamped > 710.0 ? 710.0 : clamped;
    const double shifted = fma(clamped, 1.4426950408889634, Format<double>::kRound);
    const double turns = shifted - Format<double>::kRound;
    const double r = fma(turns, -ln2_high<double>(), clamped) + fma(turns, -ln2_low<double>(), low);
    y = expm1_polynomial(r);
    n = to_bits(shifted) - to_bits(Format<double>::kRound);
  }
  REEL_SCALAR double times(double factor) const { return scale(fma(y, factor, factor), n); }
};

/// R(a) = exp(a^2 / 2) Phi(-a) for a >= 0, where Phi is the normal distribution function: 1/2 at 0, about 0.4 / a far out.
template <class T>
struct TailRatio;

template <>
struct TailRatio<float> {
  /// Rational, of degrees 4 and 5, error 2^-27.3 for a <= 14.6; beyond, 1e-5.
  REEL_SCALAR static double of(double a) {
    const double p = polynomial(a, 0x1.0000001a03d79p-1, 0x1.c1082ee9e6041p-2, 0x1.7796ebf4145e5p-3,
                                0x1.4d4e335b5d7f4p-5, 0x1.0e4a1ed8ec873p-8);
    const double q = polynomial(a, 1.0, 0x1.acc64841dd55ap+0, 0x1.34023be619953p+0, 0x1.e12a6b2a388f0p-2,
                                0x1.a1c33827d8e5cp-4, 0x1.52c0fac2d8bc9p-7);
    return p / q;
  }
};

template <>
struct TailRatio<double> {
  /// t S(t) with t = 5 / (a + 5); degree 24, error 2^-57 for all a. The rounding errors of t make it R(a - delta), which is
  /// set right by the differential equation R'(a) = a R(a) - 1 / sqrt(2 pi); the last step of Horner's rule keeps its rounding error.
  REEL_SCALAR static double of(double a) {
    const double d = a + 5.0;
    const double t = 5.0 / d;
    const double td = t * d;
    const double delta = (a - (d - 5.0)) + 0.2 * d * ((td - 5.0) + product_tail(t, d, td));
    const double inner =
        polynomial(t, 0x1.46d04297691efp-4, 0x1.39bdb09159eb9p-4, 0x1.1f988c856fa44p-4, 0x1.f3e4da20f7a8dp-5,
                   0x1.97dd0067c4af6p-5, 0x1.33e25a401bbd4p-5, 0x1.a40016fcd6107p-6, 0x1.ef150f63dfc40p-7,
                   0x1.c54ab9c79098dp-8, 0x1.81c9941d3d58dp-10, -0x1.9e2c1bebd51a4p-10, 0x1.7de6265d4ba44p-13,
                   -0x1.6c2f1785c42f1p-7, 0x1.09c0132de1c9dp-5, -0x1.54199c227b3d6p-4, 0x1.5399239074018p-3,
                   -0x1.04c31a74b1eb7p-2, 0x1.38044df1cbbf8p-2, -0x1.1c26754f592b3p-2, 0x1.7c5e29d9b4924p-3,
                   -0x1.682871456bd16p-4, 0x1.c8749ef53d0bep-6, -0x1.5c09f3b0b4ef5p-8, 0x1.e431cdf04caafp-12);
    const double p = inner * t;
    const double s = p + 0x1.46d04297691dap-4;
    const double s_low = sum_tail(p, 0x1.46d04297691dap-4, s) + product_tail(inner, t, p);
    const double slope = a < 1e6 ? fma(a, t * s, -0.39894228040143268) : 0.0;  // farther out only its rounding is left
    return fma(t, s, fma(delta, slope, t * s_low));
  }
};

/// -x^2 as a sum of two numbers, times a power of two.
struct NegativeSquare {
  double high, low;

  REEL_SCALAR NegativeSquare(double x, double factor) {
    const double square = x * x;
    high = -factor * square;
    low = -factor * product_tail(x, x, square);
  }
};

/// 1 - erf(x), with relative accuracy in the right tail, down to the denormals.
template <class T>
REEL_SCALAR T erfc(T x) {
  constexpr double limit = sizeof(T) == 4 ? 11.0 : 28.0;  // 0 from there on
  constexpr double root_2 = 1.4142135623730951;
  double a = abs(static_cast<double>(x));
  a = a > limit ? limit : a;
  const NegativeSquare square(a, 1.0);
  const double tail = Exponential<T>(square.high, square.low).times(2.0 * TailRatio<T>::of(a * root_2));
  return static_cast<T>(x < T(0) ? 2.0 - tail : tail);
}

/// The error function. Small x: x + x P(x^2). f32: |x| < 0.9, degree 6, 2^-30.1; beyond, 1 - 2^-g(x) with g of degree 6, error
/// 2^-29.1 of erf.
REEL_SCALAR float erf(float x) {
  const float a = abs(x);
  const float z = a * a;
  const float p = polynomial(z, 0.12837917f, -0.37612632f, 0.112836815f, -0.026859023f, 0.005200722f, -0.0008144158f,
                             8.3922685e-05f);
  const float small = fma(a, p, a);
  const float b = a > 3.93f ? 3.93f : a;  // from there on it is 1
  const float g =
      polynomial(b, 0.00023977914f, 1.6270691f, 0.9189592f, 0.15020724f, -0.03219562f, 0.004423005f, -0.00028602f);
  const float shifted = Format<float>::kRound - g;
  const float r = (Format<float>::kRound - shifted) - g;
  const float power = power_of_two<float>(to_bits(shifted) - to_bits(Format<float>::kRound));
  const float tail = fma(expm1_polynomial(r * 0.6931472f), power, power);
  return copysign(a < 0.9f ? small : 1.0f - tail, x);
}
/// f64: |x| < 0.9, degree 11, 2^-56.3; beyond, 1 - erfc.
REEL_SCALAR double erf(double x) {
  const double a = abs(x);
  const double z = a * a;
  const double p =
      polynomial(z, 0x1.06eba8214db69p-3, -0x1.812746b0379fbp-2, 0x1.ce2f21a0433ecp-4, -0x1.b82ce3129d97bp-6,
                 0x1.565bcd0fbaa34p-8, -0x1.c02db3efbcf58p-11, 0x1.f9a31c1282097p-14, -0x1.f4d0c8a33c4dcp-17,
                 0x1.b9c7130d0d8dbp-20, -0x1.5def63e87e930p-23, 0x1.e5ede615ad138p-27, -0x1.dd98f7325635dp-31);
  const double small = fma(a, p, a);
  const double b = a > 6.0 ? 6.0 : a;  // from there on it is 1
  const double tail = exp(-b * b) * (2.0 * TailRatio<double>::of(b * 1.4142135623730951));
  return copysign(a < 0.9 ? small : 1.0 - tail, x);
}

/// erf'(x) = 2 / sqrt(pi) exp(-x^2).
template <class T>
REEL_SCALAR T erf_derivative(T x) {
  const double a = static_cast<double>(x) > 30.0 ? 30.0 : static_cast<double>(x);
  const double b = a < -30.0 ? -30.0 : a;
  const NegativeSquare square(b, 1.0);
  return static_cast<T>(Exponential<double>(square.high, square.low).times(1.1283791670955126));
}

/// x Phi(x) = max(x, 0) - |x| Phi(-|x|), with relative accuracy in the left tail, down to the denormals.
template <class T>
REEL_SCALAR T gelu(T x) {
  constexpr double limit = sizeof(T) == 4 ? 15.0 : 39.0;  // the tail is 0 from there on
  const double wide = static_cast<double>(x);
  double a = abs(wide);
  a = a > limit ? limit : a;
  const NegativeSquare square(a, 0.5);
  const double tail = Exponential<T>(square.high, square.low).times(a * TailRatio<T>::of(a));
  return static_cast<T>((wide <= 0.0 ? 0.0 : wide) - tail);
}

/// Phi(x) + x phi(x); for a = |x| and x < 0 it is exp(-a^2 / 2) (R(a) - a / sqrt(2 pi)), and 1 minus that for x > 0.
template <class T>
REEL_SCALAR T gelu_derivative(T x) {
  constexpr double limit = sizeof(T) == 4 ? 15.0 : 39.0;
  double a = abs(static_cast<double>(x));
  a = a > limit ? limit : a;
  const NegativeSquare square(a, 0.5);
  const double tail = Exponential<T>(square.high, square.low).times(fma(a, -0.39894228040143268, TailRatio<T>::of(a)));
  return static_cast<T>(x > T(0) ? 1.0 - tail : tail);
}

/// log Phi(x): -x^2 / 2 + log R(-x) on the left, log(1 - Phi(-x)) on the right.
REEL_SCALAR double log_ndtr(double x) {
  const double a = abs(x);
  const double ratio = TailRatio<double>::of(a > 1e160 ? 1e160 : a);
  const double b = a > 39.0 ? 39.0 : a;
  const NegativeSquare square(b, 0.5);
  const double tail = -Exponential<double>(square.high, square.low).times(ratio);
  const bool right = x > 0.0;
  const double u = right ? 1.0 + tail : ratio;
  const double y = log_of_sum(u, right ? tail - (u - 1.0) : 0.0);
  const double small = abs(tail) < 1e-30 ? tail : y;
  return right ? small : fma(-0.5 * a, a, y);
}
REEL_SCALAR float log_ndtr(float x) { return static_cast<float>(log_ndtr(static_cast<double>(x))); }

/// phi(x) / Phi(x).
REEL_SCALAR double log_ndtr_derivative(double x) {
  constexpr double root = 0.39894228040143268;  // 1 / sqrt(2 pi)
  const double a = abs(x);
  const double ratio = TailRatio<double>::of(a > 1e160 ? 1e160 : a);
  const double b = a > 39.0 ? 39.0 : a;
  const NegativeSquare square(b, 0.5);
  const Exponential<double> e(square.high, square.low);
  return x > 0.0 ? e.times(root) / (1.0 - e.times(ratio)) : root / ratio;
}
REEL_SCALAR float log_ndtr_derivative(float x) {
  return static_cast<float>(log_ndtr_derivative(static_cast<double>(x)));
}

}  // namespace reel::scalar
