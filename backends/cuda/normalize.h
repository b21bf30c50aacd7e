#pragma once

#include "reel/backends/cuda/held_rows.h"
#include "reel/core/scalar/math.h"

// What the kernels for normalised rows share.

namespace reel::cuda {

namespace device {

template <class T, int K>
struct Sums {
  T of[K];
};
template <class T, int K>
REEL_DEVICE Sums<T, K> from_lane(const Sums<T, K>& sums, int other) {
  Sums<T, K> theirs;
  REEL_UNROLL
  for (int k = 0; k < K; ++k) theirs.of[k] = from_lane(sums.of[k], other);
  return theirs;
}

template <class Group, class T, int K>
REEL_DEVICE Sums<T, K> join_sums(Group group, const Sums<T, K>& own, Sums<T, K>* scratch) {
  return group.join(own, scratch, [](const Sums<T, K>& a, const Sums<T, K>& b) {
    Sums<T, K> sums;
    REEL_UNROLL
    for (int k = 0; k < K; ++k) sums.of[k] = a.of[k] + b.of[k];
    return sums;
  });
}

/// f(i) for the packs of `count` elements of a row from begin to end that are this thread's.
template <int count, class F>
REEL_DEVICE void each_pack(RowGroup group, int64_t begin, int64_t end, F f) {
  for (int64_t i = begin + static_cast<int64_t>(group.lane()) * count; i < end;
       i += static_cast<int64_t>(group.width()) * count)
    f(i);
}

/// The sums over a row's pieces.
template <class Group, class T, int K>
REEL_DEVICE Sums<T, K> join_pieces(Group group, const Sums<T, K>* of_pieces, int64_t count, Sums<T, K>* scratch) {
  Sums<T, K> own{};
  for (int64_t p = group.lane(); p < count; p += group.width()) {
    REEL_UNROLL
    for (int k = 0; k < K; ++k) own.of[k] += of_pieces[p].of[k];
  }
  return join_sums(group, own, scratch);
}

/// Adds x - origin and its square.
template <class T, int count>
REEL_DEVICE void add_moments(Sums<T, 2>& sums, const Pack<T, count>& x, T origin) {
  REEL_UNROLL
  for (int k = 0; k < count; ++k) {
    const T d = x.v[k] - origin;
    sums.of[0] += d;
    sums.of[1] = scalar::fma(d, d, sums.of[1]);
  }
}

/// Adds g, g (x - center) rate and x - center.
template <class T, int count>
REEL_DEVICE void add_gradient(Sums<T, 3>& sums, const Pack<T, count>& x, const Pack<T, count>& g, T center, T rate) {
  REEL_UNROLL
  for (int k = 0; k < count; ++k) {
    const T d = x.v[k] - center;
    sums.of[0] += g.v[k];
    sums.of[1] = scalar::fma(g.v[k], d * rate, sums.of[1]);
    sums.of[2] += d;
  }
}

/// The mean is mean + rest, which is 0 without centering.
template <class T>
struct RowStatistics {
  T mean, rest, rstd, variance = 0;
  REEL_DEVICE T standardize(T x) const { return scalar::fma(x - mean, rstd, -rest * rstd); }
  /// The sum of g xhat, of those of g and of g (x - mean) rstd.
  REEL_DEVICE T standardize_sum(T of_g, T of_product) const {
    return of_product - (of_g - of_g == T(0) ? rest * rstd * of_g : T(0));  // an infinite sum has no rest
  }
};

/// A pack of a row from column i on, brought to mean 0 and variance 1, times scale plus shift, which may be null.
template <class T, int count, class Index>
REEL_DEVICE Pack<T, count> normalized(const RowStatistics<T>& statistics, Pack<T, count> value, const T* scale,
                                      const T* shift, Index i) {
  Pack<T, count> factor, term;
  if (scale != nullptr) factor = load_pack<T, count>(scale + i);
  if (shift != nullptr) term = load_pack<T, count>(shift + i);
  REEL_UNROLL
  for (int k = 0; k < count; ++k) {
    value.v[k] = statistics.standardize(value.v[k]);
    if (scale != nullptr) value.v[k] *= factor.v[k];
    if (shift != nullptr) value.v[k] += term.v[k];
  }
  return value;
}

/// From two passes over a row: `sum(origin)` of x - origin, for which the first element is the origin and which gives the mean,
/// and `sums(origin)` of that and of its square, around the mean. Without centering around 0 and only the second one.
template <class T, class First, class Second>
REEL_DEVICE RowStatistics<T> statistics_of(T first, int64_t n, bool center, T epsilon, First sum, Second sums) {
  const T size = static_cast<T>(n);
  if (!center) return {0, 0, T(1) / scalar::sqrt(sums(T(0)).of[1] / size + epsilon)};
  const T mean = first + sum(first) / size;
  const Sums<T, 2> around_mean = sums(mean);
  const T rest = around_mean.of[0] / size, squares = around_mean.of[1] / size;
  const T variance = squares == scalar::infinity<T>() ? squares : squares - rest * rest;  // no infinity - infinity
  return {mean, rest, T(1) / scalar::sqrt(variance + epsilon), variance};
}

/// What backward reads and writes; null: not there, not wanted.
template <class T>
struct Gradient {
  const T *x, *scale, *mean, *rstd, *dy;
  T *dx, *parts;  // parts [blocks, width], where rows are cut [rows, width]: sums for dscale, then dshift
  int64_t rows, n;
  bool dscale, dshift;
  bool add;  // to dx

