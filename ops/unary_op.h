#pragma once

// Private to ops/: the one way in which elementwise functions of one argument are computed and recorded. Their gradient is
// an op too, whose value is the fused kernel's whether or not it is recorded: what infinities and NaN give is the same.

#include <array>

#include "reel/core/scalar/unary.h"
#include "reel/ops/check.h"

namespace reel::detail {

/// A function of core/scalar/unary.h.
struct Unary {
  UnaryOp op;
  const char* name;
  scalar::Saved saved;  // what its derivative is a function of, x or y
  /// The derivative of that derivative, by what was saved, in recorded ops. Null: 0.
  Tensor (*curvature)(const Tensor& saved);
};

template <class Formula>
constexpr Unary unary_function(UnaryOp op, const char* name, Tensor (*curvature)(const Tensor& saved) = nullptr) {
  return {op, name, Formula::saved, curvature};
}

/// x^2.
extern const Unary kSquare;

/// y = f(x), recorded. f must live as long as the tape: a constant. Throws DTypeError unless x is f32 or f64.
Tensor unary(const Unary& f, const Tensor& x, SourceLocation where);

/// dy f'(saved), recorded.
Tensor unary_gradient(const Unary& f, const Tensor& dy, const Tensor& saved);

/// f'(saved), recorded.
Tensor unary_slope(const Unary& f, const Tensor& saved);

/// In the order of the op's struct in core/scalar/parametric.h.
using Parameters = std::array<double, 4>;

/// The same for a function of core/scalar/parametric.h; its derivatives are functions of x.
struct Parametric {
  ParametricOp op;
  const char* name;
  Tensor (*curvature)(const Tensor& x, const Parameters& p) = nullptr;
};

Tensor parametric(const Parametric& f, const Tensor& x, const Parameters& p, SourceLocation where);

}  // namespace reel::detail
