#include "reel/backends/cpu/cpu_ops.h"
#include "reel/backends/cpu/kernel.h"

namespace reel::cpu::REEL_CPU_ISA {

void CpuOps::normalize(const Array&, bool, double, const Array*, const Array*, const Array&, const Array*,
                       const Array&) {
  __builtin_trap();
}
void CpuOps::normalize_backward(const Array&, bool, const Array*, const Array*, const Array&, const Array&,
                                const Array*, const Array*, const Array*) {
  __builtin_trap();
}

}  // namespace reel::cpu::REEL_CPU_ISA
