// Softmax within segments: down each column of each segment's rows, or along them where there is one column.

#include "reel/backends/cpu/cpu_ops.h"
#include "reel/backends/cpu/segments.h"
#include "reel/backends/cpu/softmax_kernels.h"

namespace reel::cpu::REEL_CPU_ISA {
namespace {

// An exponential costs as much as several plain operations.
constexpr int64_t kSegmentSoftmaxGrain = kGrain / 4;

}  // namespace

void CpuOps::segment_softmax(SoftmaxOp op, const Array& x, const Segments& segments, const Array& y) {
  if (x.size == 0) return;
  const int64_t width = x.shape.back();
  dispatch_floating(x.dtype, [&]<class T>() {
    for_each_segment(segments, width, kSegmentSoftmaxGrain, [&](int64_t s, int64_t begin, int64_t end) {
      const int64_t first = segments.offsets[s], rows = segments.offsets[s + 1] - first;
      const T* const from = x.as<T>() + first * width;
      T* const to = y.as<T>() + first * width;
      if (width > 1) {
        softmax_columns(op, from, to, rows, width, begin, end, T(1));
      } else if (op == SoftmaxOp::softmax) {
        softmax_row(from, to, rows, T(1));
      } else {
        log_softmax_row(from, to, rows, T(1));
      }
    });
  });
}

void CpuOps::segment_softmax_backward(SoftmaxOp op, const Array& y, const Array& dy, const Segments& segments,
                                      const Array& dx) {
  if (y.size == 0) return;
  const int64_t width = y.shape.back();
  dispatch_floating(y.dtype, [&]<class T>() {
    for_each_segment(segments, width, kSegmentSoftmaxGrain, [&](int64_t s, int64_t begin, int64_t end) {
      const int64_t first = segments.offsets[s], rows = segments.offsets[s + 1] - first;
      const T *const value = y.as<T>() + first * width, *const grad = dy.as<T>() + first * width;
      T* const to = dx.as<T>() + first * width;
      if (width > 1) {
        softmax_backward_columns(op, value, grad, to, rows, width, begin, end, T(1));
      } else if (op == SoftmaxOp::softmax) {
        softmax_backward_row(value, grad, to, rows, T(1));
      } else {
        log_softmax_backward_row(value, grad, to, rows, T(1));
      }
    });
  });
}

}  // namespace reel::cpu::REEL_CPU_ISA
