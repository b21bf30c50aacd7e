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

constexpr std::size_t kSharedByDefault = 48 << 10;  // more must be asked for, kernel by kernel

int attribute(const Context& context, cudaDeviceAttr which) {
  int value = 0;
  check(cudaDeviceGetAttribute(&value, which, context.index()), "cudaDeviceGetAttribute");
  return value;
}

/// What was loaded, by source and GPU. Never unloaded: launches may be under way when the program ends.
struct Loaded {
  std::mutex mutex;
  std::map<std::pair<const KernelSource*, int>, cudaKernel_t> kernels;
};

cudaKernel_t loaded(const Context& context, const KernelSource& source, SourceLocation where) {
  static Loaded* const all = new Loaded;
  const std::lock_guard lock(all->mutex);
  cudaKernel_t& kernel = all->kernels[{&source, context.index()}];
  if (kernel != nullptr) return kernel;
  const int architecture = 10 * attribute(context, cudaDevAttrComputeCapabilityMajor) +
                           attribute(context, cudaDevAttrComputeCapabilityMinor);
  const auto compiled = compiled_kernel(source, architecture, where);
  cudaLibrary_t library = nullptr;
  check(cudaLibraryLoadData(&library, compiled->image.data(), nullptr, nullptr, 0, nullptr, nullptr, 0),
        "cudaLibraryLoadData");
  check(cudaLibraryGetKernel(&kernel, library, compiled->name.c_str()), "cudaLibraryGetKernel");
  return kernel;
}

}  // namespace

void launch_source(Context& context, const KernelSource& source, const KernelLaunch& launch, SourceLocation where) {
  context.use();
  const cudaKernel_t kernel = loaded(context, source, where);
  if (launch.shared_bytes > kSharedByDefault)
    check(cudaKernelSetAttributeForDevice(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                          static_cast<int>(launch.shared_bytes), context.index()),
          source.kernel.c_str());
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
