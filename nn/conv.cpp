#include "reel/nn/conv.h"

#include <utility>

#include "reel/nn/initialize.h"
#include "reel/nn/layer.h"
#include "reel/nn/module_state.h"
#include "reel/ops/create.h"

namespace reel::nn {

namespace {

void check_pair(const char* kind, const char* name, Size2d size, std::int64_t least, SourceLocation where) {
  detail::require(size.height >= least && size.width >= least, kind, std::string(name) + " >= " + std::to_string(least),
                  std::to_string(size.height) + " x " + std::to_string(size.width), where);
}

void check_groups(const char* kind, std::int64_t in, std::int64_t out, std::int64_t groups, SourceLocation where) {
  detail::require(in % groups == 0 && out % groups == 0, kind, "a number of groups that divides in and out",
                  std::to_string(groups) + " for " + std::to_string(in) + " and " + std::to_string(out), where);
}

const Conv2dLayerOptions& checked(const char* kind, const Conv2dLayerOptions& options, SourceLocation where) {
  detail::require_size(kind, "in", options.in, where, 0);  // 0 is left open
  detail::require_size(kind, "out", options.out, where);
  check_pair(kind, "kernel", options.kernel, 1, where);
  check_pair(kind, "stride", options.stride, 1, where);
  check_pair(kind, "padding", options.padding, 0, where);
  check_pair(kind, "dilation", options.dilation, 1, where);
  detail::require_size(kind, "groups", options.groups, where);
  check_groups(kind, options.in, options.out, options.groups, where);
  return options;
}

}  // namespace

Conv2d::Conv2d(const char* kind, const Conv2dLayerOptions& options, SourceLocation where) : Module(kind) {
  checked(kind, options, where);
  reel::detail::now_running(kind, where);
  build(options, where);
}

// What is wrong is said before anything is registered.
Conv2d::Conv2d(const char* kind, Module* parent, std::string name, const Conv2dLayerOptions& options,
               SourceLocation where)
    : Module(parent, (checked(kind, options, where), std::move(name)), kind, where) {
  reel::detail::now_running(kind, where);
  build(options, where);
}

Conv2d::Conv2d(const Conv2dLayerOptions& options, SourceLocation where) : Conv2d("Conv2d", options, where) {}
Conv2d::Conv2d(Module* parent, std::string name, const Conv2dLayerOptions& options, SourceLocation where)
    : Conv2d("Conv2d", parent, std::move(name), options, where) {}

void Conv2d::build(const Conv2dLayerOptions& options, SourceLocation where) {
  geometry_ = {.stride = {options.stride.height, options.stride.width},
               .padding = {options.padding.height, options.padding.width},
               .dilation = {options.dilation.height, options.dilation.width},
               .groups = options.groups,
               .mode = options.padding_mode};
  const Shape shape{options.out, options.in / options.groups, options.kernel.height, options.kernel.width};
  weight_ = parameter("weight", zeros(shape), where);
  if (options.bias) bias_ = parameter("bias", zeros({options.out}), where);
  if (options.in == 0) detail::leave_open(*this);
  else start(where);
}

void Conv2d::start(SourceLocation where) const {
  const double bound = init::layer_bound(weight_, where);
  init::uniform(weight_, -bound, bound, {}, where);
  if (bias_.defined()) init::uniform(bias_, -bound, bound, {}, where);
}

void Conv2d::settle(const Tensor& x, SourceLocation where) const {
  if (!detail::is_open(*this) || !x.defined() || x.rank() != 4) return;  // refused by the op
  check_groups(state()->kind.c_str(), x.shape()[1], weight_.shape()[0], geometry_.groups, where);
  detail::settle(*this, weight_, x.shape()[1] / geometry_.groups, where);
  start(where);
}

Tensor Conv2d::operator()(const Tensor& x, SourceLocation where) const {
  settle(x, where);
  return conv2d(x, weight_, detail::value_of(bias_), geometry_, where);
}

Conv2dRelu::Conv2dRelu(const Conv2dLayerOptions& options, SourceLocation where)
    : Conv2d("Conv2dRelu", options, where) {}
Conv2dRelu::Conv2dRelu(Module* parent, std::string name, const Conv2dLayerOptions& options, SourceLocation where)
    : Conv2d("Conv2dRelu", parent, std::move(name), options, where) {}

Tensor Conv2dRelu::operator()(const Tensor& x, SourceLocation where) const {
  settle(x, where);
  return conv2d_relu(x, weight(), detail::value_of(bias()), geometry(), where);
}

}  // namespace reel::nn
