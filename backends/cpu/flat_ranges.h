#pragma once

#include "reel/backends/cpu/vector_loops.h"
#include "reel/core/scalar/decayed.h"

/// How optimisers walk the ranges of a flat buffer.
namespace reel::cpu::REEL_CPU_ISA {

// A step is bound by memory: small pieces suffice to keep all threads busy.
inline constexpr int64_t kPiece = 32768;

/// Elements that a step and its average take in turns, so that what the one has written is near for the other.
inline constexpr int64_t kInTurns = 2048;

/// average = decay average + (1 - decay) w for elements [begin, end).
template <class T>
void average_weights(const T* w, double decay, T* average, int64_t begin, int64_t end);

/// Calls step(range, begin, end) for pieces of the ranges, and brings the average of w up to date, if there is one. Pieces are cut
/// from the ranges laid end to end, so that a thousand small ranges are shared among threads as well as one large one.
template <class T, class Range, class F>
REEL_INLINE void for_each_piece(const Range* ranges, int64_t count, const Array& w, const WeightAverage* ema, F step) {
  const auto step_and_average = [&](const Range& range, int64_t begin, int64_t end) {
    if (ema == nullptr) {
      step(range, begin, end);
      return;
    }
    for (int64_t next; begin < end; begin = next) {
      next = end - begin < kInTurns ? end : begin + kInTurns;
      step(range, begin, next);
      average_weights(w.as<T>(), ema->decay, ema->values.as<T>(), begin, next);
    }
  };
  int64_t total = 0;
  for (int64_t i = 0; i < count; ++i) total += ranges[i].end - ranges[i].begin;
  parallel_for(total, even_chunk(total, kPiece), [&](int64_t first, int64_t last) {
    int64_t start = 0;
    for (int64_t i = 0; i < count && start < last; ++i) {
      const int64_t size = ranges[i].end - ranges[i].begin;
      const int64_t begin = first > start ? first - start : 0;
      const int64_t end = last - start < size ? last - start : size;
      if (begin < end) step_and_average(ranges[i], ranges[i].begin + begin, ranges[i].begin + end);
      start += size;
    }
  });
}

/// A factor for all elements, rounded once.
template <class T>
REEL_INLINE Vec<T> factor(double value) {
  return Vec<T>::broadcast(static_cast<T>(value));
}
template <class T>
REEL_INLINE Vec<T> sqrt(Vec<T> x) {
  return each_lane(x, [](T lane) { return scalar::sqrt(lane); });
}
template <class T>
REEL_INLINE Vec<T> decayed(Vec<T> x, T least = scalar::Format<T>::kMinNormal) {
  return each_lane(x, [least](T lane) { return scalar::decayed(lane, least); });
}

}  // namespace reel::cpu::REEL_CPU_ISA
