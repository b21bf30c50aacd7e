#pragma once

// Private to ops/: the checks that ops share. Each throws what its name says, naming the op, and gives what was checked.

#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>

#include "reel/core/error.h"
#include "reel/core/ops.h"
#include "reel/core/tape.h"
#include "reel/core/tensors.h"

namespace reel::check {

/// Error unless x is defined. Notes that `op` runs (core/running.h): an op that asks nothing else of an operand asks this.
void defined(const char* op, const char* name, const Tensor& x, SourceLocation where);
/// DTypeError unless x is f32 or f64.
void floating(const char* op, const char* name, const Tensor& x, SourceLocation where);
/// DTypeError unless x is f32, f64, bf16 or f16: for products.
void floating_or_half(const char* op, const char* name, const Tensor& x, SourceLocation where);
/// DTypeError unless x is i32 or i64.
void index(const char* op, const char* name, const Tensor& x, SourceLocation where);
/// DTypeError, DeviceError unless x agrees with y.
void like(const char* op, const char* name, const Tensor& x, const char* other, const Tensor& y, SourceLocation where);
/// ShapeError unless x has this shape.
void shape(const char* op, const char* name, const Tensor& x, const Shape& expected, SourceLocation where);
/// ShapeError unless x has this rank; `form` is the shape in letters, e.g. "[rows, in]".
void rank(const char* op, const char* name, const Tensor& x, int rank, const char* form, SourceLocation where);
/// The axis from the front; ShapeError unless it is in [-rank, rank).
int axis(const char* op, std::int64_t axis, int rank, SourceLocation where);
/// Elements of a shape; ShapeError if one of its sizes is negative or their number does not fit 64 bits.
/// `given`: the shape as the user wrote it, if another.
std::int64_t elements(const char* op, const Shape& shape, SourceLocation where, const Shape* given = nullptr);
/// a + b and a * b, for sizes; ShapeError if they do not fit 64 bits.
std::int64_t plus(const char* op, std::int64_t a, std::int64_t b, SourceLocation where);
std::int64_t times(const char* op, std::int64_t a, std::int64_t b, SourceLocation where);
/// The shape that both broadcast to, as numpy does it; ShapeError if there is none.
Shape broadcast(const char* op, const Shape& a, const Shape& b, SourceLocation where);
/// False if there is none.
bool broadcasts(const Shape& a, const Shape& b, Shape& result);
/// broadcast(), where a and b are parts (`what`) of what the user gave, or were made of it: those shapes are told.
Shape broadcast(const char* op, const Shape& a, const Shape& b, const char* what, std::span<const Shape> given,
                SourceLocation where);

}  // namespace reel::check

namespace reel::detail {

/// x, or a contiguous copy; unrecorded, for kernels.
inline Tensor packed(const Tensor& x) { return x.is_contiguous() ? x : copied(x, x.dtype()); }
/// A view of x with x's size-1 axes (and missing leading ones) repeated; unrecorded.
Tensor broadcast_view(const Tensor& x, const Shape& shape);
/// `shape` with what is left in the place of its -1. ShapeError unless it has as many elements as `from`. `by_row`: axis 0
/// is that of a Ragged's rows, each of which keeps its elements.
Shape reshaped_to(const Shape& from, const Shape& shape, SourceLocation where, bool by_row = false);
/// expand() to `shape`, which the user wrote as `given`.
Tensor expanded(const Tensor& x, Shape shape, const Shape& given, SourceLocation where);
/// Memory of x seen as another shape of the same size; x contiguous; unrecorded.
Tensor reshaped(const Tensor& x, const Shape& shape);

}  // namespace reel::detail
