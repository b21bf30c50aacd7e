#pragma once

#include <immintrin.h>

#include <cstdint>

#include "reel/core/macros.h"

/// Vec<T>: one register of floats or doubles of the instruction set that this file is compiled for.
///
///   using V = Vec<float>;
///   V sum = V::zero();
///   for (; i + V::width <= n; i += V::width) sum = fma(V::load(x + i), V::load(y + i), sum);
///   const auto tail = V::first(n - i);                       // the first n - i lanes, 0 <= n - i <= width
///   sum = fma(V::load(x + i, tail), V::load(y + i, tail), sum);  // other lanes read as 0 and are not touched in memory
///   float total = reduce_add(sum);                           // a fixed tree: halves, quarters, ...
///
/// Vec<T, bytes> asks for a smaller register (a half for short rows). fma is the hardware's single rounding where there
/// is one (x86-64-v3 and v4), and a product and a sum, each rounded, on x86-64-v2; the compiler never contracts on its own.
namespace reel::cpu::REEL_CPU_ISA {

#if defined(__AVX512F__) && defined(__AVX512VL__) && defined(__AVX512DQ__)
#define REEL_SIMD_AVX512 1
inline constexpr int kVectorBytes = 64;
#elif defined(__AVX2__) && defined(__FMA__)
inline constexpr int kVectorBytes = 32;
#else
inline constexpr int kVectorBytes = 16;
#endif

/// One fused multiply-add as the vectors of this set do it.
template <class T>
REEL_INLINE T fma(T a, T b, T c) {
#if defined(__FMA__)
  if constexpr (sizeof(T) == 4) {
    return __builtin_fmaf(a, b, c);
  } else {
    return __builtin_fma(a, b, c);
  }
#else
  return a * b + c;
#endif
}

/// The first n of four lanes, 0 <= n <= 4, by moves: lanes that are put together in memory can't be loaded until all have got there.
REEL_INLINE __m128 load_first(const float* p, int n) {
  if (n >= 4) return _mm_loadu_ps(p);
  const __m128 zero = _mm_setzero_ps(), last = (n & 1) != 0 ? _mm_load_ss(p + (n & 2)) : zero;
  return (n & 2) != 0 ? _mm_movelh_ps(_mm_loadl_pi(zero, reinterpret_cast<const __m64*>(p)), last) : last;
}
/// Stores the first n of four lanes, 0 <= n <= 4.
REEL_INLINE void store_first(float* p, __m128 x, int n) {
  if (n >= 4) return _mm_storeu_ps(p, x);
  if ((n & 2) != 0) {
    _mm_storel_pi(reinterpret_cast<__m64*>(p), x);
    x = _mm_movehl_ps(x, x);
    p += 2;
  }
  if ((n & 1) != 0) _mm_store_ss(p, x);
}
/// Stores the first n of two lanes, 0 <= n <= 2.
REEL_INLINE void store_first(double* p, __m128d x, int n) {
  if (n >= 2) return _mm_storeu_pd(p, x);
  if (n == 1) _mm_store_sd(p, x);
}

// The intrinsics behind Vec, one struct per register. `max` and `min` are the machine's: a > b ? a : b and
// a < b ? a : b, so b if either is NaN.
// (Zero-masking forms at 512 bits: g++ 12 warns of uninitialised values in its own headers for the plain ones.)
// The first n lanes are loaded by a mask, but stored in powers of two where there is no AVX-512: AVX2's masked store is 12
// cycles of microcode on AMD's processors (measured on Zen 4), which other instructions wait for.
template <class T, int bytes>
struct Register;

template <>
struct Register<float, 16> {
  using Raw = __m128;
  static REEL_INLINE Raw set(float x) { return _mm_set1_ps(x); }
  static REEL_INLINE Raw load(const float* p) { return _mm_loadu_ps(p); }
  static REEL_INLINE void store(float* p, Raw x) { _mm_storeu_ps(p, x); }
  static REEL_INLINE Raw max(Raw a, Raw b) { return _mm_max_ps(a, b); }
  static REEL_INLINE Raw min(Raw a, Raw b) { return _mm_min_ps(a, b); }
#if defined(__FMA__)
  static REEL_INLINE Raw fma(Raw a, Raw b, Raw c) { return _mm_fmadd_ps(a, b, c); }
#else
  static REEL_INLINE Raw fma(Raw a, Raw b, Raw c) { return a * b + c; }
#endif
#if defined(REEL_SIMD_AVX512)
  using Mask = __mmask8;
  static REEL_INLINE Mask first(std::int64_t n) { return static_cast<Mask>((1u << n) - 1); }
  static REEL_INLINE Raw load(const float* p, Mask m) { return _mm_maskz_loadu_ps(m, p); }
  static REEL_INLINE void store(float* p, Raw x, Mask m) { _mm_mask_storeu_ps(p, m, x); }
#elif defined(__AVX2__)
  struct Mask {
    __m128i lanes;
    int count;
  };
  static REEL_INLINE Mask first(std::int64_t n) {
    const int count = static_cast<int>(n);
    return {_mm_cmpgt_epi32(_mm_set1_epi32(count), _mm_setr_epi32(0, 1, 2, 3)), count};
  }
  static REEL_INLINE Raw load(const float* p, Mask m) { return _mm_maskload_ps(p, m.lanes); }
  static REEL_INLINE void store(float* p, Raw x, Mask m) { store_first(p, x, m.count); }
#else
  using Mask = int;
  static REEL_INLINE Mask first(std::int64_t n) { return static_cast<int>(n); }
  static REEL_INLINE Raw load(const float* p, Mask n) { return load_first(p, n); }
  static REEL_INLINE void store(float* p, Raw x, Mask n) { store_first(p, x, n); }
#endif
};

template <>
struct Register<double, 16> {
  using Raw = __m128d;
  static REEL_INLINE Raw set(double x) { return _mm_set1_pd(x); }
  static REEL_INLINE Raw load(const double* p) { return _mm_loadu_pd(p); }
  static REEL_INLINE void store(double* p, Raw x) { _mm_storeu_pd(p, x); }
  static REEL_INLINE Raw max(Raw a, Raw b) { return _mm_max_pd(a, b); }
  static REEL_INLINE Raw min(Raw a, Raw b) { return _mm_min_pd(a, b); }
#if defined(__FMA__)
  static REEL_INLINE Raw fma(Raw a, Raw b, Raw c) { return _mm_fmadd_pd(a, b, c); }
#else
  static REEL_INLINE Raw fma(Raw a, Raw b, Raw c) { return a * b + c; }
#endif
  using Mask = int;  // two lanes: plain moves do
  static REEL_INLINE Mask first(std::int64_t n) { return static_cast<int>(n); }
  static REEL_INLINE Raw load(const double* p, Mask n) {
    return n >= 2 ? _mm_loadu_pd(p) : n == 1 ? _mm_load_sd(p) : _mm_setzero_pd();
  }
  static REEL_INLINE void store(double* p, Raw x, Mask n) { store_first(p, x, n); }
};

#if defined(__AVX2__)
template <>
struct Register<float, 32> {
  using Raw = __m256;
  static REEL_INLINE Raw set(float x) { return _mm256_set1_ps(x); }
  static REEL_INLINE Raw load(const float* p) { return _mm256_loadu_ps(p); }
  static REEL_INLINE void store(float* p, Raw x) { _mm256_storeu_ps(p, x); }
  static REEL_INLINE Raw max(Raw a, Raw b) { return _mm256_max_ps(a, b); }
  static REEL_INLINE Raw min(Raw a, Raw b) { return _mm256_min_ps(a, b); }
  static REEL_INLINE Raw fma(Raw a, Raw b, Raw c) { return _mm256_fmadd_ps(a, b, c); }
  static REEL_INLINE Raw join(__m128 low, __m128 high) {
    return _mm256_insertf128_ps(_mm256_castps128_ps256(low), high, 1);
  }
#if defined(REEL_SIMD_AVX512)
  using Mask = __mmask8;
  static REEL_INLINE Mask first(std::int64_t n) { return static_cast<Mask>((1u << n) - 1); }
  static REEL_INLINE Raw load(const float* p, Mask m) { return _mm256_maskz_loadu_ps(m, p); }
  static REEL_INLINE void store(float* p, Raw x, Mask m) { _mm256_mask_storeu_ps(p, m, x); }
#else
  struct Mask {
    __m256i lanes;
    int count;
  };
  static REEL_INLINE Mask first(std::int64_t n) {
    const int count = static_cast<int>(n);
    return {_mm256_cmpgt_epi32(_mm256_set1_epi32(count), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7)), count};
  }
  static REEL_INLINE Raw load(const float* p, Mask m) { return _mm256_maskload_ps(p, m.lanes); }
  static REEL_INLINE void store(float* p, Raw x, Mask m) {
    if (m.count < 4) return store_first(p, _mm256_castps256_ps128(x), m.count);
    _mm_storeu_ps(p, _mm256_castps256_ps128(x));
    store_first(p + 4, _mm256_extractf128_ps(x, 1), m.count - 4);
  }
#endif
};

