#include "reel/backends/cpu/convert.h"
#include "reel/backends/cpu/cpu_ops.h"
#include "reel/backends/cpu/move_run.h"
#include "reel/backends/cpu/stream.h"
#include "reel/backends/cpu/transpose.h"

// Copies, by the layout of the two arrays once axes are sorted by y's strides and joined:
//   no gaps         copy_bytes (move_run.h) once per task
//   rows            the inner axis is contiguous in both: once per row
//   transposition   y is contiguous along one axis and x along another: tiles in registers, both sides in whole lines
//   general         element by element
// and conversions, row by row through buffers that make both sides contiguous. From bf16 and f16 these go by way of f32, which
// holds all of both, and to them by way of f64.

namespace reel::cpu::REEL_CPU_ISA {

namespace {

constexpr int64_t kBuffer = 256;  // elements converted at a time
// Where rows of up to so many bytes lie that are to come, no processor guesses: they are asked for.
constexpr int64_t kScatteredRow = 128, kRowsAhead = 8;
constexpr int64_t kStreamedRow = 512;  // bytes, from which on rows are written past the caches

/// The axis other than the inner one along which x is contiguous, at least 4 elements, where y is along the inner one; -1 if there
/// is none, and where x has one value along the inner axis: that goes in runs, unless they are short.
int transposed_axis(const Nest<2>& nest) {
  if (nest.inner_stride(1) != 1 || (nest.inner_stride(0) == 0 && nest.inner() >= 32)) return -1;
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
  // Strips of y one line wide: x is read as that many streams, and every line of y is written whole.
  const int64_t strip_rows = min(even_chunk(rows, 2048), rows), strip_cols = kTransposeTile<T>;
  const int64_t down = ceil_div(rows, strip_rows), across = ceil_div(cols, strip_cols);
  const int64_t chunk = max<int64_t>(1, kGrain / (strip_rows * strip_cols));
  parallel_for(outer.rows() * down * across, chunk, [&](int64_t begin, int64_t end) {
    for (int64_t unit = begin; unit < end; ++unit) {
      const Cursor<2> cursor(outer, outer.rank - 1, unit / (down * across));
      const int64_t row = unit / across % down * strip_rows, col = unit % across * strip_cols;
      transpose_block(x + cursor.offsets[0] + row + col * x_stride, x_stride,
                      y + cursor.offsets[1] + row * y_stride + col, y_stride, min(strip_rows, rows - row),
                      min(strip_cols, cols - col));
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
  if (x_stride == 1 && y_stride == 1 && nest.inner() * size >= kStreamedRow && is_past_caches(y.size * size)) {
    const auto stream_run = [&](const int64_t* offsets, int64_t count) {
      stream_bytes(x.as<char>() + offsets[0] * size, y.as<char>() + offsets[1] * size, count * size);
    };
    for_each_run(nest, 2 * kGrain, stream_run, [] { _mm_sfence(); });
    return;
  }
  if (x_stride == 1 && y_stride == 1 && nest.rank > 1 && nest.inner() * size <= kScatteredRow) {
    const int64_t x_ahead = kRowsAhead * nest.strides[0][nest.rank - 2] * size;
    for_each_run(nest, grain_of_runs(nest.inner()), [&](const int64_t* offsets, int64_t count) {
      const char* const from = x.as<char>() + offsets[0] * size;
      __builtin_prefetch(from + x_ahead);
      __builtin_prefetch(from + x_ahead + count * size - 1);
      __builtin_memcpy(y.as<char>() + offsets[1] * size, from, static_cast<std::size_t>(count * size));
    });
    return;
  }
  for_each_run(nest, grain_of_runs(nest.inner()), [&](const int64_t* offsets, int64_t count) {
    move_run(x.as<char>() + offsets[0] * size, x_stride, y.as<char>() + offsets[1] * size, y_stride, count, size);
  });
}

using ConvertRun = void (*)(const void* x, void* y, int64_t count);

/// Whether -limit < x < limit for each x.
template <class T>
REEL_INLINE bool all_below(const T* x, int64_t count, T limit) {
  int other = 0;
#pragma omp simd reduction(| : other)
  for (int64_t i = 0; i < count; ++i) other |= x[i] > -limit && x[i] < limit ? 0 : 1;
  return other == 0;
}

template <class To, class From>
void convert_run(const void* x, void* y, int64_t count) {
  const From* source = static_cast<const From*>(x);
  To* target = static_cast<To*>(y);
  // Without AVX-512 these go one by one: in half of the time where nothing is out of range.
  if constexpr (std::is_same_v<To, int64_t> && std::is_floating_point_v<From> && kVectorBytes == 32) {
    if (all_below(source, count, From(0x1p63))) {
      for (int64_t i = 0; i < count; ++i) target[i] = static_cast<To>(source[i]);
      return;
    }
  }
  for (int64_t i = 0; i < count; ++i) target[i] = convert<To>(source[i]);
}

#if defined(__F16C__)
/// By the processor, which rounds as float16 does, NaN included. (The other way it would make quiet NaN of those that signal.)
template <>
void convert_run<float16, float>(const void* x, void* y, int64_t count) {
  constexpr int64_t width = 8;
  const auto convert = [](const float* from, float16* to) {
    const __m128i halves = _mm256_cvtps_ph(_mm256_loadu_ps(from), _MM_FROUND_TO_NEAREST_INT);
    _mm_storeu_si128(reinterpret_cast<__m128i*>(to), halves);
  };
  const float* source = static_cast<const float*>(x);
  float16* target = static_cast<float16*>(y);
  for (; count >= width; count -= width, source += width, target += width) convert(source, target);
  if (count == 0) return;
  float some[width] = {};
  float16 converted[width];
  __builtin_memcpy(some, source, static_cast<std::size_t>(count) * sizeof(float));
  convert(some, converted);
  __builtin_memcpy(target, converted, static_cast<std::size_t>(count) * sizeof(float16));
}
#endif

/// From bf16 or f16 to f32, or to them from f32 or f64.
ConvertRun half_run_of(DType from, DType to) {
  if (from == DType::bf16) return convert_run<float, bfloat16>;
  if (from == DType::f16) return convert_run<float, float16>;
  const bool wide = from == DType::f64;
  if (to == DType::bf16) return wide ? convert_run<bfloat16, double> : convert_run<bfloat16, float>;
  return wide ? convert_run<float16, double> : convert_run<float16, float>;
}

ConvertRun convert_run_of(DType from, DType to) {
  return dispatch_arithmetic(from, [&]<class From>() {  // g++ makes no vectors of `bool`
    return dispatch_all(to, []<class To>() -> ConvertRun { return convert_run<To, From>; });
  });
}

/// From one type to another in one step, or in two.
class Conversion {
 public:
  Conversion(DType from, DType to) : from_size_(bytes_of(from)), to_size_(bytes_of(to)) {
    if (is_half(from)) {
      first_ = half_run_of(from, DType::f32);
      if (to != DType::f32) second_ = is_half(to) ? half_run_of(DType::f32, to) : convert_run_of(DType::f32, to);
    } else if (is_half(to)) {
      const bool at_once = from == DType::f32 || from == DType::f64;
      first_ = at_once ? half_run_of(from, to) : convert_run_of(from, DType::f64);
      if (!at_once) second_ = half_run_of(DType::f64, to);
    } else {
      first_ = convert_run_of(from, to);
    }
  }

  void operator()(const char* x, char* y, int64_t count) const {
    if (second_ == nullptr) return first_(x, y, count);
    alignas(64) char between[kBuffer * 8];
    for (int64_t i = 0; i < count; i += kBuffer) {
      const int64_t n = min(kBuffer, count - i);
      first_(x + i * from_size_, between, n);
      second_(between, y + i * to_size_, n);
    }
  }

 private:
  static int64_t bytes_of(DType dtype) { return static_cast<int64_t>(size_of(dtype)); }

  int64_t from_size_, to_size_;
  ConvertRun first_, second_ = nullptr;
};

void convert_nest(const Array& x, const Array& y, const Nest<2>& nest) {
  const Conversion convert_run(x.dtype, y.dtype);
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
      move(x, y, collapse_in_memory_order<2>(y.shape, {x.strides, y.strides}));
    }
    return;
  }
  convert_nest(x, y, collapse_in_memory_order<2>(y.shape, {x.strides, y.strides}));
}

}  // namespace reel::cpu::REEL_CPU_ISA
