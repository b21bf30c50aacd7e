#include <algorithm>

#include "reel/backends/cpu/cpu_ops.h"
#include "reel/backends/cpu/kernel.h"
#include "reel/backends/cpu/scan_backward.h"
#include "reel/backends/cpu/simd.h"

// Recurrences, running sums and products among them, down the columns of blocks of rows: a block is a segment, or the lines
// along an axis. A line is walked in order by one thread, its state in f64; threads share blocks and their columns, or lines
// without gaps, those along the last axis, of which a thread walks several at once.

namespace reel::cpu::REEL_CPU_ISA {

namespace {

constexpr int64_t kStrip = 64;          // columns side by side
constexpr int64_t kMostColumns = 4096;  // of a task
constexpr int kLines = 4;               // without gaps, at once

/// What a line's state is kept in: f64, or for integers what wraps around.
template <class T>
struct StateOf {
  using Type = double;
};
template <>
struct StateOf<int64_t> {
  using Type = std::uint64_t;
};

REEL_INLINE double advance(double factor, double state, double x) { return fma(factor, state, x); }
REEL_INLINE std::uint64_t advance(std::uint64_t factor, std::uint64_t state, std::uint64_t x) {
  return factor * state + x;
}

/// What is added where there is nothing to add: a product that is -0 stays it.
template <class T>
constexpr T kNothing = std::is_floating_point_v<T> ? T(-0.0) : T(0);

/// Where rows lie, and which way they are walked.
struct Walk {
  int64_t width;
  bool reverse, exclusive;
};

/// state = factor state + x for rows of elements; a row that is null is the same number everywhere.
template <class T>
struct Recurrence {
  const T* factor;  // null: 1
  const T* x;       // null: 0
  T start;

  Recurrence from(int64_t place) const {
    return {factor == nullptr ? nullptr : factor + place, x == nullptr ? nullptr : x + place, start};
  }
};

/// The states of a task's columns, in one block of rows after the other.
template <class T>
struct States {
  using State = typename StateOf<T>::Type;
  State state[kMostColumns];
  T ones[kStrip], zeros[kStrip];

  States() {
    std::fill(ones, ones + kStrip, T(1));
    std::fill(zeros, zeros + kStrip, kNothing<T>);
  }

