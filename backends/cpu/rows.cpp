// Rows taken from a table by index, and added back. Each table row receives its contributions in ascending order of i
// whichever way the work is cut, so that the result depends neither on the cut nor on the threads.

#include "reel/backends/cpu/cpu_ops.h"
#include "reel/backends/cpu/kernel.h"
#include "reel/backends/cpu/move_run.h"
#include "reel/backends/cpu/row_sum.h"
#include "reel/backends/cpu/simd.h"

namespace reel::cpu::REEL_CPU_ISA {
namespace {

constexpr int64_t kBytesPerChunk = 1 << 17;

/// Copies row index[i] of `bytes` bytes to row i, for i in [begin, end).
template <class Index>
void take(const void* table, const Index* index, void* y, int64_t bytes, int64_t begin, int64_t end) {
  const char* const from = static_cast<const char*>(table);
  char* const to = static_cast<char*>(y);
  const auto copy = [&](int64_t size) __attribute__((always_inline)) {
    for (int64_t i = begin; i < end; ++i) {
      __builtin_memcpy(to + i * size, from + index[i] * size, static_cast<std::size_t>(size));
    }
  };
  switch (bytes) {  // one element: no call to memcpy for each
    case 1:
      return copy(1);
    case 4:
      return copy(4);
    case 8:
      return copy(8);
    default:
      for (int64_t i = begin; i < end; ++i) copy_bytes(from + index[i] * bytes, to + i * bytes, bytes);
  }
}

/// As many ranges of rows as there are tasks, about as often wanted: even ones, or, as words come by their frequency, by a sample of
/// the indices.
template <class Index>
class RowRanges {
 public:
  __attribute__((noinline)) RowRanges(const Index* index, int64_t n, int64_t rows, int64_t tasks)
      : sampled_(min(n, kSample)), rows_(rows), tasks_(tasks) {
    for (int64_t k = 0; k < sampled_; ++k) {
      const int64_t from = n * k / sampled_, to = n * (k + 1) / sampled_;
      // Not at even distances: sequences of one length begin there, with the same word each.
      const int64_t row = index[from + static_cast<int64_t>(static_cast<std::uint32_t>(k) * 0x9e3779b1u) % (to - from)];
      int64_t place = k;
      for (; place > 0 && sample_[place - 1] > row; --place) sample_[place] = sample_[place - 1];
      sample_[place] = row;
    }
    for (int64_t task = 1, below = 0; task < tasks; ++task) {
      while (below < sampled_ && sample_[below] < rows * task / tasks) ++below;
      even_ = even_ && 8 * __builtin_llabs(below - sampled_ * task / tasks) <= sampled_;
    }
  }
  /// The first row of a task; of the task after the last, the number of rows.
  REEL_INLINE int64_t begin(int64_t task) const {
    return even_ || task == 0 || task == tasks_ ? rows_ * task / tasks_ : sample_[sampled_ * task / tasks_];
  }

 private:
  static constexpr int64_t kSample = 128;
  int64_t sample_[kSample];
  int64_t sampled_, rows_, tasks_;
  bool even_ = true;
};

/// A RowSum's arrays and sizes.
template <class T, class Index>
struct AddRows {
  const T* y;
  const Index* index;
  T* table;
  const int64_t* source;
  const T* factor;
  int64_t n, rows, width;

  explicit AddRows(const RowSum& sum)
      : y(sum.y.as<T>()),
        index(sum.index.as<Index>()),
        table(sum.table.as<T>()),
        source(sum.source),
        factor(static_cast<const T*>(sum.factor)),
        n(sum.index.size),
        rows(sum.table.shape[0]),
        width(sum.table.shape[1]) {}

  REEL_INLINE void add(int64_t i) const {
    T* __restrict const to = table + index[i] * width;
    const T* __restrict const from = y + (source != nullptr ? source[i] : i) * width;
    const T f = factor != nullptr ? factor[i] : T(1);  // a product with 1 is exact
    for (int64_t j = 0; j < width; ++j) to[j] = fma(f, from[j], to[j]);
  }

  /// Each task takes a range of the table's rows and looks through all indices for them, a block at a time. What it finds is
  /// collected without a branch, for the processor could not foresee which way it goes.
  void by_rows(int64_t tasks) const {
    const RowRanges<Index> ranges(index, n, rows, tasks);
    parallel_for(tasks, 1, [&, this](int64_t task, int64_t) {
      const int64_t first = ranges.begin(task), count = ranges.begin(task + 1) - first;
      constexpr int64_t kBlock = 256;
      int64_t found[kBlock];
      for (int64_t begin = 0; begin < n; begin += kBlock) {
        const int64_t end = min(begin + kBlock, n);
        int64_t hits = 0;
        for (int64_t i = begin; i < end; ++i) {
          found[hits] = i;
          hits += static_cast<std::uint64_t>(index[i] - first) < static_cast<std::uint64_t>(count);
        }
        for (int64_t k = 0; k < hits; ++k) add(found[k]);
      }
    });
  }
};

/// How the work is cut cannot show in the result, so that here it may follow the number of threads: each reads all indices. Threads
/// share no rows: what lies beyond a part of a row, the processor fetches too, and takes it from the core that writes it. Halves of
/// rows of 64 to 1,024 floats took two threads three to four times as long as one.
template <class T, class Index>
void add_rows_of(const AddRows<T, Index>& work) {
  constexpr int64_t line = 64 / sizeof(T), page = 4096 / sizeof(T);  // elements
  const int64_t elements = work.rows * work.width;
  const int64_t tasks =
      min(min<int64_t>(num_threads(), work.n * work.width / kGrain), min(work.rows, elements / (2 * page)));
  if (tasks > 1 && work.width >= line / 2) {
    work.by_rows(tasks);
  } else {
    for (int64_t i = 0; i < work.n; ++i) work.add(i);
  }
}

}  // namespace

void CpuOps::take_rows(const Array& table, const Array& index, const Array& y) {
  const int64_t bytes = table.shape[1] * static_cast<int64_t>(size_of(table.dtype));
  if (y.size == 0) return;
  dispatch_index(index.dtype, [&]<class Index>() {
    parallel_for(index.size, kBytesPerChunk / bytes + 1,
                 [&](int64_t begin, int64_t end) { take(table.data, index.as<Index>(), y.data, bytes, begin, end); });
  });
}

void add_rows(const RowSum& sum) {
  if (sum.index.size == 0 || sum.table.size == 0) return;
  dispatch_floating(sum.table.dtype, [&]<class T>() {
    dispatch_index(sum.index.dtype, [&]<class Index>() { add_rows_of(AddRows<T, Index>(sum)); });
  });
}

void CpuOps::add_rows(const Array& y, const Array& index, const Array& table) {
  cpu::REEL_CPU_ISA::add_rows({.y = y, .index = index, .table = table});
}

}  // namespace reel::cpu::REEL_CPU_ISA
