// bf16 and f16 on CUDA: conversions and products are the CPU's, bit for bit where both round once, and each row of the
// op-case table is right or refused.

#include "reel/ops/matmul.h"
#include "reel/ops/order.h"
#include "reel/ops/reduce.h"
#include "reel/ops/unary.h"
#include "reel/ops/views.h"
#include "reel/tests/cuda_on_cpu/sizes.h"
#include "reel/tests/expect.h"
#include "reel/tests/ops/half_rows.h"

namespace reel {
namespace {

class CudaHalf : public CudaSizes {};

constexpr DType kTypes[] = {f32, f64, bf16, f16, i32, i64, u8, bool8};

// Every pattern of 16 bits, as the device sees it.
Tensor patterns(DType dtype, Device device) {
  if (dtype == bf16) {
    std::vector<bfloat16> all(1 << 16);
    for (std::size_t i = 0; i < all.size(); ++i) all[i].bits = static_cast<std::uint16_t>(i);
    return to(from_vector(all, {256, 256}), device);
  }
  std::vector<float16> all(1 << 16);
  for (std::size_t i = 0; i < all.size(); ++i) all[i].bits = static_cast<std::uint16_t>(i);
  return to(from_vector(all, {256, 256}), device);
}

TEST_F(CudaHalf, ConversionsAreTheCpus) {
  for (const DType dtype : {bf16, f16}) {
    const auto from = [&](Device device) {
      Tensors results;
      const Tensor x = patterns(dtype, device);
      for (const DType other : kTypes) {
        results.push_back(cast(x, other));
        results.push_back(cast(transpose(x), other));
      }
      return results;
    };
    expect_equal_devices(from, 0);
    const auto into = [&](Device device) {
      Tensors results;
      const Tensor x = normal({33, 70}, f64, device) * 300;
      for (const DType other : kTypes) {
        results.push_back(cast(cast(x, other), dtype));
        results.push_back(cast(transpose(cast(x, other)), dtype));
      }
      return results;
    };
    expect_equal_devices(into, 0);
  }
}

TEST_F(CudaHalf, ElementsAreMoved) {
  for (const DType dtype : {bf16, f16}) {
    const auto moved = [&](Device device) {
      const Tensor x = normal({70, 130}, dtype, device);
      Tensor filled = zeros({5, 7}, {.dtype = dtype, .device = device});
      transpose(filled)[2].fill_(0.1);
      return Tensors{contiguous(transpose(x)),
                     contiguous(slice(x, 1, 1, 130, 2)),
                     concatenate({x, slice(x, 0, 1, 3)}, 0),
                     clone(slice(x, 1, 3, 11)),
                     filled,
                     full({9}, -1e39, {.dtype = dtype, .device = device})};
    };
    expect_equal_devices(moved, 0);
  }
}

// The CPU adds up in another order: half a unit in the last place of bf16 or f16 hides most of that, but not all.
TEST_F(CudaHalf, ProductsAndTheirGradients) {
  for (const DType dtype : {bf16, f16}) {
    const auto products = [&](Device device) {
      const Tensor x = normal({3, 33, 31}, dtype, device, 1), w = normal({17, 31}, dtype, device, 2),
                   bias = normal({17}, dtype, device, 4), m = normal({3, 31, 9}, dtype, device, 5);
      Tape tape;
      for (const Tensor* leaf : {&x, &w, &bias, &m}) tape.watch(*leaf);
      const Tensor y = linear(x, w, bias, Epilogue::relu), z = matmul(x, m), plain = linear(x, w, bias);
      const Tensor nothing = linear(zeros({2, 0}, {.dtype = dtype, .device = device}),
                                    zeros({17, 0}, {.dtype = dtype, .device = device}), bias, Epilogue::relu);
      const Tensor loss = sum(square(cast(y, f32))) + sum(square(cast(z, f32)));
      Tensors results = tape.gradient(loss, {x, w, bias, m});
      for (const Tensor& result : {y, z, plain, nothing}) results.push_back(result);
      for (const Tensor& result : results) EXPECT_EQ(result.dtype(), dtype);
      return results;
    };
    expect_equal_devices(products, dtype == bf16 ? 0x1p-6 : 0x1p-9);
  }
}

TEST_F(CudaHalf, AReluKeepsNaNAndTheBiasIsRoundedWithTheSum) {
  const Tensor nan = to(tensor({NAN, 1}, {1, 2}, {.dtype = bf16}), Device::cuda());
  EXPECT_TRUE(std::isnan(linear(nan, nan, {}, Epilogue::relu).item()));
  // 1 + 2^-8 is a tie of bf16: alone it is rounded to 1, with the bias the sum is above the tie.
  const Tensor x = to(tensor({1, 0x1p-8}, {1, 2}, {.dtype = bf16}), Device::cuda());
  const Tensor one = to(ones({1, 2}, {.dtype = bf16}), Device::cuda());
  const Tensor bias = to(tensor({0x1p-12}, {.dtype = bf16}), Device::cuda());
  for (const Epilogue epilogue : {Epilogue::none, Epilogue::relu}) {
    EXPECT_EQ(linear(x, one, {}, epilogue).item(), 1);
    EXPECT_EQ(linear(x, one, bias, epilogue).item(), 1 + 0x1p-7);
  }
}

TEST_F(CudaHalf, EveryRowOfTheTableIsRightOrRefused) {
  int taken = 0;
  for (const test::OpCase& row : test::op_cases())
    for (const DType dtype : {bf16, f16}) taken += test::check_half_row(row, dtype, Device::cuda());
  EXPECT_GT(taken, 60);
}

TEST_F(CudaHalf, WhatIsRefusedNamesTheOp) {
  const Tensor x = ones({2, 3}, {.dtype = f16, .device = Device::cuda()});
  EXPECT_THROW_WITH(x + x, DTypeError, "add: ", "got f16; cast to f32 first", "half_test.cpp");
  EXPECT_THROW_WITH(sort(x), DTypeError, "sort: ", "got f16; cast to f32 first", "half_test.cpp");
}

}  // namespace
}  // namespace reel
