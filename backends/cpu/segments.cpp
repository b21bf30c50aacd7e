// Reductions over the rows of each segment, and the ways to and from padded arrays.
//
// x is [total, width]. Columns go to vector lanes, four vectors at a time, rows are read in order: sums in plain order over
// 32 rows, such sums pairwise, counted from the segment's first row. A long segment is cut where that tree has inner nodes,
// so that several threads give the same bits as one.

#include "reel/backends/cpu/segments.h"
#include "reel/backends/cpu/move_run.h"

#include <type_traits>

#include "reel/backends/cpu/cpu_ops.h"
#include "reel/backends/cpu/vector_loops.h"
#include "reel/core/scratch.h"

namespace reel::cpu::REEL_CPU_ISA {
namespace {

constexpr int64_t kAhead = 2048;  // bytes: masked loads, which the machine does not foresee, are asked for so far ahead

// --- reductions --------------------------------------------------------------------------------------------------------

/// Columns [begin, end) of `rows` rows of `width` elements at x, summed into y.
template <class T>
void sum_rows(const T* x, int64_t rows, int64_t width, int64_t begin, int64_t end, T* y) {
  if (width == 1) {
    *y = sum_row<T>(rows, [=](Vec<T> acc, auto lanes, int64_t i) { return acc + lanes.load(x + i); });
    return;
  }
  for_each_column_block<T, 8>(begin, end, [=]<int K>(auto lanes, int64_t j) {
    const auto chain = [=](int64_t row, int64_t last) {
      Pack<T, K> acc = Pack<T, K>::broadcast(0);
      for (const T* p = x + row * width + j; row < last; ++row, p += width) {
        for (int k = 0; k < K; ++k) acc.v[k] = acc.v[k] + lanes.load(p + k * Vec<T>::width);
        if constexpr (std::is_same_v<decltype(lanes), FirstLanes<T>>)
          __builtin_prefetch(reinterpret_cast<const char*>(p) + kAhead);
      }
      return acc;
    };
    Pack<T, K> sum;
    if (rows <= kLeafRows) {
      sum = chain(0, rows);
    } else if constexpr (K > 1) {
      sum = pairwise(0, rows, kLeafRows, chain);
    } else {  // the same tree, but one chain of additions would wait for itself
      sum = pairwise(0, rows, 4 * kLeafRows, [=](int64_t row, int64_t last) {
        if (last - row < 4 * kLeafRows) return pairwise(row, last, kLeafRows, chain);
        const int64_t next = kLeafRows * width;
        Vec<T> a = Vec<T>::zero(), b = a, c = a, d = a;
        for (const T *p = x + row * width + j, *const end = p + next; p < end; p += width) {
          a = a + lanes.load(p), b = b + lanes.load(p + next);
          c = c + lanes.load(p + 2 * next), d = d + lanes.load(p + 3 * next);
        }
        return Pack<T, K>{{(a + b) + (c + d)}};
      });
    }
    for (int k = 0; k < K; ++k) lanes.store(y + j + k * Vec<T>::width, sum.v[k]);
  });
}

/// As sum_rows, multiplied in order.
template <class T>
void multiply_rows(const T* x, int64_t rows, int64_t width, int64_t begin, int64_t end, T* y) {
  for_each_column_block<T>(begin, end, [=]<int K>(auto lanes, int64_t j) {
    Pack<T, K> acc = Pack<T, K>::broadcast(1);
    const T* p = x + j;
    for (int64_t r = 0; r < rows; ++r, p += width) {
      for (int k = 0; k < K; ++k) acc.v[k] = acc.v[k] * lanes.load(p + k * Vec<T>::width);
    }
    acc.store(lanes, y + j);
  });
}

/// The larger or the smaller; NaN if either is.
template <bool is_max, class V>
REEL_INLINE V extreme(V a, V b) {
  return is_max ? max(a, b) : min(a, b);
}
template <bool is_max, class T>
inline constexpr T kWorst = is_max ? -kInfinity<T> : kInfinity<T>;

/// Whether x takes the place of the earlier `best`: it is better, or the first NaN. For numbers and vectors alike.
template <bool is_max, class V>
REEL_INLINE auto wins(V x, V best) {
  return is_max ? ~(x <= best) & (best == best) : ~(x >= best) & (best == best);
}
template <bool is_max, class T>
REEL_INLINE bool scalar_wins(T x, T best) {
  return (is_max ? !(x <= best) : !(x >= best)) && best == best;
}

template <bool is_max, class T>
void extreme_rows(const T* x, int64_t rows, int64_t width, int64_t begin, int64_t end, T* y) {
  if (width == 1) {
    const auto join = [](auto a, auto b) { return extreme<is_max>(a, b); };
    const int64_t whole = rows / Vec<T>::width * Vec<T>::width;
    const Vec<T> best = fold_vectors<T>(
        0, whole, Vec<T>::broadcast(kWorst<is_max, T>),
        [=](Vec<T> acc, auto lanes, int64_t i) { return extreme<is_max>(lanes.load(x + i), acc); }, join);
    *y = reduce(best, join);
    for (int64_t i = whole; i < rows; ++i) {
      if (scalar_wins<is_max>(x[i], *y)) *y = x[i];
    }
    return;
  }
  for_each_column_block<T, 8>(begin, end, [=]<int K>(auto lanes, int64_t j) {
    Pack<T, K> best = Pack<T, K>::broadcast(kWorst<is_max, T>);
    const T* p = x + j;
    for (int64_t r = 0; r < rows; ++r, p += width) {
      for (int k = 0; k < K; ++k) best.v[k] = extreme<is_max>(lanes.load(p + k * Vec<T>::width), best.v[k]);
    }
    for (int k = 0; k < K; ++k) lanes.store(y + j + k * Vec<T>::width, best.v[k]);
  });
}

/// As extreme_rows, with the number of the first winner, counted from `start`. Row numbers are kept in lanes
/// of T, which are exact up to 2^24: at least one row, at most two pieces of a long segment.
template <bool is_max, class T>
void which_rows(const T* x, int64_t rows, int64_t width, int64_t begin, int64_t end, int64_t start, T* y,
                int64_t* which) {
  using V = Vec<T>;
  for_each_column_block<T, 8>(begin, end, [=]<int K>(auto lanes, int64_t j) {
    Pack<T, K> best, number = Pack<T, K>::broadcast(0);
    const T* p = x + j;
    for (int k = 0; k < K; ++k) best.v[k] = lanes.load(p + k * V::width);
    V row = V::broadcast(1);
    for (int64_t r = 1; r < rows; ++r) {
      p += width;
      for (int k = 0; k < K; ++k) {
        const V value = lanes.load(p + k * V::width);
        const auto better = wins<is_max>(value.raw, best.v[k].raw);
        best.v[k] = {better ? value.raw : best.v[k].raw};
        number.v[k] = {better ? row.raw : number.v[k].raw};
      }
      row = row + V::broadcast(1);
    }
    for (int k = 0; k < K; ++k) {
      lanes.store(y + j + k * V::width, best.v[k]);
      T numbers[V::width];
      number.v[k].store(numbers);
      const int64_t first = j + k * V::width, last = min(first + V::width, end);
      for (int64_t i = first; i < last; ++i) which[i] = start + static_cast<int64_t>(numbers[i - first]);
    }
  });
}

/// One segment_reduce: reduces runs of rows and joins what they give.
template <class T>
struct Reduction {
  ReduceOp op;
  int64_t width;
  bool wants_which;

