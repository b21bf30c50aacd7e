#pragma once

// Runs CUDA kernels on the CPU, to test them: a fiber for each CUDA thread that waits, block after block. What it finds, and what
// it cannot find: docs/cuda.md.

#include <cuda_runtime.h>

#include <cstdint>
#include <stdexcept>
#include <string>

namespace cuda_on_cpu {

/// A fault of a kernel or of a call of the runtime, with the place.
struct Fault : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// In which order warps, and the lanes in them, run to their next barrier.
enum class Schedule { in_order, reversed, random };
void set_schedule(Schedule schedule, std::uint64_t seed = 1);

/// How many kernels, copies and calls of libraries, allocations included, streams have been given.
std::uint64_t work();
/// How often the host has waited for a stream.
std::int64_t waits();

// --- memory ---------------------------------------------------------------------------------------------------------------

/// Device memory is not to be had beyond this many bytes, on each device.
void set_capacity(std::size_t bytes);
/// Blocks, events, streams and pinned blocks that have not been given back.
struct Inventory {
  std::int64_t device_blocks = 0, device_bytes = 0, pinned_blocks = 0, streams = 0, events = 0;
  bool empty() const { return device_blocks + pinned_blocks + streams + events == 0; }
  std::string str() const;
};
Inventory inventory();
/// Bytes of a device's memory that have not been given back.
std::int64_t device_bytes(int device);
/// Number of devices that cudaGetDeviceCount tells, at most 4; at first 1. Each has memory of its own, which neither host code
/// nor kernels of the others may touch.
void set_device_count(int count);
/// 10 times the compute capability that a device claims to have; at first 90.
void set_capability(int device, int capability);

/// A block of which the backend hands out the first `bytes`, again and again: unknown contents (all bits set: NaN), and
/// nobody may touch the rest.
void block_handed_out(void* block, std::size_t bytes, std::size_t room);
/// Nobody may touch any of it.
void block_returned(void* block, std::size_t room);

/// Off: host code may touch device memory unnoticed, which spares two system calls per launch. At first on.
void set_guard(bool on);

/// Host code may touch a device's memory while one of these lives: what stands in for a library of the device.
class OnDevice {
 public:
  /// The calling thread's device.
  OnDevice();
  explicit OnDevice(int device);
  ~OnDevice();
  OnDevice(const OnDevice&) = delete;
  OnDevice& operator=(const OnDevice&) = delete;

 private:
  int device_;
};

/// The n-th call of the runtime from now on fails with `error` (n = 1: the next one); 0: none does.
void fail_call(std::int64_t n, cudaError_t error = cudaErrorUnknown);
/// A call of a library of the device, which OnDevice stands in for. It counts as one of the runtime, and as work that the stream is
/// given. False if it is the one that fails.
bool library_call(cudaStream_t stream);
/// Whether it came to that.
bool call_failed();

namespace detail {
/// Puts a kernel on a stream, which has to be of the calling thread's device; cudaSuccess if it is to run now.
cudaError_t put_kernel(Stream* stream);
/// `error`, which cudaGetLastError tells the calling thread from now on.
cudaError_t failing(cudaError_t error);
}  // namespace detail

}  // namespace cuda_on_cpu
