// Lines sorted by unsigned keys: every number is mapped to one whose order is the order that is asked for, so that floats and
// integers, ascending and descending share their code. Lines that fit are sorted in shared memory, several in a block, by a
// bitonic sort of keys with their places, which no two share: the result is the stable one. Longer lines: radix_sort.cu.

#include "reel/backends/cuda/sort.h"

#include "reel/core/error.h"

namespace reel::cuda {

namespace device {
namespace {

/// What a block sorts in shared memory; lines of up to so many elements are short.
inline constexpr int kShared = 2048;

/// How bits become keys.
struct Order {
  bool floating, descending;
};

/// Negative numbers come before the others, and floats of negative sign the larger the earlier. -0 equals 0; a NaN of
/// either sign is the largest.
template <class Key>
REEL_DEVICE Key key_of(Key bits, Order order) {
  constexpr Key sign = Key(1) << (sizeof(Key) * 8 - 1);
  constexpr Key infinity = static_cast<Key>(sizeof(Key) == 4 ? 0x7f800000u : 0x7ff0000000000000u);
  Key key = bits ^ sign;
  if (order.floating) {
    const Key magnitude = bits & ~sign;
    key = magnitude > infinity ? ~Key(0) : magnitude == 0 ? sign : (bits & sign) != 0 ? ~bits : key;
  }
  return order.descending ? ~key : key;
}

/// What is sorted, and where the first elements of each line of `to` go.
template <class Key>
struct Sort {
  const Key* x;
  Lines from;
  Order order;
  Key* y;
  int64_t* which;
  Lines to;

