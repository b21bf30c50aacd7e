// Slices of tensors whose axes lie in memory in another order: their gradients meet in one that lies there as the tensor does.

#include <gtest/gtest.h>

#include <functional>
#include <vector>

#include "reel/core/tape.h"
#include "reel/ops/arithmetic.h"
#include "reel/ops/convert.h"
#include "reel/ops/create.h"
#include "reel/ops/index.h"
#include "reel/ops/matmul.h"
#include "reel/ops/reduce.h"
#include "reel/ops/views.h"

namespace reel::test {
namespace {

using Function = std::function<Tensor(const Tensor&)>;

Tensor numbers(const Shape& shape, double first, DType dtype = f64) {
  return cast(reshape(arange(first, first + static_cast<double>(shape.size()), 1, {.dtype = f64}), shape), dtype);
}

// The gradient of f at x where x lies, which is watched itself.
Tensor gradient_of(const Function& f, const Tensor& x) {
  Tape tape;
  tape.watch(x);
  return tape.gradient(f(x), {x})[0];
}

std::vector<double> values(const Tensor& x) { return cast(x, f64).to_vector<double>(); }

std::vector<std::int64_t> strides(const Tensor& x) {
  std::vector<std::int64_t> all;
  for (int axis = 0; axis < x.rank(); ++axis) all.push_back(x.stride(axis));
  return all;
}

// Parts of an x [3, 4, 5, 2], some more than once, each times numbers of its own.
Tensor parts(const Tensor& x) {
  const auto weighed = [](const Tensor& part, double first) {
    return sum(cast(part, f64) * numbers(part.shape(), first));
  };
  return weighed(x[0], 1) + weighed(x[2], 3) + weighed(x[0], 2) + weighed(select(x, 2, -1), 5) +
         weighed(slice(x, 2, 1, 5, 2), 7) + weighed(narrow(x, 1, 1, 2), 4) + weighed(narrow(x, 1, 2, 0), 1);
}

TEST(PartGradient, IsThatOfARowMajorTensor) {
  for (const DType dtype : {f64, f32, bf16}) {
    const Tensor row_major = numbers({3, 4, 5, 2}, 1, dtype);
    const std::vector<double> want = values(gradient_of(parts, row_major));
    for (const Shape& order : {Shape{0, 1, 2, 3}, Shape{1, 2, 0, 3}, Shape{3, 2, 1, 0}, Shape{2, 0, 3, 1}}) {
      Shape inverse = order;
      for (int i = 0; i < order.rank(); ++i) inverse[static_cast<int>(order[i])] = i;
      const Tensor x = permute(contiguous(permute(row_major, order)), inverse);
      const Tensor dx = gradient_of(parts, x);
      EXPECT_EQ(values(dx), want) << order.str();
      EXPECT_EQ(strides(dx), strides(x)) << order.str();
    }
  }
}

TEST(PartGradient, OfOnePartIsZeroBesideIt) {
  const Tensor x = permute(numbers({4, 5, 3}, 1), {2, 0, 1});
  const Tensor of_row = gradient_of([](const Tensor& a) { return sum(a[1]); }, x);
  const Tensor of_step = gradient_of([](const Tensor& a) { return sum(slice(a, 1, 1, 4, 2)); }, x);
  for (std::int64_t i = 0; i < 3; ++i)
    for (std::int64_t j = 0; j < 4; ++j)
      for (std::int64_t k = 0; k < 5; ++k) {
        EXPECT_EQ(of_row[i][j][k].item(), i == 1 ? 1 : 0);
        EXPECT_EQ(of_step[i][j][k].item(), j % 2 == 1 ? 1 : 0);
      }
}

TEST(PartGradient, OfAnExpandedTensorIsRowMajor) {
  const Tensor x = expand(numbers({5}, 1), {3, 5});
  const Tensor dx = gradient_of([](const Tensor& a) { return sum(a[1] * a[2]); }, x);
  EXPECT_TRUE(dx.is_contiguous());
  EXPECT_EQ(values(dx), (std::vector<double>{0, 0, 0, 0, 0, 1, 2, 3, 4, 5, 1, 2, 3, 4, 5}));
}

TEST(PartGradient, OfNothingMayHaveLargeAxes) {
  const Tensor x = transpose(zeros({0, std::int64_t{1} << 40, std::int64_t{1} << 40}), 1, 2);
  EXPECT_EQ(gradient_of([](const Tensor& a) { return sum(narrow(a, 1, 3, 5)); }, x).shape(), x.shape());
}

// Kernels that add to a gradient in place want it row by row, whichever comes first.
TEST(PartGradient, MeetsThoseOfGatherAndProducts) {
  const Tensor index = tensor({3, 0, 2, 1, 1, 0}, {.dtype = i64});
  const Function gathered = [&](const Tensor& a) { return sum(gather(a, 1, reshape(index, {3, 2})) * 3); };
  const Function multiplied = [](const Tensor& a) { return sum(linear(numbers({2, 4}, 1), a, Tensor())); };
  const Function part = [](const Tensor& a) { return sum(a[1] * numbers({4}, 1)); };
  const Tensor x = transpose(numbers({4, 3}, 1), 0, 1), row_major = contiguous(x);
  for (const Function& other : {gathered, multiplied}) {
    const Function before = [&](const Tensor& a) { return other(a) + part(a); };
    const Function after = [&](const Tensor& a) { return part(a) + other(a); };
    const std::vector<double> want = values(gradient_of(other, row_major) + gradient_of(part, row_major));
    for (const Function& both : {before, after})
      for (const Tensor& at : {x, row_major}) EXPECT_EQ(values(gradient_of(both, at)), want);
  }
}

// As in attention: rows of three times the width, cut up into queries, keys and values of each head.
TEST(PartGradient, OfPackedProjectionsComesTogether) {
  const Tensor packed = numbers({2, 6, 3 * 8}, 1);
  const auto loss = [](const Tensor& a) {
    const Tensor qkv = permute(reshape(a, {2, 6, 3, 4, 2}), {2, 0, 3, 1, 4});
    return sum(qkv[0] * qkv[1]) + sum(qkv[2] * 2);
  };
  const Tensor dx = gradient_of(loss, packed);
  EXPECT_TRUE(dx.is_contiguous());
  for (std::int64_t b = 0; b < 2; ++b)
    for (std::int64_t row = 0; row < 6; ++row)
      for (std::int64_t e = 0; e < 8; ++e) {
        EXPECT_EQ(dx[b][row][e].item(), packed[b][row][e + 8].item());
        EXPECT_EQ(dx[b][row][e + 8].item(), packed[b][row][e].item());
        EXPECT_EQ(dx[b][row][e + 16].item(), 2);
      }
}

}  // namespace
}  // namespace reel::test
