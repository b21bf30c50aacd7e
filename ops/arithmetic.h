#pragma once

#include "reel/ops/arg.h"

/// Elementwise functions of two operands, tensors or plain numbers, as functions and as operators. Shapes broadcast as
/// in numpy. A number never becomes a tensor: it takes the tensor's dtype (a fraction with an integer tensor gives
/// f32), in whose range it must lie (u8 also takes -255 .. -1, which wrap around, but in maximum and minimum): else
/// Error. Two tensors of different dtypes are promoted as PyTorch does it: the wider of one kind, floating over integer
/// over bool; a tensor without axes counts only by its kind, and goes from the CPU to the other's device. Of two bool8
/// + and maximum are `or`, * and minimum `and`; - and pow throw DTypeError. Throw ShapeError if the shapes do not
/// broadcast, DeviceError for two devices. The result has the broadcast shape and memory of its own. Gradients of any
/// order; backward keeps nothing for add and sub, both operands for the others, and the result for div and pow.
namespace reel {

/// a + b, a - b, a b. Integers wrap around.
REEL_API Tensor add(const Arg& a, const Arg& b);
REEL_API Tensor sub(const Arg& a, const Arg& b);
REEL_API Tensor mul(const Arg& a, const Arg& b);
/// a / b, true division: integers give f32.
REEL_API Tensor div(const Arg& a, const Arg& b);
/// NaN if either is, and then both get the gradient. Where both are equal each gets half of it.
REEL_API Tensor maximum(const Arg& a, const Arg& b);
REEL_API Tensor minimum(const Arg& a, const Arg& b);

/// a^b with the special values of C's pow, accurate to 2 (f32) and 4 ULP (f64). Beside a number 2, 3, 0.5, -0.5, 1 or -1
/// it is made of products, roots and quotients, with theirs: 0.5 is sqrt, -0 at -0 and NaN at -inf, as in PyTorch.
/// Integers: wrap around; b < 0 gives a truncated 1 / a^-b, and throws Error if it is a number. Gradients of any order:
/// that of a is 0 where b is 0, that of b is 0 where a is 0 and b is not negative.
REEL_API Tensor pow(const Arg& a, const Arg& b);

/// bool8; no gradient.
REEL_API Tensor equal(const Arg& a, const Arg& b);
REEL_API Tensor not_equal(const Arg& a, const Arg& b);
REEL_API Tensor less(const Arg& a, const Arg& b);
REEL_API Tensor less_equal(const Arg& a, const Arg& b);
REEL_API Tensor greater(const Arg& a, const Arg& b);
REEL_API Tensor greater_equal(const Arg& a, const Arg& b);

inline Tensor operator+(const Arg& a, const Arg& b) { return add(a, b); }
inline Tensor operator-(const Arg& a, const Arg& b) { return sub(a, b); }
inline Tensor operator*(const Arg& a, const Arg& b) { return mul(a, b); }
inline Tensor operator/(const Arg& a, const Arg& b) { return div(a, b); }
inline Tensor operator==(const Arg& a, const Arg& b) { return equal(a, b); }
inline Tensor operator!=(const Arg& a, const Arg& b) { return not_equal(a, b); }
inline Tensor operator<(const Arg& a, const Arg& b) { return less(a, b); }
inline Tensor operator<=(const Arg& a, const Arg& b) { return less_equal(a, b); }
inline Tensor operator>(const Arg& a, const Arg& b) { return greater(a, b); }
inline Tensor operator>=(const Arg& a, const Arg& b) { return greater_equal(a, b); }

namespace detail {
/// y = op(a, b), unrecorded, of two tensors of one dtype and device that broadcast.
REEL_API Tensor binary(BinaryOp op, const Tensor& a, const Tensor& b);
/// dy where y > 0 or y is NaN, else 0: ReLU's backward, linear in dy; no gradient to y. Recorded.
REEL_API Tensor relu_mask(const Tensor& dy, const Tensor& y);
/// x summed over the axes along which `shape` was broadcast to x's shape. Recorded.
REEL_API Tensor sum_to(const Tensor& x, const Shape& shape);
}  // namespace detail

}  // namespace reel