  /// The element at `place` of the line is its `rank`-th.
  REEL_DEVICE void put(int64_t line, int64_t rank, int64_t place) const {
    const int64_t at = to.first(line) + rank * to.width;
    y[at] = x[from.first(line) + place * from.width];
    which[at] = place;
  }
};

/// A block takes 2^log_lines short lines at a time, each with room for 2^log_room elements.
template <class Key>
__global__ void sort_short(const Sort<Key> sort, int log_lines, int log_room) {
  const int lines = 1 << log_lines, room = 1 << log_room;
  REEL_DYNAMIC_SHARED(int64_t, scratch);  // [kWarp]
  // A line's room and one more, so that elements of neighbouring lines lie in different banks.
  const int stride = room + 1;
  Key* const keys = reinterpret_cast<Key*>(scratch + kWarp);                    // [lines, stride]
  uint32_t* const places = reinterpret_cast<uint32_t*>(keys + lines * stride);  // [lines, stride]
  const int64_t total = sort.from.size();
  const auto exchange = [&](int low, int high, bool ascending) {
    const bool larger_first = keys[low] > keys[high] || (keys[low] == keys[high] && places[low] > places[high]);
    if (larger_first != ascending) return;
    const Key key = keys[low];
    const uint32_t place = places[low];
    keys[low] = keys[high], places[low] = places[high];
    keys[high] = key, places[high] = place;
  };
  // Neighbouring threads take neighbours in memory: elements of a line, or of the columns that lie side by side.
  const bool side_by_side = sort.from.width > 1;
  const auto for_each = [&](auto f) {
    for (int e = threadIdx.x; e < lines * room; e += blockDim.x)
      side_by_side ? f(e & (lines - 1), e >> log_lines) : f(e >> log_room, e & (room - 1));
  };
  const auto count_of = [&](int64_t line) {
    const int64_t count = line < total ? sort.from.count(line) : 0;
    return count <= kShared ? count : 0;
  };
  for (int64_t first = static_cast<int64_t>(blockIdx.x) * lines; first < total;
       first += static_cast<int64_t>(gridDim.x) * lines) {
    int64_t longest = 0;
    for (int l = threadIdx.x; l < lines; l += blockDim.x) longest = larger(longest, count_of(first + l));
    longest = join_block(longest, scratch, [](int64_t a, int64_t b) { return larger(a, b); });
    __syncthreads();  // of what was read from keys before
    for_each([&](int l, int i) {
      const int64_t line = first + l;
      const bool exists = i < count_of(line);
      keys[l * stride + i] = exists ? key_of(sort.x[sort.from.first(line) + i * sort.from.width], sort.order) : ~Key(0);
      places[l * stride + i] = static_cast<uint32_t>(i);
    });
    for (int size = 2; size / 2 < longest; size *= 2) {
      for (int step = size / 2; step > 0; step /= 2) {
        __syncthreads();
        for (int pair = threadIdx.x; pair < lines * room / 2; pair += blockDim.x) {
          const int l = pair >> (log_room - 1), c = pair & (room / 2 - 1), low = 2 * c - (c & (step - 1));
          exchange(l * stride + low, l * stride + low + step, (low & size) == 0);
        }
      }
    }
    __syncthreads();
    for_each([&](int l, int i) {
      const int64_t line = first + l, count = count_of(line);
      if (i < count && i < sort.to.count(line)) sort.put(line, i, places[l * stride + i]);
    });
  }
}

/// f(line, place in the line) for the elements of all lines, neighbours in memory to neighbouring threads.
template <class F>
REEL_DEVICE void for_each_of_lines(const Lines& lines, int64_t rows, F f) {
  if (lines.rows.offsets != nullptr) {
    for_each_element(rows, lines.width, lines.rows.offsets, lines.segments,
                     [&](int64_t, int64_t row, int64_t s, int64_t column) {
                       f(s * lines.width + column, row - lines.rows.offsets[s]);
                     });
    return;
  }
  for (int64_t i = first_unit(); i < rows * lines.width; i += unit_step()) {
    const int64_t row = i / lines.width, s = row / lines.rows.length;
    f(s * lines.width + i % lines.width, row - s * lines.rows.length);
  }
}

/// The keys of long lines, line after line.
template <class Key>
__global__ void keys_of_long(const Sort<Key> sort, int64_t rows, Key* keys) {
  for_each_of_lines(sort.from, rows, [&](int64_t line, int64_t place) {
    if (sort.from.count(line) > kShared)
      keys[line_start(sort.from, line) + place] =
          key_of(sort.x[sort.from.first(line) + place * sort.from.width], sort.order);
  });
}

template <class Key>
__global__ void put_long(const Sort<Key> sort, int64_t rows, const uint32_t* places) {
  for_each_of_lines(sort.to, rows, [&](int64_t line, int64_t rank) {
    if (sort.from.count(line) > kShared) sort.put(line, rank, places[line_start(sort.from, line) + rank]);
  });
}

}  // namespace
}  // namespace device

namespace {

template <class Key>
void sort_lines(const Context& context, const device::Sort<Key>& sort, const Array& x, const Array& y,
                int64_t longest) {
  const int64_t width = sort.from.width, lines = sort.from.segments * width;
  if (sort.from.rows.offsets != nullptr || longest <= device::kShared) {
    const int room = power_of_two_from(longest, 2, device::kShared);
    // Few lines are spread over more blocks.
    const int in_block = power_of_two_from(lines / context.processors(), 1, device::kShared / room);
    Grid grid = grid_for(context, ceil_div(lines, in_block) * kThreads);
    grid.shared_bytes = sizeof(int64_t) * device::kWarp +
                        (sizeof(Key) + sizeof(uint32_t)) * static_cast<std::size_t>(in_block * (room + 1));
    launch(context, "sort", grid, &device::sort_short<Key>, sort, __builtin_ctz(static_cast<unsigned>(in_block)),
           __builtin_ctz(static_cast<unsigned>(room)));
  }
  if (longest <= device::kShared) return;
  if (longest > 0xffffffffll)
    throw ShapeError("sort: lines must be shorter than 2^32 on CUDA, got " + std::to_string(longest));
  RadixSort<Key> radix(context, sort.from, x.size, device::kShared);
  launch(context, "sort", grid_for(context, x.size), &device::keys_of_long<Key>, sort, x.size / width, radix.keys());
  radix.sort(8 * sizeof(Key));
  launch(context, "sort", grid_for(context, y.size), &device::put_long<Key>, sort, y.size / width,
         radix.sorted_places());
}

/// f.template operator()<Key>() for keys of x's size.
void sort_any(const Context& context, const Array& x, const device::Lines& from, int64_t longest, bool descending,
              const Array& y, const Array& which, const device::Lines& to) {
  if (y.size == 0) return;
  if (is_half(x.dtype)) reel::detail::refuse_half(x.dtype);
  const auto run = [&]<class Key>() {
    const device::Sort<Key> sort{x.as<Key>(),         from, {is_floating(x.dtype), descending}, y.as<Key>(),
                                 which.as<int64_t>(), to};
    sort_lines(context, sort, x, y, longest);
  };
  size_of(x.dtype) == 8 ? run.template operator()<std::uint64_t>() : run.template operator()<uint32_t>();
}

}  // namespace

void CudaOps::sort(const Array& x, int axis, bool descending, const Array& y, const Array& which) {
  const Blocks from(x.shape, axis), to(y.shape, axis);
  sort_any(context_, x, {{nullptr, from.n}, from.outer, from.inner}, from.n, descending, y, which,
           {{nullptr, to.n}, to.outer, to.inner});
}

void CudaOps::segment_sort(const Array& x, const Segments& segments, bool descending, const Array& y,
                           const Array& which) {
  if (y.size == 0) return;
  const device::Lines lines{{segments.offsets, 0}, segments.count, x.size / segments.total};
  sort_any(context_, x, lines, segments.max_length, descending, y, which, lines);
}

}  // namespace reel::cuda
