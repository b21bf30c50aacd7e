#pragma once

#include "reel/core/scalar/arithmetic.h"

namespace reel::scalar {

/// sin(r) for |r| <= pi / 4: r + r^3 p(r^2). f32: degree 2, error 2^-27.9. f64: degree 5, 2^-57.9.
template <class Rule = MachineFma>
REEL_SCALAR float sin_polynomial(float r) {
  const float z = r * r;
  const float p = polynomial<Rule>(z, -0.16666655f, 0.008332189f, -0.00019518277f);
  return Rule::fma(r * z, p, r);
}
template <class Rule = MachineFma>
REEL_SCALAR double sin_polynomial(double r) {
  const double z = r * r;
  const double p = polynomial<Rule>(z, -0x1.5555555555548p-3, 0x1.111111110f759p-7, -0x1.a01a019bf1645p-13,
                                    0x1.71de355e3fb1ap-19, -0x1.ae5e53c5fde0ap-26, 0x1.5d8dff8424dcfp-33);
  return Rule::fma(r * z, p, r);
}

/// cos(r) for |r| <= pi / 4: 1 - r^2 / 2 + r^4 p(r^2). f32: degree 2, error 2^-33.0. f64: degree 5, 2^-63.9.
template <class Rule = MachineFma>
REEL_SCALAR float cos_polynomial(float r) {
  const float z = r * r;
  const float p = polynomial<Rule>(z, 0.041666646f, -0.0013887311f, 2.443256e-05f);
  return Rule::fma(z, Rule::fma(z, p, -0.5f), 1.0f);
}
template <class Rule = MachineFma>
REEL_SCALAR double cos_polynomial(double r) {
  const double z = r * r;
  const double p = polynomial<Rule>(z, 0x1.555555555554bp-5, -0x1.6c16c16c15014p-10, 0x1.a01a019c8eea6p-16,
                                    -0x1.27e4f7f14d958p-22, 0x1.1ee9db909c3c2p-29, -0x1.8fa65c5368f79p-37);
  return Rule::fma(z, Rule::fma(z, p, -0.5), 1.0);
}

/// x = (quarters + 4 k) pi / 2 + r for some integer k, |r| <= pi / 4 (a little more at the ends).
template <class T>
struct ReducedAngle {
  T r;
  Bits<T> quarters;  // two's complement
};

/// x c mod 4, in [-2, 2]; x c is exact, and so is the rest.
REEL_SCALAR double product_mod_4(double x, double c) {
  const double p = x * c;
  return p - 4.0 * round_to_even(0.25 * p);
}

/// All finite x. 2 / pi is cut into parts of 29 bits, whose products with the 24 bits of x are exact in f64; of each
/// only what is left modulo 4 quarter turns is kept. From the large parts to the small: where the sum cancels, nothing
/// was lost before.
REEL_SCALAR ReducedAngle<float> reduce_angle(float angle) {
  const double x = angle;
  double turn = product_mod_4(x, 0x1.45f306dp-1) + product_mod_4(x, 0x1.9391054p-30);
  double quarters = round_to_even(turn);
  turn = (turn - quarters) + product_mod_4(x, 0x1.4fe13abp-59);
  double more = round_to_even(turn);
  quarters += more;
  turn = (turn - more) + product_mod_4(x, 0x1.d1f534dp-88);
  more = round_to_even(turn);
  quarters += more;
  turn = (turn - more) + product_mod_4(x, 0x1.b81b6c5p-117);
  more = round_to_even(turn);
  quarters += more;
  turn = ((turn - more) + x * 0x1.5993c4p-148) + x * 0x1.c820ff2p-175;
  const double r = turn * 1.5707963267948966;
  return {static_cast<float>(r), to_bits(static_cast<float>(quarters) + Format<float>::kRound)};
}

/// |x| <= 1e8: the number of quarter turns has 26 bits, and its products with parts of pi / 2 of 27 bits are exact.
/// Larger x gives NaN, for nothing would be right of the result.
REEL_SCALAR ReducedAngle<double> reduce_angle(double x) {
  const double shifted = x * 0.63661977236758134308 + Format<double>::kRound;
  const double n = shifted - Format<double>::kRound;
  const double first = (x - n * 0x1.921fb54p+0) - n * 0x1.10b46p-30;  // exact
  const double third = -n * 0x1.1a62630p-54;
  const double a = first + third;
  const double fourth = -n * 0x1.8a2e034p-81;
  const double b = a + fourth;
  const double rest = (sum_tail(first, third, a) + sum_tail(a, fourth, b)) - n * 0x1.839a252049c11p-108;
  return {abs(x) <= 1e8 ? b + rest : quiet_nan<double>(), to_bits(shifted)};
}

/// The sine of `angle` + `more` quarter turns.
template <class T>
REEL_SCALAR T sin_of_quarters(T angle, Bits<T> more) {
  const ReducedAngle<T> reduced = reduce_angle(angle);
  const Bits<T> quarters = reduced.quarters + more;
  const T s = sin_polynomial(reduced.r);
  const T c = cos_polynomial(reduced.r);
  const T y = (quarters & 1) != 0 ? c : s;
  return from_bits<T>(to_bits(y) ^ ((quarters & 2) << (8 * sizeof(T) - 2)));
}

template <class T>
REEL_SCALAR T sin(T x) {
  constexpr T small = sizeof(T) == 4 ? T(1e-4) : T(1e-8);
  const T y = sin_of_quarters(x, 0);
  return abs(x) < small ? x : y;  // keeps denormals and the sign of zero
}

template <class T>
REEL_SCALAR T cos(T x) {
  return sin_of_quarters(x, 1);
}

}  // namespace reel::scalar
