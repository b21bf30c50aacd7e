#include "reel/backends/cpu/cpu_ops.h"
#include "reel/backends/cpu/kernel.h"

namespace reel::cpu::REEL_CPU_ISA {

void CpuOps::pool(PoolOp, const Conv&, bool, const Array&, const Array&, const Array*) { __builtin_trap(); }
void CpuOps::pool_backward(PoolOp, const Conv&, bool, const Array&, const Array*, const Array&) { __builtin_trap(); }

}  // namespace reel::cpu::REEL_CPU_ISA
