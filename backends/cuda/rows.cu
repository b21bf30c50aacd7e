// Rows taken from a table by index, and added back: the indices are sorted, and all that goes to a row is added up by one
// thread per column or, if it is much, by a block. No atomics. Indices out of range, which check_indices has reported, take
// zeros and add nothing.

#include "reel/backends/cuda/row_sum.h"
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

/// Runs of more equal keys than this are long; then it is the distance of the places at which they are looked for.
inline constexpr int64_t kLong = 128;

/// Sorted keys with the place from which each came.
struct Sorted {
  const uint32_t* keys;
  const uint32_t* places;

  REEL_DEVICE bool is_long(int64_t first, int64_t n) const {
    return first + kLong < n && keys[first + kLong] == keys[first];
  }
};

/// What `place` adds in a column, to `acc`.
template <class T>
REEL_DEVICE T plus(const RowSum<T>& sum, int64_t place, int64_t column, T acc) {
  const int64_t row = sum.source != nullptr ? sum.source[place] : place;
  return scalar::fma(sum.factor != nullptr ? sum.factor[place] : T(1), sum.y[row * sum.width + column], acc);
}

/// One column of one run of equal keys per thread and step: the thread of the run's first place adds it up.
template <class T>
__global__ void add_short_runs(const Sorted sorted, const RowSum<T> sum) {
  for (int64_t i = first_unit(); i < sum.n * sum.width; i += unit_step()) {
    int64_t at = i / sum.width;
    const int64_t column = i - at * sum.width;
    const uint32_t key = sorted.keys[at];
    if (key >= sum.rows || (at > 0 && sorted.keys[at - 1] == key) || sorted.is_long(at, sum.n)) continue;
    T& to = sum.table[key * sum.width + column];
    T acc = to;
    for (; at < sum.n && sorted.keys[at] == key; ++at) acc = plus(sum, sorted.places[at], column, acc);
    to = acc;
  }
}

/// The first place in (low, high] whose key is that of `high`.
REEL_DEVICE int64_t first_of_run(const uint32_t* keys, int64_t low, int64_t high) {
  const uint32_t key = keys[high];
  while (high - low > 1) {
    const int64_t middle = (low + high) / 2;
    if (keys[middle] == key) high = middle;
    else low = middle;
  }
  return high;
}

/// The place in (low, high] behind the last one whose key is that of `low`.
REEL_DEVICE int64_t end_of_run(const uint32_t* keys, int64_t low, int64_t high) {
  const uint32_t key = keys[low];
  while (high - low > 1) {
    const int64_t middle = (low + high) / 2;
    if (keys[middle] == key) low = middle;
    else high = middle;
  }
  return high;
}

/// A block looks at every kLong-th place, of which a long run has at least one: at its first the run is added up.
template <class T>
__global__ void add_long_runs(const Sorted sorted, const RowSum<T> sum, Lanes lanes) {
  REEL_DYNAMIC_SHARED(T, scratch);
  for (int64_t place = static_cast<int64_t>(blockIdx.x) * kLong; place < sum.n;
       place += static_cast<int64_t>(gridDim.x) * kLong) {
    const uint32_t key = sorted.keys[place];
    if (key >= sum.rows || (place > 0 && sorted.keys[place - kLong] == key)) continue;  // the whole block
    const int64_t first = first_of_run(sorted.keys, place > 0 ? place - kLong : -1, place);
    if (!sorted.is_long(first, sum.n)) continue;
    const int64_t end = end_of_run(sorted.keys, place, sum.n);
    for (int64_t tile = static_cast<int64_t>(blockIdx.y) * lanes.columns; tile < sum.width;
         tile += static_cast<int64_t>(gridDim.y) * lanes.columns) {
      const int64_t column = tile + lanes.column();
      T acc = 0;
      for (int64_t at = first + lanes.row(); at < end && column < sum.width; at += lanes.rows())
        acc = plus(sum, sorted.places[at], column, acc);
      acc = lanes.join(acc, scratch, [](T a, T b) { return a + b; });
      if (lanes.row() == 0 && column < sum.width) sum.table[key * sum.width + column] += acc;
    }
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

template <class T>
void add_rows(const Context& context, RadixSort<uint32_t>& keys, const RowSum<T>& sum) {
  keys.sort(bits_of(sum.rows));
  const device::Sorted sorted{keys.sorted_keys(), keys.sorted_places()};
  launch(context, "add_rows", grid_for(context, sum.n * sum.width), &device::add_short_runs<T>, sorted, sum);
  if (sum.n <= device::kLong) return;
  const LaneGrid shape = lane_grid(context, ceil_div(sum.n, device::kLong), 4 * device::kLong, sum.width, sizeof(T));
  launch(context, "add_rows", shape.grid, &device::add_long_runs<T>, sorted, sum, shape.lanes);
}

template void add_rows(const Context&, RadixSort<uint32_t>&, const RowSum<float>&);
template void add_rows(const Context&, RadixSort<uint32_t>&, const RowSum<double>&);

void CudaOps::add_rows(const Array& y, const Array& index, const Array& table) {
  if (y.size == 0) return;
  const int64_t n = index.size, rows = table.shape[0];
  if (!is_sortable(n, rows))
    throw ShapeError("add_rows: indices and table rows must be fewer than 2^32 - 1 on CUDA, got " + std::to_string(n) +
                     " and " + std::to_string(rows));
  RadixSort<uint32_t> keys = sort_for_rows(context_, n);
  dispatch_index(index.dtype, [&]<class Index>() {
    launch(context_, "add_rows", grid_for(context_, n), &device::keys_of<Index>, index.as<Index>(), keys.keys(), rows,
           n);
  });
  dispatch_floating(table.dtype, [&]<class T>() {
    cuda::add_rows<T>(context_, keys, {y.as<T>(), table.as<T>(), n, rows, table.shape[1]});
  });
}

}  // namespace reel::cuda
