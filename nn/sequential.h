#pragma once

#include <concepts>
#include <memory>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "reel/core/call_at.h"
#include "reel/core/error.h"
#include "reel/core/ragged.h"
#include "reel/nn/module.h"

namespace reel::nn {

namespace detail {

/// Any layer or function behind one interface.
class AnyLayer {
 public:
  virtual ~AnyLayer() = default;
  virtual Tensor call(const Tensor& x, SourceLocation where) = 0;
  virtual Ragged call(const Ragged& x, SourceLocation where) = 0;
  virtual std::unique_ptr<AnyLayer> copy() const = 0;
};

template <class F>
class AnyLayerOf final : public AnyLayer {
 public:
  explicit AnyLayerOf(F layer) : layer_(std::move(layer)) {}
  Tensor call(const Tensor& x, SourceLocation where) override { return apply<Tensor>(x, where); }
  Ragged call(const Ragged& x, SourceLocation where) override { return apply<Ragged>(x, where); }
  std::unique_ptr<AnyLayer> copy() const override { return std::make_unique<AnyLayerOf>(layer_); }

 private:
  template <class X>
  X apply(const X& x, SourceLocation where) {
    if constexpr (std::is_invocable_r_v<X, F&, const X&, SourceLocation> || std::is_invocable_r_v<X, F&, const X&>)
      return reel::detail::call_at(where, layer_, x);
    else
      throw Error(std::string("Sequential: a layer that takes and returns a ") +
                      (std::is_same_v<X, Tensor> ? "Tensor" : "Ragged") + " is required, got one that does not",
                  where);
  }

  F layer_;
};

/// A part's name with the line that wrote it, where no defaulted argument can stand behind it.
struct PartName {
  std::string text;
  SourceLocation where;

  template <std::convertible_to<std::string> Text>
  PartName(Text&& name, SourceLocation at = SourceLocation::current()) : text(std::forward<Text>(name)), where(at) {}
};

}  // namespace detail

/// Layers one after the other: each takes what the one before it gives. They are modules, which become parts under the names
/// "0", "1", ..., or functions: Sequential net(Linear({.in = 4, .out = 8}), [](const Tensor& x) { return relu(x); }).
/// Takes a Tensor or a Ragged, if all layers do.
class Sequential : public Module {
 public:
  Sequential() : Module("Sequential") {}
  template <class... Layers>
  requires(sizeof...(Layers) >= 1 && !(std::is_convertible_v<Layers, Module*> || ...) &&
           !(sizeof...(Layers) == 1 &&
             (std::is_same_v<Layers, Sequential> && ...))) explicit Sequential(Layers... layers)
      : Module("Sequential") {
    (add(std::move(layers)), ...);
  }
  template <class... Layers>
  Sequential(Module* parent, detail::PartName name, Layers... layers)
      : Module(parent, std::move(name.text), "Sequential", name.where) {
    (add(std::move(layers), name.where), ...);
  }
  Sequential(const Sequential& other) : Module(other) {
    for (const auto& layer : other.layers_) layers_.push_back(layer->copy());
  }
  Sequential& operator=(const Sequential& other) {
    Sequential copy(other);
    Module::operator=(copy);
    layers_.swap(copy.layers_);
    return *this;
  }

  /// Appends a layer. Copies of this Sequential made before do not see it.
  template <class F>
  Sequential& add(F layer, SourceLocation where = SourceLocation::current()) {
    if constexpr (std::is_base_of_v<Module, F>) adopt(std::to_string(layers_.size()), layer, where);
    layers_.push_back(std::make_unique<detail::AnyLayerOf<F>>(std::move(layer)));
    return *this;
  }
  std::size_t size() const { return layers_.size(); }

  Tensor operator()(const Tensor& x, SourceLocation where = SourceLocation::current()) const { return run(x, where); }
  Ragged operator()(const Ragged& x, SourceLocation where = SourceLocation::current()) const { return run(x, where); }

 private:
  template <class X>
  X run(X x, SourceLocation where) const {
    for (const auto& layer : layers_) x = layer->call(x, where);
    return x;
  }

  std::vector<std::unique_ptr<detail::AnyLayer>> layers_;
};

}  // namespace reel::nn
