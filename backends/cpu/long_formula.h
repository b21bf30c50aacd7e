#pragma once

#include "reel/backends/cpu/kernel.h"
#include "reel/backends/cpu/run_elements.h"
#include "reel/backends/cpu/simd.h"
#include "reel/backends/cpu/stream.h"

/// The loop of elementwise kernels whose formula takes tens or hundreds of instructions.
namespace reel::cpu::REEL_CPU_ISA {

/// kAlone for formulas of many steps: so many vectors. (On a Zen 3, where a vector of f32 takes 4 to 8 ns and of f64 6 to 60, two
/// threads take 0.5 to 0.85 of one's time for twice as many, in f64 0.5 to 0.6.)
REEL_INLINE int64_t alone_with_formula(DType dtype) {
  return 1024 * (kVectorBytes / static_cast<int64_t>(size_of(dtype)));
}

/// Elements from what is computed to what is asked for: with AVX-512, where less time passes, twice as many.
template <class T>
inline constexpr int64_t kAhead = (kVectorBytes == 64 ? 4096 : 2048) / static_cast<int64_t>(sizeof(T));

/// Calls body(n, a, b, y) for the elements [0, count) of a, b and y, with n a multiple of `step`, a multiple of the vectors'
/// width. y may be a or b, but not overlap them otherwise. The last, partial step goes through memory on the stack: so the
/// body's code is there once, where a plain loop would get it two or three times more, in smaller vectors and for single elements.
template <int64_t step, class T, class Body>
REEL_INLINE void in_whole_steps(int64_t count, const T* a, const T* b, T* y, Body body) {
  using V = Vec<T>;
  alignas(kVectorBytes) T last_a[step], last_b[step], last_y[step];
  const int64_t whole = count & -step;  // so that the compiler sees a multiple
  const auto lanes = [=](int64_t k) { return V::first(max<int64_t>(0, min<int64_t>(V::width, count - whole - k))); };
  T* to = y;
  for (int64_t n = whole;; n = step) {
    body(n, a, b, to);
    if (to == last_y) break;
    if (whole == count) return;
    for (int64_t k = 0; k < step; k += V::width) {
      V::load(a + whole + k, lanes(k)).store(last_a + k);
      V::load(b + whole + k, lanes(k)).store(last_b + k);
    }
    a = last_a;
    b = last_b;
    to = last_y;
  }
  for (int64_t k = 0; k < step; k += V::width) V::load(last_y + k).store(y + whole + k, lanes(k));
}

/// y[i] = f(a[i], b[i]) for whole vectors. In f32, and with vectors of AVX2 or more, what comes next is asked for: a formula is as
/// long as the way from memory there, and takes 0.8 to 0.9 of the time when it need not wait.
template <class T, class F>
REEL_INLINE void formula_of_vectors(int64_t count, const T* a, const T* b, T* y, F f) {
  constexpr int64_t width = Vec<T>::width;
  if constexpr (kVectorBytes < 32 || sizeof(T) != sizeof(float)) {
#pragma omp simd
    for (int64_t i = 0; i < count; ++i) y[i] = f(a[i], b[i]);
  } else {
    for (int64_t i = 0; i < count; i += width) {
      __builtin_prefetch(a + i + kAhead<T>);
      if (a != b) __builtin_prefetch(b + i + kAhead<T>);
#pragma omp simd
      for (int64_t k = i; k < i + width; ++k) y[k] = f(a[k], b[k]);
    }
  }
}
template <class T, class F>
static void run_formula(const void* a, const void* b, void* y, int64_t count) {
  formula_of_vectors(count & -Vec<T>::width, static_cast<const T*>(a), static_cast<const T*>(b), static_cast<T*>(y),
                     F());
}

/// Whether all numbers that it was asked about are within [low, high]; NaN is not.
template <class T>
class AllWithin {
  using V = Vec<T>;

 public:
  REEL_INLINE AllWithin(T low, T high) : low_(V::broadcast(low)), high_(V::broadcast(high)) {}
  REEL_INLINE void ask(V x) {
#if defined(REEL_SIMD_AVX512)
    if constexpr (sizeof(T) == sizeof(float)) {
      within_ = _mm512_mask_cmp_ps_mask(within_, x.raw, low_.raw, _CMP_GE_OQ);
      within_ = _mm512_mask_cmp_ps_mask(within_, x.raw, high_.raw, _CMP_LE_OQ);
    } else {
      within_ = _mm512_mask_cmp_pd_mask(within_, x.raw, low_.raw, _CMP_GE_OQ);
      within_ = _mm512_mask_cmp_pd_mask(within_, x.raw, high_.raw, _CMP_LE_OQ);
    }
#else
    within_ &= (x.raw >= low_.raw) & (x.raw <= high_.raw);
#endif
  }
  REEL_INLINE bool yes() const {
#if defined(REEL_SIMD_AVX512)
    return within_ == kAll;
#elif defined(__AVX2__)
    return _mm256_movemask_epi8(__m256i(within_)) == -1;
#else
    return _mm_movemask_epi8(__m128i(within_)) == 0xffff;
#endif
  }

