#include "reel/backends/cpu/run_elements.h"

#include "reel/backends/cpu/long_formula.h"
#include "reel/backends/cpu/move_run.h"
#include "reel/backends/cpu/stream.h"
#include "reel/backends/cpu/transpose.h"
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

/// The axis other than the inner one along which operand k lies without gaps, at least 4 elements, where along the inner one y does
/// and k does not; -1 if there is none.
int transposed_axis(const Nest<3>& nest, int k) {
  const int64_t stride = nest.inner_stride(k);
  if (nest.inner_stride(2) != 1 || stride == 0 || stride == 1) return -1;
  for (int axis = 0; axis < nest.rank - 1; ++axis)
    if (nest.strides[k][axis] == 1 && nest.sizes[axis] >= 4) return axis;
  return -1;
}

constexpr int64_t kTileElements = 2048;  // what two inputs of them take stays in the caches next to a core
constexpr int64_t kTileRow = 128;        // elements
constexpr int64_t kTurned = 64;          // the same of tiles that are turned at the end, along both sides

/// Two inputs that lie along `axis` are run through as they lie, and what comes of it is turned.
void run_turned(Run run, const Nest<3>& nest, int axis, const void* const (&data)[3], const int64_t (&sizes)[3]) {
  const int64_t all_rows = nest.sizes[axis], all_cols = nest.inner(), row_step = nest.strides[2][axis];
  const int64_t cols = even_chunk(all_cols, kTurned);
  const int64_t rows = min(all_rows, max(kTurned, kTurned * kTurned / cols));
  const int64_t down = ceil_div(all_rows, rows), across = ceil_div(all_cols, cols);
  const Nest<3> outer = nest.without(axis);
  const int64_t chunk = max<int64_t>(1, kGrain / (rows * cols));
  parallel_for(outer.rows() * down * across, chunk, [&](int64_t begin, int64_t end) {
    Scratch scratch(static_cast<std::size_t>(rows * cols * sizes[2]));
    char* const buffer = scratch.as<char>();
    for (int64_t unit = begin; unit < end; ++unit) {
      const Cursor<3> cursor(outer, outer.rank - 1, unit / (down * across));
      const int64_t row = unit / across % down * rows, col = unit % across * cols;
      const int64_t tall = min(rows, all_rows - row), wide = min(cols, all_cols - col);
      const char* parts[3];
      for (int k = 0; k < 3; ++k) {
        const int64_t at = cursor.offsets[k] + row * nest.strides[k][axis] + col * nest.inner_stride(k);
        parts[k] = static_cast<const char*>(data[k]) + at * sizes[k];
      }
      for (int64_t c = 0; c < wide; ++c)
        run(parts[0] + c * nest.inner_stride(0) * sizes[0], parts[1] + c * nest.inner_stride(1) * sizes[1],
            buffer + c * tall * sizes[2], tall);
      dispatch_bytes(static_cast<std::size_t>(sizes[2]), [&]<class Bytes>() {
        transpose_block(reinterpret_cast<const Bytes*>(buffer), tall,
                        reinterpret_cast<Bytes*>(const_cast<char*>(parts[2])), row_step, tall, wide);
      });
    }
  });
}

