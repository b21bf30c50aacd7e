// Windows of rows within segments: each row with its neighbours, zeros beyond the segment's ends. Rows are moved in units as
// wide as they allow.

#include "reel/backends/cuda/group.h"
#include "reel/backends/cuda/units.h"

namespace reel::cuda {

namespace device {
namespace {

/// A unit of y [total, window, units] per lane and step.
template <class Unit>
__global__ void segment_window(const Unit* x, const int64_t* offsets, int64_t segments, int64_t total, int64_t window,
                               int64_t units, int64_t before, Unit* y) {
  for_each_element(total, window * units, offsets, segments, [&](int64_t i, int64_t row, int64_t s, int64_t place) {
    const int64_t from = row + place / units - before;
    y[i] = from >= offsets[s] && from < offsets[s + 1] ? x[from * units + place % units] : Unit{};
  });
}

/// Row r is place j of row r + before - j, where that is of the segment.
template <class T>
__global__ void segment_window_backward(const T* dy, const int64_t* offsets, int64_t segments, int64_t total,
                                        int64_t window, int64_t width, int64_t before, T* dx) {
  for_each_element(total, width, offsets, segments, [&](int64_t i, int64_t row, int64_t s, int64_t column) {
    const int64_t latest = row + before;
    const int64_t begin = larger<int64_t>(latest - offsets[s + 1] + 1, 0),
                  end = smaller(latest - offsets[s] + 1, window);
    T sum = 0;
    for (int64_t j = begin; j < end; ++j) sum += dy[((latest - j) * window + j) * width + column];
    dx[i] = sum;
  });
}

}  // namespace
}  // namespace device

void CudaOps::segment_window(const Array& x, const Segments& segments, std::int64_t before, const Array& y) {
  if (y.size == 0) return;
  const std::size_t bytes = static_cast<std::size_t>(y.shape[2]) * size_of(x.dtype);
  dispatch_unit(x.data, y.data, bytes, [&]<class Unit>() {
    const auto units = static_cast<int64_t>(bytes / sizeof(Unit));
    launch(context_, "segment_window", grid_for(context_, segments.total * y.shape[1] * units),
           &device::segment_window<Unit>, x.as<Unit>(), segments.offsets, segments.count, segments.total, y.shape[1],
           units, before, y.as<Unit>());
  });
}

void CudaOps::segment_window_backward(const Array& dy, const Segments& segments, std::int64_t before, const Array& dx) {
  if (dx.size == 0) return;
  dispatch_floating(dx.dtype, [&]<class T>() {
    launch(context_, "segment_window_backward", grid_for(context_, dx.size), &device::segment_window_backward<T>,
           dy.as<T>(), segments.offsets, segments.count, segments.total, dy.shape[1], dy.shape[2], before, dx.as<T>());
  });
}

}  // namespace reel::cuda
