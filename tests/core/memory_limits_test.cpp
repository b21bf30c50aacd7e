// What the caching allocator promises about the system's memory: a steady loop faults no pages in, what is cached is bounded,
// and it is given back when asked for.

#include <sys/resource.h>

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <future>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "reel/core/memory.h"
#include "reel/core/parameter.h"
#include "reel/core/scratch.h"
#include "reel/core/tape.h"
#include "reel/core/thread_cache.h"
#include "reel/ops/arithmetic.h"
#include "reel/ops/create.h"
#include "reel/ops/reduce.h"
#include "reel/ops/unary.h"
#include "reel/tests/malloc_count.h"

namespace reel {
namespace {

using detail::class_bytes;
using detail::class_of;
using detail::kDepotBound;
using detail::kSlack;

constexpr std::int64_t kMiB = 1 << 20;

/// Bytes of this process that are in memory, page by page (statm may be behind, by more the more processors there are); -1
/// where the system does not tell, or where malloc belongs to a sanitizer, which keeps what is freed.
std::int64_t resident_bytes() {
  if (!malloc_is_counted()) return -1;
  std::ifstream rollup("/proc/self/smaps_rollup");
  for (std::string line; std::getline(rollup, line);)
    if (line.rfind("Rss:", 0) == 0) return std::stoll(line.substr(4)) * 1024;
  return -1;
}

Tensor block_of(std::int64_t bytes) { return ones({bytes}, {.dtype = u8}); }

std::vector<Tensor> blocks_of(std::int64_t bytes, std::int64_t together) {
  std::vector<Tensor> blocks;
  for (std::int64_t i = 0; i < together / bytes; ++i) blocks.push_back(block_of(bytes));
  return blocks;
}

std::int64_t minor_faults() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return usage.ru_minflt;
}

/// Of 20 rounds, once warm. The system faults too where it moves pages, between the memories of two processors say: the fewest
/// of some tries.
template <class F>
std::int64_t faults_of_20_rounds(F round) {
  std::int64_t fewest = INT64_MAX;
  for (int attempt = 0; attempt < 5 && fewest > 0; ++attempt) {
    for (int i = 0; i < 3; ++i) round();
    const std::int64_t before = minor_faults();
    for (int i = 0; i < 20; ++i) round();
    fewest = std::min(fewest, minor_faults() - before);
  }
  return fewest;
}

// A block that is not reused is 20 faults in huge pages, 10,000 in small ones.
TEST(MemoryLimits, ASteadyLoopOverLargeTensorsFaultsNoPagesIn) {
  if (!malloc_is_counted()) GTEST_SKIP() << "malloc belongs to a sanitizer, which keeps what is freed";
  const Tensor x = full({10'000'000}, -1.5);
  EXPECT_LT(faults_of_20_rounds([&] { const Tensor y = relu(x); }), 10);
  Tensor kept;
  EXPECT_LT(faults_of_20_rounds([&] { kept = relu(x); }), 10);  // two blocks by turns
}

TEST(MemoryLimits, ASteadyStepOverLargeTensorsFaultsNoPagesIn) {
  if (!malloc_is_counted()) GTEST_SKIP() << "malloc belongs to a sanitizer, which keeps what is freed";
  const Tensor x = full({2'500'000}, 0.5);
  Parameter w(full({2'500'000}, 2));
  const auto step = [&] {
    Tape tape;
    tape.backward(sum(relu(x * w)));
    w.clear_gradient();
  };
  EXPECT_LT(faults_of_20_rounds(step), 10);
}

// One thread makes, another drops.
TEST(MemoryLimits, TheDepotKeepsNoMoreThanItsBound) {
  release_cached_memory();
  const std::int64_t base = memory_stats().cached_bytes, resident = resident_bytes();
  std::vector<Tensor> made = blocks_of(kMiB, 2 * kDepotBound + 100 * kMiB);
  const Tensor behind = block_of(50'000);  // malloc's heap does not end with free memory
  std::thread([&] {
    made.clear();
    EXPECT_LE(memory_stats().cached_bytes, base + kSlack + kDepotBound);
    EXPECT_GE(memory_stats().cached_bytes, base + kSlack + kDepotBound - 4 * kMiB);
  }).join();
  EXPECT_LE(memory_stats().cached_bytes, base + kDepotBound);
  EXPECT_GE(memory_stats().cached_bytes, base + kDepotBound - 4 * kMiB);
  release_cached_memory();
  if (resident < 0) GTEST_SKIP() << "what is in memory is not known";
  EXPECT_LE(resident_bytes(), resident + 16 * kMiB);  // what malloc kept of the rest is given back too
}

// Each size takes the room of all others anew: without bounds 2 GiB would be cached in the end. What is in memory is bounded by
// what is cached and the most that was live: malloc may keep so much.
TEST(MemoryLimits, ChurnOfManySizesIsBounded) {
  constexpr std::int64_t kLive = 64 * kMiB;
  constexpr std::int64_t kBound = kLive + kSlack + kDepotBound;
  release_cached_memory();
  const std::int64_t base = memory_stats().cached_bytes, resident = resident_bytes();
  std::int64_t all = 0, most = 0, most_resident = 0;
  std::thread([&] {
    for (int index = class_of(64 << 10); index <= class_of(16 << 20); ++index) {
      {
        const std::vector<Tensor> blocks = blocks_of(static_cast<std::int64_t>(class_bytes(index)), kLive);
        most_resident = std::max(most_resident, resident_bytes() - resident);
      }
      all += kLive;
      most = std::max(most, memory_stats().cached_bytes - base);
    }
  }).join();
  EXPECT_GE(all, 2048 * kMiB);
  EXPECT_LE(most, kBound + kMiB);  // tensors' states
  EXPECT_GE(most, kBound - 32 * kMiB);
  EXPECT_LE(memory_stats().cached_bytes, base + kDepotBound);
  if (resident < 0) GTEST_SKIP() << "what is in memory is not known";
  const std::int64_t rounded = kLive / 5 + kLive / 7;  // of whole huge pages: those of 5 MiB take 6, those of 7 take 8
  EXPECT_LE(most_resident, kLive + kBound + rounded + 64 * kMiB);
}

TEST(MemoryLimits, ReleaseGivesPagesBack) {
  release_cached_memory();
  const std::int64_t resident = resident_bytes();
  std::vector<Tensor> kept;  // among the blocks, and behind them: no heap ends with free memory
  {
    std::vector<Tensor> blocks;
    for (const std::int64_t bytes : {2'000, 50'000, 1'000'000, 10'000'000})
      for (std::int64_t i = 0; i < 75 * kMiB / bytes; ++i) {
        blocks.push_back(block_of(bytes));
        if (i % 500 == 0) kept.push_back(block_of(2'000));
      }
    kept.push_back(block_of(50'000));
  }
  EXPECT_GE(memory_stats().cached_bytes, 290 * kMiB);
  if (resident >= 0) {
    EXPECT_GE(resident_bytes(), resident + 270 * kMiB);
  }
  release_cached_memory();
  EXPECT_LE(memory_stats().cached_bytes, kMiB);  // of other threads
  if (resident < 0) GTEST_SKIP() << "what is in memory is not known";
  EXPECT_LE(resident_bytes(), resident + 16 * kMiB);
}

TEST(MemoryLimits, OtherThreadsGiveBackAtTheirNextFree) {
  release_cached_memory();
  const std::int64_t base = memory_stats().cached_bytes, resident = resident_bytes();
  std::promise<void> filled, asked, freed, seen;
  std::thread other([&] {
    Tensor small = block_of(100);
    blocks_of(kMiB, 150 * kMiB);
    const Tensor behind = block_of(50'000);
    filled.set_value();
    asked.get_future().wait();
    small = Tensor();
    freed.set_value();
    seen.get_future().wait();
  });
  filled.get_future().wait();
  release_cached_memory();
  EXPECT_GE(memory_stats().cached_bytes, base + 150 * kMiB);  // it does nothing
  asked.set_value();
  freed.get_future().wait();
  EXPECT_LE(memory_stats().cached_bytes, base + kMiB);
  if (resident >= 0) {
    EXPECT_LE(resident_bytes(), resident + 50 * kMiB);  // of 150: parts of a heap that is not the main one may stay
  }
  seen.set_value();
  other.join();
  if (resident < 0) GTEST_SKIP() << "what is in memory is not known";
}

// More than the depot takes.
TEST(MemoryLimits, OnceReleasedAThreadCachesAsBefore) {
  if (!malloc_is_counted()) GTEST_SKIP() << "malloc belongs to a sanitizer";
  const auto use_much = [] { empty({kDepotBound + kMiB}, {.dtype = u8}); };
  release_cached_memory();
  use_much();
  const std::int64_t calls = malloc_calls();
  for (int i = 0; i < 10; ++i) use_much();
  EXPECT_EQ(malloc_calls(), calls);
}

TEST(MemoryLimits, ReleaseMayBeAskedForWhileOthersWork) {
  release_cached_memory();
  const std::int64_t base = memory_stats().cached_bytes;
  constexpr int kThreads = 3, kSlots = 16;
  std::atomic<unsigned char*> slots[kSlots] = {};
  std::atomic<int> working{kThreads};
  const auto bytes_of = [](int slot) { return std::size_t{1000} << (slot / 2); };
  std::vector<std::thread> threads;
  for (int thread = 0; thread < kThreads; ++thread)
    threads.emplace_back([&, thread] {
      for (int i = 0; i < 3000; ++i) {
        const int slot = (i * 7 + thread) % kSlots;
        const auto mark = static_cast<unsigned char>(i);
        auto* block = static_cast<unsigned char*>(detail::host_allocate(bytes_of(slot)));
        std::fill_n(block, bytes_of(slot), mark);
        if ((block = slots[slot].exchange(block)) == nullptr) continue;
        EXPECT_EQ(block[0], block[bytes_of(slot) - 1]);
        detail::host_free(block, bytes_of(slot));
      }
      --working;
    });
  while (working.load() > 0) release_cached_memory();
  for (std::thread& thread : threads) thread.join();
  for (int slot = 0; slot < kSlots; ++slot) detail::host_free(slots[slot].load(), bytes_of(slot));
  release_cached_memory();
  EXPECT_EQ(memory_stats().cached_bytes, base);
}

}  // namespace
}  // namespace reel
