#pragma once

#include "reel/core/scalar/log.h"
#include "reel/core/scalar/trig.h"

/// The logarithm of the gamma function and its derivatives. In f64; f32 is rounded from that.
namespace reel::scalar {

/// sin(pi x) and cos(pi x) for |x| up to 2^51, of an angle that lost `rest` in rounding: the exact one is rest farther.
struct PiAngle {
  double sine, cosine, rest;

  REEL_SCALAR explicit PiAngle(double x) {
    constexpr double pi = 0x1.921fb54442d18p+1, pi_low = 0x1.1a62633145c07p-53;
    const double nearest = round_to_even(x);
    const double r = x - nearest;  // exact
    const double a = abs(r);
    const bool near = a <= 0.25;
    const double part = near ? a : 0.5 - a;
    const double angle = pi * part;
    const double lost = fma(part, pi_low, product_tail(pi, part, angle));
    const double s = sin_polynomial(angle), c = cos_polynomial(angle);
    const double half = 0.5 * nearest;
    const bool odd = half != round_to_even(half);
    const double sine_size = near ? s : c, cosine_size = near ? c : s;
    sine = copysign(odd ? -sine_size : sine_size, odd ? -r : r);
    cosine = odd ? -cosine_size : cosine_size;
    rest = near != (r < 0.0) ? lost : -lost;
  }
};

/// log Gamma(x) for x > 0, with relative accuracy at its zeros 1 and 2.
REEL_SCALAR double lgamma_of_positive(double x) {
  const bool big = x >= 8.0;
  const bool small = x < 0.75;
  // Down to z in [3/4, 5/2): Gamma(x) = product Gamma(z), or up by one: Gamma(x) = Gamma(z) / x.
  double z = small ? x + 1.0 : x, product = 1.0;
  REEL_UNROLL
  for (int step = 0; step < 6; ++step) {
    const bool down = z >= 2.5;
    z = down ? z - 1.0 : z;
    product = down ? product * z : product;
  }
  const double logarithm = log(big || small ? x : product);
  // log Gamma(z) / ((z - 1) (z - 2)), degree 28, error 2^-54.2.
  const double p = polynomial(
      z - 1.625, 0x1.dcfd339a88006p-2, -0x1.0d79494357499p-3, 0x1.aebb0c81e4d12p-5, -0x1.8c66d24dc3082p-6,
      0x1.88f37b6d3a595p-7, -0x1.9755f440aca3ep-8, 0x1.b2cd239d35707p-9, -0x1.d9b604166cf95p-10, 0x1.05f41231a57ffp-10,
      -0x1.250cdf2e7d3f5p-11, 0x1.4ad166cced328p-12, -0x1.7838e1101f1a1p-13, 0x1.ae7f9e53b3670p-14,
      -0x1.eebabd5827424p-15, 0x1.1d69dc0c39a13p-15, -0x1.4e640f3411af8p-16, 0x1.893ec8de8170fp-17,
      -0x1.a04ba5724b232p-18, 0x1.c351750de3786p-19, -0x1.c4f25324f5a42p-19, 0x1.411c0fdb093ebp-19,
      0x1.9922913e819afp-21, -0x1.d9002ad0ac24cp-21, -0x1.e085f967b6553p-20, 0x1.6cc3b5eac4f40p-20,
      0x1.afcdc1751ef93p-21, -0x1.4220117cf7ec7p-21, -0x1.46f8394e32b69p-22, 0x1.b56bccc1ea05bp-23);
  const double near = fma((z - 1.0) * (z - 2.0), p, small ? -logarithm : logarithm);
  // Stirling: log Gamma(x) = (x - 1/2) (log x - 1) + (log(2 pi) - 1) / 2 + W(1 / x^2) / x, W of degree 6, error 2^-63.
  const double inverse = 1.0 / x;
  const double w =
      polynomial(inverse * inverse, 0x1.5555555555555p-4, -0x1.6c16c16c10959p-9, 0x1.a01a015d9f605p-11,
                 -0x1.381331cbd99ffp-11, 0x1.b920c38039d47p-11, -0x1.ee692093e06cdp-10, 0x1.4662c0bb7e2f3p-8);
  const double far = (x - 0.5) * (logarithm - 1.0) + fma(w, inverse, 0x1.d67f1c864beb5p-1 - 0.5);
  return big ? (x < infinity<double>() ? far : x) : near;
}

/// log |Gamma(x)|; infinity at 0 and the negative integers. Below 0 by reflection, log(pi / |x sin(pi x)|) - log
/// Gamma(-x): there the error is relative to these terms.
REEL_SCALAR double lgamma(double x) {
  const double a = abs(x);
  const double positive = lgamma_of_positive(a);
  const PiAngle angle(a);
  const double reflected = 0x1.250d048e7a1bdp+0 - log(a * abs(angle.sine)) - positive;
  const bool pole = angle.sine == 0.0 || a == infinity<double>();  // a >= 2^52 is an integer
  const double negative = pole ? infinity<double>() : (a < 1e-20 ? positive : reflected);
  return x < 0.0 ? negative : (x == 0.0 ? infinity<double>() : positive);
}
REEL_SCALAR float lgamma(float x) { return static_cast<float>(lgamma(static_cast<double>(x))); }

/// The derivative of log Gamma for x > 0, with relative accuracy at its zero. `low` is what x lost in rounding.
REEL_SCALAR double digamma_of_positive(double x, double low) {
  const bool big = x >= 8.0;
  const bool small = x < 1.0;
  // psi(x) = psi(z) + the sum of 1 / (x - k), gathered as one fraction, z in [1, 3); or psi(x) = psi(x + 1) - 1 / x.
  double z = small ? x + 1.0 : x;
  double numerator = small ? -1.0 : 0.0, denominator = small ? x : 1.0;
  REEL_UNROLL
  for (int step = 0; step < 5; ++step) {
    const bool down = z >= 3.0;
    z = down ? z - 1.0 : z;
    numerator = down ? fma(numerator, z, denominator) : numerator;
    denominator = down ? denominator * z : denominator;
  }
  // psi(z) / (z - z0), z0 its zero, degree 28, error 2^-54.8.
  const double p = polynomial(
      z - 2.0, 0x1.9213d46736ba4p-1, -0x1.0aff270ca07a6p-2, 0x1.be76b26db7f7cp-4, -0x1.95ec0c3baa9e9p-5,
      0x1.802924f9b03e6p-6, -0x1.7389aa7f771d1p-7, 0x1.6bdf5e16cf1a6p-8, -0x1.6714d043a0a65p-9, 0x1.640760dad19d8p-10,
      -0x1.620ef420728cap-11, 0x1.60c66c9877677p-12, -0x1.5ff1374795f0fp-13, 0x1.5f64ac5b498c5p-14,
      -0x1.5edf3d0fe2e74p-15, 0x1.5e91348722687p-16, -0x1.6073bc78b40e9p-17, 0x1.60ee6f1bab109p-18,
      -0x1.4dee073ccac3bp-19, 0x1.49fdb5b29f3d1p-20, -0x1.c6470f9aff96bp-21, 0x1.d87d61380d5cfp-22,
      0x1.9f196fc83c37ap-25, -0x1.456611fc57c4cp-25, -0x1.a4220d714312cp-23, 0x1.c35c6caeca69cp-24,
      0x1.023bcf9a0bb02p-24, -0x1.15c89058a1530p-25, -0x1.42c13d732a8e1p-26, 0x1.4db530fc390c5p-27);
  const double distance = (z - 0x1.762d86356be3fp+0) - (0x1.b86a722197829p-54 - low);
  const double near = fma(distance, p, numerator / denominator);
  // log x - 1 / (2 x) - D(1 / x^2) / x^2, degree 7, error 2^-71.
  const double inverse = 1.0 / x;
  const double y = inverse * inverse;
  const double d =
      polynomial(y, 0x1.5555555555555p-4, -0x1.111111110fa48p-7, 0x1.041040fbe4616p-8, -0x1.111105c8e7612p-8,
                 0x1.f0737d861a829p-8, -0x1.589d5087df95bp-6, 0x1.44d0d04b7cb8cp-4, -0x1.2648a4da80fe5p-2);
  const double far = log(x) - fma(d, y, 0.5 * inverse);
  return big ? far : near;
}

/// Below 0 by reflection, psi(x) = psi(1 - x) - pi / tan(pi x): NaN at the negative integers, -+infinity at +-0.
REEL_SCALAR double digamma(double x) {
  const double mirrored = 1.0 - x;
  const bool left = x < 0.0;
  const double positive = digamma_of_positive(left ? mirrored : x, left ? (1.0 - mirrored) - x : 0.0);
  const PiAngle angle(x);
  constexpr double pi = 0x1.921fb54442d18p+1, pi_low = 0x1.1a62633145c07p-53;
  const double cotangent = angle.cosine / angle.sine, term = pi * cotangent;
  const double lost =
      fma(cotangent, pi_low, product_tail(pi, cotangent, term)) - pi * fma(cotangent, cotangent, 1.0) * angle.rest;
  const double reflected = (positive - (abs(cotangent) < 1e100 ? lost : 0.0)) - term;
  const double negative = angle.sine == 0.0 || x == -infinity<double>() ? quiet_nan<double>() : reflected;
  return x == 0.0 ? copysign(infinity<double>(), -x) : (left ? negative : positive);
}
REEL_SCALAR float digamma(float x) { return static_cast<float>(digamma(static_cast<double>(x))); }

/// The second derivative of log Gamma, for the gradient of digamma: steps up to z >= 8, then 1 / z + 1 / (2 z^2) + T(1
/// / z^2) / z^3, degree 7, error 2^-65; below 0 by reflection.
REEL_SCALAR double trigamma(double x) {
  double z = x < 0.0 ? 1.0 - x : x, sum = 0.0;
  REEL_UNROLL
  for (int step = 0; step < 8; ++step) {
    const bool up = z < 8.0;
    sum += up ? 1.0 / (z * z) : 0.0;
    z = up ? z + 1.0 : z;
  }
  const double inverse = 1.0 / z;
  const double y = inverse * inverse;
  const double t =
      polynomial(y, 0x1.5555555555552p-3, -0x1.111111110a5e5p-5, 0x1.86186160e9673p-6, -0x1.1110f7e95dafcp-5,
                 0x1.364413980cf84p-4, -0x1.022100e83ae70p-2, 0x1.18ab428b1ed20p+0, -0x1.1704a3497aec2p+2);
  const double positive = sum + fma(fma(t, inverse, 0.5), y, inverse);
  const double sine = PiAngle(x).sine;
  constexpr double pi_squared = 9.8696044010893586;
  return x < 0.0 ? pi_squared / (sine * sine) - positive : positive;
}
REEL_SCALAR float trigamma(float x) { return static_cast<float>(trigamma(static_cast<double>(x))); }

}  // namespace reel::scalar
