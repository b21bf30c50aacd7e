// Shapes that no row of the op-case table has and for which kernels go another way: results and gradients against the CPU.

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>
#include <tuple>

#include "reel/core/tape.h"
#include "reel/ops/arithmetic.h"
#include "reel/ops/attention.h"
#include "reel/ops/conv.h"
#include "reel/ops/convert.h"
#include "reel/ops/create.h"
#include "reel/ops/elementwise.h"
#include "reel/ops/logical.h"
#include "reel/ops/normalize.h"
#include "reel/ops/pool.h"
#include "reel/ops/softmax.h"
#include "reel/ops/views.h"
#include "reel/tests/cuda_on_cpu/schedule.h"

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
  cuda_on_cpu::set_schedule(cuda_on_cpu::Schedule::random);  // of a barrier that is missing some block will tell
  const Tensors expected = results_of(f, in), got = results_of(f, moved);
  cuda_on_cpu::set_schedule(cuda_on_cpu::Schedule::in_order);
  const double epsilon = dtype == f32 ? std::numeric_limits<float>::epsilon() : std::numeric_limits<double>::epsilon();
  for (std::size_t k = 0; k < expected.size(); ++k) {
    const std::vector<double> want = expected[k].to_vector<double>(), have = got[k].to_vector<double>();
    ASSERT_EQ(have.size(), want.size());
    for (std::size_t i = 0; i < want.size(); ++i)
      ASSERT_LE(std::abs(have[i] - want[i]), 400 * epsilon * (1 + std::abs(want[i])))
          << "result " << k << ", element " << i << ": " << have[i] << ", not " << want[i];
  }
}

// Each tile of the kernels for 3 x 3, with a part of a tile at every end, channels that fill no chunk, and paddings that make
// the result larger and smaller than x.
TEST(CudaWide, ConvolutionInEveryTileEqualsTheCpus) {
  struct Sizes {
    std::int64_t batch, in, out, height, width;
  };
  const Sizes all[] = {{1, 3, 1, 6, 31}, {1, 1, 1, 20, 33}, {2, 5, 1, 17, 36}, {2, 3, 3, 20, 33}, {1, 9, 2, 2, 30},
                       {1, 9, 8, 2, 31}, {2, 3, 7, 17, 34}, {2, 2, 13, 9, 32}, {2, 5, 16, 3, 33}, {2, 3, 20, 9, 10},
                       {1, 4, 33, 2, 5}, {3, 3, 65, 9, 33}, {0, 3, 8, 5, 5},   {3, 1, 8, 1, 1},   {2, 8, 8, 4, 128}};
  for (const Sizes& s : all)
    for (const std::int64_t padding : {0, 1, 3}) {
      if (s.height + 2 * padding < 3 || s.width + 2 * padding < 3) continue;
      SCOPED_TRACE(std::to_string(s.batch) + " images, " + std::to_string(s.in) + " to " + std::to_string(s.out) +
                   ", " + std::to_string(s.height) + " x " + std::to_string(s.width) + ", padding " +
                   std::to_string(padding));
      const auto convolve = [&](const Tensors& in) {
        Generator generator(7);
        const Tensor weight = to(randn({s.out, s.in, 3, 3}, generator, {.dtype = f32}), in[0].device());
        const Tensor bias = to(randn({s.out}, generator, {.dtype = f32}), in[0].device());
        return conv2d_relu(in[0], weight, bias, {.padding = padding});
      };
      expect_equal_devices(convolve, {{s.batch, s.in, s.height, s.width}}, f32);
    }
}

// An infinite weight meets the zeros of the padding, as on the CPU.
TEST(CudaWide, ConvolutionMultipliesThePaddingsZeros) {
  for (const auto& [channels, stride, padding] :
       {std::tuple{1, 1, 1}, std::tuple{1, 2, 1}, std::tuple{5, 1, 1}, std::tuple{5, 2, 1}, std::tuple{5, 2, 0}}) {
    std::vector<Tensor> results;
    for (const Device device : {Device::cpu(), Device::cuda()}) {
      std::vector<float> weights(static_cast<std::size_t>(9 * channels * channels), 1.0f);
      weights[0] = INFINITY;
      const Tensor weight = to(from_vector(weights, {channels, channels, 3, 3}), device);
      const Tensor x = to(full({1, channels, 7, 9}, 2.0), device);
      Tape tape;
      tape.watch(x);
      const Tensor y = conv2d(x, weight, {}, {.stride = stride, .padding = padding});
      results.push_back(y);
      results.push_back(tape.gradient(y, to(full(y.shape(), 1.0), device), {x})[0]);
    }
    for (int k = 0; k < 2; ++k) {
      const std::vector<double> want = results[k].to_vector<double>(), have = results[k + 2].to_vector<double>();
      for (std::size_t i = 0; i < want.size(); ++i)
        EXPECT_TRUE(want[i] == have[i] || (std::isnan(want[i]) && std::isnan(have[i])))
            << channels << " channels, stride " << stride << ", result " << k << ", element " << i << ": " << have[i]
            << ", not " << want[i];
    }
  }
}

