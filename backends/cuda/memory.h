#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>
#include <mutex>
#include <vector>

namespace reel::cuda {

/// Bytes of one GPU's memory.
struct MemoryStats {
  std::int64_t live = 0;    // handed out
  std::int64_t cached = 0;  // kept for reuse
  std::int64_t peak = 0;    // largest live
};

/// A cache of device memory over the stream-ordered pool of CUDA, by size class. All work of a GPU is on one stream: a block
/// that is given back may be handed out again at once, as whoever gets it works after whoever had it.
class Memory {
 public:
  Memory(int gpu, cudaStream_t stream) : gpu_(gpu), stream_(stream), free_(kClasses) {}
  ~Memory() { release_cached(); }
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;

  /// Throws OutOfMemory with the bytes requested, live, cached and free.
  void* allocate(std::size_t bytes);
  void deallocate(void* block, std::size_t bytes) noexcept;
  /// All cached blocks back to the system.
  void release_cached() noexcept;
  MemoryStats stats() const;
  /// stats().peak from now on.
  void reset_peak();

 private:
  // Multiples of 256 bytes up to 1 KiB, then four classes per power of two: at most 25 % is wasted.
  static constexpr int kFineClasses = 4, kClasses = kFineClasses + 4 * 36;
  static constexpr std::int64_t kSlack = std::int64_t{256} << 20;  // cached beyond the peak of live bytes

  static int class_of(std::size_t bytes);
  static std::size_t class_bytes(int index);
  void* take_from_system(std::size_t bytes, std::size_t requested);
  void release_lists() noexcept;

  int gpu_;
  cudaStream_t stream_;
  mutable std::mutex mutex_;
  std::vector<std::vector<void*>> free_;
  MemoryStats stats_;
  std::int64_t most_ = 0;  // live at any time
};

/// Device memory that a kernel works in, for a scope.
class Workspace {
 public:
  Workspace(Memory& memory, std::size_t bytes)
      : memory_(memory), data_(bytes > 0 ? memory.allocate(bytes) : nullptr), bytes_(bytes) {}
  ~Workspace() {
    if (data_ != nullptr) memory_.deallocate(data_, bytes_);
  }
  Workspace(const Workspace&) = delete;
  Workspace& operator=(const Workspace&) = delete;

  template <class T>
  T* as() const {
    return static_cast<T*>(data_);
  }

 private:
  Memory& memory_;
  void* data_;
  std::size_t bytes_;
};

}  // namespace reel::cuda
