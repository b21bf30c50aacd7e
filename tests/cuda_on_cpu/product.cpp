// Products by Eigen (of bf16 and f16 by loops), where a GPU has cuBLASLt.

#include "reel/backends/cuda/product.h"

#include <Eigen/Core>
#include <bit>

#include "reel/backends/cuda/status.h"
#include "reel/tests/cuda_on_cpu/executor.h"

namespace reel::cuda {

namespace {

template <class T>
using Stored = Eigen::Map<const Eigen::Matrix<T, Eigen::Dynamic, Eigen::Dynamic>, 0, Eigen::OuterStride<>>;

/// x to TF32, as a GPU's tensor cores take it: 10 bits of mantissa.
float in_tf32(float x) {
  const auto bits = std::bit_cast<std::uint32_t>(x);
  return std::isfinite(x) ? std::bit_cast<float>((bits + 0xfff + (bits >> 13 & 1)) & ~0x1fffu) : x;
}

template <class T>
void multiply_as(const Product& p) {
  using Matrix = Eigen::Matrix<T, Eigen::Dynamic, Eigen::Dynamic>;
  for (std::int64_t i = 0; i < p.batch; ++i) {
    const Stored<T> a(static_cast<const T*>(p.a) + i * p.stride_a, p.trans_a ? p.k : p.m, p.trans_a ? p.m : p.k,
                      Eigen::OuterStride<>(p.lda));
    const Stored<T> b(static_cast<const T*>(p.b) + i * p.stride_b, p.trans_b ? p.n : p.k, p.trans_b ? p.k : p.n,
                      Eigen::OuterStride<>(p.ldb));
    Eigen::Map<Matrix, 0, Eigen::OuterStride<>> c(static_cast<T*>(p.c) + i * p.stride_c, p.m, p.n,
                                                  Eigen::OuterStride<>(p.ldc));
    Matrix left = p.trans_a ? Matrix(a.transpose()) : Matrix(a);
    Matrix right = p.trans_b ? Matrix(b.transpose()) : Matrix(b);
    if constexpr (std::is_same_v<T, float>)
      if (p.tf32) left = left.unaryExpr(&in_tf32), right = right.unaryExpr(&in_tf32);
    Matrix result = left.lazyProduct(right);
    if (p.accumulate) result += c;
    if (p.bias != nullptr)
      result.colwise() += Eigen::Map<const Eigen::Vector<T, Eigen::Dynamic>>(static_cast<const T*>(p.bias), p.m);
    c = result;
  }
}

/// bf16 and f16, in f32.
template <class T>
void multiply_half(const Product& p) {
  const auto* const bias = static_cast<const T*>(p.bias);
  for (std::int64_t i = 0; i < p.batch; ++i) {
    const T* const a = static_cast<const T*>(p.a) + i * p.stride_a;
    const T* const b = static_cast<const T*>(p.b) + i * p.stride_b;
    T* const c = static_cast<T*>(p.c) + i * p.stride_c;
    for (std::int64_t col = 0; col < p.n; ++col)
      for (std::int64_t row = 0; row < p.m; ++row) {
        float sum = p.accumulate ? static_cast<float>(c[row + col * p.ldc]) : 0;
        for (std::int64_t k = 0; k < p.k; ++k)
          sum += static_cast<float>(a[p.trans_a ? k + row * p.lda : row + k * p.lda]) *
                 static_cast<float>(b[p.trans_b ? col + k * p.ldb : k + col * p.ldb]);
        c[row + col * p.ldc] = T(bias != nullptr ? sum + static_cast<float>(bias[row]) : sum);
      }
  }
}

}  // namespace

bool fuses_bias(DType dtype) { return dtype != DType::f64; }

void multiply(const Context& context, const Product& product) {
  context.use();
  if (!cuda_on_cpu::library_call(context.stream())) throw_failed("cublasLtMatmul", "CUBLAS_STATUS_EXECUTION_FAILED");
  const cuda_on_cpu::OnDevice on_device;
  if (product.dtype == DType::bf16) multiply_half<bfloat16>(product);
  else if (product.dtype == DType::f16) multiply_half<float16>(product);
  else if (product.dtype == DType::f32) multiply_as<float>(product);
  else multiply_as<double>(product);
}

}  // namespace reel::cuda