  /// Rows [0, rows) of x, columns [begin, end), to y [width] and which [width], counted from `start`.
  void run(const T* x, int64_t rows, int64_t begin, int64_t end, int64_t start, T* y, int64_t* which) const {
    switch (op) {
      case ReduceOp::sum:
      case ReduceOp::mean:
        return sum_rows(x, rows, width, begin, end, y);
      case ReduceOp::prod:
        return multiply_rows(x, rows, width, begin, end, y);
      case ReduceOp::max:
        return run_extreme<true>(x, rows, begin, end, start, y, which);
      case ReduceOp::min:
        return run_extreme<false>(x, rows, begin, end, start, y, which);
      case ReduceOp::sum_of_squares:  // not asked for
      case ReduceOp::mean_of_squares:
        return;
    }
  }

  /// Joins a later run's (y, which) to an earlier one's.
  void join(T* y, int64_t* which, const T* later_y, const int64_t* later_which) const {
    for (int64_t j = 0; j < width; ++j) {
      if (op == ReduceOp::sum || op == ReduceOp::mean) {
        y[j] += later_y[j];
      } else if (op == ReduceOp::prod) {
        y[j] *= later_y[j];
      } else if (op == ReduceOp::max ? scalar_wins<true>(later_y[j], y[j]) : scalar_wins<false>(later_y[j], y[j])) {
        y[j] = later_y[j];
        if (wants_which) which[j] = later_which[j];
      }
    }
  }

  /// From the sum to the mean.
  void finish(int64_t rows, int64_t begin, int64_t end, T* y) const {
    if (op != ReduceOp::mean || rows == 0) return;
    for (int64_t j = begin; j < end; ++j) y[j] /= static_cast<T>(rows);
  }

