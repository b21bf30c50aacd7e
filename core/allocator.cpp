// A caching allocator for host memory. Each thread keeps the blocks it frees in lists by size class and takes them from
// there again, without a lock; what overflows a thread's bound, or is left when it ends, goes to a depot that all threads
// share, and from there, beyond its bound, back to the system.
#include <atomic>
#include <cstdlib>
#include <mutex>
#include <new>

#include "reel/core/error.h"
#include "reel/core/memory.h"
#include "reel/core/running.h"
#include "reel/core/scratch.h"

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#else
#define ASAN_POISON_MEMORY_REGION(address, size) ((void)(address), (void)(size))
#define ASAN_UNPOISON_MEMORY_REGION(address, size) ((void)(address), (void)(size))
#endif

namespace reel {

namespace {

// Size classes: multiples of 64 bytes up to 1 KiB, then four per power of two (at most 25 % is wasted) up to 2^46 bytes.
constexpr int kFineClasses = 16;
constexpr int kClasses = kFineClasses + 4 * 36;
constexpr std::int64_t kSlack = 64 << 20;  // a thread caches this much beyond its own peak
constexpr std::int64_t kDepotBound = 256 << 20;

int class_of(std::size_t bytes) {
  if (bytes <= 1024) return bytes == 0 ? 0 : static_cast<int>((bytes - 1) / 64);
  const int log = 63 - __builtin_clzll(bytes - 1);  // 2^log <= bytes - 1 < 2^(log + 1)
  const int quarter = static_cast<int>((bytes - 1) >> (log - 2)) & 3;
  return kFineClasses + 4 * (log - 10) + quarter;
}

std::size_t class_bytes(int index) {
  if (index < kFineClasses) return 64 * static_cast<std::size_t>(index + 1);
  const int log = 10 + (index - kFineClasses) / 4;
  const int quarter = (index - kFineClasses) % 4;
  return (std::size_t{1} << log) + (static_cast<std::size_t>(quarter + 1) << (log - 2));
}

struct Block {
  Block* next;
};

struct FreeLists {
  Block* head[kClasses] = {};

