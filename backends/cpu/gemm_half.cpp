#include "reel/backends/cpu/gemm_half.h"

#include "reel/backends/cpu/kernel.h"

namespace reel::cpu::REEL_CPU_ISA {

namespace {

/// `batch` matrices as they are stored.
Array matrices(const void* data, DType dtype, int64_t batch, int64_t rows, int64_t cols, int64_t leading,
               int64_t stride) {
  Array x;
  x.data = const_cast<void*>(data);
  x.dtype = dtype;
  x.shape = {batch, rows, cols};
  x.size = batch * rows * cols;
  x.strides[0] = stride;
  x.strides[1] = leading;
  x.strides[2] = 1;
  x.contiguous = leading == cols && stride == rows * cols;
  return x;
}

/// Room for the same in f32, without gaps.
class Wide {
 public:
  explicit Wide(const Array& x)
      : memory_(sizeof(float) * static_cast<std::size_t>(x.size)),
        array_(matrices(memory_.as<float>(), DType::f32, x.shape[0], x.shape[1], x.shape[2], x.shape[2],
                        x.shape[1] * x.shape[2])) {}

  const Array& array() const { return array_; }

 private:
  Scratch memory_;
  Array array_;
};

}  // namespace

void multiply_half(CpuOps& ops, const Gemm& gemm) {
  const auto stored = [&](const void* data, bool turned, int64_t rows, int64_t cols, int64_t leading, int64_t stride) {
    return matrices(data, gemm.dtype, stride == 0 ? 1 : gemm.batch, turned ? cols : rows, turned ? rows : cols, leading,
                    stride);
  };
  const bool with_bias = gemm.bias != nullptr;
  const Array a = stored(gemm.a, gemm.trans_a, gemm.m, gemm.k, gemm.lda, gemm.stride_a);
  const Array b = stored(gemm.b, gemm.trans_b, gemm.k, gemm.n, gemm.ldb, gemm.stride_b);
  const Array c = matrices(gemm.c, gemm.dtype, gemm.batch, gemm.m, gemm.n, gemm.ldc, gemm.stride_c);
  const Array bias = matrices(gemm.bias, gemm.dtype, 1, 1, with_bias ? gemm.n : 0, gemm.n, gemm.n);
  const Wide wide_a(a), wide_b(b), wide_c(c), wide_bias(bias);
  ops.copy(a, wide_a.array());
  ops.copy(b, wide_b.array());
  ops.copy(bias, wide_bias.array());
  if (gemm.accumulate) ops.copy(c, wide_c.array());

  Gemm wide = gemm;
  wide.dtype = DType::f32;
  wide.a = wide_a.array().data;
  wide.b = wide_b.array().data;
  wide.c = wide_c.array().data;
  wide.bias = with_bias ? wide_bias.array().data : nullptr;
  wide.lda = a.shape[2];
  wide.ldb = b.shape[2];
  wide.ldc = gemm.n;
  wide.stride_a = gemm.stride_a == 0 ? 0 : gemm.m * gemm.k;
  wide.stride_b = gemm.stride_b == 0 ? 0 : gemm.k * gemm.n;
  wide.stride_c = gemm.m * gemm.n;
  ops.gemm(wide);
  ops.copy(wide_c.array(), c);
}

}  // namespace reel::cpu::REEL_CPU_ISA
