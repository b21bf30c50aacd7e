#pragma once

#include <concepts>
#include <memory>
#include <type_traits>

#include "reel/core/tape.h"
#include "reel/nn/module.h"

namespace reel::nn {

namespace detail {
class Sizing;

/// While alive, layers that are called in this thread take the sizes that they left open from their inputs, and `module` is
/// in evaluation mode. Without finish() those layers are left open again.
class REEL_API SizingScope {
 public:
  explicit SizingScope(const Module& module);
  ~SizingScope();
  SizingScope(const SizingScope&) = delete;
  SizingScope& operator=(const SizingScope&) = delete;
  /// Throws Error if a size in the module is still open.
  void finish(SourceLocation where);

 private:
  std::unique_ptr<Sizing> sizing_;
};
}  // namespace detail

/// Finds the sizes that layers of `module` left open (`in` not given) and gives them their first values: calls module(sample)
/// once, in evaluation mode, recording nothing. A module that takes something else: `sample` is a function that calls it.
/// Sizes that are known stay, and so do the values there. Throws what the call throws, and Error if the call reaches not
/// every layer with an open size; then all are as they were.
template <std::derived_from<Module> M, class Sample>
void initialize(M& module, const Sample& sample, SourceLocation where = SourceLocation::current()) {
  detail::SizingScope scope(module);
  untaped([&] {
    if constexpr (std::is_invocable_v<const Sample&>) sample();
    else if constexpr (std::is_invocable_v<M&, const Sample&, SourceLocation>) module(sample, where);
    else module(sample);
  });
  scope.finish(where);
}

}  // namespace reel::nn
