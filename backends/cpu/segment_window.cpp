#include "reel/backends/cpu/cpu_ops.h"
#include "reel/backends/cpu/kernel.h"

namespace reel::cpu::REEL_CPU_ISA {

void CpuOps::segment_window(const Array&, const Segments&, std::int64_t, const Array&) { __builtin_trap(); }
void CpuOps::segment_window_backward(const Array&, const Segments&, std::int64_t, const Array&) { __builtin_trap(); }

}  // namespace reel::cpu::REEL_CPU_ISA
