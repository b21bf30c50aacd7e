#include "reel/backends/cpu/cpu_ops.h"
#include "reel/backends/cpu/kernel.h"

namespace reel::cpu::REEL_CPU_ISA {

void CpuOps::gated(GateOp, const Array&, const Array&) { __builtin_trap(); }
void CpuOps::gated_backward(GateOp, const Array&, const Array&, const Array&) { __builtin_trap(); }

}  // namespace reel::cpu::REEL_CPU_ISA
