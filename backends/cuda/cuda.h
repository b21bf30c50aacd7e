#pragma once

#include "reel/core/memory.h"
#include "reel/core/ops.h"
#include "reel/core/user_kernel.h"

/// What the rest of Reel sees of the CUDA backend: no CUDA header, one function. See docs/cuda.md.
namespace reel::cuda {

struct Library {
  const char* version;  // of the Reel that it was built from
  const void* core;     // where its reel::backend is: both sides must use one core
  /// How many GPUs, from the first on, can be used; `*missing` says why there are none, or no more.
  int (*device_count)(const char** missing);
  /// The backend of GPU number `index` < device_count. Throws DeviceError if it cannot be used.
  Ops& (*ops)(int index);
  /// Compiles and launches a user's kernel: core/user_kernel.h.
  void (*launch)(int index, const UserKernel& kernel, const KernelLaunch& launch, SourceLocation where);
  /// core/memory.h, of one GPU.
  reel::MemoryStats (*memory)(int index);
  void (*reset_peak)(int index);
  void (*release)(int index);
};

}  // namespace reel::cuda

/// Linked in (static libraries), or looked up in libreel-cuda.so.
extern "C" REEL_API const reel::cuda::Library* reel_cuda_ops();
