// Softmax within segments: down each column of each segment's rows, or along them where there is one column. The rows of a
// long segment are shared among threads in pieces, whose maxima and sums are joined between the passes.

#include "reel/backends/cpu/cpu_ops.h"
#include "reel/backends/cpu/segments.h"
#include "reel/backends/cpu/softmax_columns.h"
#include "reel/backends/cpu/softmax_rows.h"
#include "reel/core/scratch.h"

namespace reel::cpu::REEL_CPU_ISA {
namespace {

// An exponential costs as much as several plain operations. Of two chunks two threads take 0.6 to 0.9 of one's time with one
// column, 0.8 to 1.3 with 16, backward 0.9 to 1.8 (benchmark_grains).
constexpr int64_t kSegmentSoftmaxGrain = kGrain / 4;

/// The pieces of one long segment. (Four vectors at a time everywhere: eight would be faster, and are not worth the code here.)
template <class T>
struct Pieces {
  int64_t rows, width;
  int64_t piece = piece_rows(width), count = ceil_div(rows, piece);

  /// f.operator()<K>(lanes, j, row, last) for the rows [row, last) of each piece and the vectors of columns from j on, and
  /// finish() at a task's end.
  template <class F, class Finish = Nothing>
  void each(F f, Finish finish = {}) const {
    parallel_for(count, 1, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        for_each_column_block<T>(0, width, [&]<int K>(auto lanes, int64_t j) {
          f.template operator()<K>(lanes, j, i * piece, min((i + 1) * piece, rows));
        });
      }
      finish();
    });
  }

  /// What f gives for each piece, joined into partial [count, width]'s first row.
  template <class F, class Join>
  void fold(T* partial, F f, Join join) const {
    each([&]<int K>(auto lanes, int64_t j, int64_t row, int64_t last) {
      const Pack<T, K> pack = f.template operator()<K>(lanes, j, row, last);
      pack.store(lanes, partial + row / piece * width + j);
    });
    join_pairwise(count, [&](int64_t i, int64_t later) {
      for_each_vector<T>(0, width, [&](auto lanes, int64_t j) {
        T *const a = partial + i * width + j, *const b = partial + later * width + j;
        lanes.store(a, join(lanes.load(b), lanes.load(a)));
      });
    });
  }
};

template <class T>
REEL_INLINE std::size_t partial_bytes(const Pieces<T>& pieces) {
  return static_cast<std::size_t>(pieces.count * pieces.width) * sizeof(T);
}

template <class T>
void softmax_long_segment(const SoftmaxColumns<T>& softmax, const Pieces<T>& pieces) {
  const Scratch max_memory(partial_bytes(pieces)), sum_memory(partial_bytes(pieces));
  T *const maxima = max_memory.as<T>(), *const sums = sum_memory.as<T>();
  pieces.fold(
      maxima,
      [&]<int K>(auto lanes, int64_t j, int64_t row, int64_t last) {
        return softmax.template max<K>(lanes, j, row, last);
      },
      [](Vec<T> a, Vec<T> b) { return larger(a, b); });
  pieces.fold(
      sums,
      [&]<int K>(auto lanes, int64_t j, int64_t row, int64_t last) {
        return softmax.sum(lanes, j, row, last, softmax.shift(Pack<T, K>::load(lanes, maxima + j)));
      },
      [](Vec<T> later, Vec<T> sum) { return sum + later; });
  pieces.each([&]<int K>(auto lanes, int64_t j, int64_t row, int64_t last) {
    softmax.finish(lanes, j, row, last, softmax.shift(Pack<T, K>::load(lanes, maxima + j)),
                   softmax.correction(Pack<T, K>::load(lanes, sums + j)));
  });
}

