#pragma once

#include <cstddef>

#include "reel/core/memory.h"

namespace reel {

/// No test gets a larger block: where the system promises more memory than it has, asking for it would succeed, and using it
/// would end the program.
inline constexpr std::size_t kLargestBlock = std::size_t{1} << 40;

/// While alive, no block above so many bytes is to be had.
class LittleMemory {
 public:
  explicit LittleMemory(std::size_t bytes) {
    release_cached_memory();
    detail::limit_blocks(bytes);
  }
  ~LittleMemory() { detail::limit_blocks(kLargestBlock); }
  LittleMemory(const LittleMemory&) = delete;
  LittleMemory& operator=(const LittleMemory&) = delete;
};

}  // namespace reel
