// Rows taken from a table by index, and added back. Each table row receives its contributions in ascending order of i: the
// indices are sorted, and one thread per column adds up all that goes to a row. No atomics. Indices out of range, which
// check_indices has reported, take zeros and add nothing.

#include "reel/backends/cuda/sort.h"
#include "reel/backends/cuda/units.h"
#include "reel/core/error.h"

namespace reel::cuda {

namespace device {
namespace {

/// Unit of a row per thread and step; a row is `units` units.
template <class Unit, class Index>
__global__ void take_rows(const Unit* table, const Index* index, Unit* y, int64_t rows, int64_t n, int64_t units) {
  for (int64_t i = first_unit(); i < n * units; i += unit_step()) {
    const int64_t row = i / units, from = index[row];
    y[i] = from >= 0 && from < rows ? table[from * units + (i - row * units)] : Unit{};
  }
}

/// Indices as keys; those out of range become `rows`.
template <class Index>
__global__ void keys_of(const Index* index, uint32_t* keys, int64_t rows, int64_t n) {
  for (int64_t i = first_unit(); i < n; i += unit_step())
    keys[i] = static_cast<uint32_t>(index[i] >= 0 && index[i] < rows ? index[i] : rows);
}

/// One column of one run of equal keys per thread and step: the thread of the run's first place adds it up.
template <class T>
__global__ void add_rows(const T* y, SortedKeys sorted, T* table, int64_t rows, int64_t n, int64_t width) {
  for (int64_t i = first_unit(); i < n * width; i += unit_step()) {
    int64_t place = i / width;
    const int64_t column = i - place * width;
    const uint32_t key = sorted.keys[place];
    if (key >= rows || (place > 0 && sorted.keys[place - 1] == key)) continue;
    T sum = table[key * width + column];
    for (; place < n && sorted.keys[place] == key; ++place) sum += y[sorted.order[place] * width + column];
    table[key * width + column] = sum;
  }
}

}  // namespace
}  // namespace device

namespace {

int bits_of(int64_t value) { return 64 - __builtin_clzll(static_cast<unsigned long long>(value) | 1); }

}  // namespace

void CudaOps::take_rows(const Array& table, const Array& index, const Array& y) {
  if (y.size == 0) return;
  const std::size_t bytes = static_cast<std::size_t>(table.shape[1]) * size_of(table.dtype);
  dispatch_unit(table.data, y.data, bytes, [&]<class Unit>() {
    dispatch_index(index.dtype, [&]<class Index>() {
      const auto units = static_cast<int64_t>(bytes / sizeof(Unit));
      launch(context_, "take_rows", grid_for(context_, index.size * units), &device::take_rows<Unit, Index>,
             table.as<Unit>(), index.as<Index>(), y.as<Unit>(), table.shape[0], index.size, units);
    });
  });
}

void CudaOps::add_rows(const Array& y, const Array& index, const Array& table) {
  if (y.size == 0) return;
  const int64_t n = index.size, rows = table.shape[0], width = table.shape[1];
  if (n > 0xffffffffll || rows >= 0xffffffffll)
    throw ShapeError("add_rows: indices and table rows must be fewer than 2^32 on CUDA, got " + std::to_string(n) +
                     " and " + std::to_string(rows));
  const SortMemory memory(context_, n);
  dispatch_index(index.dtype, [&]<class Index>() {
    launch(context_, "add_rows", grid_for(context_, n), &device::keys_of<Index>, index.as<Index>(), memory.keys(0),
           rows, n);
  });
  const SortedKeys sorted = sort_keys(context_, memory, n, bits_of(rows));
  dispatch_floating(table.dtype, [&]<class T>() {
    launch(context_, "add_rows", grid_for(context_, n * width), &device::add_rows<T>, y.as<T>(), sorted, table.as<T>(),
           rows, n, width);
  });
}

}  // namespace reel::cuda
