#pragma once

#include "reel/backends/cpu/kernel.h"
#include "reel/backends/cpu/simd.h"

/// Writes past the caches: what memory held before, which an ordinary store would fetch first, is not read at all. It pays for
/// results that are not in the cache any more when they are read next.
namespace reel::cpu::REEL_CPU_ISA {

/// A result of this size, beside an input as large, is more than the part of a last cache that one program usually has.
inline constexpr int64_t kStreamBytes = 12 << 20;

/// Whether to write `bytes` at y by `stream`, in whole vectors.
REEL_INLINE bool streams(const void* y, int64_t bytes) {
  return bytes >= kStreamBytes && reinterpret_cast<std::uintptr_t>(y) % 64 == 0;
}

/// One vector to aligned memory. A task that streams ends with _mm_sfence().
template <class T>
REEL_INLINE void stream(T* p, Vec<T> v) {
#if defined(REEL_SIMD_AVX512)
  _mm512_stream_si512(reinterpret_cast<__m512i*>(p), __m512i(v.raw));
#elif defined(__AVX2__)
  _mm256_stream_si256(reinterpret_cast<__m256i*>(p), __m256i(v.raw));
#else
  _mm_stream_si128(reinterpret_cast<__m128i*>(p), __m128i(v.raw));
#endif
}

}  // namespace reel::cpu::REEL_CPU_ISA
