#pragma once

#include <cuda_runtime.h>

#include <string>

namespace reel::cuda {

inline constexpr int kMostGpus = 128;

/// Makes GPU `index` < kMostGpus the calling thread's, for the runtime and for what `check` tells. Throws DeviceError if an
/// earlier error left it unusable, or if this process was forked from one that had used CUDA before.
void use_gpu(int index);

/// To be called before CUDA is: notes from now on when the program begins to end, and when it is forked.
void watch_process();
/// Whether CUDA may no longer be called: the program has begun to end, and the runtime may have ended before, or this is a
/// forked process. Memory need not be given back then.
bool is_over();

/// Throws DeviceError "cuda:<index>: <call> must succeed, got <error>" unless it did; the index is that of the GPU that the
/// thread uses. After an error that leaves a GPU unusable for this process, every later call to it throws too and says
/// which error that was.
void check(cudaError_t status, const char* call);

/// Throws DeviceError "cuda:<index>: <call> must succeed, got <got>", for libraries whose statuses are their own.
[[noreturn]] void throw_failed(const char* call, const std::string& got);

}  // namespace reel::cuda
