#pragma once

#include <cuda_runtime.h>

namespace reel::cuda {

/// Throws DeviceError "cuda: <call> must succeed, got <error>" unless it did. After an error that leaves the GPU unusable
/// for this process, every later call throws too and says which error that was.
void check(cudaError_t status, const char* call);

/// Throws if an earlier error left the GPU unusable.
void check_usable();

}  // namespace reel::cuda