template <>
struct Register<double, 32> {
  using Raw = __m256d;
  static REEL_INLINE Raw set(double x) { return _mm256_set1_pd(x); }
  static REEL_INLINE Raw load(const double* p) { return _mm256_loadu_pd(p); }
  static REEL_INLINE void store(double* p, Raw x) { _mm256_storeu_pd(p, x); }
  static REEL_INLINE Raw max(Raw a, Raw b) { return _mm256_max_pd(a, b); }
  static REEL_INLINE Raw min(Raw a, Raw b) { return _mm256_min_pd(a, b); }
  static REEL_INLINE Raw fma(Raw a, Raw b, Raw c) { return _mm256_fmadd_pd(a, b, c); }
  static REEL_INLINE Raw join(__m128d low, __m128d high) {
    return _mm256_insertf128_pd(_mm256_castpd128_pd256(low), high, 1);
  }
#if defined(REEL_SIMD_AVX512)
  using Mask = __mmask8;
  static REEL_INLINE Mask first(std::int64_t n) { return static_cast<Mask>((1u << n) - 1); }
  static REEL_INLINE Raw load(const double* p, Mask m) { return _mm256_maskz_loadu_pd(m, p); }
  static REEL_INLINE void store(double* p, Raw x, Mask m) { _mm256_mask_storeu_pd(p, m, x); }
#else
  struct Mask {
    __m256i lanes;
    int count;
  };
  static REEL_INLINE Mask first(std::int64_t n) {
    return {_mm256_cmpgt_epi64(_mm256_set1_epi64x(n), _mm256_setr_epi64x(0, 1, 2, 3)), static_cast<int>(n)};
  }
  static REEL_INLINE Raw load(const double* p, Mask m) { return _mm256_maskload_pd(p, m.lanes); }
  static REEL_INLINE void store(double* p, Raw x, Mask m) {
    if (m.count < 2) return store_first(p, _mm256_castpd256_pd128(x), m.count);
    _mm_storeu_pd(p, _mm256_castpd256_pd128(x));
    store_first(p + 2, _mm256_extractf128_pd(x, 1), m.count - 2);
  }
#endif
};
#endif  // __AVX2__

