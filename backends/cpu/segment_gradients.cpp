// Gradients of reductions over the rows of each segment: a segment's row goes to all of its rows, or to the one that was chosen.
// A task takes a run of rows.

#include "reel/backends/cpu/cpu_ops.h"
#include "reel/backends/cpu/segments.h"
#include "reel/backends/cpu/stream.h"
#include "reel/backends/cpu/vector_loops.h"

namespace reel::cpu::REEL_CPU_ISA {

void CpuOps::segment_broadcast(const Array& x, const Segments& segments, bool mean, const Array& y) {
  const int64_t width = y.shape.back();
  if (y.size == 0) return;
  dispatch_floating(x.dtype, [&]<class T>() {
    const RowStream<T> writer(y.as<T>(), y.size, width, kStreamRepeatedBytes);
    const auto broadcast = [&](int64_t s, int64_t first, int64_t last) {
      const T* const from = row_of<T>(x, s);
      T* const to = row_of<T>(y, first);
      const int64_t rows = last - first;
      const T length = mean ? static_cast<T>(segments.offsets[s + 1] - segments.offsets[s]) : T(1);
      if (width == 1) {
        const T value = *from / length;
        for (int64_t r = 0; r < rows; ++r) to[r] = value;
        return;
      }
      // Wide blocks: memory takes whole rows faster than halves.
      for_each_column_block<T, 8>(0, width, [=]<int K>(auto lanes, int64_t j) {
        Pack<T, K> value;
        for (int k = 0; k < K; ++k) value.v[k] = lanes.load(from + j + k * Vec<T>::width) / Vec<T>::broadcast(length);
        writer.template write<K>(lanes, to + j, rows, [value](int64_t, int k) { return value.v[k]; });
      });
    };
    for_each_row_run(segments, width, kGrain, broadcast, [=] { writer.finish(); });
  });
}

void CpuOps::segment_select_backward(const Array& dy, const Array& which, const Segments& segments, const Array& dx) {
  const int64_t width = dx.shape.back();
  if (dx.size == 0) return;
  dispatch_floating(dy.dtype, [&]<class T>() {
    const RowStream<T> writer(dx.as<T>(), dx.size, width);
    const auto select = [&](int64_t s, int64_t first, int64_t last) {
      T* const to = row_of<T>(dx, first);
      const T* const grad = row_of<T>(dy, s);
      const int64_t* const number = row_of<int64_t>(which, s);
      const int64_t rows = last - first, before = first - segments.offsets[s];  // rows of the segment before this run
      if (width == 1) {
        for (int64_t r = 0; r < rows; ++r) to[r] = 0;
        if (*number >= before && *number < before + rows) to[*number - before] = *grad;
        return;
      }
      // Blocks of 256 bytes here too; with SSE those would be 16 vectors.
      for_each_column_block<T, kVectorBytes == 32 ? 8 : 4>(0, width, [=]<int K>(auto lanes, int64_t j) {
        const Vec<T> zero = Vec<T>::zero();
        Pack<T, K> value, chosen;  // chosen: rows of this run, which are few enough for T, or others
        for (int k = 0; k < K; ++k) {
          T rows_of_lanes[Vec<T>::width] = {};
          const int64_t column = j + k * Vec<T>::width;
          for (int64_t i = 0; i < min<int64_t>(Vec<T>::width, width - column); ++i)
            rows_of_lanes[i] = static_cast<T>(number[column + i] - before);
          chosen.v[k] = Vec<T>::load(rows_of_lanes);
          value.v[k] = lanes.load(grad + column);
        }
        writer.template write<K>(lanes, to + j, rows, [=](int64_t r, int k) {
          const Vec<T> row = Vec<T>::broadcast(static_cast<T>(r));
          return Vec<T>{chosen.v[k].raw == row.raw ? value.v[k].raw : zero.raw};
        });
      });
    };
    for_each_row_run(segments, width, kGrain, select, [=] { writer.finish(); });
  });
}

}  // namespace reel::cpu::REEL_CPU_ISA
