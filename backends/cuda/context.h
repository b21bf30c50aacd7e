#pragma once

#include <cuda_runtime.h>

#include <atomic>
#include <memory>
#include <mutex>
#include <vector>

#include "reel/backends/cuda/fault.h"
#include "reel/backends/cuda/memory.h"
#include "reel/backends/cuda/status.h"
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

/// One GPU: its stream, on which all of Reel's work on it is done in the order of the calls, its memory, pinned memory through
/// which transfers go, and the device word for bad indices. Nothing here waits for the GPU but to_host and synchronize.
class Context {
 public:
  explicit Context(int index);
  ~Context();
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
  /// Copies between two GPUs' memory; the host does not wait. Comes behind all that either stream was given so far, and what
  /// either is given later comes behind it, as if both were one stream. A bad index that waits there waits here too, then.
  void from_peer(Context& source, const void* from, void* to, std::size_t bytes);
  /// Returns when the stream is empty. Throws as to_host.
  void synchronize();

  Fault* fault() const { return fault_.as<Fault>(); }

 private:
  static constexpr std::size_t kSlotBytes = std::size_t{1} << 20;
  static constexpr int kSlots = 4;

  struct Slot {
    PinnedOwner memory{kSlotBytes};
    EventOwner done;
    bool busy = false;
  };

  Slot& next_slot();
  void mark_in_flight(Slot& slot);
  void wait();
  /// What was thrown here need not be on the other GPUs, which a copy may have brought it from or to.
  void forget_elsewhere(std::uint64_t serial) const;
  void follow(Context& other);
  void open_way_from(const Context& source);

  int index_;
  int processors_ = 1;
  StreamOwner stream_;
  mutable Memory memory_;
  std::mutex transfers_;
  std::vector<std::unique_ptr<Slot>> slots_;
  std::size_t turn_ = 0;
  PinnedOwner seen_;  // the device word as the host last saw it
  Workspace fault_{memory_, sizeof(Fault)};
  std::mutex reached_mutex_;
  EventOwner reached_;                      // recorded on the stream for another one to wait for
  std::atomic<bool> open_[kMostGpus] = {};  // from which GPUs copies need not go through the host's memory, if they can
};

/// For a check of indices on any GPU: its number, by which its fault is told.
std::uint64_t begin_check(const char* op, std::int64_t limit, SourceLocation where);

}  // namespace reel::cuda
