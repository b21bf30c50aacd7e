#pragma once

#include "reel/backends/cpu/kernel.h"
#include "reel/backends/cpu/segments.h"

/// What the kernels for normalised rows and channels share: several sums at once.
namespace reel::cpu::REEL_CPU_ISA {

/// v with 0 in the lanes that do not exist.
template <class T>
REEL_INLINE Vec<T> existing(const AllLanes<T>&, Vec<T> v) {
  return v;
}
template <class T>
REEL_INLINE Vec<T> existing(const FirstLanes<T>& lanes, Vec<T> v) {
  alignas(kVectorBytes) T all[Vec<T>::width];
  v.store(all);
  return lanes.load(all);
}

template <class T, int K>
struct Sums {
  T of[K];
  friend REEL_INLINE Sums operator+(const Sums& a, const Sums& b) {
    Sums sum;
    for (int k = 0; k < K; ++k) sum.of[k] = a.of[k] + b.of[k];
    return sum;
  }
};

/// K sums over a row at once, of the terms f(acc, lanes, i) = acc + terms. The order depends on n alone.
template <class T, int K, class F>
REEL_INLINE Sums<T, K> sum_terms(int64_t n, F f) {
  return pairwise(0, n, kLeafElements<T>, [&](int64_t begin, int64_t end) {
    constexpr int64_t width = Vec<T>::width;
    const F term = f;  // what f captures stays in registers
    Pack<T, K> a = Pack<T, K>::broadcast(0), b = a, c = a;
    int64_t i = begin;
    for (; i + 3 * width <= end; i += 3 * width) {
      a = term(a, AllLanes<T>{}, i);
      b = term(b, AllLanes<T>{}, i + width);
      c = term(c, AllLanes<T>{}, i + 2 * width);
    }
    for (; i + width <= end; i += width) a = term(a, AllLanes<T>{}, i);
    if (i < end) b = term(b, FirstLanes<T>(end - i), i);
    const Pack<T, K> all = a + b + c;
    Sums<T, K> sums;
    for (int k = 0; k < K; ++k) sums.of[k] = reduce_add(all.v[k]);
    return sums;
  });
}

/// Elements that are worth a thread: each costs as much as several of a sum. Of two chunks two threads take 0.7 to 1.0 of one's
/// time, backward 1.2 to 1.6 (rows of 64; benchmark_grains).
constexpr int64_t kNormalizeGrain = kGrain / 4;

/// parts [count, width]: the first becomes the sum of all.
template <class T>
void add_parts(T* parts, int64_t count, int64_t width) {
  parallel_for(width, max<int64_t>(64, kGrain / count), [=](int64_t begin, int64_t end) {
    join_pairwise(count, [=](int64_t i, int64_t later) {
      T *const to = parts + i * width, *const from = parts + later * width;
      for_each_vector<T>(
          begin, end, [=](auto lanes, int64_t j) { lanes.store(to + j, lanes.load(to + j) + lanes.load(from + j)); });
    });
  });
}

}  // namespace reel::cpu::REEL_CPU_ISA