// Kernels, strides and dilations along one to three axes, with more channels than a thread makes: parts of a block of
// positions and of channels, and terms that fill no chunk.
TEST(CudaWide, ConvolutionWithManyChannelsEqualsTheCpus) {
  struct Problem {
    Shape x, weight;
    ConvOptions options;
  };
  const Problem problems[] = {
      {{2, 3, 40}, {9, 3, 5}, {.stride = 2, .padding = 3}},
      {{2, 5, 150}, {33, 5, 1}, {}},
      {{1, 6, 13, 21}, {17, 6, 3, 3}, {.stride = 2, .padding = 1}},
      {{2, 9, 12, 11}, {5, 9, 3, 3}, {.padding = 4, .dilation = 2}},
      {{2, 5, 23, 17}, {8, 5, 4, 2}, {.stride = 3, .padding = 2}},
      {{1, 16, 9, 9}, {16, 16, 1, 1}, {}},
      {{1, 16, 9, 9}, {6, 16, 9, 9}, {}},
      {{2, 5, 5, 7, 6}, {10, 5, 3, 3, 3}, {.stride = 2, .padding = 1}},
      {{1, 6, 4, 4, 35}, {70, 6, 2, 3, 3}, {.padding = 2, .dilation = 2}},
      {{0, 5, 9}, {8, 5, 3}, {}},
      {{3, 6, 7, 90}, {9, 6, 3, 3}, {.stride = 2}},
      {{2, 7, 16, 15}, {6, 7, 1, 1}, {.stride = 2}},
      {{2, 6, 17, 19}, {5, 6, 4, 5}, {.stride = {3, 2}, .padding = {0, 4}, .dilation = {2, 4}}},
      {{1, 5, 9, 30}, {5, 5, 2, 7}, {.stride = {5, 8}, .padding = 1}},
      {{1, 5, 12, 30}, {5, 5, 3, 3}, {.stride = {9, 2}, .padding = 1}},
      {{17, 33, 5, 5}, {6, 33, 3, 3}, {.stride = 2, .padding = 1}},
      {{2, 1, 20, 40}, {1, 1, 3, 3}, {.padding = 5, .dilation = 5}},
      {{2, 3, 20, 19}, {4, 3, 7, 7}, {.stride = 2, .padding = 3}},
  };
  for (const Problem& p : problems) {
    SCOPED_TRACE(p.x.str() + " " + p.weight.str());
    const auto convolve = [&](const Tensors& in) {
      Generator generator(7);
      const Tensor weight = to(randn(p.weight, generator, {.dtype = f32}), in[0].device());
      const Tensor bias = to(randn({p.weight[0]}, generator, {.dtype = f32}), in[0].device());
      if (p.x.rank() == 3) return conv1d_relu(in[0], weight, bias, p.options);
      if (p.x.rank() == 4) return conv2d_relu(in[0], weight, bias, p.options);
      return conv3d_relu(in[0], weight, bias, p.options);
    };
    expect_equal_devices(convolve, {p.x}, f32);
  }
}

