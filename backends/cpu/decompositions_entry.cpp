#include "reel/backends/cpu/cpu_ops.h"
#include "reel/backends/cpu/kernel.h"

namespace reel::cpu::REEL_CPU_ISA {

std::int64_t CpuOps::cholesky(const Array&, const Array&) { __builtin_trap(); }
void CpuOps::triangular_solve(const Array&, const Array&, bool, bool, bool, const Array&) { __builtin_trap(); }
void CpuOps::invert(const Array&, const Array*, const Array&, const Array&) { __builtin_trap(); }

}  // namespace reel::cpu::REEL_CPU_ISA
