// Shapes that no row of the op-case table has and for which kernels go another way: results and gradients against the CPU.

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>

#include "reel/core/tape.h"
#include "reel/ops/arithmetic.h"
#include "reel/ops/attention.h"
#include "reel/ops/convert.h"
#include "reel/ops/create.h"
#include "reel/ops/normalize.h"
#include "reel/ops/softmax.h"
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
      expect_equal_devices([&](const Tensors& in) { return rms_norm(in[0], {n}, in[1]); }, {{rows, n}, {n}}, dtype);
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
