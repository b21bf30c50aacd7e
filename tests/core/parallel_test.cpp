#include "reel/core/parallel.h"

#include <gtest/gtest.h>
#include <omp.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <fstream>
#include <stdexcept>
#include <thread>
#include <vector>

#include "reel/ops/arithmetic.h"
#include "reel/ops/create.h"
#include "reel/ops/matmul.h"
#include "reel/ops/reduce.h"
#include "reel/tests/expect.h"

namespace reel {
namespace {

class Parallel : public testing::Test {
 protected:
  void TearDown() override { set_num_threads(before_); }
  int before_ = num_threads();
};

TEST_F(Parallel, EveryIndexIsVisitedOnceInChunksOfTheGivenSize) {
  for (const int threads : {1, 2, 3, 7}) {
    set_num_threads(threads);
    for (const std::int64_t count : {0, 1, 9, 10, 11, 1000}) {
      std::vector<std::atomic<int>> visits(static_cast<std::size_t>(count));
      std::atomic<bool> cut_right{true};
      parallel_for(count, 10, [&](std::int64_t begin, std::int64_t end) {
        if (begin % 10 != 0 || (end - begin != 10 && end != count)) cut_right = false;
        for (std::int64_t i = begin; i < end; ++i) ++visits[static_cast<std::size_t>(i)];
      });
      for (const auto& n : visits) EXPECT_EQ(n, 1);
      EXPECT_TRUE(cut_right);
    }
  }
}

TEST_F(Parallel, ExceptionsComeOut) {
  set_num_threads(3);
  EXPECT_THROW(parallel_for(100, 1,
                            [](std::int64_t begin, std::int64_t) {
                              if (begin == 50) throw std::runtime_error("fifty");
                            }),
               std::runtime_error);
  std::atomic<int> sum{0};
  parallel_for(10, 1, [&](std::int64_t begin, std::int64_t) { sum += static_cast<int>(begin); });
  EXPECT_EQ(sum, 45);
}

TEST_F(Parallel, MoreThreadsThanAnyMachineHasAreRefused) {
  // OpenMP itself would overrun the stack at 100,000.
  EXPECT_THROW_WITH(set_num_threads(100'000), Error, "set_num_threads", "got 100000", "parallel_test.cpp:");
  set_num_threads(1024);
  std::atomic<int> visits{0};
  parallel_for(3000, 1, [&](std::int64_t, std::int64_t) { ++visits; });
  EXPECT_EQ(visits, 3000);
}

// Other cores' caches of the same level are not added up, as sysconf does on some machines.
TEST_F(Parallel, TheLastCacheIsThatOfOneCore) {
  std::ifstream file("/sys/devices/system/cpu/cpu0/cache/index3/size");
  std::int64_t kilobytes = 0;
  file >> kilobytes;
  if (!file) GTEST_SKIP() << "the system does not tell";
  EXPECT_EQ(detail::last_cache_bytes(), 1024 * kilobytes);
}

TEST_F(Parallel, ThreadCountMustBePositive) {
  EXPECT_THROW_WITH(set_num_threads(0), Error, "set_num_threads", "[1, 1024], got 0", "parallel_test.cpp:");
}

Tensor some_work() {
  manual_seed(3);
  const Tensor a = randn({300, 200}), b = randn({200, 100});
  return sum(matmul(a, b) * 0.1);
}

TEST_F(Parallel, WorksInsideAUsersOpenMpRegion) {
  set_num_threads(2);
  const double expected = some_work().item();
  manual_seed(3);
  const Tensor a = randn({300, 200}), b = randn({200, 100});
  double results[3] = {};
#pragma omp parallel for num_threads(3)
  for (int i = 0; i < 3; ++i) results[i] = sum(matmul(a, b) * 0.1).item();
  for (const double result : results) EXPECT_EQ(result, expected);
}

TEST_F(Parallel, AForkedChildWorksAndGivesTheSameBits) {
  set_num_threads(2);
  const double expected = some_work().item();  // the parent's threads are alive now
  int channel[2];
  ASSERT_EQ(pipe(channel), 0);
  const pid_t child = fork();
  if (child == 0) {
    alarm(20);  // a hang must fail, not wait
    const double result = some_work().item();
    const bool sent = write(channel[1], &result, sizeof result) == sizeof result;
    _exit(sent ? 0 : 1);
  }
  double result = 0;
  close(channel[1]);
  EXPECT_EQ(read(channel[0], &result, sizeof result), static_cast<ssize_t>(sizeof result));
  close(channel[0]);
  int status = 0;
  waitpid(child, &status, 0);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
  EXPECT_EQ(result, expected);
}

TEST_F(Parallel, ManyThreadsComputeAtOnce) {
  set_num_threads(2);
  manual_seed(3);
  const Tensor a = randn({300, 200}), b = randn({200, 100});
  const double expected = sum(matmul(a, b)).item();
  std::vector<std::thread> threads;
  std::atomic<int> wrong{0};
  for (int t = 0; t < 8; ++t)
    threads.emplace_back([&] {
      for (int i = 0; i < 10; ++i)
        if (sum(matmul(a, b)).item() != expected) ++wrong;
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
}

}  // namespace
}  // namespace reel
