#include "reel/core/parallel.h"

#include <omp.h>
#include <pthread.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <exception>
#include <string>

#include "reel/core/error.h"
#include "reel/core/running.h"
#include "reel/core/thread_cache.h"

namespace reel {

namespace {

constexpr int kMostThreads = 1024;  // OpenMP's own lists of its threads, which lie on the stack, still fit one

std::atomic<int> thread_limit{0};  // 0: not asked for yet

// OpenMP's threads do not survive fork(): a region in the child would wait for them forever, so it works alone.
std::atomic<bool> forked_child{false};

/// How many threads to start, where `threads` of them have work. A team as large as the last one is taken up again, another is
/// made anew, which calls malloc and takes longer than to wake threads that find no work. Where there are fewer processors than
/// threads waking is dear: there as many start as ever had work.
int team_for(int threads) {
  static const int processors = omp_get_num_procs();
  thread_local int largest = 0;
  const int all = num_threads();
  if (all <= processors) return all;
  largest = std::min(all, std::max(largest, threads));
  return largest;
}

void watch_forks() {
  static const int registered =
      pthread_atfork(nullptr, nullptr, [] { forked_child.store(true, std::memory_order_relaxed); });
  (void)registered;
}

}  // namespace

int num_threads() {
  int count = thread_limit.load(std::memory_order_relaxed);
  if (count == 0) {
    count = std::min(omp_get_max_threads(), kMostThreads);
    thread_limit.store(count, std::memory_order_relaxed);
  }
  return count;
}

void set_num_threads(int count, SourceLocation where) {
  if (count < 1 || count > kMostThreads)
    throw Error(
        "set_num_threads: count must be in [1, " + std::to_string(kMostThreads) + "], got " + std::to_string(count),
        where);
  thread_limit.store(count, std::memory_order_relaxed);
}

namespace detail {

int available_threads() {
  return omp_in_parallel() || forked_child.load(std::memory_order_relaxed) ? 1 : num_threads();
}

std::int64_t level2_cache_bytes() {
#if defined(_SC_LEVEL2_CACHE_SIZE)
  static const std::int64_t bytes = std::max(0L, sysconf(_SC_LEVEL2_CACHE_SIZE));
  return bytes;
#else
  return 0;
#endif
}

std::int64_t last_cache_bytes() {
  static const std::int64_t bytes = [] {
    long kilobytes = 0;
    if (std::FILE* const file = std::fopen("/sys/devices/system/cpu/cpu0/cache/index3/size", "r")) {
      if (std::fscanf(file, "%ldK", &kilobytes) != 1) kilobytes = 0;
      std::fclose(file);
    }
#if defined(_SC_LEVEL3_CACHE_SIZE)
    // The second choice: of AMD's processors glibc 2.36 adds up all caches of level 3, of which a core has one.
    if (kilobytes == 0) return std::int64_t{std::max(0L, sysconf(_SC_LEVEL3_CACHE_SIZE))};
#endif
    return std::int64_t{kilobytes} << 10;
  }();
  return bytes;
}

void parallel_chunks(std::int64_t count, std::int64_t chunk, void (*body)(void*, std::int64_t, std::int64_t),
                     void* context) {
  const std::int64_t chunks = (count + chunk - 1) / chunk;
  const auto run = [&](std::int64_t i) {
    const std::int64_t begin = i * chunk;
    body(context, begin, begin + chunk < count ? begin + chunk : count);
  };
  const int available = available_threads();
  const int threads = static_cast<int>(chunks < available ? chunks : available);
  if (threads <= 1) {
    for (std::int64_t i = 0; i < chunks; ++i) run(i);
    return;
  }
  watch_forks();

  // Each thread takes its own even part of the chunks from the front, then what is left of the others' parts. The same
  // memory so meets the same core in loop after loop, and neighbouring chunks share no line between two.
  struct alignas(64) Part {
    std::atomic<std::int64_t> next;
  };
  constexpr int kParts = 32;
  Part parts[kParts];
  const int count_of_parts = threads < kParts ? threads : kParts;
  for (int part = 0; part < count_of_parts; ++part)
    parts[part].next.store(chunks * part / count_of_parts, std::memory_order_relaxed);
  std::atomic<bool> failed{false};
  std::exception_ptr failure;
  const Running caller = running;
#pragma omp parallel num_threads(team_for(threads))
  {
    running = caller;
    try {
      const TeamMember member(omp_get_num_threads());
      for (int turn = 0; turn < count_of_parts; ++turn) {
        const int part = (omp_get_thread_num() + turn) % count_of_parts;
        const std::int64_t end = chunks * (part + 1) / count_of_parts;
        for (;;) {
          const std::int64_t i = parts[part].next.fetch_add(1, std::memory_order_relaxed);
          if (i >= end || failed.load(std::memory_order_relaxed)) break;
          run(i);
        }
      }
    } catch (...) {
      if (!failed.exchange(true)) failure = std::current_exception();
    }
  }
  if (failure) std::rethrow_exception(failure);
}

}  // namespace detail

}  // namespace reel