 private:
  template <bool is_max>
  void run_extreme(const T* x, int64_t rows, int64_t begin, int64_t end, int64_t start, T* y, int64_t* which) const {
    if (wants_which && rows > 0) return which_rows<is_max>(x, rows, width, begin, end, start, y, which);
    extreme_rows<is_max>(x, rows, width, begin, end, y);
    if (wants_which) {
      for (int64_t j = begin; j < end; ++j) which[j] = -1;
    }
  }
};

/// One segment of several pieces: all pieces in parallel, then joined pairwise in place, in the order of the sum's tree.
template <class T>
void reduce_long_segment(const Reduction<T>& reduction, const T* x, int64_t rows, T* y, int64_t* which) {
  const int64_t width = reduction.width, piece = piece_rows(width), pieces = ceil_div(rows, piece);
  Scratch value_memory(static_cast<std::size_t>(pieces * width) * sizeof(T));
  Scratch which_memory(static_cast<std::size_t>(reduction.wants_which ? pieces * width : 0) * sizeof(int64_t));
  T* const values = value_memory.as<T>();
  int64_t* const numbers = which_memory.as<int64_t>();
  parallel_for(pieces, 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const int64_t start = i * piece;
      reduction.run(x + start * width, min(piece, rows - start), 0, width, start, values + i * width,
                    numbers + i * width);
    }
  });
  join_pairwise(pieces, [&](int64_t i, int64_t later) {
    reduction.join(values + i * width, numbers + i * width, values + later * width, numbers + later * width);
  });
  for (int64_t j = 0; j < width; ++j) {
    y[j] = values[j];
    if (reduction.wants_which) which[j] = numbers[j];
  }
  reduction.finish(rows, 0, width, y);
}

}  // namespace

void CpuOps::segment_reduce(ReduceOp op, const Array& x, const Segments& segments, const Array& y, const Array* which) {
  const int64_t width = y.shape.back();
  if (y.size == 0) return;
  dispatch_floating(x.dtype, [&]<class T>() {
    const Reduction<T> reduction{op, width, which != nullptr};
    const auto number = [&](int64_t s) { return which != nullptr ? row_of<int64_t>(*which, s) : nullptr; };
    const int64_t longest = longest_alone(width);
    for_each_segment(segments, width, kGrain, [&](int64_t s, int64_t begin, int64_t end) {
      const int64_t first = segments.offsets[s], rows = segments.offsets[s + 1] - first;
      if (rows > longest) return;
      T* const result = row_of<T>(y, s);
      reduction.run(row_of<T>(x, first), rows, begin, end, 0, result, number(s));
      reduction.finish(rows, begin, end, result);
    });
    if (segments.max_length <= longest) return;
    for (int64_t s = 0; s < segments.count; ++s) {
      const int64_t first = segments.offsets[s], rows = segments.offsets[s + 1] - first;
      if (rows > longest) reduce_long_segment(reduction, row_of<T>(x, first), rows, row_of<T>(y, s), number(s));
    }
  });
}

// --- padded arrays -----------------------------------------------------------------------------------------------------

void CpuOps::segment_pad(const Array& x, const Segments& segments, Scalar padding, const Array& y) {
  const int64_t length = y.shape[1], width = y.shape.back();
  if (y.size == 0) return;
  dispatch_all(x.dtype, [&]<class T>() {
    const T value = padding.as<T>();
    parallel_for(segments.count * length, max<int64_t>(1, kGrain / width), [&](int64_t begin, int64_t end) {
      for (int64_t s = begin / length; begin < end; ++s) {
        const int64_t first = segments.offsets[s], rows = segments.offsets[s + 1] - first;
        const int64_t from = begin - s * length, to = min(end - s * length, length);  // rows of the padded sequence
        const int64_t filled = max(from, min(to, rows));
        T* const row = row_of<T>(y, begin);
        if (filled > from) copy_bytes(row_of<T>(x, first + from), row, (filled - from) * width * int64_t{sizeof(T)});
        for (int64_t i = (filled - from) * width; i < (to - from) * width; ++i) row[i] = value;
        begin += to - from;
      }
    });
  });
}

void CpuOps::segment_unpad(const Array& x, const Segments& segments, const Array& y) {
  const int64_t length = x.shape[1], width = y.shape.back();
  if (y.size == 0) return;
  dispatch_bytes(size_of(x.dtype), [&]<class T>() {
    for_each_row_run(segments, width, kGrain, [&](int64_t s, int64_t first, int64_t last) {
      const int64_t from = s * length + (first - segments.offsets[s]);
      copy_bytes(row_of<T>(x, from), row_of<T>(y, first), (last - first) * width * int64_t{sizeof(T)});
    });
  });
}

}  // namespace reel::cpu::REEL_CPU_ISA
