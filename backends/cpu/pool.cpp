// Pooling: a few rows of outputs at a time, tap by tap, and for each tap row by row, so that the inner loops run along rows, and
// no row is read right after it was written a few elements beside, which stalls. A result's taps are always taken in row-major
// order. Backward adds plane by plane.

#include "reel/backends/cpu/cpu_ops.h"
#include "reel/backends/cpu/kernel.h"
#include "reel/backends/cpu/simd.h"
#include "reel/backends/cpu/vector_loops.h"

namespace reel::cpu::REEL_CPU_ISA {
namespace {

/// parallel_for has two calls of its body: small work would have it inlined twice.
#define REEL_ONCE __attribute__((noinline))

REEL_INLINE int64_t product(const int64_t (&sizes)[3]) { return sizes[0] * sizes[1] * sizes[2]; }

/// Tap k along an axis: the outputs first .. last - 1 see it within the input, output o at o stride + shift.
struct AxisTap {
  int64_t first, last, shift;

  REEL_INLINE AxisTap(const Conv& c, int axis, int64_t k) : shift(k * c.dilation[axis] - c.padding[axis]) {
    const int64_t stride = c.stride[axis];
    first = shift < 0 ? ceil_div(-shift, stride) : 0;
    last = min(c.output[axis], ceil_div(max<int64_t>(0, c.input[axis] - shift), stride));
  }
  REEL_INLINE bool is_seen_by(int64_t o) const { return o >= first && o < last; }
};

/// How many elements an average over window o divides by along an axis (dilation 1): those within the input or, if
/// `count_padding`, within the padded input.
REEL_INLINE int64_t counted(const Conv& c, int axis, int64_t o, bool count_padding) {
  const int64_t padding = count_padding ? c.padding[axis] : 0, start = o * c.stride[axis] - c.padding[axis];
  return min(start + c.kernel[axis], c.input[axis] + padding) - max(start, -padding);
}

/// Rows that are worked on together: as many as stay in the first-level cache.
constexpr int64_t kRows = 16;

/// Calls f(tap, row, first, n, place) for each tap, and of rows begin .. end - 1 (at most kRows, counted through all planes)
/// for each that sees it: output first + j, j < n, of the row has it from element `place` + j stride of x.
template <class F>
REEL_INLINE void for_each_tap(const Conv& c, int64_t begin, int64_t end, F&& f) {
  int64_t o0[kRows], o1[kRows], plane[kRows];
  for (int64_t row = begin; row < end; ++row) {
    const int64_t r = row - begin;
    o1[r] = row % c.output[1];
    o0[r] = row / c.output[1] % c.output[0];
    plane[r] = row / c.output[1] / c.output[0] * product(c.input);
  }
  for (int64_t tap = 0; tap < product(c.kernel); ++tap) {
    const int64_t k01 = tap / c.kernel[2];
    const AxisTap tap0(c, 0, k01 / c.kernel[1]), tap1(c, 1, k01 % c.kernel[1]), tap2(c, 2, tap % c.kernel[2]);
    if (tap2.first >= tap2.last) continue;
    for (int64_t r = 0; r < end - begin; ++r) {
      if (!tap0.is_seen_by(o0[r]) || !tap1.is_seen_by(o1[r])) continue;
      const int64_t row = (o0[r] * c.stride[0] + tap0.shift) * c.input[1] + o1[r] * c.stride[1] + tap1.shift;
      f(tap, begin + r, tap2.first, tap2.last - tap2.first,
        plane[r] + row * c.input[2] + tap2.first * c.stride[2] + tap2.shift);
    }
  }
}

/// Calls f(begin, end, memory for their outputs) for groups of rows, at most kRows, in parallel.
template <class T, class F>
void for_rows(const Conv& c, F&& f) {
  const int64_t columns = c.output[2], cost = max<int64_t>(1, columns * product(c.kernel));
  const int64_t rows = c.batch * c.in * c.output[0] * c.output[1];
  parallel_for(rows, max<int64_t>(kRows, kGrain / cost), [&](int64_t begin, int64_t end) REEL_ONCE {
    const Scratch scratch(static_cast<std::size_t>(kRows * columns) * sizeof(T));
    for (; begin < end; begin += kRows) f(begin, min(end, begin + kRows), scratch.as<T>());
  });
}

/// Calls f(plane, dx of it) for each plane, in parallel, on zeros.
template <class T, class F>
void for_each_plane(const Conv& c, T* dx, F&& f) {
  const int64_t plane = product(c.input), cost = plane + product(c.output) * product(c.kernel);
  parallel_for(c.batch * c.in, max<int64_t>(1, kGrain / max<int64_t>(1, cost)),
               [&](int64_t begin, int64_t end) REEL_ONCE {
                 for (int64_t p = begin; p < end; ++p) {
                   T* to = dx + p * plane;
                   for (int64_t i = 0; i < plane; ++i) to[i] = 0;
                   f(p, to);
                 }
               });
}

// --- maxima -----------------------------------------------------------------------------------------------------------

/// Whose a maximum is while nothing was above -infinity.
constexpr int kNobody = -1;

/// An integer of T's size.
template <class T>
struct TapOf {
  using Type = int64_t;
};
template <>
struct TapOf<float> {
  using Type = std::int32_t;
};

/// best[i] and whose it is become x[i stride] and `tap` where that is larger or the first NaN.
template <class T, class Tap>
[[gnu::noinline]] void take_larger(const T* x, int64_t stride, int64_t n, Tap tap, T* best, Tap* whose) {
  const auto take = [=](int64_t i, T value) {
    const T so_far = best[i];
    const bool wins = !(value <= so_far) & (so_far == so_far);
    best[i] = wins ? value : so_far;
    whose[i] = wins ? tap : whose[i];
  };
  if (stride == 1) {
    for (int64_t i = 0; i < n; ++i) take(i, x[i]);
  } else {
    for (int64_t i = 0; i < n; ++i) take(i, x[i * stride]);
  }
}

/// The first place of the plane that a window sees, relative to where it starts, along one axis.
REEL_INLINE int64_t first_seen(const Conv& c, int axis, int64_t start) {
  return start < 0 ? ceil_div(-start, c.dilation[axis]) * c.dilation[axis] : 0;
}

template <class T>
void max_pool(const Conv& c, const T* x, T* y, int64_t* which) {
  using Tap = typename TapOf<T>::Type;
  const int64_t tap_count = product(c.kernel);
  const Scratch offsets(static_cast<std::size_t>(tap_count) * sizeof(int64_t));  // of each tap from the window's start
  int64_t* const offset = offsets.as<int64_t>();
  for (int64_t k = 0; k < tap_count; ++k) {
    const int64_t k0 = k / c.kernel[2] / c.kernel[1], k1 = k / c.kernel[2] % c.kernel[1], k2 = k % c.kernel[2];
    offset[k] = (k0 * c.dilation[0] * c.input[1] + k1 * c.dilation[1]) * c.input[2] + k2 * c.dilation[2];
  }
  for_rows<T>(c, [=, &c](int64_t begin, int64_t end, T* memory) {
    const int64_t columns = c.output[2];
    T* const best = y + begin * columns;
    Tap* whose = reinterpret_cast<Tap*>(memory);
    for (int64_t o = 0; o < (end - begin) * columns; ++o) {
      best[o] = -kInfinity<T>;
      whose[o] = kNobody;
    }
    for_each_tap(c, begin, end, [=, &c](int64_t tap, int64_t row, int64_t first, int64_t n, int64_t place) {
      const int64_t o = (row - begin) * columns + first;
      take_larger(x + place, c.stride[2], n, static_cast<Tap>(tap), best + o, whose + o);
    });
    if (which == nullptr) return;
    for (int64_t row = begin; row < end; ++row, whose += columns) {
      const int64_t o0 = row / c.output[1] % c.output[0], o1 = row % c.output[1];
      const int64_t start0 = o0 * c.stride[0] - c.padding[0], start1 = o1 * c.stride[1] - c.padding[1];
      const int64_t start = (start0 * c.input[1] + start1) * c.input[2];
      const int64_t first = first_seen(c, 0, start0) * c.input[1] * c.input[2] + first_seen(c, 1, start1) * c.input[2];
      int64_t* to = which + row * columns;
      for (int64_t o = 0; o < columns; ++o) {
        const int64_t start2 = o * c.stride[2] - c.padding[2];
        to[o] = start + start2 + (whose[o] == kNobody ? first + first_seen(c, 2, start2) : offset[whose[o]]);
      }
    }
  });
}

/// The usual windows: 2 x 2, side by side and wholly within the input.
REEL_INLINE bool is_two_by_two(const Conv& c) {
  const auto halves = [&](int axis) {
    return c.kernel[axis] == 2 && c.stride[axis] == 2 && c.dilation[axis] == 1 && c.padding[axis] == 0 &&
           2 * c.output[axis] <= c.input[axis];
  };
  constexpr int64_t most = std::int64_t{1} << 30;  // places within a window are counted in 32 bits
  return c.kernel[0] == 1 && c.stride[0] == 1 && c.padding[0] == 0 && halves(1) && halves(2) && c.input[2] < most;
}

/// Lanes 1, 3, 5, ... of low, then of high.
template <class T>
REEL_INLINE Vec<T> odd_lanes(Vec<T> low, Vec<T> high) {
  return pick_lanes<Vec<T>::width, [](int i) { return 2 * i + 1; }>(low, high);
}

/// Calls f(row, the upper of the two rows of x that its windows see) for each row of outputs, in parallel.
template <class F>
REEL_INLINE void for_each_row_2x2(const Conv& c, F f) {
  const int64_t rows = c.batch * c.in * c.output[0] * c.output[1];
  parallel_for(rows, max<int64_t>(1, kGrain / (4 * c.output[2])), [=, &c](int64_t begin, int64_t end) REEL_ONCE {
    int64_t below = begin % c.output[1], top = begin / c.output[1] * c.input[1] + 2 * below;
    for (int64_t row = begin; row < end; ++row, top += 2) {
      f(row, top);
      if (++below == c.output[1]) {
        below = 0;
        top += c.input[1] - 2 * c.output[1];
      }
    }
  });
}

/// A row of n windows over the rows `top` and `top` + width of a plane; to[i]: the place of the maximum, the window's being
/// start + 2 i; or null. By vectors, since a branch would be foreseen wrongly for every other window.
template <class T>
[[gnu::noinline]] void max_pool_row_2x2(const T* top, int64_t width, int64_t n, int64_t start, T* y, int64_t* to) {
  using V = Vec<T>;
  using Places = decltype(V().raw <= V().raw);  // integers of T's size
  using Place = typename TapOf<T>::Type;
  for (int64_t i = 0; i < n; i += V::width) {
    const int64_t count = min<int64_t>(n - i, V::width);
    const auto first = V::first(min<int64_t>(2 * count, V::width)),
               rest = V::first(max<int64_t>(2 * count - V::width, 0));
    const T* const p = top + 2 * i;
    const V a = V::load(p, first), b = V::load(p + V::width, rest);
    const V c = V::load(p + width, first), d = V::load(p + width + V::width, rest);
    V best = even_lanes(a, b);
    Places place = {};
    const auto take = [&](V x, int64_t at) {
      const Places wins = ~(x.raw <= best.raw) & (best.raw == best.raw);
      best.raw = wins ? x.raw : best.raw;
      place = wins ? static_cast<Place>(at) - Places{} : place;
    };
    take(odd_lanes(a, b), 1);
    take(even_lanes(c, d), width);
    take(odd_lanes(c, d), width + 1);
    best.store(y + i, V::first(count));
    if (to == nullptr) continue;
    for (int64_t lane = 0; lane < count; ++lane) to[i + lane] = start + 2 * (i + lane) + place[lane];
  }
}

template <class T>
void max_pool_2x2(const Conv& c, const T* x, T* y, int64_t* which) {
  const int64_t columns = c.output[2], width = c.input[2];
  for_each_row_2x2(c, [=, &c](int64_t row, int64_t top) {
    int64_t* const to = which != nullptr ? which + row * columns : nullptr;
    const int64_t start = to != nullptr ? top % (c.input[0] * c.input[1]) * width : 0;
    max_pool_row_2x2(x + top * width, width, columns, start, y + row * columns, to);
  });
}

template <class T>
void max_pool_backward(const Conv& c, const T* dy, const int64_t* which, T* dx) {
  const int64_t outputs = product(c.output);
  for_each_plane(c, dx, [=](int64_t plane, T* to) {
    for (int64_t o = plane * outputs; o < (plane + 1) * outputs; ++o) to[which[o]] += dy[o];
  });
}

// --- averages ---------------------------------------------------------------------------------------------------------

/// y[i y_stride] += x[i x_stride]
template <class T>
[[gnu::noinline]] void add_strided(const T* x, int64_t x_stride, T* y, int64_t y_stride, int64_t n) {
  if (x_stride == 1 && y_stride == 1) {
    for (int64_t i = 0; i < n; ++i) y[i] += x[i];
  } else {
    for (int64_t i = 0; i < n; ++i) y[i * y_stride] += x[i * x_stride];
  }
}

/// y[i] = x[i] / (rows counts[i])
template <class T>
[[gnu::noinline]] void divide_row(const T* x, T rows, const T* counts, T* y, int64_t n) {
  for (int64_t i = 0; i < n; ++i) y[i] = x[i] / (rows * counts[i]);
}

/// How many elements each window of a pooling counts.
template <class T>
struct Counts {
  const Conv& c;
  bool count_padding;
  Scratch columns;

