#pragma once

#include <cmath>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "reel/core/call_at.h"
#include "reel/core/error.h"
#include "reel/core/random.h"
#include "reel/core/tape.h"
#include "reel/nn/draws.h"
#include "reel/ops/create.h"

namespace reel::nn {

struct NutsOptions {
  int chains = 4;
  int warmup = 1000;           // iterations that adapt step size and mass, and are dropped
  int draws = 2000;            // kept, of each chain
  double target_accept = 0.9;  // mean acceptance that the step size is adapted to
  int max_depth = 10;          // at most 2^max_depth - 1 leapfrog steps per draw
  std::uint64_t seed = 0;
};

namespace detail {

using Vector = std::vector<double>;

inline double dot(const Vector& a, const Vector& b) {
  double sum = 0;
  for (std::size_t i = 0; i < a.size(); ++i) sum += a[i] * b[i];
  return sum;
}

/// The step size, by dual averaging: Hoffman and Gelman, "The No-U-Turn Sampler", 2014, section 3.2.
class StepSize {
 public:
  void restart(double step) {
    centre_ = std::log(10 * step);
    log_step_ = std::log(step);
    mean_log_step_ = error_ = count_ = 0;
  }
  void update(double accept, double target) {
    ++count_;
    const double share = 1 / (count_ + 10);
    error_ = (1 - share) * error_ + share * (target - accept);
    log_step_ = centre_ - std::sqrt(count_) / 0.05 * error_;
    const double weight = std::pow(count_, -0.75);
    mean_log_step_ = weight * log_step_ + (1 - weight) * mean_log_step_;
  }
  double exploring() const { return std::exp(log_step_); }
  /// After one or two updates, which go far, the step that they began with.
  double adapted() const { return count_ < 3 ? std::exp(centre_) / 10 : std::exp(mean_log_step_); }

 private:
  double centre_ = 0, log_step_ = 0, mean_log_step_ = 0, error_ = 0, count_ = 0;
};

/// Variances of what has been added: Welford's recurrence.
class Variances {
 public:
  explicit Variances(std::size_t size) : mean_(size), squares_(size) {}
  void add(const Vector& q) {
    ++count_;
    for (std::size_t i = 0; i < q.size(); ++i) {
      const double before = q[i] - mean_[i];
      mean_[i] += before / count_;
      squares_[i] += before * (q[i] - mean_[i]);
    }
  }
  double count() const { return count_; }
  /// Drawn a little towards 1e-3, as Stan does it: few draws say little. Of two or more.
  Vector shrunk() const {
    Vector result;
    for (const double s : squares_) result.push_back((s / (count_ - 1) * count_ + 5e-3) / (count_ + 5));
    return result;
  }

 private:
  Vector mean_, squares_;
  double count_ = 0;
};

/// One chain of the No-U-Turn sampler, with draws in proportion to their density along the path: Betancourt, "A Conceptual
/// Introduction to Hamiltonian Monte Carlo", 2017, appendix A. `Density` gives log p(q) for q [size], f64, up to a constant.
template <class Density>
class NutsChain {
 public:
  NutsChain(Density& density, std::size_t size, const NutsOptions& options, std::uint64_t stream, SourceLocation where)
      : density_(density), options_(options), where_(where), generator_(options.seed, stream), variance_(size, 1.0) {
    for (int tries = 0; tries < 100; ++tries) {
      at_.q = Vector(size);
      for (double& q : at_.q) q = 4 * uniform() - 2;
      evaluate(at_);
      if (std::isfinite(at_.log_density)) return;
    }
    throw Error("nuts: the density must be finite somewhere in (-2, 2), got none in 100 tries", where);
  }

