#pragma once

#include <cstdint>

#include "reel/backends/cpu/kernel.h"
#include "reel/backends/cpu/simd.h"
#include "reel/core/scalar/exp.h"
#include "reel/core/scalar/log.h"

/// Loops of row and column kernels, whose bodies are written once for whole vectors and for the last, partial one. A body is
/// a lambda f(lanes, i): `lanes` loads and stores the vector that starts at element i.
namespace reel::cpu::REEL_CPU_ISA {

template <class T>
inline constexpr T kInfinity = sizeof(T) == 4 ? T(__builtin_inff()) : T(__builtin_inf());

/// Rows (of a column) or elements (of a row) that are summed before sums are combined pairwise: a column's in plain order, a
/// row's in the lanes of four accumulators, 32 in each.
inline constexpr int64_t kLeafRows = 32;
template <class T>
inline constexpr int64_t kLeafElements = 128 * Vec<T>::width;

/// What a pass over a row asks for ahead: at most 8 KB, so that it is still there when it is read or written. A pass that reads
/// alone asks for a longer row behind it, if that leaves room for this one in the second cache.
inline constexpr int64_t kRowAhead = 8192, kLongRow = 262144;

/// While this row keeps the arithmetic busy, the row after it, of n elements more, comes from memory: to be read, or to be written.
/// Of a longer row what comes next in this one.
template <class T>
REEL_INLINE void prefetch_next_row(const T* p, int64_t n) {
  __builtin_prefetch(reinterpret_cast<const char*>(p) + min(n * static_cast<int64_t>(sizeof(T)), kRowAhead));
}
template <class T>
REEL_INLINE void prefetch_next_row(T* p, int64_t n) {
  __builtin_prefetch(reinterpret_cast<char*>(p) + min(n * static_cast<int64_t>(sizeof(T)), kRowAhead), 1);
}
template <class T>
REEL_INLINE void prefetch_long_row(const T* p, int64_t n) {
  const int64_t bytes = n * static_cast<int64_t>(sizeof(T));
  __builtin_prefetch(reinterpret_cast<const char*>(p) + (bytes <= kLongRow ? bytes : kRowAhead));
}

/// Asks for `bytes` that are read soon.
REEL_INLINE void ask_for(const char* x, int64_t bytes) {
  for (int64_t i = 0; i < bytes; i += 64) __builtin_prefetch(x + i);
}

// --- one vector --------------------------------------------------------------------------------------------------------

/// A whole vector.
template <class T>
struct AllLanes {
  REEL_INLINE Vec<T> load(const T* p) const { return Vec<T>::load(p); }
  /// With -infinity in the lanes that do not exist (here: none).
  REEL_INLINE Vec<T> load_for_max(const T* p) const { return Vec<T>::load(p); }
  REEL_INLINE void store(T* p, Vec<T> v) const { v.store(p); }
};

/// The first n lanes; the others load as 0 and are not stored.
template <class T>
struct FirstLanes {
  int64_t n;
  typename Vec<T>::Mask mask;

  REEL_INLINE explicit FirstLanes(int64_t count) : n(count), mask(Vec<T>::first(count)) {}
  REEL_INLINE Vec<T> load(const T* p) const { return Vec<T>::load(p, mask); }
  REEL_INLINE Vec<T> load_for_max(const T* p) const {
    constexpr int width = Vec<T>::width;
    alignas(kVectorBytes) static constexpr Fill fill{};
    return Vec<T>::load(p, mask) + Vec<T>::load(fill.values + width - n);
  }
  REEL_INLINE void store(T* p, Vec<T> v) const { v.store(p, mask); }

