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

/// Whether operand k is the same short row again and again while the other input and y have no gaps.
bool repeats_row(const Nest<3>& nest, int k) {
  const int64_t inner = nest.inner();
  if (nest.rank != 2 || 2 * inner > kBuffer) return false;
  for (int i = 0; i < 3; ++i) {
    if (nest.inner_stride(i) != 1 || nest.strides[i][0] != (i == k ? 0 : inner)) return false;
  }
  return true;
}

/// Many short rows at once, next to as many copies of the row that repeats.
template <class Apply>
void run_repeated(const Nest<3>& nest, const void* row, int64_t size, Apply apply) {
  const int64_t inner = nest.inner(), rows = nest.sizes[0];
  const int64_t copies = min(kBuffer / inner, rows);
  alignas(64) char buffer[kBuffer * 8];
  const int64_t bytes = copies * inner * size;
  __builtin_memcpy(buffer, row, static_cast<std::size_t>(inner * size));
  for (int64_t done = inner * size; done < bytes; done *= 2) {
    __builtin_memcpy(buffer + done, buffer, static_cast<std::size_t>(min(done, bytes - done)));
  }
  const int64_t chunk = max<int64_t>(1, kGrain / (copies * inner)) * copies;
  parallel_for(rows, chunk, [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; r += copies) apply(r * inner, buffer, min(copies, end - r) * inner);
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
  if (repeats_row(nest, 0)) {
    run_repeated(nest, a.data, size_a, [&](int64_t i, const void* part_a, int64_t n) {
      runs.arrays(part_a, static_cast<const char*>(b.data) + i * size_b, y.as<char>() + i * size_y, n);
    });
    return;
  }
  if (repeats_row(nest, 1)) {
    run_repeated(nest, b.data, size_b, [&](int64_t i, const void* part_b, int64_t n) {
      runs.arrays(static_cast<const char*>(a.data) + i * size_a, part_b, y.as<char>() + i * size_y, n);
    });
    return;
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
