#include "reel/backends/cpu/cpu_ops.h"
#include "reel/backends/cpu/kernel.h"
#include "reel/backends/cpu/simd.h"

// Recurrences, running sums and products among them, down the columns of blocks of rows: a block is a segment, or the lines along an axis. A line is
// walked in order by one thread, its state in f64; threads share blocks and groups of columns.

namespace reel::cpu::REEL_CPU_ISA {

namespace {

constexpr int64_t kColumns = 256;  // side by side; their states stay in the first-level cache

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
};

/// `columns` columns of `rows` rows of walk.width elements, from element `place` on.
template <class T>
void scan_rows(const Walk& walk, const Recurrence<T>& recurrence, int64_t place, T* y, int64_t rows, int64_t columns) {
  using State = typename StateOf<T>::Type;
  State state[kColumns];
  T ones[kColumns], zeros[kColumns];
  for (int64_t j = 0; j < columns; ++j) {
    state[j] = static_cast<State>(recurrence.start);
    ones[j] = 1;
    zeros[j] = 0;
  }
  for (int64_t i = 0; i < rows; ++i) {
    const int64_t row = place + (walk.reverse ? rows - 1 - i : i) * walk.width;
    const T* const factor = recurrence.factor == nullptr ? ones : recurrence.factor + row;
    const T* const x = recurrence.x == nullptr ? zeros : recurrence.x + row;
#pragma omp simd
    for (int64_t j = 0; j < columns; ++j) {
      const State before = state[j];
      state[j] = advance(static_cast<State>(factor[j]), before, static_cast<State>(x[j]));
      y[row + j] = static_cast<T>(walk.exclusive ? before : state[j]);
    }
  }
}

/// Blocks of rows, block b from row first(b) to first(b + 1), `total` rows in all.
template <class First>
void scan_blocks(ScanOp op, const Array& x, const Array* factor, const Walk& walk, int64_t blocks, int64_t total,
                 First first, const Array& y) {
  if (y.size == 0) return;
  const auto run = [&]<class T>() {
    const T* const from = x.as<T>();
    const Recurrence<T> recurrence = op == ScanOp::prod
                                         ? Recurrence<T>{from, nullptr, 1}
                                         : Recurrence<T>{factor == nullptr ? nullptr : factor->as<T>(), from, 0};
    T* const to = y.as<T>();
    const int64_t piece = even_chunk(walk.width, kColumns), pieces = ceil_div(walk.width, piece);
    const int64_t rows = max<int64_t>(1, total / blocks);  // of a block on average
    parallel_for(blocks * pieces, max<int64_t>(1, kGrain / (rows * piece)), [&](int64_t begin, int64_t end) {
      for (int64_t unit = begin; unit < end; ++unit) {
        const int64_t block = unit / pieces, column = unit % pieces * piece, row = first(block);
        scan_rows(walk, recurrence, row * walk.width + column, to, first(block + 1) - row,
                  min(piece, walk.width - column));
      }
    });
  };
  if (x.dtype == DType::i64) return run.template operator()<int64_t>();
  dispatch_floating(x.dtype, run);
}

}  // namespace

void CpuOps::scan(ScanOp op, const Array& x, const Array* factor, int axis, bool reverse, bool exclusive,
                  const Array& y) {
  int64_t blocks = 1, width = 1;
  for (int i = 0; i < axis; ++i) blocks *= x.shape[i];
  for (int i = axis + 1; i < x.rank(); ++i) width *= x.shape[i];
  const int64_t length = x.shape[axis];
  scan_blocks(
      op, x, factor, {width, reverse, exclusive}, blocks, blocks * length,
      [=](int64_t block) { return block * length; }, y);
}

void CpuOps::segment_scan(ScanOp op, const Array& x, const Array* factor, const Segments& segments, bool reverse,
                          bool exclusive, const Array& y) {
  const int64_t* const offsets = segments.offsets;
  scan_blocks(
      op, x, factor, {x.shape.back(), reverse, exclusive}, segments.count, segments.total,
      [=](int64_t segment) { return offsets[segment]; }, y);
}

}  // namespace reel::cpu::REEL_CPU_ISA