 private:
  V low_, high_;
#if defined(REEL_SIMD_AVX512)
  static constexpr auto kAll = static_cast<typename V::Mask>(-1);
  typename V::Mask within_ = kAll;
#else
  decltype(V{}.raw == V{}.raw) within_ = V::zero().raw == V::zero().raw;
#endif
};

/// Elements of a block below.
inline constexpr int64_t kFormulaBlock = 512;

/// Whether vectors are asked about and computed in one loop. (With f64, whose inner loop over a vector is shorter, g++ takes that one
/// apart before it looks for vectors.)
template <class T>
inline constexpr bool kInOneLoop = kVectorBytes >= 32 && sizeof(T) == sizeof(float);

/// y[i] = usual(a[i], b[i]) for whole vectors, a block at a time; unusual(n, a, b, y) does a block that has an a[i] outside [low,
/// high], which `usual`, a shorter formula, is not for. y may be a or b.
template <class T, class F, class G>
REEL_INLINE void formula_in_blocks(int64_t count, const T* a, const T* b, T* y, T low, T high, F usual, G unusual) {
  using V = Vec<T>;
  constexpr int64_t block = kFormulaBlock;
  alignas(kVectorBytes) T results[block];
  for (int64_t begin = 0; begin < count; begin += block, a += block, b += block) {
    const int64_t n = min(block, count - begin) & -V::width;  // so that the compiler sees a multiple
    T* const to = y + begin == a || y + begin == b ? results : y + begin;
    AllWithin<T> all(low, high);
    for (int64_t i = 0; i < n; i += V::width) {
      if constexpr (kVectorBytes >= 32) {
        __builtin_prefetch(a + i + kAhead<T>);
        if (a != b) __builtin_prefetch(b + i + kAhead<T>);
      }
      all.ask(V::load(a + i));
      if constexpr (kInOneLoop<T>) {
#pragma omp simd
        for (int64_t k = i; k < i + V::width; ++k) to[k] = usual(a[k], b[k]);
      }
    }
    if constexpr (!kInOneLoop<T>) {
#pragma omp simd
      for (int64_t i = 0; i < n; ++i) to[i] = usual(a[i], b[i]);
    }
    if (!all.yes()) unusual(n, a, b, y + begin);
    else if (to == results) __builtin_memcpy(y + begin, results, static_cast<std::size_t>(n) * sizeof(T));
  }
}

/// in_whole_steps for a body that is a function, of one vector: the code for the last step is there once for all of them.
template <class T>
void run_whole_vectors(int64_t count, const T* a, const T* b, T* y, Run body);

/// y[i] = f(a[i], b[i]) for i in [0, count), for f(T, T).
template <class T, class F>
REEL_INLINE void long_formula(int64_t count, const T* a, const T* b, T* y, F f) {
  if constexpr (std::is_empty_v<F>) {
    run_whole_vectors(count, a, b, y, run_formula<T, F>);
  } else {
    in_whole_steps<Vec<T>::width>(count, a, b, y, [&](int64_t n, const T* from_a, const T* from_b, T* to) {
      formula_of_vectors(n, from_a, from_b, to, f);
    });
  }
}

/// The same for f(a, b, y) of `together` vectors at a time, a and b in memory, so that one's steps can run while the others' wait. If
/// `past_caches`, y, which is aligned then, goes there vector by vector: it has a formula's time to leave, and what comes next time
/// to arrive.
template <int together, class T, class F>
REEL_INLINE void long_formula_of_vectors(int64_t count, const T* a, const T* b, T* y, bool past_caches, F f) {
  using V = Vec<T>;
  constexpr int64_t step = together * V::width;
  const auto steps = [&](int64_t n, const T* from_a, const T* from_b, T* to) __attribute__((always_inline)) {
    const bool streams = past_caches && to == y;
    for (int64_t i = 0; i < n; i += step) {
      V y_i[together];
      f(from_a + i, from_b + i, y_i);
      if (streams) {
        for (int64_t k = 0; k < step; k += 64 / static_cast<int64_t>(sizeof(T))) {
          __builtin_prefetch(from_a + i + kAhead<T> + k);
          if (a != b) __builtin_prefetch(from_b + i + kAhead<T> + k);
        }
#pragma GCC unroll 4
        for (int v = 0; v < together; ++v) stream(to + i + v * V::width, y_i[v]);
      } else {
#pragma GCC unroll 4
        for (int v = 0; v < together; ++v) y_i[v].store(to + i + v * V::width);
      }
    }
  };
  in_whole_steps<step>(count, a, b, y, steps);
}

}  // namespace reel::cpu::REEL_CPU_ISA
