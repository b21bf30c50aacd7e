#include "reel/nn/clone.h"

#include "reel/core/error.h"

namespace reel::nn::detail {

namespace {
thread_local constinit Cloning* cloning = nullptr;
}

Cloning::Cloning() : outer_(cloning) { cloning = this; }
Cloning::~Cloning() { cloning = outer_; }

std::shared_ptr<ModuleState> Cloning::copy_of(const std::shared_ptr<ModuleState>& state) {
  if (const auto known = modules_.find(state.get()); known != modules_.end()) return known->second;
  const auto copy = std::make_shared<ModuleState>();
  modules_.emplace(state.get(), copy);
  modules_.emplace(copy.get(), copy);
  copy->kind = state->kind;
  copy->training = state->training;
  copy->open = state->open;
  copy->device = state->device;
  for (const Entry& entry : state->entries) {
    Entry mine = entry;  // copies of handles are handles to copies now
    if (mine.child != nullptr) {
      mine.child = copy_of(entry.child);
      mine.child->parents.push_back(copy);
    }
    copy->entries.push_back(std::move(mine));
  }
  return copy;
}

std::shared_ptr<BufferState> Cloning::copy_of(const std::shared_ptr<BufferState>& state) {
  if (state == nullptr) return nullptr;
  std::shared_ptr<BufferState>& copy = buffers_[state.get()];
  if (copy == nullptr) {
    copy = std::make_shared<BufferState>(BufferState{reel::detail::copied(state->value, state->value.dtype())});
    buffers_.emplace(copy.get(), copy);
  }
  return copy;
}

std::shared_ptr<ModuleState> shared_or_cloned(const std::shared_ptr<ModuleState>& state) {
  if (cloning == nullptr) return state;
  auto copy = cloning->copy_of(state);
  cloning->hold(copy.get());
  return copy;
}

std::shared_ptr<BufferState> shared_or_cloned(const std::shared_ptr<BufferState>& state) {
  return cloning == nullptr ? state : cloning->copy_of(state);
}

CloneScope::CloneScope() : cloning_(std::make_unique<Cloning>()) {}
CloneScope::~CloneScope() = default;

void CloneScope::check(const Module& copy, SourceLocation where) const {
  for_each_entry(*copy.state(), [&](const std::string& path, const Entry& entry) {
    if (entry.child != nullptr && !cloning_->is_held(entry.child.get()))
      throw Error("clone: each part must be a member by value, so that it is copied too, got '" + path +
                      "', which none is: it is held by a pointer, or was dropped",
                  where);
  });
}

}  // namespace reel::nn::detail