 private:
  /// `width` zeros, then as many -infinities: added from where n zeros are left, they fill the lanes from n on.
  struct Fill {
    T values[2 * Vec<T>::width];
    constexpr Fill() : values() {
      for (int i = 0; i < Vec<T>::width; ++i) {
        values[i] = 0;
        values[Vec<T>::width + i] = -kInfinity<T>;
      }
    }
  };
};

/// a where a > b, else b: a NaN in a is passed over.
template <class T, int bytes>
REEL_INLINE Vec<T, bytes> larger(Vec<T, bytes> a, Vec<T, bytes> b) {
  return {Register<T, bytes>::max(a.raw, b.raw)};
}

template <class T>
REEL_INLINE T reduce_larger(Vec<T> x) {
  return reduce(x, [](auto a, auto b) { return larger(a, b); });
}

/// f of each lane. The compiler keeps the array in a register.
template <class T, class F>
REEL_INLINE Vec<T> each_lane(Vec<T> x, F f) {
  alignas(kVectorBytes) T lanes[Vec<T>::width];
  x.store(lanes);
#pragma omp simd
  for (int i = 0; i < Vec<T>::width; ++i) lanes[i] = f(lanes[i]);
  return Vec<T>::load(lanes);
}

#if defined(REEL_SIMD_AVX512)
/// p 2^n where x is not below `low`, else 0: one instruction of this set, and no slow handling of results that underflow.
REEL_INLINE Vec<double> scale_above(Vec<double> x, double low, Vec<double> p, Vec<double> n) {
  return {_mm512_maskz_scalef_pd(_mm512_cmp_pd_mask(x.raw, _mm512_set1_pd(low), _CMP_NLT_UQ), p.raw, n.raw)};
}
#endif

/// e^(x rate) for x <= 0 or NaN and rate > 0: the bits of scalar::exp of the rounded product, but 0 where the result would be
/// denormal. Such results are of no account next to the 1 of the largest entry, and the machine takes a hundred times as long
/// over them.
template <class T>
REEL_INLINE Vec<T> exp_negative(Vec<T> x, T rate = 1) {
  constexpr T low = sizeof(T) == 4 ? T(-87.33) : T(-708.39);
  x = x * Vec<T>::broadcast(rate);
#if defined(REEL_SIMD_AVX512)
  alignas(kVectorBytes) T p[Vec<T>::width], n[Vec<T>::width];
  x.store(p);
#pragma omp simd
  for (int i = 0; i < Vec<T>::width; ++i) {
    const scalar::ReducedExponent<T> e = scalar::reduce_exponent(p[i]);
    p[i] = T(1) + scalar::expm1_polynomial(e.r);
    n[i] = e.n;
  }
  return scale_above(x, low, Vec<T>::load(p), Vec<T>::load(n));
#else
  const Vec<T> lowest = Vec<T>::broadcast(low), zero = Vec<T>::zero();
  const Vec<T> y = each_lane(
      larger(lowest, x), [](T lane) __attribute__((always_inline)) {  // NaN stays
        const scalar::ReducedExponent<T> e = scalar::reduce_exponent(lane);
        return (T(1) + scalar::expm1_polynomial(e.r)) * scalar::power_of_two<T>(e.bits);
      });
  return {x.raw < lowest.raw ? zero.raw : y.raw};
#endif
}

#if defined(__AVX2__)
/// 2^(j / n) for the n lanes j of a register, less j 2^23 / n in its bits; and p of exp_negative below.
#if defined(REEL_SIMD_AVX512)
inline constexpr std::uint32_t kPowers[] = {0x3f800000, 0x3f7daac3, 0x3f7b95c2, 0x3f79c3d3, 0x3f7837f0, 0x3f76f532,
                                            0x3f75fed7, 0x3f75583f, 0x3f7504f3, 0x3f7508a4, 0x3f75672a, 0x3f76248c,
                                            0x3f7744fd, 0x3f78ccdf, 0x3f7ac0c7, 0x3f7d257d};
inline constexpr float kPowerTerms[] = {0x1.62e43p-1f, 0x1.ebfff4p-3f, 0x1.c6ac6ap-5f};  // |f| <= 1/32: 2^-29.2
#else
inline constexpr std::uint32_t kPowers[] = {0x3f800000, 0x3f7b95c2, 0x3f7837f0, 0x3f75fed7,
                                            0x3f7504f3, 0x3f75672a, 0x3f7744fd, 0x3f7ac0c7};
inline constexpr float kPowerTerms[] = {0x1.62e432p-1f, 0x1.ec0c22p-3f, 0x1.c690eap-5f};  // |f| <= 1/16: 2^-25.2
#endif

inline constexpr float kLog2E = 0x1.715476p+0f, kLog2ERest = 0x1.4ae0cp-26f;
inline constexpr float kPowerStep = 1.0f / Vec<float>::width,
                       kPowerUnit = 0x1.8p23f * kPowerStep;  // a step apart near it
struct ReducedPower {
  Vec<float> shifted, whole, p;  // whole + kPowerUnit, k / n, and 2^f - 1
};
/// x (high + low) = k / n + f, k whole and n lanes, |f| <= 1 / 2n.
REEL_INLINE ReducedPower reduce_power(Vec<float> x, float high, float low) {
  using V = Vec<float>;
  const V shifted = fma(x, V::broadcast(high), V::broadcast(kPowerUnit)), whole = shifted - V::broadcast(kPowerUnit);
  const V f = fma(x, V::broadcast(low), fma(x, V::broadcast(high), -whole));
  const V q = fma(fma(f, V::broadcast(kPowerTerms[2]), V::broadcast(kPowerTerms[1])), f, V::broadcast(kPowerTerms[0]));
  return {shifted, whole, f * q};
}

/// The same in f32, at most 1.0 ULP, without AVX-512 1.2 (up to 4 for rates below 1e-35), not the bits of scalar::exp; 0 from 1.02
/// times the smallest normal number down, without AVX-512 1.05. x rate / ln 2 = k / n + f, k whole and n lanes, and the result is
/// 2^(k / n) (1 + p(f)) with p of degree 3, minimax in the error relative to 2^f. 2^(k / n) comes from a register: the last bits of
/// k choose the lane, from whose bits j 2^23 / n is taken away, so that k 2^23 / n adds to the exponent alone. (Tang, "Table-driven
/// implementation of the exponential function in IEEE floating-point arithmetic", 1989.)
REEL_INLINE Vec<float> exp_negative(Vec<float> x, float rate = 1) {
  using V = Vec<float>;
  typedef std::uint32_t Bits __attribute__((vector_size(kVectorBytes)));
  const float high = rate * kLog2E, low = fma(rate, kLog2ERest, fma(rate, kLog2E, -high));
  const auto [shifted, whole, p] = reduce_power(x, high, low);
  Bits powers;
  __builtin_memcpy(&powers, kPowers, sizeof powers);
  const Bits k = Bits(shifted.raw);
#if defined(REEL_SIMD_AVX512)
  powers = Bits(_mm512_maskz_permutexvar_epi32(0xffff, __m512i(k), __m512i(powers)));
#else
  powers = Bits(_mm256_permutevar8x32_epi32(__m256i(powers), __m256i(k)));
#endif
  const V power{V::Raw(powers + k * static_cast<std::uint32_t>((1 << 23) / V::width))}, y = fma(power, p, power);
  return {shifted.raw < V::broadcast(kPowerUnit - 126 + kPowerStep).raw ? V::zero().raw : y.raw};
}
#endif

/// log of each lane.
template <class T>
REEL_INLINE Vec<T> log(Vec<T> x) {
  return each_lane(
      x, [](T lane) __attribute__((always_inline)) { return scalar::log(lane); });
}

// --- along a contiguous row --------------------------------------------------------------------------------------------

/// f(lanes, i) for the vectors of elements [begin, end).
template <class T, class F>
REEL_INLINE void for_each_vector(int64_t begin, int64_t end, F f) {
  constexpr int64_t width = Vec<T>::width;
  int64_t i = begin;
  for (; i + width <= end; i += width) f(AllLanes<T>{}, i);
  if (i < end) f(FirstLanes<T>(end - i), i);
}

/// acc = f(acc, lanes, i) for the vectors of elements [begin, end) in four accumulators, which `combine` then joins. The
/// order depends on end - begin alone.
template <class T, class F, class Combine>
REEL_INLINE Vec<T> fold_vectors(int64_t begin, int64_t end, Vec<T> init, F f, Combine combine) {
  constexpr int64_t width = Vec<T>::width;
  Vec<T> a = init, b = init, c = init, d = init;
  int64_t i = begin;
  for (; i + 4 * width <= end; i += 4 * width) {
    a = f(a, AllLanes<T>{}, i);
    b = f(b, AllLanes<T>{}, i + width);
    c = f(c, AllLanes<T>{}, i + 2 * width);
    d = f(d, AllLanes<T>{}, i + 3 * width);
  }
  for (; i + width <= end; i += width) a = f(a, AllLanes<T>{}, i);
  if (i < end) b = f(b, FirstLanes<T>(end - i), i);
  return combine(combine(a, b), combine(c, d));
}

/// sum(begin, end) over pieces of `leaf`, combined pairwise: the error grows with the logarithm of the length. The tree
/// depends on end - begin alone, and pieces of leaf 2^k from the start are its inner nodes.
template <class F>
auto pairwise(int64_t begin, int64_t end, int64_t leaf, const F& sum) -> decltype(sum(begin, end)) {
  if (end - begin <= leaf) return sum(begin, end);
  int64_t half = leaf;
  while (2 * half < end - begin) half *= 2;
  const auto left = pairwise(begin, begin + half, leaf, sum);
  return left + pairwise(begin + half, end, leaf, sum);
}

/// The sum over a row of the terms f(acc, lanes, i) = acc + term.
template <class T, class F>
REEL_INLINE T sum_row(int64_t n, F f) {
  return pairwise(0, n, kLeafElements<T>, [&](int64_t begin, int64_t end) {
    const F term = f;  // what f captures stays in registers
    return reduce_add(fold_vectors<T>(begin, end, Vec<T>::zero(), term, [](Vec<T> a, Vec<T> b) { return a + b; }));
  });
}

/// The largest element, passing over NaN; -infinity if there is none.
template <class T>
REEL_INLINE T max_of_row(const T* x, int64_t n) {
  const auto join = [](Vec<T> a, Vec<T> b) { return larger(a, b); };
  const auto step = [x](Vec<T> acc, auto lanes, int64_t i) { return larger(lanes.load_for_max(x + i), acc); };
  return reduce_larger(fold_vectors<T>(0, n, Vec<T>::broadcast(-kInfinity<T>), step, join));
}

// --- down columns ------------------------------------------------------------------------------------------------------

/// K neighbouring vectors of a row.
template <class T, int K>
struct Pack {
  Vec<T> v[K];

