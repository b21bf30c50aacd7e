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

// --- products ---------------------------------------------------------------------------------------------------------------

struct Operands {
  Tensor x, w, bias, m, dy, dz;
  Operands(DType dtype, Device device)
      : x(normal({3, 33, 31}, dtype, device, 1)),
        w(normal({17, 31}, dtype, device, 2)),
        bias(normal({17}, dtype, device, 4)),
        m(normal({3, 31, 9}, dtype, device, 5)),
        dy(normal({3, 33, 17}, dtype, device, 6)),
        dz(normal({3, 33, 9}, dtype, device, 7)) {}
  Tensors all() const { return {x, w, bias, m, dy, dz}; }
};

constexpr int kLongest = 100;  // terms of an element: 99 rows, a bias

// Each result is one sum of products of operands that every device has alike: gradients get dy and dz, as one that came
// from a result would carry its rounding on.
Tensors products(const Tensors& in, Epilogue epilogue) {
  const Tensor &x = in[0], &w = in[1], &bias = in[2], &m = in[3];
  Tensors results;
  {
    Tape tape;
    for (const Tensor* leaf : {&x, &w, &bias}) tape.watch(*leaf);
    results = {linear(x, w, bias, epilogue)};
    for (const Tensor& dx : tape.gradient(results[0], in[4], {x, w, bias})) results.push_back(dx);
  }
  Tape tape;
  for (const Tensor* leaf : {&x, &m}) tape.watch(*leaf);
  const Tensor z = matmul(x, m);
  results.push_back(z);
  for (const Tensor& dx : tape.gradient(z, in[5], {x, m})) results.push_back(dx);
  return results;
}

// How far the elements of `got` are from the exact ones, as a part of what a sum in f32 that is rounded once may be: half a unit
// in the element's own last place, and what f32 loses, which goes by the sum of the absolute terms in whatever order they
// are added up. What is lost by rounding anything between, products or partial sums, goes by those terms' size instead,
// and is far more where they cancel.
double worst_part(const Tensor& got, const Tensor& exact, const Tensor& magnitude) {
  const double half_unit = got.dtype() == bf16 ? 0x1p-8 : 0x1p-11;
  const std::vector<double> y = got.to_vector<double>(), want = exact.to_vector<double>();
  const std::vector<double> terms = magnitude.to_vector<double>();
  double worst = 0;
  for (std::size_t i = 0; i < y.size(); ++i) {
    const double bound = half_unit * std::abs(want[i]) + kLongest * 0x1p-23 * terms[i];
    if (y[i] != want[i]) worst = std::max(worst, std::abs(y[i] - want[i]) / bound);
    if (std::isnan(y[i])) return INFINITY;
  }
  return worst;
}

Tensors in_f64(const Tensors& xs, bool absolute) {
  Tensors wide;
  for (const Tensor& x : xs) wide.push_back(absolute ? abs(cast(x, f64)) : cast(x, f64));
  return wide;
}

TEST_F(CudaHalf, ProductsAndTheirGradientsAreAddedUpInF32AndRoundedOnce) {
  for (const DType dtype : {bf16, f16})
    for (const Epilogue epilogue : {Epilogue::none, Epilogue::relu}) {
      const Tensors operands = Operands(dtype, Device::cpu()).all();
      const Tensors exact = products(in_f64(operands, false), epilogue);
      const Tensors magnitudes = products(in_f64(operands, true), Epilogue::none);
      const auto call = [&](Device device) {
        Tensors results = products(Operands(dtype, device).all(), epilogue);
        for (std::size_t k = 0; k < exact.size(); ++k) {
          EXPECT_EQ(results[k].dtype(), dtype);
          EXPECT_LE(worst_part(results[k], exact[k], magnitudes[k]), 1) << device.name() << ", result " << k;
        }
        return results;
      };
      expect_equal_devices(call, dtype == bf16 ? 0x1p-7 : 0x1p-10);  // the two may round to either side
    }
}

