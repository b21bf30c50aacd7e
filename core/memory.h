#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "reel/core/device.h"
#include "reel/core/macros.h"

namespace reel {

/// Host memory and objects in use by all threads. What is cached is bounded: a thread keeps at most the peak of its own
/// live bytes and 64 MiB (in parallel loops, where it takes working memory, as much again by the peak there); what it frees
/// beyond that, and what it leaves when it ends, is kept for all threads, at most 256 MiB and 256 MiB of working memory.
struct MemoryStats {
  std::int64_t live_bytes = 0;    // handed out: tensors, nodes' scratch, working memory
  std::int64_t cached_bytes = 0;  // kept for reuse by the threads' caches and the depot between them
  /// Largest live_bytes since the start or reset_peak_memory(). Of several threads the sum of their peaks: an upper bound.
  std::int64_t peak_bytes = 0;
  std::int64_t live_tensors = 0;
  std::int64_t live_nodes = 0;  // recorded ops whose callbacks have not been released

  /// "1.5 MB live in 12 tensors, ..." for a person.
  REEL_API std::string str() const;
};

REEL_API MemoryStats memory_stats();
/// peak_bytes from now on.
REEL_API void reset_peak_memory();
/// Gives what is cached back to the system, pages included (with glibc by malloc_trim, which also gives back what the program's
/// own frees have left). At once what the calling thread keeps, and what is kept for all threads; what another thread keeps, at
/// its next free (of a tensor, say) or part of a parallel loop, so what an idle one keeps stays, counted in cached_bytes. Live
/// blocks stay, and so does the room for recorded ops, which is none of cached_bytes.
REEL_API void release_cached_memory();

/// The same of one device's memory. Of a GPU's: bytes alone, in blocks as they are handed out, up to a quarter larger than what is
/// in them; no tensors or nodes are counted, and a release waits for the GPU. Throw DeviceError.
REEL_API MemoryStats memory_stats(Device device, SourceLocation where = SourceLocation::current());
REEL_API void reset_peak_memory(Device device, SourceLocation where = SourceLocation::current());
REEL_API void release_cached_memory(Device device, SourceLocation where = SourceLocation::current());

namespace detail {
/// Bytes of a block that no machine has.
inline constexpr std::size_t kLargestBlock = std::size_t{1} << 46;
/// Counts objects of the calling thread; the sum over all threads is what memory_stats() tells.
REEL_API void count_tensors(std::int64_t difference) noexcept;
REEL_API void count_nodes(std::int64_t difference) noexcept;
/// For tests of what happens then: from now on the system has no block of more than this many bytes.
REEL_API void limit_blocks(std::size_t bytes) noexcept;
}  // namespace detail

}  // namespace reel
