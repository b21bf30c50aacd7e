#include "reel/backends/cpu/run_elements.h"

#include "reel/backends/cpu/long_formula.h"
#include "reel/backends/cpu/move_run.h"
#include "reel/backends/cpu/stream.h"
#include "reel/backends/cpu/usual.h"

namespace reel::cpu::REEL_CPU_ISA {

namespace {

constexpr int64_t kBuffer = 512;  // elements: three buffers stay in the first-level cache

/// Bytes of a result that are computed before they go past the caches. More would wait for the ways out of a core, and what is
/// read while it waits; fewer cost calls.
constexpr int64_t kStreamed = 1024;

/// An operand within one run. Where the loop at hand cannot take its stride, its elements go through the buffer.
struct Side {
  int64_t stride;
  int64_t size;
  bool direct;
  alignas(64) char buffer[kBuffer * 8];

  Side(int64_t stride_, DType dtype, bool direct_)
      : stride(stride_), size(static_cast<int64_t>(size_of(dtype))), direct(direct_) {}

  int64_t step() const { return stride * size; }

  const void* read(const char* x, int64_t first, int64_t count) {
    if (direct) return x + first * step();
    move_run(x + first * step(), stride, buffer, 1, count, size);
    return buffer;
  }
};

/// What an operand has for each of many short rows: nothing known, the same row, or one number for all of its elements.
enum class Repeats { nothing, row, numbers };

/// Of operand k, whose elements take `size` bytes, where the other input and y have no gaps.
Repeats repeats(const Nest<3>& nest, int k, int64_t size) {
  constexpr int64_t most_bytes = 256;  // of a row, from which on a call for each row, with the number, is as fast
  const int64_t inner = nest.inner();
  if (nest.rank != 2 || 2 * inner > kBuffer) return Repeats::nothing;
  for (int i = 0; i < 3; ++i) {
    if (i != k && (nest.inner_stride(i) != 1 || nest.strides[i][0] != inner)) return Repeats::nothing;
  }
  if (nest.inner_stride(k) == 1) return nest.strides[k][0] == 0 ? Repeats::row : Repeats::nothing;
  const bool numbers = nest.inner_stride(k) == 0 && inner * size <= most_bytes && (size == 4 || size == 8);
  return numbers ? Repeats::numbers : Repeats::nothing;
}

/// `inner` copies of each of `rows` numbers that are `step` apart, and up to a vector more behind the last.
template <class T>
__attribute__((noinline)) void repeat_numbers(const T* x, int64_t step, int64_t rows, int64_t inner, T* to) {
  for (int64_t r = 0; r < rows; ++r, x += step, to += inner) {
    const auto number = Vec<T>::broadcast(*x);
    for (int64_t j = 0; j < inner; j += Vec<T>::width) number.store(to + j);
  }
}

/// Many short rows at once, next to copies of what repeats, operand k.
void run_repeated(const Runs& runs, const Nest<3>& nest, int k, Repeats kind, const void* const (&data)[3],
                  const int64_t (&sizes)[3]) {
  const int64_t inner = nest.inner(), rows = nest.sizes[0], size = sizes[k], step = nest.strides[k][0];
  const int64_t copies = min(kBuffer / inner, rows);
  alignas(64) char row_copies[kBuffer * 8];
  if (kind == Repeats::row) fill_copies(row_copies, data[k], inner * size, copies * inner * size);
  const int64_t chunk = max<int64_t>(1, kGrain / (copies * inner)) * copies;
  parallel_for(rows, chunk, [&](int64_t begin, int64_t end) {
    alignas(64) char number_copies[kBuffer * 8 + kVectorBytes];
    for (int64_t r = begin; r < end; r += copies) {
      const int64_t some = min(copies, end - r);
      const char* part = row_copies;
      if (kind == Repeats::numbers) {
        const char* const numbers = static_cast<const char*>(data[k]) + r * step * size;
        part = number_copies;
        if (size == 4)
          repeat_numbers(reinterpret_cast<const float*>(numbers), step, some, inner,
                         reinterpret_cast<float*>(number_copies));
        else
          repeat_numbers(reinterpret_cast<const double*>(numbers), step, some, inner,
                         reinterpret_cast<double*>(number_copies));
      }
      const char* const other = static_cast<const char*>(data[1 - k]) + r * inner * sizes[1 - k];
      char* const to = static_cast<char*>(const_cast<void*>(data[2])) + r * inner * sizes[2];
      runs.arrays(k == 0 ? part : other, k == 0 ? other : part, to, some * inner);
    }
  });
}

}  // namespace

template <class T>
void run_whole_vectors(int64_t count, const T* a, const T* b, T* y, Run body) {
  in_whole_steps<Vec<T>::width>(
      count, a, b, y, [=](int64_t n, const T* from_a, const T* from_b, T* to) { body(from_a, from_b, to, n); });
}
template void run_whole_vectors(int64_t, const float*, const float*, float*, Run);
template void run_whole_vectors(int64_t, const double*, const double*, double*, Run);

void run_rounded(Run run, const float* a, const float* b, float* y, int64_t count) {
  constexpr int64_t block = 256;
  double wide_a[block], wide_b[block];
  for (int64_t begin = 0; begin < count; begin += block, a += block, b += block, y += block) {
    const int64_t n = min(block, count - begin);
#pragma omp simd
    for (int64_t i = 0; i < n; ++i) {
      wide_a[i] = a[i];
      wide_b[i] = b[i];
    }
    run(wide_a, wide_b, wide_a, n);
#pragma omp simd
    for (int64_t i = 0; i < n; ++i) y[i] = static_cast<float>(wide_a[i]);
  }
}

void run_in_parallel(Run run, const void* a, int64_t step_a, const void* b, int64_t step_b, void* y, int64_t step_y,
                     int64_t count, Run streamed, int64_t alone) {
  const bool past_caches = y != a && y != b && streams(y, count * step_y, kStreamElementsBytes);
  if (past_caches && streamed != nullptr) run = streamed;
  const int64_t chunks = 2 * ceil_div(count, 4 * alone);  // an even number, which two threads share evenly
  parallel_for(count, even_chunk(count, ceil_div(count, chunks)), [=](int64_t begin, int64_t end) {
    const char* from_a = static_cast<const char*>(a) + begin * step_a;
    const char* from_b = static_cast<const char*>(b) + begin * step_b;
    char* to = static_cast<char*>(y) + begin * step_y;
    if (!past_caches || streamed != nullptr) {
      run(from_a, from_b, to, end - begin);
      if (past_caches) _mm_sfence();
      return;
    }
    alignas(64) char buffer[kStreamed];
    const int64_t block = kStreamed / step_y;
    for (int64_t i = 0; i < end - begin; i += block) {
      const int64_t n = min(block, end - begin - i);
      ask_for(from_a + (i + 2 * block) * step_a, n * step_a);
      if (a != b) ask_for(from_b + (i + 2 * block) * step_b, n * step_b);
      run(from_a + i * step_a, from_b + i * step_b, buffer, n);
      stream_bytes(buffer, to + i * step_y, n * step_y);
    }
    _mm_sfence();
  });
}

void run_elements(const Runs& runs, const Input& a, const Input& b, const Array& y) {
  if (y.size == 0) return;
  const int64_t* const strides[] = {a.strides, b.strides, y.strides};
  const Nest<3> nest = y.contiguous ? collapse<3>(y.shape, strides) : collapse_in_memory_order<3>(y.shape, strides);
  const auto size_a = static_cast<int64_t>(size_of(a.dtype)), size_b = static_cast<int64_t>(size_of(b.dtype));
  const auto size_y = static_cast<int64_t>(size_of(y.dtype));
  for (const int k : {0, 1}) {
    const Repeats kind = repeats(nest, k, k == 0 ? size_a : size_b);
    if (kind != Repeats::nothing)
      return run_repeated(runs, nest, k, kind, {a.data, b.data, y.data}, {size_a, size_b, size_y});
  }

  const int64_t stride_a = nest.inner_stride(0), stride_b = nest.inner_stride(1), stride_y = nest.inner_stride(2);

  Run run = runs.arrays;
  bool fixed_a = false, fixed_b = false;
  if (stride_b == 0 && runs.fixed_b) {
    run = runs.fixed_b;
    fixed_b = true;
  } else if (stride_a == 0 && runs.fixed_a) {
    run = runs.fixed_a;
    fixed_a = true;
  }

  const bool direct_a = fixed_a || stride_a == 1, direct_b = fixed_b || stride_b == 1, direct_y = stride_y == 1;
  const char *const data_a = static_cast<const char*>(a.data), *const data_b = static_cast<const char*>(b.data);
  const int64_t grain = grain_of_runs(nest.inner());
  if (direct_a && direct_b && direct_y) {
    for_each_run(nest, grain, [&](const int64_t* offsets, int64_t count) {
      run(data_a + offsets[0] * size_a, data_b + offsets[1] * size_b, y.as<char>() + offsets[2] * size_y, count);
    });
    return;
  }
  for_each_run(nest, grain, [&](const int64_t* offsets, int64_t count) {
    Side side_a(stride_a, a.dtype, direct_a), side_b(stride_b, b.dtype, direct_b), side_y(stride_y, y.dtype, direct_y);
    const char* from_a = data_a + offsets[0] * size_a;
    const char* from_b = data_b + offsets[1] * size_b;
    char* to = y.as<char>() + offsets[2] * size_y;
    for (int64_t first = 0; first < count; first += kBuffer) {
      const int64_t n = min(kBuffer, count - first);
      const void* part_a = side_a.read(from_a, first, n);
      const void* part_b = side_b.read(from_b, first, n);
      if (side_y.direct) {
        run(part_a, part_b, to + first * size_y, n);
      } else {
        run(part_a, part_b, side_y.buffer, n);
        move_run(side_y.buffer, 1, to + first * side_y.step(), stride_y, n, size_y);
      }
    }
  });
}

}  // namespace reel::cpu::REEL_CPU_ISA
