// A caching allocator for host memory. Each thread keeps the blocks it frees in lists by size class and takes them from
// there again, without a lock; what overflows a thread's bound, or is left when it ends, goes to a depot that all threads
// share, and from there, beyond its bound, back to the system.
#include <algorithm>

#include "reel/core/depot.h"
#include "reel/core/error.h"
#include "reel/core/running.h"
#include "reel/core/scratch.h"

namespace reel {

using detail::class_bytes;
using detail::class_of;
using detail::Depot;
using detail::depot;
using detail::FreeLists;
using detail::give_to_depot_or_system;
using detail::kClasses;
using detail::kDepotBound;
using detail::kTeamLevels;
using detail::poison;
using detail::take_from_depot;
using detail::take_from_system;
using detail::this_thread;
using detail::ThreadCache;
using detail::trim;
using detail::unpoison;

thread_local constinit ThreadCache* detail::this_thread = nullptr;

namespace {

// Of all threads, under the depot's mutex: no less than what was live at any time since reset_peak_memory().
std::int64_t peak_of_all(const Depot& shared) {
  std::int64_t peaks = shared.live_peak, live = shared.live;
  for (const ThreadCache* cache = shared.threads; cache != nullptr; cache = cache->next) {
    peaks += cache->peak.get();
    live += cache->live.get();
  }
  return std::max({shared.peak, peaks, live});
}

// A thread whose blocks others free counts them as live for ever, and the others count less than nothing: what is beyond the
// bytes of all threads, or below zero, goes to the depot's account, so that a peak is one of blocks that were in use together.
void settle(ThreadCache& own) {
  Depot& shared = depot();
  const std::lock_guard lock(shared.mutex);
  std::int64_t all = shared.live;
  for (const ThreadCache* cache = shared.threads; cache != nullptr; cache = cache->next) all += cache->live.get();
  const std::int64_t elsewhere =
      own.live.get() - std::clamp<std::int64_t>(own.live.get(), 0, std::max<std::int64_t>(all, 0));
  own.live.add(-elsewhere);
  own.hold(-elsewhere);
  shared.add_live(elsewhere);
}

REEL_FAST_TLS thread_local bool this_thread_ended = false;
// The thread's two caches; this_thread is the one that is in use.
REEL_FAST_TLS thread_local constinit ThreadCache *own_cache = nullptr, *team_cache = nullptr;

// Gives back what the calling thread's caches hold, and says whether there was any.
bool empty_own_caches() {
  std::int64_t bytes = 0;
  for (ThreadCache* const cache : {own_cache, team_cache}) {
    if (cache == nullptr) continue;
    bytes += cache->cached();
    detail::give_to_system(cache->lists);
    cache->hold(cache->live.get() - cache->held.load(std::memory_order_relaxed));  // nor is it asked any more
    for (auto& owned : cache->owned) owned = 0;
  }
  return bytes > 0;
}

// Another thread has asked for it: see release_cached_memory().
__attribute__((noinline)) void empty_as_asked() {
  if (empty_own_caches()) trim();
}

void retire(ThreadCache* cache) {
  if (cache == nullptr) return;
  for (int i = 0; i < kClasses; ++i)
    while (void* block = cache->lists.pop_any(i)) give_to_depot_or_system(i, block);
  Depot& shared = depot();
  {
    const std::lock_guard lock(shared.mutex);
    shared.peak = peak_of_all(shared);
    (cache->previous != nullptr ? cache->previous->next : shared.threads) = cache->next;
    if (cache->next != nullptr) cache->next->previous = cache->previous;
    shared.live += cache->live.get();
    shared.live_peak = shared.live;  // what was before is in `peak`
    shared.tensors += cache->tensors.get();
    shared.nodes += cache->nodes.get();
  }
  delete cache;
}

struct ThreadEnd {
  ~ThreadEnd() {
    ThreadCache *const own = own_cache, *const of_team = team_cache;
    this_thread = own_cache = team_cache = nullptr;
    this_thread_ended = true;
    retire(own);
    retire(of_team);
  }
};

ThreadCache* new_cache() {
  thread_local ThreadEnd end;
  (void)end;
  auto* cache = new ThreadCache;
  Depot& shared = depot();
  const std::lock_guard lock(shared.mutex);
  cache->next = shared.threads;
  if (shared.threads != nullptr) shared.threads->previous = cache;
  shared.threads = cache;
  return cache;
}

// The calling thread's cache, or null once the thread's own destructors have run.
__attribute__((noinline)) ThreadCache* start_thread() {
  if (!this_thread_ended) this_thread = own_cache = new_cache();
  return this_thread;
}

ThreadCache* thread_cache() { return this_thread != nullptr ? this_thread : start_thread(); }

/// Whether teams of so many are provided with blocks of a class.
bool provides(int index, int team) { return static_cast<std::int64_t>(class_bytes(index)) * team <= kDepotBound / 4; }

/// Brings the blocks of a class that teams are provided with to `wanted`, as far as memory goes.
void provide(Depot& shared, int index, std::int64_t wanted) {
  const auto room = static_cast<std::int64_t>(class_bytes(index));
  for (; shared.provided[index] < wanted; ++shared.provided[index]) {
    void* const block =
        shared.team_bytes + room <= kDepotBound ? take_from_system(static_cast<std::size_t>(room)) : nullptr;
    if (block == nullptr) break;
    poison(block, static_cast<std::size_t>(room));
    unpoison(block, sizeof(FreeLists::Block));
    shared.for_teams.push(index, block);
    shared.team_bytes += room;
  }
}

/// A block for a team's member that had none left; null beyond what teams are provided with.
void* take_for_team(ThreadCache& member, int index) {
  if (member.owned[index] == kTeamLevels || !provides(index, member.team)) return nullptr;
  const std::int64_t wanted = std::int64_t{++member.owned[index]} * member.team;
  Depot& shared = depot();
  const std::lock_guard lock(shared.mutex);
  provide(shared, index, wanted);
  void* const block = shared.for_teams.pop(index);
  if (block != nullptr) shared.team_bytes -= static_cast<std::int64_t>(class_bytes(index));
  return block;
}

/// A member's team has become larger: what it holds from before, the new members will need too, whenever they first have work.
__attribute__((noinline)) void provide_for_larger_team(ThreadCache& member, int threads) noexcept {
  Depot& shared = depot();
  const std::lock_guard lock(shared.mutex);
  for (int index = 0; index < kClasses; ++index) {
    if (member.owned[index] > 0 && provides(index, threads))
      provide(shared, index, std::int64_t{member.owned[index]} * threads);
  }
}

// From elsewhere than the thread's lists.
__attribute__((noinline)) void* fetch(int index, std::size_t bytes) {
  const std::size_t room = class_bytes(index);
  ThreadCache* const own = thread_cache();
  if (own != nullptr)
    if (void* const block = own->use(own->lists.pop_aside(index), room, bytes)) return block;
  void* block = own != nullptr && own->team > 1 ? take_for_team(*own, index) : nullptr;
  if (block == nullptr) block = take_from_depot(index);
  if (block == nullptr) block = take_from_system(room);
  if (block == nullptr) {
    release_cached_memory();
    block = take_from_system(room);
  }
  if (block == nullptr)
    throw OutOfMemory(detail::running_op() + ": " + std::to_string(bytes) + " bytes requested and not to be had; " +
                          memory_stats().str(),
                      SourceLocation{});
  unpoison(block, bytes);
  poison(static_cast<char*>(block) + bytes, room - bytes);
  if (own != nullptr) {
    if (own->live.get() < 0 || own->live.get() + static_cast<std::int64_t>(room) > own->peak.get()) settle(*own);
    own->hold(static_cast<std::int64_t>(room));
    own->count(static_cast<std::int64_t>(room));
  } else {
    Depot& shared = depot();
    const std::lock_guard lock(shared.mutex);
    shared.add_live(static_cast<std::int64_t>(room));
  }
  return block;
}

// The cache holds a block less.
void lose(ThreadCache& cache, int index) {
  cache.hold(-static_cast<std::int64_t>(class_bytes(index)));
  if (cache.owned[index] == 0) return;
  --cache.owned[index];
  Depot& shared = depot();
  const std::lock_guard lock(shared.mutex);
  if (shared.provided[index] > 0) --shared.provided[index];
}

// Gives a block to the thread's lists in place of stale ones; false if there are not enough.
bool give_for_stale(ThreadCache& cache, int index, void* block) {
  const auto room = static_cast<std::int64_t>(class_bytes(index));
  if (cache.live.get() < room || !cache.lists.overflow()) return false;  // others' blocks are for the depot
  int stale;
  while (void* const old = cache.lists.pop_stale(index, stale)) {
    lose(cache, stale);
    give_to_depot_or_system(stale, old);
    if (cache.give(index, class_bytes(index), block)) return true;
  }
  return false;
}

__attribute__((noinline)) void give_away(int index, void* block) noexcept {
  const std::size_t room = class_bytes(index);
  ThreadCache* const cache = thread_cache();
  if (cache != nullptr && cache->asked()) {
    empty_as_asked();
    if (cache->give(index, room, block)) return;
  }
  if (cache != nullptr && give_for_stale(*cache, index, block)) return;
  poison(block, room);
  unpoison(block, sizeof(FreeLists::Block));
  if (cache != nullptr) {
    cache->live.add(-static_cast<std::int64_t>(room));
    lose(*cache, index);
    if (cache->live.get() < 0) settle(*cache);
    give_to_depot_or_system(index, block);
    return;
  }
  Depot& shared = depot();
  {
    const std::lock_guard lock(shared.mutex);
    shared.add_live(-static_cast<std::int64_t>(room));
  }
  unpoison(block, room);
  std::free(block);
}

}  // namespace

namespace detail {

void* host_allocate(std::size_t bytes) {
  if (bytes > kLargestBlock)
    throw OutOfMemory(detail::running_op() + ": " + std::to_string(bytes) +
                          " bytes requested, more than any machine has; " + memory_stats().str(),
                      SourceLocation{});
  const int index = class_of(bytes);
  if (ThreadCache* cache = thread_cache())
    if (void* block = cache->take(index, class_bytes(index), bytes)) return block;
  return fetch(index, bytes);
}

void host_free(void* block, std::size_t bytes) noexcept {
  if (block == nullptr) return;
  const int index = class_of(bytes);
  ThreadCache* cache = thread_cache();
  if (cache == nullptr || !cache->give(index, class_bytes(index), block)) give_away(index, block);
}

TeamMember::TeamMember(int threads) : outside_(this_thread) {
  if (team_cache == nullptr && !this_thread_ended) team_cache = new_cache();
  if (team_cache == nullptr) return;
  if (team_cache->asked()) [[unlikely]]
    empty_as_asked();
  if (threads > team_cache->team) [[unlikely]]
    provide_for_larger_team(*team_cache, threads);
  team_cache->team = threads;
  this_thread = team_cache;
}

void count_tensors(std::int64_t difference) noexcept {
  if (ThreadCache* cache = thread_cache()) cache->tensors.add(difference);
  else depot().tensors += difference;
}

void count_nodes(std::int64_t difference) noexcept {
  if (ThreadCache* cache = thread_cache()) cache->nodes.add(difference);
  else depot().nodes += difference;
}

}  // namespace detail

MemoryStats memory_stats() {
  if (ThreadCache* own = thread_cache()) settle(*own);
  Depot& shared = depot();
  const std::lock_guard lock(shared.mutex);
  MemoryStats stats{shared.live, shared.cached + shared.team_bytes, peak_of_all(shared), shared.tensors, shared.nodes};
  for (const ThreadCache* cache = shared.threads; cache != nullptr; cache = cache->next) {
    stats.live_bytes += cache->live.get();
    stats.cached_bytes += cache->cached();
    stats.live_tensors += cache->tensors.get();
    stats.live_nodes += cache->nodes.get();
  }
  return stats;
}

void reset_peak_memory() {
  if (ThreadCache* own = thread_cache()) settle(*own);
  Depot& shared = depot();
  const std::lock_guard lock(shared.mutex);
  shared.peak = 0;
  shared.live_peak = shared.live;
  for (ThreadCache* cache = shared.threads; cache != nullptr; cache = cache->next)
    cache->peak.set(std::max<std::int64_t>(cache->live.get(), 0));
}

void release_cached_memory() {
  {
    Depot& shared = depot();
    const std::lock_guard lock(shared.mutex);
    for (ThreadCache* cache = shared.threads; cache != nullptr; cache = cache->next)
      if (!cache->asked()) cache->hold(ThreadCache::kAsked);
    detail::give_to_system(shared.lists);
    detail::give_to_system(shared.for_teams);
    shared.team_bytes = 0;
    shared.cached.store(0, std::memory_order_relaxed);
    for (auto& filled : shared.filled) filled.store(0, std::memory_order_relaxed);
    for (auto& provided : shared.provided) provided = 0;
  }
  empty_own_caches();
  trim();
}

std::string MemoryStats::str() const {
  return std::to_string(live_bytes) + " bytes live in " + std::to_string(live_tensors) + " tensors, " +
         std::to_string(cached_bytes) + " cached, peak " + std::to_string(peak_bytes);
}

}  // namespace reel
