#pragma once

// Private to nn/: modules that are being cloned.

#include <map>
#include <memory>
#include <set>

#include "reel/nn/module_state.h"

namespace reel::nn::detail {

/// `state`, or its copy while a CloneScope is alive in this thread.
std::shared_ptr<ModuleState> shared_or_cloned(const std::shared_ptr<ModuleState>& state);
std::shared_ptr<BufferState> shared_or_cloned(const std::shared_ptr<BufferState>& state);

/// What has been copied so far. The same state gives the same copy, and a copy gives itself.
class Cloning {
 public:
  Cloning();
  ~Cloning();
  Cloning(const Cloning&) = delete;
  Cloning& operator=(const Cloning&) = delete;

  std::shared_ptr<ModuleState> copy_of(const std::shared_ptr<ModuleState>& state);
  std::shared_ptr<BufferState> copy_of(const std::shared_ptr<BufferState>& state);
  /// A handle to this state was copied.
  void hold(const ModuleState* state) { held_.insert(state); }
  bool is_held(const ModuleState* state) const { return held_.count(state) != 0; }

 private:
  Cloning* outer_;
  reel::detail::ParameterCloning parameters_;
  std::map<const ModuleState*, std::shared_ptr<ModuleState>> modules_;
  std::map<const BufferState*, std::shared_ptr<BufferState>> buffers_;
  std::set<const ModuleState*> held_;
};

}  // namespace reel::nn::detail
