#pragma once

// Private to core/: a thread's own part of the caching allocator, as far as it must be short (allocator.cpp has the rest).

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <utility>

#include "reel/core/macros.h"
#include "reel/core/running.h"
#include "reel/core/shared_count.h"

#if defined(__SANITIZE_ADDRESS__)
extern "C" void __asan_poison_memory_region(const volatile void* address, std::size_t size);
extern "C" void __asan_unpoison_memory_region(const volatile void* address, std::size_t size);
#endif

namespace reel::detail {

/// The address sanitizer reports a use of poisoned memory; without it nothing happens.
REEL_INLINE void poison([[maybe_unused]] void* memory, [[maybe_unused]] std::size_t bytes) {
#if defined(__SANITIZE_ADDRESS__)
  __asan_poison_memory_region(memory, bytes);
#endif
}
REEL_INLINE void unpoison([[maybe_unused]] void* memory, [[maybe_unused]] std::size_t bytes) {
#if defined(__SANITIZE_ADDRESS__)
  __asan_unpoison_memory_region(memory, bytes);
#endif
}

// Size classes: multiples of 64 bytes up to 1 KiB, then four per power of two (at most 25 % is wasted) up to 2^46 bytes.
inline constexpr int kFineClasses = 16;
inline constexpr int kClasses = kFineClasses + 4 * 36;
inline constexpr std::int64_t kSlack = 64 << 20;        // a thread caches this much beyond its own peak
inline constexpr std::int64_t kDepotBound = 256 << 20;  // the depot caches no more, and no more again for teams
inline constexpr int kTeamLevels = 8;                   // blocks of one class for which a team provides, see TeamMember

constexpr int class_of(std::size_t bytes) {
  if (bytes <= 1024) return bytes == 0 ? 0 : static_cast<int>((bytes - 1) / 64);
  const int log = 63 - __builtin_clzll(bytes - 1);  // 2^log <= bytes - 1 < 2^(log + 1)
  const int quarter = static_cast<int>((bytes - 1) >> (log - 2)) & 3;
  return kFineClasses + 4 * (log - 10) + quarter;
}

constexpr std::size_t class_bytes(int index) {
  if (index < kFineClasses) return 64 * static_cast<std::size_t>(index + 1);
  const int log = 10 + (index - kFineClasses) / 4;
  const int quarter = (index - kFineClasses) % 4;
  return (std::size_t{1} << log) + (static_cast<std::size_t>(quarter + 1) << (log - 2));
}

/// Free blocks by class. Those of sizes that are needed no more are told from the others once blocks find no room: the lists are
/// put aside, from where a block comes back when the list of its class is empty. What is there still when kTurn more have found no
/// room is stale. (So many hardly find none in one step of training: what each step needs once must not look stale.)
struct FreeLists {
  struct Block {
    Block* next;
  };
  static constexpr int kTurn = 64;
  Block* head[kClasses] = {};
  Block* aside[kClasses] = {};
  int overflowed = 0;

  REEL_INLINE void push(int index, void* memory) {
    auto* block = static_cast<Block*>(memory);
    block->next = head[index];
    head[index] = block;
  }
  REEL_INLINE void* pop(int index) {
    Block* block = head[index];
    if (block != nullptr) head[index] = block->next;
    return block;
  }
  /// The list of a class is empty, but blocks of it may have been put aside.
  void* pop_aside(int index) {
    Block* block = aside[index];
    if (block != nullptr) aside[index] = block->next;
    return block;
  }
  void* pop_any(int index) {
    void* const block = pop(index);
    return block != nullptr ? block : pop_aside(index);
  }
  /// A block found no room; whether there may be stale ones.
  bool overflow() { return ++overflowed > kTurn; }
  /// A stale block, the largest, of another class than `needed`, and its class; null if there is none.
  void* pop_stale(int needed, int& index) {
    for (index = kClasses - 1; index >= 0; --index)
      if (index != needed && aside[index] != nullptr) return pop_aside(index);
    overflowed = 0;
    for (int i = 0; i < kClasses; ++i)
      if (aside[i] == nullptr) std::swap(aside[i], head[i]);
    return nullptr;
  }
};

// Written by one thread, read by any: plain adds on the writer's side.
struct Counter {
  std::atomic<std::int64_t> value{0};
  REEL_INLINE void add(std::int64_t difference) { set(get() + difference); }
  REEL_INLINE void set(std::int64_t to) { value.store(to, std::memory_order_relaxed); }
  REEL_INLINE std::int64_t get() const { return value.load(std::memory_order_relaxed); }
};

/// Blocks go from the lists to their users and back with one count: what is cached is held but not live.
struct ThreadCache {
  FreeLists lists;
  Counter live, peak;  // bytes; a thread that frees others' blocks has a negative live
  /// Bytes; and kAsked, added by another thread that asks for what is cached: the next block that is freed finds no room.
  std::atomic<std::int64_t> held{0};
  Counter tensors, nodes;
  ThreadCache* previous = nullptr;
  ThreadCache* next = nullptr;
  int team = 0;                      // threads of the team that this cache is for, 0 outside of teams
  std::int8_t owned[kClasses] = {};  // in a team: blocks here and in use, up to kTeamLevels

  static constexpr std::int64_t kAsked = std::int64_t{1} << 62;

  void hold(std::int64_t difference) { add_to(held, difference); }
  bool asked() const { return held.load(std::memory_order_relaxed) > kAsked / 2; }
  std::int64_t cached() const {
    const std::int64_t bytes = held.load(std::memory_order_relaxed) - live.get();
    return bytes > kAsked / 2 ? bytes - kAsked : bytes;
  }

  /// A block of a class, of which `bytes` will be used; null if none is cached.
  REEL_INLINE void* take(int index, std::size_t room, std::size_t bytes) { return use(lists.pop(index), room, bytes); }
  REEL_INLINE void* use(void* block, std::size_t room, std::size_t bytes) {
    if (block == nullptr) [[unlikely]]
      return nullptr;
    // A cached block is poisoned but for the link; a live one behind the bytes that were asked for.
    unpoison(block, bytes);
    poison(static_cast<char*>(block) + bytes, room - bytes);
    count(static_cast<std::int64_t>(room));
    return block;
  }
  /// False if the thread caches enough.
  REEL_INLINE bool give(int index, std::size_t room, void* block) {
    const std::int64_t left = live.get() - static_cast<std::int64_t>(room);
    if (held.load(std::memory_order_relaxed) - left > peak.get() + kSlack) [[unlikely]]
      return false;
    poison(block, room);
    unpoison(block, sizeof(FreeLists::Block));
    live.set(left);
    lists.push(index, block);
    return true;
  }
  REEL_INLINE void count(std::int64_t room) {
    const std::int64_t now = live.get() + room;
    live.set(now);
    if (now > peak.get()) peak.set(now);
  }
};

extern thread_local constinit ThreadCache* this_thread REEL_FAST_TLS;

/// While it lives, the calling thread runs parts of a parallel loop beside `threads - 1` others. Which of them runs which part
/// is chance, and so is who needs working memory. A steady loop calls malloc no more all the same: as soon as one member holds k
/// blocks of a class, there are k for each of them, in the depot at first. For this the thread has a second cache, which no
/// tensor takes from.
class TeamMember {
 public:
  explicit TeamMember(int threads);
  ~TeamMember() { this_thread = outside_; }
  TeamMember(const TeamMember&) = delete;
  TeamMember& operator=(const TeamMember&) = delete;

 private:
  ThreadCache* outside_;
};

}  // namespace reel::detail
