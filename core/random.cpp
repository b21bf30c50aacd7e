#include "reel/core/random.h"

#include <mutex>
#include <string>

#include "reel/core/error.h"
#include "reel/core/random_scope.h"
#include "reel/core/scalar/philox.h"

namespace reel {

namespace {

struct Process {
  std::mutex mutex;
  Generator generator{0};
};
Process& process() {
  static Process* const instance = new Process;  // never destroyed: static objects may draw numbers when they end
  return *instance;
}

}  // namespace

PhiloxState Generator::take(std::int64_t count, DType dtype) {
  const PhiloxState place = state_;
  const std::uint64_t per_block = dtype == f64 ? 2 : 4;
  state_.counter += (static_cast<std::uint64_t>(count) + per_block - 1) / per_block;
  return place;
}

std::int64_t Generator::below(std::int64_t bound, SourceLocation where) {
  if (bound < 1) throw Error("Generator::below: bound must be at least 1, got " + std::to_string(bound), where);
  const auto range = static_cast<std::uint64_t>(bound);
  for (;;) {
    const scalar::PhiloxBlock block = scalar::philox(state_.seed, state_.stream, state_.counter++);
    const std::uint64_t bits = std::uint64_t{block.lane[1]} << 32 | block.lane[0];
    const std::uint64_t rest = bits % range;
    if (bits - rest <= 0 - range) return static_cast<std::int64_t>(rest);  // all of the range it is in are below 2^64
  }
}

void manual_seed(std::uint64_t seed) { set_random_state({seed, 0, 0}); }

PhiloxState random_state() {
  const std::lock_guard lock(process().mutex);
  return process().generator.state();
}

void set_random_state(const PhiloxState& state) {
  const std::lock_guard lock(process().mutex);
  process().generator = Generator(state);
}

namespace detail {

namespace {
thread_local constinit RandomScope* random_scope = nullptr;
}

RandomScope::RandomScope(RandomPlaces& places, bool repeat) : places_(places), repeat_(repeat), outer_(random_scope) {
  random_scope = this;
}
RandomScope::~RandomScope() { random_scope = outer_; }

PhiloxState RandomScope::take(std::int64_t count, DType dtype) {
  if (repeat_) {
    if (next_ == places_.size())
      throw Error("checkpoint: f must draw the same random numbers when it is called again, got more calls");
    return places_[next_++];
  }
  random_scope = outer_;
  places_.push_back(take_random(count, dtype));
  random_scope = this;
  return places_.back();
}

PhiloxState take_random(std::int64_t count, DType dtype) {
  if (random_scope != nullptr) return random_scope->take(count, dtype);
  const std::lock_guard lock(process().mutex);
  return process().generator.take(count, dtype);
}

}  // namespace detail

}  // namespace reel
