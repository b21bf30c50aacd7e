#include "reel/backends/cpu/convert.h"
#include "reel/backends/cpu/cpu_ops.h"
#include "reel/backends/cpu/move_run.h"
#include "reel/backends/cpu/run_elements.h"
#include "reel/backends/cpu/stream.h"
#include "reel/backends/cpu/transpose.h"

// Copies, by the layout of the two arrays once axes are sorted by y's strides and joined:
//   no gaps         copy_bytes (move_run.h) once per task
//   rows            the inner axis is contiguous in both: once per row
//   transposition   y is contiguous along one axis and x along another: tiles in registers, both sides in whole lines
//   general         element by element
// and conversions, as other loops over elements. Those from and to bf16 and f16 go by way of f32,
// which holds all of both; on the way to them f64 is cut off to it.

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
  const Nest<2> outer = nest.without(axis);  // its last axis is never walked
  // Strips one line wide. Those down y read x as so many streams, which memory needs; those along y, whose rows lie further apart
  // than x's or share a set of the caches, write it in whole lines side by side.
  constexpr auto size = static_cast<int64_t>(sizeof(T));
  const bool down_y = (y_stride <= x_stride && y_stride * size < kFarRow) || cols < 4 * kTransposeTile<T> ||
                      is_past_caches(nest.rows() * cols * size);
  const int64_t strip_rows = down_y ? min(even_chunk(rows, 2048), rows) : kTransposeTile<T>;
  const int64_t strip_cols = down_y ? kTransposeTile<T> : min(even_chunk(cols, 2048), cols);
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

/// Whether -limit < x < limit for each x.
template <class T>
REEL_INLINE bool all_below(const T* x, int64_t count, T limit) {
  int other = 0;
#pragma omp simd reduction(| : other)
  for (int64_t i = 0; i < count; ++i) other |= x[i] > -limit && x[i] < limit ? 0 : 1;
  return other == 0;
}

template <class To, class From>
void convert_run(const void* x, const void*, void* y, int64_t count) {
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

/// x as floats that round to the same bf16 or f16 as x does: cut off at a float's last bit, which is set if anything was lost.
/// For a denormal float that is too late: f16 makes 0 of those anyway; where bf16 meets one, all go one by one.
__attribute__((noinline)) void round_to_odd(const double* x, float* y, int64_t count, bool is_bf16) {
  constexpr std::uint64_t rest = (std::uint64_t(1) << 29) - 1;  // the bits that a double has and a float has not
#pragma omp simd
  for (int64_t i = 0; i < count; ++i) {
    const auto bits = __builtin_bit_cast(std::uint64_t, x[i]);
    y[i] = static_cast<float>(__builtin_bit_cast(double, (bits | ((bits & rest) + rest)) & ~rest));
  }
  if (!is_bf16) return;
  std::int32_t denormal = 0;
#pragma omp simd reduction(| : denormal)
  for (int64_t i = 0; i < count; ++i) {
    const std::int32_t size = __builtin_bit_cast(std::int32_t, y[i]) & 0x7fffffff;
    denormal |= static_cast<std::int32_t>(size > 0) & static_cast<std::int32_t>(size < 0x00800000);
  }
  if (denormal == 0) return;
  for (int64_t i = 0; i < count; ++i) y[i] = detail::rounded_to_odd(x[i]);
}
template <class Half>
void convert_run_to_odd(const void* x, const void*, void* y, int64_t count) {
  round_to_odd(static_cast<const double*>(x), static_cast<float*>(y), count, std::is_same_v<Half, bfloat16>);
}

#if defined(__F16C__)
/// convert(x, y) for eight elements each time. The last, if fewer, go through memory on the stack.
template <class To, class From, class F>
REEL_INLINE void convert_eights(const From* x, To* y, int64_t count, F convert) {
  constexpr int64_t width = 8;
  for (; count >= width; count -= width, x += width, y += width) convert(x, y);
  if (count == 0) return;
  From some[width] = {};
  To converted[width];
  __builtin_memcpy(some, x, static_cast<std::size_t>(count) * sizeof(From));
  convert(some, converted);
  __builtin_memcpy(y, converted, static_cast<std::size_t>(count) * sizeof(To));
}

/// By the processor, which rounds as float16 does, NaN included.
template <>
void convert_run<float16, float>(const void* x, const void*, void* y, int64_t count) {
  convert_eights(static_cast<const float*>(x), static_cast<float16*>(y), count, [](const float* from, float16* to) {
    const __m128i halves = _mm256_cvtps_ph(_mm256_loadu_ps(from), _MM_FROUND_TO_NEAREST_INT);
    _mm_storeu_si128(reinterpret_cast<__m128i*>(to), halves);
  });
}
/// The processor makes signalling NaN quiet: eights that have a NaN are converted by float16.
__attribute__((noinline, cold)) void convert_eight_by_one(const float16* x, float* y) {
  for (int i = 0; i < 8; ++i) y[i] = static_cast<float>(x[i]);
}
template <>
void convert_run<float, float16>(const void* x, const void*, void* y, int64_t count) {
  convert_eights(static_cast<const float16*>(x), static_cast<float*>(y), count, [](const float16* from, float* to) {
    const __m256 values = _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from)));
    if (_mm256_movemask_ps(_mm256_cmp_ps(values, values, _CMP_UNORD_Q)) == 0) {
      _mm256_storeu_ps(to, values);
    } else {
      convert_eight_by_one(from, to);
    }
  });
}
#endif

