#include "reel/backends/cpu/cpu_ops.h"
#include "reel/backends/cpu/kernel.h"

namespace reel::cpu::REEL_CPU_ISA {

void CpuOps::sort(const Array&, int, bool, const Array&, const Array&) { __builtin_trap(); }
std::int64_t CpuOps::nonzero(const Array&, const Array&) { __builtin_trap(); }
void CpuOps::segment_sort(const Array&, const Segments&, bool, const Array&, const Array&) { __builtin_trap(); }

}  // namespace reel::cpu::REEL_CPU_ISA
