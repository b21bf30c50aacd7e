// The matrix product, in layers: a tile of c in registers (gemm_kernel.h), a block of c from operands in place or packed
// (gemm_pack.h, gemm_block.h; gemm_dot.h for few rows), and the plan (gemm_plan.h). One translation unit per element type;
// bf16 and f16 are multiplied as f32 (gemm_half.h).

#include "reel/backends/cpu/cpu_ops.h"
#include "reel/backends/cpu/gemm_half.h"
#include "reel/backends/cpu/gemm_plan.h"

namespace reel::cpu::REEL_CPU_ISA {

namespace product {
extern template void multiply<double>(const Gemm&);  // gemm_f64.cpp
}

void CpuOps::gemm(const Gemm& gemm) {
  if (gemm.m == 0 || gemm.n == 0 || gemm.batch == 0) return;
  if (gemm.dtype == DType::f32) {
    product::multiply<float>(gemm);
  } else if (is_half(gemm.dtype)) {
    multiply_half(*this, gemm);
  } else {
    product::multiply<double>(gemm);
  }
}

}  // namespace reel::cpu::REEL_CPU_ISA
