#pragma once

#include "reel/backends/cpu/long_formula.h"
#include "reel/core/scalar/unary.h"

/// Activation functions and their like, and derivatives, in f32 by polynomials, with AVX-512: no exponential, no quotient, 30
/// instructions for a vector.
namespace reel::cpu::REEL_CPU_ISA {

#if defined(REEL_SIMD_AVX512)
/// What y is made of, of a table's value P.
enum class Makes : std::uint8_t {
  value,    // P
  product,  // factor P
  odd,      // x (P + rest), x no larger in size than the limit and y than 1
  larger,   // P, or x where it is the larger one
  smaller,  // P, or x where it is the smaller one
};

/// 32 polynomials, of which each lane picks one, whose coefficients two registers hold. An interval's column is told by five bits
/// of x scale + shift, from the `drop`th on: those are the last ones of a whole number where `shift` is so large that the sum is
/// one, else the exponent and eighths of one.
struct Piecewise {
  int degree;
  float low, high;  // the x that it knows
  float limit;      // of these all that are larger in size have what is there
  float scale, shift;
  float rest;  // what a float lacks of P at 0
  int drop;
};
inline constexpr int kLeastDegree = 6;
/// The center of an interval, the value there, which is a float to 2^-30, and the powers of x - center.
using Powers = float[32];
template <int degree>
struct PiecewiseTable {
  static_assert(degree == kLeastDegree || degree == kLeastDegree + 1);
  Piecewise function;
  alignas(64) Powers powers[degree + 2];
};

/// P(x); x is no larger in size than the table's limit.
template <int degree>
REEL_INLINE Vec<float> value_of(const PiecewiseTable<degree>& table, Vec<float> x) {
  const auto all = [](float value) { return Vec<float>::broadcast(value); };
  const LaneBits interval =
      bits_of(fma(x, all(table.function.scale), all(table.function.shift))) >> table.function.drop;
  const Vec<float> v = x - pick(table.powers[0], interval);
  Vec<float> sum = pick(table.powers[degree + 1], interval);
#pragma GCC unroll 8
  for (int k = degree; k >= 1; --k) sum = fma(sum, v, pick(table.powers[k], interval));
  return sum;
}

/// What lies beyond a table, of some hundred elements: it is put together, so that the formula has whole vectors of it.
class FarLanes {
  using V = Vec<float>;

 public:
  static constexpr int64_t kMost = 512;

  /// Takes those of x and factor, [count], that are not within [low, high].
  __attribute__((noinline)) void take(const float* x, const float* factor, int64_t count, V low, V high) {
    all_ = count;
    const __m512i lanes = _mm512_set_epi32(15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0);
    for (int64_t i = 0; i < count; i += V::width) {
      const auto there = V::first(min<int64_t>(V::width, count - i));
      const V x_i = V::load(x + i, there);
      const auto far = static_cast<__mmask16>(there & ~known(0xffff, x_i, low, high));
      const __m512i places = _mm512_add_epi32(lanes, _mm512_set1_epi32(static_cast<std::int32_t>(i)));
      _mm512_storeu_ps(x_ + count_, _mm512_maskz_compress_ps(far, x_i.raw));
      _mm512_storeu_ps(factor_ + count_, _mm512_maskz_compress_ps(far, V::load(factor + i, there).raw));
      _mm512_storeu_si512(places_ + count_, _mm512_maskz_compress_epi32(far, places));
      count_ += __builtin_popcount(far);
    }
  }
  /// y of those, for y of the first element.
  __attribute__((noinline)) void write(float* y, Run formula) {
    if (count_ == all_) {
      formula(x_, factor_, y, count_);
      return;
    }
    float values[kMost];
    formula(x_, factor_, values, count_);
    for (int64_t i = 0; i < count_; ++i) y[places_[i]] = values[i];
  }

  /// Those of `lanes` where x is within [low, high].
  REEL_INLINE static __mmask16 known(__mmask16 lanes, V x, V low, V high) {
    return _mm512_mask_cmp_ps_mask(_mm512_mask_cmp_ps_mask(lanes, x.raw, low.raw, _CMP_GE_OQ), x.raw, high.raw,
                                   _CMP_LE_OQ);
  }
  /// Whether one of x, [count], is not within [low, high].
  __attribute__((noinline)) static bool are_among(const float* x, int64_t count, V low, V high) {
    __mmask16 all = 0xffff;
    int64_t i = 0;
    for (; i + V::width <= count; i += V::width) {
      __builtin_prefetch(x + i + kMost);
      all &= known(0xffff, V::load(x + i), low, high);
    }
    if (i < count) {
      const auto there = V::first(count - i);
      all &= static_cast<__mmask16>(known(0xffff, V::load(x + i, there), low, high) | ~there);
    }
    return all != 0xffff;
  }

