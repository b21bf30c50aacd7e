// Shapes that no row of the op-case table has and for which kernels go another way: results and gradients against the CPU.

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>

#include "reel/core/tape.h"
#include "reel/ops/attention.h"
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

}  // namespace
}  // namespace reel
