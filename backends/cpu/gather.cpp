#include "reel/backends/cpu/cpu_ops.h"
#include "reel/backends/cpu/kernel.h"

namespace reel::cpu::REEL_CPU_ISA {

void CpuOps::gather(const Array&, const Array&, int, const Array&) { __builtin_trap(); }
void CpuOps::scatter_add(const Array&, const Array&, int, const Array&) { __builtin_trap(); }

}  // namespace reel::cpu::REEL_CPU_ISA
