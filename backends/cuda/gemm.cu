// Products. cuBLASLt thinks in columns: a row-major c = a b is the column-major c^T = b^T a^T of the same memory.

#include "reel/backends/cuda/kernel.h"
#include "reel/backends/cuda/product.h"

namespace reel::cuda {

namespace device {
namespace {

/// c [batch, m, n] with rows of ldc elements: c (or 0) + bias, relu; an element per thread and step.
template <class T>
__global__ void finish(T* c, const T* bias, bool relu, bool zero, int64_t m, int64_t n, int64_t ldc, int64_t batch,
                       int64_t stride) {
  for (int64_t i = first_unit(); i < batch * m * n; i += unit_step()) {
    const int64_t row = i / n, column = i - row * n, matrix = row / m;
    T* const to = c + matrix * stride + (row - matrix * m) * ldc + column;
    T value = zero ? T(0) : *to;
    if (bias != nullptr) value += bias[column];
    *to = relu && value <= T(0) ? T(0) : value;
  }
}

}  // namespace
}  // namespace device

void CudaOps::gemm(const Gemm& gemm) {
  if (gemm.m == 0 || gemm.n == 0 || gemm.batch == 0) return;
  // relu is not left to cuBLASLt: a NaN would become 0 there.
  const bool relu = gemm.epilogue == Epilogue::relu, none = gemm.k == 0;
  const bool fused = !none && !relu && fuses_bias(gemm.dtype);
  if (!none) {
    multiply(context_, {.m = gemm.n,
                        .n = gemm.m,
                        .k = gemm.k,
                        .batch = gemm.batch,
                        .dtype = gemm.dtype,
                        .trans_a = gemm.trans_b,
                        .trans_b = gemm.trans_a,
                        .a = gemm.b,
                        .b = gemm.a,
                        .c = gemm.c,
                        .lda = gemm.ldb,
                        .ldb = gemm.lda,
                        .ldc = gemm.ldc,
                        .stride_a = gemm.stride_b,
                        .stride_b = gemm.stride_a,
                        .stride_c = gemm.stride_c,
                        .bias = fused ? gemm.bias : nullptr,
                        .accumulate = gemm.accumulate});
  }
  const bool zero = none && !gemm.accumulate, rest = !fused && (gemm.bias != nullptr || relu);
  if (!zero && !rest) return;
  dispatch_floating(gemm.dtype, [&]<class T>() {
    launch(context_, "gemm", grid_for(context_, gemm.batch * gemm.m * gemm.n), &device::finish<T>,
           static_cast<T*>(gemm.c), static_cast<const T*>(gemm.bias), relu, zero, gemm.m, gemm.n, gemm.ldc, gemm.batch,
           gemm.stride_c);
  });
}

}  // namespace reel::cuda