  /// Warms up, then writes the draws of chain `index`.
  void run(Draws& draws, int index) {
    step_ = first_step();
    adaption_.restart(step_);
    Variances variances(at_.q.size());
    // Three phases: the step size alone; windows, each twice as long as the one before, that end with new masses; the
    // step size again. Of less than 20 iterations the first phase is all.
    const int begin = options_.warmup * 3 / 40,
              end = options_.warmup < 20 ? begin : options_.warmup - std::max(options_.warmup / 20, 10);
    int window = std::max(25, begin / 3), window_end = begin + 3 * window > end ? end : begin + window;
    for (int i = 0; i < options_.warmup; ++i) {
      iterate();
      adaption_.update(accept_, options_.target_accept);
      step_ = adaption_.exploring();
      if (i < begin || i >= end) continue;
      variances.add(at_.q);
      if (i + 1 != window_end && i + 1 != end) continue;
      if (variances.count() > 1) variance_ = variances.shrunk();
      variances = Variances(at_.q.size());
      window *= 2;
      window_end = window_end + 3 * window > end ? end : window_end + window;
      step_ = first_step();
      adaption_.restart(step_);
    }
    if (options_.warmup > 0) step_ = adaption_.adapted();
    for (int i = 0; i < options_.draws; ++i) {
      draws.divergences += iterate();
      draws.leapfrog_steps += steps_;
      for (std::size_t d = 0; d < at_.q.size(); ++d) draws.at(index, i, d) = at_.q[d];
    }
    draws.step_sizes.push_back(step_);
  }

 private:
  struct State {
    Vector q, p, slope;
    double log_density = 0;
  };
  // A stretch of the path. Its states have weights exp(-energy), which add up to exp(log_weight).
  struct Path {
    State first, last, chosen;
    Vector momentum;  // sum of p over its states
    double log_weight = 0;
    bool ended = false;  // it turned back or diverged
  };

  double uniform() { return static_cast<double>(generator_.below(std::int64_t{1} << 53)) * 0x1p-53; }

  void evaluate(State& state) {
    const Tensor q = from_vector(state.q, where_);
    Tape tape;
    tape.watch(q, where_);
    const Tensor log_density = reel::detail::call_at(where_, density_, q);
    state.log_density = log_density.item(where_);
    state.slope = tape.gradient(log_density, Tensors{q}, {}, where_)[0].template to_vector<double>(where_);
  }

  void leap(State& state, double step) {
    for (std::size_t i = 0; i < state.q.size(); ++i) {
      state.p[i] += step / 2 * state.slope[i];
      state.q[i] += step * variance_[i] * state.p[i];
    }
    evaluate(state);
    for (std::size_t i = 0; i < state.q.size(); ++i) state.p[i] += step / 2 * state.slope[i];
  }

  // Minus the energy; the masses are the inverse variances.
  double log_weight(const State& state) const {
    double kinetic = 0;
    for (std::size_t i = 0; i < state.p.size(); ++i) kinetic += state.p[i] * state.p[i] * variance_[i];
    const double weight = state.log_density - kinetic / 2;
    return std::isnan(weight) ? -INFINITY : weight;
  }

  void draw_momentum(State& state) {
    state.p = randn({static_cast<std::int64_t>(state.q.size())}, generator_, {.dtype = f64}, where_)
                  .template to_vector<double>(where_);
    for (std::size_t i = 0; i < state.p.size(); ++i) state.p[i] /= std::sqrt(variance_[i]);
  }

  // A step with which one leap is accepted with a probability near 0.8.
  double first_step() {
    double step = 1;
    for (int direction = 0;;) {
      State state = at_;
      draw_momentum(state);
      const double before = log_weight(state);
      leap(state, step);
      const int now = log_weight(state) - before > std::log(0.8) ? 1 : -1;
      if (direction == 0) direction = now;
      if (now != direction || step > 1e7 || step < 1e-10) return step;
      step *= direction > 0 ? 2 : 0.5;
    }
  }

  bool turns(const Path& path) const {
    double first = 0, last = 0;
    for (std::size_t i = 0; i < path.momentum.size(); ++i) {
      first += path.momentum[i] * variance_[i] * path.first.p[i];
      last += path.momentum[i] * variance_[i] * path.last.p[i];
    }
    return first <= 0 || last <= 0;
  }

