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
  // 0 is left open; who shares a weight knows its size.
  const std::int64_t least = options.weight.defined() ? 1 : 0;
  detail::require_size(kKind, "in", options.in, where, least);
  detail::require_size(kKind, "out", options.out, where);
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
  reel::detail::now_running(kKind, where);
  const bool shares = options.weight.defined();
  weight_ = shares ? parameter("weight", options.weight, where)
                   : parameter("weight", zeros({options.out, options.in}), where);
  if (options.bias) bias_ = parameter("bias", zeros({options.out}), where);
  if (options.in == 0) detail::leave_open(*this);
  else start(!shares, where);
}

void Linear::start(bool own_weight, SourceLocation where) const {
  const double bound = init::layer_bound(weight_, where);
  if (own_weight) init::uniform(weight_, -bound, bound, {}, where);
  if (bias_.defined()) init::uniform(bias_, -bound, bound, {}, where);
}

void Linear::settle(const Shape& x, SourceLocation where) const {
  if (x.rank() == 0) return;  // refused by the op
  detail::settle(*this, weight_, x.back(), where);
  start(true, where);
}

Tensor Linear::operator()(const Tensor& x, SourceLocation where) const {
  if (x.defined() && detail::is_open(*this)) settle(x.shape(), where);
  return linear(x, weight_, detail::value_of(bias_), Epilogue::none, where);
}

Ragged Linear::operator()(const Ragged& x, SourceLocation where) const {
  if (x.defined() && detail::is_open(*this)) settle(x.values().shape(), where);
  return linear(x, weight_, detail::value_of(bias_), Epilogue::none, where);
}

}  // namespace reel::nn
