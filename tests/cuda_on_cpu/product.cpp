// Products by Eigen, where a GPU has cuBLASLt.

#include "reel/backends/cuda/product.h"

#include <Eigen/Core>

#include "reel/tests/cuda_on_cpu/executor.h"

namespace reel::cuda {

namespace {

template <class T>
using Stored = Eigen::Map<const Eigen::Matrix<T, Eigen::Dynamic, Eigen::Dynamic>, 0, Eigen::OuterStride<>>;

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
    const Matrix left = p.trans_a ? Matrix(a.transpose()) : Matrix(a);
    const Matrix right = p.trans_b ? Matrix(b.transpose()) : Matrix(b);
    Matrix result = left.lazyProduct(right);
    if (p.accumulate) result += c;
    if (p.bias != nullptr)
      result.colwise() += Eigen::Map<const Eigen::Vector<T, Eigen::Dynamic>>(static_cast<const T*>(p.bias), p.m);
    c = result;
  }
}

}  // namespace

bool fuses_bias(DType dtype) { return dtype == DType::f32; }

void multiply(const Context& context, const Product& product) {
  context.use();
  const cuda_on_cpu::OnDevice on_device;
  if (product.dtype == DType::f32) multiply_as<float>(product);
  else multiply_as<double>(product);
}

}  // namespace reel::cuda