  // 2^depth states from `from` on, without it.
  Path grow(const State& from, int depth, double step, double start_weight) {
    if (depth == 0) {
      State state = from;
      leap(state, step);
      const double change = log_weight(state) - start_weight;
      ++steps_;
      accept_ += std::fmin(1, std::exp(change));
      const bool diverges = !(change > -1000);
      diverged_ = diverged_ || diverges;
      return {state, state, state, state.p, change, diverges};
    }
    Path path = grow(from, depth - 1, step, start_weight);
    if (path.ended) return path;
    join(path, grow(step > 0 ? path.last : path.first, depth - 1, step, start_weight), step > 0, false);
    return path;
  }

  // Appends `next` behind the path, or in front of it. The chosen state moves there with the probability of next's weight:
  // in the whole, or, `biased`, against the path, which leads away from where the iteration began.
  void join(Path& path, Path next, bool behind, bool biased) {
    if (next.ended) {
      path.ended = true;
      return;
    }
    const double high = std::fmax(path.log_weight, next.log_weight);
    const double both = high + std::log(std::exp(path.log_weight - high) + std::exp(next.log_weight - high));
    if (std::log(uniform()) < next.log_weight - (biased ? path.log_weight : both)) path.chosen = next.chosen;
    path.log_weight = both;
    for (std::size_t i = 0; i < path.momentum.size(); ++i) path.momentum[i] += next.momentum[i];
    (behind ? path.last : path.first) = behind ? std::move(next.last) : std::move(next.first);
    path.ended = turns(path);
  }

  // One draw; true if the path diverged.
  bool iterate() {
    accept_ = 0;
    steps_ = 0;
    diverged_ = false;
    draw_momentum(at_);
    const double start_weight = log_weight(at_);
    Path path{at_, at_, at_, at_.p, 0, false};
    for (int depth = 0; depth < options_.max_depth && !path.ended; ++depth) {
      const bool forward = uniform() < 0.5;
      join(path, grow(forward ? path.last : path.first, depth, forward ? step_ : -step_, start_weight), forward, true);
    }
    at_ = std::move(path.chosen);
    accept_ /= steps_;
    return diverged_;
  }

  Density& density_;
  const NutsOptions& options_;
  SourceLocation where_;
  Generator generator_;
  Vector variance_;  // of the posterior, as far as it is known
  State at_;
  StepSize adaption_;
  double step_ = 1, accept_ = 0;
  int steps_ = 0;
  bool diverged_ = false;
};

}  // namespace detail

/// Draws from the distribution with density exp(log_density(q)), up to a factor, over all q [size] (f64) without bounds: see
/// transforms.h for what has some. log_density gives one element and is differentiated by the tape. Hamiltonian Monte Carlo
/// as the No-U-Turn sampler chooses its paths, with step size and a diagonal mass matrix adapted in the warm-up. The same
/// seed gives the same draws. Throws Error for options out of range, if the density is finite nowhere near 0, and whatever log_density throws.
///
///   nn::Draws draws = nn::nuts([&](const Tensor& q) { return -0.5 * sum(q * q); }, 3);
///   draws.mean(0), draws.r_hat(0), draws.effective_size(0)
template <class LogDensity>
Draws nuts(LogDensity&& log_density, std::int64_t size, const NutsOptions& options = {},
           SourceLocation where = SourceLocation::current()) {
  if (size < 1 || options.chains < 1 || options.draws < 1 || options.warmup < 0)
    throw Error("nuts: size, chains and draws >= 1 and warmup >= 0 are required, got " + std::to_string(size) + ", " +
                    std::to_string(options.chains) + ", " + std::to_string(options.draws) + " and " +
                    std::to_string(options.warmup),
                where);
  if (options.max_depth < 1 || options.max_depth > 30 || !(options.target_accept > 0 && options.target_accept < 1))
    throw Error("nuts: max_depth from 1 to 30 and target_accept between 0 and 1 are required, got " +
                    std::to_string(options.max_depth) + " and " + std::to_string(options.target_accept),
                where);
  Draws draws(options.chains, options.draws, static_cast<std::size_t>(size));
  for (int chain = 0; chain < options.chains; ++chain)
    detail::NutsChain(log_density, static_cast<std::size_t>(size), options, static_cast<std::uint64_t>(chain) + 1,
                      where)
        .run(draws, chain);
  return draws;
}

}  // namespace reel::nn
