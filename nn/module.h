#pragma once

#include <concepts>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "reel/core/parameter.h"

namespace reel::nn {

class Module;

namespace detail {
struct BufferState;
struct ModuleState;
class Cloning;
}  // namespace detail

/// A tensor that belongs to a module and is saved with it, but is not learnt: running statistics, tables. A handle; copies
/// are the same buffer. Converts to its value; an undefined one to an undefined tensor.
class REEL_API Buffer {
 public:
  Buffer() = default;
  /// Starts with a copy of `initial`.
  explicit Buffer(const Tensor& initial, SourceLocation where = SourceLocation::current());
  Buffer(const Buffer& other);
  Buffer& operator=(const Buffer& other) = default;

  bool defined() const { return state_ != nullptr; }
  const Tensor& value(SourceLocation where = SourceLocation::current()) const;
  operator const Tensor&() const;
  /// Overwrites the value. Throws ShapeError, VersionError.
  void set_value(const Tensor& value, SourceLocation where = SourceLocation::current());

  const std::shared_ptr<detail::BufferState>& state() const { return state_; }

 private:
  std::shared_ptr<detail::BufferState> state_;
};

struct NamedParameter {
  std::string name;  // the path from the module that was asked, such as "conv1.weight"
  Parameter parameter;
};
struct NamedBuffer {
  std::string name;
  Buffer buffer;
};

/// A part of a model, or a whole one, with named parameters, buffers and modules inside. A model is a struct whose members
/// register themselves:
///
///   struct Net : nn::Module {
///     nn::Linear hidden{this, "hidden", {.in = 64, .out = 100}};
///     nn::Linear head{this, "head", {.in = 100, .out = 10}};
///     Parameter scale = parameter("scale", ones({10}));
///     Tensor operator()(const Tensor& x) { return head(relu(hidden(x))) * scale; }
///   };
///
/// A part of one's own that is to stand inside others takes over the constructors: `using nn::Module::Module;`.
///
/// A Module is a handle to shared state, and so are its members: copies are the same model, safe to pass and to store, and
/// a copy outlives what it was made from. nn::clone(net) is a model of its own. Moving from a module leaves it as it was.
/// Using one net for inference from several threads is safe; changing it (to, train, parameters, load) meanwhile is not.
class REEL_API Module {
 public:
  static constexpr bool kTakesLine = true;  // a call may end with the user's line (core/call_at.h)
  /// A model that is part of no other. `kind` is what summary() calls it.
  explicit Module(std::string kind = "");
  /// A part of `parent`, under `name` (not empty, without '.', not beginning with '@'). Throws Error if the name is not such
  /// a one or is taken.
  Module(Module* parent, std::string name, std::string kind = "", SourceLocation where = SourceLocation::current());
  Module(const Module& other);
  Module& operator=(const Module& other) = default;
  ~Module();

  /// All parameters, each once, in the order in which they were registered. Puts those of the whole model that this is part
  /// of next to each other in memory, if they are not yet (see flatten_parameters). Throws Error while a size is open (see
  /// nn::initialize), as named_parameters, parameter_count, to and saving and loading do.
  std::vector<Parameter> parameters(SourceLocation where = SourceLocation::current()) const;
  /// The same with their paths. A parameter that is in several places has the path of the first.
  std::vector<NamedParameter> named_parameters(SourceLocation where = SourceLocation::current()) const;
  std::vector<NamedBuffer> named_buffers() const;
  /// The parameter at a path from here. Throws Error if there is none.
  Parameter parameter_at(std::string_view path, SourceLocation where = SourceLocation::current()) const;
  /// Elements of all parameters.
  std::int64_t parameter_count(SourceLocation where = SourceLocation::current()) const;

  /// Moves parameters, with their gradients, and buffers. Throws DeviceError.
  void to(Device device, SourceLocation where = SourceLocation::current());
  /// Where the parameters are.
  Device device() const;

  /// Sets what is_training() says here and in all modules inside; true at first.
  void train(bool training = true);
  void eval() { train(false); }
  bool is_training() const;

  /// For all parameters: those that are not trainable are constants to the tape, and optimisers leave them alone.
  void set_trainable(bool trainable);
  /// For all parameters: the optimisers' group that they belong to.
  void set_group(const std::string& group);

  /// For the functions of nn.
  const std::shared_ptr<detail::ModuleState>& state() const { return state_; }

 protected:
  /// A new parameter of this module that starts with a copy of `initial`. Throws Error for a bad or taken name, DTypeError.
  Parameter parameter(const std::string& name, const Tensor& initial, SourceLocation where = SourceLocation::current());
  /// The same parameter as another module's: tied weights.
  Parameter parameter(const std::string& name, const Parameter& shared,
                      SourceLocation where = SourceLocation::current());
  /// A new buffer.
  Buffer buffer(const std::string& name, const Tensor& initial, SourceLocation where = SourceLocation::current());
  /// Takes a module that exists already in as a part.
  void adopt(const std::string& name, const Module& child, SourceLocation where = SourceLocation::current());

 private:
  std::shared_ptr<detail::ModuleState> state_;
};

namespace detail {
/// While alive, copying a module member by member makes an independent one.
class REEL_API CloneScope {
 public:
  CloneScope();
  ~CloneScope();
  CloneScope(const CloneScope&) = delete;
  CloneScope& operator=(const CloneScope&) = delete;
  /// Throws Error if `copy` has a part that no member of it is a handle to: one held by a pointer.
  void check(const Module& copy, SourceLocation where) const;

 private:
  std::unique_ptr<Cloning> cloning_;
};
}  // namespace detail

/// A model of its own with the same values, flags, names and groups; without gradients. Modules, Parameters and Buffers that
/// are members of M, at any depth, become copies, each shared one a shared one; everything else is copied as M's copy
/// constructor does it. Throws Error if M holds a part of it by a pointer, which its copy would share.
template <std::derived_from<Module> M>
M clone(const M& module, SourceLocation where = SourceLocation::current()) {
  return [&]() -> M {
    const detail::CloneScope scope;
    M copy(module);
    scope.check(copy, where);
    return copy;
  }();
}

}  // namespace reel::nn
