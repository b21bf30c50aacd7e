// Elements taken along an axis by index, and added back. Arrays are seen as [outer, n, inner] around the axis; a line is what
// one index of outer and inner leaves. Each line receives its sums in ascending order by one task, however the work is cut.

#include "reel/backends/cpu/cpu_ops.h"
#include "reel/backends/cpu/kernel.h"

namespace reel::cpu::REEL_CPU_ISA {
namespace {

/// index and y are [outer, n, inner], x is [outer, m, inner]; or index is [n], of every line where inner is 1.
struct Lines {
  int64_t outer = 1, n, m, inner = 1;
  bool shared;

  Lines(const Array& x, const Array& index, const Array& y, int axis)
      : n(y.shape[axis]), m(x.shape[axis]), shared(index.size != y.size) {
    for (int i = 0; i < axis; ++i) outer *= y.shape[i];
    for (int i = axis + 1; i < y.rank(); ++i) inner *= y.shape[i];
  }
};

/// In runs whose elements are neighbours in y and start from one place of x: rows of `inner` elements, or whole lines where
/// those are contiguous.
template <class Bits, class Index>
void gather_of(const Bits* x, const Index* index, Bits* y, const Lines& lines) {
  const int64_t inner = lines.inner, along = inner > 1;
  const int64_t run = inner > 1 ? inner : lines.n, runs = inner > 1 ? lines.n : 1;
  const int64_t size = lines.outer * lines.n * inner, step = lines.m * inner;
  parallel_for(size, even_chunk(size), [=](int64_t begin, int64_t end) {
    int64_t first = begin % run, r = begin / run % runs, outer = begin / run / runs;
    while (begin < end) {
      const int64_t count = min(run - first, end - begin);
      const Bits* const from = x + outer * step + first * along;
      const Index* const places = index + (lines.shared ? first : begin);
      Bits* const to = y + begin;
      if (inner == 1) {
        for (int64_t k = 0; k < count; ++k) to[k] = from[places[k]];
      } else {
        for (int64_t k = 0; k < count; ++k) to[k] = from[places[k] * inner + k];
      }
      begin += count;
      first = 0;
      if (++r == runs) {
        r = 0;
        ++outer;
      }
    }
  });
}

template <class T, class Index>
void scatter_of(const T* y, const Index* index, T* x, const Lines& lines) {
  const int64_t n = lines.n, inner = lines.inner, step = lines.m * inner;
  if (inner == 1) {
    parallel_for(lines.outer, max<int64_t>(kGrain / n, 1), [=](int64_t begin, int64_t end) {
      for (int64_t o = begin; o < end; ++o) {
        const Index* const places = index + (lines.shared ? 0 : o * n);
        for (int64_t i = 0; i < n; ++i) x[o * step + places[i]] += y[o * n + i];
      }
    });
    return;
  }
  const int64_t columns = even_chunk(inner, max<int64_t>(kGrain / n, 64)), pieces = ceil_div(inner, columns);
  parallel_for(lines.outer * pieces, max<int64_t>(kGrain / (n * columns), 1), [=](int64_t begin, int64_t end) {
    for (int64_t unit = begin; unit < end; ++unit) {
      const int64_t o = unit / pieces, first = unit % pieces * columns, last = min(first + columns, inner);
      T* const to = x + o * step;
      for (int64_t row = o * n * inner; row < (o + 1) * n * inner; row += inner) {
        for (int64_t j = first; j < last; ++j) to[index[row + j] * inner + j] += y[row + j];
      }
    }
  });
}

}  // namespace

void CpuOps::gather(const Array& x, const Array& index, int axis, const Array& y) {
  if (y.size == 0) return;
  dispatch_bytes(size_of(x.dtype), [&]<class Bits>() {
    dispatch_index(index.dtype, [&]<class Index>() {
      gather_of(x.as<Bits>(), index.as<Index>(), y.as<Bits>(), Lines(x, index, y, axis));
    });
  });
}

void CpuOps::scatter_add(const Array& y, const Array& index, int axis, const Array& x) {
  if (y.size == 0) return;
  dispatch_floating(x.dtype, [&]<class T>() {
    dispatch_index(index.dtype, [&]<class Index>() {
      scatter_of(y.as<T>(), index.as<Index>(), x.as<T>(), Lines(x, index, y, axis));
    });
  });
}

}  // namespace reel::cpu::REEL_CPU_ISA
