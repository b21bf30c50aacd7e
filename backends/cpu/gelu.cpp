#include "reel/backends/cpu/gelu.h"

#include "reel/backends/cpu/unary_runs.h"

namespace reel::cpu::REEL_CPU_ISA {

void gelu_run(const void* x, const void*, void* y, int64_t count) {
  run_gelu(count, static_cast<const float*>(x), static_cast<float*>(y));
}

void gelu_backward_run(const void* x, const void* dy, void* dx, int64_t count) {
  run_gelu_backward(count, static_cast<const float*>(x), static_cast<const float*>(dy), static_cast<float*>(dx));
}

}  // namespace reel::cpu::REEL_CPU_ISA