// The chain of products and sums, each rounded to T.
template <class T>
Tensor multiplied_in(const Tensor& a, const Tensor& b, DType dtype) {
  const std::int64_t m = a.shape()[0], k = a.shape()[1], n = b.shape()[1];
  const std::vector<float> x = a.to_vector<float>(), y = b.to_vector<float>();
  std::vector<float> c;
  for (std::int64_t i = 0; i < m; ++i)
    for (std::int64_t j = 0; j < n; ++j) {
      T sum(0.0F);
      for (std::int64_t p = 0; p < k; ++p) {
        const T product(x[static_cast<std::size_t>(i * k + p)] * y[static_cast<std::size_t>(p * n + j)]);
        sum = T(static_cast<float>(sum) + static_cast<float>(product));
      }
      c.push_back(static_cast<float>(sum));
    }
  return cast(from_vector(c, {m, n}), dtype);
}

// The bound above is worth something: a sum that was not in f32 is well beyond it, and so are two halves of one that were
// rounded before they met.
TEST_F(CudaHalf, ASumInHalfWouldBeFound) {
  for (const DType dtype : {bf16, f16}) {
    const Tensor a = normal({33, 31}, dtype, Device::cpu(), 1), b = normal({31, 9}, dtype, Device::cpu(), 2);
    const Tensor exact = matmul(cast(a, f64), cast(b, f64)), magnitude = matmul(abs(cast(a, f64)), abs(cast(b, f64)));
    EXPECT_LE(worst_part(matmul(a, b), exact, magnitude), 1);
    const Tensor narrow = dtype == bf16 ? multiplied_in<bfloat16>(a, b, bf16) : multiplied_in<float16>(a, b, f16);
    EXPECT_GT(worst_part(narrow, exact, magnitude), 2);
    const Tensor halves = cast(matmul(slice(a, 1, 0, 16), slice(b, 0, 0, 16)), f32) +
                          cast(matmul(slice(a, 1, 16, 31), slice(b, 0, 16, 31)), f32);
    EXPECT_GT(worst_part(cast(halves, dtype), exact, magnitude), 2);
  }
}

// Two gradients of one tensor meet: each is rounded, then their sum.
TEST_F(CudaHalf, GradientsOfOneTensorAreAddedUpAsTheCpuDoes) {
  for (const DType dtype : {bf16, f16}) {
    const auto call = [&](Device device) {
      const Operands in(dtype, device);
      Tape tape;
      tape.watch(in.x);
      const Tensor y = linear(in.x, in.w), z = matmul(in.x, in.m);
      const Tensor both = sum(cast(y, f32) * cast(in.dy, f32)) + sum(cast(z, f32) * cast(in.dz, f32));
      const Tensor dx = tape.gradient(both, {in.x})[0];
      const Tensor from_y = matmul(in.dy, in.w), from_z = matmul(in.dz, transpose(in.m));
      EXPECT_EQ(dx.dtype(), dtype);
      EXPECT_EQ(dx.to_vector<double>(), cast(cast(from_y, f32) + cast(from_z, f32), dtype).to_vector<double>());
      return Tensors{};
    };
    expect_equal_devices(call, 0);
  }
}

TEST_F(CudaHalf, AProductOfNothingIsTheBias) {
  for (const DType dtype : {bf16, f16}) {
    const auto call = [&](Device device) {
      const TensorOptions options{.dtype = dtype, .device = device};
      return Tensors{
          linear(zeros({2, 0}, options), zeros({17, 0}, options), normal({17}, dtype, device), Epilogue::relu)};
    };
    expect_equal_devices(call, 0);
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

// Of a product that is not a small one: cuBLASLt's. A part of a tensor need not begin where packs do.
TEST_F(CudaHalf, ABiasMayBeginAnywhere) {
  for (const DType dtype : {bf16, f16, f32, f64})
    for (const std::int64_t first : {1, 2, 3}) {
      const auto call = [&](Device device) {
        const Tensor bias = slice(normal({516}, dtype, device, 5), 0, first, first + 512);
        return Tensors{linear(normal({512, 16}, dtype, device), normal({512, 16}, dtype, device, 4), bias)};
      };
      expect_equal_devices(call, dtype == bf16 ? 0x1p-7 : dtype == f16 ? 0x1p-10 : dtype == f32 ? 2e-5 : 1e-13, false);
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
