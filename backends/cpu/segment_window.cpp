// Windows of rows within segments: each row with its neighbours, zeros beyond the segment's ends. A task takes a run of rows;
// rows do not depend on each other.

#include "reel/backends/cpu/cpu_ops.h"
#include "reel/backends/cpu/segments.h"

namespace reel::cpu::REEL_CPU_ISA {

// The neighbours that exist lie next to each other: a row of y is zeros, one run of x, zeros. Zero is all bits 0 in every
// dtype.
void CpuOps::segment_window(const Array& x, const Segments& segments, int64_t before, const Array& y) {
  const int64_t window = y.shape[1], width = y.shape[2];
  if (y.size == 0) return;
  const auto bytes = static_cast<int64_t>(size_of(x.dtype)) * width;
  for_each_row_run(segments, window * width, kGrain, [&](int64_t s, int64_t first, int64_t last) {
    for (int64_t r = first; r < last; ++r) {
      const int64_t begin = min(max(segments.offsets[s] - (r - before), int64_t{0}), window);
      const int64_t end = max(begin, min(segments.offsets[s + 1] - (r - before), window));
      const auto put = [&](int64_t from, int64_t to) { return static_cast<std::size_t>((to - from) * bytes); };
      char* const row = y.as<char>() + r * window * bytes;
      __builtin_memset(row, 0, put(0, begin));
      if (begin < end)
        __builtin_memcpy(row + begin * bytes, x.as<char>() + (r - before + begin) * bytes, put(begin, end));
      __builtin_memset(row + end * bytes, 0, put(end, window));
    }
  });
}

// Row r is place r - q + before of each row q whose window it is in; they are added in descending order of q.
void CpuOps::segment_window_backward(const Array& dy, const Segments& segments, int64_t before, const Array& dx) {
  const int64_t window = dy.shape[1], width = dy.shape[2];
  if (dx.size == 0) return;
  dispatch_floating(dx.dtype, [&]<class T>() {
    for_each_row_run(segments, window * width, kGrain, [&](int64_t s, int64_t first, int64_t last) {
      for (int64_t r = first; r < last; ++r) {
        const int64_t begin = max(r + before - segments.offsets[s + 1] + 1, int64_t{0});
        const int64_t end = min(r + before - segments.offsets[s] + 1, window);
        const T* const from = dy.as<T>() + (r + before) * window * width;  // row q = r + before - j, place j
        T* const to = dx.as<T>() + r * width;
        for_each_vector<T>(0, width, [=](auto lanes, int64_t c) {
          Vec<T> sum = Vec<T>::zero();
          for (int64_t j = begin; j < end; ++j) sum = sum + lanes.load(from + (j - j * window) * width + c);
          lanes.store(to + c, sum);
        });
      }
    });
  });
}

}  // namespace reel::cpu::REEL_CPU_ISA
