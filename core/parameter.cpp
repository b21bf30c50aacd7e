#include "reel/core/parameter.h"

#include <algorithm>
#include <map>
#include <mutex>
#include <utility>

#include "reel/core/error.h"
#include "reel/core/ops.h"
#include "reel/core/tape.h"

namespace reel {

namespace {

using detail::FlatBuffer;
using detail::ParameterState;

constexpr std::int64_t kBoundary = 256;  // bytes

Tensor zeros_flat(std::int64_t elements, DType dtype, Device device) {
  Tensor flat = empty({elements}, {.dtype = dtype, .device = device});
  backend(device).fill(flat.array(), 0);
  return flat;
}

void copy_into(const Tensor& from, Tensor to) {
  const Tensor source = detail::transferred(from, to.device());
  backend(to.device()).copy(source.array(), to.array());
}

// A new buffer for `members`, in this order, with their values and gradients; they themselves stay where they are.
struct Layout {
  const std::vector<ParameterState*>& members;
  std::shared_ptr<FlatBuffer> home = std::make_shared<FlatBuffer>();
  std::vector<std::int64_t> offsets;

  Layout(const std::vector<ParameterState*>& members, DType dtype, Device device, const char* call,
         SourceLocation where);
  void move_in();
};

Layout::Layout(const std::vector<ParameterState*>& members_, DType dtype, Device device, const char* call,
               SourceLocation where)
    : members(members_), offsets(members_.size()) {
  const std::int64_t boundary = kBoundary / static_cast<std::int64_t>(size_of(dtype));
  std::int64_t total = 0;
  for (std::size_t i = 0; i < members.size(); ++i) {
    const ParameterState* const member = members[i];
    detail::refuse_if_taped(member->value, call, where);
    if (member->home != nullptr && member->home->sweeps.load(std::memory_order_relaxed) > 0)
      throw Error(std::string(call) + ": no sweep must be on its way to the parameters, got one that has reached '" +
                      member->name + "': lay them out (Module::parameters, to) before or after it",
                  where);
    offsets[i] = total;
    total += (member->value.size() + boundary - 1) / boundary * boundary;
    if (member->has_gradient) ++home->gradient_count;
  }
  home->members = members;
  home->values = zeros_flat(total, dtype, device);
  if (home->gradient_count > 0) home->gradients = zeros_flat(total, dtype, device);
  for (std::size_t i = 0; i < members.size(); ++i) {
    const ParameterState& member = *members[i];
    const auto place_in = [&](const Tensor& flat) {
      return detail::view(flat, offsets[i], member.value.shape(), member.value.array().strides);
    };
    copy_into(member.value, place_in(home->values));
    if (member.has_gradient) copy_into(detail::member_view(member.home->gradients, member), place_in(home->gradients));
  }
}

// Cannot fail: either all members have moved or, where a copy failed, none.
void Layout::move_in() {
  for (std::size_t i = 0; i < members.size(); ++i) {
    ParameterState& member = *members[i];
    if (member.home != nullptr) {
      member.home->members[member.index] = nullptr;
      if (member.has_gradient) --member.home->gradient_count;
    }
    member.home = home;  // a buffer of its own is a view of the value, which would keep the old memory
    detail::move_to(member.value, home->values, offsets[i]);
    member.index = i;
    member.offset = offsets[i];
    member.settled.store(true, std::memory_order_release);
  }
}

bool together(const std::vector<ParameterState*>& members) {
  const FlatBuffer* home = members.front()->home.get();
  if (home == nullptr || home->members.size() != members.size()) return false;
  return std::equal(members.begin(), members.end(), home->members.begin());
}

void gather(const std::vector<Parameter>& parameters, const Device* device, const char* call, SourceLocation where) {
  detail::now_running(call, where);
  std::map<std::pair<DType, int>, std::vector<ParameterState*>> kinds;
  for (const Parameter& parameter : parameters) {
    if (!parameter.defined()) throw Error(std::string(call) + ": every parameter must be defined", where);
    ParameterState* state = parameter.state().get();
    const Device target = device != nullptr ? *device : parameter.device();
    auto& members = kinds[{parameter.dtype(), static_cast<int>(target.type) * 128 + target.index}];
    // Tied weights are one parameter.
    if (std::find(members.begin(), members.end(), state) == members.end()) members.push_back(state);
  }
  std::vector<Layout> layouts;
  for (auto& [kind, members] : kinds) {
    const Device target = device != nullptr ? *device : members.front()->value.device();
    if (together(members) && members.front()->value.device() == target) continue;
    layouts.emplace_back(members, kind.first, target, call, where);
  }
  for (Layout& layout : layouts) layout.move_in();
}

}  // namespace

namespace detail {

ParameterState::ParameterState(Tensor initial) : value(std::move(initial)) { value.state()->parameter = this; }

ParameterState::~ParameterState() {
  value.state()->parameter = nullptr;  // handles to the value may live on, as constants
  if (home != nullptr) {
    const std::lock_guard lock(home->mutex);  // another thread may sweep to other members
    home->members[index] = nullptr;
    if (has_gradient) --home->gradient_count;
  }
}

namespace {
thread_local constinit ParameterCloning* cloning = nullptr;
}

ParameterCloning::ParameterCloning() : outer_(cloning) { cloning = this; }
ParameterCloning::~ParameterCloning() { cloning = outer_; }

std::shared_ptr<ParameterState> ParameterCloning::copy_of(const std::shared_ptr<ParameterState>& state) {
  if (state == nullptr) return nullptr;
  std::shared_ptr<ParameterState>& copy = copies_[state.get()];
  if (copy == nullptr) {
    copy = std::make_shared<ParameterState>(copied(state->value, state->value.dtype()));
    copy->name = state->name;
    copy->group = state->group;
    copy->trainable = state->trainable;
    copies_.emplace(copy.get(), copy);  // a copy that is copied on its way to its place is itself
  }
  return copy;
}

std::shared_ptr<ParameterState> shared_or_cloned(const std::shared_ptr<ParameterState>& state) {
  return cloning == nullptr ? state : cloning->copy_of(state);
}

namespace {

// The value stays where it is: a buffer of one.
void settle_alone(ParameterState& parameter) {
  static std::mutex mutex;
  const std::lock_guard lock(mutex);
  if (parameter.settled.load(std::memory_order_relaxed)) return;
  const auto home = std::make_shared<FlatBuffer>();
  const std::int64_t step = 1;
  home->values = view(parameter.value, 0, {parameter.value.size()}, &step);
  home->members = {&parameter};
  parameter.home = home;
  parameter.index = 0;
  parameter.offset = 0;
  parameter.settled.store(true, std::memory_order_release);
}

}  // namespace

FlatBuffer& home_of(ParameterState& parameter) {
  if (!parameter.settled.load(std::memory_order_acquire)) settle_alone(parameter);
  return *parameter.home;
}

Tensor member_view(const Tensor& flat, const ParameterState& parameter) {
  return view(flat, parameter.offset, parameter.value.shape(), parameter.value.array().strides);
}

Tensor take_spare(FlatBuffer& home) {
  Tensor flat = std::move(home.spare);
  home.spare = Tensor();
  if (!flat.defined() || !sole_owner(flat))
    flat = zeros_flat(home.values.size(), home.values.dtype(), home.values.device());
  return flat;
}

}  // namespace detail

Parameter::Parameter(const Tensor& initial, std::string name, SourceLocation where) {
  if (!initial.defined()) throw Error("Parameter: the initial value must be defined", where);
  if (!is_floating(initial.dtype()) || is_half(initial.dtype()))
    throw DTypeError(std::string("Parameter: the initial value must be f32 or f64, got ") + name_of(initial.dtype()) +
                         (is_half(initial.dtype()) ? "; keep it in f32 and cast it where it is multiplied" : ""),
                     where);
  detail::now_running("Parameter", where);
  state_ = std::make_shared<detail::ParameterState>(detail::copied(initial, initial.dtype()));
  state_->name = std::move(name);
}

Tensor Parameter::gradient(SourceLocation where) const {
  if (!known("gradient", where).has_gradient) return {};
  detail::now_running("gradient", where);
  return detail::copied(detail::member_view(state_->home->gradients, *state_), dtype());
}

void Parameter::set_gradient(const Tensor& gradient, SourceLocation where) {
  known("set_gradient", where);
  detail::now_running("set_gradient", where);
  if (!gradient.defined()) throw Error("set_gradient: the gradient must be defined; see clear_gradient", where);
  if (!(gradient.shape() == shape()))
    throw ShapeError("set_gradient: the gradient must have shape " + shape().str() + ", got " + gradient.shape().str(),
                     where);
  if (gradient.dtype() != dtype())
    throw DTypeError(
        std::string("set_gradient: the gradient must be ") + name_of(dtype()) + ", got " + name_of(gradient.dtype()),
        where);
  if (!(gradient.device() == device()))
    throw DeviceError("set_gradient: the gradient must be on " + device().name() + ", got " + gradient.device().name(),
                      where);
  detail::FlatBuffer& home = detail::home_of(*state_);
  if (!home.gradients.defined()) home.gradients = detail::take_spare(home);
  copy_into(gradient, detail::member_view(home.gradients, *state_));
  if (!state_->has_gradient) ++home.gradient_count;
  state_->has_gradient = true;
}

void Parameter::clear_gradient(SourceLocation where) {
  if (!known("clear_gradient", where).has_gradient) return;
  state_->has_gradient = false;
  --state_->home->gradient_count;
}

void Parameter::set_value(const Tensor& value, SourceLocation where) {
  detail::overwrite("set_value", known("set_value", where).value, value, where);
}

void flatten_parameters(const std::vector<Parameter>& parameters, SourceLocation where) {
  gather(parameters, nullptr, "flatten_parameters", where);
}

void move_parameters(const std::vector<Parameter>& parameters, Device device, SourceLocation where) {
  backend(device, where);
  gather(parameters, &device, "move_parameters", where);
}

}  // namespace reel
