#pragma once

#include <string_view>

#include "reel/core/tensors.h"

namespace reel {

/// Sums of products in Einstein's notation, as numpy and PyTorch write it: a term of letters per operand, which name its axes,
/// and after "->" those of the result; einsum("bij,bjk->bik", {a, b}) is a batched matmul. A letter that is not in the
/// result is summed over; twice in one term it means the diagonal. "..." stands for any axes in front, counted from the right
/// and broadcast. Without "->" the result has the ellipsis' axes and the letters that occur once, in alphabetical order,
/// capitals first. An axis of size 1 broadcasts. Blanks do not count.
///
/// f32 or f64, at least one operand. Operands are joined from left to right, each pair by one batched matmul, or a product
/// where nothing is summed. No result, on the way or at the end, may have more than 8 axes. Recorded by the ops that it is
/// made of, with gradients of any order; the result may be a view of a single operand.
/// Throws ShapeError naming the subscript and the sizes, DTypeError, DeviceError.
REEL_API Tensor einsum(std::string_view equation, const Tensors& operands,
                       SourceLocation where = SourceLocation::current());

}  // namespace reel
