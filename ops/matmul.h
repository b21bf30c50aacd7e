#pragma once

#include "reel/core/ragged.h"

namespace reel {

/// Matrix products over the last two axes, broadcast over the others, as numpy's matmul:
/// a [..., m, k] and b [..., k, n] give [..., m, n]; a vector [k] counts as a row on the left, a column on the right, and
/// leaves no axis behind. f32, f64, bf16 or f16, one dtype, one device; transposed views cost no copy. Every element is one
/// chain of fused multiply-adds over k, so that it does not depend on the other rows or the number of threads; of bf16 and f16
/// in f32, rounded once. Throws ShapeError, DTypeError, DeviceError. Backward keeps a and b.
REEL_API Tensor matmul(const Tensor& a, const Tensor& b, SourceLocation where = SourceLocation::current());

struct MatmulOptions {
  bool transpose_a = false;  // a is [..., k, m]
  bool transpose_b = false;  // b is [..., n, k]
};
/// With the last two axes of either in each other's place: the same as of transposed views, and without a copy. Throws
/// ShapeError for a vector to be transposed.
REEL_API Tensor matmul(const Tensor& a, const Tensor& b, MatmulOptions options,
                       SourceLocation where = SourceLocation::current());

/// Per row of values [total, ..., k] with one b [k, n] or [k] for all; or, told apart by rank, of values [total, k] with a
/// matrix for each sequence, b [count, k, n].
REEL_API Ragged matmul(const Ragged& a, const Tensor& b, SourceLocation where = SourceLocation::current());

/// a[i] b[j] for vectors a [m] and b [n]: [m, n], of any numbers. Throws ShapeError, DeviceError. Backward keeps a and
/// b.
REEL_API Tensor outer(const Tensor& a, const Tensor& b, SourceLocation where = SourceLocation::current());
/// The sum of a[i] b[i] for vectors [n], without axes, as exact as `sum`; f32 or f64. Throws ShapeError, DTypeError,
/// DeviceError. Backward keeps a and b.
REEL_API Tensor dot(const Tensor& a, const Tensor& b, SourceLocation where = SourceLocation::current());

/// y = x W^T + bias: x [..., in], weight [out, in], bias [out] or undefined; y [..., out]. With Epilogue::relu,
/// max(y, 0) in the same pass. dtypes as for matmul, bias included. Throws ShapeError, DTypeError, DeviceError.
/// Backward keeps x, the weight and, for relu, y.
REEL_API Tensor linear(const Tensor& x, const Tensor& weight, const Tensor& bias = {},
                       Epilogue epilogue = Epilogue::none, SourceLocation where = SourceLocation::current());
/// Per row of values [total, ..., in].
REEL_API Ragged linear(const Ragged& x, const Tensor& weight, const Tensor& bias = {},
                       Epilogue epilogue = Epilogue::none, SourceLocation where = SourceLocation::current());

}  // namespace reel
