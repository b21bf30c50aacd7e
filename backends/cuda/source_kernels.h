#pragma once

#include "reel/backends/cuda/context.h"
#include "reel/backends/cuda/kernel_source.h"

namespace reel::cuda {

/// Launches a user's kernel on the GPU's stream. On a GPU: compiled by NVRTC (source_kernels.cpp); on the executor: the
/// function that a test has registered under the kernel's name (tests/cuda_on_cpu/source_kernels.cpp).
void launch_source(Context& context, const KernelSource& source, const KernelLaunch& launch, SourceLocation where);

}  // namespace reel::cuda
