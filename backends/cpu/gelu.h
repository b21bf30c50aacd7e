#pragma once

#include "reel/backends/cpu/long_formula.h"
#include "reel/core/scalar/normal.h"

namespace reel::cpu::REEL_CPU_ISA {

#if defined(__AVX2__)
/// x Phi(x) in f32, at most 2 ULP, and its derivative. As in scalar::gelu the left tail is exp(-a^2 / 2) times a slow function
/// of a = |x|; but here that is one of a few polynomials, whose coefficients each lane picks from registers: far fewer steps
/// than a quotient whose rounding errors must be set right. With AVX-512 they are eight: their intervals of a end where
/// a + 1.0625 has its next exponent or half of one, at 0.4375, 0.9375, 1.9375, 2.9375, 4.9375, 6.9375, 10.9375. With AVX2 they
/// are four, with two powers more, for a choice among four is the cheaper by more than that: they end where a + 1.1875 has its
/// next exponent, at 0.8125, 2.8125, 6.8125. The columns below stand in the order of the bits that tell these sums apart.
class Gelu {
  using V = Vec<float>;

 public:
  REEL_INLINE static V value(V x) {
    const Exponential e(x);
    const V v = e.a - pick(kTail[0], e.interval), value{V::R::min(pick(kTail[1], e.interval).raw, e.a.raw)};
    const V p = fma(polynomial<2>(kTail, v, e.interval), v, value);
    return fma(fma(p, e.y, p) * e.power, V::broadcast(-0x1p-65f), relu(x));
  }

  REEL_INLINE static V derivative(V x) {
    const Exponential e(x);
    const V v = e.a - pick(kSlope[0], e.interval);
    const V p = fma(polynomial<2>(kSlope, v, e.interval), v, pick(kSlope[1], e.interval));
    const LaneBits bits = bits_of(x);  // negative where x is
    const V factor{bits < 0 ? V::broadcast(0x1p-64f).raw : V::broadcast(-0x1p-64f).raw};
    const V limit{bits < 0 ? V::broadcast(-0.0f).raw : V::broadcast(1).raw};  // keeps a tail's sign where it underflows
    return fma(fma(p, e.y, p) * e.power, factor, limit);
  }

 private:
#if defined(REEL_SIMD_AVX512)
  static constexpr int kIntervals = 8;
  REEL_INLINE static LaneBits interval_of(V a) { return bits_of(a + V::broadcast(1.0625f)) >> 22; }
#else
  static constexpr int kIntervals = 4;
  REEL_INLINE static LaneBits interval_of(V a) { return index_of_four(bits_of(a + V::broadcast(1.1875f)) >> 21); }
#endif

  /// exp(-a^2 / 2) = (1 + y) power 2^-64, step by step as in scalar::NormalExponential, for a = |x|, or 14.75 if that is less:
  /// what lies beyond is 0. NaN stays.
  struct Exponential {
    V a, y, power;
    LaneBits interval;

    REEL_INLINE explicit Exponential(V x) {
      const V limit = V::broadcast(14.75f), magnitude = from_bits(bits_of(x) & 0x7fffffff);
      a = {V::R::min(limit.raw, magnitude.raw)};
      interval = interval_of(a);
      constexpr float shift = scalar::Format<float>::kRound + 127 + 64;
      const V shifted = fma(a * a, V::broadcast(-0.72134752f), V::broadcast(shift)), n = shifted - V::broadcast(shift);
      const V high = fma(a, a, n * V::broadcast(2 * scalar::ln2_high<float>()));
      const V z = fma(n, V::broadcast(2 * scalar::ln2_low<float>()), high);
      V q = fma(V::broadcast(0.0000217747141f), z, V::broadcast(-0.00026153025f));
      q = fma(q, z, V::broadcast(0.00260415350f));
      q = fma(q, z, V::broadcast(-0.0208331475f));
      q = fma(q, z, V::broadcast(0.125f));
      if constexpr (kIntervals == 8) y = z * fma(q, z, V::broadcast(-0.5f));
      else y = fma(z * z, q, V::broadcast(-0.5f) * z);  // four intervals leave less room for rounding
      power = from_bits(bits_of(shifted) << scalar::Format<float>::kMantissa);
    }
  };

  template <int begin, int rows>
  REEL_INLINE static V polynomial(const float (&table)[rows][kIntervals], V v, LaneBits interval) {
    V sum = pick(table[rows - 1], interval);
    for (int k = rows - 2; k >= begin; --k) sum = fma(sum, v, pick(table[k], interval));
    return sum;
  }

