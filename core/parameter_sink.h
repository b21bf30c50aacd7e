#pragma once

// Private to core/: where a sweep puts the gradients of parameters.

#include <memory>
#include <vector>

#include "reel/core/node.h"
#include "reel/core/parameter.h"

namespace reel::detail {

/// The gradients of one flat buffer's parameters while a sweep runs: written to a spare buffer, which becomes the
/// parameters' gradient only when the sweep has succeeded.
class ParameterSink {
 public:
  explicit ParameterSink(std::shared_ptr<FlatBuffer> home);
  ParameterSink(const ParameterSink&) = delete;
  ParameterSink& operator=(const ParameterSink&) = delete;
  ~ParameterSink();

  bool serves(const ParameterState& parameter) const { return home_ == parameter.home; }
  /// The parameter's part of the spare buffer; `fresh` if nothing was written to it yet.
  Gradients::Destination destination(const ParameterState& parameter);
  void commit();
  /// Those of the parameters that were reached. If one throws, restore() undoes what commit() and the hooks did to the
  /// gradients since remember().
  bool has_hooks() const;
  void remember();
  void call_hooks() const;
  void restore() const;

 private:
  std::shared_ptr<FlatBuffer> home_;
  Tensor pending_;
  Tensor reached_;  // u8 per member
  Tensor before_;   // the gradients when remember() was called
  std::vector<std::uint8_t> had_gradient_;
};

}  // namespace reel::detail
