#include <type_traits>

#include "reel/backends/cpu/cpu_ops.h"
#include "reel/backends/cpu/kernel.h"

// Running sums and products down the columns of blocks of rows: a block is a segment, or the lines along an axis. A line is
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

struct RunningSum {
  static constexpr int start = 0;
  template <class S, class T>
  REEL_INLINE static S step(S state, T x, const T*, int64_t) {
    return state + static_cast<S>(x);
  }
};
struct RunningProduct {
  static constexpr int start = 1;
  template <class S, class T>
  REEL_INLINE static S step(S state, T x, const T*, int64_t) {
    return state * static_cast<S>(x);
  }
};
struct Recurrence {
  static constexpr int start = 0;
  template <class S, class T>
  REEL_INLINE static S step(S state, T x, const T* factor, int64_t j) {
    return static_cast<S>(factor[j]) * state + static_cast<S>(x);
  }
};

/// Where rows lie, and which way they are walked.
struct Walk {
  int64_t width;
  bool reverse, exclusive;
};

/// `columns` columns of `rows` rows of `walk.width` elements.
template <class Op, class T>
void scan_rows(const Walk& walk, const T* x, const T* factor, T* y, int64_t rows, int64_t columns) {
  using State = typename StateOf<T>::Type;
  State state[kColumns];
  for (int64_t j = 0; j < columns; ++j) state[j] = static_cast<State>(Op::start);
  for (int64_t i = 0; i < rows; ++i) {
    const int64_t place = (walk.reverse ? rows - 1 - i : i) * walk.width;
    const T *const from = x + place, *const f = factor == nullptr ? nullptr : factor + place;
    T* const to = y + place;
    if (walk.exclusive) {
#pragma omp simd
      for (int64_t j = 0; j < columns; ++j) {
        const State before = state[j];
        state[j] = Op::step(before, from[j], f, j);
        to[j] = static_cast<T>(before);
      }
    } else {
#pragma omp simd
      for (int64_t j = 0; j < columns; ++j) {
        state[j] = Op::step(state[j], from[j], f, j);
        to[j] = static_cast<T>(state[j]);
      }
    }
  }
}

/// Blocks of rows, block b from row first(b) to first(b + 1), `total` rows in all.
template <class First>
void scan_blocks(ScanOp op, const Array& x, const Array* factor, const Walk& walk, int64_t blocks, int64_t total,
                 First first, const Array& y) {
  if (y.size == 0) return;
  const auto run = [&]<class Op, class T>() {
    const T *const from = x.as<T>(), *const f = factor == nullptr ? nullptr : factor->as<T>();
    T* const to = y.as<T>();
    const int64_t piece = even_chunk(walk.width, kColumns), pieces = ceil_div(walk.width, piece);
    const int64_t rows = max<int64_t>(1, total / blocks);  // of a block on average
    parallel_for(blocks * pieces, max<int64_t>(1, kGrain / (rows * piece)), [&](int64_t begin, int64_t end) {
      for (int64_t unit = begin; unit < end; ++unit) {
        const int64_t block = unit / pieces, column = unit % pieces * piece, row = first(block);
        const int64_t place = row * walk.width + column;
        scan_rows<Op, T>(walk, from + place, f == nullptr ? nullptr : f + place, to + place, first(block + 1) - row,
                         min(piece, walk.width - column));
      }
    });
  };
  const auto run_op = [&]<class T>() {
    if (op == ScanOp::prod) return run.template operator()<RunningProduct, T>();
    if constexpr (!std::is_integral_v<T>)
      if (factor != nullptr) return run.template operator()<Recurrence, T>();
    return run.template operator()<RunningSum, T>();
  };
  if (x.dtype == DType::i64) return run_op.template operator()<int64_t>();
  dispatch_floating(x.dtype, run_op);
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