  __host__ __device__ int64_t width() const { return (dscale ? n : 0) + (dshift ? n : 0); }
  REEL_DEVICE T center(int64_t r) const { return mean != nullptr ? mean[r] : T(0); }
  /// A pack of dy times scale.
  template <int count>
  REEL_DEVICE Pack<T, count> scaled(Pack<T, count> grad, int64_t i) const {
    if (scale == nullptr) return grad;
    const auto factor = load_pack<T, count>(scale + i);
    REEL_UNROLL
    for (int k = 0; k < count; ++k) grad.v[k] *= factor.v[k];
    return grad;
  }
};

/// What of a row's sums of g = dy scale, g xhat and x - mean (K = 3) its gradient is made of.
template <class T>
struct RowGradient {
  RowStatistics<T> statistics;
  T shift, slope;

  REEL_DEVICE RowGradient(const Sums<T, 3>& total, T center, T rate, bool centered, int64_t n) {
    const T size = static_cast<T>(n);
    statistics = {center, centered ? total.of[2] / size : T(0), rate};
    shift = centered ? -total.of[0] / size * rate : T(0);
    slope = -statistics.standardize_sum(total.of[0], total.of[1]) / size * rate;
  }
  /// dx of an element.
  REEL_DEVICE T at(T xhat, T g) const { return scalar::fma(xhat, slope, scalar::fma(g, statistics.rstd, shift)); }
};

}  // namespace device

/// How rows are cut that are too few to fill the GPU.
inline device::RowPieces pieces_for(const Context& context, int64_t rows, int64_t n) {
  constexpr int64_t kLeast = 8192;  // elements of a piece
  const int64_t wanted = int64_t{context.processors()} * 4 / rows, room = n / kLeast;
  const int64_t count = wanted < room ? wanted : room;
  if (count < 2) return {1, n};
  const int64_t length = ceil_div(ceil_div(n, count), 64) * 64;  // pieces begin where packs do
  return {ceil_div(n, length), length};
}
/// And their launch, a block for each piece.
inline device::RowPieces pieces_for(const Context& context, int64_t rows, int64_t n, Grid& grid) {
  const device::RowPieces pieces = pieces_for(context, rows, n);
  if (pieces.count == 1) return pieces;
  grid.threads = kThreads;
  grid.blocks = rows * pieces.count;
  return pieces;
}

/// In normalize_held.cu: rows of up to kLongestHeld<T> elements.
template <class T>
void normalize_held(const Context& context, const T* x, bool center, double epsilon, const T* scale, const T* shift,
                    T* y, T* mean, T* rstd, int64_t rows, int64_t n);

/// The longest row of which a block holds x, dy and the sums for the weights.
template <class T>
inline constexpr int kLongestHeldGradient = kMostThreads * 4 * kPack<T>;
/// Its launch; g.parts has a row of g.width() for each block.
template <class T>
HeldPlan held_gradient_plan(const Context& context, int64_t rows, int64_t n, int64_t width);
template <class T>
void normalize_backward_held(const Context& context, const HeldPlan& plan, const device::Gradient<T>& g);

}  // namespace reel::cuda
