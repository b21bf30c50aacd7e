#pragma once

#include <cstdint>

#include "reel/core/ops.h"

namespace reel {

/// A stream of Philox4x32-10 random numbers: a place (seed, stream, counter) that each call moves on by the blocks it used.
/// The same place gives the same numbers on every backend and for any number of threads. A value: copy it to save it.
class REEL_API Generator {
 public:
  explicit Generator(std::uint64_t seed = 0, std::uint64_t stream = 0) : state_{seed, stream, 0} {}
  explicit Generator(PhiloxState state) : state_(state) {}

  /// The place for `count` numbers of `dtype`; moves behind them.
  PhiloxState take(std::int64_t count, DType dtype);
  /// A random integer in [0, bound), without bias. Uses whole blocks. Throws Error unless bound >= 1.
  std::int64_t below(std::int64_t bound, SourceLocation where = SourceLocation::current());
  const PhiloxState& state() const { return state_; }

 private:
  PhiloxState state_;
};

/// The generator that ops use when none is given; one per process, behind a lock.
REEL_API void manual_seed(std::uint64_t seed);
/// Its place, to be saved and set again.
REEL_API PhiloxState random_state();
REEL_API void set_random_state(const PhiloxState& state);

namespace detail {
/// As Generator::take on the process's generator.
REEL_API PhiloxState take_random(std::int64_t count, DType dtype);
}  // namespace detail

}  // namespace reel
