#pragma once

#include "reel/backends/cuda/kernel.h"

// Rows that are moved as they are, in units as wide as they allow.

namespace reel::cuda {

struct alignas(16) Unit16 {
  std::uint64_t half[2];
};

/// f.template operator()<Unit>() for the widest unit in which rows of `bytes` bytes at these addresses can be moved.
template <class F>
void dispatch_unit(const void* a, const void* b, std::size_t bytes, F&& f) {
  const auto fits = [&](std::size_t unit) {
    return bytes % unit == 0 && is_aligned(a, unit, 1) && is_aligned(b, unit, 1);
  };
  if (fits(16)) return f.template operator()<Unit16>();
  if (fits(8)) return f.template operator()<std::uint64_t>();
  if (fits(4)) return f.template operator()<uint32_t>();
  if (fits(2)) return f.template operator()<std::uint16_t>();
  return f.template operator()<std::uint8_t>();
}

}  // namespace reel::cuda
