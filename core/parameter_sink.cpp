#include "reel/core/parameter_sink.h"

#include <mutex>
#include <utility>

#include "reel/core/error.h"
#include "reel/core/ops.h"

namespace reel::detail {

namespace {

// While a hook runs. A sweep inside it that reached its own parameter would call it again, and that one again, without end.
class HookScope {
 public:
  explicit HookScope(const ParameterState& parameter) : parameter_(parameter), outer_(innermost) {
    for (const HookScope* hook = outer_; hook != nullptr; hook = hook->outer_)
      if (&hook->parameter_ == &parameter)
        throw Error("on_gradient: the hook must not sweep to its own parameter, got '" + parameter.name + "' again",
                    SourceLocation{});
    innermost = this;
  }
  ~HookScope() { innermost = outer_; }
  HookScope(const HookScope&) = delete;
  HookScope& operator=(const HookScope&) = delete;

 private:
  static thread_local constinit const HookScope* innermost;
  const ParameterState& parameter_;
  const HookScope* outer_;
};
thread_local constinit const HookScope* HookScope::innermost = nullptr;

}  // namespace

ParameterSink::ParameterSink(std::shared_ptr<FlatBuffer> home) : home_(std::move(home)) {
  {
    const std::lock_guard lock(home_->mutex);
    pending_ = take_spare(*home_);
  }
  reached_ = empty({home_->members.size()}, {.dtype = u8});
  backend(Device::cpu()).fill(reached_.array(), 0);
  add_to(home_->sweeps, 1);
}

ParameterSink::~ParameterSink() {
  add_to(home_->sweeps, -1);
  if (!pending_.defined()) return;
  const std::lock_guard lock(home_->mutex);
  home_->spare = std::move(pending_);
}

Gradients::Destination ParameterSink::destination(const ParameterState& parameter) {
  std::uint8_t& reached = reached_.array().as<std::uint8_t>()[parameter.index];
  const bool fresh = reached == 0;
  reached = 1;
  return {member_view(pending_, parameter), fresh};
}

void ParameterSink::commit() {
  const std::lock_guard lock(home_->mutex);
  Ops& ops = backend(pending_.device());
  const auto* reached = reached_.array().as<std::uint8_t>();
  const bool replace = home_->gradient_count == 0;
  if (replace) std::swap(home_->gradients, pending_);  // what was there becomes the next spare
  for (std::size_t i = 0; i < home_->members.size(); ++i) {
    ParameterState* parameter = home_->members[i];
    if (parameter == nullptr) continue;
    if (reached[i] == 0) {
      if (replace) ops.fill(member_view(home_->gradients, *parameter).array(), 0);
      continue;
    }
    if (!replace) {
      const Tensor from = member_view(pending_, *parameter);
      const Tensor to = member_view(home_->gradients, *parameter);
      if (parameter->has_gradient) ops.accumulate(from.array(), to.array());
      else ops.copy(from.array(), to.array());
    }
    if (!parameter->has_gradient) ++home_->gradient_count;
    parameter->has_gradient = true;
  }
}

bool ParameterSink::has_hooks() const {
  const std::lock_guard lock(home_->mutex);
  const auto* reached = reached_.array().as<std::uint8_t>();
  for (std::size_t i = 0; i < home_->members.size(); ++i)
    if (reached[i] != 0 && home_->members[i] != nullptr && home_->members[i]->gradient_hook) return true;
  return false;
}

void ParameterSink::remember() {
  const std::lock_guard lock(home_->mutex);
  if (home_->gradients.defined()) before_ = copied(home_->gradients, home_->gradients.dtype());
  for (const ParameterState* parameter : home_->members)
    had_gradient_.push_back(parameter != nullptr && parameter->has_gradient);
}

void ParameterSink::restore() const {
  const std::lock_guard lock(home_->mutex);
  if (before_.defined()) backend(before_.device()).copy(before_.array(), home_->gradients.array());
  home_->gradient_count = 0;
  for (std::size_t i = 0; i < home_->members.size(); ++i) {
    if (home_->members[i] == nullptr) continue;
    home_->members[i]->has_gradient = i < had_gradient_.size() && had_gradient_[i] != 0;
    home_->gradient_count += home_->members[i]->has_gradient;
  }
}

void ParameterSink::call_hooks() const {
  const auto* reached = reached_.array().as<std::uint8_t>();
  for (std::size_t i = 0; i < home_->members.size(); ++i) {
    if (reached[i] == 0) continue;
    std::shared_ptr<ParameterState> state;
    {
      const std::lock_guard lock(home_->mutex);  // which one that ends in another thread waits for
      if (home_->members[i] != nullptr) state = home_->members[i]->weak_from_this().lock();
    }
    if (state == nullptr || !state->gradient_hook) continue;
    const auto hook = state->gradient_hook;  // it may put another in its place
    const HookScope scope(*state);
    Parameter parameter(std::move(state));
    hook(parameter);
  }
}

}  // namespace reel::detail
