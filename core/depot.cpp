// The part of the caching allocator that all threads share.
#include "reel/core/depot.h"

#include <sys/mman.h>
#if __has_include(<malloc.h>)
#include <malloc.h>
#endif

#include <cstdlib>
#include <new>

namespace reel::detail {

Depot& depot() {
  alignas(Depot) static unsigned char memory[sizeof(Depot)];
  static Depot* const instance = new (memory) Depot;
  return *instance;
}

namespace {

constexpr std::size_t kHugePage = std::size_t{2} << 20;
constexpr std::size_t kHugePages = 2 * kHugePage;  // bytes from which on a block is of whole ones

/// Bytes of stale blocks that go to the system before their pages do: blocks of many sizes leave holes in malloc's memory.
constexpr std::int64_t kUntrimmed = kSlack / 4;

std::atomic<std::size_t> largest_block{kLargestBlock};

void give_to_system(int index, void* block) {
  unpoison(block, class_bytes(index));
  std::free(block);
}

}  // namespace

void* take_from_system(std::size_t bytes) {
  if (bytes > largest_block.load(std::memory_order_relaxed)) return nullptr;
  if (bytes < kHugePages) return std::aligned_alloc(64, (bytes + 63) / 64 * 64);
  // Whole huge pages: one fault instead of 512, and fewer addresses to translate.
  const std::size_t rounded = (bytes + kHugePage - 1) / kHugePage * kHugePage;
  void* const block = std::aligned_alloc(kHugePage, rounded);
#if defined(MADV_HUGEPAGE)
  if (block != nullptr) madvise(block, rounded, MADV_HUGEPAGE);
#endif
  return block;
}

void limit_blocks(std::size_t bytes) noexcept { largest_block.store(bytes, std::memory_order_relaxed); }

void* take_from_depot(int index) {
  Depot& shared = depot();
  if (shared.filled[index].load(std::memory_order_relaxed) <= 0) return nullptr;
  const std::lock_guard lock(shared.mutex);
  void* const block = shared.lists.pop_any(index);
  if (block != nullptr) shared.count(index, -1);
  return block;
}

void give_to_depot_or_system(int index, void* memory) {
  Depot& shared = depot();
  const auto bytes = static_cast<std::int64_t>(class_bytes(index));
  bool kept = false, many = false;
  {
    const std::lock_guard lock(shared.mutex);
    const auto full = [&] { return shared.cached.load(std::memory_order_relaxed) + bytes > kDepotBound; };
    if (full() && bytes <= kDepotBound && shared.lists.overflow()) {
      int old;
      while (void* const block = full() ? shared.lists.pop_stale(index, old) : nullptr) {
        give_to_system(old, block);
        shared.count(old, -1);
        shared.given_up += static_cast<std::int64_t>(class_bytes(old));
      }
      many = shared.given_up > kUntrimmed;
      if (many) shared.given_up = 0;
    }
    if (!full()) {
      shared.lists.push(index, memory);
      shared.count(index, 1);
      kept = true;
    }
  }
  if (!kept) give_to_system(index, memory);
  if (many) trim();
}

void give_to_system(FreeLists& lists) {
  for (int i = 0; i < kClasses; ++i)
    while (void* const block = lists.pop_any(i)) give_to_system(i, block);
}

void trim() {
#if defined(__GLIBC__)
  malloc_trim(0);
#endif
}

}  // namespace reel::detail
