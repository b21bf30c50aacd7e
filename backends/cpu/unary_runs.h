#pragma once

#include "reel/backends/cpu/run_elements.h"
#include "reel/core/ops.h"

namespace reel::cpu::REEL_CPU_ISA {

/// The inner loops of unary, y = f(x), and of unary_backward, dx = dy f'(saved), for kernels that are made of them.
Run unary_run(UnaryOp op, DType dtype);
Run unary_backward_run(UnaryOp op, DType dtype);

/// Those of gelu in f32 (gelu.h).
void gelu_run(const void* x, const void*, void* y, int64_t count);
void gelu_backward_run(const void* x, const void* dy, void* dx, int64_t count);
/// Those that write past the caches themselves, with vectors of AVX2 or more.
#if defined(__AVX2__)
inline constexpr bool kGeluStreams = true;
#else
inline constexpr bool kGeluStreams = false;
#endif
void gelu_streamed(const void* x, const void*, void* y, int64_t count);
void gelu_backward_streamed(const void* x, const void* dy, void* dx, int64_t count);

}  // namespace reel::cpu::REEL_CPU_ISA
