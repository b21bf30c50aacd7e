#pragma once

#include "reel/backends/cpu/long_formula.h"
#include "reel/core/scalar/normal.h"

namespace reel::cpu::REEL_CPU_ISA {

#if defined(__AVX2__) && !defined(REEL_SIMD_AVX512)
/// exp(-a^2 / 2) = (1 + y) power 2^-64, step by step as in scalar::NormalExponential, for a = |x|, or 14.75 if that is less: what
/// lies beyond is 0. NaN stays.
struct NormalExponential {
  using V = Vec<float>;
  V a, y, power;

  REEL_INLINE explicit NormalExponential(V x) {
    const V limit = V::broadcast(14.75f), magnitude = from_bits(bits_of(x) & 0x7fffffff);
    a = {V::R::min(limit.raw, magnitude.raw)};
    constexpr float shift = scalar::Format<float>::kRound + 127 + 64;
    const V shifted = fma(a * a, V::broadcast(-0.72134752f), V::broadcast(shift)), n = shifted - V::broadcast(shift);
    const V high = fma(a, a, n * V::broadcast(2 * scalar::ln2_high<float>()));
    const V z = fma(n, V::broadcast(2 * scalar::ln2_low<float>()), high);
    V q = fma(V::broadcast(0.0000217747141f), z, V::broadcast(-0.00026153025f));
    q = fma(q, z, V::broadcast(0.00260415350f));
    q = fma(q, z, V::broadcast(-0.0208331475f));
    q = fma(q, z, V::broadcast(0.125f));
    y = fma(z * z, q, V::broadcast(-0.5f) * z);
    power = from_bits(bits_of(shifted) << scalar::Format<float>::kMantissa);
  }
};

/// x Phi(x) in f32, at most 2 ULP, and its derivative. As in scalar::gelu the left tail is exp(-a^2 / 2) times a slow function
/// of a = |x|; but here that is one of four polynomials, whose coefficients each lane picks from a register: far fewer steps
/// than a quotient whose rounding errors must be set right. Their intervals of a end where a + 1.1875 has its next exponent, at
/// 0.8125, 2.8125, 6.8125. The columns below stand in the order of the bits that tell these sums apart.
class Gelu {
  using V = Vec<float>;

 public:
  REEL_INLINE static V value(V x) {
    const NormalExponential e(x);
    const LaneBits interval = interval_of(e.a);
    const V v = e.a - pick(kTail[0], interval), value{V::R::min(pick(kTail[1], interval).raw, e.a.raw)};
    const V p = fma(polynomial<2>(kTail, v, interval), v, value);
    return fma(fma(p, e.y, p) * e.power, V::broadcast(-0x1p-65f), relu(x));
  }

  REEL_INLINE static V derivative(V x) {
    const NormalExponential e(x);
    const LaneBits interval = interval_of(e.a);
    const V v = e.a - pick(kSlope[0], interval);
    const V p = fma(polynomial<2>(kSlope, v, interval), v, pick(kSlope[1], interval));
    const LaneBits bits = bits_of(x);  // negative where x is
    const V factor{bits < 0 ? V::broadcast(0x1p-64f).raw : V::broadcast(-0x1p-64f).raw};
    const V limit{bits < 0 ? V::broadcast(-0.0f).raw : V::broadcast(1).raw};  // keeps a tail's sign where it underflows
    return fma(fma(p, e.y, p) * e.power, factor, limit);
  }

 private:
  static constexpr int kIntervals = 4;
  REEL_INLINE static LaneBits interval_of(V a) { return index_of_four(bits_of(a + V::broadcast(1.1875f)) >> 21); }

  template <int begin, int rows>
  REEL_INLINE static V polynomial(const float (&table)[rows][kIntervals], V v, LaneBits interval) {
    V sum = pick(table[rows - 1], interval);
    for (int k = rows - 2; k >= begin; --k) sum = fma(sum, v, pick(table[k], interval));
    return sum;
  }

  /// kTail: twice a exp(a^2 / 2) Phi(-a): the center of an interval, the value there, which is a float to 2^-30, and the powers
  /// of v = a - center, error 2^-25.4 of the value. Around 0 the value is a itself, which comes last and without rounding: a is
  /// less than what stands there, and elsewhere it is more.
  /// kSlope: exp(a^2 / 2) Phi(-a) - a / sqrt(2 pi), error 2^-25.3 of the value or of 1/2, if that is more.
  alignas(16) static constexpr float kTail[][kIntervals] = {
      {1.7279244f, 4.9851875f, 10.537834f, 0.0f},
      {0.6458842f, 0.7690387f, 0.79088527f, 1.0f},
      {0.11114683f, 0.010462673f, 0.0012946023f, 0.0f},
      {-0.055973366f, -0.0027667966f, -0.00017811426f, -0.7978845f},
      {0.023334546f, 0.0006332547f, 2.1614873e-05f, 0.4999983f},
      {-0.008580966f, -0.00013284356f, -2.4469805e-06f, -0.26593667f},
      {0.0028667063f, 2.6402056e-05f, 2.617157e-07f, 0.124827445f},
      {-0.0008802527f, -4.7582807e-06f, -2.5712016e-08f, -0.052528113f},
      {0.00026169114f, 7.3556913e-07f, 2.7476093e-09f, 0.019316487f},
      {-8.248901e-05f, -1.9012327e-07f, -3.8231995e-10f, -0.0054996293f},
      {1.8510766e-05f, 4.7405994e-08f, 3.1628797e-11f, 0.00086385524f},
  };
  alignas(16) static constexpr float kSlope[][kIntervals] = {
      {1.73516846f, 4.93286133f, 10.5927734f, 0.0f},
      {-0.505885184f, -1.89003265f, -4.1885705f, 0.5f},
      {-0.474541217f, -0.413642764f, -0.402406603f, -0.797884524f},
      {0.0275849588f, 0.00268913782f, 0.000318798935f, 0.249998599f},
      {-0.0092465682f, -0.000478243863f, -2.91301567e-05f, -0.13296251f},
      {0.00288530556f, 8.31623547e-05f, 2.63892525e-06f, 0.0623839647f},
      {-0.00084112765f, -1.37848265e-05f, -2.29877571e-07f, -0.0261820909f},
      {0.000236698063f, 2.08813549e-06f, 2.05346353e-08f, 0.00953375921f},
      {-7.13755871e-05f, -4.47827631e-07f, -2.45547671e-09f, -0.00265175384f},
      {1.64282155e-05f, 9.80867085e-08f, 2.10731821e-10f, 0.000400654448f},
  };
};
#endif

}  // namespace reel::cpu::REEL_CPU_ISA
