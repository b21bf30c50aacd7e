#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <type_traits>
#include <utility>
#include <vector>

#include "reel/core/error.h"
#include "reel/core/macros.h"

namespace reel::nn {

namespace detail {
/// What a `schedule::plateau` has seen so far.
struct Plateau {
  int patience;
  double best;
  std::int64_t waited = 0;  // observations since the best
  std::int64_t drops = 0;   // how often the rate was lowered
  std::uint64_t seen = 0;   // the last observation

  /// Once for each observation, however many schedules share the plateau.
  void observe(double score, std::uint64_t observation);
};
/// A number for an observation, 1 or more.
std::uint64_t next_observation();
}  // namespace detail

/// A learning rate as a function of the step: `rate = schedule(step)`, where the first step is 0. A plain number is the
/// schedule that always gives it, and a function of the step is one too:
///
///   nn::Adam adam(net.parameters(), {.lr = nn::schedule::cosine(1e-3, total_steps)});
///   nn::Schedule halved = [](std::int64_t step) { return 0.1 / double(1 + step); };
///
/// Asking for a rate changes nothing, so that a run resumed at step n gets the rate it would have got. Only `plateau` has
/// a state beside the step; copies of a Schedule share it.
class REEL_API Schedule {
 public:
  Schedule(double rate);
  template <class F>
  requires std::is_invocable_r_v<double, const F&, std::int64_t> Schedule(F rate_at)
      : Schedule(std::function<double(std::int64_t)>(std::move(rate_at))) {}
  Schedule(std::function<double(std::int64_t)> rate_at) : rate_at_(std::move(rate_at)) {}
  /// For rules with state: `plateaus` are those that `rate_at` reads.
  Schedule(std::function<double(std::int64_t)> rate_at, std::vector<std::shared_ptr<detail::Plateau>> plateaus)
      : rate_at_(std::move(rate_at)), plateaus_(std::move(plateaus)) {}

  const std::vector<std::shared_ptr<detail::Plateau>>& plateaus() const { return plateaus_; }

  /// The rate at `step`. Throws Error if step < 0, or if the rate is negative, infinite or NaN.
  double operator()(std::int64_t step, SourceLocation where = SourceLocation::current()) const {
    return at(step, "schedule", where);
  }
  /// The same for the call named `call`, as errors tell it.
  double at(std::int64_t step, const char* call, SourceLocation where) const;

  /// Tells of a result on held-out data, where more is better (accuracy, or minus the loss). Only `plateau` heeds it.
  void observe(double score);
  /// The same as a part of an observation, which others may have told the plateaus already.
  void observe(double score, std::uint64_t observation);

  /// What a checkpoint must keep beside the step; empty without a `plateau` inside.
  std::vector<double> state() const;
  /// Takes what state() of an equally made schedule gave. Throws Error, and changes nothing, if its size is another.
  void load_state(const std::vector<double>& state, SourceLocation where = SourceLocation::current());

 private:
  std::function<double(std::int64_t)> rate_at_;
  std::vector<std::shared_ptr<detail::Plateau>> plateaus_;
};

/// The schedules. Arguments are checked when a schedule is made: Error if one is out of range. t is the step.
namespace schedule {

/// Always `rate`.
REEL_API Schedule constant(double rate);

/// `rate` for `steps` steps, then what `after` gives, which starts at its own step 0. steps >= 0.
REEL_API Schedule constant_then(double rate, std::int64_t steps, const Schedule& after,
                                SourceLocation where = SourceLocation::current());

/// rate / (1 + decay t). decay >= 0.
REEL_API Schedule decaying(double rate, double decay, SourceLocation where = SourceLocation::current());

/// start factor^t, up or down to `stop` and no further. factor > 0.
REEL_API Schedule compounding(double start, double stop, double factor,
                              SourceLocation where = SourceLocation::current());

/// From 0 up to `rate` in `warmup` steps, then down to 0 at step `total`; 0 after that. 0 <= warmup < total.
REEL_API Schedule warmup_linear(double rate, std::int64_t warmup, std::int64_t total,
                                SourceLocation where = SourceLocation::current());

/// From max_rate / ratio up to `max_rate` in the first `cut` of `steps`, then slowly down again; it stays there.
/// 0 < cut < 1, ratio >= 1. Howard and Ruder 2018, "Universal Language Model Fine-tuning for Text Classification", eq. 3,
/// where the descent ends exactly at `steps` whatever the rounding of the cut.
REEL_API Schedule slanted_triangular(double max_rate, std::int64_t steps, double cut = 0.1, double ratio = 32,
                                     SourceLocation where = SourceLocation::current());

/// From `min_rate` up to `max_rate` in `half_period` steps, down in as many, and again. half_period from 1 to 2^61.
/// Smith 2017, "Cyclical Learning Rates for Training Neural Networks", policy "triangular".
REEL_API Schedule cyclic_triangular(double min_rate, double max_rate, std::int64_t half_period,
                                    SourceLocation where = SourceLocation::current());

/// min_rate + (max_rate - min_rate) (1 + cos(pi t / steps)) / 2 up to `steps`, then `min_rate`. steps >= 1.
/// Loshchilov and Hutter 2017, "SGDR: Stochastic Gradient Descent with Warm Restarts", eq. 5, without restarts.
REEL_API Schedule cosine(double max_rate, std::int64_t steps, double min_rate = 0,
                         SourceLocation where = SourceLocation::current());

/// rate factor^floor(t / every). every >= 1, factor > 0.
REEL_API Schedule step(double rate, std::int64_t every, double factor = 0.1,
                       SourceLocation where = SourceLocation::current());

/// What `inner` gives, times `factor` for each time that `patience` calls of observe() in a row brought no score better
/// than the best so far; a NaN is no better. patience >= 1, factor > 0.
REEL_API Schedule plateau(const Schedule& inner, int patience, double factor = 0.1,
                          SourceLocation where = SourceLocation::current());

}  // namespace schedule
}  // namespace reel::nn
