#pragma once

// Stands in for CUDA's header of this name when the CUDA backend's own sources are compiled as C++: the words of the
// language, the few functions of the runtime that the backend uses, and launches that run on the executor.

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>
#include <utility>

#define REEL_CUDA_ON_CPU 1

#define __global__
#define __device__
#define __host__
#define __forceinline__ inline __attribute__((always_inline))
#define __launch_bounds__(...)
#define __grid_constant__

struct dim3 {
  unsigned x, y, z;
  dim3(unsigned x_ = 1, unsigned y_ = 1, unsigned z_ = 1) : x(x_), y(y_), z(z_) {}
};

// --- inside kernels -----------------------------------------------------------------------------------------------------

namespace cuda_on_cpu {

extern unsigned lane;  // of the CUDA thread that runs, in its warp

void sync_threads(const char* file, int line);
bool sync_threads_or(bool vote, const char* file, int line);
void sync_warp(unsigned mask, const char* file, int line);
/// What lane `source` of this warp gave.
std::uint64_t shuffle(unsigned mask, std::uint64_t bits, unsigned source, const char* file, int line);
unsigned ballot(unsigned mask, bool vote, const char* file, int line);
/// This block's dynamic shared memory, at a 16-byte boundary.
void* shared_memory();

template <class T>
T shuffle_value(unsigned mask, T value, unsigned source, const char* file, int line) {
  static_assert(sizeof(T) <= 8 && std::is_trivially_copyable_v<T>);
  std::uint64_t bits = 0;
  std::memcpy(&bits, &value, sizeof value);
  bits = shuffle(mask, bits, source, file, line);
  std::memcpy(&value, &bits, sizeof value);
  return value;
}

// One CUDA thread runs at a time and is never interrupted: plain operations are atomic.
template <class T>
T exchange(T* address, T value) {
  return std::exchange(*address, value);
}

}  // namespace cuda_on_cpu

extern dim3 threadIdx, blockIdx, blockDim, gridDim;

#define __syncthreads() cuda_on_cpu::sync_threads(__FILE__, __LINE__)
#define __syncthreads_or(vote) cuda_on_cpu::sync_threads_or(vote, __FILE__, __LINE__)
#define __syncwarp() cuda_on_cpu::sync_warp(~0u, __FILE__, __LINE__)
#define __shfl_xor_sync(mask, value, other) \
  cuda_on_cpu::shuffle_value(mask, value, cuda_on_cpu::lane ^ (other), __FILE__, __LINE__)
#define __shfl_sync(mask, value, source) cuda_on_cpu::shuffle_value(mask, value, source, __FILE__, __LINE__)
#define __ballot_sync(mask, vote) cuda_on_cpu::ballot(mask, vote, __FILE__, __LINE__)
#define REEL_DYNAMIC_SHARED(T, name) T* const name = static_cast<T*>(cuda_on_cpu::shared_memory())

inline void __threadfence() {}
inline int __popc(unsigned bits) { return __builtin_popcount(bits); }
template <class T>
T atomicAdd(T* address, T value) {
  return cuda_on_cpu::exchange(address, static_cast<T>(*address + value));
}
template <class T>
T atomicExch(T* address, T value) {
  return cuda_on_cpu::exchange(address, value);
}
template <class T>
T atomicCAS(T* address, T expected, T value) {
  return *address == expected ? cuda_on_cpu::exchange(address, value) : *address;
}

// --- the runtime ----------------------------------------------------------------------------------------------------------

