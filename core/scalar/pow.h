#pragma once

#include "reel/core/scalar/normal.h"

/// Powers. The error of a logarithm is that of the power times the exponent, up to 745: so f32 takes the logarithm in f64,
/// and f64 in two parts.
namespace reel::scalar {

/// log(a) in two parts, error 2^-63 of it, for a > 0. With s = (m - 1) / (m + 1) and z = s^2 it is
/// log(m 2^k) = k ln 2 + 2 s (1 + z (1/3 + z q(z))); q of degree 7, error 2^-70 of the logarithm.
REEL_SCALAR TwoPart log_two_part(double a) {
  const Normalized<double> v = normalize(a);
  const double f = v.m - 1.0;  // exact
  const double d = v.m + 1.0, d_low = sum_tail(v.m, 1.0, d);
  const double s = f / d, sd = s * d;
  const double s_low = ((f - sd) - product_tail(s, d, sd) - s * d_low) / d;
  const double z = s * s, z_low = fma(s + s, s_low, product_tail(s, s, z));
  const double q = polynomial(z, 0x1.999999999999ap-3, 0x1.2492492492521p-3, 0x1.c71c71c6eaa10p-4, 0x1.745d177a96056p-4,
                              0x1.3b1395d2190c1p-4, 0x1.1118c7e4b0917p-4, 0x1.df7cc8e5fa539p-5, 0x1.e02e6fff27908p-5);
  constexpr double third = 0x1.5555555555555p-2, third_low = 0x1.5555555555555p-56;
  const double w = z * q;
  const double c = third + w, c_low = ((third - c) + w) + third_low;
  const double p = z * c, p_low = fma(z, c_low, fma(z_low, c, product_tail(z, c, p)));
  const double t = s * p, t_low = fma(s, p_low, fma(s_low, p, product_tail(s, p, t)));
  const double u = s + t, u_low = ((s - u) + t) + (s_low + t_low);
  const double whole = v.k * ln2_high<double>();  // exact
  const double high = whole + 2.0 * u;
  return {high, sum_tail(whole, 2.0 * u, high) + fma(v.k, ln2_low<double>(), 2.0 * u_low)};
}

/// a^y for a > 0, a finite.
REEL_SCALAR double pow_of_positive(double a, double y) {
  // Beyond these it is 0 or infinity all the same, but for a = 1; and nothing below overflows.
  const double b = at_least(at_most(y, 1e22), -1e22);
  const TwoPart exponent = product(b, log_two_part(a));
  const bool far = abs(exponent.high) > 1000.0;  // where the lower part may be large
  return Exponential<double>(exponent.high, far ? 0.0 : exponent.low).times(1.0);
}
REEL_SCALAR float pow_of_positive(float a, float y) {
  const double exponent = at_least(at_most(static_cast<double>(y) * log(static_cast<double>(a)), 200.0), -200.0);
  return static_cast<float>(Exponential<float>(exponent).times(1.0));
}

/// x^y with the special values of C's pow: 1 for x = 1 and for y = 0 even if the other is NaN; a negative x needs an integer y,
/// whose parity is the sign's.
template <class T>
REEL_SCALAR T pow(T x, T y) {
  const T a = abs(x);
  const double wide = static_cast<double>(y), half = 0.5 * wide;
  const bool integer = round_to_even(wide) == wide;  // infinities too
  const bool odd = integer & (round_to_even(half) != half);
  const T of_zero = y < T(0) ? infinity<T>() : T(0), of_infinity = y < T(0) ? T(0) : infinity<T>();
  T power = pow_of_positive(a, y);
  power = a == T(0) ? of_zero : power;
  power = a == infinity<T>() ? of_infinity : power;
  power = a == T(1) ? T(1) : power;
  power = ((x < T(0)) & (a < infinity<T>()) & !integer) ? quiet_nan<T>() : power;
  power = odd ? copysign(power, x) : power;
  power = ((x != x) | (y != y)) ? x + y : power;
  return ((x == T(1)) | (y == T(0))) ? T(1) : power;
}

}  // namespace reel::scalar
