#pragma once

#include "reel/core/descriptors.h"
#include "reel/core/ragged.h"
#include "reel/nn/module.h"

namespace reel::nn {

struct LinearOptions {
  std::int64_t in = 0;   // at least 1; not given: that of the sample given to nn::initialize
  std::int64_t out = 0;  // at least 1
  bool bias = true;
  Parameter weight =
      {};  // another module's, to be shared (tied weights; `in` is given then); not given: one of its own
};

/// y = x weight^T + bias, over the last axis: x [..., in] gives [..., out]; a Ragged per row. Starts as PyTorch's: weight
/// and bias uniform within 1 / sqrt(in).
class REEL_API Linear : public Module {
 public:
  using Options = LinearOptions;

  /// Throw Error or ShapeError for sizes below 1 (`in`: below 0) or a shared weight that is not [out, in].
  explicit Linear(const LinearOptions& options, SourceLocation where = SourceLocation::current());
  Linear(Module* parent, std::string name, const LinearOptions& options,
         SourceLocation where = SourceLocation::current());

  Tensor operator()(const Tensor& x, SourceLocation where = SourceLocation::current()) const;
  Ragged operator()(const Ragged& x, SourceLocation where = SourceLocation::current()) const;

  const Parameter& weight() const { return weight_; }  // [out, in]
  const Parameter& bias() const { return bias_; }      // [out], or undefined

 protected:
  Linear(const char* kind, const LinearOptions& options, SourceLocation where);
  Linear(const char* kind, Module* parent, std::string name, const LinearOptions& options, SourceLocation where);

  template <class X>
  X apply(const X& x, Epilogue epilogue, SourceLocation where) const;

 private:
  void build(const LinearOptions& options, SourceLocation where);
  void settle(const Shape& x, SourceLocation where) const;
  void start(bool own_weight, SourceLocation where) const;

  Parameter weight_, bias_;
};

/// max(Linear(x), 0) in one product, as a hidden layer needs it. (Where it is taken as a Linear, by copy or reference, it is one.)
class REEL_API LinearRelu : public Linear {
 public:
  explicit LinearRelu(const LinearOptions& options, SourceLocation where = SourceLocation::current());
  LinearRelu(Module* parent, std::string name, const LinearOptions& options,
             SourceLocation where = SourceLocation::current());

  Tensor operator()(const Tensor& x, SourceLocation where = SourceLocation::current()) const;
  Ragged operator()(const Ragged& x, SourceLocation where = SourceLocation::current()) const;
};

}  // namespace reel::nn
