#pragma once

#include "reel/backends/cuda/group.h"

// Rows that fit into the registers of the threads that work on them: they come from memory once, 16 bytes per access where
// rows allow it, and all of a thread's loads are on their way before the first is waited for.

namespace reel::cuda {

namespace device {

/// The threads that hold one row: neighbours, as many as a power of two up to a warp, or the whole block.
struct Holders {
  int lanes;

  REEL_DEVICE bool whole_block() const { return lanes > kWarp; }
  REEL_DEVICE int lane() const { return whole_block() ? threadIdx.x : threadIdx.x & (lanes - 1); }
  REEL_DEVICE int width() const { return lanes; }
  /// The row's number in the block, and how many there are.
  REEL_DEVICE int in_block() const { return whole_block() ? 0 : threadIdx.x / lanes; }
  REEL_DEVICE int rows_of_block() const { return whole_block() ? 1 : blockDim.x / lanes; }
  /// Joins the row's values in a fixed order; all of its threads get the result. `scratch`: a value per warp. All threads of
  /// the block must call it.
  template <class T, class Join>
  REEL_DEVICE T join(T value, T* scratch, Join f) const {
    return whole_block() ? join_block(value, scratch, f) : join_lanes(value, f, lanes);
  }
  template <class T>
  REEL_DEVICE T sum(T value, T* scratch) const {
    return join(value, scratch, [](T a, T b) { return a + b; });
  }
  /// This thread's row. One beyond the last must not be left out: its threads are waited for where values are joined.
  REEL_DEVICE int64_t row() const { return static_cast<int64_t>(blockIdx.x) * rows_of_block() + in_block(); }
};

/// A thread's part of a row: pack p of it is pack p lanes + lane of the row.
template <class T, int count, int packs>
struct HeldRow {
  Pack<T, count> at[packs];

  REEL_DEVICE static int place(Holders holders, int p) { return (p * holders.lanes + holders.lane()) * count; }
  /// What lies beyond the row's n elements becomes `outside`. All threads of a warp must call it.
  REEL_DEVICE void load(const T* from, int n, Holders holders, T outside) {
    REEL_UNROLL
    for (int p = 0; p < packs; ++p) {
      const int i = place(holders, p);
      if (i < n) {
        at[p] = load_pack<T, count>(from + i);
      } else {
        REEL_UNROLL
        for (int k = 0; k < count; ++k) at[p].v[k] = outside;
      }
    }
    __syncwarp();  // the compiler moves no load beyond it
  }
  REEL_DEVICE void store(T* to, int n, Holders holders) const {
    REEL_UNROLL
    for (int p = 0; p < packs; ++p) {
      const int i = place(holders, p);
      if (i < n) store_pack(to + i, at[p]);
    }
  }
  /// f(element) for all of them, those beyond the row too.
  template <class F>
  REEL_DEVICE void each(F f) {
    REEL_UNROLL
    for (int p = 0; p < packs; ++p) {
      REEL_UNROLL
      for (int k = 0; k < count; ++k) f(at[p].v[k]);
    }
  }
  /// f(p, k) for all of them.
  template <class F>
  REEL_DEVICE static void each_index(F f) {
    REEL_UNROLL
    for (int p = 0; p < packs; ++p) {
      REEL_UNROLL
      for (int k = 0; k < count; ++k) f(p, k);
    }
  }
  /// f(p, k, place in the row) for those in the row.
  template <class F>
  REEL_DEVICE static void each_place(int n, Holders holders, F f) {
    REEL_UNROLL
    for (int p = 0; p < packs; ++p) {
      const int i = place(holders, p);
      if (i < n) {
        REEL_UNROLL
        for (int k = 0; k < count; ++k) f(p, k, i + k);
      }
    }
  }
};

}  // namespace device

/// The most elements that a thread holds of a row, and the longest row that a block does.
template <class T>
inline constexpr int kHeld = 128 / static_cast<int>(sizeof(T));
template <class T>
inline constexpr int kLongestHeld = kMostThreads* kHeld<T>;

/// How rows are held: `packs` packs, or single elements if not `packed`, per thread. It depends on a row's length and on
/// whether it can be read in packs, never on the number of rows.
struct HeldPlan {
  bool packed;
  int packs;
  device::Holders holders;
  Grid grid;
};

/// For 0 < n <= kLongestHeld<T>. `scratch_bytes`: of a value that is joined.
template <class T>
HeldPlan held_plan(int64_t rows, int64_t n, bool packed, std::size_t scratch_bytes) {
  constexpr int kFewPacks = 4, kFewElements = 8;
  const int64_t units = packed ? n / kPack<T> : n;
  const int most = packed ? kHeld<T> / kPack<T> : kHeld<T>, few = packed ? kFewPacks : kFewElements;
  HeldPlan plan{packed, most, {device::kWarp}, {}};
  if (packed && units <= 8) plan.packs = 1;
  else if (units <= few * device::kWarp) plan.packs = few;
  const int64_t lanes = ceil_div(units, plan.packs);
  // At least 64 bytes side by side, as long as the row has them.
  if (lanes <= device::kWarp) plan.holders.lanes = power_of_two_from(lanes, units < 4 ? 1 : 4, device::kWarp);
  else plan.holders.lanes = static_cast<int>(ceil_div(lanes, device::kWarp) * device::kWarp);
  if (plan.holders.lanes > device::kWarp) plan.grid.threads = plan.holders.lanes;
  plan.grid.blocks = ceil_div(rows, plan.grid.threads / plan.holders.lanes);  // 2^31 of them are more than memory
  plan.grid.shared_bytes = scratch_bytes * device::kWarp;
  return plan;
}

/// f.template operator()<count, packs>() for the plan's number of elements in a pack, and of packs in a thread.
template <class T, class F>
void dispatch_held(const HeldPlan& plan, F&& f) {
  if (plan.packed && plan.packs == 1) return f.template operator()<kPack<T>, 1>();
  if (plan.packed && plan.packs == 4) return f.template operator()<kPack<T>, 4>();
  if (plan.packed) return f.template operator()<kPack<T>, kHeld<T> / kPack<T>>();
  if (plan.packs == 8) return f.template operator()<1, 8>();
  return f.template operator()<1, kHeld<T>>();
}

}  // namespace reel::cuda