  static REEL_INLINE Pack broadcast(T x) {
    Pack pack;
#pragma GCC unroll 8
    for (int k = 0; k < K; ++k) pack.v[k] = Vec<T>::broadcast(x);
    return pack;
  }
  template <class Lanes>
  static REEL_INLINE Pack load(Lanes lanes, const T* p) {
    Pack pack;
#pragma GCC unroll 8
    for (int k = 0; k < K; ++k) pack.v[k] = lanes.load(p + k * Vec<T>::width);
    return pack;
  }
  template <class Lanes>
  REEL_INLINE void store(Lanes lanes, T* p) const {
#pragma GCC unroll 8
    for (int k = 0; k < K; ++k) lanes.store(p + k * Vec<T>::width, v[k]);
  }
  friend REEL_INLINE Pack operator+(const Pack& a, const Pack& b) {
    Pack sum;
#pragma GCC unroll 8
    for (int k = 0; k < K; ++k) sum.v[k] = a.v[k] + b.v[k];
    return sum;
  }
};

/// Calls f.template operator()<K>(lanes, j) for blocks of K vectors of columns, at most `most`, that start at column j of
/// [begin, end).
template <class T, int most = 4, class F>
REEL_INLINE void for_each_column_block(int64_t begin, int64_t end, F f) {
  constexpr int64_t width = Vec<T>::width;
  int64_t j = begin;
  if constexpr (most > 4) {
    for (; j + most * width <= end; j += most * width) f.template operator()<most>(AllLanes<T>{}, j);
  }
  for (; j + 4 * width <= end; j += 4 * width) f.template operator()<4>(AllLanes<T>{}, j);
  for (; j + width <= end; j += width) f.template operator()<1>(AllLanes<T>{}, j);
  if (j < end) f.template operator()<1>(FirstLanes<T>(end - j), j);
}

}  // namespace reel::cpu::REEL_CPU_ISA
