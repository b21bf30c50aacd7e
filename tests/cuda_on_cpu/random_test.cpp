// Random numbers are the same on every backend, and leave the same state behind.

#include <gtest/gtest.h>

#include <cstring>
#include <functional>
#include <vector>

#include "reel/core/ops.h"
#include "reel/core/random.h"
#include "reel/ops/arithmetic.h"
#include "reel/ops/convert.h"
#include "reel/ops/create.h"
#include "reel/ops/sampling.h"
#include "reel/ops/views.h"
#include "reel/tests/cuda_on_cpu/schedule.h"

namespace reel {
namespace {

const Device kCuda = Device::cuda();

// Parts of a block of Philox, of a thread block and of the grid; the last one's loops turn round on two multiprocessors.
const std::vector<std::int64_t> kSizes = {0, 1, 2, 3, 5, 31, 33, 1025, 70'001};

// A call moves over the end of the counter's low word.
constexpr PhiloxState kStart = {.seed = 0x123456789abcdef0, .stream = 7, .counter = (std::uint64_t{1} << 32) - 3};

class CudaRandom : public testing::Test {
 protected:
  void SetUp() override { cuda_on_cpu::set_guard(false); }
  void TearDown() override { cuda_on_cpu::set_guard(true); }

  static void expect_same_bits(const Tensor& on_cuda, const Tensor& on_cpu) {
    ASSERT_EQ(on_cuda.device(), kCuda);
    ASSERT_EQ(on_cuda.dtype(), on_cpu.dtype());
    ASSERT_EQ(on_cuda.shape(), on_cpu.shape());
    const Tensor x = to(on_cuda, Device::cpu());
    const std::size_t bytes = size_of(x.dtype());
    const auto *got = static_cast<const char*>(x.array().data), *want = static_cast<const char*>(on_cpu.array().data);
    for (std::size_t i = 0; i < static_cast<std::size_t>(x.size()); ++i)
      ASSERT_EQ(std::memcmp(got + i * bytes, want + i * bytes, bytes), 0) << "element " << i << " of " << x.size();
  }

  using Draw = std::function<Tensor(const Shape&, Generator&, TensorOptions)>;

  // Two calls after each other, of every size, by a generator and by the process's.
  static void expect_same_numbers(DType dtype, const Draw& draw) {
    for (const std::int64_t n : kSizes) {
      SCOPED_TRACE(std::to_string(n) + " of " + name_of(dtype));
      Generator here(kStart), there(kStart);
      for (int call = 0; call < 2; ++call)
        expect_same_bits(draw({n}, there, {.dtype = dtype, .device = kCuda}), draw({n}, here, {.dtype = dtype}));
      EXPECT_EQ(there.state().seed, here.state().seed);
      EXPECT_EQ(there.state().stream, here.state().stream);
      EXPECT_EQ(there.state().counter, here.state().counter);
      EXPECT_EQ(here.state().counter != kStart.counter, n > 0);
    }
  }
};

TEST_F(CudaRandom, UniformNumbersAreTheSameAsOnTheCpu) {
  for (const DType dtype : {f32, f64})
    expect_same_numbers(dtype, [](const Shape& shape, Generator& generator, TensorOptions options) {
      return rand(shape, generator, options);
    });
}

TEST_F(CudaRandom, NormalNumbersAreTheSameAsOnTheCpu) {
  for (const DType dtype : {f32, f64})
    expect_same_numbers(dtype, [](const Shape& shape, Generator& generator, TensorOptions options) {
      return randn(shape, generator, options);
    });
}

TEST_F(CudaRandom, IntegersAreTheSameAsOnTheCpu) {
  for (const DType dtype : {i32, i64}) {
    expect_same_numbers(dtype, [](const Shape& shape, Generator& generator, TensorOptions options) {
      return randint(-3, 1000, shape, generator, options);
    });
  }
  expect_same_numbers(u8, [](const Shape& shape, Generator& generator, TensorOptions options) {
    return randint(250, 256, shape, generator, options);
  });
  for (const std::int64_t low : {-(std::int64_t{1} << 31), (std::int64_t{1} << 53) + 1})
    expect_same_numbers(i64, [low](const Shape& shape, Generator& generator, TensorOptions options) {
      return randint(low, low + (std::int64_t{1} << 32), shape, generator, options);
    });
}

TEST_F(CudaRandom, IntegersDoNotComeByWayOfTheHost) {
  const std::int64_t before = cuda_on_cpu::waits();
  for (const DType dtype : {u8, i32, i64})
    EXPECT_EQ(randint(0, 9, {100}, {.dtype = dtype, .device = kCuda}).size(), 100);
  EXPECT_EQ(cuda_on_cpu::waits(), before);
}

TEST_F(CudaRandom, BernoulliNumbersAreTheSameAsOnTheCpu) {
  for (const DType dtype : {f32, f64, i32, i64, bool8})
    expect_same_numbers(dtype, [](const Shape& shape, Generator& generator, TensorOptions options) {
      return bernoulli(0.3, shape, generator, options);
    });
  for (const DType dtype : {f32, f64})  // with a probability for each element
    expect_same_numbers(dtype, [](const Shape& shape, Generator& generator, TensorOptions options) {
      Generator other(4);
      return bernoulli(to(rand(shape, other, {.dtype = options.dtype}), options.device), generator);
    });
}

TEST_F(CudaRandom, TheProcessesGeneratorIsMovedAsOnTheCpu) {
  std::vector<Tensors> drawn;
  std::vector<PhiloxState> states;
  for (const Device device : {Device::cpu(), kCuda}) {
    manual_seed(11);
    drawn.push_back({rand({5}, {.device = device}), randn({7}, {.dtype = f64, .device = device}),
                     randint(0, 10, {9}, {.dtype = i64, .device = device}), bernoulli(0.5, {3}, {.device = device}),
                     randn({2, 3}, {.device = device})});
    states.push_back(random_state());
  }
  for (std::size_t i = 0; i < drawn[0].size(); ++i) expect_same_bits(drawn[1][i], drawn[0][i]);
  EXPECT_EQ(states[1].seed, states[0].seed);
  EXPECT_EQ(states[1].stream, states[0].stream);
  EXPECT_EQ(states[1].counter, states[0].counter);
}

// The entry itself: nothing beside the part of a tensor that it is given.
TEST_F(CudaRandom, APartOfATensorIsFilledAndNothingBesideIt) {
  struct Entry {
    RandomOp op;
    DType dtype;
  };
  for (const Entry entry : {Entry{RandomOp::uniform, f32}, Entry{RandomOp::uniform, f64}, Entry{RandomOp::normal, f32},
                            Entry{RandomOp::normal, f64}})
    for (const std::int64_t n : kSizes)
      for (const std::int64_t offset : {1, 2, 3}) {
        SCOPED_TRACE(std::to_string(n) + " of " + name_of(entry.dtype) + " at " + std::to_string(offset));
        Tensors whole;
        for (const Device device : {Device::cpu(), kCuda}) {
          const Tensor y = full({n + offset + 5}, 77, {.dtype = entry.dtype, .device = device});
          const Tensor part = narrow(y, 0, offset, n);
          backend(device).random(entry.op, part.array(), kStart);
          whole.push_back(y);
        }
        expect_same_bits(whole[1], whole[0]);
      }
}

// By rejection, in f64: the last bits of log and exp may differ.
TEST_F(CudaRandom, GammaAndPoissonNumbersAreThoseOfTheCpu) {
  for (const DType dtype : {f32, f64}) {
    const double epsilon = dtype == f32 ? 0x1p-23 : 0x1p-52;
    for (const std::int64_t n : {0, 1, 5, 1025}) {
      SCOPED_TRACE(std::to_string(n) + " of " + name_of(dtype));
      Generator shapes(2), here(kStart), there(kStart);
      const Tensor shape = rand({n}, shapes, {.dtype = dtype}) * 3 + 0.25;
      const std::vector<double> want = standard_gamma(shape, &here).to_vector<double>(),
                                got = standard_gamma(to(shape, kCuda), &there).to_vector<double>();
      for (std::size_t i = 0; i < want.size(); ++i) ASSERT_NEAR(got[i], want[i], 64 * epsilon * want[i]) << i;
      EXPECT_EQ(there.state().counter, here.state().counter);
      expect_same_bits(poisson(to(shape, kCuda), &there), poisson(shape, &here));
      EXPECT_EQ(there.state().counter, here.state().counter);
    }
  }
}

}  // namespace
}  // namespace reel
