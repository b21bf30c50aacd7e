#pragma once

#include "reel/core/scalar/exp.h"
#include "reel/core/scalar/log.h"

/// Functions of the normal distribution and its tails: erf, erfc, gelu, log_ndtr. Of f32, erf and gelu are computed in f32,
/// with steps that keep their rounding errors; the others in f64 with short polynomials.
namespace reel::scalar {

/// A number in two parts, the second smaller than an ULP of the first.
struct TwoPart {
  double high, low;
};

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
    const double q = polynomial(r, 0.5, 0.16666518, 0.041666456, 0.008368968,
                                0.0013935817);  // as in expm1_polynomial
    y = fma(r * r, q, r);
    n = to_bits(shifted) - to_bits(Format<double>::kRound);
  }
  REEL_SCALAR double times(double factor) const { return fma(y, factor, factor) * power_of_two<double>(n); }
  REEL_SCALAR double times(TwoPart factor) const { return times(factor.high); }
};

template <>
struct Exponential<double> {
  double y;
  Bits<double> n;

  REEL_SCALAR explicit Exponential(double high, double low = 0) {
    const double clamped = at_most(at_least(high, -800.0), 710.0);  // not -746, for the factor may be large
    const double shifted = fma(clamped, 1.4426950408889634, Format<double>::kRound);
    const double turns = shifted - Format<double>::kRound;
    const double r = fma(turns, -ln2_high<double>(), clamped) + fma(turns, -ln2_low<double>(), low);
    y = expm1_polynomial(r);
    n = to_bits(shifted) - to_bits(Format<double>::kRound);
  }
  REEL_SCALAR double times(double factor) const { return scale(fma(y, factor, factor), n); }
  REEL_SCALAR double times(TwoPart factor) const { return scale(factor.high + fma(y, factor.high, factor.low), n); }
};

/// R(a) = exp(a^2 / 2) Phi(-a) for a >= 0, where Phi is the normal distribution function: 1/2 at 0, 0.4 / a far out.
template <class T>
struct TailRatio;

template <>
struct TailRatio<float> {
  /// Rational, of degrees 4 and 5, error 2^-27.3 for a <= 14.6; beyond, 1e-5.
  REEL_SCALAR static TwoPart of(double a, double = 0.0) {
    const double p = polynomial(a, 0x1.0000001a03d79p-1, 0x1.c1082ee9e6041p-2, 0x1.7796ebf4145e5p-3,
                                0x1.4d4e335b5d7f4p-5, 0x1.0e4a1ed8ec873p-8);
    const double q = polynomial(a, 1.0, 0x1.acc64841dd55ap+0, 0x1.34023be619953p+0, 0x1.e12a6b2a388f0p-2,
                                0x1.a1c33827d8e5cp-4, 0x1.52c0fac2d8bc9p-7);
    return {p / q, 0.0};
  }
};

template <>
struct TailRatio<double> {
  /// t S(t - 1/2) with t = 4 / (a + 4); degree 24, error 2^-56.3 for all a. The last step of Horner's rule keeps its
  /// rounding error. The rounding errors of t, and what a itself lost in rounding, make it R(a - delta): that is set
  /// right by the differential equation R'(a) = a R(a) - 1 / sqrt(2 pi).
  REEL_SCALAR static TwoPart of(double a, double a_low = 0.0) {
    const double d = a + 4.0;
    const double t = 4.0 / d;
    const double td = t * d;
    const double delta = (a - (d - 4.0)) + fma(0.25 * d, (td - 4.0) + product_tail(t, d, td), a_low);
    const double u = t - 0.5;
    const double inner =
        polynomial(u, 0x1.373e3a893c28cp-2, 0x1.8c6dbf2cfc2a7p-2, 0x1.7dff2bff68097p-2, 0x1.eec4cc3e4e6a3p-3,
                   0x1.ee2761053b8e5p-5, -0x1.c81719d6ec25ap-5, -0x1.ab825fec91093p-5, 0x1.17a4af56e8a2ep-7,
                   0x1.e4a430ce086e6p-6, -0x1.00204e4b7bec5p-11, -0x1.26d18441ed134p-6, 0x1.80d650e0db811p-11,
                   0x1.8d63b43248663p-7, -0x1.5257eeee3735ap-9, -0x1.131109b6c1cebp-7, 0x1.25346b6141411p-8,
                   0x1.56e8e0413d6dcp-8, -0x1.77d6a264e0b1ep-8, -0x1.316ad0fc7cd00p-9, 0x1.777d5e138ab8ep-8,
                   0x1.33e4d682398ebp-12, -0x1.0bb079c8702fbp-8, 0x1.12660b8a37a1bp-12, 0x1.949de5006570dp-10);
    const double p = inner * u;
    const double s = p + 0x1.82b4bb8c94dcep-3;
    const double s_low = (sum_tail(p, 0x1.82b4bb8c94dcep-3, s) - 0x1.7511546b00680p-58) + product_tail(inner, u, p);
    const double r = t * s;
    const double slope = a < 1e6 ? fma(a, r, -0.39894228040143268) : 0.0;  // farther out only its rounding is left
    return {r, product_tail(t, s, r) + fma(delta, slope, t * s_low)};
  }
};