/// Tiles of rows of y, along `axis`, next to copies of those of inputs that lie otherwise. `fixed`: plain numbers.
void run_tiles(const Runs& runs, const Nest<3>& nest, int axis, const void* const (&data)[3], const int64_t (&sizes)[3],
               const bool (&fixed)[2]) {
  const Run run = fixed[1] ? runs.fixed_b : fixed[0] ? runs.fixed_a : runs.arrays;
  bool twice = data[0] == data[1];  // one input for both
  for (int i = 0; i < nest.rank; ++i) twice = twice && nest.strides[0][i] == nest.strides[1][i];
  const int64_t row_bytes = nest.strides[2][axis] * sizes[2], bytes = nest.rows() * nest.inner() * sizes[2];
  if (!fixed[0] && !fixed[1] && !twice && nest.strides[0][axis] == 1 && nest.strides[1][axis] == 1 &&
      nest.sizes[axis] >= kTurned / 2 && sizes[2] >= 4 && sizes[2] <= sizes[0] &&
      (row_bytes < kFarRow || is_past_caches(bytes)))
    return run_turned(run, nest, axis, data, sizes);
  const int64_t all_rows = nest.sizes[axis], all_cols = nest.inner(), row_step = nest.strides[2][axis];
  const int64_t cols = even_chunk(all_cols, kTileRow),
                rows = min(all_rows, max<int64_t>(16, kTileElements / cols / 16 * 16));
  const int64_t down = ceil_div(all_rows, rows), across = ceil_div(all_cols, cols);
  // Whole tiles at a time: not beside a number that changes from row to row.
  bool joined = cols == all_cols && row_step == cols;
  for (int k = 0; k < 2; ++k) joined = joined && (!fixed[k] || nest.strides[k][axis] == 0);
  const Nest<3> outer = nest.without(axis);
  const int64_t chunk = max<int64_t>(1, kGrain / (rows * cols));
  parallel_for(outer.rows() * down * across, chunk, [&](int64_t begin, int64_t end) {
    Scratch scratch(static_cast<std::size_t>(rows * cols * (sizes[0] + sizes[1])));
    char* const buffers[2] = {scratch.as<char>(), scratch.as<char>() + rows * cols * sizes[0]};
    for (int64_t unit = begin; unit < end; ++unit) {
      const Cursor<3> cursor(outer, outer.rank - 1, unit / (down * across));
      const int64_t row = unit / across % down * rows, col = unit % across * cols;
      const int64_t tall = min(rows, all_rows - row), wide = min(cols, all_cols - col);
      const char* parts[3];
      int64_t steps[3];  // bytes from row to row
      for (int k = 0; k < 3; ++k) {
        const int64_t step = nest.strides[k][axis], stride = nest.inner_stride(k);
        parts[k] = static_cast<const char*>(data[k]) + (cursor.offsets[k] + row * step + col * stride) * sizes[k];
        steps[k] = step * sizes[k];
        if (k == 2 || fixed[k] || (stride == 1 && (!joined || step == wide))) continue;
        if (k == 1 && twice) {
          parts[1] = parts[0];
          steps[1] = steps[0];
          continue;
        }
        if (step == 1) {
          dispatch_bytes(static_cast<std::size_t>(sizes[k]), [&]<class Bytes>() {
            transpose_block(reinterpret_cast<const Bytes*>(parts[k]), stride, reinterpret_cast<Bytes*>(buffers[k]),
                            wide, tall, wide);
          });
        } else {
          for (int64_t r = 0; r < tall; ++r)
            move_run(parts[k] + r * steps[k], stride, buffers[k] + r * wide * sizes[k], 1, wide, sizes[k]);
        }
        parts[k] = buffers[k];
        steps[k] = wide * sizes[k];
      }
      char* const to = const_cast<char*>(parts[2]);
      if (joined) {
        run(parts[0], parts[1], to, tall * wide);
        continue;
      }
      for (int64_t r = 0; r < tall; ++r) run(parts[0] + r * steps[0], parts[1] + r * steps[1], to + r * steps[2], wide);
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

  for (const int k : {0, 1}) {
    const int axis = transposed_axis(nest, k);
    if (axis >= 0)
      return run_tiles(runs, nest, axis, {a.data, b.data, y.data}, {size_a, size_b, size_y}, {fixed_a, fixed_b});
  }

  const bool direct_a = fixed_a || stride_a == 1, direct_b = fixed_b || stride_b == 1, direct_y = stride_y == 1;
  const char *const data_a = static_cast<const char*>(a.data), *const data_b = static_cast<const char*>(b.data);
  const int64_t grain = grain_of_runs(nest.inner());
  if (direct_a && direct_b && direct_y) {
    char* const data_y = y.as<char>();
    for_each_run(nest, grain, [=](const int64_t* offsets, int64_t count) {
      run(data_a + offsets[0] * size_a, data_b + offsets[1] * size_b, data_y + offsets[2] * size_y, count);
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
