#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "reel/core/ops.h"
#include "reel/core/parameter.h"
#include "reel/nn/named_tensor.h"

namespace reel::nn {

struct EmaOptions {
  double decay = 0.999;  // in [0, 1]
};

/// An exponential moving average of parameters: the first update() copies them, each later one does
/// average = decay average + (1 - decay) value, one kernel per flat buffer, or none of its own with Optimizer::step(ema). For
/// evaluation swap() exchanges averages and values, and a second swap() exchanges them back. For one thread.
class REEL_API Ema {
 public:
  using Options = EmaOptions;
  /// Throws Error for a decay out of range or an undefined parameter.
  explicit Ema(const std::vector<Parameter>& parameters, EmaOptions options = {},
               SourceLocation where = SourceLocation::current());
  Ema(const Ema&) = delete;
  Ema& operator=(const Ema&) = delete;

  /// After each step of the optimiser; Optimizer::step(ema) is both. Throws Error while averages and values are exchanged, or if
  /// parameters have moved in memory since the first update (Module::to).
  void update(SourceLocation where = SourceLocation::current());
  /// Counts as a write to each parameter. Throws Error before the first update, VersionError if a live tape knows one of them; then
  /// nothing is exchanged.
  void swap(SourceLocation where = SourceLocation::current());
  bool swapped() const { return swapped_; }

  /// A copy of the average (while exchanged: of what the parameter's value was). Throws Error before the first update, or if
  /// the parameter is none of these.
  Tensor average(const Parameter& parameter, SourceLocation where = SourceLocation::current()) const;

  std::int64_t updates() const { return updates_; }
  const std::vector<Parameter>& parameters() const { return parameters_; }

  /// The count of updates and the averages, as views. For checkpoints; not while exchanged.
  std::vector<NamedTensor> state(SourceLocation where = SourceLocation::current());
  /// Takes over what state() of one made in the same way gave. Throws Error, and changes nothing, if something does not fit.
  void load_state(const std::vector<NamedTensor>& state, SourceLocation where = SourceLocation::current());
  /// The same checks alone.
  void check_state(const std::vector<NamedTensor>& state, SourceLocation where = SourceLocation::current());

 private:
  friend class Optimizer;
  struct Part {
    std::shared_ptr<reel::detail::FlatBuffer> home;
    Tensor averages;       // parallel to home's values
    bool updated = false;  // by a step that is under way
  };

  // What an update is made of, for an optimiser's step. First what may throw:
  void check_update(SourceLocation where);
  /// For a step on elements [low, high) of a buffer; none if no parameter is there.
  std::optional<WeightAverage> average_of(const reel::detail::FlatBuffer& home, std::int64_t low, std::int64_t high);
  /// For elements that no step changes.
  void update(const reel::detail::FlatBuffer& home, std::int64_t low, std::int64_t high);
  void updated(const reel::detail::FlatBuffer& home) { part_of(home)->updated = true; }
  void finish_update();

  Part* part_of(const reel::detail::FlatBuffer& home);
  void lay_out(SourceLocation where);
  Tensor view(const Parameter& parameter) const;
  void require(bool good, const char* what, SourceLocation where) const;

  std::vector<Parameter> parameters_;
  double decay_;
  std::int64_t updates_ = 0;
  bool swapped_ = false;
  std::vector<Part> parts_;
};

}  // namespace reel::nn
