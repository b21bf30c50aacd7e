#pragma once

#include "reel/backends/cpu/long_formula.h"
#include "reel/core/scalar/unary.h"

/// Activation functions and their derivatives in f32 by polynomials, with AVX-512: no exponential, no quotient, 20 instructions.
namespace reel::cpu::REEL_CPU_ISA {

#if defined(REEL_SIMD_AVX512)
/// Of which x a table knows the function.
enum class Sides : std::uint8_t {
  right,  // from `low` on: beyond `last` all is as there
  left,   // up to `high`: beyond `first` all is as there
  both,   // from `low` to `high`
};
/// What y is made of, of a table's value P.
enum class Makes : std::uint8_t {
  product,  // factor P
  bound,    // P, or x where it is the larger one (of a left side: the less)
};

/// 32 polynomials, of which each lane picks one, whose coefficients two registers hold. An interval's column is told by five bits
/// of x scale + shift, from the `drop`th on: those are the last ones of a whole number where `shift` is so large that the sum is
/// one, else the exponent and eighths of one.
template <int rows, Sides sides, Makes makes>
struct Piecewise {
  float low, high, first, last, scale, shift;
  int drop;
  /// The center of an interval, the value there, which is a float to 2^-30, and the powers of x - center.
  alignas(64) float powers[rows][32];
};

/// What lies beyond a table, of some hundred elements: it is put together, so that the formula has whole vectors of it.
class FarLanes {
  using V = Vec<float>;

 public:
  static constexpr int64_t kMost = 512;

  /// Takes those of the next 16 elements that are not `known`.
  REEL_INLINE void next(__mmask16 known, V x, V factor) {
    if (known != 0xffff) add(static_cast<__mmask16>(~known), x, factor);
    place_ += V::width;
  }
  /// y of those, for y of the first element.
  REEL_INLINE void write(float* y, Run formula) {
    if (count_ != 0) write_all(y, formula);
  }

 private:
  __attribute__((noinline)) void add(__mmask16 far, V x, V factor) {
    const __m512i lanes = _mm512_set_epi32(15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0);
    const __m512i places = _mm512_add_epi32(lanes, _mm512_set1_epi32(place_));
    if (far == 0xffff) {
      x.store(x_ + count_);
      factor.store(factor_ + count_);
      _mm512_storeu_si512(places_ + count_, places);
    } else {
      _mm512_storeu_ps(x_ + count_, _mm512_maskz_compress_ps(far, x.raw));
      _mm512_storeu_ps(factor_ + count_, _mm512_maskz_compress_ps(far, factor.raw));
      _mm512_storeu_si512(places_ + count_, _mm512_maskz_compress_epi32(far, places));
    }
    count_ += __builtin_popcount(far);
  }
  __attribute__((noinline)) void write_all(float* y, Run formula) {
    if (count_ == place_) {  // all of them
      formula(x_, factor_, y, count_);
      return;
    }
    float values[kMost];
    formula(x_, factor_, values, count_);
    for (int i = 0; i < count_; ++i) y[places_[i]] = values[i];
  }

  std::int32_t count_ = 0, place_ = 0;
  float x_[kMost + V::width], factor_[kMost + V::width];
  std::int32_t places_[kMost + V::width];
};

/// y[i] of P(x[i]) and factor[i], which may be x. y may be one of the two. formula(x, factor, y, count) is for x that the table does
/// not know. With `past_caches` y goes there.
template <int rows, Sides sides, Makes makes>
__attribute__((noinline)) static void run_piecewise(const Piecewise<rows, sides, makes>& table, const float* x,
                                                    const float* factor, float* y, int64_t count, bool past_caches,
                                                    Run formula) {
  using V = Vec<float>;
  const auto all = [](float value) { return V::broadcast(value); };
  const V low = all(table.low), high = all(table.high), first = all(table.first), last = all(table.last);
  const V scale = all(table.scale), shift = all(table.shift);
  const LaneBits drop = LaneBits{} + table.drop;
  for (int64_t begin = 0; begin < count; begin += FarLanes::kMost) {
    FarLanes far;
    const auto value = [&](V x_i, V factor_i) {
      V near = x_i;
      __mmask16 known = 0xffff;
      if constexpr (sides == Sides::right) near = {V::R::min(last.raw, near.raw)};  // NaN stays
      if constexpr (sides == Sides::left) near = {V::R::max(first.raw, near.raw)};
      if constexpr (sides != Sides::left) known = _mm512_cmp_ps_mask(x_i.raw, low.raw, _CMP_GE_OQ);
      if constexpr (sides != Sides::right) known = _mm512_mask_cmp_ps_mask(known, x_i.raw, high.raw, _CMP_LE_OQ);
      far.next(known, x_i, factor_i);
      const LaneBits interval = bits_of(fma(near, scale, shift)) >> drop;
      const V v = near - pick(table.powers[0], interval);
      V sum = pick(table.powers[rows - 1], interval);
#pragma GCC unroll 8
      for (int k = rows - 2; k >= 1; --k) sum = fma(sum, v, pick(table.powers[k], interval));
      if constexpr (makes == Makes::product) return factor_i * sum;
      return V{sides == Sides::left ? V::R::min(sum.raw, x_i.raw) : V::R::max(sum.raw, x_i.raw)};
    };
    long_formula_of_vectors(min(FarLanes::kMost, count - begin), x + begin, factor + begin, y + begin, past_caches,
                            value);
    far.write(y + begin, formula);
  }
}
#endif

}  // namespace reel::cpu::REEL_CPU_ISA
