#pragma once

#include <cstddef>

#include "reel/core/macros.h"

namespace reel {

namespace detail {
/// Host memory at a 64-byte boundary from this thread's cache. Contents are undefined. Throws OutOfMemory.
REEL_API void* host_allocate(std::size_t bytes);
/// Back to the cache; `bytes` as given to host_allocate.
REEL_API void host_free(void* block, std::size_t bytes) noexcept;
}  // namespace detail

/// Working memory of a kernel on the CPU, given back at the end of the scope. A warm loop calls malloc no more.
class Scratch {
 public:
  REEL_INLINE explicit Scratch(std::size_t bytes) : data_(detail::host_allocate(bytes)), bytes_(bytes) {}
  REEL_INLINE ~Scratch() { detail::host_free(data_, bytes_); }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;

  template <class T>
  REEL_INLINE T* as() const {
    return static_cast<T*>(data_);
  }

 private:
  void* data_;
  std::size_t bytes_;
};

}  // namespace reel
