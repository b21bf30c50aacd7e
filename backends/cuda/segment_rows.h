#pragma once

#include "reel/backends/cuda/group.h"

// Elementwise work on the rows of segments: warps take runs of neighbouring rows and look their segments up.

namespace reel::cuda {

namespace device {

/// segment_of by all lanes of a warp together: 32 places at a time. All get the result.
REEL_DEVICE int64_t segment_of_warp(int64_t row, const int64_t* offsets, int64_t low, int64_t high) {
  while (high - low > 1) {
    const int64_t step = (high - low + kWarp - 1) / kWarp, place = low + step * (threadIdx.x % kWarp);
    // The first lane's place is `low`, which begins at or before the row.
    const unsigned before = __ballot_sync(kAllLanes, place < high && offsets[place] <= row);
    low += step * (__popc(before) - 1);
    high = smaller(low + step, high);
  }
  return low;
}

/// How warps share rows of `columns` units: `lanes` (a power of two) of them take a row, and a warp `run` neighbouring rows.
struct RowRuns {
  const int64_t* offsets;
  int64_t segments, total, run;
  int lanes;

  /// f(row, segment, lane) for all rows; `lane` is this thread's among those of the row. Where a run's segments are 32 at most,
  /// as nearly always, each lane knows where one of them ends, and finding a row's reads no memory.
  template <class F>
  REEL_DEVICE void for_each(F f) const {
    const int lane = threadIdx.x % kWarp;
    for (int64_t begin = first_unit() / kWarp * run; begin < total; begin += unit_step() / kWarp * run) {
      const int64_t first = segment_of_warp(begin, offsets, 0, segments);
      const int rows = static_cast<int>(smaller(run, total - begin));
      const int end = static_cast<int>(smaller<int64_t>(offsets[smaller(first + lane + 1, segments)] - begin, rows));
      const bool seen = __shfl_sync(kAllLanes, end, kWarp - 1) == rows;
      const int64_t last = seen ? first : segment_of_warp(begin + rows - 1, offsets, first, segments);
      for (int step = 0; step < rows; step += kWarp / lanes) {
        const int row = step + lane / lanes;
        int64_t s = seen ? first + ended_before(row, end) : 0;
        if (row >= rows) continue;
        if (!seen) s = segment_of(begin + row, offsets, first, last + 1);
        f(begin + row, s, lane % lanes);
      }
    }
  }

 private:
  /// How many of the lanes' segments end at or before the row; less than 32.
  REEL_DEVICE static int ended_before(int row, int end) {
    int ended = 0;
    REEL_UNROLL
    for (int step = kWarp / 2; step > 0; step /= 2)
      if (__shfl_sync(kAllLanes, end, ended + step - 1) <= row) ended += step;
    return ended;
  }
};

}  // namespace device

/// A launch for RowRuns of rows of `units` units each.
struct RowRunGrid {
  Grid grid;
  device::RowRuns rows;
};

inline RowRunGrid row_run_grid(const Context& context, const int64_t* offsets, int64_t segments, int64_t total,
                               int64_t units) {
  constexpr int64_t kMost = 8, kResident = 5;  // rows of a lane in one run; blocks that an SM holds at a time
  const int lanes = power_of_two_from(units, 1, device::kWarp);
  const int64_t side_by_side = device::kWarp / lanes, blocks = int64_t{context.processors()} * kResident;
  const int64_t each = ceil_div(total, blocks * (kThreads / device::kWarp) * side_by_side);
  const int64_t run = (each < kMost ? each : kMost) * side_by_side;
  return {grid_for(context, ceil_div(total, run) * device::kWarp), {offsets, segments, total, run, lanes}};
}

}  // namespace reel::cuda
