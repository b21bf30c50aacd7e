#include "reel/backends/cpu/cpu_ops.h"
#include "reel/backends/cpu/kernel.h"

namespace reel::cpu::REEL_CPU_ISA {

void CpuOps::attention(const Attention&, const Array&, const Array&, const Array&, const Array*, const Array&,
                       const Array&) {
  __builtin_trap();
}
void CpuOps::attention_backward(const Attention&, const Array&, const Array&, const Array&, const Array*, const Array&,
                                const Array&, const Array&, const Array&, const Array&, const Array&) {
  __builtin_trap();
}

}  // namespace reel::cpu::REEL_CPU_ISA
