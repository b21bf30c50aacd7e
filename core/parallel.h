#pragma once

#include <cstdint>
#include <type_traits>

#include "reel/core/source_location.h"

namespace reel {

/// Threads that Reel's CPU kernels may use; at first OMP_NUM_THREADS or the number of cores. Results do not depend on it.
REEL_API int num_threads();
/// Throws Error unless count is in [1, 1024].
REEL_API void set_num_threads(int count, SourceLocation where = SourceLocation::current());

namespace detail {
/// Threads that parallel_chunks would use here: 1 inside a parallel region and in a forked child.
REEL_API int available_threads();
/// Of a core of this machine; 0 if the system does not tell.
REEL_API std::int64_t level2_cache_bytes();
/// Of the level 3 cache of a core, which it shares with others and their programs; 0 if there is none or the system does not tell.
REEL_API std::int64_t last_cache_bytes();
/// Calls body(context, begin, end) once for each of the consecutive chunks [0, chunk), [chunk, 2 chunk), ... of [0, count),
/// on several threads. The first exception is rethrown here after all threads have stopped. Serial inside a parallel
/// region and in a forked child.
REEL_API void parallel_chunks(std::int64_t count, std::int64_t chunk,
                              void (*body)(void*, std::int64_t begin, std::int64_t end), void* context);
}  // namespace detail

/// Cuts [0, count) into chunks of `chunk` and calls f(begin, end) for each, on several threads if there is more than one.
/// Cut by size only, so that results are the same for any number of threads; work of at most one chunk stays here and
/// starts no region.
template <class F>
REEL_INLINE void parallel_for(std::int64_t count, std::int64_t chunk, F&& f) {
  if (count <= 0) return;
  struct Call {
    // Not inlined: one copy of the body serves both ways below, in each of the library's many kernels.
    __attribute__((noinline)) static void run(void* context, std::int64_t begin, std::int64_t end) {
      (*static_cast<std::remove_reference_t<F>*>(context))(begin, end);
    }
  };
  void* const context = const_cast<void*>(static_cast<const void*>(&f));
  if (count <= chunk) {
    Call::run(context, 0, count);
  } else {
    detail::parallel_chunks(count, chunk, &Call::run, context);
  }
}

}  // namespace reel
