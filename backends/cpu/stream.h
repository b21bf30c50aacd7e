#pragma once

#include "reel/backends/cpu/kernel.h"
#include "reel/backends/cpu/simd.h"
#include "reel/backends/cpu/vector_loops.h"

/// Writes past the caches: what memory held before, which an ordinary store would fetch first, is not read at all. It pays for
/// results that are not in the cache any more when they are read next.
namespace reel::cpu::REEL_CPU_ISA {

/// From this size on a result goes past the caches. Beside an input as large, two cores of a Zen 3 copy 13 MB at 35 GB/s so, and at
/// 22 to 30 with ordinary stores; two of a Zen 4 at 57 and 145, so that kernels of AVX-512 begin later. Both have a last cache of
/// 32 MB.
inline constexpr int64_t kStreamBytes = (kVectorBytes == 64 ? 24 : 12) << 20;
/// The same of elementwise ops, whose results the next op often reads: on the Zen 3 a sum of 13 MB and the sum of that took up to a
/// third longer when the first went past the caches.
inline constexpr int64_t kStreamElementsBytes = (kVectorBytes == 64 ? 24 : 16) << 20;
/// The same where rows are only repeated, with nothing read or computed between stores. Past the caches, the Zen 4's memory takes
/// 28 GB/s of these, whatever their size. Ordinary stores give 68 GB/s for 13 MB, 48 for 24 and 36 for 48, and along with the
/// reading of as much before, which then waits for what they left, there is no difference at 48. On the Zen 3, after the reading
/// of 13 MB, ordinary stores take 1.2 to 2 times as long as those past the caches.
inline constexpr int64_t kStreamRepeatedBytes = (kVectorBytes == 64 ? 48 : 12) << 20;

/// Whether a result of `bytes` is to go past the caches: of `from`, and of a sixteenth of a last cache so large that many programs
/// share it. With 480 MiB of it 13 MB of gradients, written past it, took 1.4 times as long, 40 MB as long. Of an input: whether it
/// comes from memory, most likely.
REEL_INLINE bool is_past_caches(int64_t bytes, int64_t from = kStreamBytes) {
  return bytes >= from && bytes >= detail::last_cache_bytes() / 16;
}
/// Whether to write `bytes` at y by `stream`, in whole vectors.
REEL_INLINE bool streams(const void* y, int64_t bytes, int64_t from = kStreamBytes) {
  return is_past_caches(bytes, from) && reinterpret_cast<std::uintptr_t>(y) % 64 == 0;
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

/// A copy of bytes, past the caches but for what is less than a line at both ends.
REEL_INLINE void stream_bytes(const char* from, char* to, int64_t bytes) {
  const auto before = min<int64_t>(bytes, -reinterpret_cast<std::intptr_t>(to) & 63);
  __builtin_memcpy(to, from, static_cast<std::size_t>(before));
  int64_t i = before;
  for (; i + 64 <= bytes; i += 64) {
    for (int64_t k = 0; k < 64; k += kVectorBytes)
      stream(reinterpret_cast<float*>(to + i + k), Vec<float>::load(reinterpret_cast<const float*>(from + i + k)));
  }
  __builtin_memcpy(to + i, from + i, static_cast<std::size_t>(bytes - i));
}

/// Writes a matrix of `size` elements row by row, past the caches where that pays: of whole lines then, or a line would leave
/// in parts.
template <class T>
class RowStream {
 public:
  /// Rows of y are `stride` apart. Columns are cut for threads at multiples of a line.
  RowStream(const T* y, int64_t size, int64_t stride, int64_t stream_from = kStreamBytes)
      : stride_(stride),
        ahead_(stride * kSize <= kNarrowRow ? 2 * kNarrowRow / kSize : 0),
        past_caches_(stride * kSize % 64 == 0 && streams(y, size * kSize, stream_from)) {}

  /// value(r, k), the k-th of K vectors of row r, for `rows` rows from y on.
  template <int K, class Lanes, class F>
  REEL_INLINE void write(Lanes lanes, T* y, int64_t rows, F value) const {
    if constexpr (std::is_same_v<Lanes, AllLanes<T>> && K * kVectorBytes % 64 == 0) {
      if (past_caches_) return write_by<K>(y, rows, value, [](T* to, Vec<T> v) { stream(to, v); });
    }
    write_by<K>(y, rows, value, [lanes, ahead = ahead_](T* to, Vec<T> v) {
      __builtin_prefetch(to + ahead, 1);
      lanes.store(to, v);
    });
  }
  /// At the end of a task.
  REEL_INLINE void finish() const {
    if (past_caches_) _mm_sfence();
  }

 private:
  static constexpr int64_t kSize = sizeof(T);
  /// Bytes of rows up to which what is written next follows in memory. (Of wider ones other blocks of columns do.)
  static constexpr int64_t kNarrowRow = 1024;

  template <int K, class F, class Store>
  REEL_INLINE void write_by(T* to, int64_t rows, F value, Store store) const {
    for (int64_t r = 0; r < rows; ++r, to += stride_) {
#pragma GCC unroll 8
      for (int k = 0; k < K; ++k) store(to + k * Vec<T>::width, value(r, k));
    }
  }

  int64_t stride_, ahead_;  // elements; `ahead_` of what is asked for while something is written, 0: of nothing else
  bool past_caches_;
};

}  // namespace reel::cpu::REEL_CPU_ISA
