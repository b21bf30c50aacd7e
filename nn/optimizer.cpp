#include "reel/nn/optimizer.h"

#include <algorithm>

#include "reel/core/error.h"
#include "reel/core/node.h"
#include "reel/core/number_text.h"
#include "reel/nn/ema.h"
#include "reel/nn/flat.h"
#include "reel/nn/layer.h"
#include "reel/ops/create.h"

namespace reel::nn {

using detail::stretch;
using detail::takes_part;
using reel::detail::ParameterState;

namespace {
constexpr std::int64_t kMostSteps = std::int64_t{1} << 53;  // that schedules, which compute in double, tell apart
constexpr int kMostOthers = 4;
}  // namespace

Optimizer::Optimizer(const char* kind, const char* call, std::vector<const char*> buffers,
                     std::vector<Parameter> parameters, Schedule rate, double decay, std::optional<double> max_norm,
                     SourceLocation where)
    : kind_(kind),
      call_(call),
      buffer_names_(std::move(buffers)),
      parameters_(detail::prepared(kind, parameters, where)),
      rate_(std::move(rate)),
      decay_(decay),
      max_norm_(max_norm),
      counts_(parameters_.size(), 0) {
  if (max_norm) detail::require(*max_norm > 0, kind, "max_norm > 0", reel::detail::number_text(*max_norm), where);
}

Optimizer::~Optimizer() = default;

void Optimizer::group(const std::string& name, GroupOptions options, SourceLocation where) {
  const auto in_group = [&](const Parameter& parameter) { return parameter.group() == name; };
  if (name.empty() || std::none_of(parameters_.begin(), parameters_.end(), in_group))
    throw Error(std::string(kind_) + ": a parameter in group '" + name + "' is required (Module::set_group), got none",
                where);
  if (const double decay = options.weight_decay.value_or(0); !(decay >= 0))
    throw Error(std::string(kind_) + ": weight_decay >= 0 is required, got " + reel::detail::number_text(decay), where);
  const auto known = std::find_if(groups_.begin(), groups_.end(), [&](const Group& g) { return g.name == name; });
  if (known != groups_.end()) known->options = std::move(options);
  else groups_.push_back({name, std::move(options)});
}

// --- where parameters are ---------------------------------------------------------------------------------------------

// Makes the parts, or checks that the parameters are where they were.
void Optimizer::lay_out(SourceLocation where) {
  bool moved = parts_.empty() && !parameters_.empty();
  std::string name;
  for (const Part& part : parts_)
    for (std::size_t i = 0; i < part.members.size(); ++i) {
      const ParameterState& state = *parameters_[part.members[i]].state();
      if (state.home == part.home && state.offset == part.offsets[i]) continue;
      moved = true;
      name = state.name;
    }
  if (!moved) return;
  if (steps_ > 0)
    throw Error(std::string(call_) + ": the parameters must be where they were at the first step, but '" + name +
                    "' has moved (by Module::to, or into a larger model); make the optimiser after moving them",
                where);

  std::vector<Part> parts;  // whole, or none: there may be no memory for all buffers
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    const auto& home = parameters_[i].state()->home;
    auto part = std::find_if(parts.begin(), parts.end(), [&](const Part& p) { return p.home == home; });
    if (part == parts.end()) part = parts.insert(part, Part{.home = home, .low = home->values.size()});
    part->members.push_back(i);
  }
  for (Part& part : parts) {
    const auto offset = [&](std::size_t i) { return parameters_[i].state()->offset; };
    std::sort(part.members.begin(), part.members.end(), [&](auto a, auto b) { return offset(a) < offset(b); });
    for (const std::size_t i : part.members) {
      part.offsets.push_back(offset(i));
      part.low = std::min(part.low, offset(i));
      part.high = std::max(part.high, offset(i) + parameters_[i].size());
    }
    part.high = std::max(part.low, part.high);
    const TensorOptions like = part.home->values.options();
    for (std::size_t b = 0; b < buffer_names_.size(); ++b) part.buffers.push_back(zeros({part.high - part.low}, like));
  }
  parts_ = std::move(parts);
}