  /// kTail: twice a exp(a^2 / 2) Phi(-a): the center of an interval, the value there, which is a float to 2^-30, and the powers
  /// of v = a - center, error 2^-26.4 of the value, 2^-25.4 with four intervals. Around 0 the value is a itself, which comes last
  /// and without rounding: a is less than what stands there, and elsewhere it is more.
  /// kSlope: exp(a^2 / 2) Phi(-a) - a / sqrt(2 pi), error 2^-25.3 of the value or of 1/2, if that is more.
#if defined(REEL_SIMD_AVX512)
  alignas(32) static constexpr float kTail[][kIntervals] = {
      {1.4471f, 2.4862f, 3.9086f, 5.9822f, 8.9049f, 12.836726f, 0.0f, 0.7028f},
      {0.60968167f, 0.7058989f, 0.75355196f, 0.7772381f, 0.7881812f, 0.7931281f, 1.0f, 0.4338068f},
      {0.14896429f, 0.055232007f, 0.019514905f, 0.006413684f, 0.0021033757f, 0.00072812417f, 0.0f, 0.36138117f},
      {-0.08042018f, -0.023326792f, -0.0061947876f, -0.0014625215f, -0.0003382122f, -8.3123065e-05f, -0.7978843f,
       -0.23708844f},
      {0.035691407f, 0.008284561f, 0.001686688f, 0.00029050294f, 4.782312e-05f, 8.387781e-06f, 0.4999877f, 0.125149f},
      {-0.013884714f, -0.0026257331f, -0.00041571842f, -5.3022468e-05f, -6.2494832e-06f, -7.8845505e-07f, -0.26577753f,
       -0.05703754f},
      {0.0048896982f, 0.0007627119f, 9.583826e-05f, 9.102147e-06f, 7.792977e-07f, 7.0959764e-08f, 0.123720504f,
       0.02325443f},
      {-0.0016654284f, -0.00021378131f, -2.259207e-05f, -1.5731152e-06f, -1.0403688e-07f, -6.484345e-09f, -0.048588626f,
       -0.008787041f},
      {0.00052776886f, 6.117529e-05f, 4.5589986e-06f, 2.6766284e-07f, 1.2031281e-08f, 5.2496796e-10f, 0.012228853f,
       0.0032016428f},
  };
  alignas(32) static constexpr float kSlope[][kIntervals] = {
      {1.4576f, 2.43575f, 4.0188f, 5.8876f, 8.8223f, 12.785016f, 0.0f, 0.7087f},
      {-0.37182587f, -0.82740426f, -1.5092573f, -2.2828588f, -3.4749286f, -5.069467f, 0.5f, 0.024826214f},
      {-0.49226624f, -0.4463586f, -0.4200699f, -0.40957558f, -0.40388206f, -0.40133947f, -0.7978844f, -0.5799192f},
      {0.036822256f, 0.014412623f, 0.0045526023f, 0.0016745924f, 0.0005400573f, 0.00018419708f, 0.24999335f,
       0.08964915f},
      {-0.013211782f, -0.0041028853f, -0.0009435551f, -0.00025784827f, -5.828082e-05f, -1.4059055e-05f, -0.13288416f,
       -0.03914475f},
      {0.004381438f, 0.0011036166f, 0.00018771684f, 3.892933e-05f, 6.2438903e-06f, 1.0689006e-06f, 0.061840624f,
       0.015474728f},
      {-0.0014117116f, -0.00028950316f, -3.8671453e-05f, -5.995076e-06f, -7.1230085e-07f, -8.557438e-08f, -0.024255374f,
       -0.0057106195f},
      {0.00043290821f, 7.223749e-05f, 8.468851e-06f, 8.499932e-07f, 7.165124e-08f, 6.304965e-09f, 0.0060852403f,
       0.00195558f},
  };
#else
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
#endif
};
#endif

/// y[i] = gelu(x[i]), and dx[i] = dy[i] gelu'(x[i]). y may be x, dx may be x or dy; past the caches only where kGeluStreams.
REEL_INLINE void run_gelu(std::int64_t count, const float* x, float* y, [[maybe_unused]] bool past_caches = false) {
#if defined(__AVX2__)
  long_formula_of_vectors(count, x, x, y, past_caches, [](Vec<float> x_i, Vec<float>) { return Gelu::value(x_i); });
#else
  long_formula(
      count, x, x, y, [](float x_i, float) __attribute__((always_inline)) { return scalar::gelu(x_i); });
#endif
}
REEL_INLINE void run_gelu_backward(std::int64_t count, const float* x, const float* dy, float* dx,
                                   [[maybe_unused]] bool past_caches = false) {
#if defined(__AVX2__)
  long_formula_of_vectors(count, x, dy, dx, past_caches,
                          [](Vec<float> x_i, Vec<float> dy_i) { return dy_i * Gelu::derivative(x_i); });
#else
  long_formula(
      count, x, dy, dx,
      [](float x_i, float dy_i) __attribute__((always_inline)) { return dy_i * scalar::gelu_derivative(x_i); });
#endif
}

}  // namespace reel::cpu::REEL_CPU_ISA
