// Users' kernels on a GPU: compiled for it, loaded once, launched on its stream.

#include "reel/backends/cuda/source_kernels.h"

#include <cuda_runtime.h>

#include <map>
#include <mutex>
#include <utility>

#include "reel/backends/cuda/kernel_cache.h"
#include "reel/backends/cuda/status.h"

namespace reel::cuda {

namespace {

int attribute(const Context& context, cudaDeviceAttr which) {
  int value = 0;
  check(cudaDeviceGetAttribute(&value, which, context.index()), "cudaDeviceGetAttribute");
  return value;
}

struct Kernel {
  cudaKernel_t kernel = nullptr;
  std::size_t shared_bytes = 0;  // that it may have beside those of fixed size
};

/// What was loaded, by source and GPU. Never unloaded: launches may be under way when the program ends.
struct Loaded {
  std::mutex mutex;
  std::map<std::pair<const KernelSource*, int>, Kernel> kernels;
};

void load(cudaKernel_t& kernel, const Context& context, const KernelSource& source, SourceLocation where) {
  const int architecture = 10 * attribute(context, cudaDevAttrComputeCapabilityMajor) +
                           attribute(context, cudaDevAttrComputeCapabilityMinor);
  const auto compiled = compiled_kernel(source, architecture, where);
  cudaLibrary_t library = nullptr;
  check(cudaLibraryLoadData(&library, compiled->image.data(), nullptr, nullptr, 0, nullptr, nullptr, 0),
        "cudaLibraryLoadData");
  check(cudaLibraryGetKernel(&kernel, library, compiled->name.c_str()), "cudaLibraryGetKernel");
}

/// Ready for a launch with so much shared memory. What a kernel may have of it is only ever raised: another thread's launch may be
/// next. (What it has without asking is 48 KiB less its shared arrays of fixed size.)
cudaKernel_t loaded(const Context& context, const KernelSource& source, std::size_t shared_bytes,
                    SourceLocation where) {
  static Loaded* const all = new Loaded;
  const std::lock_guard lock(all->mutex);
  Kernel& found = all->kernels[{&source, context.index()}];
  if (found.kernel == nullptr) load(found.kernel, context, source, where);
  if (shared_bytes > found.shared_bytes) {
    check(cudaKernelSetAttributeForDevice(found.kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                          static_cast<int>(shared_bytes), context.index()),
          source.kernel.c_str());
    found.shared_bytes = shared_bytes;
  }
  return found.kernel;
}

}  // namespace

void launch_source(Context& context, const KernelSource& source, const KernelLaunch& launch, SourceLocation where) {
  context.use();
  const cudaKernel_t kernel = loaded(context, source, launch.shared_bytes, where);
  const auto size = [](auto n) { return static_cast<unsigned>(n); };
  cudaLaunchConfig_t config = {};
  config.gridDim = dim3(size(launch.blocks[0]), size(launch.blocks[1]), size(launch.blocks[2]));
  config.blockDim = dim3(size(launch.threads[0]), size(launch.threads[1]), size(launch.threads[2]));
  config.dynamicSmemBytes = launch.shared_bytes;
  config.stream = context.stream();
  check(cudaLaunchKernelExC(&config, reinterpret_cast<const void*>(kernel), addresses_of(launch).data()),
        source.kernel.c_str());
}

}  // namespace reel::cuda
