#pragma once

#include <cstdint>

#include "reel/core/descriptors.h"
#include "reel/core/macros.h"

/// Which elements stand around an axis of n at places -1, -2, ... and n, n + 1, ...: with mirror images the axis and its mirror
/// image again and again, a period of both. n >= 1, for zeros n >= 0.
namespace reel::scalar {

/// Of a mode with mirror images.
struct Mirrors {
  std::int64_t n, edge, period;  // edge: 1 if the images begin with the edge

  REEL_SCALAR Mirrors(std::int64_t n_, PaddingMode mode)
      : n(n_), edge(mode == PaddingMode::symmetric ? 1 : 0), period(2 * (n - 1 + edge)) {}
  /// The element `phase` behind a period's begin, 0 <= phase < period.
  REEL_SCALAR std::int64_t element(std::int64_t phase) const { return phase < n ? phase : period - edge - phase; }
  REEL_SCALAR std::int64_t phase(std::int64_t place) const {
    const bool is_next = place >= -period && place < period;  // as most are, spared the division
    const std::int64_t rest = is_next ? place : place % period;
    return rest < 0 ? rest + period : rest;
  }
};

/// Whether all places beyond an end show the edge: of a single element the mirror images are itself.
REEL_SCALAR bool repeats_edge(std::int64_t n, PaddingMode mode) { return mode == PaddingMode::replicate || n == 1; }

/// The element at a place; -1: none (zero).
REEL_SCALAR std::int64_t padding_source(std::int64_t place, std::int64_t n, PaddingMode mode) {
  if (place >= 0 && place < n) return place;
  if (mode == PaddingMode::zero) return -1;
  if (repeats_edge(n, mode)) return place < 0 ? 0 : n - 1;
  const Mirrors mirrors(n, mode);
  return mirrors.element(mirrors.phase(place));
}

/// The places from -before to n + after - 1 where element i stands, in ascending order.
struct PaddingPlaces {
  std::int64_t first, count = 1;
  std::int64_t steps[2] = {1, 1};  // to the next place, in turns

  REEL_SCALAR PaddingPlaces(std::int64_t i, std::int64_t n, std::int64_t before, std::int64_t after, PaddingMode mode)
      : first(i) {
    if (mode == PaddingMode::zero || (i > before && n - 1 - i > after)) return;  // far from its image on either side
    const std::int64_t end = n + after;
    if (repeats_edge(n, mode)) {
      if (i == 0) first = -before;
      count = (i == n - 1 ? end : i + 1) - first;
      return;
    }
    const Mirrors mirrors(n, mode);
    const std::int64_t period = mirrors.period, mirrored = period - mirrors.edge - 2 * i;  // from i to its image behind
    first = i - (i + before) / period * period;
    if (mirrored == 0 || mirrored == period) {  // the element about which the others are mirrored
      steps[0] = steps[1] = period;
    } else {
      steps[0] = mirrored;
      steps[1] = period - mirrored;
      if (first - steps[1] >= -before) {
        first -= steps[1];
        steps[1] = mirrored;
        steps[0] = period - mirrored;
      }
    }
    const std::int64_t both = steps[0] + steps[1], reach = end - 1 - first;
    count = 2 * (reach / both) + 1 + (reach % both >= steps[0] ? 1 : 0);
  }
  REEL_SCALAR std::int64_t at(std::int64_t k) const {
    return first + (k >> 1) * (steps[0] + steps[1]) + (k & 1) * steps[0];
  }
};

}  // namespace reel::scalar
