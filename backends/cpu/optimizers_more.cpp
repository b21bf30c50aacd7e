#include "reel/backends/cpu/cpu_ops.h"
#include "reel/backends/cpu/kernel.h"

namespace reel::cpu::REEL_CPU_ISA {

void CpuOps::rmsprop(const RmspropRange*, std::int64_t, const Array&, const Array&, const Array&, const Array*,
                     const Array*) {
  __builtin_trap();
}
void CpuOps::adagrad(const AdagradRange*, std::int64_t, const Array&, const Array&, const Array&) { __builtin_trap(); }
void CpuOps::ema(const Array&, double, const Array&) { __builtin_trap(); }

}  // namespace reel::cpu::REEL_CPU_ISA
