// Where a GPU has NVRTC.

#include "reel/tests/cuda_on_cpu/source_kernels.h"

#include <map>

#include "reel/backends/cuda/source_kernels.h"
#include "reel/backends/cuda/status.h"
#include "reel/core/error.h"

namespace cuda_on_cpu {

namespace {

struct Registered {
  void (*kernel)();
  Call call;
  std::string parameters;
};

std::map<std::string, Registered>& registered() {
  static auto* const all = new std::map<std::string, Registered>;
  return *all;
}

reel::cuda::KernelSource& last() {
  static auto* const source = new reel::cuda::KernelSource;
  return *source;
}

}  // namespace

const reel::cuda::KernelSource& last_source() { return last(); }

void register_source_kernel(const std::string& name, void (*kernel)(), Call call, const std::string& parameters) {
  registered()[name] = {kernel, call, parameters};
}

}  // namespace cuda_on_cpu

namespace reel::cuda {

void launch_source(Context& context, const KernelSource& source, const KernelLaunch& launch, SourceLocation where) {
  const auto found = cuda_on_cpu::registered().find(source.kernel);
  if (found == cuda_on_cpu::registered().end())
    throw Error(source.op + ": kernel " + source.kernel + " must be registered with the executor", where);
  if (found->second.parameters != source.parameters)
    throw Error(source.op + ": the kernel must be void " + source.kernel + "(" + source.parameters + "), got (" +
                    found->second.parameters + ")",
                where);
  cuda_on_cpu::last() = source;
  context.use();
  cudaLaunchConfig_t config;
  const auto size = [](auto n) { return static_cast<unsigned>(n); };
  config.gridDim = dim3(size(launch.blocks[0]), size(launch.blocks[1]), size(launch.blocks[2]));
  config.blockDim = dim3(size(launch.threads[0]), size(launch.threads[1]), size(launch.threads[2]));
  config.dynamicSmemBytes = launch.shared_bytes;
  config.stream = context.stream();
  std::vector<void*> addresses = addresses_of(launch);
  struct Body {
    cuda_on_cpu::Call call;
    void (*kernel)();
    void** arguments;
  } const body{found->second.call, found->second.kernel, addresses.data()};
  check(cuda_on_cpu::launch(
            config,
            [](const void* memory) {
              const Body& b = *static_cast<const Body*>(memory);
              b.call(b.kernel, b.arguments);
            },
            &body),
        source.kernel.c_str());
}

}  // namespace reel::cuda
