#pragma once

// Private to core/: the part of the caching allocator that all threads share, and the system behind it.

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <mutex>

#include "reel/core/memory.h"
#include "reel/core/thread_cache.h"

namespace reel::detail {

/// Never destroyed: tensors in static variables outlive every static object here.
struct Depot {
  std::mutex mutex;
  FreeLists lists;
  std::atomic<std::int64_t> cached{0};
  std::atomic<std::int64_t> filled[kClasses] = {};  // blocks per class, so that an empty class costs no lock
  ThreadCache* threads = nullptr;
  FreeLists for_teams;                   // see TeamMember; not part of `cached`, and no more than kDepotBound
  std::int64_t team_bytes = 0;           // in for_teams
  std::int64_t provided[kClasses] = {};  // of a class for a team's members, here and with them
  std::int64_t given_up = 0;             // bytes of stale blocks, since the last trim()
  // What ended threads, and calls after a thread's end, leave behind.
  std::atomic<std::int64_t> tensors{0}, nodes{0};
  // Bytes; also what settle() moves here. Below 0 where they freed others' blocks.
  std::int64_t live = 0, live_peak = 0;
  std::int64_t peak = 0;  // of all threads, when the last one ended

  /// So many blocks of a class are cached more.
  void count(int index, int blocks) {
    filled[index].fetch_add(blocks, std::memory_order_relaxed);
    cached.fetch_add(blocks * static_cast<std::int64_t>(class_bytes(index)), std::memory_order_relaxed);
  }
  void add_live(std::int64_t difference) {
    live += difference;
    live_peak = std::max(live_peak, live);
  }
};

Depot& depot();

/// At least `bytes`; null if there are no more, or more than limit_blocks() allows.
void* take_from_system(std::size_t bytes);
/// Null if the depot has none of the class.
void* take_from_depot(int index);
/// Where a block finds no room in the depot, those that are stale make room.
void give_to_depot_or_system(int index, void* memory);
/// All blocks of the lists go to the system.
void give_to_system(FreeLists& lists);
/// Freed blocks are malloc's, which keeps many of them: this gives their pages back.
void trim();

}  // namespace reel::detail
