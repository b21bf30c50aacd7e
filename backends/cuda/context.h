#pragma once

#include <cuda_runtime.h>

#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "reel/backends/cuda/fault.h"
#include "reel/backends/cuda/memory.h"
#include "reel/core/ops.h"

namespace reel::cuda {

// Owners of what the runtime hands out.
struct StreamOwner {
  cudaStream_t stream = nullptr;
  StreamOwner();
  ~StreamOwner();
};
struct EventOwner {
  cudaEvent_t event = nullptr;
  EventOwner();
  ~EventOwner();
};
struct PinnedOwner {
  void* data = nullptr;
  explicit PinnedOwner(std::size_t bytes);
  ~PinnedOwner();
};

/// One GPU: its stream, on which all of Reel's work is done in the order of the calls, its memory, pinned memory through
/// which transfers go, and the device word for bad indices. Nothing here waits for the GPU but to_host and synchronize.
class Context {
 public:
  explicit Context(int index);
  Context(const Context&) = delete;
  Context& operator=(const Context&) = delete;

  /// Makes this GPU the calling thread's. Throws if an earlier error left it unusable.
  void use() const;
  int index() const { return index_; }
  cudaStream_t stream() const { return stream_.stream; }
  Memory& memory() const { return memory_; }
  /// Streaming multiprocessors.
  int processors() const { return processors_; }

  /// Returns when the host's memory may be written again.
  void from_host(const void* host, void* device, std::int64_t bytes);
  /// Returns when the bytes are there. Throws IndexError if a check of indices before has failed.
  void to_host(const void* device, void* host, std::int64_t bytes);
  /// Returns when the stream is empty. Throws as to_host.
  void synchronize();

  /// For a check of indices: its number, by which its fault is told.
  std::uint64_t begin_check(const char* op, std::int64_t limit, SourceLocation where);
  Fault* fault() const { return fault_.as<Fault>(); }

 private:
  static constexpr std::size_t kSlotBytes = std::size_t{1} << 20;
  static constexpr int kSlots = 4;
  static constexpr std::size_t kChecks = 4096;  // remembered; older ones are told without their op

  struct Slot {
    PinnedOwner memory{kSlotBytes};
    EventOwner done;
    bool busy = false;
  };
  struct Check {
    std::uint64_t serial = 0;
    std::string op;
    std::int64_t limit = 0;
    SourceLocation where;
  };

  Slot& next_slot();
  void wait();
  void throw_fault(const Fault& fault);

  int index_;
  int processors_ = 1;
  StreamOwner stream_;
  mutable Memory memory_;
  std::mutex transfers_;
  std::vector<std::unique_ptr<Slot>> slots_;
  std::size_t turn_ = 0;
  PinnedOwner seen_;  // the device word as the host last saw it
  Workspace fault_{memory_, sizeof(Fault)};
  std::mutex checks_mutex_;
  std::vector<Check> checks_;
  std::uint64_t serial_ = 0;
};

}  // namespace reel::cuda
