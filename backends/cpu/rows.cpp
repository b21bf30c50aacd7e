// Rows taken from a table by index, and added back. Each table row receives its contributions in ascending order of i
// whichever way the work is cut, so that the result depends neither on the cut nor on the threads.

#include "reel/backends/cpu/cpu_ops.h"
#include "reel/backends/cpu/kernel.h"
#include "reel/core/scratch.h"

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
      return copy(bytes);
  }
}

/// y [n, width], table [rows, width]: what add_rows works on.
template <class T, class Index>
struct AddRows {
  const T* y;
  const Index* index;
  T* table;
  int64_t n, rows, width;

  REEL_INLINE void add(int64_t i, int64_t begin, int64_t end) const {
    T* __restrict const to = table + index[i] * width;
    const T* __restrict const from = y + i * width;
    for (int64_t j = begin; j < end; ++j) to[j] += from[j];
  }

  /// Wide rows: each thread takes some columns of all rows.
  void by_columns(int64_t columns) const {
    parallel_for(width, columns, [this](int64_t begin, int64_t end) {
      for (int64_t i = 0; i < n; ++i) add(i, begin, end);
    });
  }

  void by_buckets() const;
};

// Narrow rows cannot be shared by columns. Their positions are sorted, stably, into buckets of consecutive table rows (a
// counting sort whose counts are kept per block of positions, so that the blocks sort in parallel), then the buckets are
// added in parallel.
constexpr int64_t kBuckets = 64;
constexpr int64_t kSortBlock = 16384;

template <class T, class Index>
void AddRows<T, Index>::by_buckets() const {
  const int64_t blocks = (n + kSortBlock - 1) / kSortBlock, rows_per_bucket = (rows + kBuckets - 1) / kBuckets;
  const std::size_t n_bytes = static_cast<std::size_t>(n) * sizeof(int64_t);
  Scratch order_memory(n_bytes), bucket_memory(static_cast<std::size_t>(n));
  Scratch place_memory(static_cast<std::size_t>(blocks * kBuckets) * sizeof(int64_t));
  int64_t* const order = order_memory.as<int64_t>();
  std::uint8_t* const bucket = bucket_memory.as<std::uint8_t>();
  int64_t* const place = place_memory.as<int64_t>();  // [blocks, kBuckets]: counts, then where to write next

  parallel_for(n, kSortBlock, [&](int64_t begin, int64_t end) {
    int64_t* const counts = place + begin / kSortBlock * kBuckets;
    for (int64_t k = 0; k < kBuckets; ++k) counts[k] = 0;
    for (int64_t i = begin; i < end; ++i) {
      bucket[i] = static_cast<std::uint8_t>(index[i] / rows_per_bucket);
      ++counts[bucket[i]];
    }
  });
  int64_t starts[kBuckets + 1], next = 0;
  for (int64_t k = 0; k < kBuckets; ++k) {
    starts[k] = next;
    for (int64_t b = 0; b < blocks; ++b) {
      const int64_t size = place[b * kBuckets + k];
      place[b * kBuckets + k] = next;
      next += size;
    }
  }
  starts[kBuckets] = next;
  parallel_for(n, kSortBlock, [&](int64_t begin, int64_t end) {
    int64_t* const places = place + begin / kSortBlock * kBuckets;
    for (int64_t i = begin; i < end; ++i) order[places[bucket[i]]++] = i;
  });
  parallel_for(kBuckets, 1, [&](int64_t begin, int64_t end) {
    for (int64_t p = starts[begin]; p < starts[end]; ++p) add(order[p], 0, width);
  });
}

template <class T, class Index>
void add_rows_of(const AddRows<T, Index>& work) {
  // At least two cache lines of a row to a thread, so that no line is shared and prefetching in pairs still helps.
  constexpr int64_t kLeastColumns = 128 / sizeof(T);
  constexpr int64_t kLeastWork = 32768;
  if (work.n * work.width <= 2 * kLeastWork) {
    for (int64_t i = 0; i < work.n; ++i) work.add(i, 0, work.width);
  } else if (work.width >= 2 * kLeastColumns) {
    const int64_t enough = kLeastWork / work.n / kLeastColumns * kLeastColumns;
    work.by_columns(enough > kLeastColumns ? enough : kLeastColumns);
  } else {
    work.by_buckets();
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

void CpuOps::add_rows(const Array& y, const Array& index, const Array& table) {
  if (y.size == 0) return;
  dispatch_floating(table.dtype, [&]<class T>() {
    dispatch_index(index.dtype, [&]<class Index>() {
      add_rows_of<T, Index>({y.as<T>(), index.as<Index>(), table.as<T>(), index.size, table.shape[0], table.shape[1]});
    });
  });
}

}  // namespace reel::cpu::REEL_CPU_ISA
