// The one file that knows which backends there are.

#include <dlfcn.h>
#include <unistd.h>

#include <atomic>
#include <string>

#include "reel/backends/cpu/cpu.h"
#include "reel/backends/cuda/cuda.h"
#include "reel/core/device.h"
#include "reel/core/error.h"
#include "reel/core/memory.h"
#include "reel/core/ops.h"
#include "reel/core/trace_log.h"

// Null unless the CUDA backend is linked in.
extern "C" __attribute__((weak)) const reel::cuda::Library* reel_cuda_ops();

namespace reel {

namespace {

constexpr const char* kLibraryFile = "libreel-cuda.so." REEL_SOVERSION;

const void* core_address() { return reinterpret_cast<const void*>(&backend); }

/// The CUDA backend: linked in, or libreel-cuda.so beside libreel, or where the loader looks. Found once.
struct CudaLibrary {
  const cuda::Library* library = nullptr;
  std::string missing;  // why there is none, no GPU, or none behind those that there are
  int devices = 0;

  CudaLibrary() {
    library = reel_cuda_ops != nullptr ? reel_cuda_ops() : opened();
    if (library == nullptr) return;
    const char* why = "";
    devices = library->device_count(&why);
    missing = why;
  }

 private:
  static std::string beside_this_library() {
    Dl_info info;
    if (dladdr(core_address(), &info) == 0 || info.dli_fname == nullptr) return kLibraryFile;
    const std::string path = info.dli_fname;
    const std::size_t slash = path.rfind('/');
    return slash == std::string::npos ? kLibraryFile : path.substr(0, slash + 1) + kLibraryFile;
  }

  const cuda::Library* opened() {
    void* handle = nullptr;
    const std::string beside = beside_this_library();
    for (const char* file : {beside.c_str(), kLibraryFile}) {
      handle = dlopen(file, RTLD_NOW | RTLD_LOCAL);
      if (handle != nullptr) break;
      missing = std::string("this Reel has no CUDA library: ") + dlerror();
      if (access(file, F_OK) == 0) return nullptr;  // what it needs is not there
    }
    if (handle == nullptr) return nullptr;
    missing.clear();
    const auto entry = reinterpret_cast<decltype(&reel_cuda_ops)>(dlsym(handle, "reel_cuda_ops"));
    const cuda::Library* found = entry != nullptr ? entry() : nullptr;
    if (found == nullptr) missing = std::string(kLibraryFile) + " is not a CUDA library of Reel";
    else if (std::string(found->version) != REEL_VERSION)
      missing = std::string(kLibraryFile) + " must be of version " REEL_VERSION ", got " + found->version;
    else if (found->core != core_address())
      missing = std::string(kLibraryFile) +
                " uses another libreel than this program; a program with Reel linked in "
                "statically links Reel::cuda too";
    else return found;
    dlclose(handle);
    return nullptr;
  }
};

const CudaLibrary& cuda_library() {
  static const CudaLibrary* const instance = new CudaLibrary;  // static tensors may outlive every static object
  return *instance;
}

}  // namespace

namespace {

constinit std::atomic<Ops*> known_cpu = nullptr;  // without the guard of a static object

__attribute__((noinline)) Ops& find_backend(Device device, SourceLocation where) {
  if (detail::thread_tape.traced) detail::trace_start();
  if (device.is_cpu()) {
    Ops& found = cpu::ops();
    known_cpu.store(&found, std::memory_order_release);
    return found;
  }
  const CudaLibrary& cuda = cuda_library();
  if (device.index >= 0 && device.index < cuda.devices) [[likely]]
    return cuda.library->ops(device.index);
  if (cuda.devices == 0) throw DeviceError("device: " + device.name() + " is not to be had: " + cuda.missing, where);
  throw DeviceError("device: must be one of the GPUs cuda:0 to cuda:" + std::to_string(cuda.devices - 1) + ", got " +
                        device.name() + (cuda.missing.empty() ? "" : "; " + cuda.missing),
                    where);
}

}  // namespace

Ops& backend(Device device, SourceLocation where) {
  Ops* const known = known_cpu.load(std::memory_order_acquire);
  if (device.is_cpu() && known != nullptr && !detail::thread_tape.traced) [[likely]]
    return *known;
  return find_backend(device, where);
}

namespace {

// Of a GPU that is there; null: the device is the CPU.
const cuda::Library* library_of(Device device, SourceLocation where) {
  if (device.is_cpu()) return nullptr;
  backend(device, where);
  return cuda_library().library;
}

}  // namespace

void launch_kernel(Device device, const UserKernel& kernel, const KernelLaunch& launch, SourceLocation where) {
  library_of(device, where)->launch(device.index, kernel, launch, where);
}

MemoryStats memory_stats(Device device, SourceLocation where) {
  const cuda::Library* const cuda = library_of(device, where);
  return cuda == nullptr ? memory_stats() : cuda->memory(device.index);
}

void reset_peak_memory(Device device, SourceLocation where) {
  const cuda::Library* const cuda = library_of(device, where);
  cuda == nullptr ? reset_peak_memory() : cuda->reset_peak(device.index);
}

void release_cached_memory(Device device, SourceLocation where) {
  const cuda::Library* const cuda = library_of(device, where);
  cuda == nullptr ? release_cached_memory() : cuda->release(device.index);
}

Device Device::best() { return cuda_library().devices > 0 ? cuda() : cpu(); }

}  // namespace reel