  /// `columns` columns of `rows` rows of walk.width elements. Without a row's own elements its result is the state
  /// before, which is written along with the row before: a loop that chose between both would not be vectorised.
  __attribute__((noinline)) void advance_over(const Walk& walk, const Recurrence<T>& recurrence, T* y, int64_t rows,
                                              int64_t columns) {
    const int64_t step = walk.reverse ? -walk.width : walk.width;
    int64_t row = walk.reverse ? (rows - 1) * walk.width : 0;
    T nowhere[kStrip];
    for (int64_t j = 0; j < columns; ++j) state[j] = static_cast<State>(recurrence.start);
    if (walk.exclusive && rows > 0)
      for (int64_t j = 0; j < columns; ++j) y[row + j] = static_cast<T>(state[j]);
    for (int64_t i = 0; i < rows; ++i, row += step) {
      for (int64_t strip = 0; strip < columns; strip += kStrip) {
        const int64_t place = row + strip, count = min(kStrip, columns - strip);
        const T* const factor = recurrence.factor == nullptr ? ones : recurrence.factor + place;
        const T* const x = recurrence.x == nullptr ? zeros : recurrence.x + place;
        T* to = y + place;
        if (walk.exclusive) to = i + 1 < rows ? to + step : nowhere;
        State* const states = state + strip;
#pragma omp simd
        for (int64_t j = 0; j < count; ++j) {
          const State after = advance(static_cast<State>(factor[j]), states[j], static_cast<State>(x[j]));
          states[j] = after;
          to[j] = static_cast<T>(after);
        }
      }
    }
  }
};

/// `lines` lines without gaps, `length` elements each, one after the other: a state waits for the one before it, so that several are
/// under way at once.
template <int lines, bool has_factor, class T>
void scan_lines(const Walk& walk, const Recurrence<T>& recurrence, T* y, int64_t length) {
  using State = typename StateOf<T>::Type;
  const T zero = kNothing<T>;
  const int64_t step = walk.reverse ? -1 : 1, first = walk.reverse ? length - 1 : 0;
  const int64_t x_step = recurrence.x == nullptr ? 0 : 1;
  const T* const x = recurrence.x == nullptr ? &zero : recurrence.x;
  State state[lines];
  for (int k = 0; k < lines; ++k) state[k] = static_cast<State>(recurrence.start);
  int64_t count = length;
  T* to = y;
  if (walk.exclusive) {  // each state goes where the next element is
    for (int k = 0; k < lines; ++k) y[k * length + first] = recurrence.start;
    to += step;
    --count;
  }
  for (int64_t i = first; count > 0; --count, i += step) {
#pragma GCC unroll 8
    for (int k = 0; k < lines; ++k) {
      const int64_t place = k * length + i;
      const State element = static_cast<State>(x[place * x_step]);
      if constexpr (has_factor) {
        state[k] = advance(static_cast<State>(recurrence.factor[place]), state[k], element);
      } else {
        state[k] += element;
      }
      to[place] = static_cast<T>(state[k]);
    }
  }
}

template <class T>
void scan_lines(const Walk& walk, const Recurrence<T>& recurrence, T* y, int64_t lines, int64_t length) {
  if (length == 0) return;
  const auto scan = [&]<int some>(int64_t line) {
    const Recurrence<T> of_line = recurrence.from(line * length);
    recurrence.factor == nullptr ? scan_lines<some, false>(walk, of_line, y + line * length, length)
                                 : scan_lines<some, true>(walk, of_line, y + line * length, length);
  };
  int64_t line = 0;
  for (; line + kLines <= lines; line += kLines) scan.template operator()<kLines>(line);
  for (; line < lines; ++line) scan.template operator()<1>(line);
}

template <class T>
Recurrence<T> recurrence_of(ScanOp op, const Array& x, const Array* factor) {
  const T* const from = x.as<T>();
  if (op == ScanOp::prod) return {from, nullptr, 1};
  return {factor == nullptr ? nullptr : factor->as<T>(), from, 0};
}

/// f.template operator()<T>() for the element types that a scan takes.
template <class F>
void dispatch_scan(DType dtype, F f) {
  if (dtype == DType::i64) return f.template operator()<int64_t>();
  dispatch_floating(dtype, f);
}

void scan_blocks(ScanOp op, const Array& x, const Array* factor, const Walk& walk, const ScanBlocks& blocks,
                 const Array& y) {
  if (y.size == 0) return;
  dispatch_scan(x.dtype, [&]<class T>() {
    const Recurrence<T> recurrence = recurrence_of<T>(op, x, factor);
    T* const to = y.as<T>();
    const int64_t bytes = 2 * y.size * static_cast<int64_t>(sizeof(T));
    const int64_t piece = columns_of_a_task(blocks, y.size, bytes), pieces = ceil_div(walk.width, piece);
    const int64_t rows = max<int64_t>(1, y.size / (blocks.count * walk.width));  // of a block, on average
    parallel_for(blocks.count * pieces, max<int64_t>(1, kGrain / (rows * piece)), [&](int64_t begin, int64_t end) {
      States<T> states;
      for (int64_t unit = begin; unit < end; ++unit) {
        const int64_t block = unit / pieces, column = unit % pieces * piece, row = blocks.first(block);
        const int64_t place = row * walk.width + column, columns = min(piece, walk.width - column);
        if (walk.width == 1) {
          scan_lines(walk, recurrence.from(place), to + place, 1, blocks.first(block + 1) - row);
          continue;
        }
        states.advance_over(walk, recurrence.from(place), to + place, blocks.first(block + 1) - row, columns);
      }
    });
  });
}

/// f(j) for j in [0, n), in vectors of whole blocks.
template <class F>
REEL_INLINE void in_blocks(int64_t n, F f) {
  constexpr int64_t kBlock = 16;
  int64_t j = 0;
  for (; j + kBlock <= n; j += kBlock)
#pragma omp simd
    for (int64_t k = j; k < j + kBlock; ++k) f(k);
  for (; j < n; ++j) f(j);
}

void forward_row(const float* factor, const float* x, double* state, double* before, int64_t n) {
  in_blocks(
      n, [=](int64_t j) __attribute__((always_inline)) {
        before[j] = state[j];
        state[j] = fma(static_cast<double>(factor[j]), state[j], static_cast<double>(x[j]));
      });
}

void backward_row(const float* factor, const float* dy, const float* own, const float* by, const double* before,
                  double* carry, float* dx, float* dfactor, int64_t n) {
  in_blocks(
      n, [=](int64_t j) __attribute__((always_inline)) {
        const double after = carry[j] + static_cast<double>(own[j]);
        carry[j] =
            fma(static_cast<double>(factor[j]), carry[j], static_cast<double>(dy[j]) * static_cast<double>(by[j]));
        dx[j] = static_cast<float>(after);
        dfactor[j] = static_cast<float>(after * before[j]);
      });
}

// No constant, whose addresses would have to be found when the library is loaded.
ScanRow row_kernels() { return {&forward_row, &backward_row}; }

ScanBlocks blocks_of(const Array& x, const Segments& segments) {
  return {segments.count, x.shape.back(), segments.offsets, segments.max_length};
}
ScanBlocks blocks_along(const Array& x, int axis) {
  ScanBlocks blocks{1, 1, nullptr, x.shape[axis]};
  for (int i = 0; i < axis; ++i) blocks.count *= x.shape[i];
  for (int i = axis + 1; i < x.rank(); ++i) blocks.width *= x.shape[i];
  return blocks;
}

}  // namespace

void CpuOps::scan(ScanOp op, const Array& x, const Array* factor, int axis, bool reverse, bool exclusive,
                  const Array& y) {
  const ScanBlocks blocks = blocks_along(x, axis);
  if (blocks.width == 1 && blocks.count > 1) {
    const int64_t length = blocks.length;
    dispatch_scan(x.dtype, [&]<class T>() {
      const Recurrence<T> recurrence = recurrence_of<T>(op, x, factor);
      const int64_t groups = ceil_div(blocks.count, kLines);
      parallel_for(groups, max<int64_t>(1, kGrain / (max<int64_t>(1, length) * kLines)),
                   [&](int64_t begin, int64_t end) {
                     const int64_t line = begin * kLines, place = line * length;
                     scan_lines({1, reverse, exclusive}, recurrence.from(place), y.as<T>() + place,
                                min(end * kLines, blocks.count) - line, length);
                   });
    });
    return;
  }
  scan_blocks(op, x, factor, {blocks.width, reverse, exclusive}, blocks, y);
}

void CpuOps::segment_scan(ScanOp op, const Array& x, const Array* factor, const Segments& segments, bool reverse,
                          bool exclusive, const Array& y) {
  scan_blocks(op, x, factor, {x.shape.back(), reverse, exclusive}, blocks_of(x, segments), y);
}

void CpuOps::scan_backward(ScanOp op, const Array& x, const Array* factor, int axis, bool reverse, bool exclusive,
                           const ScanGradients& gradients) {
  cpu::scan_backward(row_kernels(), op, x, factor, blocks_along(x, axis), reverse, exclusive, gradients);
}

void CpuOps::segment_scan_backward(ScanOp op, const Array& x, const Array* factor, const Segments& segments,
                                   bool reverse, bool exclusive, const ScanGradients& gradients) {
  cpu::scan_backward(row_kernels(), op, x, factor, blocks_of(x, segments), reverse, exclusive, gradients);
}

}  // namespace reel::cpu::REEL_CPU_ISA
