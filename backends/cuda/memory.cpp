#include "reel/backends/cuda/memory.h"

#include <new>
#include <string>

#include "reel/backends/cuda/status.h"
#include "reel/core/device.h"
#include "reel/core/error.h"
#include "reel/core/running.h"

#if !defined(REEL_CUDA_ON_CPU)
// On a GPU compute-sanitizer looks after memory, not we.
namespace cuda_on_cpu {
inline void block_handed_out(void*, std::size_t, std::size_t) {}
inline void block_returned(void*, std::size_t) {}
}  // namespace cuda_on_cpu
#endif

namespace reel::cuda {

int Memory::class_of(std::size_t bytes) {
  if (bytes <= 1024) return bytes == 0 ? 0 : static_cast<int>((bytes - 1) / 256);
  const int log = 63 - __builtin_clzll(bytes - 1);  // 2^log <= bytes - 1 < 2^(log + 1)
  const int quarter = static_cast<int>((bytes - 1) >> (log - 2)) & 3;
  return kFineClasses + 4 * (log - 10) + quarter;
}

std::size_t Memory::class_bytes(int index) {
  if (index < kFineClasses) return 256 * static_cast<std::size_t>(index + 1);
  const int log = 10 + (index - kFineClasses) / 4, quarter = (index - kFineClasses) % 4;
  return (std::size_t{1} << log) + (static_cast<std::size_t>(quarter + 1) << (log - 2));
}

void* Memory::take_from_system(std::size_t bytes, std::size_t requested) {
  use_gpu(gpu_);
  void* block = nullptr;
  cudaError_t status = cudaMallocAsync(&block, bytes, stream_);
  if (status == cudaErrorMemoryAllocation) {  // once more with all that is cached given back
    cudaGetLastError();
    release_lists();
    status = cudaMallocAsync(&block, bytes, stream_);
  }
  if (status == cudaErrorMemoryAllocation) {
    cudaGetLastError();
    std::size_t available = 0, total = 0;
    cudaMemGetInfo(&available, &total);
    throw OutOfMemory(detail::running_op() + ": " + Device::cuda(gpu_).name() + ": " + std::to_string(requested) +
                          " bytes requested and not to be had; " + std::to_string(stats_.live) + " bytes live, " +
                          std::to_string(stats_.cached) + " cached, " + std::to_string(available) + " free of " +
                          std::to_string(total),
                      SourceLocation{});
  }
  check(status, "cudaMallocAsync");
  return block;
}

void* Memory::allocate(std::size_t bytes) {
  if (bytes > std::size_t{1} << 45)
    throw OutOfMemory(detail::running_op() + ": " + Device::cuda(gpu_).name() + ": " + std::to_string(bytes) +
                          " bytes requested, more than any GPU has",
                      SourceLocation{});
  const int index = class_of(bytes);
  const std::size_t room = class_bytes(index);
  const std::lock_guard lock(mutex_);
  std::vector<void*>& list = free_[static_cast<std::size_t>(index)];
  void* block;
  if (list.empty()) {
    block = take_from_system(room, bytes);
  } else {
    block = list.back();
    list.pop_back();
    stats_.cached -= static_cast<std::int64_t>(room);
  }
  stats_.live += static_cast<std::int64_t>(room);
  if (stats_.live > stats_.peak) stats_.peak = stats_.live;
  if (stats_.live > most_) most_ = stats_.live;
  cuda_on_cpu::block_handed_out(block, bytes, room);
  return block;
}

void Memory::deallocate(void* block, std::size_t bytes) noexcept {
  if (block == nullptr || is_over()) return;
  const int index = class_of(bytes);
  const std::size_t room = class_bytes(index);
  cuda_on_cpu::block_returned(block, room);
  const std::lock_guard lock(mutex_);
  stats_.live -= static_cast<std::int64_t>(room);
  if (stats_.cached + static_cast<std::int64_t>(room) > most_ + kSlack) {
    cudaFreeAsync(block, stream_);
    return;
  }
  try {
    free_[static_cast<std::size_t>(index)].push_back(block);
  } catch (const std::bad_alloc&) {  // of the host's memory, for the list
    cudaFreeAsync(block, stream_);
    return;
  }
  stats_.cached += static_cast<std::int64_t>(room);
}

void Memory::release_lists() noexcept {
  for (std::vector<void*>& list : free_) {
    for (void* block : list) cudaFreeAsync(block, stream_);
    list.clear();
  }
  stats_.cached = 0;
  // The pool gives memory to the system only when the stream has come to the frees.
  cudaStreamSynchronize(stream_);
}

void Memory::release_cached() noexcept {
  const std::lock_guard lock(mutex_);
  release_lists();
}

void Memory::reset_peak() {
  const std::lock_guard lock(mutex_);
  stats_.peak = stats_.live;
}

MemoryStats Memory::stats() const {
  const std::lock_guard lock(mutex_);
  return stats_;
}

}  // namespace reel::cuda
