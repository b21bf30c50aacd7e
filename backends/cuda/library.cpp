// The one symbol through which the rest of Reel reaches this backend.

#include <atomic>
#include <limits>
#include <memory>
#include <mutex>
#include <string>

#include "reel/backends/cuda/cuda.h"
#include "reel/backends/cuda/cuda_ops.h"
#include "reel/backends/cuda/launch.h"
#include "reel/backends/cuda/source_kernels.h"
#include "reel/backends/cuda/status.h"
#include "reel/core/error.h"

namespace reel::cuda {

void MissingOps::missing(const char* entry) { throw DeviceError(std::string(entry) + ": not on CUDA yet"); }

void* CudaOps::allocate(std::size_t bytes) {
  context_.use();
  return bytes == 0 ? nullptr : context_.memory().allocate(bytes);
}

void CudaOps::deallocate(void* block, std::size_t bytes) noexcept { context_.memory().deallocate(block, bytes); }

void CudaOps::from_host(const void* host, void* device, std::int64_t bytes) { context_.from_host(host, device, bytes); }

void CudaOps::synchronize() { context_.synchronize(); }

void CudaOps::to_host(const void* device, void* host, std::int64_t bytes) { context_.to_host(device, host, bytes); }

namespace {

/// The CudaOps of each GPU, made when it is first asked for. Never destroyed: tensors may outlive every static object.
struct Backends {
  std::mutex mutex;
  std::atomic<CudaOps*> ops[kMostGpus] = {};
};

Backends& backends() {
  static Backends* const instance = new Backends;
  return *instance;
}

}  // namespace

CudaOps& gpu(int index) {
  std::atomic<CudaOps*>& place = backends().ops[index];
  if (CudaOps* there = place.load(std::memory_order_acquire)) [[likely]]
    return *there;
  const std::lock_guard lock(backends().mutex);
  if (place.load(std::memory_order_relaxed) == nullptr)
    place.store(std::make_unique<CudaOps>(index).release(), std::memory_order_release);
  return *place.load(std::memory_order_relaxed);
}

namespace {

std::string version(int capability) { return std::to_string(capability / 10) + "." + std::to_string(capability % 10); }

/// 10 times the compute capability of a GPU: 75 for 7.5. A large number if it is not to be had.
int capability(int index) {
  int major = 0, minor = 0;
  if (cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, index) != cudaSuccess ||
      cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, index) != cudaSuccess) {
    cudaGetLastError();
    return std::numeric_limits<int>::max();
  }
  return 10 * major + minor;
}

/// The GPUs before the first that is older than all that the kernels were compiled for. (Unless CUDA_DEVICE_ORDER says otherwise,
/// CUDA numbers the fastest first.)
int device_count(const char** missing) {
  watch_process();  // the driver, which is opened here, does not survive a fork
  int count = 0;
  const cudaError_t status = cudaGetDeviceCount(&count);
  if (status == cudaSuccess && count > 0) {
    if (count >= kMostGpus) count = kMostGpus - 1;
    for (int i = 0; i < count; ++i) {
      const int found = capability(i);
      if (found >= REEL_CUDA_LEAST_CAPABILITY) continue;
      static std::string old;
      old = "this library was compiled for GPUs from compute capability " + version(REEL_CUDA_LEAST_CAPABILITY) +
            " on, and number " + std::to_string(i) + " of this machine has " + version(found) +
            " (CUDA_VISIBLE_DEVICES can leave it out)";
      *missing = old.c_str();
      return i;
    }
    return count;
  }
  cudaGetLastError();
  *missing = status == cudaErrorInsufficientDriver ? "the NVIDIA driver is missing, or older than this library needs"
             : status == cudaErrorNoDevice || status == cudaSuccess ? "this machine has no NVIDIA GPU that CUDA can use"
                                                                    : cudaGetErrorString(status);
  return 0;
}

Ops& ops(int index) { return gpu(index); }

void launch_at(int index, const UserKernel& kernel, const KernelLaunch& launch, SourceLocation where) {
  const auto& [blocks, y, z] = launch.blocks;
  const auto fits = [](std::int64_t n, std::int64_t most) { return n >= 0 && n <= most; };
  if (!fits(blocks, kMostBlocks) || !fits(y, kMostBlocksAcross) || !fits(z, kMostBlocksAcross))
    throw DeviceError(kernel.op + ": kernel " + kernel.kernel +
                          " must have at most 2147483647 x 65535 x 65535 blocks, got " + std::to_string(blocks) +
                          " x " + std::to_string(y) + " x " + std::to_string(z),
                      where);
  if (launch.shared_bytes > static_cast<std::size_t>(kMostBlocks))
    throw DeviceError(kernel.op + ": kernel " + kernel.kernel +
                          " must have at most 2147483647 bytes of shared memory, got " +
                          std::to_string(launch.shared_bytes),
                      where);
  launch_source(gpu(index).context(), source_of(kernel, launch, where), launch, where);
}

reel::MemoryStats memory_at(int index) {
  const MemoryStats stats = gpu(index).context().memory().stats();
  return {.live_bytes = stats.live, .cached_bytes = stats.cached, .peak_bytes = stats.peak};
}

void reset_peak_at(int index) { gpu(index).context().memory().reset_peak(); }

void release_at(int index) {
  gpu(index).context().use();
  gpu(index).context().memory().release_cached();
}

}  // namespace

}  // namespace reel::cuda

const reel::cuda::Library* reel_cuda_ops() {
  static const reel::cuda::Library library = {REEL_VERSION,
                                              reinterpret_cast<const void*>(&reel::backend),
                                              &reel::cuda::device_count,
                                              &reel::cuda::ops,
                                              &reel::cuda::launch_at,
                                              &reel::cuda::memory_at,
                                              &reel::cuda::reset_peak_at,
                                              &reel::cuda::release_at};
  return &library;
}
