#include "reel/backends/cpu/gemm_plan.h"

namespace reel::cpu::REEL_CPU_ISA::product {

template void multiply<double>(const Gemm&);

}  // namespace reel::cpu::REEL_CPU_ISA::product