// Neighbours that take the same step become one piece.
void Optimizer::find_pieces(const Part& part, double rate, double gradient_scale) {
  pieces_.clear();
  for (std::size_t k = 0; k < part.members.size(); ++k) {
    const std::size_t i = part.members[k];
    const Parameter& parameter = parameters_[i];
    if (!takes_part(parameter) || parameter.size() == 0) continue;
    const std::int64_t begin = part.offsets[k] - part.low;
    const std::size_t index = parameter.state()->index;
    Piece piece{begin, begin + parameter.size(), counts_[i], rate, decay_, gradient_scale, index, index};
    for (const Group& group : groups_) {
      if (group.name != parameter.group()) continue;
      if (group.options.lr) piece.rate = group.rate;
      piece.decay = group.options.weight_decay.value_or(decay_);
    }
    const bool joins = !pieces_.empty() && index == pieces_.back().last + 1 && keeps_zeros() &&
                       pieces_.back().steps == piece.steps && pieces_.back().rate == piece.rate &&
                       pieces_.back().decay == piece.decay;
    if (joins) {
      pieces_.back().end = piece.end;
      pieces_.back().last = index;
    } else {
      pieces_.push_back(piece);
    }
  }
}

// --- steps ------------------------------------------------------------------------------------------------------------

// f(low, high) for the stretches of the part's home whose parameters lie in no piece. What lies between neighbours is zero, and its
// average too.
template <class F>
void Optimizer::for_each_other(const Part& part, F f) const {
  std::size_t next = 0;
  std::int64_t from = 0;
  for (const Piece& piece : pieces_) {
    if (piece.first > next) f(from, part.low + piece.begin);
    next = piece.last + 1;
    from = part.low + piece.end;
  }
  if (next < part.home->members.size()) f(from, part.home->values.size());
}

// What a step takes along for this part; nothing where many stretches stand aside: each would be a kernel, and all of it is one.
std::optional<WeightAverage> Optimizer::average_of(Ema* ema, const Part& part) const {
  if (ema == nullptr) return std::nullopt;
  int others = 0;
  for_each_other(part, [&](std::int64_t, std::int64_t) { ++others; });
  return others <= kMostOthers ? ema->average_of(*part.home, part.low, part.high) : std::nullopt;
}

void Optimizer::step(SourceLocation where) { take_step(nullptr, where); }

void Optimizer::step(Ema& ema, SourceLocation where) {
  ema.check_update(where);
  if (ema.updates() == 0) {  // which copies
    take_step(nullptr, where);
    ema.update(where);
  } else {
    take_step(&ema, where);
    ema.finish_update();
  }
}

void Optimizer::take_step(Ema* ema, SourceLocation where) {
  reel::detail::now_running(call_, where);
  lay_out(where);
  const double rate = rate_.at(steps_, call_, where);
  for (Group& group : groups_)
    if (group.options.lr) group.rate = group.options.lr->at(steps_, call_, where);
  double scale = 1;
  if (max_norm_) {
    gradient_norm_ = detail::gradient_norm(parameters_);
    scale = detail::clip_scale(*gradient_norm_, *max_norm_);
  }
  for (const Parameter& parameter : parameters_)
    if (takes_part(parameter)) parameter.state()->value.note_write(call_, where);

  for (Part& part : parts_) {
    find_pieces(part, rate, scale);
    if (pieces_.empty()) continue;
    const std::optional<WeightAverage> average = average_of(ema, part);
    update(pieces_, part, stretch(part.home->values, part.low, part.high),
           stretch(part.home->gradients, part.low, part.high), average ? &*average : nullptr);
    if (average) {
      for_each_other(part, [&](std::int64_t low, std::int64_t high) { ema->update(*part.home, low, high); });
      ema->updated(*part.home);
    }
    reel::detail::ran(call_, where, {&part.home->gradients}, part.home->values);
  }
  for (std::size_t i = 0; i < parameters_.size(); ++i)
    if (takes_part(parameters_[i])) ++counts_[i];
  zero_gradients();
  ++steps_;
}

