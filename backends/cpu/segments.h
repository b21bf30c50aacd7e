#pragma once

#include "reel/backends/cpu/kernel.h"
#include "reel/backends/cpu/vector_loops.h"
#include "reel/core/ops.h"

/// How work on segments is cut. Cuts follow from the offsets and the width alone and never show in the result.
namespace reel::cpu::REEL_CPU_ISA {

/// Row `row` of an array of rows.
template <class T>
REEL_INLINE T* row_of(const Array& array, int64_t row) {
  return array.as<T>() + row * array.shape.back();
}

/// The first segment s with offsets[s] + s >= position. An empty segment counts as one row of work, so that these numbers
/// grow strictly and a million empty segments are shared among threads too.
REEL_INLINE int64_t first_segment_at(const Segments& segments, int64_t position) {
  int64_t low = 0, high = segments.count;
  while (low < high) {
    const int64_t middle = low + (high - low) / 2;
    if (segments.offsets[middle] + middle < position) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  return low;
}

/// The segment that row `row` < total is in.
REEL_INLINE int64_t segment_of_row(const Segments& segments, int64_t row) {
  int64_t low = 0, high = segments.count;  // offsets[low] <= row < offsets[high]
  while (high - low > 1) {
    const int64_t middle = low + (high - low) / 2;
    if (segments.offsets[middle] <= row) {
      low = middle;
    } else {
      high = middle;
    }
  }
  return low;
}

/// f(s, begin, end) for columns [begin, end) of every segment, in parallel, about `grain` elements to a task, and finish() at
/// a task's end.
template <class F, class Finish = Nothing>
REEL_INLINE void for_each_segment(const Segments& segments, int64_t width, int64_t grain, F f, Finish finish = {}) {
  const int64_t columns = even_chunk(width, max<int64_t>(grain / 16, 64));
  const int64_t pieces = ceil_div(width, columns);
  const int64_t positions = segments.total + segments.count;
  const int64_t rows = max<int64_t>(1, grain / columns);
  const int64_t tasks = ceil_div(positions, rows);
  parallel_for(tasks * pieces, 1, [&](int64_t first_task, int64_t last_task) {
    for (int64_t task = first_task; task < last_task; ++task) {
      const int64_t begin = task % pieces * columns, end = min(begin + columns, width);
      const int64_t limit = (task / pieces + 1) * rows;
      for (int64_t s = first_segment_at(segments, limit - rows); s < segments.count && segments.offsets[s] + s < limit;
           ++s) {
        f(s, begin, end);
      }
    }
    finish();
  });
}

/// f(s, first, last) for runs of rows of one segment that together are all rows, in parallel, about `grain` elements to a
/// task, and finish() at a task's end. For work whose result does not depend on where a segment is cut.
template <class F, class Finish = Nothing>
REEL_INLINE void for_each_row_run(const Segments& segments, int64_t width, int64_t grain, F f, Finish finish = {}) {
  parallel_for(segments.total, max<int64_t>(1, grain / max<int64_t>(1, width)), [&](int64_t begin, int64_t end) {
    int64_t s = segment_of_row(segments, begin);
    while (begin < end) {
      while (segments.offsets[s + 1] <= begin) ++s;  // empty ones too
      const int64_t last = min(end, segments.offsets[s + 1]);
      f(s, begin, last);
      begin = last;
    }
    finish();
  });
}

// --- long segments -----------------------------------------------------------------------------------------------------

/// Rows of the pieces of a long segment: whole nodes of the tree of `pairwise` sums, large enough for a task.
REEL_INLINE int64_t piece_rows(int64_t width) {
  int64_t rows = kLeafRows;
  while (rows * width < 2 * kGrain) rows *= 2;
  return rows;
}

/// The rows of the longest segment that one task does alone.
REEL_INLINE int64_t longest_alone(int64_t width) { return 2 * piece_rows(width); }

/// join(i, later) for all pieces, in the order of `pairwise`: what is left is in piece 0.
template <class F>
REEL_INLINE void join_pairwise(int64_t pieces, F join) {
  for (int64_t step = 1; step < pieces; step *= 2) {
    for (int64_t i = 0; i + step < pieces; i += 2 * step) join(i, i + step);
  }
}

}  // namespace reel::cpu::REEL_CPU_ISA
