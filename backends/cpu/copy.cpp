#include "reel/backends/cpu/convert.h"
#include "reel/backends/cpu/cpu_ops.h"
#include "reel/backends/cpu/move_run.h"

// Copies, by the layout of the two arrays once axes are sorted by y's strides and joined:
//   no gaps         one memcpy per task
//   rows            the inner axis is contiguous in both: a memcpy per row
//   transposition   y is contiguous along one axis and x along another: square tiles, so that both sides use whole lines
//   general         element by element
// and conversions, row by row through buffers that make both sides contiguous.

namespace reel::cpu::REEL_CPU_ISA {

namespace {

constexpr int64_t kTile = 32;     // elements: a tile row is one or more cache lines
constexpr int64_t kBuffer = 256;  // elements converted at a time

/// The nest of x and y with the axes in the order in which they lie in y.
Nest<2> nest_in_order_of(const Array& x, const Array& y) {
  int axes[kMaxRank];
  int rank = 0;
  for (int axis = 0; axis < y.rank(); ++axis) {
    if (y.shape[axis] == 1) continue;
    const int64_t stride = __builtin_llabs(y.strides[axis]);
    int place = rank++;
    for (; place > 0 && __builtin_llabs(y.strides[axes[place - 1]]) < stride; --place) axes[place] = axes[place - 1];
    axes[place] = axis;
  }
  Shape shape;
  int64_t x_strides[kMaxRank], y_strides[kMaxRank];
  for (int i = 0; i < rank; ++i) {
    shape.push_back(y.shape[axes[i]]);
    x_strides[i] = x.strides[axes[i]];
    y_strides[i] = y.strides[axes[i]];
  }
  return collapse<2>(shape, {x_strides, y_strides});
}

/// y[r, c] = x[r, c] for a tile in which x is contiguous along r and y along c.
template <class T>
void transpose_tile(const T* x, int64_t x_stride, T* y, int64_t y_stride, int64_t rows, int64_t cols) {
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t c = 0; c < cols; ++c) y[r * y_stride + c] = x[c * x_stride + r];
  }
}

/// The axis other than the inner one along which x is contiguous, if y is along the inner one and both are long; else -1.
int transposed_axis(const Nest<2>& nest) {
  if (nest.inner_stride(1) != 1 || nest.inner_stride(0) == 0 || nest.inner() < 4) return -1;
  for (int axis = 0; axis < nest.rank - 1; ++axis) {
    if (nest.strides[0][axis] == 1 && nest.sizes[axis] >= 4) return axis;
  }
  return -1;
}

template <class T>
void transpose(const T* x, T* y, const Nest<2>& nest, int axis) {
  const int64_t rows = nest.sizes[axis], cols = nest.inner();
  const int64_t x_stride = nest.inner_stride(0), y_stride = nest.strides[1][axis];
  Nest<2> outer = nest;  // the other axes; the last of `outer.rank` is never walked
  outer.rank = nest.rank - 1;
  for (int i = axis; i < outer.rank; ++i) {
    outer.sizes[i] = nest.sizes[i + 1];
    for (int k = 0; k < 2; ++k) outer.strides[k][i] = nest.strides[k][i + 1];
  }
  const int64_t strips = ceil_div(rows, kTile);  // of kTile rows each
  const int64_t chunk = max<int64_t>(1, kGrain / (min(rows, kTile) * cols));
  parallel_for(outer.rows() * strips, chunk, [&](int64_t begin, int64_t end) {
    Cursor<2> cursor(outer, outer.rank - 1, begin / strips);
    int64_t strip = begin % strips;
    for (int64_t unit = begin; unit < end; ++unit) {
      const int64_t r = strip * kTile;
      const T* source = x + cursor.offsets[0] + r;
      T* target = y + cursor.offsets[1] + r * y_stride;
      for (int64_t c = 0; c < cols; c += kTile) {
        transpose_tile(source + c * x_stride, x_stride, target + c, y_stride, min(kTile, rows - r),
                       min(kTile, cols - c));
      }
      if (++strip == strips) {
        strip = 0;
        cursor.next();
      }
    }
  });
}

void move(const Array& x, const Array& y, const Nest<2>& nest) {
  const auto size = static_cast<int64_t>(size_of(y.dtype));
  const int axis = transposed_axis(nest);
  if (axis >= 0) {
    dispatch_bytes(size, [&]<class T>() { transpose(x.as<T>(), y.as<T>(), nest, axis); });
    return;
  }
  const int64_t x_stride = nest.inner_stride(0), y_stride = nest.inner_stride(1);
  for_each_run(nest, 2 * kGrain, [&](const int64_t* offsets, int64_t count) {
    move_run(x.as<char>() + offsets[0] * size, x_stride, y.as<char>() + offsets[1] * size, y_stride, count, size);
  });
}

using ConvertRun = void (*)(const void* x, void* y, int64_t count);

template <class To, class From>
void convert_run(const void* x, void* y, int64_t count) {
  const From* source = static_cast<const From*>(x);
  To* target = static_cast<To*>(y);
  for (int64_t i = 0; i < count; ++i) target[i] = convert<To>(source[i]);
}

ConvertRun convert_run_of(DType from, DType to) {
  return dispatch_all(from, [&]<class From>() {
    return dispatch_all(to, []<class To>() -> ConvertRun { return convert_run<To, From>; });
  });
}

void convert_nest(const Array& x, const Array& y, const Nest<2>& nest) {
  const ConvertRun convert_run = convert_run_of(x.dtype, y.dtype);
  const auto x_size = static_cast<int64_t>(size_of(x.dtype)), y_size = static_cast<int64_t>(size_of(y.dtype));
  const int64_t x_stride = nest.inner_stride(0), y_stride = nest.inner_stride(1);
  for_each_run(nest, kGrain, [&](const int64_t* offsets, int64_t count) {
    const char* source = x.as<char>() + offsets[0] * x_size;
    char* target = y.as<char>() + offsets[1] * y_size;
    if (x_stride == 1 && y_stride == 1) {
      convert_run(source, target, count);
      return;
    }
    alignas(64) char from[kBuffer * 8], to[kBuffer * 8];
    for (int64_t i = 0; i < count; i += kBuffer) {
      const int64_t n = min(kBuffer, count - i);
      move_run(source + i * x_stride * x_size, x_stride, from, 1, n, x_size);
      convert_run(from, to, n);
      move_run(to, 1, target + i * y_stride * y_size, y_stride, n, y_size);
    }
  });
}

}  // namespace

void CpuOps::copy(const Array& x, const Array& y) {
  if (y.size == 0) return;
  if (x.dtype == y.dtype) {
    if (x.contiguous && y.contiguous) {
      from_host(x.data, y.data, y.size * static_cast<int64_t>(size_of(y.dtype)));
    } else {
      move(x, y, nest_in_order_of(x, y));
    }
    return;
  }
  convert_nest(x, y, nest_in_order_of(x, y));
}

}  // namespace reel::cpu::REEL_CPU_ISA