 private:
  int64_t count_ = 0, all_ = 0;
  float x_[kMost + V::width], factor_[kMost + V::width];
  std::int32_t places_[kMost + V::width];
};

/// y[i] of P(x[i]) and factor[i], which may be x. y may be one of the two. formula(x, factor, y, count) is for x that the table
/// does not know. With `past_caches` y goes there.
__attribute__((noinline)) inline void run_piecewise(Makes makes, const Piecewise& function, const Powers* powers,
                                                    const float* x, const float* factor, float* y, int64_t count,
                                                    bool past_caches, Run formula) {
  using V = Vec<float>;
  const auto all = [](float value) { return V::broadcast(value); };
  const V low = all(function.low), high = all(function.high), limit = all(function.limit);
  const V scale = all(function.scale), shift = all(function.shift), one = all(1), rest_of_sum = all(function.rest);
  const LaneBits drop = LaneBits{} + function.drop;
  const int degree = function.degree;
  constexpr int together = 4;
  using Some = V[together];
  // While a block is computed the next one is looked through, if that is a whole one: on its own, that took a third of the time.
  int64_t ahead = 0;
  __mmask16 known_ahead = 0xffff;
  const auto value = [&](const float* x_i, const float* factor_i, Some& y_i) __attribute__((always_inline)) {
    const Powers* rows = powers;
    asm volatile("" : "+r"(rows));  // or each row's address is kept in a register of its own
    LaneBits interval[together];
    Some in, v, sum;
#pragma GCC unroll 4
    for (int i = 0; i < together; ++i) {
      in[i] = V::load(x_i + i * V::width);
      const V near = smaller_magnitude(in[i], limit);
      // (A shift by one count for all would take two steps, one of them where `pick` takes its.)
      interval[i] = LaneBits(_mm512_maskz_srav_epi32(0xffff, __m512i(bits_of(fma(near, scale, shift))), __m512i(drop)));
      v[i] = near - pick(rows[0], interval[i]);
      sum[i] = pick(rows[kLeastDegree + 1], interval[i]);
      known_ahead = FarLanes::known(known_ahead, V::load(x_i + ahead + i * V::width), low, high);
    }
    if (degree > kLeastDegree) {
#pragma GCC unroll 4
      for (int i = 0; i < together; ++i) sum[i] = fma(pick(rows[kLeastDegree + 2], interval[i]), v[i], sum[i]);
    }
#pragma GCC unroll 8
    for (int k = kLeastDegree; k >= 1; --k) {
#pragma GCC unroll 4
      for (int i = 0; i < together; ++i) sum[i] = fma(sum[i], v[i], pick(rows[k], interval[i]));
    }
#pragma GCC unroll 4
    for (int i = 0; i < together; ++i) y_i[i] = sum[i];
    if (makes == Makes::product) {
#pragma GCC unroll 4
      for (int i = 0; i < together; ++i) y_i[i] = V::load(factor_i + i * V::width) * sum[i];
    } else if (makes == Makes::odd) {
#pragma GCC unroll 4
      for (int i = 0; i < together; ++i) {
        const V near = smaller_magnitude(in[i], limit);
        y_i[i] = smaller_magnitude(fma(near, sum[i], near * rest_of_sum), one);
      }
    } else if (makes == Makes::larger) {
#pragma GCC unroll 4
      for (int i = 0; i < together; ++i) y_i[i] = {V::R::max(sum[i].raw, in[i].raw)};
    } else if (makes == Makes::smaller) {
#pragma GCC unroll 4
      for (int i = 0; i < together; ++i) y_i[i] = {V::R::min(sum[i].raw, in[i].raw)};
    }
  };
  bool some_are_far = FarLanes::are_among(x, min(FarLanes::kMost, count), low, high);
  for (int64_t begin = 0; begin < count; begin += FarLanes::kMost) {
    const int64_t n = min(FarLanes::kMost, count - begin), rest = count - begin - n;
    FarLanes far;
    if (some_are_far) far.take(x + begin, factor + begin, n, low, high);
    ahead = rest < FarLanes::kMost ? 0 : FarLanes::kMost;  // 0: looks at what it computes, in vain
    known_ahead = 0xffff;
    long_formula_of_vectors<together>(n, x + begin, factor + begin, y + begin, past_caches, value);
    if (some_are_far) far.write(y + begin, formula);
    some_are_far = ahead ? known_ahead != 0xffff : rest > 0 && FarLanes::are_among(x + begin + n, rest, low, high);
  }
}
#endif

}  // namespace reel::cpu::REEL_CPU_ISA
