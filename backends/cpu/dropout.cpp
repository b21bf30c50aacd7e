#include "reel/backends/cpu/cpu_ops.h"
#include "reel/backends/cpu/kernel.h"

namespace reel::cpu::REEL_CPU_ISA {

void CpuOps::dropout(const Array&, double, const PhiloxState&, const Array&) { __builtin_trap(); }

}  // namespace reel::cpu::REEL_CPU_ISA