// The second stride is too large for places of 32 bits.
TEST(CudaWide, PoolingWithAHugeStrideEqualsTheCpus) {
  for (const std::int64_t stride : {std::int64_t{2}, std::int64_t{1} << 30}) {
    expect_equal_devices(
        [&](const Tensors& in) { return max_pool2d(in[0], {.kernel = 3, .stride = stride, .padding = 1}); },
        {{2, 3, 9, 11}}, f32);
    expect_equal_devices(
        [&](const Tensors& in) { return avg_pool2d(in[0], {.kernel = 3, .stride = stride, .padding = 1}); },
        {{2, 3, 9, 11}}, f32);
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

// Heads of at most 16 columns: rows in packs, alone and with an odd width; more than one tile, full chunks of keys and rests.
TEST(CudaWide, NarrowAttentionEqualsTheCpus) {
  const std::vector<std::int64_t> queries = {70, 0, 5, 131, 1, 32, 64, 33}, keys = {33, 9, 0, 140, 64, 32, 1, 8};
  for (const bool causal : {false, true}) {
    SCOPED_TRACE(causal ? "causal" : "");
    const auto attend = [&](const Tensors& in) {
      const Ragged q = Ragged::from_lengths(in[0], queries), k = Ragged::from_lengths(in[1], keys);
      return scaled_dot_product_attention(q, k, k.with(in[2]), {.causal = causal}).values();
    };
    for (const auto& [width, value_width] : {std::pair{16, 16}, std::pair{8, 12}, std::pair{13, 16}, std::pair{4, 0}})
      expect_equal_devices(attend, {{336, 2, width}, {287, 2, width}, {287, 2, value_width}}, f32);
  }
}

// A mask over keys, over queries and keys, and of each head; parts of larger rows, at places where packs can begin and not.
TEST(CudaWide, NarrowAttentionWithMasksAndStridesEqualsTheCpus) {
  for (const std::int64_t first : {0, 1, 4})
    for (const Shape& shape : {Shape{70}, Shape{45, 70}, Shape{3, 45, 70}})
      for (const bool causal : {false, true}) {
        SCOPED_TRACE(std::to_string(first) + (causal ? " causal" : ""));
        const auto attend = [&](const Tensors& in) {
          Generator generator(7);
          const Tensor added = randn(shape, generator);
          const Tensor mask = to(where(added < 1.0, added, -INFINITY), in[0].device());
          const auto part = [&](const Tensor& x) { return transpose(narrow(x, 3, first, 8), 1, 2); };
          return scaled_dot_product_attention(part(in[0]), part(in[1]), part(in[2]), {.mask = mask, .causal = causal});
        };
        expect_equal_devices(attend, {{2, 45, 3, 16}, {2, 70, 3, 16}, {2, 70, 3, 16}}, f32);
      }
}

// With many rows a thread has two queries, and for a short sequence alone one.
TEST(CudaWide, ASequenceAloneHasTheBitsOfABatchInNarrowAttention) {
  const std::vector<std::int64_t> lengths = {200, 1, 31, 33, 64, 65, 97, 100};
  const std::int64_t heads = 4, rows = Offsets(lengths).total();
  Generator generator(11);
  Tensors all;  // q, k, v and dy
  for (int i = 0; i < 4; ++i) all.push_back(to(randn({rows, heads, 16}, generator), Device::cuda()));
  // The gradients and the result for the rows from `first` on, as sequences of these lengths.
  const auto results = [&](std::int64_t first, const std::vector<std::int64_t>& of) {
    Tensors in;
    for (const Tensor& x : all) in.push_back(narrow(x, 0, first, Offsets(of).total()));
    Tape tape;
    for (std::size_t i = 0; i < 3; ++i) tape.watch(in[i]);
    const Ragged q = Ragged::from_lengths(in[0], of);
    const Tensor y = scaled_dot_product_attention(q, q.with(in[1]), q.with(in[2])).values();
    Tensors made = tape.gradient(y, in[3], {in[0], in[1], in[2]});
    made.push_back(y);
    return made;
  };
  const Tensors batch = results(0, lengths);
  std::int64_t first = 0;
  for (const std::int64_t length : lengths) {
    const Tensors alone = results(first, {length});
    for (std::size_t k = 0; k < alone.size(); ++k)
      EXPECT_EQ(alone[k].to_vector<float>(), narrow(batch[k], 0, first, length).to_vector<float>())
          << length << " rows, result " << k;
    first += length;
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
  for (const auto& [dtype, more] : {std::pair{f32, 0}, std::pair{f32, 10}, std::pair{f64, 10}})
    for (const bool causal : {false, true})
      for (const double poison : {double{NAN}, double{INFINITY}}) {
        SCOPED_TRACE(std::string(name_of(dtype)) + (causal ? " causal " : " ") + std::to_string(poison));
        Generator generator(3);
        Tensors in, moved;
        for (const std::int64_t width : {10, 10, 8})
          in.push_back(randn({2, length, width + more}, generator, {.dtype = dtype}));
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
          if (!causal) {
            EXPECT_EQ(finite, want.size()) << "result " << k;
          } else if (k == 0 || k == 3) {
            EXPECT_EQ(finite * 7, want.size() * 4) << "result " << k;
          }
        }
      }
}

// Held by parts of a warp, warps and blocks, in packs and single elements, and longer; sums for the weights in registers, in
// shared memory and outside; the longest rows are cut.
TEST(CudaWide, NormalisedRowsOfAnyLengthEqualTheCpus) {
  for (const DType dtype : {f32, f64})
    for (const std::int64_t n :
         {5, 8, 12, 33, 64, 100, 256, 480, 512, 601, 1500, 3000, 6000, 9000, 16384, 16640, 17001}) {
      SCOPED_TRACE(std::string(name_of(dtype)) + " " + std::to_string(n));
      const std::int64_t rows = n < 40 ? 3000 / n : n < 1000 ? 70 : 3;
      expect_equal_devices([&](const Tensors& in) { return layer_norm(in[0], {n}, in[1], in[2]); },
                           {{rows, n}, {n}, {n}}, dtype);
      expect_equal_devices([&](const Tensors& in) { return in[0] + rms_norm(in[0], {n}, in[1]); }, {{rows, n}, {n}},
                           dtype);
    }
}

// Runs of channels for warps and blocks, in packs and single elements, whole and cut: of images without gaps, of such whose channels
// lie outermost, and of such that begin between packs.
TEST(CudaWide, ChannelsOfAnyLengthEqualTheCpus) {
  const auto norm = [](const Tensor& x, const Tensors& in) {
    return batch_norm(x, in[1], in[2] * in[2] + 1, in[3], in[4]);
  };
  for (const DType dtype : {f32, f64})
    for (const std::int64_t length : {8, 31, 64, 513, 1024, 20000, 40004}) {
      SCOPED_TRACE(std::string(name_of(dtype)) + " " + std::to_string(length));
      const std::int64_t n = length < 100 ? 70 : 2;
      const Shape numbers{3}, image{n, 3, length};
      const auto equal = [&](const Function& image_of, const Shape& memory) {
        expect_equal_devices([&](const Tensors& in) { return norm(image_of(in), in); },
                             {memory, numbers, numbers, numbers, numbers}, dtype);
      };
      equal([](const Tensors& in) { return in[0]; }, image);
      equal([](const Tensors& in) { return transpose(in[0], 0, 1); }, {3, n, length});
      equal([&](const Tensors& in) { return reshape(slice(in[0], 0, 1, 1 + image.size()), image); },
            {1 + image.size()});
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

// Rows of every kind: in tiles, held by parts of a warp, warps and blocks, in packs and single elements, and cut into pieces;
// numbers of rows that fill no warp and no block.
TEST(CudaWide, SoftmaxOfRowsOfAnyLengthEqualsTheCpus) {
  for (const DType dtype : {f32, f64})
    for (const std::int64_t n :
         {1,   2,   3,   4,    7,    10,   16,   17,   31,   32,   33,   64,    96,    127,   128,  256,
          300, 512, 700, 1000, 1024, 1025, 1028, 2048, 4099, 8192, 8196, 16384, 16385, 16388, 24577}) {
      SCOPED_TRACE(std::string(name_of(dtype)) + " " + std::to_string(n));
      const std::int64_t rows = n < 300 ? 70 : 3;
      const auto losses = [&](const Tensors& in) {
        const Tensor target = cast(arange(rows, {.device = in[0].device()}) * ((n - 1) / rows), n % 2 == 0 ? i32 : i64);
        return cross_entropy(in[0] * 3, target, {.reduction = Reduction::none, .ignore = 1});
      };
      expect_equal_devices([](const Tensors& in) { return softmax(in[0] * 2, 1, 0.7); }, {{rows, n}}, dtype);
      expect_equal_devices([](const Tensors& in) { return log_softmax(in[0]); }, {{rows, n}}, dtype);
      expect_equal_devices(losses, {{rows, n}}, dtype);
      const Tensor x = to(randn({rows, n}, {.dtype = dtype}), Device::cuda());
      Tape tape;
      tape.watch(x);
      EXPECT_EQ(losses({x}).to_vector<double>(), untaped([&] { return losses({x}); }).to_vector<double>());
    }
}

// Rows that begin between 16-byte boundaries, though their length would allow packs.
TEST(CudaWide, RowsThatAreNotAlignedEqualTheCpus) {
  for (const std::int64_t n : {4, 10, 16, 64, 260, 1024, 2048, 20000}) {
    SCOPED_TRACE(n);
    const std::int64_t rows = n < 100 ? 70 : 3;
    const auto shifted = [&](const Tensor& x) { return reshape(slice(x, 0, 1, 1 + rows * n), {rows, n}); };
    expect_equal_devices([&](const Tensors& in) { return softmax(shifted(in[0])); }, {{rows * n + 1}}, f32);
    expect_equal_devices([&](const Tensors& in) { return layer_norm(shifted(in[0]), {n}); }, {{rows * n + 1}}, f32);
  }
}

}  // namespace
}  // namespace reel
