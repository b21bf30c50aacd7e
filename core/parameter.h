#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "reel/core/tensor.h"

namespace reel {

class Parameter;

namespace detail {

/// The values and gradients of parameters of one dtype and device, one after the other, each at a 256-byte boundary with
/// zeros between.
struct FlatBuffer {
  Tensor values;
  Tensor gradients;                      // undefined until the first sweep; padding zero
  Tensor spare;                          // a sweep writes here and swaps it in when it has succeeded
  std::vector<ParameterState*> members;  // in order of offset
  std::int64_t gradient_count = 0;       // members that have a gradient
  std::atomic<int> sweeps{0};            // that bring gradients for them: until these are here the members stay
  std::mutex mutex;                      // held where sweeps of several threads meet: as they begin and end
};

struct ParameterState : std::enable_shared_from_this<ParameterState> {
  Tensor value;
  std::string name;
  std::string group;
  bool trainable = true;
  bool has_gradient = false;
  std::shared_ptr<FlatBuffer> home;
  std::atomic<bool> settled{false};  // home is there: sweeps of several threads may be the first to ask for it
  std::size_t index = 0;             // home->members[index] == this
  std::int64_t offset = 0;           // in elements
  std::function<void(Parameter&)> gradient_hook;

  explicit ParameterState(Tensor initial);
  ~ParameterState();
  ParameterState(const ParameterState&) = delete;
  ParameterState& operator=(const ParameterState&) = delete;
};

/// While one of these is alive, copies of handles made in its thread are handles to copies: a model that is copied member by
/// member becomes an independent one. The same parameter gives the same copy. See nn::clone.
class REEL_API ParameterCloning {
 public:
  ParameterCloning();
  ~ParameterCloning();
  ParameterCloning(const ParameterCloning&) = delete;
  ParameterCloning& operator=(const ParameterCloning&) = delete;

  /// The copy of a parameter: its value, name, group and whether it is trained, without its gradient.
  std::shared_ptr<ParameterState> copy_of(const std::shared_ptr<ParameterState>& state);

 private:
  ParameterCloning* outer_;
  std::map<const ParameterState*, std::shared_ptr<ParameterState>> copies_;
};
/// `state`, or its copy while parameters are being cloned.
REEL_API std::shared_ptr<ParameterState> shared_or_cloned(const std::shared_ptr<ParameterState>& state);

}  // namespace detail

/// A tensor that is learnt: a handle to value, gradient, name, group and whether it is trained. Copies of a handle are the
/// same parameter. Converts to its value, so that ops take it like any tensor; while a Tape is alive they are recorded.
/// An undefined one converts to an undefined tensor, and all calls but defined() and comparisons throw Error.
class REEL_API Parameter {
 public:
  Parameter() = default;
  Parameter(const Parameter& other) : state_(detail::shared_or_cloned(other.state_)) {}
  Parameter& operator=(const Parameter& other) = default;
  /// Starts with a copy of `initial` (floating dtype). Throws DTypeError.
  explicit Parameter(const Tensor& initial, std::string name = "", SourceLocation where = SourceLocation::current());

  bool defined() const { return state_ != nullptr; }
  const Tensor& value(SourceLocation where = SourceLocation::current()) const { return known("value", where).value; }
  operator const Tensor&() const { return state_ != nullptr ? state_->value : detail::undefined_tensor; }
  const Shape& shape(SourceLocation where = SourceLocation::current()) const {
    return known("shape", where).value.shape();
  }
  std::int64_t size(SourceLocation where = SourceLocation::current()) const {
    return known("size", where).value.size();
  }
  DType dtype(SourceLocation where = SourceLocation::current()) const { return known("dtype", where).value.dtype(); }
  Device device(SourceLocation where = SourceLocation::current()) const {
    return known("device", where).value.device();
  }
  TensorOptions options(SourceLocation where = SourceLocation::current()) const {
    return known("options", where).value.options();
  }

