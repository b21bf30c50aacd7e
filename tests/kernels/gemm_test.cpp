// The CPU's matrix product against a plain chain of multiply-adds: the contract of Gemm is that every element has exactly
// these bits, whatever the sizes, layouts, neighbours and threads, so nearly all comparisons here are exact.

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <memory>
#include <new>
#include <random>
#include <string>
#include <vector>

#include "reel/core/parallel.h"
#include "reel/tests/kernels/gemm_problems.h"

namespace reel {
namespace {

using namespace gemm_testing;

template <class T>
class GemmTest : public testing::Test {
 protected:
  std::mt19937_64 generator{20240229};

  T uniform() { return static_cast<T>(static_cast<std::int64_t>(generator())) * static_cast<T>(0x1p-63); }
  std::int64_t upto(std::int64_t limit) { return std::uniform_int_distribution<std::int64_t>(0, limit)(generator); }

  Problem<T> random_problem(const Case& shape) {
    return Problem<T>(shape, [&] { return uniform(); });
  }
  void expect_contract(const Case& shape) {
    const auto problem = random_problem(shape);
    expect_same(problem.compute(), problem.expected(), shape.str());
  }
  void expect_contract_all_layouts(Case shape) {
    for (const bool trans_a : {false, true})
      for (const bool trans_b : {false, true}) {
        shape.trans_a = trans_a;
        shape.trans_b = trans_b;
        expect_contract(shape);
        if (this->HasFatalFailure()) return;
      }
  }
};
using Floats = testing::Types<float, double>;
TYPED_TEST_SUITE(GemmTest, Floats);

TYPED_TEST(GemmTest, EveryElementIsOneChainForRandomSmallCases) {
  for (int i = 0; i < 1500; ++i) {
    Case s{.m = this->upto(70), .n = this->upto(70), .k = this->upto(70)};
    s.trans_a = this->upto(1), s.trans_b = this->upto(1);
    s.pad_a = this->upto(3), s.pad_b = this->upto(3), s.pad_c = this->upto(3);
    s.bias = this->upto(1), s.accumulate = this->upto(1);
    s.relu = !s.accumulate && this->upto(1);
    s.batch = this->upto(3) == 0 ? this->upto(4) : 1;
    s.share_a = this->upto(1), s.share_b = this->upto(1);
    this->expect_contract(s);
    if (this->HasFatalFailure()) return;
  }
}

TYPED_TEST(GemmTest, EveryElementIsOneChainForEverySmallHeightAndWidth) {
  for (std::int64_t size = 0; size <= 70; ++size) {
    for (const std::int64_t width : {3, 4, 5, 7, 8, 9})
      this->expect_contract_all_layouts({.m = size, .n = width, .k = 5});
    this->expect_contract_all_layouts({.m = 3, .n = size, .k = 6});
    this->expect_contract_all_layouts({.m = 17, .n = 34, .k = size, .bias = true});
    if (this->HasFatalFailure()) return;
  }
}

TYPED_TEST(GemmTest, EveryElementIsOneChainForLargeSizes) {
  const Case cases[] = {
      {.m = 127, .n = 128, .k = 129},
      {.m = 255, .n = 257, .k = 128, .bias = true, .relu = true},
      {.m = 257, .n = 255, .k = 127, .pad_a = 3, .pad_b = 1, .pad_c = 2, .accumulate = true},
      {.m = 512, .n = 65, .k = 512},
      {.m = 129, .n = 512, .k = 257, .bias = true},
      {.m = 1025, .n = 33, .k = 257},
      {.m = 33, .n = 1025, .k = 257, .relu = true},
      {.m = 130, .n = 140, .k = 1025, .bias = true, .accumulate = true},
      {.m = 1300, .n = 1100, .k = 5, .accumulate = true},
      {.m = 60, .n = 2300, .k = 90, .bias = true},  // blocks of b are the wider, the shorter k is
      {.m = 128, .n = 1060, .k = 450},
      {.m = 80, .n = 170, .k = 1030, .pad_b = 1, .bias = true, .accumulate = true},
      {.m = 1030, .n = 700, .k = 260, .relu = true},
      {.m = 70, .n = 75, .k = 800, .pad_b = 600, .relu = true},  // b's rows lie far: packed before
      {.m = 45, .n = 1100, .k = 1022, .pad_a = 2},               // rows of a 4 KiB apart, or 8
      {.m = 725,
       .n = 110,
       .k = 1100,
       .bias = true,
       .accumulate = true},  // rows that share the packed panels, of b's parts
  };
  for (const Case& shape : cases) {
    this->expect_contract_all_layouts(shape);
    if (this->HasFatalFailure()) return;
  }
}

TYPED_TEST(GemmTest, EveryElementIsOneChainWhereBothOperandsArePacked) {
  if (std::strcmp(cpu::isa_name(), "v4") != 0 || detail::level2_cache_bytes() < 2048 * 1024)
    GTEST_SKIP() << "both are packed with AVX-512 and a level 2 cache of 2 MiB";
  const Case cases[] = {
      {.m = 660, .n = 650, .k = 631, .pad_a = 1, .pad_c = 3, .bias = true, .relu = true},
      {.m = 150, .n = 1370, .k = 1320, .accumulate = true},
      // Low tiles and several blocks of columns; turned round.
      {.m = 141, .n = 2340, .k = 820, .pad_b = 1, .bias = true, .accumulate = true},
      {.m = 230, .n = 260, .k = 4600, .bias = true, .accumulate = true},
  };
  const int threads_before = num_threads();
  for (const int threads : {1, 2, 7}) {
    set_num_threads(threads);
    for (const Case& shape : cases) this->expect_contract_all_layouts(shape);
  }
  set_num_threads(threads_before);
}

TYPED_TEST(GemmTest, MatrixTimesVectorAndVectorTimesMatrixAreChains) {
  for (const std::int64_t size : {1, 2, 17, 31, 32, 33, 255, 257, 1025})
    for (const std::int64_t k : {1, 16, 23, 33, 257, 1025}) {
      for (const std::int64_t few : {1, 2, 3, 4}) {
        this->expect_contract_all_layouts({.m = few, .n = size, .k = k, .bias = true});
        this->expect_contract_all_layouts({.m = few, .n = size, .k = k, .pad_b = 3, .accumulate = true});
        this->expect_contract_all_layouts({.m = size, .n = few, .k = k, .relu = true});
        this->expect_contract_all_layouts({.m = size, .n = few, .k = k, .pad_c = 1, .accumulate = true});
      }
      if (this->HasFatalFailure()) return;
    }
  for (const std::int64_t size : {63, 64, 81, 127, 257})
    for (const std::int64_t k : {1, 16, 23, 257})
      for (const std::int64_t some : {5, 6, 7, 8}) {
        this->expect_contract_all_layouts({.m = some, .n = size, .k = k, .bias = true});
        this->expect_contract_all_layouts({.m = some, .n = size, .k = k, .pad_b = 3, .accumulate = true});
        this->expect_contract_all_layouts({.m = size, .n = some, .k = k, .pad_c = 1, .accumulate = true});
        if (this->HasFatalFailure()) return;
      }
  this->expect_contract_all_layouts({.m = 1, .n = 1, .k = 10000});
}

TYPED_TEST(GemmTest, BatchesOfEverySizeAreChains) {
  for (const bool share_a : {false, true})
    for (const bool share_b : {false, true}) {
      this->expect_contract_all_layouts(
          {.m = 7, .n = 9, .k = 33, .batch = 100, .share_a = share_a, .share_b = share_b});
      this->expect_contract_all_layouts(
          {.m = 64, .n = 70, .k = 65, .batch = 5, .share_a = share_a, .share_b = share_b, .bias = true, .relu = true});
      this->expect_contract_all_layouts(
          {.m = 130, .n = 66, .k = 129, .batch = 3, .share_a = share_a, .share_b = share_b, .accumulate = true});
      if (this->HasFatalFailure()) return;
    }
}

TYPED_TEST(GemmTest, BatchWhoseRowsGoOnEvenlyIsAChain) {
  using T = TypeParam;
  auto problem = this->random_problem({.m = 6, .n = 20, .k = 9, .batch = 30, .share_b = true, .bias = true});
  // Without the gaps between the matrices of c, all of them form one tall matrix.
  problem.gemm.stride_c = problem.gemm.m * problem.gemm.ldc;

  expect_same<T>(problem.compute(), problem.expected(), "evenly spaced batch");
}

TYPED_TEST(GemmTest, RowsAloneHaveTheBitsThatTheyHaveInABatch) {
  using T = TypeParam;
  for (const bool trans_b : {false, true}) {
    const Case shape{.m = 300, .n = 200, .k = 300, .trans_b = trans_b, .bias = true};
    const auto whole = this->random_problem(shape);
    const std::vector<T> together = whole.compute();
    for (const std::int64_t row : {0, 1, 13, 14, 127, 299}) {
      auto alone = whole;
      alone.gemm.m = 1;
      alone.a.erase(alone.a.begin(), alone.a.begin() + row * alone.gemm.lda);
      const std::vector<T> single = alone.compute();
      for (std::int64_t j = 0; j < shape.n; ++j)
        ASSERT_EQ(single[whole.index(0, 0, j)], together[whole.index(0, row, j)]) << "row " << row << " column " << j;
    }
  }
}

TYPED_TEST(GemmTest, AnyNumberOfThreadsGivesTheSameBits) {
  using T = TypeParam;
  const int threads_before = num_threads();
  const Case cases[] = {
      {.m = 300, .n = 280, .k = 500, .bias = true, .relu = true},
      {.m = 32, .n = 512, .k = 784, .trans_b = true},
      {.m = 512, .n = 784, .k = 32, .trans_a = true},
      {.m = 1, .n = 2000, .k = 900},
      {.m = 7, .n = 2000, .k = 900, .trans_b = true},
      {.m = 3000, .n = 1, .k = 900},
      {.m = 20, .n = 30, .k = 40, .batch = 64},
      {.m = 5000, .n = 3, .k = 90, .bias = true},
      {.m = 520, .n = 530, .k = 513},  // the more threads, the more pieces
      {.m = 1030, .n = 700, .k = 260, .trans_b = true},
      {.m = 40, .n = 3000, .k = 1300},
      {.m = 370, .n = 2070, .k = 520, .relu = true},  // more panels than are kept
      {.m = 700, .n = 690, .k = 600, .trans_b = true},
  };
  for (const Case& shape : cases) {
    const auto problem = this->random_problem(shape);
    set_num_threads(1);
    const std::vector<T> want = problem.compute();
    for (const int threads : {2, 3, 5, 16, 1024}) {
      set_num_threads(threads);
      expect_same(problem.compute(), want, shape.str() + " on " + std::to_string(threads) + " threads");
    }
  }
  set_num_threads(threads_before);
}

TYPED_TEST(GemmTest, IntegersAreExact) {
  using T = TypeParam;
  Problem<T> problem({.m = 150, .n = 150, .k = 400}, [&] { return static_cast<T>(this->upto(16) - 8); });
  const std::vector<T> got = problem.compute();
  problem.each_element([&](std::int64_t i, std::int64_t r, std::int64_t j) {
    std::int64_t sum = 0;
    for (std::int64_t k = 0; k < 400; ++k)
      sum += static_cast<std::int64_t>(problem.at_a(i, r, k)) * static_cast<std::int64_t>(problem.at_b(i, k, j));
    EXPECT_EQ(got[problem.index(i, r, j)], static_cast<T>(sum));
  });
}

TYPED_TEST(GemmTest, ErrorIsWithinTheBoundOfARecursiveSum) {
  using T = TypeParam;
  for (const std::int64_t k : {1, 31, 257, 1025}) {
    const auto problem = this->random_problem({.m = 33, .n = 65, .k = k, .trans_b = true});
    const std::vector<T> got = problem.compute();
    problem.each_element([&](std::int64_t i, std::int64_t r, std::int64_t j) {
      long double sum = 0, scale = 0;
      for (std::int64_t p = 0; p < k; ++p) {
        const long double term =
            static_cast<long double>(problem.at_a(i, r, p)) * static_cast<long double>(problem.at_b(i, p, j));
        sum += term;
        scale += std::fabs(term);
      }
      const long double bound = static_cast<long double>(k) * std::numeric_limits<T>::epsilon() * scale;
      EXPECT_LE(std::fabs(got[problem.index(i, r, j)] - sum), bound);
    });
  }
}

TYPED_TEST(GemmTest, NaNAndInfinityReachExactlyTheElementsThatUseThem) {
  using T = TypeParam;
  for (const bool trans_a : {false, true})
    for (const bool trans_b : {false, true}) {
      auto problem = this->random_problem(
          {.m = 40, .n = 37, .k = 35, .trans_a = trans_a, .trans_b = trans_b, .bias = true, .relu = true});
      const auto poison = [](std::vector<T>& x, std::size_t i, T value) { x[i % x.size()] = value; };
      poison(problem.a, 100, std::numeric_limits<T>::quiet_NaN());
      poison(problem.a, 1000, std::numeric_limits<T>::infinity());
      poison(problem.b, 500, -std::numeric_limits<T>::infinity());

      const std::vector<T> got = problem.compute();

      expect_same(got, problem.expected(), problem.shape.str());
      std::int64_t nans = 0;
      for (const T x : got) nans += std::isnan(x);
      EXPECT_GE(nans, 37);  // ReLU keeps NaN
      EXPECT_LT(nans, 40 * 37);
    }
}

/// Memory whose first or last byte lies next to a page that may not be touched.
class GuardedMemory {
 public:
  enum class Side { before, after };
  GuardedMemory(std::size_t bytes, Side side) {
    const std::size_t page = sysconf(_SC_PAGESIZE), room = (bytes + page - 1) / page * page;
    size_ = room + 2 * page;
    base_ = static_cast<char*>(mmap(nullptr, size_, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    if (base_ == MAP_FAILED || (room > 0 && mprotect(base_ + page, room, PROT_READ | PROT_WRITE) != 0))
      throw std::bad_alloc();
    data_ = base_ + page + (side == Side::after ? room - bytes : 0);
  }
  ~GuardedMemory() { munmap(base_, size_); }
  GuardedMemory(const GuardedMemory&) = delete;
  GuardedMemory& operator=(const GuardedMemory&) = delete;
  void* data() const { return data_; }

 private:
  std::size_t size_;
  char* base_;
  char* data_;
};

TYPED_TEST(GemmTest, NoMemoryNextToTheOperandsIsTouched) {
  using T = TypeParam;
  using Side = GuardedMemory::Side;
  const auto guarded = [](const std::vector<T>& x, Side side) {
    auto memory = std::make_unique<GuardedMemory>(x.size() * sizeof(T), side);
    if (!x.empty()) std::memcpy(memory->data(), x.data(), x.size() * sizeof(T));
    return memory;
  };
  const Case cases[] = {
      {.m = 9, .n = 7, .k = 5},        {.m = 1, .n = 33, .k = 19},     {.m = 33, .n = 1, .k = 19},
      {.m = 3, .n = 21, .k = 70},      {.m = 70, .n = 3, .k = 7},      {.m = 31, .n = 47, .k = 129},
      {.m = 100, .n = 99, .k = 45},    {.m = 6, .n = 65, .k = 999},    {.m = 290, .n = 333, .k = 611},
      {.m = 611, .n = 290, .k = 333},  {.m = 15, .n = 16, .k = 17},    {.m = 2, .n = 700, .k = 301},
      {.m = 29, .n = 1100, .k = 1024}, {.m = 37, .n = 1101, .k = 500}, {.m = 660, .n = 653, .k = 627}};
  for (Case shape : cases)
    for (const bool trans_a : {false, true})
      for (const bool trans_b : {false, true})
        for (const Side side : {Side::before, Side::after}) {
          shape.trans_a = trans_a, shape.trans_b = trans_b, shape.bias = true;
          auto problem = this->random_problem(shape);
          const auto a = guarded(problem.a, side), b = guarded(problem.b, side), bias = guarded(problem.bias, side);
          const auto c = guarded(std::vector<T>(shape.m * shape.n), side);
          problem.gemm.a = a->data(), problem.gemm.b = b->data(), problem.gemm.bias = bias->data();
          problem.gemm.c = c->data();

          backend(Device::cpu()).gemm(problem.gemm);

          const std::vector<T> want = problem.compute();
          const T* got = static_cast<const T*>(c->data());
          for (std::int64_t r = 0; r < shape.m; ++r)
            ASSERT_EQ(std::memcmp(got + r * shape.n, &want[problem.index(0, r, 0)], shape.n * sizeof(T)), 0)
                << problem.shape.str() << " row " << r;
        }
}

TYPED_TEST(GemmTest, SumOfNothingIsTheBias) {
  this->expect_contract_all_layouts({.m = 3, .n = 40, .k = 0});
  this->expect_contract_all_layouts({.m = 3, .n = 40, .k = 0, .bias = true, .relu = true});
  this->expect_contract_all_layouts({.m = 300, .n = 5, .k = 0, .batch = 2, .bias = true, .accumulate = true});
}

TYPED_TEST(GemmTest, EmptyResultsWriteNothing) {
  this->expect_contract_all_layouts({.m = 0, .n = 4, .k = 3, .bias = true});
  this->expect_contract_all_layouts({.m = 4, .n = 0, .k = 3});
  this->expect_contract_all_layouts({.m = 4, .n = 4, .k = 3, .batch = 0});
  this->expect_contract_all_layouts({.m = 0, .n = 0, .k = 0, .batch = 0});
}

// bf16 and f16: the f32 product of the same numbers, rounded. The sentinel is rounded as well.
template <class T>
void expect_rounded_f32_product(const Case& shape, std::mt19937_64& generator) {
  const auto number = [&] { return static_cast<float>(T(std::ldexp(double(std::int64_t(generator())), -63))); };
  const Problem<float> single(shape, number);
  const auto rounded = [](const std::vector<float>& x) {
    std::vector<T> y;
    for (const float v : x) y.push_back(T(v));
    return y;
  };
  const std::vector<T> a = rounded(single.a), b = rounded(single.b), bias = rounded(single.bias);
  std::vector<T> c = rounded(single.c);
  Gemm half = single.gemm;
  half.dtype = dtype_of<T>;
  half.a = a.data();
  half.b = b.data();
  half.c = c.data() + single.kGuard;
  half.bias = bias.empty() ? nullptr : bias.data();
  backend(Device::cpu()).gemm(half);
  const std::vector<T> want = rounded(single.compute());
  for (std::size_t i = 0; i < c.size(); ++i) ASSERT_EQ(c[i].bits, want[i].bits) << shape.str() << ", element " << i;
}

TEST(HalfGemm, IsTheF32ProductRounded) {
  std::mt19937_64 generator{7};
  const auto upto = [&](std::int64_t limit) {
    return std::uniform_int_distribution<std::int64_t>(0, limit)(generator);
  };
  for (int i = 0; i < 400; ++i) {
    Case s{.m = upto(40), .n = upto(40), .k = upto(40), .batch = 1 + upto(3)};
    s.trans_a = upto(1), s.trans_b = upto(1);
    s.pad_a = upto(3), s.pad_b = upto(3), s.pad_c = upto(3);
    s.share_a = upto(1), s.share_b = upto(1);
    s.bias = upto(1), s.accumulate = upto(1);
    s.relu = !s.accumulate && upto(1);
    expect_rounded_f32_product<bfloat16>(s, generator);
    expect_rounded_f32_product<float16>(s, generator);
    if (testing::Test::HasFatalFailure()) return;
  }
}

}  // namespace
}  // namespace reel
