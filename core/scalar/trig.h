#pragma once

#include "reel/core/scalar/arithmetic.h"

namespace reel::scalar {

/// sin(r + rest) for |r| <= pi / 4 and a rest below an ULP of r: r + rest + r^3 p(r^2). f32: degree 2, error 2^-27.9. f64: degree 5,
/// 2^-57.9.
template <class Rule = MachineFma>
REEL_SCALAR float sin_polynomial(float r, float rest = 0.0f) {
  const float z = r * r;
  const float p = polynomial<Rule>(z, -0.16666655f, 0.008332189f, -0.00019518277f);
  return r + Rule::fma(r * z, p, rest);
}
template <class Rule = MachineFma>
REEL_SCALAR double sin_polynomial(double r, double = 0) {
  const double z = r * r;
  const double p = polynomial<Rule>(z, -0x1.5555555555548p-3, 0x1.111111110f759p-7, -0x1.a01a019bf1645p-13,
                                    0x1.71de355e3fb1ap-19, -0x1.ae5e53c5fde0ap-26, 0x1.5d8dff8424dcfp-33);
  return Rule::fma(r * z, p, r);
}

/// cos(r + rest) for |r| <= pi / 4 and a rest below an ULP of r: 1 - r^2 / 2 - r rest + r^4 p(r^2). f32: degree 2, error 2^-33.0.
/// f64: degree 5, 2^-63.9.
template <class Rule = MachineFma>
REEL_SCALAR float cos_polynomial(float r, float rest = 0.0f) {
  const float z = r * r;
  const float p = polynomial<Rule>(z, 0.041666646f, -0.0013887311f, 2.443256e-05f);
  return 1.0f + Rule::fma(z, Rule::fma(z, p, -0.5f), -r * rest);
}
template <class Rule = MachineFma>
REEL_SCALAR double cos_polynomial(double r, double = 0) {
  const double z = r * r;
  const double p = polynomial<Rule>(z, 0x1.555555555554bp-5, -0x1.6c16c16c15014p-10, 0x1.a01a019c8eea6p-16,
                                    -0x1.27e4f7f14d958p-22, 0x1.1ee9db909c3c2p-29, -0x1.8fa65c5368f79p-37);
  return Rule::fma(z, Rule::fma(z, p, -0.5), 1.0);
}

/// x = (quarters + 4 k) pi / 2 + r + rest for some integer k, |r| <= pi / 4 (a little more at the ends).
template <class T>
struct ReducedAngle {
  T r;
  Bits<T> quarters;  // two's complement
  T rest = 0;        // what r lacks, in f32: what it lost in rounding or, with fma, the last part of pi / 2
};

/// x c mod 4, in [-2, 2]; x c is exact, and so is the rest.
REEL_SCALAR double product_mod_4(double x, double c) {
  const double p = x * c;
  return p - 4.0 * round_to_even(0.25 * p);
}

/// |x| <= 12800: the number of quarter turns has 13 bits, and its products with parts of pi / 2 of 11 bits are exact, as are the
/// first two differences; what the next two lose goes to the rest. With fma (of the CPU; on CUDA as without) the parts have 24 bits,
/// the first difference is exact, and the second is rounded. Farther out r may be anything: see reduce_far_angle.
REEL_SCALAR ReducedAngle<float> reduce_angle(float x) {
  const float shifted = fma(x, 0.63661977f, Format<float>::kRound);
  const float n = shifted - Format<float>::kRound;
#if defined(__FMA__)
  const float r = fma(n, 0x1.777a5cp-25f, fma(n, -0x1.921fb6p+0f, x));
  const float rest = n * 0x1.ee59dap-50f;
#else
  const float a = (x - n * 0x1.92p+0f) - n * 0x1.fbp-12f;
  const float third = n * 0x1.51p-22f, fourth = n * 0x1.0bp-34f;
  const float b = a - third;
  const float r = b - fourth;
  const float rest = fma(n, -0x1.184698p-44f, ((a - b) - third) + ((b - r) - fourth));
#endif
  return {r, to_bits(shifted), rest};
}

/// All finite x. 2 / pi is cut into parts of 29 bits, whose products with the 24 bits of x are exact in f64; of each
/// only what is left modulo 4 quarter turns is kept. From the large parts to the small: where the sum cancels, nothing
/// was lost before.
REEL_SCALAR ReducedAngle<float> reduce_far_angle(float angle) {
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
  const double whole = turn * 1.5707963267948966;
  const auto r = static_cast<float>(whole);
  return {r, to_bits(static_cast<float>(quarters) + Format<float>::kRound), static_cast<float>(whole - r)};
}

/// |x| <= 1e8: the number of quarter turns has 26 bits, and its products with parts of pi / 2 of 27 bits are exact; with fma they
/// need not be. Larger x gives NaN: see reduce_far_angle.
REEL_SCALAR ReducedAngle<double> reduce_angle(double x) {
  const double shifted = x * 0.63661977236758134308 + Format<double>::kRound;
  const double n = shifted - Format<double>::kRound;
#if defined(__FMA__)
  const double r = fma(n, 0x1.f1976b7ed8fbcp-110, fma(n, -0x1.1a62633145c07p-54, fma(n, -0x1.921fb54442d18p+0, x)));
#else
  const double first = (x - n * 0x1.921fb54p+0) - n * 0x1.10b46p-30;  // exact
  const double third = -n * 0x1.1a62630p-54;
  const double a = first + third;
  const double fourth = -n * 0x1.8a2e034p-81;
  const double b = a + fourth;
  const double rest = (sum_tail(first, third, a) + sum_tail(a, fourth, b)) - n * 0x1.839a252049c11p-108;
  const double r = b + rest;
#endif
  return {abs(x) <= 1e8 ? r : quiet_nan<double>(), to_bits(shifted)};
}

/// All finite |x| > 2^8, with integers (Payne and Hanek, 1983): of 2 / pi those 192 bits count whose products with x are not
/// multiples of 4 quarter turns. At least 128 bits of the fraction are left, of which x's nearness to a multiple of pi / 2
/// takes at most 62. Not for vectors: a table, 128-bit products.
REEL_SCALAR ReducedAngle<double> reduce_far_angle(double x) {
  using Word = std::uint64_t;
  using Wide = unsigned __int128;
  // 64 zeros, then the bits of 2 / pi. In a GPU's own memory: a thread has no registers to look one up in. On the CPU a static
  // table would be a symbol that instruction sets share.
#if defined(__CUDA_ARCH__)
  static
#endif
      constexpr Word bits_of_two_over_pi[] = {
          0x0000000000000000, 0xa2f9836e4e441529, 0xfc2757d1f534ddc0, 0xdb6295993c439041, 0xfe5163abdebbc561,
          0xb7246e3a424dd2e0, 0x06492eea09d1921c, 0xfe1deb1cb129a73e, 0xe88235f52ebb4484, 0xe99c7026b45f7e41,
          0x3991d639835339f4, 0x9c845f8bbdf9283b, 0x1ff897ffde05980f, 0xef2f118b5a0a6d1f, 0x6d367ecf27cb09b7,
          0x4f463f669e5fea2d, 0x7527bac7ebe5f17b, 0x3d0739f78a5292ea, 0x6bfb5fb11f8d5d08, 0x56033046fc7b6bab};
  const Word bits = to_bits(abs(x));
  const int skipped =
      static_cast<int>(bits >> 52) - 1077 + 64;  // x = m 2^exponent: bits of weight 2^(2 - exponent) and up
  const Word m = (bits & 0xfffffffffffffu) | 0x10000000000000u;
  const Word* from = bits_of_two_over_pi + skipped / 64;
  const int shift = skipped % 64;
  const auto word = [=](int i) { return from[i] << shift | (from[i + 1] >> 1) >> (63 - shift); };
  const Wide low = static_cast<Wide>(m) * word(2);
  const Wide middle = static_cast<Wide>(m) * word(1) + static_cast<Word>(low >> 64);
  const Word high = m * word(0) + static_cast<Word>(middle >> 64);
  // Two bits of quarters, then the fraction, from 1/2 on as that of the next quarter: a signed number.
  const Wide fraction =
      static_cast<Wide>(high) << 66 | static_cast<Wide>(static_cast<Word>(middle)) << 2 | static_cast<Word>(low) >> 62;
  const bool next = fraction >> 127 != 0;
  const Wide size = next ? -fraction : fraction;
  const double turn = static_cast<double>(static_cast<Word>(size >> 64)) * 0x1p-64 +
                      static_cast<double>(static_cast<Word>(size)) * 0x1p-128;
  const double r = turn * 1.5707963267948966;
  const Word quarters = (high >> 62) + (next ? 1 : 0);
  const bool flips = next != (x < 0.0);
  return {abs(x) < infinity<double>() ? (flips ? -r : r) : quiet_nan<double>(), x < 0.0 ? -quarters : quarters};
}

/// Up to where reduce_angle serves.
template <class T>
inline constexpr T kNearAngle = sizeof(T) == 4 ? T(12800) : T(1e8);

/// The sine of x, of which `angle` is made, and `more` quarter turns.
template <class T>
REEL_SCALAR T sine_of(T x, ReducedAngle<T> angle, Bits<T> more) {
  constexpr T small = sizeof(T) == 4 ? T(1e-4) : T(1e-8);
  constexpr int to_sign = 8 * sizeof(T) - 2;
  const Bits<T> quarters = angle.quarters + more;
  const T s = sin_polynomial(angle.r, angle.rest);
  const T c = cos_polynomial(angle.r, angle.rest);
  const T y = from_bits<T>(to_bits((quarters & 1) != 0 ? c : s) ^ ((quarters & 2) << to_sign));
  const bool itself = (abs(x) < small) & ((more & 1) == 0);  // keeps denormals and the sign of zero
  return itself ? from_bits<T>(to_bits(x) ^ ((more & 2) << to_sign)) : y;
}

/// sin(x + more pi / 2) for all x: a cosine is one quarter turn more, and so is a derivative.
struct Sine {
  template <class T>
  REEL_SCALAR static T of(T x, Bits<T> more) {
    return sine_of(x, abs(x) > kNearAngle<T> ? reduce_far_angle(x) : reduce_angle(x), more);
  }
};
/// The same bits for |x| <= kNearAngle, in a few instructions.
struct NearSine {
  template <class T>
  REEL_SCALAR static T of(T x, Bits<T> more) {
    return sine_of(x, reduce_angle(x), more);
  }
};

}  // namespace reel::scalar
