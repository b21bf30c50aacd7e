// Cached blocks that nobody takes any more make room for those of what runs now.

#include <gtest/gtest.h>

#include <cstdint>
#include <thread>
#include <utility>
#include <vector>

#include "reel/core/memory.h"
#include "reel/core/random.h"
#include "reel/core/thread_cache.h"
#include "reel/ops/create.h"
#include "reel/tests/malloc_count.h"

namespace reel {
namespace {

using detail::class_bytes;
using detail::class_of;

Tensor block(std::int64_t bytes) { return empty({bytes}, {.dtype = u8}); }
constexpr std::int64_t kMiB = 1 << 20;

// Blocks of many sizes fill a thread's cache and the depot. Another loop, of other sizes, asks the system at first.
TEST(StaleBlocks, MakeRoomForALoopOfOtherSizes) {
  if (!malloc_is_counted()) GTEST_SKIP() << "a sanitizer has a malloc of its own";
  release_cached_memory();
  std::thread([] {
    for (int index = class_of(16 * kMiB); index <= class_of(64 * kMiB); ++index)
      block(static_cast<std::int64_t>(class_bytes(index)));
    for (int index = class_of(1 * kMiB); index <= class_of(12 * kMiB); ++index) {
      std::vector<Tensor> blocks;
      for (int i = 0; i < 8; ++i) blocks.push_back(block(static_cast<std::int64_t>(class_bytes(index))));
    }
    const auto step = [] {
      const Tensor a = block(13 * kMiB), b = block(13 * kMiB);
      for (const std::int64_t size : {66, 90, 100}) block(size * kMiB);
    };
    const std::int64_t before = malloc_calls();
    step();
    EXPECT_GT(malloc_calls(), before);
    for (int i = 0; i < 200; ++i) step();
    const std::int64_t steady = malloc_calls();
    for (int i = 0; i < 200; ++i) step();
    EXPECT_EQ(malloc_calls(), steady);
  }).join();
}

// A step that takes more than the bound, each size once: what finds no room is what the system is asked for in the next step, and
// no more, for no size is stale.
TEST(StaleBlocks, AreNotThoseOfALoopBeyondTheBound) {
  if (!malloc_is_counted()) GTEST_SKIP() << "a sanitizer has a malloc of its own";
  release_cached_memory();
  std::thread([] {
    constexpr int kFirst = class_of(8 * kMiB), kLast = class_of(112 * kMiB), kSteps = 300;
    std::int64_t all = 0;
    const auto largest = static_cast<std::int64_t>(class_bytes(kLast));
    const auto step = [&] {
      for (int index = kFirst; index <= kLast; ++index) block(static_cast<std::int64_t>(class_bytes(index)));
    };
    for (int index = kFirst; index <= kLast; ++index) all += static_cast<std::int64_t>(class_bytes(index));
    const std::int64_t beyond = all - (largest + detail::kSlack + detail::kDepotBound);
    ASSERT_GT(beyond, 0);
    step();
    const std::int64_t before = malloc_calls();
    for (int i = 0; i < kSteps; ++i) step();
    const double blocks = static_cast<double>(malloc_calls() - before) / kSteps;
    EXPECT_GE(blocks, 1);
    EXPECT_LE(blocks, 4);  // of the largest, which come last; 9 if sizes in use could be stale
  }).join();
}

// Under a sanitizer too: threads whose sizes change from phase to phase fill their caches and the depot, and write to what they get.
TEST(StaleBlocks, AreCountedAndWrittenToOnce) {
  release_cached_memory();
  const MemoryStats before = memory_stats();
  const auto churn = [](std::uint64_t seed) {
    Generator generator(seed);
    std::vector<Tensor> kept(6);
    for (int phase = 0; phase < 4; ++phase) {
      const std::int64_t base = (phase % 2 + 1) * 5 * kMiB + generator.below(3) * kMiB;
      for (int i = 0; i < 150; ++i) {
        Tensor x = full({base + generator.below(4) * base / 4}, i % 100, {.dtype = u8});
        EXPECT_EQ(x[0].item<int>(), i % 100);
        if (i % 5 == 0) kept[static_cast<std::size_t>(generator.below(6))] = std::move(x);
      }
    }
  };
  std::thread other(churn, 1);
  churn(2);
  other.join();
  EXPECT_EQ(memory_stats().live_bytes, before.live_bytes);
  EXPECT_GT(memory_stats().cached_bytes, before.cached_bytes);
  release_cached_memory();
  EXPECT_LE(memory_stats().cached_bytes, before.cached_bytes + kMiB);
}

}  // namespace
}  // namespace reel
