// Rows brought to mean 0 and variance 1, or to root mean square 1. A row stays in the cache for its passes: sums, then output,
// which runs along with the next row's first pass: there is arithmetic while that comes from afar.
//
// Mean and variance are summed in one pass, about the mean of the row's first elements: while its distance from the mean is
// below the deviation, subtracting the distance's square costs a bit at most. Otherwise, as in constant rows, a second pass sums
// the squares about the mean, so that neither a large mean nor a constant row costs digits. What rounding takes from the mean
// (`rest`) is subtracted too; backward, which is given the rounded mean, finds it again.

#include "reel/backends/cpu/normalize.h"
#include "reel/backends/cpu/cpu_ops.h"
#include "reel/backends/cpu/kernel.h"
#include "reel/backends/cpu/stream.h"

namespace reel::cpu::REEL_CPU_ISA {
namespace {

/// The sums of d and d^2, d = x - pivot.
template <class T>
REEL_INLINE Pack<T, 2> add_moments(const Pack<T, 2>& acc, auto lanes, Vec<T> x, T pivot) {
  const Vec<T> d = existing(lanes, x - Vec<T>::broadcast(pivot));
  return {{acc.v[0] + d, fma(d, d, acc.v[1])}};
}
template <class T>
__attribute__((noinline)) Sums<T, 2> moments_of_runs(T pivot, const Runs<T>& runs) {
  const T* const first = runs.x;
  return sum_runs<T, 2>(
      RunPieces<T>(runs.length), runs.count,
      [ =, step = runs.step ](const auto& acc, auto lanes, int64_t run, int64_t i) __attribute__((always_inline)) {
        return add_moments(acc, lanes, lanes.load(first + run * step + i), pivot);
      });
}
template <class T>
REEL_INLINE Sums<T, 2> moments_about(T pivot, const Runs<T>& runs) {
  if (runs.count > 1) return moments_of_runs(pivot, runs);
  return sum_terms<T, 2>(
      runs.length, [ =, x = runs.x ](const auto& acc, auto lanes, int64_t i)
                       __attribute__((always_inline)) { return add_moments(acc, lanes, lanes.load(x + i), pivot); });
}

/// The mean, which overflows where it does so on other backends and in recorded gradients.
template <class T>
__attribute__((noinline)) T mean_from_first(const Runs<T>& runs) {
  return runs.x[0] + moments_about(runs.x[0], runs).of[0] / static_cast<T>(runs.size());
}

/// In a second pass over the same elements.
template <class T>
__attribute__((noinline)) RowStatistics<T> statistics_about(T mean, const Runs<T>& runs, T epsilon) {
  const Sums<T, 2> sums = moments_about(mean, runs);
  const T count = static_cast<T>(runs.size()), rest = sums.of[0] / count, squares = sums.of[1] / count;
  const T variance = squares == kInfinity<T> ? squares : squares - rest * rest;  // no infinity - infinity
  return {mean, rest, variance, epsilon};
}

/// From the sums of d and d^2, d = x - pivot.
template <class T>
REEL_INLINE RowStatistics<T> statistics_from(const Sums<T, 2>& sums, T pivot, const Runs<T>& runs, T epsilon) {
  const T count = static_cast<T>(runs.size()), above = sums.of[0] / count, squares = sums.of[1] / count;
  if (!(squares < kInfinity<T>)) return statistics_about(mean_from_first(runs), runs, epsilon);
  const T mean = pivot + above;
  if (!(above * above < squares / 2)) return statistics_about(mean, runs, epsilon);
  return {mean, above - (mean - pivot), squares - above * above, epsilon};
}

/// The mean of a row's first elements, about.
template <class T>
REEL_INLINE T near_mean(const T* x, int64_t n) {
  const int64_t count = min<int64_t>(n, 16);
  const Vec<T> share = Vec<T>::broadcast(T(1) / static_cast<T>(count));  // shares do not overflow
  Vec<T> sum = Vec<T>::zero();
  for_each_vector<T>(0, count, [&](auto lanes, int64_t i) { sum = fma(lanes.load(x + i), share, sum); });
  return reduce_add(sum);
}

}  // namespace

template <class T>
RowStatistics<T> statistics_of(const Runs<T>& runs, T epsilon) {
  const T pivot = near_mean(runs.x, runs.length);
  return statistics_from(moments_about(pivot, runs), pivot, runs, epsilon);
}
template RowStatistics<float> statistics_of(const Runs<float>&, float);
template RowStatistics<double> statistics_of(const Runs<double>&, double);

namespace {

/// Of a row, whose mean is taken as 0 without centering; along(lanes, i) runs with the first pass.
template <class T>
REEL_INLINE RowStatistics<T> statistics_along(const T* x, int64_t n, bool center, T epsilon, auto along) {
  if (center) {
    const T pivot = near_mean(x, n);
    const Sums<T, 2> moments = sum_terms<T, 2>(
        n, [=](const Pack<T, 2>& acc, auto lanes, int64_t i) __attribute__((always_inline)) {
          const Vec<T> v = lanes.load(x + i);  // before the store: as far into a page, a load would wait for it
          along(lanes, i);
          return add_moments(acc, lanes, v, pivot);
        });
    return statistics_from(moments, pivot, Runs<T>{x, n}, epsilon);
  }
  const T squares = sum_row<T>(
      n, [=](Vec<T> acc, auto lanes, int64_t i) __attribute__((always_inline)) {
        const Vec<T> v = lanes.load(x + i);
        along(lanes, i);
        return fma(v, v, acc);
      });
  return {0, 0, squares / static_cast<T>(n), epsilon};
}

/// Writes a row.
template <class T>
struct RowWriter {
  const T *x, *scale, *shift;
  T* y;
  Standardize<T> standard;