  Counts(const Conv& c_, bool count_padding_)
      : c(c_), count_padding(count_padding_), columns(static_cast<std::size_t>(c.output[2]) * sizeof(T)) {
    for (int64_t o = 0; o < c.output[2]; ++o) columns.as<T>()[o] = static_cast<T>(counted(c, 2, o, count_padding));
  }
  /// y = x / counts for a row of windows.
  REEL_INLINE void divide(int64_t row, const T* x, T* y) const {
    const int64_t rows =
        counted(c, 0, row / c.output[1] % c.output[0], count_padding) * counted(c, 1, row % c.output[1], count_padding);
    divide_row(x, static_cast<T>(rows), columns.as<T>(), y, c.output[2]);
  }
};

/// Averages of the usual windows have loops of their own where they are most used: the library is to stay small.
template <class T>
inline constexpr bool kHasAverage2x2 = sizeof(T) == 4 && kVectorBytes > 16;

/// The averages of a row of n windows over the rows `top` and `top` + width.
template <class T>
[[gnu::noinline]] void average_row_2x2(const T* top, int64_t width, int64_t n, T* y) {
  using V = Vec<T>;
  for (int64_t i = 0; i < n; i += V::width) {
    const int64_t count = min<int64_t>(n - i, V::width);
    const auto first = V::first(min<int64_t>(2 * count, V::width)),
               rest = V::first(max<int64_t>(2 * count - V::width, 0));
    V sum = V::zero();
    for (const T* const p : {top + 2 * i, top + width + 2 * i}) {
      const V a = V::load(p, first), b = V::load(p + V::width, rest);
      sum = sum + even_lanes(a, b) + odd_lanes(a, b);
    }
    (sum * V::broadcast(T(0.25))).store(y + i, V::first(count));
  }
}

template <class T>
void average_pool_2x2(const Conv& c, const T* x, T* y) {
  const int64_t columns = c.output[2], width = c.input[2];
  for_each_row_2x2(
      c, [=](int64_t row, int64_t top) { average_row_2x2(x + top * width, width, columns, y + row * columns); });
}

template <class T>
void average_pool(const Conv& c, bool count_padding, const T* x, T* y) {
  if (kHasAverage2x2<T> && is_two_by_two(c)) return average_pool_2x2(c, x, y);
  const Counts<T> counts(c, count_padding);
  for_rows<T>(c, [&](int64_t begin, int64_t end, T* sums) {
    const int64_t columns = c.output[2];
    for (int64_t o = 0; o < (end - begin) * columns; ++o) sums[o] = 0;
    for_each_tap(c, begin, end, [&](int64_t, int64_t row, int64_t first, int64_t n, int64_t place) {
      add_strided(x + place, c.stride[2], sums + (row - begin) * columns + first, 1, n);
    });
    for (int64_t row = begin; row < end; ++row) {
      counts.divide(row, sums + (row - begin) * columns, y + row * columns);
    }
  });
}

/// Writes the gradients of a row of n windows to the rows `top` and `top` + width. (0 is added to each, which leaves no -0.)
template <class T>
[[gnu::noinline]] void spread_row_2x2(const T* dy, int64_t n, T* top, int64_t width) {
  using V = Vec<T>;
  for (int64_t i = 0; i < n; i += V::width) {
    const int64_t count = min<int64_t>(n - i, V::width);
    const auto first = V::first(min<int64_t>(2 * count, V::width)),
               rest = V::first(max<int64_t>(2 * count - V::width, 0));
    const V share = V::load(dy + i, V::first(count)) * V::broadcast(T(0.25)) + V::zero();
    for (T* const p : {top + 2 * i, top + width + 2 * i}) {
      twice_low(share).store(p, first);
      twice_high(share).store(p + V::width, rest);
    }
  }
}

template <class T>
void average_pool_backward_2x2(const Conv& c, const T* dy, T* dx) {
  const int64_t columns = c.output[2], width = c.input[2];
  for_each_plane(c, dx, [=, &c](int64_t plane, T* to) {
    const T* from = dy + plane * product(c.output);
    for (int64_t slice = 0; slice < c.input[0]; ++slice, to += c.input[1] * width) {
      for (int64_t row = 0; row < c.output[1]; ++row, from += columns)
        spread_row_2x2(from, columns, to + 2 * row * width, width);
    }
  });
}

template <class T>
void average_pool_backward(const Conv& c, bool count_padding, const T* dy, T* dx) {
  if (kHasAverage2x2<T> && is_two_by_two(c)) return average_pool_backward_2x2(c, dy, dx);
  const Counts<T> counts(c, count_padding);
  const int64_t columns = c.output[2], rows = c.output[0] * c.output[1];
  for_each_plane(c, dx, [&](int64_t plane, T*) {
    const Scratch scratch(static_cast<std::size_t>(kRows * columns) * sizeof(T));
    T* const shares = scratch.as<T>();
    for (int64_t begin = plane * rows; begin < (plane + 1) * rows; begin += kRows) {
      const int64_t end = min((plane + 1) * rows, begin + kRows);
      for (int64_t row = begin; row < end; ++row) {
        counts.divide(row, dy + row * columns, shares + (row - begin) * columns);
      }
      for_each_tap(c, begin, end, [&](int64_t, int64_t row, int64_t first, int64_t n, int64_t place) {
        add_strided(shares + (row - begin) * columns + first, 1, dx + place, c.stride[2], n);
      });
    }
  });
}

}  // namespace

void CpuOps::pool(PoolOp op, const Conv& geometry, bool count_padding, const Array& x, const Array& y,
                  const Array* which) {
  if (y.size == 0) return;
  dispatch_floating(y.dtype, [&]<class T>() {
    int64_t* const places = which != nullptr ? which->as<int64_t>() : nullptr;
    if (op == PoolOp::max && is_two_by_two(geometry)) {
      max_pool_2x2(geometry, x.as<T>(), y.as<T>(), places);
    } else if (op == PoolOp::max) {
      max_pool(geometry, x.as<T>(), y.as<T>(), places);
    } else {
      average_pool(geometry, count_padding, x.as<T>(), y.as<T>());
    }
  });
}

void CpuOps::pool_backward(PoolOp op, const Conv& geometry, bool count_padding, const Array& dy, const Array* which,
                           const Array& dx) {
  if (dx.size == 0) return;
  dispatch_floating(dx.dtype, [&]<class T>() {
    if (op == PoolOp::max) {
      max_pool_backward(geometry, dy.as<T>(), which->as<int64_t>(), dx.as<T>());
    } else {
      average_pool_backward(geometry, count_padding, dy.as<T>(), dx.as<T>());
    }
  });
}

}  // namespace reel::cpu::REEL_CPU_ISA
