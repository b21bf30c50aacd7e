#pragma once

#include "reel/backends/cpu/long_formula.h"
#include "reel/backends/cpu/piecewise_tables.h"
#include "reel/backends/cpu/vector_loops.h"
#include "reel/core/scalar/unary.h"

/// The exponential and the logarithm in f32 with AVX-512: its instructions for exponents, and tables in registers.
namespace reel::cpu::REEL_CPU_ISA {

#if defined(REEL_SIMD_AVX512)
/// 2^(j / 16).
struct Roots {
  float values[16];
  constexpr Roots() : values() {
    for (std::uint32_t j = 0; j < 16; ++j) values[j] = scalar::from_bits<float>(kPowers[j] + (j << 19));
  }
};

/// e^x; underflow is gradual. x / ln 2 = k / 16 + f, k whole, and the result is 2^(k / 16) (1 + p(f)), as in exp_negative.
REEL_INLINE Vec<float> of_vector(scalar::Exp, Vec<float> x) {
  using V = Vec<float>;
  const V near =
      larger(V::broadcast(-104), V{V::R::min(V::broadcast(89).raw, x.raw)});  // 0 and infinity there; NaN stays
  const auto [shifted, whole, p] = reduce_power(near, kLog2E, kLog2ERest);
  alignas(64) static constexpr Roots roots{};
  const V power{_mm512_maskz_permutexvar_ps(0xffff, __m512i(bits_of(shifted)), _mm512_load_ps(roots.values))};
  return {_mm512_maskz_scalef_ps(0xffff, fma(power, p, power).raw, whole.raw)};  // by 2^floor(k / 16)
}

/// Natural logarithm: -infinity at 0, NaN below. x = m 2^k with 3/4 <= m < 3/2; m lies in one of 32 intervals, and 1 / c and log c
/// of a c in its middle are in tables: log x = k ln 2 + log c + log(1 + r), r = m / c - 1. Next to 1 c is 1.
REEL_INLINE Vec<float> of_vector(scalar::Log, Vec<float> x) {
  using V = Vec<float>;
  constexpr float high = 0x1.62ep-1f, low = 0x1.0bfbe8p-15f;  // ln 2; k times the first part is exact
  const V one = V::broadcast(1);
  const V m{_mm512_maskz_getmant_ps(0xffff, x.raw, _MM_MANT_NORM_p75_1p5, _MM_MANT_SIGN_nan)};
  const V exponent{_mm512_maskz_getexp_ps(0xffff, x.raw)};
  const V k{_mm512_mask_add_ps(exponent.raw, _mm512_cmp_ps_mask(m.raw, one.raw, _CMP_LT_OQ), exponent.raw, one.raw)};
  const LaneBits interval = bits_of(m) >> 18;
  const V r = fma(m, pick(kLogParts[0], interval), -one);
  const V q = fma(fma(r, V::broadcast(kLogTerms[2]), V::broadcast(kLogTerms[1])), r, V::broadcast(kLogTerms[0]));
  const V small = fma(r * r, q, fma(k, V::broadcast(low), r));
  return small + fma(k, V::broadcast(high), pick(kLogParts[1], interval));
}

/// Ops whose formula is written for vectors.
template <class Op, class T>
inline constexpr bool kIsOfVectors = is_one_of<Op, scalar::Exp, scalar::Log>&& std::is_same_v<T, float>;
#else
template <class Op, class T>
inline constexpr bool kIsOfVectors = false;
#endif

/// y[i] = f(x[i]) for them. y may be x.
template <class Op>
REEL_INLINE void run_of_vectors(int64_t count, const float* x, float* y) {
  run_whole_vectors(count, x, x, y, [](const void* from, const void*, void* to, int64_t n) {
    for (int64_t i = 0; i < n; i += Vec<float>::width) {
      __builtin_prefetch(static_cast<const float*>(from) + i + kAhead<float>);
      of_vector(Op{}, Vec<float>::load(static_cast<const float*>(from) + i)).store(static_cast<float*>(to) + i);
    }
  });
}

}  // namespace reel::cpu::REEL_CPU_ISA
