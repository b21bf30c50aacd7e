// Counts that threads share, before and after there are any. A program of its own: it begins without threads.

#include "reel/core/shared_count.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <filesystem>
#include <iterator>
#include <thread>
#include <vector>

#include "reel/ops/create.h"

namespace reel {
namespace {

using std::int64_t;

int64_t threads_of_process() {
  return std::distance(std::filesystem::directory_iterator("/proc/self/task"), std::filesystem::directory_iterator());
}

TEST(SharedCount, TellsWhetherThereIsOneThread) {
  const bool only = threads_of_process() == 1;  // sanitizers have one of their own
#if defined(__GLIBC__) && (__GLIBC__ > 2 || __GLIBC_MINOR__ >= 32)
  EXPECT_EQ(detail::is_only_thread(), only);
#else
  EXPECT_TRUE(only || !detail::is_only_thread());
#endif
  bool alone = true;
  std::thread([&] { alone = detail::is_only_thread(); }).join();
  EXPECT_FALSE(alone);
}

TEST(SharedCount, LosesNothingBetweenThreads) {
  constexpr int64_t kAdds = 200'000;
  std::atomic<int64_t> count{5};
  EXPECT_EQ(detail::add_to(count, int64_t{2}), 5);
  EXPECT_EQ(detail::add_to(count, int64_t{-7}, std::memory_order_acq_rel), 7);
  const Tensor x = ones({3});
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&] {
      for (int64_t i = 0; i < kAdds; ++i) {
        detail::add_to(count, int64_t{1});
        const Tensor same = x;
      }
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(count.load(), 4 * kAdds);
  EXPECT_EQ(x.to_vector<float>(), (std::vector<float>{1, 1, 1}));
}

}  // namespace
}  // namespace reel
