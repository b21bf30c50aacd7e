// Pooling: row by row of outputs, and within a row tap by tap, so that the inner loops run along rows. A result's taps are
// always taken in row-major order. Backward adds plane by plane.

#include "reel/backends/cpu/cpu_ops.h"
#include "reel/backends/cpu/kernel.h"

namespace reel::cpu::REEL_CPU_ISA {
namespace {

REEL_INLINE int64_t product(const int64_t (&sizes)[3]) { return sizes[0] * sizes[1] * sizes[2]; }

/// The taps k = begin .. end - 1 of the window of output o along an axis that lie within the input.
struct Taps {
  int64_t begin, end;
  int64_t start;  // where tap 0 lies

  REEL_INLINE Taps(const Conv& c, int axis, int64_t o) : start(o * c.stride[axis] - c.padding[axis]) {
    begin = start < 0 ? ceil_div(-start, c.dilation[axis]) : 0;
    end = min(c.kernel[axis], ceil_div(max<int64_t>(0, c.input[axis] - start), c.dilation[axis]));
  }
};

/// How many elements an average over window o divides by along an axis (dilation 1): those within the input or, if
/// `count_padding`, within the padded input.
REEL_INLINE int64_t counted(const Conv& c, int axis, int64_t o, bool count_padding) {
  const int64_t padding = count_padding ? c.padding[axis] : 0, start = o * c.stride[axis] - c.padding[axis];
  return min(start + c.kernel[axis], c.input[axis] + padding) - max(start, -padding);
}

/// Calls f(tap, first, last, i) for each tap of a row of outputs (o0, o1, 0 ..): the outputs first .. last - 1 see it within
/// the input; i is the place in the plane, i + o stride, from which output o has it.
template <class F>
REEL_INLINE void for_each_tap(const Conv& c, const Taps& taps0, const Taps& taps1, F&& f) {
  const int64_t stride = c.stride[2];
  for (int64_t k0 = taps0.begin; k0 < taps0.end; ++k0) {
    for (int64_t k1 = taps1.begin; k1 < taps1.end; ++k1) {
      const int64_t i0 = taps0.start + k0 * c.dilation[0], i1 = taps1.start + k1 * c.dilation[1];
      for (int64_t k2 = 0; k2 < c.kernel[2]; ++k2) {
        const int64_t shift = k2 * c.dilation[2] - c.padding[2];
        const int64_t first = shift < 0 ? ceil_div(-shift, stride) : 0;
        const int64_t last = min(c.output[2], ceil_div(max<int64_t>(0, c.input[2] - shift), stride));
        f((k0 * c.kernel[1] + k1) * c.kernel[2] + k2, first, last, (i0 * c.input[1] + i1) * c.input[2] + shift);
      }
    }
  }
}

/// f(stride), a constant where that is 1, so that the loop in f becomes one over neighbours.
template <class F>
REEL_INLINE void with_stride(int64_t stride, F&& f) {
  if (stride == 1) {
    f(1);
  } else {
    f(stride);
  }
}

/// Calls f(plane, o0, o1, row) for each row of outputs, in parallel; f gets memory for a row of T.
template <class T, class F>
void for_each_row(const Conv& c, F&& f) {
  const int64_t rows = c.output[0] * c.output[1], columns = c.output[2];
  const int64_t cost = max<int64_t>(1, columns * product(c.kernel));
  parallel_for(c.batch * c.in * rows, max<int64_t>(1, kGrain / cost), [&](int64_t begin, int64_t end) {
    const Scratch scratch(static_cast<std::size_t>(columns) * sizeof(T));
    for (int64_t unit = begin; unit < end; ++unit) {
      const int64_t row = unit % rows;
      f(unit / rows, row / c.output[1], row % c.output[1], unit * columns, scratch.as<T>());
    }
  });
}

/// Calls f(plane, dx of it) for each plane, in parallel, on zeros.
template <class T, class F>
void for_each_plane(const Conv& c, T* dx, F&& f) {
  const int64_t plane = product(c.input), cost = plane + product(c.output) * product(c.kernel);
  parallel_for(c.batch * c.in, max<int64_t>(1, kGrain / max<int64_t>(1, cost)), [&](int64_t begin, int64_t end) {
    for (int64_t p = begin; p < end; ++p) {
      T* to = dx + p * plane;
      for (int64_t i = 0; i < plane; ++i) to[i] = 0;
      f(p, to);
    }
  });
}

/// The first of the largest elements; the first NaN beats all. `tap` remembers which it was.
template <class T, class Tap>
void max_row(const Conv& c, const T* x, const Taps& taps0, const Taps& taps1, T* best, Tap* tap) {
  for (int64_t o = 0; o < c.output[2]; ++o) {
    best[o] = -__builtin_inf();
    tap[o] = -1;
  }
  for_each_tap(c, taps0, taps1, [&](int64_t k, int64_t first, int64_t last, int64_t i) {
    const T* from = x + i;
    const Tap this_tap = static_cast<Tap>(k);
    with_stride(c.stride[2], [&](auto stride) {
      for (int64_t o = first; o < last; ++o) {
        const T value = from[o * stride], so_far = best[o];
        const bool wins = (value > so_far) | ((value != value) & (so_far == so_far)) | (tap[o] < 0);
        best[o] = wins ? value : so_far;
        tap[o] = wins ? this_tap : tap[o];
      }
    });
  });
}

/// Sums of the windows' elements.
template <class T>
void sum_row(const Conv& c, const T* x, const Taps& taps0, const Taps& taps1, T* sums) {
  for (int64_t o = 0; o < c.output[2]; ++o) sums[o] = 0;
  for_each_tap(c, taps0, taps1, [&](int64_t, int64_t first, int64_t last, int64_t i) {
    const T* from = x + i;
    with_stride(c.stride[2], [&](auto stride) {
      for (int64_t o = first; o < last; ++o) sums[o] += from[o * stride];
    });
  });
}

/// y[o] = x[o] / the number of elements that window o of row (o0, o1) counts.
template <class T>
void divide_row(const Conv& c, bool count_padding, int64_t o0, int64_t o1, const T* x, T* y) {
  const int64_t rows = counted(c, 0, o0, count_padding) * counted(c, 1, o1, count_padding);
  for (int64_t o = 0; o < c.output[2]; ++o) y[o] = x[o] / static_cast<T>(rows * counted(c, 2, o, count_padding));
}

/// An integer of T's size.
template <class T>
struct TapOf {
  using Type = int64_t;
};
template <>
struct TapOf<float> {
  using Type = std::int32_t;
};

template <class T>
void max_pool(const Conv& c, const T* x, T* y, int64_t* which) {
  using Tap = typename TapOf<T>::Type;
  const int64_t plane_size = product(c.input), taps = product(c.kernel);
  const Scratch offsets(static_cast<std::size_t>(taps) * sizeof(int64_t));  // of each tap from the window's start
  int64_t* const offset = offsets.as<int64_t>();
  for (int64_t k = 0; k < taps; ++k) {
    const int64_t k0 = k / c.kernel[2] / c.kernel[1], k1 = k / c.kernel[2] % c.kernel[1], k2 = k % c.kernel[2];
    offset[k] = (k0 * c.dilation[0] * c.input[1] + k1 * c.dilation[1]) * c.input[2] + k2 * c.dilation[2];
  }
  for_each_row<T>(c, [=, &c](int64_t plane, int64_t o0, int64_t o1, int64_t row, T* memory) {
    const Taps taps0(c, 0, o0), taps1(c, 1, o1);
    Tap* const tap = reinterpret_cast<Tap*>(memory);
    max_row(c, x + plane * plane_size, taps0, taps1, y + row, tap);
    if (which == nullptr) return;
    const int64_t start = (taps0.start * c.input[1] + taps1.start) * c.input[2] - c.padding[2];
    for (int64_t o = 0; o < c.output[2]; ++o) which[row + o] = start + o * c.stride[2] + offset[tap[o]];
  });
}

template <class T>
void average_pool(const Conv& c, bool count_padding, const T* x, T* y) {
  const int64_t plane_size = product(c.input);
  for_each_row<T>(c, [=, &c](int64_t plane, int64_t o0, int64_t o1, int64_t row, T* sums) {
    const Taps taps0(c, 0, o0), taps1(c, 1, o1);
    sum_row(c, x + plane * plane_size, taps0, taps1, sums);
    divide_row(c, count_padding, o0, o1, sums, y + row);
  });
}

template <class T>
void average_pool_backward(const Conv& c, bool count_padding, const T* dy, T* dx) {
  for_each_plane(c, dx, [=, &c](int64_t plane, T* to) {
    const Scratch scratch(static_cast<std::size_t>(c.output[2]) * sizeof(T));
    T* const share = scratch.as<T>();
    const T* from = dy + plane * product(c.output);
    for (int64_t o0 = 0; o0 < c.output[0]; ++o0) {
      for (int64_t o1 = 0; o1 < c.output[1]; ++o1, from += c.output[2]) {
        const Taps taps0(c, 0, o0), taps1(c, 1, o1);
        divide_row(c, count_padding, o0, o1, from, share);
        for_each_tap(c, taps0, taps1, [&](int64_t, int64_t first, int64_t last, int64_t i) {
          T* const at = to + i;
          with_stride(c.stride[2], [&](auto stride) {
            for (int64_t o = first; o < last; ++o) at[o * stride] += share[o];
          });
        });
      }
    }
  });
}

template <class T>
void max_pool_backward(const Conv& c, const T* dy, const int64_t* which, T* dx) {
  const int64_t outputs = product(c.output);
  for_each_plane(c, dx, [=](int64_t plane, T* to) {
    for (int64_t o = plane * outputs; o < (plane + 1) * outputs; ++o) to[which[o]] += dy[o];
  });
}

}  // namespace

void CpuOps::pool(PoolOp op, const Conv& geometry, bool count_padding, const Array& x, const Array& y,
                  const Array* which) {
  if (y.size == 0) return;
  dispatch_floating(y.dtype, [&]<class T>() {
    if (op == PoolOp::max) {
      max_pool(geometry, x.as<T>(), y.as<T>(), which != nullptr ? which->as<int64_t>() : nullptr);
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
