#include "reel/backends/cpu/cpu_ops.h"
#include "reel/backends/cpu/kernel.h"

namespace reel::cpu::REEL_CPU_ISA {

void CpuOps::scan(ScanOp, const Array&, int, bool, bool, const Array&) { __builtin_trap(); }
void CpuOps::segment_scan(ScanOp, const Array&, const Segments&, bool, bool, const Array&) { __builtin_trap(); }

}  // namespace reel::cpu::REEL_CPU_ISA
