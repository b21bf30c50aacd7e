#pragma once

// Private to nn/: what the handles of one module share.

#include <memory>
#include <set>
#include <string>
#include <vector>

#include "reel/nn/module.h"

namespace reel::nn::detail {

struct BufferState {
  Tensor value;
};

/// A parameter, a buffer or a module inside, under its name; the other two are empty.
struct Entry {
  std::string name;
  Parameter parameter = {};
  Buffer buffer = {};
  std::shared_ptr<ModuleState> child = nullptr;
};

struct ModuleState {
  std::string kind;
  std::vector<Entry> entries;                       // in the order of registration
  std::vector<std::weak_ptr<ModuleState>> parents;  // several if it is shared
  bool training = true;
  bool open = false;      // of a layer: a size is not known yet, see lazy.h
  bool laid_out = false;  // of a root: all parameters are in flat buffers
  Device device;          // of a module without parameters
};

/// Calls visit(path, entry) for all that is in `module`, in the order of registration, a module before what is in it. The
/// inside of a module that is in several places is visited once, at the first.
template <class F>
void for_each_entry(const ModuleState& module, F visit) {
  std::set<const ModuleState*> seen;
  const auto walk = [&](const auto& self, const std::string& prefix, const ModuleState& state) -> void {
    if (!seen.insert(&state).second) return;
    for (const Entry& entry : state.entries) {
      visit(prefix + entry.name, entry);
      if (entry.child != nullptr) self(self, prefix + entry.name + ".", *entry.child);
    }
  };
  walk(walk, "", module);
}

}  // namespace reel::nn::detail
