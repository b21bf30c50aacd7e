#pragma once

#include "reel/core/ragged.h"

/// Elementwise functions of one argument: y has x's shape, dtype (f32 or f64) and device; a Ragged keeps its offsets.
/// Each throws DTypeError for other dtypes. Accuracy: docs/numerics.md.
namespace reel {

REEL_API Tensor neg(const Tensor& x, SourceLocation where = SourceLocation::current());
REEL_API Tensor exp(const Tensor& x, SourceLocation where = SourceLocation::current());
/// log(0) = -inf, NaN below 0.
REEL_API Tensor log(const Tensor& x, SourceLocation where = SourceLocation::current());
REEL_API Tensor tanh(const Tensor& x, SourceLocation where = SourceLocation::current());
/// 1 / (1 + exp(-x)), without overflow.
REEL_API Tensor sigmoid(const Tensor& x, SourceLocation where = SourceLocation::current());
/// max(x, 0); NaN stays NaN; the gradient at 0 is 0.
REEL_API Tensor relu(const Tensor& x, SourceLocation where = SourceLocation::current());
REEL_API Tensor sqrt(const Tensor& x, SourceLocation where = SourceLocation::current());
REEL_API Tensor square(const Tensor& x, SourceLocation where = SourceLocation::current());
/// |x|; the gradient at 0 is 0.
REEL_API Tensor abs(const Tensor& x, SourceLocation where = SourceLocation::current());

REEL_API Ragged neg(const Ragged& x, SourceLocation where = SourceLocation::current());
REEL_API Ragged exp(const Ragged& x, SourceLocation where = SourceLocation::current());
REEL_API Ragged log(const Ragged& x, SourceLocation where = SourceLocation::current());
REEL_API Ragged tanh(const Ragged& x, SourceLocation where = SourceLocation::current());
REEL_API Ragged sigmoid(const Ragged& x, SourceLocation where = SourceLocation::current());
REEL_API Ragged relu(const Ragged& x, SourceLocation where = SourceLocation::current());
REEL_API Ragged sqrt(const Ragged& x, SourceLocation where = SourceLocation::current());
REEL_API Ragged square(const Ragged& x, SourceLocation where = SourceLocation::current());
REEL_API Ragged abs(const Ragged& x, SourceLocation where = SourceLocation::current());

inline Tensor operator-(const Tensor& x) { return neg(x, SourceLocation{}); }
inline Ragged operator-(const Ragged& x) { return neg(x, SourceLocation{}); }

}  // namespace reel