template <class T>
void softmax_backward_long_segment(const SoftmaxGradientColumns<T>& gradient, const Pieces<T>& pieces) {
  const Scratch max_memory(partial_bytes(pieces)), sum_memory(partial_bytes(pieces));
  T *const maxima = max_memory.as<T>(), *const sums = sum_memory.as<T>();
  pieces.fold(
      maxima,
      [&]<int K>(auto lanes, int64_t j, int64_t row, int64_t last) {
        return gradient.template highest<K>(lanes, j, row, last);
      },
      [](Vec<T> a, Vec<T> b) { return max(a, b); });
  pieces.fold(
      sums,
      [&]<int K>(auto lanes, int64_t j, int64_t row, int64_t last) {
        return gradient.template sum<K>(lanes, j, row, last);
      },
      [](Vec<T> later, Vec<T> sum) { return sum + later; });
  pieces.each(
      [&]<int K>(auto lanes, int64_t j, int64_t row, int64_t last) {
        gradient.finish(lanes, j, row, last, Pack<T, K>::load(lanes, sums + j), Pack<T, K>::load(lanes, maxima + j));
      },
      [&] { gradient.writer.finish(); });
}

/// f(first, rows) for each segment of more rows than one task does alone. One column is done along the row, by one task.
template <class F>
REEL_INLINE void for_each_long_segment(const Segments& segments, int64_t width, F f) {
  if (width == 1 || segments.max_length <= longest_alone(width)) return;
  for (int64_t s = 0; s < segments.count; ++s) {
    const int64_t first = segments.offsets[s], rows = segments.offsets[s + 1] - first;
    if (rows > longest_alone(width)) f(first, rows);
  }
}

}  // namespace

void CpuOps::segment_softmax(SoftmaxOp op, const Array& x, const Segments& segments, double temperature,
                             const Array& y) {
  if (x.size == 0) return;
  const int64_t width = x.shape.back();
  dispatch_floating(x.dtype, [&]<class T>() {
    const T rate = static_cast<T>(1 / temperature);
    const auto columns = [&](int64_t first) {
      return SoftmaxColumns<T>{op, x.as<T>() + first * width, y.as<T>() + first * width, width, rate};
    };
    for_each_segment(segments, width, kSegmentSoftmaxGrain, [&](int64_t s, int64_t begin, int64_t end) {
      const int64_t first = segments.offsets[s], rows = segments.offsets[s + 1] - first;
      if (width > 1) {
        if (rows <= longest_alone(width)) columns(first).run(rows, begin, end);
      } else if (op == SoftmaxOp::softmax) {
        softmax_row(x.as<T>() + first, y.as<T>() + first, rows, rate);
      } else {
        log_softmax_rows(x.as<T>() + first, y.as<T>() + first, 1, rows, rate);
      }
    });
    for_each_long_segment(segments, width, [&](int64_t first, int64_t rows) {
      softmax_long_segment(columns(first), Pieces<T>{rows, width});
    });
  });
}

void CpuOps::segment_softmax_backward(SoftmaxOp op, const Array& y, const Array& dy, const Segments& segments,
                                      double temperature, const Array& dx) {
  if (y.size == 0) return;
  const int64_t width = y.shape.back();
  dispatch_floating(y.dtype, [&]<class T>() {
    const T rate = static_cast<T>(1 / temperature);
    const T *const value = y.as<T>(), *const grad = dy.as<T>();
    T* const to = dx.as<T>();
    const RowStream<T> writer(to, dx.size, width);
    const auto columns = [&](int64_t first) {
      const int64_t i = first * width;
      return SoftmaxGradientColumns<T>{op, value + i, grad + i, to + i, width, rate, writer};
    };
    const auto segment = [&](int64_t s, int64_t begin, int64_t end) {
      const int64_t first = segments.offsets[s], rows = segments.offsets[s + 1] - first;
      if (width > 1) {
        if (rows <= longest_alone(width)) columns(first).run(rows, begin, end);
      } else {
        softmax_backward_rows(op, value + first, grad + first, to + first, 1, rows, rate);
      }
    };
    for_each_segment(segments, width, kSegmentSoftmaxGrain, segment, [&] { writer.finish(); });
    for_each_long_segment(segments, width, [&](int64_t first, int64_t rows) {
      softmax_backward_long_segment(columns(first), Pieces<T>{rows, width});
    });
  });
}

}  // namespace reel::cpu::REEL_CPU_ISA
