#include "reel/backends/cpu/cpu_ops.h"
#include "reel/backends/cpu/kernel.h"

namespace reel::cpu::REEL_CPU_ISA {

void CpuOps::random_gamma(const Array&, const PhiloxState&, const Array&) { __builtin_trap(); }
void CpuOps::random_poisson(const Array&, const PhiloxState&, const Array&) { __builtin_trap(); }

}  // namespace reel::cpu::REEL_CPU_ISA
