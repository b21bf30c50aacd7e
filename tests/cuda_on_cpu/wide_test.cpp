// Shapes that no row of the op-case table has and for which kernels go another way: results and gradients against the CPU.

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>

#include "reel/core/tape.h"
#include "reel/ops/arithmetic.h"
#include "reel/ops/attention.h"
#include "reel/ops/conv.h"
#include "reel/ops/convert.h"
#include "reel/ops/create.h"
#include "reel/ops/normalize.h"
#include "reel/ops/views.h"

namespace reel {
namespace {

using Function = std::function<Tensor(const Tensors&)>;

Tensors results_of(const Function& f, const Tensors& in) {
  Tape tape;
  for (const Tensor& x : in) tape.watch(x);
  const Tensor y = f(in);
  Generator generator(5);
  Tensors results = tape.gradient(y, randn(y.shape(), generator, {.dtype = y.dtype(), .device = y.device()}), in);
  results.push_back(y);
  return results;
}

/// f on the GPU and on the CPU, for inputs of these shapes.
void expect_equal_devices(const Function& f, const std::vector<Shape>& shapes, DType dtype) {
  Generator generator(3);
  Tensors in, moved;
  for (const Shape& shape : shapes) {
    const Tensor x = randn(shape, generator, {.dtype = dtype});
    in.push_back(x);
    moved.push_back(to(x, Device::cuda()));
  }
  const Tensors expected = results_of(f, in), got = results_of(f, moved);
  const double epsilon = dtype == f32 ? std::numeric_limits<float>::epsilon() : std::numeric_limits<double>::epsilon();
  for (std::size_t k = 0; k < expected.size(); ++k) {
    const std::vector<double> want = expected[k].to_vector<double>(), have = got[k].to_vector<double>();
    ASSERT_EQ(have.size(), want.size());
    for (std::size_t i = 0; i < want.size(); ++i)
      ASSERT_LE(std::abs(have[i] - want[i]), 400 * epsilon * (1 + std::abs(want[i])))
          << "result " << k << ", element " << i << ": " << have[i] << ", not " << want[i];
  }
}

// More than one tile of queries and of keys, more than one part of the columns, and sequences without queries or keys.
TEST(CudaWide, RaggedAttentionOverManyTilesEqualsTheCpus) {
  const std::vector<std::int64_t> queries = {70, 0, 5, 131}, keys = {33, 9, 0, 140};
  for (const DType dtype : {f32, f64})
    for (const bool causal : {false, true}) {
      SCOPED_TRACE(std::string(name_of(dtype)) + (causal ? " causal" : ""));
      const auto attend = [&](const Tensors& in) {
        const Ragged q = Ragged::from_lengths(in[0], queries), k = Ragged::from_lengths(in[1], keys);
        return scaled_dot_product_attention(q, k, k.with(in[2]), {.causal = causal}).values();
      };
      expect_equal_devices(attend, {{206, 2, 20}, {182, 2, 20}, {182, 2, 70}}, dtype);
      expect_equal_devices(attend, {{206, 1, 66}, {182, 1, 66}, {182, 1, 16}}, dtype);
    }
}

TEST(CudaWide, AttentionWithoutColumnsEqualsTheCpus) {
  const auto attend = [](const Tensors& in) { return scaled_dot_product_attention(in[0], in[1], in[2]); };
  expect_equal_devices(attend, {{2, 3, 0}, {2, 5, 0}, {2, 5, 4}}, f32);
  expect_equal_devices(attend, {{2, 3, 4}, {2, 5, 4}, {2, 5, 0}}, f32);
}

// Numbers that are not finite where a key is hidden: what must stay clean does, and what must not is as on the CPU.
TEST(CudaWide, HiddenKeysAndTheirQueriesShareNothing) {
  const std::int64_t length = 70, from = 40;  // more than one tile of f64's
  const Tensor mask = arange(length) < static_cast<double>(from);
  for (const DType dtype : {f32, f64})
    for (const bool causal : {false, true})
      for (const double poison : {double{NAN}, double{INFINITY}}) {
        SCOPED_TRACE(std::string(name_of(dtype)) + (causal ? " causal " : " ") + std::to_string(poison));
        Generator generator(3);
        Tensors in, moved;
        for (const std::int64_t width : {20, 20, 18})
          in.push_back(randn({2, length, width}, generator, {.dtype = dtype}));
        // All keys behind the mask; causal: one, which the queries from it on see.
        for (const std::size_t i : {1, 2}) narrow(in[i], 1, from, causal ? 1 : length - from).fill_(poison);
        for (const Tensor& x : in) moved.push_back(to(x, Device::cuda()));
        const auto attend = [&](const Tensors& x) {
          const AttentionOptions options{.mask = causal ? Tensor() : to(mask, x[0].device()), .causal = causal};
          return scaled_dot_product_attention(x[0], x[1], x[2], options);
        };
        const Tensors expected = results_of(attend, in), got = results_of(attend, moved);
        const double bound = dtype == f32 ? 1e-4 : 1e-12;
        for (std::size_t k = 0; k < expected.size(); ++k) {
          const std::vector<double> want = expected[k].to_vector<double>(), have = got[k].to_vector<double>();
          std::size_t finite = 0;
          for (std::size_t i = 0; i < want.size(); ++i) {
            ASSERT_EQ(std::isfinite(have[i]), std::isfinite(want[i])) << "result " << k << ", element " << i;
            if (!std::isfinite(want[i])) continue;
            ++finite;
            ASSERT_NEAR(have[i], want[i], bound * (1 + std::abs(want[i]))) << "result " << k << ", element " << i;
          }
          // Causal: every key has gradients of the queries that see what is poisoned.
          if (!causal) EXPECT_EQ(finite, want.size()) << "result " << k;
          else if (k == 0 || k == 3) EXPECT_EQ(finite * 7, want.size() * 4) << "result " << k;
        }
      }
}

// Warps and blocks, packs and single elements; sums for the weights in shared memory and outside; the longest rows are cut.
TEST(CudaWide, NormalisedRowsOfAnyLengthEqualTheCpus) {
  for (const DType dtype : {f32, f64})
    for (const std::int64_t n : {480, 512, 601, 6000, 16640, 17001}) {
      SCOPED_TRACE(std::string(name_of(dtype)) + " " + std::to_string(n));
      const std::int64_t rows = n < 1000 ? 70 : 3;
      expect_equal_devices([&](const Tensors& in) { return layer_norm(in[0], {n}, in[1], in[2]); },
                           {{rows, n}, {n}, {n}}, dtype);
      expect_equal_devices([&](const Tensors& in) { return rms_norm(in[0], {n}, in[1]); }, {{rows, n}, {n}}, dtype);
    }
}

struct Correlation {
  const char* what;
  Shape x, weight;
  ConvOptions options;
};

void expect_equal_correlations(const Correlation& c, DType dtype) {
  SCOPED_TRACE(std::string(c.what) + " " + name_of(dtype));
  const int axes = c.x.rank() - 2;
  const auto correlate = [&](const Tensors& in) {
    if (axes == 1) return conv1d_relu(in[0], in[1], in[2], c.options);
    return axes == 2 ? conv2d_relu(in[0], in[1], in[2], c.options) : conv3d(in[0], in[1], in[2], c.options);
  };
  expect_equal_devices(correlate, {c.x, c.weight, {c.weight[0]}}, dtype);
}

// The gradient of the weight goes by tiles of channels, of taps and of pixels.
TEST(CudaWide, CorrelationsOfAnyTilesEqualTheCpus) {
  const std::vector<Correlation> correlations = {
      {"several tiles of channels, packs", {2, 17, 13, 36}, {70, 17, 3, 3}, {.padding = 1}},
      {"rows that are no packs", {2, 9, 7, 33}, {10, 9, 3, 3}, {.padding = 1}},
      {"two lanes and one pixel", {3, 20, 1, 1}, {33, 20, 3, 3}, {.padding = 1}},
      {"stride and dilation", {2, 5, 21, 30}, {6, 5, 3, 3}, {.stride = 2, .padding = 3, .dilation = 2}},
      {"dilation of columns", {1, 1, 40, 70}, {1, 1, 3, 3}, {.padding = {1, 5}, .dilation = {1, 5}}},
      {"one channel", {3, 1, 40, 64}, {1, 1, 3, 3}, {.padding = 1}},
      {"one output channel", {1, 25, 21, 34}, {1, 25, 3, 3}, {.padding = 1}},
      {"one output channel of many", {1, 36, 9, 8}, {1, 36, 3, 3}, {.padding = 1}},
      {"one input channel", {2, 1, 28, 28}, {9, 1, 3, 3}, {}},
      {"two channels", {2, 2, 19, 37}, {2, 2, 3, 3}, {.padding = 2}},
      {"more taps than a tile", {2, 3, 12, 14}, {6, 3, 5, 4}, {.padding = 2, .mode = PaddingMode::reflect}},
      {"one tap, many channels", {2, 70, 9, 12}, {67, 70, 1, 1}, {.stride = {1, 2}}},
      {"few taps", {2, 6, 10, 12}, {5, 6, 1, 1}, {}},
      {"replicated edges", {1, 4, 9, 10}, {4, 4, 3, 3}, {.padding = 3, .mode = PaddingMode::replicate}},
      {"symmetric edges", {1, 4, 9, 10}, {4, 4, 3, 3}, {.stride = 2, .padding = 4, .mode = PaddingMode::symmetric}},
      {"groups", {2, 12, 10, 12}, {8, 3, 3, 3}, {.padding = 1, .groups = 4}},
      {"one axis", {2, 4, 1000}, {9, 4, 7}, {.padding = 3}},
      {"three axes", {2, 3, 5, 6, 9}, {4, 3, 2, 3, 3}, {.padding = 1}},
      {"no images", {0, 3, 5, 6}, {4, 3, 3, 3}, {.padding = 1}},
      {"reach beyond shared memory", {1, 2, 190, 200}, {2, 2, 3, 3}, {.dilation = 90}}};
  for (const Correlation& c : correlations)
    for (const DType dtype : {f32, f64}) expect_equal_correlations(c, dtype);
}

// A block with many chunks adds the sums of one chain of them to those of the chains before.
TEST(CudaWide, LongSumsOfACorrelationsWeightAreCutIntoChains) {
  expect_equal_correlations({"chains", {300, 270, 2, 2}, {270, 1, 3, 3}, {.padding = 1, .groups = 270}}, f32);
}

// Beside an infinite x that no gradient meets, sums stay finite: rows that end within a run of pixels do not read beyond.
TEST(CudaWide, WhatAnOutputDoesNotSeeDoesNotReachTheWeightsGradient) {
  for (const std::int64_t cols : {9, 35}) {
    Tensor x = ones({1, 2, 5, cols});
    narrow(x, 3, cols - 1, 1).fill_(INFINITY);
    Tape tape;
    const Tensor on_gpu = to(x, Device::cuda()), weight = ones({3, 2, 3, 3}, {.device = Device::cuda()});
    tape.watch(weight);
    const Tensor y = conv2d(on_gpu, weight, {}, {.stride = {1, 2}});
    const std::vector<double> dw =
        tape.gradient(y, ones(y.shape(), {.device = Device::cuda()}), {weight})[0].to_vector<double>();
    for (std::size_t i = 0; i < dw.size(); ++i) EXPECT_EQ(std::isinf(dw[i]), i % 3 == 2) << i;
  }
}

}  // namespace
}  // namespace reel