#if defined(REEL_SIMD_AVX512)
template <>
struct Register<float, 64> {
  using Raw = __m512;
  using Mask = __mmask16;
  static REEL_INLINE Raw set(float x) { return _mm512_set1_ps(x); }
  static REEL_INLINE Raw load(const float* p) { return _mm512_loadu_ps(p); }
  static REEL_INLINE void store(float* p, Raw x) { _mm512_storeu_ps(p, x); }
  static REEL_INLINE Raw max(Raw a, Raw b) { return _mm512_maskz_max_ps(0xffff, a, b); }
  static REEL_INLINE Raw min(Raw a, Raw b) { return _mm512_maskz_min_ps(0xffff, a, b); }
  static REEL_INLINE Raw fma(Raw a, Raw b, Raw c) { return _mm512_fmadd_ps(a, b, c); }
  static REEL_INLINE Raw join(__m256 low, __m256 high) {
    return _mm512_maskz_insertf32x8(0xffff, _mm512_castps256_ps512(low), high, 1);
  }
  static REEL_INLINE Mask first(std::int64_t n) { return static_cast<Mask>((1u << n) - 1); }
  static REEL_INLINE Raw load(const float* p, Mask m) { return _mm512_maskz_loadu_ps(m, p); }
  static REEL_INLINE void store(float* p, Raw x, Mask m) { _mm512_mask_storeu_ps(p, m, x); }
};

