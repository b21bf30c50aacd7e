#include "reel/nn/linear.h"

#include <utility>

#include "reel/nn/initialize.h"
#include "reel/nn/layer.h"
#include "reel/ops/create.h"
#include "reel/ops/matmul.h"

namespace reel::nn {

namespace {

constexpr const char* kKind = "Linear";

const LinearOptions& checked(const LinearOptions& options, SourceLocation where) {
  detail::require_size("Linear", "in", options.in, where);
  detail::require_size("Linear", "out", options.out, where);
  const Shape shape{options.out, options.in};
  if (options.weight.defined() && !(options.weight.shape() == shape))
    throw ShapeError("Linear: a shared weight must have shape " + shape.str() + ", got " + options.weight.shape().str(),
                     where);
  return options;
}

}  // namespace

Linear::Linear(const LinearOptions& options, SourceLocation where) : Module(kKind) {
  build(checked(options, where), where);
}

// What is wrong is said before anything is registered.
Linear::Linear(Module* parent, std::string name, const LinearOptions& options, SourceLocation where)
    : Module(parent, (checked(options, where), std::move(name)), kKind, where) {
  build(options, where);
}

void Linear::build(const LinearOptions& options, SourceLocation where) {
  const bool shares = options.weight.defined();
  weight_ = shares ? parameter("weight", options.weight, where)
                   : parameter("weight", zeros({options.out, options.in}), where);
  if (options.bias) bias_ = parameter("bias", zeros({options.out}), where);
  const double bound = init::layer_bound(weight_, where);
  if (!shares) init::uniform(weight_, -bound, bound, {}, where);
  if (options.bias) init::uniform(bias_, -bound, bound, {}, where);
}

Tensor Linear::operator()(const Tensor& x, SourceLocation where) const {
  return linear(x, weight_, detail::value_of(bias_), Epilogue::none, where);
}

Ragged Linear::operator()(const Ragged& x, SourceLocation where) const {
  return linear(x, weight_, detail::value_of(bias_), Epilogue::none, where);
}

}  // namespace reel::nn
