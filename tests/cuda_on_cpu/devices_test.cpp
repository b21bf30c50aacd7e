// Tensors and models on several GPUs, on the executor as two devices and (REEL_ON_GPU) where there are two GPUs.

#include <gtest/gtest.h>

#include <memory>
#include <thread>

#include "reel/core/error.h"
#include "reel/core/ragged.h"
#include "reel/core/tape.h"
#include "reel/nn/linear.h"
#include "reel/nn/optimizer.h"
#include "reel/ops/arithmetic.h"
#include "reel/ops/convert.h"
#include "reel/ops/create.h"
#include "reel/ops/embedding.h"
#include "reel/ops/losses.h"
#include "reel/ops/matmul.h"
#include "reel/ops/ragged.h"
#include "reel/ops/reduce.h"
#include "reel/ops/softmax.h"
#include "reel/ops/unary.h"
#include "reel/ops/views.h"
#include "reel/tests/cuda_on_cpu/devices.h"
#include "reel/tests/cuda_on_cpu/schedule.h"
#include "reel/tests/expect.h"

namespace reel {
namespace {

using test::kFirst;
using test::kSecond;

class Devices : public test::OnTwoDevices {};

TEST_F(Devices, ANumberThatNoneHasIsRefused) {
  EXPECT_THROW_WITH(zeros({2}, {.device = Device::cuda(99)}), DeviceError,
                    "one of the GPUs cuda:0 to cuda:", "got cuda:99", "devices_test.cpp:");
  EXPECT_THROW_WITH(to(zeros({2}), Device::cuda(99)), DeviceError, "one of the GPUs cuda:0 to cuda:", "got cuda:99",
                    "devices_test.cpp:");
  EXPECT_THROW_WITH(to(zeros({2}, {.device = kFirst}), Device::cuda(99)), DeviceError, "got cuda:99",
                    "devices_test.cpp:");
}

// --- copies -----------------------------------------------------------------------------------------------------------------

TEST_F(Devices, CopiesKeepTheBitsOfAllTypesAndLayouts) {
  for (const DType dtype : {f32, f64, i32, i64, u8}) {
    const Tensor x = cast(reshape(arange(60, {.dtype = i32}), {3, 4, 5}), dtype), there = to(x, kFirst);
    for (const auto view : {+[](const Tensor& t) { return t; }, +[](const Tensor& t) { return transpose(t, 0, 2); },
                            +[](const Tensor& t) { return select(t, 1, 2); }}) {
      const Tensor y = to(view(there), kSecond);
      EXPECT_EQ(y.device(), kSecond);
      EXPECT_EQ(y.to_vector<double>(), view(x).to_vector<double>());
      EXPECT_EQ(to(y, kFirst).to_vector<double>(), view(x).to_vector<double>());
    }
  }
  EXPECT_EQ(to(to(zeros({0, 3}), kFirst), kSecond).shape(), Shape(0, 3));
  const Tensor large = arange(1'500'000, {.dtype = i64});
  EXPECT_EQ(to(to(large, kFirst), kSecond).to_vector<std::int64_t>(), large.to_vector<std::int64_t>());
}

TEST_F(Devices, TheHostWaitsForNoCopyBetweenThem) {
  const Tensor x = to(arange(100, {.dtype = f32}), kFirst);
  const std::int64_t before = cuda_on_cpu::waits();
  const Tensor y = to(to(x * 2, kSecond) + 1, kFirst);
  EXPECT_EQ(cuda_on_cpu::waits(), before);
  EXPECT_EQ(y.to_vector<float>()[99], 199);
}

// Its memory goes to the next tensor at once.
TEST_F(Devices, TheSourceMayEndAtOnce) {
  std::vector<Tensor> copies;
  for (int i = 0; i < 20; ++i) copies.push_back(to(full({1000}, i, {.device = kFirst}) * 2, kSecond));
  for (int i = 0; i < 20; ++i) EXPECT_EQ(sum(copies[static_cast<std::size_t>(i)]).item(), 2000 * i);
}

TEST_F(Devices, OffsetsOfSequencesAreWhereTheirRowsAre) {
  const Ragged x = to(Ragged::from_lengths(arange(5, {.dtype = f32}), {2, 0, 3}), kFirst);
  const Ragged y = to(x, kSecond);
  EXPECT_EQ(sum(y).device(), kSecond);
  EXPECT_EQ(sum(y).to_vector<float>(), (std::vector<float>{1, 0, 9}));
  EXPECT_EQ(sum(x).to_vector<float>(), (std::vector<float>{1, 0, 9}));
}

// --- gradients --------------------------------------------------------------------------------------------------------------

TEST_F(Devices, GradientsGoTheWayBack) {
  const Tensor x = to(tensor({0.5, -1, 2}, {.dtype = f64}), kFirst), w = to(tensor({3, 4, 5}, {.dtype = f64}), kSecond);
  Tape tape;
  tape.watch(x);
  tape.watch(w);
  const Tensor y = sum(to(x * x, kSecond) * w);
  const Tensors gradients = tape.gradient(y, {x, w});
  EXPECT_EQ(gradients[0].device(), kFirst);
  EXPECT_EQ(gradients[0].to_vector<double>(), (std::vector<double>{3, -8, 20}));
  EXPECT_EQ(gradients[1].device(), kSecond);
  EXPECT_EQ(gradients[1].to_vector<double>(), (std::vector<double>{0.25, 1, 4}));
}

TEST_F(Devices, GradientsOfGradientsGoTheWayBack) {
  const Tensor x = to(tensor({0.5, -1, 2}, {.dtype = f64}), kFirst);
  Tape outer;
  outer.watch(x);
  Tensor dx;
  {
    Tape inner;
    inner.watch(x);
    const Tensor there = to(x, kSecond);
    dx = inner.gradient(sum(there * there * there), {x})[0];
  }
  EXPECT_EQ(dx.device(), kFirst);
  const Tensor ddx = outer.gradient(sum(dx), {x})[0];
  EXPECT_EQ(ddx.device(), kFirst);
  EXPECT_EQ(ddx.to_vector<double>(), (std::vector<double>{3, -6, 12}));
}

struct Halves : nn::Module {
  nn::Linear first{this, "first", {.in = 5, .out = 7}};
  nn::Linear second{this, "second", {.in = 7, .out = 3}};
  Tensor operator()(const Tensor& x) const { return second(reel::to(tanh(first(x)), second.device())); }
};

std::vector<double> losses_on(Device first, Device second, bool within_step = false) {
  manual_seed(1);
  Halves net;
  net.to(first);
  net.second.to(second);
  nn::AdamOptions options{.lr = 1e-2};
  if (within_step) options.max_norm = 0.5;
  nn::Adam adam(net.parameters(), options);
  Generator generator(2);
  const Tensor x = to(randn({9, 5}, generator), first);
  const Tensor labels = to(from_vector<std::int64_t>({0, 1, 2, 0, 1, 2, 0, 1, 2}), second);
  std::vector<double> losses;
  for (int step = 0; step < 6; ++step) {
    Tape tape;
    const Tensor loss = cross_entropy(net(x), labels);
    tape.backward(loss);
    losses.push_back(loss.item());
    if (!within_step) losses.push_back(adam.clip_gradients(0.5));
    adam.step();
    if (within_step) losses.push_back(adam.gradient_norm());
  }
  return losses;
}

TEST_F(Devices, AModelInTwoHalvesTrainsAsOnOne) {
  const std::vector<double> expected = losses_on(kFirst, kFirst);
  EXPECT_EQ(losses_on(kFirst, kSecond), expected);
  EXPECT_EQ(losses_on(kSecond, kFirst), expected);
  EXPECT_EQ(losses_on(kSecond, kSecond), expected);
  EXPECT_EQ(losses_on(kFirst, kSecond, true), expected);
  EXPECT_LT(expected[10], expected[0]);
}

TEST_F(Devices, AModelMovesWithItsGradients) {
  nn::Linear net({.in = 2, .out = 1});
  net.to(kFirst);
  {
    Tape tape;
    tape.backward(sum(net(ones({3, 2}, {.device = kFirst}))));
  }
  const std::vector<float> weights = net.weight().value().to_vector<float>();
  net.to(kSecond);
  EXPECT_EQ(net.weight().gradient().device(), kSecond);
  EXPECT_EQ(net.weight().gradient().to_vector<float>(), (std::vector<float>{3, 3}));
  EXPECT_EQ(net.weight().value().to_vector<float>(), weights);
}

// --- bad indices ------------------------------------------------------------------------------------------------------------

TEST_F(Devices, ABadIndexGoesAlongWithWhatWasMadeOfIt) {
  const Tensor table = ones({4, 3}, {.device = kFirst});
  const Tensor y = to(embedding(table, to(from_vector<std::int64_t>({1, 9}), kFirst)), kSecond);
  const int line = __LINE__ - 1;
  EXPECT_THROW_WITH((y * 2).to_vector<float>(), IndexError, "embedding: indices must be in [0, 4), got 9 at position 1",
                    "devices_test.cpp:", std::to_string(line).c_str());
  EXPECT_EQ(sum(ones({4}, {.device = kSecond})).item(), 4);  // told once
  synchronize(kFirst);
  synchronize(kSecond);
}

TEST_F(Devices, AfterABadIndexWasToldALoopOverBothGoesOn) {
  const Tensor table = ones({4, 3}, {.device = kFirst});
  const auto loss = [&](std::int64_t index) {  // waits for the second one alone
    return sum(to(embedding(table, to(from_vector<std::int64_t>({index}), kFirst)), kSecond)).item();
  };
  EXPECT_EQ(loss(1), 3);
  EXPECT_THROW_WITH(loss(9), IndexError, "got 9 at position 0");
  EXPECT_EQ(loss(2), 3);
  EXPECT_THROW_WITH(loss(8), IndexError, "got 8 at position 0");
  EXPECT_EQ(loss(3), 3);
}

TEST_F(Devices, OptimisersWaitForABadIndexOfAnother) {
  Parameter w(ones({3}, {.device = kSecond}), "w");
  nn::Adam adam({w}, {.lr = 0.5});
  {
    Tape tape;
    const Tensor x = embedding(ones({4, 3}, {.device = kFirst}), to(from_vector<std::int64_t>({-1, 2}), kFirst));
    tape.backward(sum(to(x, kSecond) * w));
  }
  adam.step();
  EXPECT_THROW(synchronize(kSecond), IndexError);
  EXPECT_EQ(sum(w.value()).item(), 3);  // unchanged
  synchronize(kFirst);
}

TEST_F(Devices, ABadIndexThatWaitsThereAlreadyIsToldFirst) {
  const auto bad = [](Device device, std::int64_t index) {
    return embedding(ones({4, 3}, {.device = device}), to(from_vector<std::int64_t>({index}), device));
  };
  const Tensor early = bad(kFirst, 7);
  bad(kSecond, 8);
  const Tensor y = to(early, kSecond);
  EXPECT_THROW_WITH(synchronize(kSecond), IndexError, "got 8");
  EXPECT_THROW_WITH(synchronize(kFirst), IndexError, "got 7");
}

// --- threads ----------------------------------------------------------------------------------------------------------------

std::vector<double> some_work(int seed) {
  Generator generator(static_cast<std::uint64_t>(seed));
  Tensor x = to(randn({10, 30}, generator, {.dtype = f64}), seed % 2 == 0 ? kFirst : kSecond);
  const Tensor start = x;
  for (int i = 0; i < 6; ++i) {
    const Device other = x.device() == kFirst ? kSecond : kFirst;
    Tape tape;
    tape.watch(x);
    x = to(tape.gradient(sum(log_softmax(x) * to(start, x.device())), {x})[0], other);
  }
  return x.to_vector<double>();
}

TEST_F(Devices, ThreadsUseBothAndGetWhatOneAloneGets) {
  std::vector<std::vector<double>> alone, together(4);
  for (int i = 0; i < 4; ++i) alone.push_back(some_work(i));
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i)
    threads.emplace_back([&together, i] { together[static_cast<std::size_t>(i)] = some_work(i); });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(together, alone);
}

}  // namespace
}  // namespace reel
