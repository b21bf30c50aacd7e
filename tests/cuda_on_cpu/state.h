#pragma once

// Private to the executor: what its runtime knows of devices, streams and events.

#include <cstdint>
#include <map>
#include <mutex>
#include <set>
#include <thread>
#include <vector>

#include "reel/tests/cuda_on_cpu/executor.h"

namespace cuda_on_cpu {

/// How much of each stream's work, by the stream's number, comes before something.
using Known = std::map<std::uint64_t, std::uint64_t>;

struct Arrival {
  void* to;
  std::vector<char> bytes;
};

/// Its work, one piece after the other, is counted.
struct Stream {
  /// A copy between two devices that this stream's next work, as far as `thread` puts it there, has to come after.
  struct Owed {
    std::uint64_t stream, piece;
    std::thread::id thread;
    int device;  // of `stream`
  };
  int device;
  std::uint64_t number;
  std::uint64_t pieces = 0;
  std::map<std::thread::id, std::uint64_t> last = {};  // piece that a thread put here
  Known before = {};                                   // of other streams, what comes before this one's next piece
  std::vector<Owed> owed = {};
  std::vector<Arrival> arrivals = {};
};

struct Event {
  int device;
  Stream* stream = nullptr;
  Known before = {};  // where it was recorded
};

namespace detail {

inline constexpr int kMostDevices = 4;
inline constexpr unsigned char kUnknown = 0xff;  // NaN in every floating type

/// The memory of one device, a part of the arena.
struct Space {
  std::size_t used = 0;                            // its pages beyond were never touched
  std::map<std::size_t, std::vector<char*>> free;  // by size
  std::map<const char*, std::size_t> blocks;       // live ones: size as asked for
  std::size_t live = 0;
  int open = 0;
};

struct Runtime {
  std::mutex mutex;
  Space spaces[kMostDevices];
  std::size_t capacity = std::size_t{1} << 30;  // of each
  int count = 1;
  int capability[kMostDevices] = {90, 90, 90, 90};
  std::map<const char*, std::size_t> pinned;
  std::set<Stream*> streams;
  std::set<Event*> events;
  std::uint64_t streams_made = 0;
  Known host;              // what the host has waited for
  std::int64_t waits = 0;  // of the host
  std::int64_t fail_in = 0;
  cudaError_t failure = cudaErrorUnknown;
  bool failed = false;
  int lost = 0;  // the device at which it came to that
};
Runtime& runtime();

/// The calling thread's device.
int& current();
/// The device to whose memory an address belongs; -1: none.
int device_of(const void* address);
/// Whether [address, address + bytes) lies in one live block of its device.
bool in_block(const void* address, std::size_t bytes);

/// Whether this call, for a device, is the one that is to fail.
bool injected(int device, cudaError_t& error);

/// Notes that the calling thread puts another piece of work on the stream. Throws Fault if that may come before a copy between
/// two devices which it has to come after.
void put_on(Stream& stream);

#define REEL_INJECT(device)                 \
  cudaError_t injected_error = cudaSuccess; \
  if (detail::injected(device, injected_error)) return detail::failing(injected_error)

}  // namespace detail

}  // namespace cuda_on_cpu
