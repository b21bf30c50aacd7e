#pragma once

// Private to core/: random numbers that are drawn a second time.

#include <vector>

#include "reel/core/random.h"

namespace reel::detail {

/// Where the random calls of a computation began.
using RandomPlaces = std::vector<PhiloxState>;

/// While one is alive, the calling thread's draws from the process's generator are noted in `places`, or, to repeat them,
/// taken from there; other threads may draw meanwhile.
class RandomScope {
 public:
  RandomScope(RandomPlaces& places, bool repeat);
  ~RandomScope();
  RandomScope(const RandomScope&) = delete;
  RandomScope& operator=(const RandomScope&) = delete;

  PhiloxState take(std::int64_t count, DType dtype);

 private:
  RandomPlaces& places_;
  bool repeat_;
  std::size_t next_ = 0;
  RandomScope* outer_;
};

}  // namespace reel::detail
