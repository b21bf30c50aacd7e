#include "reel/nn/schedule.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <initializer_list>
#include <limits>
#include <numbers>
#include <string>
#include <utility>

#include "reel/core/number_text.h"

namespace reel::nn {
namespace {

constexpr std::size_t kNumbersPerPlateau = 3;

[[noreturn]] void refuse(const char* schedule, const std::string& what, const std::string& got, SourceLocation where) {
  throw Error(std::string(schedule) + ": " + what + " is required, got " + got, where);
}

void require(bool holds, const char* schedule, const char* what, std::initializer_list<double> got,
             SourceLocation where) {
  if (holds) return;
  std::string text;
  for (const double number : got) text += (text.empty() ? "" : ", ") + reel::detail::formatted("%.15g", number);
  refuse(schedule, what, text, where);
}

}  // namespace

void detail::Plateau::observe(double score, std::uint64_t observation) {
  if (std::exchange(seen, observation) == observation) return;
  if (score > best) {
    best = score;
    waited = 0;
  } else if (++waited >= patience) {
    ++drops;
    waited = 0;
  }
}

Schedule::Schedule(double rate) : rate_at_([rate](std::int64_t) { return rate; }) {}

double Schedule::at(std::int64_t step, const char* call, SourceLocation where) const {
  if (!rate_at_) refuse(call, "a schedule that is defined", "one that is undefined", where);
  require(step >= 0, call, "a step from 0 on", {double(step)}, where);
  const double rate = rate_at_(step);
  if (!(rate >= 0 && !std::isinf(rate)))  // the text takes memory
    refuse(call, "a finite rate >= 0", reel::detail::number_text(rate) + " at step " + std::to_string(step), where);
  return rate;
}

void Schedule::observe(double score, std::uint64_t observation) {
  for (const auto& plateau : plateaus_) plateau->observe(score, observation);
}
void Schedule::observe(double score) { observe(score, detail::next_observation()); }

std::uint64_t detail::next_observation() {
  static std::atomic<std::uint64_t> last = 0;
  return ++last;
}

std::vector<double> Schedule::state() const {
  std::vector<double> state;
  for (const auto& plateau : plateaus_)
    state.insert(state.end(), {plateau->best, double(plateau->waited), double(plateau->drops)});
  return state;
}

void Schedule::load_state(const std::vector<double>& state, SourceLocation where) {
  const std::size_t size = plateaus_.size() * kNumbersPerPlateau;
  if (state.size() != size)
    throw Error(
        "schedule: a state of " + std::to_string(size) + " numbers is required, got " + std::to_string(state.size()),
        where);
  const auto is_count = [](double value) { return value >= 0 && value < 1e15 && value == std::floor(value); };
  for (std::size_t i = 0; i < size; i += kNumbersPerPlateau)
    if (std::isnan(state[i]) || !is_count(state[i + 1]) || !is_count(state[i + 2]))
      require(false, "schedule", "a score and counts in a plateau's state", {state[i], state[i + 1], state[i + 2]},
              where);
  const double* next = state.data();
  for (const auto& plateau : plateaus_) {
    plateau->best = *next++;
    plateau->waited = static_cast<std::int64_t>(*next++);
    plateau->drops = static_cast<std::int64_t>(*next++);
  }
}

namespace schedule {

Schedule constant(double rate) { return rate; }

Schedule constant_then(double rate, std::int64_t steps, const Schedule& after, SourceLocation where) {
  require(steps >= 0, "constant_then", "steps >= 0", {double(steps)}, where);
  const auto rate_at = [=](std::int64_t t) { return t < steps ? rate : after(t - steps); };
  return {rate_at, after.plateaus()};
}

Schedule decaying(double rate, double decay, SourceLocation where) {
  require(decay >= 0, "decaying", "decay >= 0", {decay}, where);
  return [=](std::int64_t t) { return rate / (1 + decay * double(t)); };
}

Schedule compounding(double start, double stop, double factor, SourceLocation where) {
  require(factor > 0, "compounding", "factor > 0", {factor}, where);
  return [=](std::int64_t t) {
    const double rate = start * std::pow(factor, double(t));
    return start > stop ? std::max(rate, stop) : std::min(rate, stop);
  };
}

Schedule warmup_linear(double rate, std::int64_t warmup, std::int64_t total, SourceLocation where) {
  require(warmup >= 0 && warmup < total, "warmup_linear", "0 <= warmup < total", {double(warmup), double(total)},
          where);
  return [=](std::int64_t t) {
    if (t < warmup) return rate * (double(t) / double(warmup));
    return rate * (double(std::max<std::int64_t>(total - t, 0)) / double(total - warmup));
  };
}

Schedule slanted_triangular(double max_rate, std::int64_t steps, double cut, double ratio, SourceLocation where) {
  require(steps >= 1 && cut > 0 && cut < 1 && ratio >= 1, "slanted_triangular",
          "steps >= 1, 0 < cut < 1 and ratio >= 1", {double(steps), cut, ratio}, where);
  return [=](std::int64_t t) {
    const double summit = std::floor(double(steps) * cut);
    const double height = double(t) < summit ? double(t) / summit : 1 - (double(t) - summit) / (double(steps) - summit);
    return max_rate * (1 + std::max(height, 0.0) * (ratio - 1)) / ratio;
  };
}

Schedule cyclic_triangular(double min_rate, double max_rate, std::int64_t half_period, SourceLocation where) {
  require(half_period >= 1 && half_period <= std::int64_t{1} << 61, "cyclic_triangular", "half_period from 1 to 2^61",
          {double(half_period)}, where);
  return [=](std::int64_t t) {
    const std::int64_t phase = t % (2 * half_period);
    const std::int64_t climbed = std::min(phase, 2 * half_period - phase);
    return min_rate + (max_rate - min_rate) * (double(climbed) / double(half_period));
  };
}

Schedule cosine(double max_rate, std::int64_t steps, double min_rate, SourceLocation where) {
  require(steps >= 1, "cosine", "steps >= 1", {double(steps)}, where);
  return [=](std::int64_t t) {
    if (t >= steps) return min_rate;
    return min_rate + (max_rate - min_rate) * (1 + std::cos(std::numbers::pi * double(t) / double(steps))) / 2;
  };
}

Schedule step(double rate, std::int64_t every, double factor, SourceLocation where) {
  require(every >= 1 && factor > 0, "step", "every >= 1 and factor > 0", {double(every), factor}, where);
  return [=](std::int64_t t) {
    const std::int64_t drops = t / every;
    return rate * std::pow(factor, double(drops));
  };
}

Schedule plateau(const Schedule& inner, int patience, double factor, SourceLocation where) {
  require(patience >= 1 && factor > 0, "plateau", "patience >= 1 and factor > 0", {double(patience), factor}, where);
  const auto seen = std::make_shared<detail::Plateau>(
      detail::Plateau{.patience = patience, .best = -std::numeric_limits<double>::infinity()});
  std::vector<std::shared_ptr<detail::Plateau>> plateaus = {seen};
  plateaus.insert(plateaus.end(), inner.plateaus().begin(), inner.plateaus().end());
  return {[=](std::int64_t t) { return inner(t) * std::pow(factor, double(seen->drops)); }, std::move(plateaus)};
}

}  // namespace schedule
}  // namespace reel::nn