  void push(int index, void* memory) {
    auto* block = static_cast<Block*>(memory);
    block->next = head[index];
    head[index] = block;
  }
  void* pop(int index) {
    Block* block = head[index];
    if (block != nullptr) head[index] = block->next;
    return block;
  }
};

// Written by one thread, read by any: plain adds on the writer's side.
struct Counter {
  std::atomic<std::int64_t> value{0};
  void add(std::int64_t difference) {
    value.store(value.load(std::memory_order_relaxed) + difference, std::memory_order_relaxed);
  }
  std::int64_t get() const { return value.load(std::memory_order_relaxed); }
};

struct ThreadCache {
  FreeLists lists;
  Counter live, cached, peak, tensors, nodes;
  ThreadCache* previous = nullptr;
  ThreadCache* next = nullptr;
};

// Never destroyed: tensors in static variables outlive every static object here.
struct Depot {
  std::mutex mutex;
  FreeLists lists;
  std::atomic<std::int64_t> cached{0};
  std::atomic<std::int64_t> filled[kClasses] = {};  // blocks per class, so that an empty class costs no lock
  ThreadCache* threads = nullptr;
  // What ended threads, and calls after a thread's end, leave behind.
  std::atomic<std::int64_t> live{0}, tensors{0}, nodes{0}, peak{0};
};

Depot& depot() {
  alignas(Depot) static unsigned char memory[sizeof(Depot)];
  static Depot* const instance = new (memory) Depot;
  return *instance;
}

std::atomic<std::size_t> largest_block{detail::kLargestBlock};

void* take_from_system(std::size_t bytes) {
  if (bytes > largest_block.load(std::memory_order_relaxed)) return nullptr;
  // Whole huge pages for large blocks: one fault instead of 512.
  const std::size_t alignment = bytes >= (std::size_t{4} << 20) ? std::size_t{2} << 20 : 64;
  return std::aligned_alloc(alignment, (bytes + alignment - 1) / alignment * alignment);
}

void give_to_depot_or_system(int index, void* memory) {
  Depot& shared = depot();
  const auto bytes = static_cast<std::int64_t>(class_bytes(index));
  if (shared.cached.load(std::memory_order_relaxed) + bytes <= kDepotBound) {
    const std::lock_guard lock(shared.mutex);
    shared.lists.push(index, memory);
    shared.filled[index].fetch_add(1, std::memory_order_relaxed);
    shared.cached.fetch_add(bytes, std::memory_order_relaxed);
    return;
  }
  ASAN_UNPOISON_MEMORY_REGION(memory, class_bytes(index));
  std::free(memory);
}

void* take_from_depot(int index) {
  Depot& shared = depot();
  if (shared.filled[index].load(std::memory_order_relaxed) <= 0) return nullptr;
  const std::lock_guard lock(shared.mutex);
  void* block = shared.lists.pop(index);
  if (block != nullptr) {
    shared.filled[index].fetch_sub(1, std::memory_order_relaxed);
    shared.cached.fetch_sub(static_cast<std::int64_t>(class_bytes(index)), std::memory_order_relaxed);
  }
  return block;
}

void empty_lists(FreeLists& lists) {
  for (int i = 0; i < kClasses; ++i)
    while (void* block = lists.pop(i)) {
      ASAN_UNPOISON_MEMORY_REGION(block, class_bytes(i));
      std::free(block);
    }
}

REEL_FAST_TLS thread_local ThreadCache* this_thread = nullptr;
REEL_FAST_TLS thread_local bool this_thread_ended = false;

struct ThreadEnd {
  ~ThreadEnd() {
    ThreadCache* cache = this_thread;
    this_thread = nullptr;
    this_thread_ended = true;
    if (cache == nullptr) return;
    for (int i = 0; i < kClasses; ++i)
      while (void* block = cache->lists.pop(i)) give_to_depot_or_system(i, block);
    Depot& shared = depot();
    {
      const std::lock_guard lock(shared.mutex);
      (cache->previous != nullptr ? cache->previous->next : shared.threads) = cache->next;
      if (cache->next != nullptr) cache->next->previous = cache->previous;
      shared.live += cache->live.get();
      shared.tensors += cache->tensors.get();
      shared.nodes += cache->nodes.get();
    }
    delete cache;
  }
};

// The calling thread's cache, or null once the thread's own destructors have run.
__attribute__((noinline)) ThreadCache* start_thread() {
  if (this_thread_ended) return nullptr;
  thread_local ThreadEnd end;
  (void)end;
  auto* cache = new ThreadCache;
  Depot& shared = depot();
  const std::lock_guard lock(shared.mutex);
  cache->next = shared.threads;
  if (shared.threads != nullptr) shared.threads->previous = cache;
  shared.threads = cache;
  this_thread = cache;
  return cache;
}

ThreadCache* thread_cache() { return this_thread != nullptr ? this_thread : start_thread(); }

// A cached block is poisoned but for the link; a live one behind the bytes that were asked for.
void* hand_out(void* block, std::size_t bytes, std::size_t room) {
  ASAN_UNPOISON_MEMORY_REGION(block, bytes);
  ASAN_POISON_MEMORY_REGION(static_cast<char*>(block) + bytes, room - bytes);
  return block;
}

__attribute__((noinline)) void* allocate_slow(int index, std::size_t bytes) {
  const std::size_t room = class_bytes(index);
  void* block = take_from_depot(index);
  if (block == nullptr) block = take_from_system(room);
  if (block == nullptr) {
    release_cached_memory();
    block = take_from_system(room);
  }
  if (block == nullptr)
    throw OutOfMemory(detail::running_op() + ": " + std::to_string(bytes) + " bytes requested and not to be had; " +
                          memory_stats().str(),
                      SourceLocation{});
  return hand_out(block, bytes, room);
}

}  // namespace

namespace detail {

void* host_allocate(std::size_t bytes) {
  if (bytes > kLargestBlock)
    throw OutOfMemory(detail::running_op() + ": " + std::to_string(bytes) +
                          " bytes requested, more than any machine has; " + memory_stats().str(),
                      SourceLocation{});
  const int index = class_of(bytes);
  const std::size_t room = class_bytes(index);
  ThreadCache* cache = thread_cache();
  if (cache == nullptr) {
    void* block = allocate_slow(index, bytes);
    depot().live += static_cast<std::int64_t>(room);
    return block;
  }
  void* block = cache->lists.pop(index);
  if (block != nullptr) {
    cache->cached.add(-static_cast<std::int64_t>(room));
    hand_out(block, bytes, room);
  } else {
    block = allocate_slow(index, bytes);
  }
  cache->live.add(static_cast<std::int64_t>(room));
  if (cache->live.get() > cache->peak.get()) cache->peak.value.store(cache->live.get(), std::memory_order_relaxed);
  return block;
}

void host_free(void* block, std::size_t bytes) noexcept {
  if (block == nullptr) return;
  const int index = class_of(bytes);
  const std::size_t room = class_bytes(index);
  ASAN_POISON_MEMORY_REGION(block, room);
  ASAN_UNPOISON_MEMORY_REGION(block, sizeof(Block));
  ThreadCache* cache = thread_cache();
  if (cache == nullptr) {
    depot().live -= static_cast<std::int64_t>(room);
    ASAN_UNPOISON_MEMORY_REGION(block, room);
    std::free(block);
    return;
  }
  cache->live.add(-static_cast<std::int64_t>(room));
  if (cache->cached.get() + static_cast<std::int64_t>(room) > cache->peak.get() + kSlack) {
    give_to_depot_or_system(index, block);
    return;
  }
  cache->cached.add(static_cast<std::int64_t>(room));
  cache->lists.push(index, block);
}

void count_tensors(std::int64_t difference) noexcept {
  if (ThreadCache* cache = thread_cache()) cache->tensors.add(difference);
  else depot().tensors += difference;
}

void limit_blocks(std::size_t bytes) noexcept { largest_block.store(bytes, std::memory_order_relaxed); }

void count_nodes(std::int64_t difference) noexcept {
  if (ThreadCache* cache = thread_cache()) cache->nodes.add(difference);
  else depot().nodes += difference;
}

}  // namespace detail

MemoryStats memory_stats() {
  Depot& shared = depot();
  const std::lock_guard lock(shared.mutex);
  MemoryStats stats{shared.live, shared.cached, shared.peak, shared.tensors, shared.nodes};
  for (const ThreadCache* cache = shared.threads; cache != nullptr; cache = cache->next) {
    stats.live_bytes += cache->live.get();
    stats.cached_bytes += cache->cached.get();
    stats.peak_bytes += cache->peak.get();
    stats.live_tensors += cache->tensors.get();
    stats.live_nodes += cache->nodes.get();
  }
  if (stats.peak_bytes < stats.live_bytes) stats.peak_bytes = stats.live_bytes;
  return stats;
}

void reset_peak_memory() {
  Depot& shared = depot();
  const std::lock_guard lock(shared.mutex);
  for (ThreadCache* cache = shared.threads; cache != nullptr; cache = cache->next)
    cache->peak.value.store(cache->live.get(), std::memory_order_relaxed);
}

void release_cached_memory() {
  if (ThreadCache* cache = thread_cache()) {
    empty_lists(cache->lists);
    cache->cached.value.store(0, std::memory_order_relaxed);
  }
  Depot& shared = depot();
  const std::lock_guard lock(shared.mutex);
  empty_lists(shared.lists);
  shared.cached.store(0, std::memory_order_relaxed);
  for (auto& filled : shared.filled) filled.store(0, std::memory_order_relaxed);
}

std::string MemoryStats::str() const {
  return std::to_string(live_bytes) + " bytes live in " + std::to_string(live_tensors) + " tensors, " +
         std::to_string(cached_bytes) + " cached, peak " + std::to_string(peak_bytes);
}

}  // namespace reel