/// Between bf16 or f16 and f32.
Run half_run_of(DType from, DType to) {
  if (from == DType::bf16) return convert_run<float, bfloat16>;
  if (from == DType::f16) return convert_run<float, float16>;
  return to == DType::bf16 ? convert_run<bfloat16, float> : convert_run<float16, float>;
}

Run convert_run_of(DType from, DType to) {
  return dispatch_arithmetic(from, [&]<class From>() {  // g++ makes no vectors of `bool`
    return dispatch_all(to, []<class To>() -> Run { return convert_run<To, From>; });
  });
}

/// From one type to another, step by step: bf16 and f16 are made of f32 and become f32. One step rounds (two from i64 to bf16).
class Conversion {
 public:
  Conversion(DType from, DType to) : from_size_(bytes_of(from)), to_size_(bytes_of(to)), last_(from) {
    if (is_half(from)) add(half_run_of(from, DType::f32), DType::f32);
    if (is_half(to)) {
      if (!is_floating(last_)) {  // integers that f32 does not hold are beyond f16 anyway
        const DType wide = to == DType::f16 || from_size_ == 1 ? DType::f32 : DType::f64;
        add(convert_run_of(last_, wide), wide);
      }
      if (last_ == DType::f64)
        add(to == DType::f16 ? convert_run_to_odd<float16> : convert_run_to_odd<bfloat16>, DType::f32);
      add(half_run_of(DType::f32, to), to);
    } else if (last_ != to) {
      add(convert_run_of(last_, to), to);
    }
  }

  /// The loop, and what comes in place of a number with it.
  Run run() const { return steps_ == 1 ? run_[0] : run_steps; }

 private:
  static void run_steps(const void* x, const void* conversion, void* y, int64_t count) {
    (*static_cast<const Conversion*>(conversion))(static_cast<const char*>(x), static_cast<char*>(y), count);
  }
  void operator()(const char* x, char* y, int64_t count) const {
    alignas(64) char between[2][kBuffer * 8];
    for (int64_t i = 0; i < count; i += kBuffer) {
      const int64_t n = min(kBuffer, count - i);
      const char* source = x + i * from_size_;
      for (int k = 0; k < steps_; ++k) {
        char* const target = k == steps_ - 1 ? y + i * to_size_ : between[k % 2];
        run_[k](source, nullptr, target, n);
        source = target;
      }
    }
  }
  static int64_t bytes_of(DType dtype) { return static_cast<int64_t>(size_of(dtype)); }
  void add(Run run, DType to) {
    run_[steps_++] = run;
    last_ = to;
  }

  int64_t from_size_, to_size_;
  DType last_;  // what the steps make so far
  int steps_ = 0;
  Run run_[3];
};

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
  const Conversion conversion(x.dtype, y.dtype);
  const Run run = conversion.run();
  run_elements({.arrays = run, .fixed_b = run}, input_of(x), {&conversion, nullptr, y.dtype, false}, y);
}

}  // namespace reel::cpu::REEL_CPU_ISA
