#pragma once

#include "reel/backends/cuda/kernel.h"

// Elementwise loops over arrays without gaps. A thread takes a few packs and reads all of them before it computes; there are
// as many threads as that needs: the next block starts where one ends, and no thread goes to memory a second time.

namespace reel::cuda {

inline constexpr int kMapThreads = 128;

/// Elements [begin, end) cut into units: `packs` packs from the first boundary of 16 bytes, then the elements before and after
/// them one by one.
template <class T>
struct Units {
  int64_t begin, end, first_pack, packs;

  REEL_HOST_DEVICE int64_t singles() const { return end - begin - packs * kPack<T>; }
  Grid grid(int steps) const {
    return {.blocks = ceil_div(packs + singles(), int64_t{kMapThreads} * steps), .threads = kMapThreads};
  }
};

/// `packed`: all arrays begin at boundaries.
template <class T>
Units<T> units_of(int64_t begin, int64_t end, bool packed) {
  const int64_t first = ceil_div(begin, kPack<T>), last = end / kPack<T>;
  if (!packed || first >= last) return {begin, end, begin, 0};
  return {begin, end, first * kPack<T>, last - first};
}

namespace device {

/// store_pack to global memory, surely in one instruction: the compiler may write a struct in parts.
template <class T, int n>
REEL_DEVICE void write_pack(T* address, const Pack<T, n>& pack) {
#if defined(__CUDA_ARCH__)
  if constexpr (sizeof pack == sizeof(uint4)) {
    const uint4 bits = __builtin_bit_cast(uint4, pack);
    asm volatile("st.global.v4.u32 [%0], {%1, %2, %3, %4};" ::"l"(__cvta_generic_to_global(address)), "r"(bits.x),
                 "r"(bits.y), "r"(bits.z), "r"(bits.w)
                 : "memory");
    return;
  }
  if constexpr (sizeof pack == 4) {
    *reinterpret_cast<uint32_t*>(address) = __builtin_bit_cast(uint32_t, pack);
    return;
  }
#endif
  store_pack(address, pack);
}

template <int n, class T>
REEL_DEVICE Pack<T, n> splat(T value) {
  Pack<T, n> pack;
  REEL_UNROLL
  for (int k = 0; k < n; ++k) pack.v[k] = value;
  return pack;
}

/// use.operator()<n>(at(k), load.operator()<n>(at(k))) for this block's units k, low <= k < high; all loads come first.
template <int n, int steps, class At, class Load, class Use>
REEL_DEVICE void load_and_use(int low, int high, At at, Load load, Use use) {
  decltype(load.template operator()<n>(at(low))) loaded[steps];
  REEL_UNROLL
  for (int s = 0; s < steps; ++s) {
    const int k = static_cast<int>(threadIdx.x) + s * kMapThreads;
    if (k >= low && k < high) loaded[s] = load.template operator()<n>(at(k));
  }
  REEL_UNROLL
  for (int s = 0; s < steps; ++s) {
    const int k = static_cast<int>(threadIdx.x) + s * kMapThreads;
    if (k >= low && k < high) use.template operator()<n>(at(k), loaded[s]);
  }
}

/// load.operator()<n>(i) returns what elements i to i + n are computed from, and use.operator()<n>(i, loaded) computes and
/// writes them: for all elements, `steps` units per thread, n = kPack<T> or 1.
template <int steps, class T, class Load, class Use>
REEL_DEVICE void for_each_unit(const Units<T>& units, Load load, Use use) {
  constexpr int most = kMapThreads * steps;
  const int64_t block = static_cast<int64_t>(blockIdx.x) * most;  // its first unit
  const auto units_here = [=](int64_t left) {
    return static_cast<int>(smaller<int64_t>(most, larger<int64_t>(0, left)));
  };
  const int packs = units_here(units.packs - block);
  if (packs > 0) {
    const int64_t first = units.first_pack + block * kPack<T>;
    const auto at = [=](int k) { return first + k * kPack<T>; };
    load_and_use<kPack<T>, steps>(0, packs, at, load, use);
    if (packs == most) return;
  }
  const int64_t single = block - units.packs, before = units.first_pack - units.begin;
  const int high = units_here(units.singles() - single);
  const auto at = [&](int k) { return units.begin + single + k + (single + k < before ? 0 : units.packs * kPack<T>); };
  load_and_use<1, steps>(packs, high, at, load, use);
}

/// This thread's `steps` positions of a walk: f(step, offsets of the operands there).
template <int steps, int N, class F>
REEL_DEVICE void for_each_place(const Walk<N>& walk, F f) {
  const uint32_t first = blockIdx.x * (kMapThreads * steps) + threadIdx.x;
  REEL_UNROLL
  for (int s = 0; s < steps; ++s) {
    const uint32_t position = first + s * kMapThreads;
    if (position >= walk.count) break;
    int64_t at[N];
    find(walk, position, at);
    f(s, at);
  }
}
/// f(step) for the same ones.
template <int steps, int N, class F>
REEL_DEVICE void for_each_step(const Walk<N>& walk, F f) {
  const uint32_t first = blockIdx.x * (kMapThreads * steps) + threadIdx.x;
  REEL_UNROLL
  for (int s = 0; s < steps; ++s) {
    if (first + s * kMapThreads >= walk.count) break;
    f(s);
  }
}

template <class T, int n>
struct TwoPacks {
  Pack<T, n> a, b;
};

inline constexpr int kMapSteps = 2;

/// y = f(a, b).
template <class T, class F>
REEL_DEVICE void map(const T* a, const T* b, T* y, const Units<T>& units, F f) {
  const auto load = [=]<int n>(int64_t i) { return TwoPacks<T, n>{load_pack<T, n>(a + i), load_pack<T, n>(b + i)}; };
  for_each_unit<kMapSteps>(units, load, [=]<int n>(int64_t i, const TwoPacks<T, n>& from) {
    Pack<T, n> to;
    REEL_UNROLL
    for (int k = 0; k < n; ++k) to.v[k] = f(from.a.v[k], from.b.v[k]);
    write_pack(y + i, to);
  });
}

}  // namespace device

/// A launch for for_each_place.
template <int N>
Grid walk_grid(const Walk<N>& walk, int steps) {
  return {.blocks = ceil_div(walk.count, int64_t{kMapThreads} * steps), .threads = kMapThreads};
}

/// The units of `map`.
template <class T>
Units<T> map_units(const void* a, const void* b, const Array& y) {
  return units_of<T>(0, y.size, in_packs<T>({a, b, y.data}));
}

}  // namespace reel::cuda
