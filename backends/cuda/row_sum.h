#pragma once

#include "reel/backends/cuda/sort.h"
#include "reel/core/scalar/math.h"

namespace reel::cuda {

/// table[key[i], :] += factor[i] y[source[i], :] for i = 0 .. n - 1; table [rows, width]. Without `source`: i, without
/// `factor`: 1. A key of `rows` adds nothing.
template <class T>
struct RowSum {
  const T* y;
  T* table;
  int64_t n, rows, width;
  const int64_t* source = nullptr;
  const T* factor = nullptr;
};

/// Whether there are few enough of them for 32 bits; if not, add_rows does not take them.
inline bool is_sortable(int64_t n, int64_t rows) { return n < 0xffffffffll && rows < 0xffffffffll; }

/// The sort that add_rows needs: write the keys, then call it.
inline RadixSort<uint32_t> sort_for_rows(const Context& context, int64_t n) {
  return RadixSort<uint32_t>(context, {{nullptr, n}, 1, 1}, n, 0);
}

/// Each row of the table receives what is added to it in an order that the keys decide: ascending, up to 128 of them. No
/// atomics.
template <class T>
void add_rows(const Context& context, RadixSort<uint32_t>& keys, const RowSum<T>& sum);

extern template void add_rows(const Context&, RadixSort<uint32_t>&, const RowSum<float>&);
extern template void add_rows(const Context&, RadixSort<uint32_t>&, const RowSum<double>&);

}  // namespace reel::cuda
