#include "reel/backends/cpu/cpu_ops.h"
#include "reel/backends/cpu/kernel.h"

namespace reel::cpu::REEL_CPU_ISA {

void CpuOps::murmur3(const Array&, std::uint32_t, const Array&) { __builtin_trap(); }

}  // namespace reel::cpu::REEL_CPU_ISA
