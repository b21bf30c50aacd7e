#include "reel/nn/ema.h"

#include <algorithm>
#include <string>

#include "reel/core/error.h"
#include "reel/core/number_text.h"
#include "reel/core/tape.h"
#include "reel/nn/flat.h"
#include "reel/nn/layer.h"
#include "reel/ops/create.h"

namespace reel::nn {

Ema::Ema(const std::vector<Parameter>& parameters, EmaOptions options, SourceLocation where)
    : parameters_(detail::prepared("Ema", parameters, where)), decay_(options.decay) {
  detail::require(decay_ >= 0 && decay_ <= 1, "Ema", "decay in [0, 1]", reel::detail::number_text(decay_), where);
}

void Ema::require(bool good, const char* what, SourceLocation where) const {
  if (!good) throw Error(std::string("Ema: ") + what, where);
}

// One part for each flat buffer; or checks that the parameters are where they were.
void Ema::lay_out(SourceLocation where) {
  const auto part_of = [&](const Parameter& parameter) {
    return std::find_if(parts_.begin(), parts_.end(), [&](const Part& p) { return p.home == parameter.state()->home; });
  };
  const bool fits = std::all_of(parameters_.begin(), parameters_.end(),
                                [&](const Parameter& parameter) { return part_of(parameter) != parts_.end(); });
  if (fits) return;
  require(updates_ == 0, "the parameters must be where they were at the first update; make it after moving them",
          where);
  parts_.clear();
  for (const Parameter& parameter : parameters_)
    if (part_of(parameter) == parts_.end()) {
      const auto& home = parameter.state()->home;
      parts_.push_back({home, zeros_like(home->values), false});
    }
}

Tensor Ema::view(const Parameter& parameter) const {
  for (const Part& part : parts_)
    if (part.home == parameter.state()->home) return reel::detail::member_view(part.averages, *parameter.state());
  return {};
}

Ema::Part* Ema::part_of(const reel::detail::FlatBuffer& home) {
  const auto found =
      std::find_if(parts_.begin(), parts_.end(), [&](const Part& part) { return part.home.get() == &home; });
  return found == parts_.end() ? nullptr : &*found;
}

void Ema::update(SourceLocation where) {
  check_update(where);
  if (updates_ == 0)
    for (Part& part : parts_) {
      backend(part.averages.device()).copy(part.home->values.array(), part.averages.array());
      part.updated = true;
    }
  finish_update();
}

void Ema::check_update(SourceLocation where) {
  require(!swapped_, "averages and values must not be exchanged in an update: swap them back", where);
  lay_out(where);
  for (Part& part : parts_) part.updated = false;
}

std::optional<WeightAverage> Ema::average_of(const reel::detail::FlatBuffer& home, std::int64_t low,
                                             std::int64_t high) {
  const Part* const part = part_of(home);
  if (part == nullptr) return std::nullopt;
  return WeightAverage{detail::stretch(part->averages, low, high), decay_};
}

void Ema::update(const reel::detail::FlatBuffer& home, std::int64_t low, std::int64_t high) {
  const Tensor& averages = part_of(home)->averages;
  if (low < high)
    backend(averages.device())
        .ema(detail::stretch(home.values, low, high), decay_, detail::stretch(averages, low, high));
}

void Ema::finish_update() {
  for (const Part& part : parts_)
    if (!part.updated) update(*part.home, 0, part.home->values.size());
  ++updates_;
}

void Ema::swap(SourceLocation where) {
  require(updates_ > 0, "an update is required before a swap", where);
  lay_out(where);
  std::vector<Tensor> values;  // all of them first: one may be on a tape, and there may be no memory for some
  for (const Parameter& parameter : parameters_) {
    reel::detail::refuse_if_taped(parameter.value(), "Ema::swap", where);
    values.push_back(reel::detail::copied(parameter, parameter.dtype()));
  }
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    const Tensor average = view(parameters_[i]);
    reel::detail::overwrite("Ema::swap", parameters_[i].state()->value, average, where);
    backend(average.device()).copy(values[i].array(), average.array());
  }
  swapped_ = !swapped_;
}

Tensor Ema::average(const Parameter& parameter, SourceLocation where) const {
  require(updates_ > 0, "an update is required before averages", where);
  const bool mine = std::find(parameters_.begin(), parameters_.end(), parameter) != parameters_.end();
  const Tensor average = mine ? view(parameter) : Tensor();
  require(average.defined(), "average: one of its parameters, where it was, is required", where);
  return reel::detail::copied(average, average.dtype());
}

std::vector<NamedTensor> Ema::state(SourceLocation where) {
  require(!swapped_, "averages and values must not be exchanged in a checkpoint: swap them back", where);
  lay_out(where);
  std::vector<NamedTensor> all{{"updates", from_vector(std::vector{updates_})}};
  const std::vector<std::string> names = detail::names_of(parameters_);
  for (std::size_t i = 0; i < parameters_.size(); ++i) all.push_back({"average." + names[i], view(parameters_[i])});
  return all;
}

void Ema::check_state(const std::vector<NamedTensor>& given, SourceLocation where) {
  detail::check_fits("Ema", state(where), given, where);
  const auto updates = given[0].tensor.item<std::int64_t>();
  require(updates >= 0 && updates <= std::int64_t{1} << 53, "load_state: a count of updates from 0 to 2^53 is required",
          where);
}

void Ema::load_state(const std::vector<NamedTensor>& given, SourceLocation where) {
  check_state(given, where);
  const std::vector<NamedTensor> mine = state(where);
  const std::vector<Tensor> there = detail::on_devices_of(mine, given);
  for (std::size_t i = 1; i < mine.size(); ++i) Tensor(mine[i].tensor).copy_(there[i], where);
  updates_ = given[0].tensor.item<std::int64_t>();
}

}  // namespace reel::nn
