#include "reel/core/memory.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cinttypes>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <future>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "reel/core/checkpoint.h"
#include "reel/core/error.h"
#include "reel/core/parallel.h"
#include "reel/core/parameter.h"
#include "reel/core/pullback.h"
#include "reel/core/scratch.h"
#include "reel/core/tape.h"
#include "reel/core/thread_cache.h"
#include "reel/ops/arithmetic.h"
#include "reel/ops/create.h"
#include "reel/ops/matmul.h"
#include "reel/ops/reduce.h"
#include "reel/ops/softmax.h"
#include "reel/ops/unary.h"
#include "reel/tests/expect.h"
#include "reel/tests/little_memory.h"
#include "reel/tests/malloc_count.h"

namespace reel {
namespace {

TEST(Memory, CountersFollowTensors) {
  const MemoryStats before = memory_stats();
  {
    const Tensor x = empty({1000});
    const MemoryStats during = memory_stats();
    EXPECT_EQ(during.live_tensors, before.live_tensors + 1);
    EXPECT_GE(during.live_bytes, before.live_bytes + 4000);
  }
  const MemoryStats after = memory_stats();
  EXPECT_EQ(after.live_tensors, before.live_tensors);
  EXPECT_EQ(after.live_bytes, before.live_bytes);
  EXPECT_GE(after.cached_bytes, 4000);
}

TEST(Memory, PeakIsTheLargestSinceItWasReset) {
  reset_peak_memory();
  const std::int64_t base = memory_stats().live_bytes;
  { const Tensor x = empty({1 << 20}); }
  EXPECT_GE(memory_stats().peak_bytes, base + (4 << 20));
  reset_peak_memory();
  EXPECT_LT(memory_stats().peak_bytes, base + (4 << 20));
}

TEST(Memory, PeakOfAThreadOutlivesIt) {
  reset_peak_memory();
  const std::int64_t base = memory_stats().live_bytes;
  for (int i = 0; i < 10; ++i) std::thread([] { const Tensor x = empty({1 << 20}); }).join();
  EXPECT_GE(memory_stats().peak_bytes, base + (4 << 20));
  EXPECT_LT(memory_stats().peak_bytes, base + (12 << 20));  // one after the other
  reset_peak_memory();
  EXPECT_LT(memory_stats().peak_bytes, base + (4 << 20));
}

// A thread makes tensors, another drops them.
TEST(Memory, PeakIsOfBlocksThatLiveTogether) {
  constexpr int kRounds = 500, kBytes = 1 << 20;
  reset_peak_memory();
  const std::int64_t base = memory_stats().live_bytes;
  std::atomic<Tensor*> handed{nullptr};
  std::thread dropping([&] {
    for (int i = 0; i < kRounds; ++i) {
      while (handed.load() == nullptr) std::this_thread::yield();
      delete handed.exchange(nullptr);
      if (i == kRounds / 2) reset_peak_memory();
    }
    // It caches like any other thread, though it has freed more than it made.
    const std::int64_t cached = memory_stats().cached_bytes;
    std::vector<Tensor> own;
    for (int i = 0; i < 8; ++i) own.push_back(empty({kBytes}, {.dtype = u8}));
    own.clear();
    EXPECT_GE(memory_stats().cached_bytes, cached);
    const std::int64_t calls = malloc_calls();
    { const Tensor again = empty({kBytes}, {.dtype = u8}); }
    EXPECT_EQ(malloc_calls(), calls);
  });
  for (int i = 0; i < kRounds; ++i) {
    while (handed.load() != nullptr) std::this_thread::yield();
    handed = new Tensor(empty({kBytes}, {.dtype = u8}));
  }
  dropping.join();
  const MemoryStats after = memory_stats();
  EXPECT_EQ(after.live_bytes, base);
  EXPECT_GE(after.peak_bytes, base + kBytes);
  EXPECT_LT(after.peak_bytes, base + (100 << 20));  // a thread's slack, not what all rounds made
}

// Tensors are made and dropped by this thread and by others that end, in any order.
TEST(Memory, PeakIsNoLessThanWhatLived) {
  std::mt19937_64 random(20);
  for (int round = 0; round < 100; ++round) {
    reset_peak_memory();
    std::vector<Tensor> alive;
    std::int64_t most = memory_stats().live_bytes, told = 0;
    for (int step = 0; step < 20; ++step) {
      const auto act = [&] {
        if (alive.empty() || random() % 2 == 0) {
          alive.push_back(empty({static_cast<std::int64_t>(random() % 8 + 1) << 20}, {.dtype = u8}));
        } else {
          std::swap(alive[random() % alive.size()], alive.back());
          alive.pop_back();
        }
      };
      if (random() % 2 == 0) act();
      else std::thread(act).join();
      const MemoryStats stats = memory_stats();
      most = std::max(most, stats.live_bytes);
      ASSERT_GE(stats.peak_bytes, most) << "round " << round << ", step " << step;
      ASSERT_GE(stats.peak_bytes, told) << "round " << round << ", step " << step;
      told = stats.peak_bytes;
    }
  }
}

TEST(Memory, WhatOthersMadeIsCachedWhereItIsDropped) {
  constexpr std::int64_t kBytes = 8 << 20;
  Tensor x;
  std::thread([&] { x = empty({kBytes}, {.dtype = u8}); }).join();
  const MemoryStats before = memory_stats();
  x = Tensor();
  const MemoryStats after = memory_stats();
  EXPECT_EQ(after.live_bytes + after.cached_bytes, before.live_bytes + before.cached_bytes);
  EXPECT_GE(after.cached_bytes, before.cached_bytes + kBytes);
}

// The first allocation fails, or the second, and so on.
TEST(Memory, WhereverThereIsNoneLeftNothingStaysBehind) {
  if (!malloc_is_counted()) GTEST_SKIP() << "malloc belongs to a sanitizer";
  std::vector<Parameter> parameters;
  for (int i = 0; i < 4; ++i)
    parameters.emplace_back(full({5, 5}, 0.1 * i), std::string(1, static_cast<char>('a' + i)));
  flatten_parameters(parameters);
  const Tensor w = full({5, 5}, 0.3);
  const auto layer = [](const Tensor& x) { return tanh(matmul(x, x)); };
  const std::function<void()> steps[] = {
      [&] {
        Tape tape;
        Tensor y = w;
        for (const Parameter& parameter : parameters) y = tanh(matmul(y, parameter));
        tape.backward(sum(y));
      },
      [&] {
        Tape outer;
        outer.watch(w);
        const Tensor first = [&] {
          Tape inner;
          return inner.gradient(sum(layer(w)), {w})[0];
        }();
        outer.gradient(sum(first * first), {w});
      },
      [&] {
        const auto [y, backprop] = pullback(layer, w);
        backprop(y);
      },
      [&] {
        Tape tape;
        tape.watch(w);
        tape.gradient(sum(checkpoint(layer, w)), {w});
      },
      [&] {
        flatten_parameters({parameters[0], parameters[2]});
      },
  };
  const auto gradients = [&] {
    std::vector<std::vector<float>> all;
    for (const Parameter& parameter : parameters) all.push_back(parameter.gradient().to_vector<float>());
    return all;
  };
  for (const auto& step : steps) {
    for (std::int64_t blocks = 0;; ++blocks) {
      ASSERT_LT(blocks, 1000);
      for (int i = 0; i < 2; ++i) steps[0]();  // there is room for a sweep's gradients beside those that are there
      const auto known = gradients();
      release_cached_memory();
      const MemoryStats before = memory_stats();
      bool failed = false;
      limit_aligned_blocks(blocks);
      try {
        step();
      } catch (const OutOfMemory&) {
        failed = true;
      }
      limit_aligned_blocks(INT64_MAX);
      if (!failed) break;
      const MemoryStats after = memory_stats();
      // The room for the next sweep's gradients may be gone.
      EXPECT_LE(after.live_tensors, before.live_tensors) << &step - steps << ", " << blocks;
      EXPECT_EQ(after.live_nodes, before.live_nodes) << &step - steps << ", " << blocks;
      EXPECT_LE(after.live_bytes, before.live_bytes) << &step - steps << ", " << blocks;
      EXPECT_EQ(gradients(), known) << &step - steps << ", " << blocks;
    }
  }
}

// Destructors must not throw.
TEST(Memory, WhereATapeFindsNoneItKeepsWhatItHas) {
  if (!malloc_is_counted()) GTEST_SKIP() << "malloc belongs to a sanitizer";
  const std::int64_t before = memory_stats().live_tensors;
  int failures = 0;
  for (bool failed = true; failed; failures += failed) {
    failed = false;
    Parameter w(tensor({1, 2}));
    Tape tape;
    Tensor y = w * 1.0;
    fail_malloc_after(1);
    try {
      for (int i = 0; i < 30'000; ++i) y = y * w / w;
    } catch (const OutOfMemory& error) {
      failed = true;
      EXPECT_NE(std::string(error.what()).find("no memory on the tape for recorded ops"), std::string::npos);
    }
    fail_no_malloc();
    tape.backward(sum(y));
    EXPECT_EQ(w.gradient().to_vector<float>().size(), 2u);
    ASSERT_LT(failures, 200);
  }
  EXPECT_GT(failures, 20);
  EXPECT_EQ(memory_stats().live_tensors, before);
}

TEST(Memory, DroppingCallbacksTakesNone) {
  if (!malloc_is_counted()) GTEST_SKIP() << "malloc belongs to a sanitizer";
  const auto layer = [](const Tensor& x) { return x * x; };
  const Tensor x = ones({2});
  std::vector<decltype(pullback(layer, x))> calls;
  for (int i = 0; i < 100; ++i) calls.push_back(pullback(layer, x));
  const std::int64_t before = malloc_calls();
  calls.clear();
  EXPECT_EQ(malloc_calls(), before);
}

// A thread that is still there made them.
TEST(Memory, PeakForgetsWhatWasDroppedBeforeItWasReset) {
  std::promise<Tensor> made;
  std::promise<void> told;
  std::thread maker([&] {
    made.set_value(empty({64 << 20}, {.dtype = u8}));
    told.get_future().wait();
  });
  Tensor x = made.get_future().get();
  const std::int64_t with_it = memory_stats().live_bytes;
  x = Tensor();
  reset_peak_memory();
  EXPECT_LT(memory_stats().peak_bytes, with_it);
  told.set_value();
  maker.join();
}

TEST(Memory, FreedBlocksAreReused) {
  const void* first = nullptr;
  {
    const Tensor x = empty({100'000});
    first = x.array().data;
  }
  const Tensor y = empty({100'000});
  EXPECT_EQ(y.array().data, first);
}

TEST(Memory, ReleaseGivesTheCacheBack) {
  { const Tensor x = empty({1 << 20}); }
  EXPECT_GT(memory_stats().cached_bytes, 0);
  release_cached_memory();
  EXPECT_EQ(memory_stats().cached_bytes, 0);
}

TEST(Memory, BlocksFreedElsewhereFindTheirWayBack) {
  // One thread makes, another drops: if the first took nothing of it again, the depot would fill up.
  release_cached_memory();
  const std::int64_t before = memory_stats().cached_bytes;
  for (int round = 0; round < 600; ++round) {
    Tensor x = empty({1 << 18});  // 1 MiB
    std::thread([moved = std::move(x)]() mutable { moved = Tensor(); }).join();
  }
  EXPECT_LT(memory_stats().cached_bytes, before + (4 << 20));
}

TEST(Memory, EverySizeIsAlignedAndWritable) {
  for (std::size_t bytes : {0, 1, 63, 64, 65, 1023, 1024, 1025, 1279, 1280, 1281, 4096, 100'000, 5'000'000}) {
    auto* block = static_cast<unsigned char*>(detail::host_allocate(bytes));
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(block) % 64, 0u);
    for (std::size_t i = 0; i < bytes; ++i) block[i] = static_cast<unsigned char>(i);
    detail::host_free(block, bytes);
  }
}

TEST(Memory, OutOfMemoryTellsWhatWasAskedFor) {
  EXPECT_THROW_WITH(detail::host_allocate(std::size_t{1} << 60), OutOfMemory, "1152921504606846976");
  EXPECT_THROW_WITH(empty({std::int64_t{1} << 42}), OutOfMemory, "17592186044416", "live", "cached");
}

TEST(Memory, WhereThereIsNoneALoopGivesTheCallersCacheBack) {
  constexpr std::int64_t kCached = 32 << 20;
  { const Tensor large = empty({kCached}, {.dtype = u8}); }
  ASSERT_GE(memory_stats().cached_bytes, kCached);
  const std::int64_t before = memory_stats().cached_bytes;
  {
    const detail::TeamMember member(2);  // as within a parallel loop
    detail::limit_blocks(std::size_t{1} << 20);
    EXPECT_THROW(detail::host_allocate(std::size_t{kCached} * 2), OutOfMemory);
    detail::limit_blocks(kLargestBlock);
  }
  EXPECT_LE(memory_stats().cached_bytes, before - kCached);
}

#if defined(__linux__)
/// The flags that the system keeps of the mapping in which `memory` lies: "rd wr mr mw me ac hg ".
std::string flags_of_mapping(const void* memory) {
  std::ifstream maps("/proc/self/smaps");
  const auto address = reinterpret_cast<std::uintptr_t>(memory);
  bool here = false;
  for (std::string line; std::getline(maps, line);) {
    std::uintptr_t begin = 0, end = 0;
    if (std::sscanf(line.c_str(), "%" SCNxPTR "-%" SCNxPTR " ", &begin, &end) == 2)
      here = begin <= address && address < end;
    if (here && line.rfind("VmFlags:", 0) == 0) return line.substr(8) + " ";
  }
  return "";
}

TEST(Memory, LargeBlocksAskForHugePages) {
  if (!std::ifstream("/sys/kernel/mm/transparent_hugepage/enabled")) GTEST_SKIP() << "this system has no huge pages";
  const Tensor large = zeros({std::int64_t{12} << 20}, {.dtype = u8});
  const std::string flags = flags_of_mapping(large.array().data);
  if (flags.empty()) GTEST_SKIP() << "this system tells no flags of mappings";
  EXPECT_NE(flags.find(" hg "), std::string::npos) << flags;
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(large.array().data) % (std::uintptr_t{2} << 20), 0u);
}
#endif

TEST(Memory, ASteadyTrainingStepCallsMallocZeroTimes) {
  if (!malloc_is_counted()) GTEST_SKIP() << "malloc belongs to a sanitizer";
  manual_seed(0);
  Parameter w1(randn({64, 64}) * 0.1), b1(zeros({64})), w2(randn({10, 64}) * 0.1), b2(zeros({10}));
  const std::vector<Parameter> parameters{w1, b1, w2, b2};
  flatten_parameters(parameters);
  const Tensor x = randn({32, 64}), target = randint(0, 10, {32});
  const auto step = [&] {
    Tape tape;
    const Tensor h = tanh(linear(x, w1, b1)) + relu(x);
    tape.backward(cross_entropy(linear(h * 0.5, w2, b2), target));
    for (const Parameter& p : parameters) {
      Parameter handle = p;
      handle.clear_gradient();
    }
  };
  for (int i = 0; i < 10; ++i) step();
  const std::int64_t before = malloc_calls();
  for (int i = 0; i < 5; ++i) step();
  EXPECT_EQ(malloc_calls() - before, 0);
}

void work_in(std::int64_t bytes) {
  const Scratch a(static_cast<std::size_t>(bytes)), b(static_cast<std::size_t>(bytes));
  *a.as<char>() = *b.as<char>() = 1;
}

/// f(part) in as many threads: each part waits for all others.
template <class F>
void in_all(int threads, F f) {
  std::atomic<int> arrived{0};
  parallel_for(threads, 1, [&](std::int64_t part, std::int64_t) {
    ++arrived;
    while (arrived.load() < threads) std::this_thread::yield();
    f(part);
  });
}

// Whoever gets a part of a loop finds memory for it, though another thread had the part before.
TEST(Memory, AnyMemberOfATeamWorksInMemoryThatOneHasWarmed) {
  if (!malloc_is_counted()) GTEST_SKIP() << "malloc belongs to a sanitizer";
  constexpr int kThreads = 16;
  const int before = num_threads();
  set_num_threads(kThreads);
  in_all(kThreads, [](std::int64_t part) {
    if (part == 3) work_in(50'000);
  });
  const std::int64_t calls = malloc_calls();
  in_all(kThreads, [](std::int64_t) { work_in(50'000); });
  EXPECT_EQ(malloc_calls() - calls, 0);
  in_all(kThreads, [](std::int64_t) { work_in(100'000); });
  EXPECT_GT(malloc_calls(), calls);  // another class
  set_num_threads(before);
}

// The members from before have memory and ask for none: the new ones find some all the same, whenever they first have work.
TEST(Memory, NewMembersOfALargerTeamWorkInMemoryThatIsThereWhenItStarts) {
  if (!malloc_is_counted()) GTEST_SKIP() << "malloc belongs to a sanitizer";
  const int before = num_threads();
  set_num_threads(2);
  in_all(2, [](std::int64_t) { work_in(300'000); });
  set_num_threads(5);
  in_all(5, [](std::int64_t) {});
  const std::int64_t calls = malloc_calls();
  in_all(5, [](std::int64_t) { work_in(300'000); });
  EXPECT_EQ(malloc_calls() - calls, 0);
  set_num_threads(before);
}

TEST(Memory, MembersOfATeamGiveBackWhenTheNextLoopStarts) {
  const int before = num_threads();
  set_num_threads(3);
  in_all(3, [](std::int64_t) {});
  release_cached_memory();
  in_all(3, [](std::int64_t) {});
  const std::int64_t cached = memory_stats().cached_bytes;
  in_all(3, [](std::int64_t) { work_in(10 << 20); });
  EXPECT_GE(memory_stats().cached_bytes, 3 * 2 * (10 << 20));
  release_cached_memory();
  EXPECT_GE(memory_stats().cached_bytes, 2 * 2 * (10 << 20));  // the other members'
  in_all(3, [](std::int64_t) {});
  EXPECT_LE(memory_stats().cached_bytes, cached);
  set_num_threads(before);
}

// What a loop's parts leave behind is no tensor's to take, nor does it pile up while tensors of that size are kept.
TEST(Memory, TensorsThatAreKeptTakeNothingFromTeams) {
  const int before = num_threads();
  set_num_threads(4);
  std::vector<Tensor> kept;
  const auto step = [&] {
    parallel_for(8, 1, [](std::int64_t, std::int64_t) { const Scratch room(70'000); });
    kept.push_back(empty({70'000}, {.dtype = u8}));
  };
  step();
  const std::int64_t cached = memory_stats().cached_bytes;
  for (int i = 0; i < 100; ++i) step();
  EXPECT_LE(memory_stats().cached_bytes, cached + 100'000);
  set_num_threads(before);
}

Tensor kept_until_exit;  // static tensors end after the allocator's thread-local part

TEST(Memory, StaticTensorsMayOutliveEverything) {
  kept_until_exit = ones({1000});
  EXPECT_EQ(sum(kept_until_exit).item(), 1000);
}

}  // namespace
}  // namespace reel
