#pragma once

#include "reel/backends/cpu/kernel.h"
#include "reel/backends/cpu/segments.h"

/// What the kernels for normalised rows and channels share: several sums at once.
namespace reel::cpu::REEL_CPU_ISA {

/// `width` lanes of ones, then as many of zeros.
template <class Lane, int width>
struct Existing {
  Lane lanes[2 * width];
  constexpr Existing() : lanes() {
    for (int i = 0; i < width; ++i) lanes[i] = -1;
  }
};

/// v with 0 in the lanes that do not exist.
template <class T>
REEL_INLINE Vec<T> existing(const AllLanes<T>&, Vec<T> v) {
  return v;
}
template <class T>
REEL_INLINE Vec<T> existing(const FirstLanes<T>& lanes, Vec<T> v) {
  using Lane = std::conditional_t<sizeof(T) == 4, std::int32_t, std::int64_t>;
  typedef Lane Bits __attribute__((vector_size(kVectorBytes)));
  alignas(kVectorBytes) static constexpr Existing<Lane, Vec<T>::width> existing{};
  Bits bits;
  __builtin_memcpy(&bits, existing.lanes + Vec<T>::width - lanes.n, sizeof(bits));
  return {typename Vec<T>::Raw(Bits(v.raw) & bits)};
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

/// K vectors of sums over elements [begin, end) of the terms f(acc, lanes, i) = acc + terms.
template <class T, int K, class F>
REEL_INLINE Pack<T, K> sum_vectors(int64_t begin, int64_t end, F term) {  // what it captures stays in registers
  constexpr int64_t width = Vec<T>::width;
  Pack<T, K> a = Pack<T, K>::broadcast(0), b = a, c = a;
  int64_t i = begin;
  for (; i + 3 * width <= end; i += 3 * width) {
    a = term(a, AllLanes<T>{}, i);
    b = term(b, AllLanes<T>{}, i + width);
    c = term(c, AllLanes<T>{}, i + 2 * width);
  }
  for (; i + width <= end; i += width) a = term(a, AllLanes<T>{}, i);
  if (i < end) b = term(b, FirstLanes<T>(end - i), i);
  return a + b + c;
}

template <class T, int K>
REEL_INLINE Sums<T, K> added_lanes(const Pack<T, K>& vectors) {
  Sums<T, K> sums;
  for (int k = 0; k < K; ++k) sums.of[k] = reduce_add(vectors.v[k]);
  return sums;
}

/// K sums over a row at once, of the terms f(acc, lanes, i) = acc + terms. The order depends on n alone.
template <class T, int K, class F>
REEL_INLINE Sums<T, K> sum_terms(int64_t n, F f) {
  return pairwise(0, n, kLeafElements<T>,
                  [&](int64_t begin, int64_t end) { return added_lanes(sum_vectors<T, K>(begin, end, F(f))); });
}

/// How runs of elements side by side are summed up: long ones in pieces, of short ones several at once.
template <class T>
struct RunPieces {
  int64_t length, size, of_run, leaf;  // elements of a run, of a piece; pieces of a run, those summed up at once

  explicit RunPieces(int64_t length)
      : length(length),
        size(min<int64_t>(length, kLeafElements<T>)),
        of_run(ceil_div(length, size)),
        leaf(max<int64_t>(1, kLeafElements<T> / length)) {}
};

/// `count` runs of `length` elements side by side, which begin `step` apart.
template <class T>
struct Runs {
  const T* x;
  int64_t length, count = 1, step = 0;

  int64_t size() const { return length * count; }
};

/// K sums over all elements of `count` runs, of the terms f(acc, lanes, run, i) = acc + terms. The order depends on length and
/// count alone, and is that of sum_terms where there is one run.
template <class T, int K, class F>
REEL_INLINE Sums<T, K> sum_runs(const RunPieces<T>& pieces, int64_t count, F f) {
  return pairwise(0, count * pieces.of_run, pieces.leaf, [=](int64_t begin, int64_t end) {
    Pack<T, K> all = Pack<T, K>::broadcast(0);
    int64_t run = pieces.of_run == 1 ? begin : begin / pieces.of_run,
            first = (begin - run * pieces.of_run) * pieces.size;
    for (int64_t unit = begin; unit < end; ++unit) {
      const int64_t last = min(pieces.length, first + pieces.size);
      all = all + sum_vectors<T, K>(
                      first, last, [=](const Pack<T, K>& acc, auto lanes, int64_t i) __attribute__((always_inline)) {
                        return f(acc, lanes, run, i);
                      });
      first = last;
      if (last < pieces.length) continue;
      first = 0;
      ++run;
    }
    return added_lanes(all);
  });
}

/// The mean is mean + rest, which is 0 without centering.
template <class T>
struct RowStatistics {
  T mean, rest, variance, rstd;

  RowStatistics(T mean, T rest, T variance, T epsilon)
      : mean(mean), rest(rest), variance(variance), rstd(T(1) / scalar::sqrt(variance + epsilon)) {}
};
/// Of all elements of the runs together; in normalize.cpp.
template <class T>
RowStatistics<T> statistics_of(const Runs<T>& runs, T epsilon);

/// (x - mean - rest) rstd of one vector.
template <class T>
struct Standardize {
  T mean, rstd, rest;  // the rest times rstd, negated

  Standardize(T mean, T rest, T rstd) : mean(mean), rstd(rstd), rest(-rest * rstd) {}
  explicit Standardize(const RowStatistics<T>& s) : Standardize(s.mean, s.rest, s.rstd) {}
  REEL_INLINE Vec<T> operator()(Vec<T> x) const {
    return fma(x - Vec<T>::broadcast(mean), Vec<T>::broadcast(rstd), Vec<T>::broadcast(rest));
  }
};

/// What of the sums of g (y's gradient times scale), g xhat and x - mean over the n elements that are normalised together their
/// gradients are made of: dx = g rate + shift + xhat slope. xhat in the second sum is (x - mean) rate, without the rest.
template <class T>
struct RowGradient {
  T rate, rest, shift, slope;

  RowGradient(const Sums<T, 3>& sums, T rate, bool centered, int64_t n)
      : rate(rate), rest(centered ? sums.of[2] / static_cast<T>(n) : T(0)) {
    const T count = static_cast<T>(n);
    shift = centered ? -sums.of[0] / count * rate : T(0);
    slope = -(sums.of[1] - of_rest(sums.of[0])) / count * rate;
  }
  /// What the rest takes from a sum of g xhat, given that of g.
  T of_rest(T sum) const { return sum - sum == T(0) ? rest * rate * sum : T(0); }  // an infinite sum has none
  REEL_INLINE Vec<T> operator()(Vec<T> xhat, Vec<T> g) const {
    return fma(xhat, Vec<T>::broadcast(slope), fma(g, Vec<T>::broadcast(rate), Vec<T>::broadcast(shift)));
  }
};

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