template <>
struct Register<double, 64> {
  using Raw = __m512d;
  using Mask = __mmask8;
  static REEL_INLINE Raw set(double x) { return _mm512_set1_pd(x); }
  static REEL_INLINE Raw load(const double* p) { return _mm512_loadu_pd(p); }
  static REEL_INLINE void store(double* p, Raw x) { _mm512_storeu_pd(p, x); }
  static REEL_INLINE Raw max(Raw a, Raw b) { return _mm512_maskz_max_pd(0xff, a, b); }
  static REEL_INLINE Raw min(Raw a, Raw b) { return _mm512_maskz_min_pd(0xff, a, b); }
  static REEL_INLINE Raw fma(Raw a, Raw b, Raw c) { return _mm512_fmadd_pd(a, b, c); }
  static REEL_INLINE Raw join(__m256d low, __m256d high) {
    return _mm512_maskz_insertf64x4(0xff, _mm512_castpd256_pd512(low), high, 1);
  }
  static REEL_INLINE Mask first(std::int64_t n) { return static_cast<Mask>((1u << n) - 1); }
  static REEL_INLINE Raw load(const double* p, Mask m) { return _mm512_maskz_loadu_pd(m, p); }
  static REEL_INLINE void store(double* p, Raw x, Mask m) { _mm512_mask_storeu_pd(p, m, x); }
};
#endif  // REEL_SIMD_AVX512

template <class T, int bytes = kVectorBytes>
struct Vec {
  using R = Register<T, bytes>;
  using Raw = typename R::Raw;
  using Mask = typename R::Mask;
  static constexpr int width = bytes / static_cast<int>(sizeof(T));

  Raw raw;

  static REEL_INLINE Vec zero() { return {R::set(0)}; }
  static REEL_INLINE Vec broadcast(T x) { return {R::set(x)}; }
  static REEL_INLINE Vec load(const T* p) { return {R::load(p)}; }  // no alignment is asked for
  REEL_INLINE void store(T* p) const { R::store(p, raw); }

  /// The mask of lanes 0 .. n - 1, 0 <= n <= width. Memory under other lanes is neither read nor written.
  static REEL_INLINE Mask first(std::int64_t n) { return R::first(n); }
  static REEL_INLINE Vec load(const T* p, Mask mask) { return {R::load(p, mask)}; }
  REEL_INLINE void store(T* p, Mask mask) const { R::store(p, raw, mask); }

  friend REEL_INLINE Vec operator+(Vec a, Vec b) { return {a.raw + b.raw}; }
  friend REEL_INLINE Vec operator-(Vec a, Vec b) { return {a.raw - b.raw}; }
  friend REEL_INLINE Vec operator-(Vec a) { return {-a.raw}; }
  friend REEL_INLINE Vec operator*(Vec a, Vec b) { return {a.raw * b.raw}; }
  friend REEL_INLINE Vec operator/(Vec a, Vec b) { return {a.raw / b.raw}; }
};

/// a b + c, see above.
template <class T, int bytes>
REEL_INLINE Vec<T, bytes> fma(Vec<T, bytes> a, Vec<T, bytes> b, Vec<T, bytes> c) {
  return {Register<T, bytes>::fma(a.raw, b.raw, c.raw)};
}

/// sum = fma(a, b, sum). `in_place`: in the registers in which they are; of an unrolled loop g++ makes one that reads b again and
/// again, moves sums about, or keeps them in memory. (With AVX-512 only where it does so: there are registers enough mostly, and
/// then what it makes is a little faster.)
template <bool in_place = kVectorBytes == 32, class T, int bytes>
REEL_INLINE void add_product(Vec<T, bytes>& sum, Vec<T, bytes> a, Vec<T, bytes> b) {
#if defined(__FMA__)
  if constexpr (in_place) {
    if constexpr (sizeof(T) == sizeof(float)) asm("vfmadd231ps %2, %1, %0" : "+v"(sum.raw) : "v"(a.raw), "v"(b.raw));
    else asm("vfmadd231pd %2, %1, %0" : "+v"(sum.raw) : "v"(a.raw), "v"(b.raw));
    return;
  }
#endif
  sum = fma(a, b, sum);
}

