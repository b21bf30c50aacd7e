// A tensor's and a model's life on Device::cuda(), on the executor and (REEL_ON_GPU) on a GPU.

#include <gtest/gtest.h>

#include <functional>
#include <vector>

#include "reel/core/error.h"
#include "reel/core/memory.h"
#include "reel/core/precision.h"
#include "reel/core/ragged.h"
#include "reel/core/tape.h"
#include "reel/nn/conv.h"
#include "reel/nn/linear.h"
#include "reel/nn/optimizer.h"
#include "reel/ops/arithmetic.h"
#include "reel/ops/convert.h"
#include "reel/ops/create.h"
#include "reel/ops/embedding.h"
#include "reel/ops/index.h"
#include "reel/ops/linalg.h"
#include "reel/ops/losses.h"
#include "reel/ops/matmul.h"
#include "reel/ops/ragged.h"
#include "reel/ops/rearrange.h"
#include "reel/ops/reduce.h"
#include "reel/ops/softmax.h"
#include "reel/ops/sparse.h"
#include "reel/ops/views.h"
#include "reel/tests/expect.h"

namespace reel {
namespace {

const Device kCuda = Device::cuda();

TEST(CudaDevice, IsTheBestOne) { EXPECT_EQ(Device::best(), kCuda); }

TEST(CudaDevice, NumbersAreChecked) {
  EXPECT_THROW_WITH(zeros({2}, {.device = Device::cuda(64)}), DeviceError, "cuda:0 to cuda:", "got cuda:64");
}

TEST(CudaDevice, MixingWithTheCpuIsRefused) {
  EXPECT_THROW_WITH(zeros({2}) + zeros({2}, {.device = kCuda}), DeviceError, "cuda:0", "cpu");
}

TEST(CudaTransfer, LargeTensorsGoThroughPinnedMemoryInParts) {
  const Tensor x = arange(1'500'000, {.dtype = i64});
  EXPECT_EQ(to(to(x, kCuda), Device::cpu()).to_vector<std::int64_t>(), x.to_vector<std::int64_t>());
}

TEST(CudaTransfer, EmptyTensorsMove) { EXPECT_EQ(to(to(zeros({0, 3}), kCuda), Device::cpu()).shape(), Shape(0, 3)); }

TEST(CudaTensor, ItemPrintAndFillWork) {
  Tensor x = zeros({2, 2}, {.device = kCuda});
  x.fill_(3);
  EXPECT_EQ(sum(x).item(), 12);
  EXPECT_NE(to_string(x).find("3"), std::string::npos);
}

TEST(CudaMemory, AProgramCanAskForItsBytesAndGiveThemBack) {
  release_cached_memory(kCuda);
  const MemoryStats before = memory_stats(kCuda);
  EXPECT_EQ(before.cached_bytes, 0);
  reset_peak_memory(kCuda);
  {
    const Tensor x = zeros({1 << 20}, {.device = kCuda});
    EXPECT_EQ(memory_stats(kCuda).live_bytes - before.live_bytes, 4 << 20);
  }
  const MemoryStats after = memory_stats(kCuda);
  EXPECT_EQ(after.live_bytes, before.live_bytes);
  EXPECT_EQ(after.cached_bytes, 4 << 20);
  EXPECT_EQ(after.peak_bytes - before.live_bytes, 4 << 20);
  release_cached_memory(kCuda);
  EXPECT_EQ(memory_stats(kCuda).cached_bytes, 0);

  const Tensor on_host = zeros({10});
  EXPECT_EQ(memory_stats(Device::cpu()).live_bytes, memory_stats().live_bytes);
  EXPECT_THROW_WITH(memory_stats(Device::cuda(64)), DeviceError, "got cuda:64", "device_test.cpp:");
  EXPECT_THROW_WITH(release_cached_memory(Device::cuda(64)), DeviceError, "got cuda:64");
}

// --- TF32 ------------------------------------------------------------------------------------------------------------------

TEST(CudaPrecision, ProductsMayBeInTf32AndSolversAreNot) {
#ifdef REEL_ON_GPU
  const std::int64_t n = 600;
#else
  const std::int64_t n = 96;
#endif
  Generator generator(5);
  const Tensor g = to(randn({n, n}, generator), kCuda), b = to(randn({n, n}, generator), kCuda);
  const Tensor a = matmul(g, transpose(g)) / static_cast<double>(n) + eye(n, {.device = kCuda});
  const auto values = [&](auto op) { return to(op(), Device::cpu()).template to_vector<float>(); };
  const std::vector<std::function<Tensor()>> solvers = {[&] { return solve(a, b); }, [&] { return inverse(a); },
                                                        [&] { return cholesky(a); }, [&] { return logdet(a); },
                                                        [&] { return triangular_solve(cholesky(a), b); }};
  const auto product = [&] { return matmul(a, b); };
  std::vector<std::vector<float>> exact;
  for (const auto& solver : solvers) exact.push_back(values(solver));
  const std::vector<float> exact_product = values(product);
  set_matmul_precision(MatmulPrecision::high);
  for (std::size_t i = 0; i < solvers.size(); ++i) EXPECT_EQ(values(solvers[i]), exact[i]) << i;
  EXPECT_NE(values(product), exact_product);
  set_matmul_precision(MatmulPrecision::highest);
  EXPECT_EQ(values(product), exact_product);
}

// --- the device word --------------------------------------------------------------------------------------------------------

TEST(CudaIndices, ABadOneIsToldWhenTheHostWaits) {
  const Tensor table = ones({4, 3}, {.device = kCuda});
  const Tensor bad = to(from_vector<std::int64_t>({1, 9, -3}, {3}), kCuda);
  const Tensor good = to(from_vector<std::int64_t>({1, 0, 3}, {3}), kCuda);
  Tensor y = embedding(table, bad);  // the line that is told
  const int line = __LINE__ - 1;
  embedding(table, to(from_vector<std::int64_t>({7}, {1}), kCuda));  // a later fault does not hide the first
  EXPECT_THROW_WITH(y.to_vector<float>(), IndexError, "embedding: indices must be in [0, 4), got 9 at position 1",
                    "device_test.cpp:", std::to_string(line).c_str());
  EXPECT_EQ(sum(embedding(table, good)).item(), 9);  // the GPU works on
}

// Of the last few thousand checks it is known which op they were of.
TEST(CudaIndices, ABadOneOfLongAgoIsToldWithItsGpu) {
  const Tensor table = ones({4, 3}, {.device = kCuda});
  const Tensor good = to(from_vector<std::int64_t>({1}, {1}), kCuda);
  embedding(table, to(from_vector<std::int64_t>({2, 9}, {2}), kCuda));
  for (int i = 0; i < 4096; ++i) embedding(table, good);
  EXPECT_THROW_WITH(synchronize(kCuda), IndexError, "cuda:0: indices must be in range, got 9 at position 1");
}

TEST(CudaIndices, SynchronizeWaitsAndTells) {
  const Tensor table = ones({4, 3}, {.device = kCuda});
  synchronize(kCuda);
  embedding(table, to(from_vector<std::int64_t>({-1}, {1}), kCuda));
  EXPECT_THROW_WITH(synchronize(kCuda), IndexError, "embedding: indices must be in [0, 4), got -1 at position 0");
  synchronize(kCuda);
  synchronize(Device::cpu());
}

TEST(CudaIndices, EveryOpThatTakesThemTellsABadOne) {
  const Tensor x = ones({3, 4}, {.device = kCuda});
  const auto index = [](const std::vector<std::int64_t>& values, const Shape& shape) {
    return to(from_vector(values, shape), kCuda);
  };
  const auto expect_told = [&](const char* op, auto call) {
    EXPECT_THROW_WITH(call().template to_vector<double>(), IndexError,
                      (std::string(op) + ": indices must be in").c_str(), "got 9 at position 2", "device_test.cpp:");
    EXPECT_EQ(sum(x).item(), 12) << op;  // the GPU works on
  };
  const Tensor beside = index({0, 1, 9, 2, -5, 0}, {3, 2}), rows = index({0, 1, 9}, {3});
  const Ragged bags = Ragged::from_lengths(rows, {2, 0, 1});
  expect_told("gather", [&] { return gather(x, 1, beside); });
  expect_told("scatter_add", [&] { return scatter_add(x, 1, beside, ones({3, 2}, {.device = kCuda})); });
  expect_told("index_select", [&] { return index_select(x, 1, rows); });
  expect_told("embedding", [&] { return embedding(x, rows); });
  expect_told("embedding_bag", [&] { return embedding_bag(x, bags); });
  expect_told("gather_add", [&] { return gather_add(x, index({0, 1, 9, 2}, {2, 2})); });
  expect_told("cross_entropy", [&] { return cross_entropy(x, rows); });
  expect_told("nll_loss", [&] { return nll_loss(x, rows); });
  expect_told("one_hot", [&] { return one_hot(rows, 4); });
}

// Each sequence has a range of its own.
TEST(CudaIndices, ABadRowOfASequenceIsToldAsItIs) {
  const Ragged x = to(Ragged::from_lengths(arange(5, {.dtype = f32}), {2, 0, 3}), kCuda);
  struct Case {
    std::vector<std::int64_t> rows, lengths;
    const char* told;
  };
  for (const Case& c :
       {Case{{0, 1, 2, 7, 0}, {2, 0, 3}, "got 7 at position 3"}, Case{{0, 1, 0, 2}, {2, 1, 1}, "got 0 at position 2"},
        Case{{-1, 1, 2}, {2, 0, 1}, "got -1 at position 0"}}) {
    const Tensor rows = to(from_vector(c.rows, {static_cast<std::int64_t>(c.rows.size())}), kCuda);
    const Ragged index = Ragged::from_lengths(rows, c.lengths);
    EXPECT_THROW_WITH(gather(x, index).values().to_vector<float>(), IndexError,
                      "gather: indices must count rows of their sequences", c.told, "device_test.cpp:");
  }
  const Ragged good = Ragged::from_lengths(to(from_vector<std::int64_t>({1, 0, 2, 0}), kCuda), {2, 0, 2});
  EXPECT_EQ(gather(x, good).values().to_vector<float>(), (std::vector<float>{1, 0, 4, 2}));
}

TEST(CudaIndices, OptimisersWaitWhileABadOneIsUntold) {
  Parameter w(ones({4, 3}, {.device = kCuda}), "w");
  nn::Adam adam({w}, {.lr = 0.5});
  {
    Tape tape;
    tape.backward(sum(embedding(w, to(from_vector<std::int64_t>({1, 4}, {2}), kCuda))));
  }
  adam.step();
  EXPECT_THROW(sum(w.value()).item(), IndexError);
  EXPECT_EQ(sum(w.value()).item(), 12);  // unchanged
}

// --- ragged tensors and models ----------------------------------------------------------------------------------------------

TEST(CudaRagged, OffsetsAreCopiedOnce) {
  const Ragged x = to(Ragged::from_lengths(arange(5, {.dtype = f32}), {2, 0, 3}), kCuda);
  const std::int64_t* first = x.segments().offsets;
  EXPECT_EQ(x.segments().offsets, first);
  EXPECT_EQ(x.with(x.values() * 2).segments().offsets, first);
  EXPECT_EQ(sum(x).to_vector<float>(), (std::vector<float>{1, 0, 9}));
}

struct Net : nn::Module {
  nn::Conv2dRelu conv1{this, "conv1", {.in = 1, .out = 3, .kernel = 3, .padding = 1}};
  nn::Conv2dRelu conv2{this, "conv2", {.in = 3, .out = 5, .kernel = 3, .padding = 2, .dilation = 2}};
  nn::Linear head{this, "head", {.in = 5 * 36, .out = 4}};
  Tensor operator()(const Tensor& x) { return head(flatten(conv2(conv1(x)), 1)); }
};

std::vector<double> losses_on(Device device) {
  manual_seed(1);
  Net net;
  net.to(device);
  nn::Adam adam(net.parameters(), {.lr = 1e-2});
  Generator generator(2);
  const Tensor images = to(randn({7, 1, 6, 6}, generator), device);
  const Tensor labels = to(from_vector<std::int64_t>({0, 1, 2, 3, 0, 1, 2}, {7}), device);
  std::vector<double> losses;
  for (int step = 0; step < 6; ++step) {
    Tape tape;
    const Tensor loss = cross_entropy(net(images), labels);
    tape.backward(loss);
    adam.step();
    losses.push_back(loss.item());
  }
  return losses;
}

TEST(CudaModel, TrainsAsOnTheCpu) {
  const std::vector<double> expected = losses_on(Device::cpu()), losses = losses_on(kCuda);
  for (std::size_t i = 0; i < losses.size(); ++i) EXPECT_NEAR(losses[i], expected[i], 2e-4) << "step " << i;
  EXPECT_LT(losses.back(), 0.7 * losses.front());
}

}  // namespace
}  // namespace reel
