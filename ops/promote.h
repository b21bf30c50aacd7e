#pragma once

// Private to ops/: which dtype comes of which, as in PyTorch. Floating comes over integer over bool8; of one kind the wider
// wins, u8 < i32 < i64 and bf16, f16 < f32 < f64; bf16 beside f16 is f32. Where integers must become fractions they become f32.

#include "reel/ops/arg.h"

namespace reel::detail {

/// Of two operands, not both numbers. A tensor without axes beside one with axes, and a number, count only by their kind.
DType promoted(const Arg& a, const Arg& b);

/// x, or f32 of integers and bool8: what a function that gives fractions is computed of. Throws Error unless x is defined.
Tensor fractions(const char* op, const Tensor& x, SourceLocation where);

/// True for integers, which the op makes into integers of the same dtype; false for f32 and f64. Throws DTypeError for bool8.
bool integers(const char* op, const Tensor& x, SourceLocation where);

}  // namespace reel::detail
