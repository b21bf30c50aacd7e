#pragma once

#include <concepts>

#include "reel/nn/module.h"
#include "reel/ops/conv.h"

namespace reel::nn {

/// Height and width, or one number for both: `.kernel = 3`, `.kernel = {3, 5}`.
struct Size2d {
  std::int64_t height = 0, width = 0;

  Size2d(std::integral auto both) : Size2d(both, both) {}
  Size2d(std::integral auto h, std::integral auto w)
      : height(static_cast<std::int64_t>(h)), width(static_cast<std::int64_t>(w)) {}
};

struct Conv2dLayerOptions {
  std::int64_t in = 0;   // channels, at least 1; not given: those of the sample given to nn::initialize
  std::int64_t out = 0;  // channels, at least 1
  Size2d kernel = 3;
  Size2d stride = 1;
  Size2d padding = 0;
  Size2d dilation = 1;
  std::int64_t groups = 1;                       // divides in and out
  PaddingMode padding_mode = PaddingMode::zero;  // symmetric: the edge pixel is repeated
  bool bias = true;
};

/// Cross-correlation of images: x [n, in, h, w] gives [n, out, h', w'] (see reel::conv2d). Starts as PyTorch's: weight and
/// bias uniform within 1 / sqrt(in / groups * kernel height * kernel width).
class REEL_API Conv2d : public Module {
 public:
  using Options = Conv2dLayerOptions;

  /// Throw Error for options out of range.
  explicit Conv2d(const Conv2dLayerOptions& options, SourceLocation where = SourceLocation::current());
  Conv2d(Module* parent, std::string name, const Conv2dLayerOptions& options,
         SourceLocation where = SourceLocation::current());

  Tensor operator()(const Tensor& x, SourceLocation where = SourceLocation::current()) const;

  const Parameter& weight() const { return weight_; }  // [out, in / groups, kernel height, kernel width]
  const Parameter& bias() const { return bias_; }      // [out], or undefined

 protected:
  Conv2d(const char* kind, const Conv2dLayerOptions& options, SourceLocation where);
  Conv2d(const char* kind, Module* parent, std::string name, const Conv2dLayerOptions& options, SourceLocation where);

  const ConvOptions& geometry() const { return geometry_; }
  /// Takes `in` from the first input, if it was left open.
  void settle(const Tensor& x, SourceLocation where) const;

 private:
  void build(const Conv2dLayerOptions& options, SourceLocation where);
  void start(SourceLocation where) const;

  Parameter weight_, bias_;
  ConvOptions geometry_;
};

/// max(Conv2d(x), 0) in one kernel.
class REEL_API Conv2dRelu : public Conv2d {
 public:
  explicit Conv2dRelu(const Conv2dLayerOptions& options, SourceLocation where = SourceLocation::current());
  Conv2dRelu(Module* parent, std::string name, const Conv2dLayerOptions& options,
             SourceLocation where = SourceLocation::current());

  Tensor operator()(const Tensor& x, SourceLocation where = SourceLocation::current()) const;
};

}  // namespace reel::nn