/// a r in two parts.
REEL_SCALAR TwoPart product(double a, TwoPart r) {
  const double p = a * r.high;
  return {p, fma(a, r.low, product_tail(a, r.high, p))};
}

/// -factor x^2 in two parts, for a factor that is a power of two.
REEL_SCALAR TwoPart negative_square(double x, double factor) {
  const double square = x * x;
  return {-factor * square, -factor * product_tail(x, x, square)};
}

/// 1 - erf(x), with relative accuracy in the right tail, down to the denormals.
template <class T>
REEL_SCALAR T erfc(T x) {
  constexpr double limit = sizeof(T) == 4 ? 11.0 : 28.0;  // 0 from there on
  constexpr double root_2 = 0x1.6a09e667f3bcdp+0, root_2_low = -0x1.bdd3413b26456p-54;
  const double a = at_most(abs(static_cast<double>(x)), limit);
  const TwoPart square = negative_square(a, 1.0);
  const double b = a * root_2;
  const double b_low = fma(a, root_2_low, product_tail(a, root_2, b));
  const TwoPart ratio = TailRatio<T>::of(b, b_low);
  const double tail = Exponential<T>(square.high, square.low).times(product(2.0, ratio));
  return static_cast<T>(x < T(0) ? 2.0 - tail : tail);
}

/// The error function. Small x: x + x P(x^2). f32: |x| < 0.9, degree 6, 2^-30.1; beyond, 1 - 2^-g(x) with g of degree
/// 6, error 2^-29.1 of erf.
REEL_SCALAR float erf(float x) {
  const float a = abs(x);
  const float z = a * a;
  const float p = polynomial(z, 0.12837917f, -0.37612632f, 0.112836815f, -0.026859023f, 0.005200722f, -0.0008144158f,
                             8.3922685e-05f);
  const float small = fma(a, p, a);
  const float b = at_most(a, 3.93f);  // from there on it is 1
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
  const double b = at_most(a, 6.0);  // from there on it is 1
  const double tail = exp(-b * b) * (2.0 * TailRatio<double>::of(b * 1.4142135623730951).high);
  return copysign(a < 0.9 ? small : 1.0 - tail, x);
}

/// erf'(x) = 2 / sqrt(pi) exp(-x^2).
template <class T>
REEL_SCALAR T erf_derivative(T x) {
  constexpr double limit = sizeof(T) == 4 ? 15.0 : 30.0;
  const double a = at_most(abs(static_cast<double>(x)), limit);
  const TwoPart square = negative_square(a, 1.0);
  return static_cast<T>(Exponential<T>(square.high, square.low).times(1.1283791670955126));
}

/// exp(-a^2 / 2) = 2^n (1 + y) for 0 <= a <= 15, with y = exp(r) - 1 and r = -a^2 / 2 - n ln 2; `power` is 2^(n + 64),
/// since 2^n alone may not be normal. Works on -2 r, whose polynomial has the coefficients of
/// expm1_polynomial times powers of -1/2.
struct NormalExponential {
  float y, power;

  REEL_SCALAR explicit NormalExponential(float a) {
    constexpr float shift = Format<float>::kRound + 127 + 64;  // leaves the bits of 2^(n + 64)'s exponent
    const float shifted = fma(a * a, -0.72134752f, shift);
    const float n = shifted - shift;
    const float high = cancelling_fma(a, a, n * (2 * ln2_high<float>()));
    const float z = fma(n, 2 * ln2_low<float>(), high);
    y = fma(z * z, polynomial(z, 0.125f, -0.0208331475f, 0.00260415350f, -0.00026153025f, 0.0000217747141f), -0.5f * z);
    power = from_bits<float>(to_bits(shifted) << Format<float>::kMantissa);
  }
};

/// R(a) = Q(s) / (a + 9/4) in f32, for s = a / (a + 9/4) and a <= 15; Q(s) = first + (s - center) inner(s), degree 10, error
/// 2^-27.4.
struct TailRatioF32 {
  static constexpr float offset = 2.25f, center = 0.609375f, first = 0.611011863f;
  REEL_SCALAR static float inner(float v) {
    return polynomial(v, -0.695659757f, 0.379284948f, 0.129452199f, -0.249820814f, -0.099516362f, 0.192040548f,
                      0.16376248f, -0.100941613f, -0.213196337f, -0.0945756361f);
  }
};

