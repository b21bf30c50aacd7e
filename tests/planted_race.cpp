// A race for the thread sanitizer to find: two chunks of a parallel_for write to one number. Built by the preset `tsan` only.

#include <atomic>
#include <cstdint>
#include <cstdio>
#include <thread>

#include "reel/core/parallel.h"

int main() {
  reel::set_num_threads(2);
  std::atomic<int> begun{0};
  std::int64_t chunks = 0;
  reel::parallel_for(2, 1, [&](std::int64_t, std::int64_t) {
    // Until both have begun, so that two threads take part. Relaxed: it orders nothing else.
    begun.fetch_add(1, std::memory_order_relaxed);
    while (begun.load(std::memory_order_relaxed) < 2) std::this_thread::yield();
    ++chunks;
  });
  std::printf("%lld chunks\n", static_cast<long long>(chunks));
}