/// The larger one; NaN if either is NaN.
template <class T, int bytes>
REEL_INLINE Vec<T, bytes> max(Vec<T, bytes> a, Vec<T, bytes> b) {
  const auto larger = Register<T, bytes>::max(a.raw, b.raw);  // b's NaN is in there already
  return {a.raw == a.raw ? larger : a.raw};
}
template <class T, int bytes>
REEL_INLINE Vec<T, bytes> min(Vec<T, bytes> a, Vec<T, bytes> b) {
  const auto smaller = Register<T, bytes>::min(a.raw, b.raw);
  return {a.raw == a.raw ? smaller : a.raw};
}

/// x, or 0 where x < 0; NaN stays NaN.
template <class T, int bytes>
REEL_INLINE Vec<T, bytes> relu(Vec<T, bytes> x) {
  return {Register<T, bytes>::max(Register<T, bytes>::set(0), x.raw)};
}

#if defined(__AVX2__)
/// The bits of each lane, to be calculated with.
typedef std::int32_t LaneBits __attribute__((vector_size(kVectorBytes)));
REEL_INLINE LaneBits bits_of(Vec<float> x) { return LaneBits(x.raw); }
REEL_INLINE Vec<float> from_bits(LaneBits bits) { return {Vec<float>::Raw(bits)}; }

#if defined(REEL_SIMD_AVX512)
/// x, or `most` with its sign where x is larger in size. Not for NaN, of which it makes `most`.
REEL_INLINE Vec<float> smaller_magnitude(Vec<float> x, Vec<float> most) {
  return {_mm512_maskz_range_ps(0xffff, x.raw, most.raw, 2)};
}

/// 32 numbers, aligned, of which each lane takes one: that of its index' last five bits.
REEL_INLINE Vec<float> pick(const float (&all)[32], LaneBits index) {
  // The second half in memory, or g++ gives it a register and a step of its own.
  __m512 chosen = _mm512_load_ps(all);
  asm("vpermt2ps %2, %1, %0" : "+v"(chosen) : "v"(index), "m"(*reinterpret_cast<const __m512*>(all + 16)));
  return {chosen};
}
#else
/// The index for `pick`, from bits 2 and 3 of each lane: the places of the four bytes of a number.
REEL_INLINE LaneBits index_of_four(LaneBits lanes) {
  const __m256i first_bytes =
      _mm256_set_epi32(0x0c0c0c0c, 0x08080808, 0x04040404, 0, 0x0c0c0c0c, 0x08080808, 0x04040404, 0);
  const __m256i four_times = _mm256_shuffle_epi8(__m256i(lanes & 12), first_bytes);
  return LaneBits(_mm256_or_si256(four_times, _mm256_set1_epi32(0x03020100)));
}
/// Four numbers, aligned, of which each lane takes one. On Zen 3, vpermps among eight takes almost three times as long, and
/// vpermilps among four keeps multiplications from the pipes that both need.
REEL_INLINE Vec<float> pick(const float (&four)[4], LaneBits index) {
  const __m256i twice = _mm256_broadcastsi128_si256(_mm_load_si128(reinterpret_cast<const __m128i*>(four)));
  return {_mm256_castsi256_ps(_mm256_shuffle_epi8(twice, __m256i(index)))};
}
#endif
#endif

/// Four bytes of x at each place: those whose index stands there in `words`, which are aligned.
template <class T>
REEL_INLINE Vec<T> permute(Vec<T> x, const std::int32_t* words) {
  using Raw = typename Vec<T>::Raw;
#if defined(REEL_SIMD_AVX512)
  return {Raw(_mm512_maskz_permutexvar_ps(0xffff, _mm512_load_si512(words), __m512(x.raw)))};
#elif defined(__AVX2__)
  return {Raw(_mm256_permutevar8x32_ps(__m256(x.raw), _mm256_load_si256(reinterpret_cast<const __m256i*>(words))))};
#else
  alignas(16) std::int32_t from[4], to[4];
  _mm_store_si128(reinterpret_cast<__m128i*>(from), __m128i(x.raw));
  for (int i = 0; i < 4; ++i) to[i] = from[words[i]];
  return {Raw(_mm_load_si128(reinterpret_cast<const __m128i*>(to)))};
#endif
}