/// |x|, or 15 where that is less or x is NaN.
REEL_SCALAR float normal_magnitude(float x) { return smaller_magnitude(x, 15.0f); }

/// x Phi(x) = max(x, 0) - |x| Phi(-|x|), with relative accuracy in the left tail, down to the denormals.
REEL_SCALAR double gelu(double x) {
  const double a = at_most(abs(x), 39.0);  // the tail is 0 from there on
  const TwoPart square = negative_square(a, 0.5);
  const double tail = Exponential<double>(square.high, square.low).times(product(a, TailRatio<double>::of(a)));
  return at_least(x, 0.0) - tail;
}

/// The tail |x| Phi(-|x|) in f32 as (p + low) (1 + y) 2^n with p = s Q(s): what s, Q and their product lose in rounding goes
/// into `low`, that of s by the slope of s Q(s).
struct GeluTail {
  NormalExponential e;
  float p, low;

  REEL_SCALAR explicit GeluTail(float a) : e(a) {
    using R = TailRatioF32;
    const float reciprocal = rough_reciprocal(a + R::offset);
    const float s = a * reciprocal;
    const float excess = cancelling_fma(s, a, cancelling_fma(s, R::offset, -a));  // s (a + 9/4) - a
    const float v = s - R::center;
    const float inner = R::inner(v);
    const float q = fma(v, inner, R::first);
    p = s * q;
    const float rounding = fma(s, product_tail(v, inner, q - R::first), product_tail(s, q, p));
    low = fma(excess * reciprocal, -fma(s, inner, q), rounding);
  }
};

REEL_SCALAR float gelu(float x) {
  const GeluTail t(normal_magnitude(x));
  const float tail = t.p + fma(t.p, t.e.y, fma(t.low, t.e.y, t.low));
  return fma(tail * t.e.power, -0x1p-64f, at_least(x, 0.0f));
}

/// Phi(x) + x phi(x); for a = |x| and x < 0 it is exp(-a^2 / 2) (R(a) - a / sqrt(2 pi)), and 1 minus that for x > 0.
REEL_SCALAR double gelu_derivative(double x) {
  const double a = at_most(abs(x), 39.0);
  const TwoPart square = negative_square(a, 0.5);
  const double tail =
      Exponential<double>(square.high, square.low).times(fma(a, -0.39894228040143268, TailRatio<double>::of(a).high));
  return x > 0.0 ? 1.0 - tail : tail;
}

REEL_SCALAR float gelu_derivative(float x) {
  using R = TailRatioF32;
  const float a = normal_magnitude(x);
  const NormalExponential e(a);
  const float t = quotient(1.0f, a + R::offset);
  const float v = fma(a, t, -R::center);
  const float p = fma(t, fma(v, R::inner(v), R::first), -0.39894228f * a);
  const bool right = x > 0.0f;
  const float left_limit = x == x ? -0.0f : x;  // which keeps a tail's sign where it underflows
  return fma(fma(p, e.y, p) * e.power, right ? -0x1p-64f : 0x1p-64f, right ? 1.0f : left_limit);
}

/// log Phi(x): -x^2 / 2 + log R(-x) on the left, log(1 - Phi(-x)) on the right.
REEL_SCALAR double log_ndtr(double x) {
  const double a = abs(x);
  const TwoPart ratio = TailRatio<double>::of(at_most(a, 1e160));
  const double b = at_most(a, 39.0);
  const TwoPart square = negative_square(b, 0.5);
  const double tail = -Exponential<double>(square.high, square.low).times(ratio);
  const bool right = x > 0.0;
  const double u = right ? 1.0 + tail : ratio.high;
  const double y = log_of_sum(u, right ? tail - (u - 1.0) : ratio.low);
  const double small = abs(tail) < 1e-30 ? tail : y;
  return right ? small : fma(-0.5 * a, a, y);
}
REEL_SCALAR float log_ndtr(float x) { return static_cast<float>(log_ndtr(static_cast<double>(x))); }

/// phi(x) / Phi(x).
REEL_SCALAR double log_ndtr_derivative(double x) {
  constexpr double root = 0.39894228040143268;  // 1 / sqrt(2 pi)
  const double a = abs(x);
  const TwoPart ratio = TailRatio<double>::of(at_most(a, 1e160));
  const double b = at_most(a, 39.0);
  const TwoPart square = negative_square(b, 0.5);
  const Exponential<double> e(square.high, square.low);
  return x > 0.0 ? e.times(root) / (1.0 - e.times(ratio)) : root / ratio.high;
}
REEL_SCALAR float log_ndtr_derivative(float x) {
  return static_cast<float>(log_ndtr_derivative(static_cast<double>(x)));
}

}  // namespace reel::scalar
