#pragma once

#include <xmmintrin.h>

#include <algorithm>
#include <bit>
#include <cstdint>

#include "reel/core/tensor.h"
#include "reel/ops/create.h"

namespace reel::test {

/// The free memory that the next results and scratch memory are made of, three blocks of each size to 512 KiB, holds this pattern.
inline void fill_free_memory(std::int32_t pattern) {
  Tensors blocks;
  const auto step = [](std::uint64_t bytes) { return bytes < 1024 ? 64 : std::bit_floor(bytes) / 4; };
  for (std::uint64_t bytes = 64; bytes <= 1 << 19; bytes += step(bytes))
    for (int i = 0; i < 3; ++i) blocks.push_back(full({static_cast<std::int64_t>(bytes / 4)}, pattern, {.dtype = i32}));
}

/// Whether f computes with numbers that it finds in memory that nobody has written: numbers so small that they take Intel's
/// processors a hundred cycles each, as integers look that lay there before. (The processor notes each, of this thread alone: to be
/// called with set_num_threads(1).) False where f meets such numbers anyway.
template <class F>
bool computes_from_free_memory(const F& f) {
  const auto meets_denormals = [&](std::int32_t pattern) {
    fill_free_memory(pattern);
    _mm_setcsr(_mm_getcsr() & ~static_cast<unsigned>(_MM_EXCEPT_DENORM));
    f();
    return (_mm_getcsr() & _MM_EXCEPT_DENORM) != 0;
  };
  return !meets_denormals(0) && meets_denormals(1);
}

}  // namespace reel::test