/// Lane i, of `lanes`, is lane from(i) of low and high in a row.
template <int lanes, auto from, class T, int bytes>
REEL_INLINE Vec<T, lanes * sizeof(T)> pick_lanes(Vec<T, bytes> low, Vec<T, bytes> high) {
  return [=]<int... i>(std::integer_sequence<int, i...>) __attribute__((always_inline)) {
    return Vec<T, lanes * sizeof(T)>{__builtin_shufflevector(low.raw, high.raw, from(i)...)};
  }
  (std::make_integer_sequence<int, lanes>());
}

/// The lower and the upper half of the lanes.
template <class T, int bytes>
REEL_INLINE Vec<T, bytes / 2> low_half(Vec<T, bytes> x) {
  return pick_lanes<Vec<T, bytes>::width / 2, [](int i) { return i; }>(x, x);
}
template <class T, int bytes>
REEL_INLINE Vec<T, bytes / 2> high_half(Vec<T, bytes> x) {
  constexpr int half = Vec<T, bytes>::width / 2;
  return pick_lanes<half, [](int i) { return half + i; }>(x, x);
}
/// The inverse of the two.
template <class T, int bytes>
REEL_INLINE Vec<T, 2 * bytes> join(Vec<T, bytes> low, Vec<T, bytes> high) {
  return {Register<T, 2 * bytes>::join(low.raw, high.raw)};
}

/// Lanes 0, 2, 4, ... of low, then of high.
template <class T, int bytes>
REEL_INLINE Vec<T, bytes> even_lanes(Vec<T, bytes> low, Vec<T, bytes> high) {
  return pick_lanes<Vec<T, bytes>::width, [](int i) { return 2 * i; }>(low, high);
}
/// Each lane of the lower half twice, and of the upper.
template <class T, int bytes>
REEL_INLINE Vec<T, bytes> twice_low(Vec<T, bytes> x) {
  return pick_lanes<Vec<T, bytes>::width, [](int i) { return i / 2; }>(x, x);
}
template <class T, int bytes>
REEL_INLINE Vec<T, bytes> twice_high(Vec<T, bytes> x) {
  constexpr int half = Vec<T, bytes>::width / 2;
  return pick_lanes<2 * half, [](int i) { return half + i / 2; }>(x, x);
}

/// The lanes combined by f(Vec, Vec) in a fixed tree: lane i with i + width / 2, then i with i + width / 4, ...
template <class T, int bytes, class F>
REEL_INLINE T reduce(Vec<T, bytes> x, F f) {
  if constexpr (bytes > 16) {
    return reduce(f(low_half(x), high_half(x)), f);
  } else if constexpr (sizeof(T) == 4) {
    x = f(x, Vec<T, bytes>{__builtin_shufflevector(x.raw, x.raw, 2, 3, 2, 3)});
    x = f(x, Vec<T, bytes>{__builtin_shufflevector(x.raw, x.raw, 1, 1, 1, 1)});
    return x.raw[0];
  } else {
    return f(x, Vec<T, bytes>{__builtin_shufflevector(x.raw, x.raw, 1, 1)}).raw[0];
  }
}
template <class T, int bytes>
REEL_INLINE T reduce_add(Vec<T, bytes> x) {
  return reduce(x, [](auto a, auto b) { return a + b; });
}
/// NaN if any lane is.
template <class T, int bytes>
REEL_INLINE T reduce_max(Vec<T, bytes> x) {
  return reduce(x, [](auto a, auto b) { return max(a, b); });
}
template <class T, int bytes>
REEL_INLINE T reduce_min(Vec<T, bytes> x) {
  return reduce(x, [](auto a, auto b) { return min(a, b); });
}

}  // namespace reel::cpu::REEL_CPU_ISA
