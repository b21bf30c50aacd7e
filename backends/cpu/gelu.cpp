#include "reel/backends/cpu/gelu.h"

#include "reel/backends/cpu/unary_runs.h"

namespace reel::cpu::REEL_CPU_ISA {

namespace {

__attribute__((noinline)) void forward(const void* x, void* y, int64_t count, bool past_caches) {
  run_gelu(count, static_cast<const float*>(x), static_cast<float*>(y), past_caches);
}

__attribute__((noinline)) void backward(const void* x, const void* dy, void* dx, int64_t count, bool past_caches) {
  run_gelu_backward(count, static_cast<const float*>(x), static_cast<const float*>(dy), static_cast<float*>(dx),
                    past_caches);
}

}  // namespace

void gelu_run(const void* x, const void*, void* y, int64_t count) { forward(x, y, count, false); }
void gelu_backward_run(const void* x, const void* dy, void* dx, int64_t count) { backward(x, dy, dx, count, false); }

void gelu_streamed(const void* x, const void*, void* y, int64_t count) { forward(x, y, count, true); }
void gelu_backward_streamed(const void* x, const void* dy, void* dx, int64_t count) {
  backward(x, dy, dx, count, true);
}

}  // namespace reel::cpu::REEL_CPU_ISA
