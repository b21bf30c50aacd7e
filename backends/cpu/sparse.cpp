#include "reel/backends/cpu/cpu_ops.h"
#include "reel/backends/cpu/kernel.h"

namespace reel::cpu::REEL_CPU_ISA {

void CpuOps::segment_gather(const Array&, const Array&, const Array*, const Segments&, bool, const Array&) {
  __builtin_trap();
}
void CpuOps::segment_gather_backward_weight(const Array&, const Array&, const Array&, const Segments&, bool,
                                            const Array&) {
  __builtin_trap();
}
void CpuOps::segment_gather_backward_table(const Array&, const Array&, const Array*, const Segments&, bool,
                                           const Array&) {
  __builtin_trap();
}

}  // namespace reel::cpu::REEL_CPU_ISA