  REEL_INLINE void operator()(auto lanes, int64_t i) const {
    Vec<T> v = standard(lanes.load(x + i));
    if (scale != nullptr) v = v * lanes.load(scale + i);
    if (shift != nullptr) v = v + lanes.load(shift + i);
    lanes.store(y + i, v);
  }
};

/// Bytes that dx's lines are asked for ahead where two rows are written: the first cache has no room for the next two beside them.
constexpr int64_t kWriteAhead = 2048;

/// What backward reads and writes; null: not there, not wanted.
template <class T>
struct Backward {
  const T *x, *scale, *mean, *rstd, *dy;
  T* dx;
  bool add;  // to dx
  int64_t n;

  /// What the second pass over a row needs of it.
  struct Row {
    const T *x, *dy;
    T* dx;
    Standardize<T> standard;
    RowGradient<T> gradient;
  };

  /// all: none of the pointers is null, and no loop asks.
  template <bool all>
  static REEL_INLINE Vec<T> scaled(const T* scale, Vec<T> dy, auto lanes, int64_t i) {
    return all || scale != nullptr ? dy * lanes.load(scale + i) : dy;
  }

  /// The first pass over row r. (The lambdas capture copies: what is reached through `this` would be read again after each store.)
  template <bool all>
  REEL_INLINE Row first_pass(int64_t r) const {
    const T *const from = x + r * n, *const grad = dy + r * n;
    const T center = all || mean != nullptr ? mean[r] : T(0), rate = rstd[r];
    const Sums<T, 3> sums = sum_terms<T, 3>(n, [=, scale = scale](const Pack<T, 3>& acc, auto lanes, int64_t i) {
      const Vec<T> g = scaled<all>(scale, lanes.load(grad + i), lanes, i);
      const Vec<T> d = existing(lanes, lanes.load(from + i) - Vec<T>::broadcast(center));
      return Pack<T, 3>{{acc.v[0] + g, fma(g, d * Vec<T>::broadcast(rate), acc.v[1]), acc.v[2] + d}};
    });
    const RowGradient<T> gradient(sums, rate, mean != nullptr, n);
    return {from, grad, all || dx != nullptr ? dx + r * n : nullptr, Standardize<T>(center, gradient.rest, rate),
            gradient};
  }

