#pragma once

#include "reel/backends/cuda/kernel.h"

// How threads share rows, columns and segments.

namespace reel::cuda {

namespace device {

/// The threads that work on one row: a warp for short rows, else the whole block. Rows are dealt out over the grid.
struct RowGroup {
  bool whole_block;

  REEL_DEVICE int lane() const { return whole_block ? threadIdx.x : threadIdx.x % kWarp; }
  REEL_DEVICE int width() const { return whole_block ? blockDim.x : kWarp; }
  REEL_DEVICE int in_block() const { return whole_block ? 0 : threadIdx.x / kWarp; }
  REEL_DEVICE int64_t first() const { return whole_block ? blockIdx.x : first_unit() / kWarp; }
  REEL_DEVICE int64_t step() const { return whole_block ? gridDim.x : unit_step() / kWarp; }
  /// Joins the group's values in a fixed order; all threads of the group get the result. `scratch`: a value per warp.
  template <class T, class Join>
  REEL_DEVICE T join(T value, T* scratch, Join f) const {
    return whole_block ? join_block(value, scratch, f) : join_lanes(value, f);
  }
};

/// The threads of a block as `columns` (a power of two) times row lanes: neighbours take neighbouring columns, and each row
/// lane every rows()-th row.
struct Lanes {
  int columns;

  REEL_DEVICE int column() const { return threadIdx.x % columns; }
  REEL_DEVICE int row() const { return threadIdx.x / columns; }
  REEL_DEVICE int rows() const { return blockDim.x / columns; }
  /// Joins the values of a column's row lanes in a fixed order; all of them get the result. `scratch`: a value per thread.
  /// All threads of the block must call it.
  template <class T, class Join>
  REEL_DEVICE T join(T value, T* scratch, Join f) const {
    __syncthreads();  // of what was read from scratch before
    scratch[threadIdx.x] = value;
    for (int half = rows() / 2; half > 0; half /= 2) {
      __syncthreads();
      if (row() < half) scratch[threadIdx.x] = f(scratch[threadIdx.x], scratch[threadIdx.x + half * columns]);
    }
    __syncthreads();
    return scratch[column()];
  }
  /// Joins the values of a column's row lanes before this one (none: `identity`); `total` becomes that of all of them.
  /// `scratch` and callers as for join.
  template <class T, class Join>
  REEL_DEVICE T before(T value, T* scratch, T identity, T& total, Join f) const {
    __syncthreads();  // of what was read from scratch before
    scratch[threadIdx.x] = value;
    for (int step = 1; step < rows(); step *= 2) {
      __syncthreads();
      if (row() >= step) value = f(scratch[threadIdx.x - step * columns], value);
      __syncthreads();
      scratch[threadIdx.x] = value;
    }
    __syncthreads();
    total = scratch[column() + (rows() - 1) * columns];
    return row() > 0 ? scratch[threadIdx.x - columns] : identity;
  }
};

/// How rows are cut into pieces; count 1: not at all. Units are the pieces of all rows, in order.
struct RowPieces {
  int64_t count, length;

  REEL_DEVICE int64_t row(int64_t unit) const { return unit / count; }
  REEL_DEVICE int64_t begin(int64_t unit) const { return unit % count * length; }
  REEL_DEVICE int64_t end(int64_t unit, int64_t n) const { return smaller(begin(unit) + length, n); }
  REEL_DEVICE int size(int64_t unit, int64_t n) const { return static_cast<int>(end(unit, n) - begin(unit)); }
};

/// Segments of rows: by offsets, or `length` rows each where there are none.
struct Rows {
  const int64_t* offsets;
  int64_t length;

  REEL_DEVICE int64_t begin(int64_t s) const { return offsets != nullptr ? offsets[s] : s * length; }
  REEL_DEVICE int64_t count(int64_t s) const { return offsets != nullptr ? offsets[s + 1] - offsets[s] : length; }
};

/// The columns of segments of rows of `width` elements as lines: line l is column l % width of segment l / width.
struct Lines {
  Rows rows;
  int64_t segments, width;

