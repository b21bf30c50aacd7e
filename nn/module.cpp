#include "reel/nn/module.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "reel/core/error.h"
#include "reel/core/ops.h"
#include "reel/nn/clone.h"
#include "reel/nn/layer.h"
#include "reel/nn/module_state.h"

namespace reel::nn {

using detail::Entry;
using detail::ModuleState;

namespace {

using StatePointer = std::shared_ptr<ModuleState>;

void check_name(const ModuleState& module, const std::string& name, SourceLocation where) {
  // '.' separates the names of a path; '@' begins what else is in a checkpoint.
  if (name.empty() || name[0] == '@' || name.find('.') != std::string::npos)
    throw Error("Module: a name must not be empty, have a '.' or begin with '@', got '" + name + "'", where);
  for (const Entry& entry : module.entries)
    if (entry.name == name) throw Error("Module: a name must be new to its module, got '" + name + "' twice", where);
}

bool contains(const ModuleState& module, const ModuleState* wanted) {
  bool found = &module == wanted;
  detail::for_each_entry(module, [&](const std::string&, const Entry& entry) { found |= entry.child.get() == wanted; });
  return found;
}

std::vector<StatePointer> living_parents(const ModuleState& module) {
  std::vector<StatePointer> parents;
  for (const auto& parent : module.parents)
    if (StatePointer state = parent.lock()) parents.push_back(std::move(state));
  return parents;
}

// The model that it is part of; of several, the first.
StatePointer root_of(StatePointer module) {
  for (auto parents = living_parents(*module); !parents.empty(); parents = living_parents(*module)) module = parents[0];
  return module;
}

// The path from the model that it is part of: "" or "block.conv1.".
std::string prefix_of(const ModuleState& module) {
  const auto parents = living_parents(module);
  if (parents.empty()) return "";
  for (const Entry& entry : parents[0]->entries)
    if (entry.child.get() == &module) return prefix_of(*parents[0]) + entry.name + ".";
  return "";
}

void mark_changed(ModuleState& module) {
  module.laid_out = false;
  for (const StatePointer& parent : living_parents(module)) mark_changed(*parent);
}

void add(const StatePointer& module, Entry entry, SourceLocation where) {
  check_name(*module, entry.name, where);
  module->entries.push_back(std::move(entry));
  mark_changed(*module);
}

std::vector<Parameter> parameters_of(const ModuleState& module) {
  std::vector<Parameter> parameters;
  std::set<const void*> seen;
  detail::for_each_entry(module, [&](const std::string&, const Entry& entry) {
    if (entry.parameter.defined() && seen.insert(entry.parameter.state().get()).second)
      parameters.push_back(entry.parameter);
  });
  return parameters;
}

}  // namespace

// --- construction -----------------------------------------------------------------------------------------------------

Module::Module(std::string kind) : state_(std::make_shared<ModuleState>()) { state_->kind = std::move(kind); }

Module::Module(Module* parent, std::string name, std::string kind, SourceLocation where) : Module(std::move(kind)) {
  if (parent == nullptr) throw Error("Module: the parent must not be null", where);
  parent->adopt(name, *this, where);
}

Module::Module(const Module& other) : state_(detail::shared_or_cloned(other.state_)) {}

Module::~Module() = default;

Parameter Module::parameter(const std::string& name, const Tensor& initial, SourceLocation where) {
  Parameter parameter(initial, prefix_of(*state_) + name, where);
  add(state_, {.name = name, .parameter = parameter}, where);
  return parameter;
}

Parameter Module::parameter(const std::string& name, const Parameter& shared, SourceLocation where) {
  if (!shared.defined()) throw Error("Module: the shared parameter '" + name + "' must be defined", where);
  add(state_, {.name = name, .parameter = shared}, where);
  return shared;
}

Buffer Module::buffer(const std::string& name, const Tensor& initial, SourceLocation where) {
  Buffer buffer(initial, where);
  add(state_, {.name = name, .buffer = buffer}, where);
  return buffer;
}

void Module::adopt(const std::string& name, const Module& child, SourceLocation where) {
  if (contains(*child.state_, state_.get())) throw Error("Module: a module must not be inside itself", where);
  const bool first = living_parents(*child.state_).empty();
  add(state_, {.name = name, .child = child.state_}, where);
  child.state_->parents.push_back(state_);
  if (!first) return;
  // What was named from the child on is named from the new top on; parameters shared with others keep their names.
  const std::string prefix = prefix_of(*child.state_);
  detail::for_each_entry(*child.state_, [&](const std::string& path, const Entry& entry) {
    if (entry.parameter.defined() && entry.parameter.name() == path) entry.parameter.state()->name = prefix + path;
  });
}

// --- what is inside ---------------------------------------------------------------------------------------------------

std::vector<Parameter> Module::parameters(SourceLocation where) const {
  const StatePointer root = root_of(state_);
  if (!root->laid_out) {
    detail::require_sizes(*root, "parameters", where);
    flatten_parameters(parameters_of(*root), where);
    root->laid_out = true;
  }
  return parameters_of(*state_);
}

std::vector<NamedParameter> Module::named_parameters(SourceLocation where) const {
  detail::require_sizes(*state_, "named_parameters", where);
  std::vector<NamedParameter> all;
  std::set<const void*> seen;
  detail::for_each_entry(*state_, [&](const std::string& path, const Entry& entry) {
    if (entry.parameter.defined() && seen.insert(entry.parameter.state().get()).second)
      all.push_back({path, entry.parameter});
  });
  return all;
}

std::vector<NamedBuffer> Module::named_buffers() const {
  std::vector<NamedBuffer> all;
  std::set<const void*> seen;
  detail::for_each_entry(*state_, [&](const std::string& path, const Entry& entry) {
    if (entry.buffer.defined() && seen.insert(entry.buffer.state().get()).second) all.push_back({path, entry.buffer});
  });
  return all;
}

Parameter Module::parameter_at(std::string_view path, SourceLocation where) const {
  Parameter found;
  detail::for_each_entry(*state_, [&](const std::string& at, const Entry& entry) {
    if (at == path) found = entry.parameter;
  });
  if (!found.defined()) throw Error("Module: there is no parameter '" + std::string(path) + "'", where);
  return found;
}

std::int64_t Module::parameter_count(SourceLocation where) const {
  detail::require_sizes(*state_, "parameter_count", where);
  std::int64_t count = 0;
  for (const Parameter& parameter : parameters_of(*state_)) count += parameter.size();
  return count;
}

// --- device and flags -------------------------------------------------------------------------------------------------

void Module::to(Device device, SourceLocation where) {
  backend(device, where);  // throws if there is none, before anything is moved
  detail::require_sizes(*state_, "to", where);
  const std::vector<Parameter> all = parameters_of(*state_);
  // First all copies, which may fail: then the module is where it was.
  std::map<detail::BufferState*, Tensor> buffers;
  detail::for_each_entry(*state_, [&](const std::string&, const Entry& entry) {
    if (!entry.buffer.defined()) return;
    const auto [place, is_new] = buffers.try_emplace(entry.buffer.state().get());
    if (is_new) place->second = reel::detail::transferred(place->first->value, device);
  });
  const bool moves = std::any_of(all.begin(), all.end(), [&](const auto& p) { return !(p.device() == device); });
  if (moves) move_parameters(all, device, where);
  if (moves && root_of(state_) == state_) state_->laid_out = true;
  if (!moves) parameters(where);  // what is there already stays, but next to each other
  for (auto& [buffer, value] : buffers) buffer->value = std::move(value);
  state_->device = device;
  detail::for_each_entry(*state_, [&](const std::string&, const Entry& entry) {
    if (entry.child != nullptr) entry.child->device = device;
  });
}

Device Module::device() const {
  const std::vector<Parameter> all = parameters_of(*state_);
  return all.empty() ? state_->device : all.front().device();
}

void Module::train(bool training) {
  state_->training = training;
  detail::for_each_entry(*state_, [&](const std::string&, const Entry& entry) {
    if (entry.child != nullptr) entry.child->training = training;
  });
}

bool Module::is_training() const { return state_->training; }

void Module::set_trainable(bool trainable) {
  for (Parameter& parameter : parameters_of(*state_)) parameter.set_trainable(trainable);
}

void Module::set_group(const std::string& group) {
  for (Parameter& parameter : parameters_of(*state_)) parameter.set_group(group);
}

// --- buffers ----------------------------------------------------------------------------------------------------------

Buffer::Buffer(const Tensor& initial, SourceLocation where) {
  if (!initial.defined()) throw Error("Buffer: the initial value must be defined", where);
  state_ = std::make_shared<detail::BufferState>(detail::BufferState{reel::detail::copied(initial, initial.dtype())});
}

Buffer::Buffer(const Buffer& other) : state_(detail::shared_or_cloned(other.state_)) {}

const Tensor& Buffer::value(SourceLocation where) const {
  if (state_ == nullptr) reel::detail::refuse_undefined("value", "buffer", where);
  return state_->value;
}

Buffer::operator const Tensor&() const { return state_ != nullptr ? state_->value : reel::detail::undefined_tensor; }

void Buffer::set_value(const Tensor& value, SourceLocation where) {
  if (state_ == nullptr) reel::detail::refuse_undefined("set_value", "buffer", where);
  reel::detail::overwrite("set_value", state_->value, value, where);
}

}  // namespace reel::nn
