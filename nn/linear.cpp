#include "reel/nn/linear.h"

#include <utility>

#include "reel/nn/initialize.h"
#include "reel/nn/layer.h"
#include "reel/ops/create.h"
#include "reel/ops/matmul.h"

namespace reel::nn {

namespace {

const LinearOptions& checked(const char* kind, const LinearOptions& options, SourceLocation where) {
  // 0 is left open; who shares a weight knows its size.
  const std::int64_t least = options.weight.defined() ? 1 : 0;
  detail::require_size(kind, "in", options.in, where, least);
  detail::require_size(kind, "out", options.out, where);
  const Shape shape{options.out, options.in};
  if (options.weight.defined() && !(options.weight.shape() == shape))
    throw ShapeError(std::string(kind) + ": a shared weight must have shape " + shape.str() + ", got " +
                         options.weight.shape().str(),
                     where);
  return options;
}

const Shape& shape_of(const Tensor& x) { return x.shape(); }
const Shape& shape_of(const Ragged& x) { return x.values().shape(); }

}  // namespace

Linear::Linear(const char* kind, const LinearOptions& options, SourceLocation where) : Module(kind) {
  checked(kind, options, where);
  reel::detail::now_running(kind, where);
  build(options, where);
}

// What is wrong is said before anything is registered.
Linear::Linear(const char* kind, Module* parent, std::string name, const LinearOptions& options, SourceLocation where)
    : Module(parent, (checked(kind, options, where), std::move(name)), kind, where) {
  reel::detail::now_running(kind, where);
  build(options, where);
}

Linear::Linear(const LinearOptions& options, SourceLocation where) : Linear("Linear", options, where) {}
Linear::Linear(Module* parent, std::string name, const LinearOptions& options, SourceLocation where)
    : Linear("Linear", parent, std::move(name), options, where) {}

void Linear::build(const LinearOptions& options, SourceLocation where) {
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

template <class X>
X Linear::apply(const X& x, Epilogue epilogue, SourceLocation where) const {
  if (x.defined() && detail::is_open(*this)) settle(shape_of(x), where);
  return linear(x, weight_, detail::value_of(bias_), epilogue, where);
}

Tensor Linear::operator()(const Tensor& x, SourceLocation where) const { return apply(x, Epilogue::none, where); }
Ragged Linear::operator()(const Ragged& x, SourceLocation where) const { return apply(x, Epilogue::none, where); }

LinearRelu::LinearRelu(const LinearOptions& options, SourceLocation where) : Linear("LinearRelu", options, where) {}
LinearRelu::LinearRelu(Module* parent, std::string name, const LinearOptions& options, SourceLocation where)
    : Linear("LinearRelu", parent, std::move(name), options, where) {}

Tensor LinearRelu::operator()(const Tensor& x, SourceLocation where) const { return apply(x, Epilogue::relu, where); }
Ragged LinearRelu::operator()(const Ragged& x, SourceLocation where) const { return apply(x, Epilogue::relu, where); }

}  // namespace reel::nn