  REEL_DEVICE int64_t size() const { return segments * width; }
  REEL_DEVICE int64_t count(int64_t line) const { return rows.count(line / width); }
  /// The line's first element; the others follow `width` apart.
  REEL_DEVICE int64_t first(int64_t line) const { return rows.begin(line / width) * width + line % width; }
};

/// The segment of a row that is in one of [low, high): the last one that begins at or before it.
REEL_DEVICE int64_t segment_of(int64_t row, const int64_t* offsets, int64_t low, int64_t high) {
  while (high - low > 1) {
    const int64_t middle = (low + high) / 2;
    if (offsets[middle] <= row) low = middle;
    else high = middle;
  }
  return low;
}

/// f(element, row, segment, column) for the elements of [total, width]. A warp takes runs of neighbouring elements and looks
/// the segments of the first and the last one up: the others lie between.
template <class F>
REEL_DEVICE void for_each_element(int64_t total, int64_t width, const int64_t* offsets, int64_t segments, F f) {
  constexpr int64_t kMost = 8;  // elements of a lane in one run
  const int64_t elements = total * width, each = smaller(kMost, larger<int64_t>(1, elements / unit_step()));
  const int64_t run = each * kWarp;
  for (int64_t begin = first_unit() / kWarp * run; begin < elements; begin += unit_step() / kWarp * run) {
    const int64_t end = smaller(begin + run, elements);
    const int64_t first = segment_of(begin / width, offsets, 0, segments);
    const int64_t last = segment_of((end - 1) / width, offsets, first, segments);
    for (int64_t i = begin + threadIdx.x % kWarp; i < end; i += kWarp) {
      const int64_t row = i / width;
      f(i, row, segment_of(row, offsets, first, last + 1), i - row * width);
    }
  }
}

}  // namespace device

/// A launch for RowGroups: rows of up to kShortRow elements go to warps. No block has more than kMostThreads threads, so that
/// a kernel may use 128 registers.
inline constexpr int64_t kShortRow = 512;
inline constexpr int kMostThreads = 512;

inline Grid row_grid(const Context& context, int64_t rows, int64_t length, bool& whole_block) {
  whole_block = length > kShortRow;
  const int threads = length > 32 * kShortRow ? kMostThreads : kThreads;
  Grid grid = grid_for(context, whole_block ? rows * threads : rows * device::kWarp, threads);
  return grid;
}

/// An axis of a contiguous array: [outer, n, inner].
struct Blocks {
  int64_t outer = 1, n = 1, inner = 1;

  Blocks(const Shape& shape, int axis) {
    for (int i = 0; i < axis; ++i) outer *= shape[i];
    n = shape[axis];
    for (int i = axis + 1; i < shape.rank(); ++i) inner *= shape[i];
  }
};

/// A launch for Lanes: a block per segment (more segments than blocks: in turn) and tile of columns (blockIdx.y).
struct LaneGrid {
  Grid grid;
  device::Lanes lanes;
};

inline int power_of_two_from(int64_t n, int least, int most) {
  int power = least;
  while (power < n && power < most) power *= 2;
  return power;
}

inline LaneGrid lane_grid(const Context& context, int64_t segments, int64_t longest, int64_t width,
                          std::size_t bytes_per_thread) {
  const int columns = power_of_two_from(width, 1, device::kWarp);
  const int threads = power_of_two_from(longest < 256 ? longest * columns : 256, device::kWarp, 256);
  const int64_t most = std::int64_t{context.processors()} * (2048 / threads);
  const int64_t tiles = ceil_div(width, columns);
  return {{.blocks = segments < most ? segments : most,
           .y = tiles < 65535 ? tiles : 65535,
           .threads = threads,
           .shared_bytes = bytes_per_thread * static_cast<std::size_t>(threads)},
          {columns}};
}

}  // namespace reel::cuda
