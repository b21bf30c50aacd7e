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

}  // namespace reel::scalar