void Optimizer::zero_gradients() {
  for (Parameter& parameter : parameters_) parameter.clear_gradient();
}

double Optimizer::gradient_norm(SourceLocation where) const {
  if (!gradient_norm_)
    throw Error(std::string(kind_) + "::gradient_norm: a step with the option max_norm is required before", where);
  return *gradient_norm_;
}

double Optimizer::clip_gradients(double max_norm, SourceLocation where) {
  return detail::clip_norm(parameters_, max_norm, where);
}

void Optimizer::observe(double score) {
  const std::uint64_t observation = detail::next_observation();
  rate_.observe(score, observation);
  for (Group& group : groups_)
    if (group.options.lr) group.options.lr->observe(score, observation);
}

// --- checkpoints ------------------------------------------------------------------------------------------------------

std::vector<double> Optimizer::schedule_states() const {
  std::vector<double> all = rate_.state();
  for (const Group& group : groups_) {
    if (!group.options.lr) continue;
    const std::vector<double> more = group.options.lr->state();
    all.insert(all.end(), more.begin(), more.end());
  }
  return all;
}

void Optimizer::load_schedule_states(const std::vector<double>& all, SourceLocation where) {
  auto next = all.begin();
  const auto load = [&](Schedule& schedule) {
    const auto end = next + static_cast<std::ptrdiff_t>(schedule.state().size());
    schedule.load_state({next, end}, where);
    next = end;
  };
  load(rate_);
  for (Group& group : groups_)
    if (group.options.lr) load(*group.options.lr);
}

std::vector<NamedTensor> Optimizer::state() {
  lay_out(SourceLocation{});
  std::vector<std::int64_t> counts{steps_};
  counts.insert(counts.end(), counts_.begin(), counts_.end());
  std::vector<NamedTensor> all{{"steps", from_vector(counts)}};
  if (const auto schedules = schedule_states(); !schedules.empty())
    all.push_back({"schedules", from_vector(schedules)});
  const std::vector<std::string> name = detail::names_of(parameters_);
  for (std::size_t b = 0; b < buffer_names_.size(); ++b)
    for (const Part& part : parts_)
      for (std::size_t k = 0; k < part.members.size(); ++k) {
        const std::size_t i = part.members[k];
        all.push_back({std::string(buffer_names_[b]) + "." + name[i],
                       reel::detail::view(part.buffers[b], part.offsets[k] - part.low, parameters_[i].shape(),
                                          parameters_[i].value().array().strides)});
      }
  return all;
}

void Optimizer::load_state(const std::vector<NamedTensor>& given, SourceLocation where) {
  const std::vector<NamedTensor> mine = state();
  detail::check_fits(kind_, mine, given, where);
  const std::vector<std::int64_t> counts = given[0].tensor.to_vector<std::int64_t>();
  for (const std::int64_t count : counts)
    if (count < 0 || count > counts[0] || counts[0] > kMostSteps)
      throw Error(std::string(kind_) +
                      "::load_state: counts from 0 to that of all steps, at most 2^53, are required, got " +
                      std::to_string(count) + " of " + std::to_string(counts[0]),
                  where);
  const std::vector<Tensor> there = detail::on_devices_of(mine, given);
  if (const std::vector<double> before = schedule_states(); !before.empty()) {
    try {
      load_schedule_states(given[1].tensor.to_vector<double>(), where);
    } catch (...) {
      load_schedule_states(before, where);
      throw;
    }
  }
  for (std::size_t i = 1; i < mine.size(); ++i) {
    Tensor target = mine[i].tensor;
    if (mine[i].name != "schedules") target.copy_(there[i], where);
  }
  steps_ = counts[0];
  std::copy(counts.begin() + 1, counts.end(), counts_.begin());
}

}  // namespace reel::nn
