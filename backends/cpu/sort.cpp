// Lines sorted by unsigned keys: every number is mapped to one whose order is the order that is asked for, so that floats and
// integers, ascending and descending share their code. Pairs of a key and a position, sorted by the keys' bytes, the lowest
// first, each pass stable (radix sort); short lines by insertion, and so the first few of long ones. Equal keys keep their
// order, so the result is the only one there is, and how the lines are cut among threads cannot show.

#include "reel/backends/cpu/cpu_ops.h"
#include "reel/backends/cpu/move_run.h"
#include "reel/backends/cpu/segments.h"
#include "reel/core/scratch.h"

namespace reel::cpu::REEL_CPU_ISA {
namespace {

template <class Key>
struct Pair {
  Key key;
  int64_t position;
};

/// How bits become keys.
struct Order {
  bool floating, descending;
};

/// Negative numbers come before the others, and floats of negative sign the larger the earlier. -0 equals 0; a NaN of
/// either sign is the largest. By masks, for loops that are vectorised: g++ makes branches of what chooses between results.
template <class Key>
REEL_INLINE Key key_of(Key bits, Order order) {
  constexpr Key sign = Key(1) << (sizeof(Key) * 8 - 1);
  constexpr Key infinity = sizeof(Key) == 4 ? Key(0x7f800000u) : Key(0x7ff0000000000000u);
  const Key floating = Key(0) - Key(order.floating), descending = Key(0) - Key(order.descending);
  const Key zero = bits << 1 == 0 ? floating : Key(0), nan = bits << 1 > infinity << 1 ? floating : Key(0);
  const Key negative = (bits & sign) != 0 ? floating & ~zero : Key(0);
  return ((((bits & ~zero) ^ negative) ^ (sign & ~negative)) | nan) ^ descending;
}

/// Of n elements that are `step` apart.
template <class Key>
__attribute__((noinline)) void make_keys(const Key* x, int64_t n, int64_t step, Order order, Key* keys) {
  move_run(x, step, keys, 1, n, sizeof(Key));
#pragma omp simd
  for (int64_t i = 0; i < n; ++i) keys[i] = key_of(keys[i], order);
}

constexpr int64_t kShort = 64;

template <class Key>
void insertion_sort(Pair<Key>* line, int64_t n) {
  for (int64_t i = 1; i < n; ++i) {
    const Pair<Key> pair = line[i];
    int64_t j = i;
    for (; j > 0 && pair.key < line[j - 1].key; --j) line[j] = line[j - 1];
    line[j] = pair;
  }
}

constexpr int64_t kFew = 16;
constexpr int64_t kKeys = 64;  // made and compared at a time

/// Makes the keys of at most kKeys elements, and all others the highest, and tells whether one is below `limit`.
template <class Key>
__attribute__((noinline)) bool some_below(const Key* x, int64_t n, int64_t step, Order order, Key limit, Key* keys) {
  for (int64_t i = n; i < kKeys; ++i) keys[i] = ~Key(0);
  make_keys(x, n, step, order, keys);
  Key some = 0;
#pragma omp simd reduction(| : some)
  for (int64_t i = 0; i < kKeys; ++i) some |= keys[i] < limit ? Key(1) : Key(0);
  return some != 0;
}

/// The first k <= kFew of n elements that are `step` apart, in order; k <= n.
template <class Key>
__attribute__((noinline)) void select_few(const Key* x, int64_t n, int64_t k, int64_t step, Order order,
                                          Pair<Key>* first) {
  Key keys[kKeys];
  make_keys(x, k, step, order, keys);
  for (int64_t i = 0; i < k; ++i) first[i] = {keys[i], i};
  insertion_sort(first, k);
  for (int64_t begin = k; begin < n; begin += kKeys) {
    const int64_t count = min(kKeys, n - begin);
    if (!some_below(x + begin * step, count, step, order, first[k - 1].key, keys)) continue;
    for (int64_t i = 0; i < count; ++i) {
      if (keys[i] >= first[k - 1].key) continue;
      first[k - 1] = {keys[i], begin + i};
      for (int64_t j = k - 1; j > 0 && first[j].key < first[j - 1].key; --j) {
        const Pair<Key> pair = first[j];
        first[j] = first[j - 1];
        first[j - 1] = pair;
      }
    }
  }
}

/// Returns where the result is: in `line` or in `other`, both of n pairs. Bytes that all keys share are passed over.
template <class Key>
Pair<Key>* radix_sort(Pair<Key>* line, Pair<Key>* other, int64_t n) {
  constexpr int kBytes = sizeof(Key);
  int64_t counts[kBytes][256] = {};
  for (int64_t i = 0; i < n; ++i) {
    for (int byte = 0; byte < kBytes; ++byte) ++counts[byte][line[i].key >> (8 * byte) & 255];
  }
  for (int byte = 0; byte < kBytes; ++byte) {
    int64_t* const next = counts[byte];
    if (next[line[0].key >> (8 * byte) & 255] == n) continue;
    int64_t begin = 0;
    for (int value = 0; value < 256; ++value) {
      const int64_t count = next[value];
      next[value] = begin;
      begin += count;
    }
    for (int64_t i = 0; i < n; ++i) other[next[line[i].key >> (8 * byte) & 255]++] = line[i];
    Pair<Key>* const sorted = other;
    other = line;
    line = sorted;
  }
  return line;
}

/// Sorts `line`, with `other` as room.
template <class Key>
Pair<Key>* sort_pairs(Pair<Key>* line, Pair<Key>* other, int64_t n) {
  if (n > kShort) return radix_sort(line, other, n);
  insertion_sort(line, n);
  return line;
}

/// Of n elements that are `step` apart, those whose keys are below `limit`, in their order; -1 if there is no room for so many.
template <class Key>
__attribute__((noinline)) int64_t collect(const Key* x, int64_t n, int64_t step, Order order, Key limit,
                                          Pair<Key>* found, int64_t room) {
  Key keys[kKeys];
  int64_t total = 0;
  for (int64_t begin = 0; begin < n; begin += kKeys) {
    const int64_t count = min(kKeys, n - begin);
    if (!some_below(x + begin * step, count, step, order, limit, keys)) continue;
    if (total + count > room) return -1;
    for (int64_t i = 0; i < count; ++i) {
      found[total] = {keys[i], begin + i};
      total += keys[i] < limit;
    }
  }
  return total;
}

/// Where the first k of n elements that are `step` apart are, in order: in memory of 2 `room` pairs. A sample tells a key below which
/// most likely k are, and few more. Null if it was wrong, which of random numbers it is in one line of 400, for some k in one of 75.
template <class Key>
const Pair<Key>* select_first(const Key* x, int64_t n, int64_t k, int64_t step, Order order, Pair<Key>* line,
                              int64_t room) {
  constexpr int64_t most = 4 * kShort;
  const int64_t sample = n < (1 << 14) ? kShort : most;
  Key keys[most];
  make_keys(x, sample, n / sample * step, order, keys);
  for (int64_t i = 0; i < sample; ++i) line[i].key = keys[i];
  const int64_t expected = ceil_div(k * sample, n);
  const Key limit =
      sort_pairs(line, line + room, sample)[expected + expected / 2 + 3].key + 1;  // 0 of the highest: wrong
  const int64_t found = collect(x, n, step, order, limit, line, room);
  return found < k ? nullptr : sort_pairs(line, line + room, found);
}

/// The first k of n elements that are `step` apart.
template <class Key>
void sort_line(const Key* x, int64_t n, int64_t k, int64_t step, Order order, Key* y, int64_t* which) {
  const auto write = [=](const Pair<Key>* sorted) __attribute__((noinline)) {
    for (int64_t i = 0; i < k; ++i) {
      const int64_t position = sorted[i].position;
      y[i * step] = x[position * step];
      which[i * step] = position;
    }
  };
  if (k <= kFew && k < n / 4) {
    Pair<Key> few[kFew];
    select_few(x, n, k, step, order, few);
    return write(few);
  }
  const Scratch memory(static_cast<std::size_t>(n) * 2 * sizeof(Pair<Key>) + 1);
  auto* const line = memory.as<Pair<Key>>();
  const Pair<Key>* sorted = nullptr;
  if (n >= 8 * kShort && k < n / 4) sorted = select_first(x, n, k, step, order, line, n / 2);
  if (sorted == nullptr) {
    auto* const keys = reinterpret_cast<Key*>(line + n);
    make_keys(x, n, step, order, keys);
    for (int64_t i = 0; i < n; ++i) line[i] = {keys[i], i};
    sorted = sort_pairs(line, line + n, n);
  }
  write(sorted);
}

/// Sorting n elements costs about this many element operations.
REEL_INLINE int64_t cost(int64_t n) { return 16 * n + 64; }

}  // namespace

void CpuOps::sort(const Array& x, int axis, bool descending, const Array& y, const Array& which) {
  if (y.size == 0) return;
  if (is_half(x.dtype)) detail::refuse_half(x.dtype);
  const int64_t n = x.shape[axis], k = y.shape[axis];
  int64_t inner = 1;
  for (int i = axis + 1; i < x.rank(); ++i) inner *= x.shape[i];
  dispatch_bytes(size_of(x.dtype), [&]<class Key>() {
    if constexpr (sizeof(Key) >= 4) {
      const Order order{is_floating(x.dtype), descending};
      const Key* const from = x.as<Key>();
      Key* const to = y.as<Key>();
      int64_t* const position = which.as<int64_t>();
      parallel_for(x.size / n, max<int64_t>(kGrain / cost(n), 1), [=](int64_t begin, int64_t end) {
        for (int64_t line = begin; line < end; ++line) {
          const int64_t outer = line / inner, j = line % inner, at = outer * k * inner + j;
          sort_line(from + outer * n * inner + j, n, k, inner, order, to + at, position + at);
        }
      });
    }
  });
}

void CpuOps::segment_sort(const Array& x, const Segments& segments, bool descending, const Array& y,
                          const Array& which) {
  if (y.size == 0) return;
  if (is_half(x.dtype)) detail::refuse_half(x.dtype);
  const int64_t width = x.size / segments.total;
  dispatch_bytes(size_of(x.dtype), [&]<class Key>() {
    if constexpr (sizeof(Key) >= 4) {
      const Order order{is_floating(x.dtype), descending};
      const Key* const from = x.as<Key>();
      Key* const to = y.as<Key>();
      int64_t* const position = which.as<int64_t>();
      for_each_segment(segments, width, kGrain / 16, [=](int64_t s, int64_t begin, int64_t end) {
        const int64_t n = segments.offsets[s + 1] - segments.offsets[s];
        for (int64_t j = begin; j < end; ++j) {
          const int64_t at = segments.offsets[s] * width + j;
          sort_line(from + at, n, n, width, order, to + at, position + at);
        }
      });
    }
  });
}

/// Each chunk leaves its positions where it began, found without a branch, which the processor could not foresee; then they
/// move together.
std::int64_t CpuOps::nonzero(const Array& mask, const Array& index) {
  const int64_t n = mask.size, chunk = even_chunk(n);
  const auto* set = mask.as<std::uint8_t>();
  auto* to = index.as<int64_t>();
  const Scratch memory(static_cast<std::size_t>(ceil_div(n, chunk) + 1) * sizeof(int64_t));
  auto* found = memory.as<int64_t>();
  parallel_for(n, chunk, [=](int64_t begin, int64_t end) {
    int64_t hits = 0;
    for (int64_t i = begin; i < end; ++i) {
      to[begin + hits] = i;
      hits += set[i] != 0;
    }
    found[begin / chunk] = hits;
  });
  int64_t total = 0;
  for (int64_t begin = 0; begin < n; begin += chunk) {
    const int64_t hits = found[begin / chunk];
    __builtin_memmove(to + total, to + begin, static_cast<std::size_t>(hits) * sizeof(int64_t));
    total += hits;
  }
  return total;
}

}  // namespace reel::cpu::REEL_CPU_ISA