enum cudaError_t {
  cudaSuccess = 0,
  cudaErrorInvalidValue = 1,
  cudaErrorMemoryAllocation = 2,
  cudaErrorInvalidConfiguration = 9,
  cudaErrorInsufficientDriver = 35,
  cudaErrorNoDevice = 100,
  cudaErrorInvalidDevice = 101,
  cudaErrorInvalidResourceHandle = 400,
  cudaErrorIllegalAddress = 700,
  cudaErrorUnknown = 999
};
enum cudaMemcpyKind { cudaMemcpyHostToDevice = 1, cudaMemcpyDeviceToHost = 2, cudaMemcpyDeviceToDevice = 3 };
enum cudaDeviceAttr {
  cudaDevAttrMultiProcessorCount = 16,
  cudaDevAttrComputeCapabilityMajor = 75,
  cudaDevAttrComputeCapabilityMinor = 76,
  cudaDevAttrMemoryPoolsSupported = 115
};
constexpr unsigned cudaStreamNonBlocking = 1;
constexpr unsigned cudaEventDisableTiming = 2;

namespace cuda_on_cpu {
struct Stream;
struct Event;
struct Pool;
}  // namespace cuda_on_cpu
using cudaStream_t = cuda_on_cpu::Stream*;
using cudaEvent_t = cuda_on_cpu::Event*;
using cudaMemPool_t = cuda_on_cpu::Pool*;
enum cudaMemLocationType { cudaMemLocationTypeDevice = 1 };
enum cudaMemAccessFlags { cudaMemAccessFlagsProtReadWrite = 3 };
struct cudaMemAccessDesc {
  struct {
    cudaMemLocationType type;
    int id;
  } location;
  cudaMemAccessFlags flags;
};

cudaError_t cudaGetLastError();
const char* cudaGetErrorName(cudaError_t error);
const char* cudaGetErrorString(cudaError_t error);
cudaError_t cudaGetDeviceCount(int* count);
cudaError_t cudaGetDevice(int* device);
cudaError_t cudaSetDevice(int device);
cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int device);
cudaError_t cudaMemGetInfo(std::size_t* available, std::size_t* total);
cudaError_t cudaDeviceCanAccessPeer(int* can, int device, int peer);
cudaError_t cudaDeviceGetMemPool(cudaMemPool_t* pool, int device);
cudaError_t cudaMemPoolSetAccess(cudaMemPool_t pool, const cudaMemAccessDesc* access, std::size_t count);
cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned flags);
cudaError_t cudaStreamSynchronize(cudaStream_t stream);
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned flags);
cudaError_t cudaStreamDestroy(cudaStream_t stream);
cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned flags);
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream);
cudaError_t cudaEventSynchronize(cudaEvent_t event);
cudaError_t cudaEventDestroy(cudaEvent_t event);
cudaError_t cudaMallocAsync(void** block, std::size_t bytes, cudaStream_t stream);
cudaError_t cudaFreeAsync(void* block, cudaStream_t stream);
cudaError_t cudaMallocHost(void** block, std::size_t bytes);
cudaError_t cudaFreeHost(void* block);
cudaError_t cudaMemcpyAsync(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind, cudaStream_t stream);
cudaError_t cudaMemcpyPeerAsync(void* to, int to_device, const void* from, int from_device, std::size_t bytes,
                                cudaStream_t stream);
cudaError_t cudaMemsetAsync(void* block, int value, std::size_t bytes, cudaStream_t stream);

struct cudaLaunchConfig_t {
  dim3 gridDim, blockDim;
  std::size_t dynamicSmemBytes = 0;
  cudaStream_t stream = nullptr;
};

namespace cuda_on_cpu {

/// What the backend's cache tells of the blocks that it hands out and takes back: see executor.h.
void block_handed_out(void* block, std::size_t bytes, std::size_t room);
void block_returned(void* block, std::size_t room);

/// Runs body(context) once per CUDA thread.
cudaError_t launch(const cudaLaunchConfig_t& config, void (*body)(const void*), const void* context);

}  // namespace cuda_on_cpu

template <class... Parameters, class... Arguments>
cudaError_t cudaLaunchKernelEx(const cudaLaunchConfig_t* config, void (*kernel)(Parameters...),
                               Arguments&&... arguments) {
  const auto call = [=] { kernel(static_cast<Parameters>(arguments)...); };
  return cuda_on_cpu::launch(
      *config, [](const void* context) { (*static_cast<const decltype(call)*>(context))(); }, &call);
}