  /// dx of `count` rows; their dy xhat and dy are added to the rows' places in dscale and dshift, which are read and written once
  /// for all of them.
  template <bool all, int count>
  REEL_INLINE void second_pass(const Row (&rows)[count], T* dscale, T* dshift) const {
    for_each_vector<T>(0, n, [=, n = n, add = add, scale = scale](auto lanes, int64_t i) {
      Vec<T> of_scale = Vec<T>::zero(), of_shift = of_scale;
#pragma GCC unroll 2
      for (int k = 0; k < count; ++k) {
        const Row& row = rows[k];
        const Vec<T> dy_i = lanes.load(row.dy + i), xhat = row.standard(lanes.load(row.x + i));
        if (all || row.dx != nullptr) {
          if (count == 1) prefetch_next_row(row.dx + i, n);
          else __builtin_prefetch(row.dx + i + kWriteAhead / static_cast<int64_t>(sizeof(T)), 1);
          const Vec<T> dx_i = row.gradient(xhat, scaled<all>(scale, dy_i, lanes, i));
          lanes.store(row.dx + i, add ? lanes.load(row.dx + i) + dx_i : dx_i);
        }
        if (all || dscale != nullptr) of_scale = fma(dy_i, xhat, k == 0 ? lanes.load(dscale + i) : of_scale);
        if (all || dshift != nullptr) of_shift = dy_i + (k == 0 ? lanes.load(dshift + i) : of_shift);
      }
      if (all || dscale != nullptr) lanes.store(dscale + i, of_scale);
      if (all || dshift != nullptr) lanes.store(dshift + i, of_shift);
    });
  }
};

/// Rows whose part of dscale and dshift is added up in plain order; the parts are joined pairwise.
REEL_INLINE int64_t rows_of_part(int64_t n) { return min<int64_t>(max<int64_t>(2 * kGrain / n, 8), 128); }

}  // namespace

void CpuOps::normalize(const Array& x, bool center, double epsilon, const Array* scale, const Array* shift,
                       const Array& y, const Array* mean, const Array& rstd) {
  if (x.size == 0) return;
  const int64_t rows = x.shape[0], n = x.shape[1];
  dispatch_floating(x.dtype, [&]<class T>() {
    const T *const scales = scale ? scale->as<T>() : nullptr, *const shifts = shift ? shift->as<T>() : nullptr;
    parallel_for(rows, max<int64_t>(1, kNormalizeGrain / n), [&](int64_t begin, int64_t end) {
      const T* from = x.as<T>() + begin * n;
      const auto eps = static_cast<T>(epsilon);
      RowStatistics<T> s =
          center ? statistics_of(Runs<T>{from, n}, eps) : statistics_along(from, n, false, eps, Nothing{});
      for (int64_t r = begin; r < end; ++r, from += n) {
        if (mean != nullptr) mean->as<T>()[r] = s.mean + s.rest;
        rstd.as<T>()[r] = s.rstd;
        const RowWriter<T> write{from, scales, shifts, y.as<T>() + r * n, Standardize<T>(s)};
        if (r + 1 < end) {
          s = statistics_along(from + n, n, center, eps, write);
        } else {
          for_each_vector<T>(0, n, write);
        }
      }
    });
  });
}

void CpuOps::normalize_backward(const Array& x, bool, const Array* scale, const Array* mean, const Array& rstd,
                                const Array& dy, const GradientSink& dx, const Array* dscale, const Array* dshift) {
  const int64_t rows = x.shape[0], n = x.shape[1];
  if (n == 0) return;
  dispatch_floating(x.dtype, [&]<class T>() {
    const auto pointer = [](const Array* array) { return array == nullptr ? nullptr : array->as<T>(); };
    const Backward<T> work{x.as<T>(),  pointer(scale), pointer(mean), rstd.as<T>(),
                           dy.as<T>(), dx.to.as<T>(),  dx.add,        n};
    const int64_t part = rows_of_part(n), parts = max<int64_t>(1, ceil_div(rows, part));
    const int64_t width = (dscale ? n : 0) + (dshift ? n : 0);
    // Two rows at a time take 1.03 to 1.1 times as long where x, dy and dx come from memory, which rests meanwhile.
    const bool from_memory = is_past_caches(3 * x.size * static_cast<int64_t>(sizeof(T)), kStreamElementsBytes);
    const Scratch scratch(sizeof(T) * static_cast<std::size_t>(parts * width));
    __builtin_memset(scratch.as<T>(), 0, sizeof(T) * static_cast<std::size_t>(parts * width));
    parallel_for(ceil_div(rows, part), max<int64_t>(1, kNormalizeGrain / (part * n)), [&](int64_t begin, int64_t end) {
      for (int64_t p = begin; p < end; ++p) {
        T* const sums = scratch.as<T>() + p * width;
        T *const scales = dscale ? sums : nullptr, *const shifts = dshift ? sums + width - n : nullptr;
        const bool all = mean != nullptr && scale != nullptr && dx.wanted() && dscale != nullptr && dshift != nullptr;
        int64_t r = p * part;
        const int64_t last = min(rows, r + part);
        if (all && !from_memory) {
          for (; r + 2 <= last; r += 2)
            work.template second_pass<true, 2>(
                {work.template first_pass<true>(r), work.template first_pass<true>(r + 1)}, scales, shifts);
        }
        for (; r < last; ++r) work.template second_pass<false, 1>({work.template first_pass<false>(r)}, scales, shifts);
      }
    });
    if (width == 0) return;
    add_parts(scratch.as<T>(), parts, width);
    const auto give = [&](const Array* to, const T* sums) {
      if (to != nullptr) __builtin_memcpy(to->data, sums, sizeof(T) * static_cast<std::size_t>(n));
    };
    give(dscale, scratch.as<T>());
    give(dshift, scratch.as<T>() + width - n);
  });
}

}  // namespace reel::cpu::REEL_CPU_ISA
