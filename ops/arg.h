#pragma once

#include <concepts>

#include "reel/core/ops.h"
#include "reel/core/parameter.h"
#include "reel/core/ragged.h"

namespace reel {

/// An operand of an operator: a tensor, a parameter or a plain number, with the line of the expression that it stands in,
/// since an operator has no room for an argument that carries it.
class Arg {
 public:
  Arg(const Tensor& tensor, SourceLocation where = SourceLocation::current()) : tensor_(&tensor), where_(where) {}
  Arg(const Parameter& parameter, SourceLocation where = SourceLocation::current())
      : tensor_(&static_cast<const Tensor&>(parameter)), where_(where) {}
  Arg(std::floating_point auto number, SourceLocation where = SourceLocation::current())
      : scalar_(static_cast<double>(number)), where_(where) {}
  Arg(std::integral auto number, SourceLocation where = SourceLocation::current()) : scalar_(number), where_(where) {}

  bool is_tensor() const { return tensor_ != nullptr; }
  const Tensor& tensor() const { return *tensor_; }
  Scalar scalar() const { return scalar_; }
  SourceLocation where() const { return where_; }

 private:
  const Tensor* tensor_ = nullptr;
  Scalar scalar_ = {};
  SourceLocation where_;
};

/// An operand that is a Ragged, or what can stand beside one: a tensor, a parameter or a plain number.
class RaggedOperand {
 public:
  RaggedOperand(const Ragged& ragged) : ragged_(&ragged) {}
  RaggedOperand(const Arg& other) : arg_(other) {}
  template <std::convertible_to<Arg> T>
  RaggedOperand(const T& other, SourceLocation where = SourceLocation::current()) : arg_(other, where) {}

  bool is_ragged() const { return ragged_ != nullptr; }
  const Ragged& ragged() const { return *ragged_; }
  const Arg& arg() const { return arg_; }

 private:
  const Ragged* ragged_ = nullptr;
  Arg arg_ = 0;
};

}  // namespace reel