  /// True if a sweep has reached this parameter since its gradient was last cleared.
  bool has_gradient(SourceLocation where = SourceLocation::current()) const {
    return known("has_gradient", where).has_gradient;
  }
  /// A copy of the gradient, or an undefined tensor.
  Tensor gradient(SourceLocation where = SourceLocation::current()) const;
  /// Replaces the gradient (shape, dtype and device of the value). Throws ShapeError, DTypeError, DeviceError.
  void set_gradient(const Tensor& gradient, SourceLocation where = SourceLocation::current());
  void clear_gradient(SourceLocation where = SourceLocation::current());
  /// Calls hook(parameter) at the end of each sweep that reached this parameter, when its gradient is complete; the hook may
  /// read or set it. One per parameter: another replaces it, {} removes it. Not copied by nn::clone.
  /// If it throws, every gradient is as it was before the sweep. A sweep inside it that reaches this parameter throws Error.
  void on_gradient(std::function<void(Parameter&)> hook, SourceLocation where = SourceLocation::current()) {
    known("on_gradient", where).gradient_hook = std::move(hook);
  }

  /// Overwrites the value. Throws ShapeError, VersionError.
  void set_value(const Tensor& value, SourceLocation where = SourceLocation::current());

  bool trainable(SourceLocation where = SourceLocation::current()) const { return known("trainable", where).trainable; }
  /// A parameter that is not trainable is a constant to the tape: what depends on it alone is not recorded.
  void set_trainable(bool trainable, SourceLocation where = SourceLocation::current()) {
    known("set_trainable", where).trainable = trainable;
  }
  const std::string& name(SourceLocation where = SourceLocation::current()) const { return known("name", where).name; }
  void set_name(std::string name, SourceLocation where = SourceLocation::current()) {
    known("set_name", where).name = std::move(name);
  }
  /// Parameters of one group share optimiser settings; "" unless set.
  const std::string& group(SourceLocation where = SourceLocation::current()) const {
    return known("group", where).group;
  }
  void set_group(std::string group, SourceLocation where = SourceLocation::current()) {
    known("set_group", where).group = std::move(group);
  }

  bool operator==(const Parameter& other) const { return state_ == other.state_; }
  const std::shared_ptr<detail::ParameterState>& state() const { return state_; }
  explicit Parameter(std::shared_ptr<detail::ParameterState> state) : state_(std::move(state)) {}

 private:
  detail::ParameterState& known(const char* call, SourceLocation where) const {
    if (state_ == nullptr) [[unlikely]]
      detail::refuse_undefined(call, "parameter", where);
    return *state_;
  }

  std::shared_ptr<detail::ParameterState> state_;
};

/// Moves parameters into one flat buffer per dtype and device, keeping values and gradients; those already together stay.
/// Tensors that were read from them before (views of their values) keep the old memory. Throws Error while a sweep brings
/// gradients for one of them, as in its callbacks and hooks.
REEL_API void flatten_parameters(const std::vector<Parameter>& parameters,
                                 SourceLocation where = SourceLocation::current());
/// Moves parameters, values and gradients, to a device, into one flat buffer per dtype.
REEL_API void move_parameters(const std::vector<Parameter>& parameters, Device device,
                              SourceLocation where = SourceLocation::current());

namespace detail {
/// The parameter's flat buffer; made for it alone if it has none yet.
FlatBuffer& home_of(ParameterState& parameter);
/// A tensor over a member's part of `flat` (one of its home's buffers); unrecorded, made anew.
REEL_API Tensor member_view(const Tensor& flat, const ParameterState& parameter);
/// A buffer for a sweep's gradients: the spare one if nobody else looks at it. Padding is zero.
Tensor take_spare(FlatBuffer& home);

/// An operand, with the line of the expression or call: for operators, and in front of any number of operands, where there is
/// no room for an argument that carries it. The same for a Ragged: RaggedArg.
struct TensorArg {
  const Tensor& tensor;
  SourceLocation where;

  TensorArg(const Tensor& x, SourceLocation at = SourceLocation::current()) : tensor(x), where(at) {}
  TensorArg(const Parameter& x, SourceLocation at = SourceLocation::current()) : tensor(x), where(at) {}
};
}  // namespace detail

}  // namespace reel
