#include "reel/nn/conv.h"

#include <utility>

#include "reel/nn/initialize.h"
#include "reel/nn/layer.h"
#include "reel/ops/create.h"

namespace reel::nn {

namespace {

void check_pair(const char* kind, const char* name, Size2d size, std::int64_t least, SourceLocation where) {
  detail::require(size.height >= least && size.width >= least, kind, std::string(name) + " >= " + std::to_string(least),
                  std::to_string(size.height) + " x " + std::to_string(size.width), where);
}

const Conv2dLayerOptions& checked(const char* kind, const Conv2dLayerOptions& options, SourceLocation where) {
  detail::require_size(kind, "in", options.in, where);
  detail::require_size(kind, "out", options.out, where);
  check_pair(kind, "kernel", options.kernel, 1, where);
  check_pair(kind, "stride", options.stride, 1, where);
  check_pair(kind, "padding", options.padding, 0, where);
  check_pair(kind, "dilation", options.dilation, 1, where);
  detail::require_size(kind, "groups", options.groups, where);
  detail::require(
      options.in % options.groups == 0 && options.out % options.groups == 0, kind,
      "a number of groups that divides in and out",
      std::to_string(options.groups) + " for " + std::to_string(options.in) + " and " + std::to_string(options.out),
      where);
  return options;
}

}  // namespace

Conv2d::Conv2d(const char* kind, const Conv2dLayerOptions& options, SourceLocation where) : Module(kind) {
  build(checked(kind, options, where), where);
}

// What is wrong is said before anything is registered.
Conv2d::Conv2d(const char* kind, Module* parent, std::string name, const Conv2dLayerOptions& options,
               SourceLocation where)
    : Module(parent, (checked(kind, options, where), std::move(name)), kind, where) {
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
  weight_ = parameter("weight", zeros(shape, {}, where), where);
  if (options.bias) bias_ = parameter("bias", zeros({options.out}), where);
  const double bound = init::layer_bound(weight_, where);
  init::uniform(weight_, -bound, bound, {}, where);
  if (options.bias) init::uniform(bias_, -bound, bound, {}, where);
}

Tensor Conv2d::operator()(const Tensor& x, SourceLocation where) const {
  return conv2d(x, weight_, detail::value_of(bias_), geometry_, where);
}

Conv2dRelu::Conv2dRelu(const Conv2dLayerOptions& options, SourceLocation where)
    : Conv2d("Conv2dRelu", options, where) {}
Conv2dRelu::Conv2dRelu(Module* parent, std::string name, const Conv2dLayerOptions& options, SourceLocation where)
    : Conv2d("Conv2dRelu", parent, std::move(name), options, where) {}

Tensor Conv2dRelu::operator()(const Tensor& x, SourceLocation where) const {
  return conv2d_relu(x, weight(), detail::value_of(bias()), geometry(), where);
}

}  // namespace reel::nn
