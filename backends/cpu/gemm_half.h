#pragma once

#include "reel/backends/cpu/cpu_ops.h"

namespace reel::cpu::REEL_CPU_ISA {

/// A product of bf16 or f16: of f32 copies of the operands, by ops.gemm, rounded once. So its bits depend on the batch and on
/// the number of threads as little as those of the f32 product do.
void multiply_half(CpuOps& ops, const Gemm& gemm);

}  // namespace reel::cpu::REEL_CPU_ISA
