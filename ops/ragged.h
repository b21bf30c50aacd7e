#pragma once

#include "reel/core/ragged.h"
#include "reel/ops/arg.h"
#include "reel/ops/axes.h"

/// Ops on sequences of different lengths. Elementwise functions of one argument, linear, softmax, cross_entropy and
/// embedding take a Ragged too and stand with their Tensor forms.
///
/// Two Ragged operands have the same offsets, and their rows broadcast (so [total, 1], or [total], with [total, 64] is
/// a number per row). A Tensor beside a Ragged broadcasts by its rank, never by its sizes: of the values' rank, [n,
/// ...] is one row per sequence; of lower rank it is trailing axes of every row. Throw ShapeError for other lengths and
/// for rows that do not broadcast; dtypes, what is thrown besides and what is kept for backward are as in arithmetic.h.
namespace reel {

REEL_API Ragged add(const Ragged& a, const Ragged& b, SourceLocation where = SourceLocation::current());
REEL_API Ragged sub(const Ragged& a, const Ragged& b, SourceLocation where = SourceLocation::current());
REEL_API Ragged mul(const Ragged& a, const Ragged& b, SourceLocation where = SourceLocation::current());
REEL_API Ragged div(const Ragged& a, const Ragged& b, SourceLocation where = SourceLocation::current());
REEL_API Ragged maximum(const Ragged& a, const Ragged& b, SourceLocation where = SourceLocation::current());
REEL_API Ragged minimum(const Ragged& a, const Ragged& b, SourceLocation where = SourceLocation::current());
REEL_API Ragged pow(const Ragged& a, const Ragged& b, SourceLocation where = SourceLocation::current());
REEL_API Ragged add(const Ragged& a, const Arg& b);
REEL_API Ragged sub(const Ragged& a, const Arg& b);
REEL_API Ragged mul(const Ragged& a, const Arg& b);
REEL_API Ragged div(const Ragged& a, const Arg& b);
REEL_API Ragged maximum(const Ragged& a, const Arg& b);
REEL_API Ragged minimum(const Ragged& a, const Arg& b);
REEL_API Ragged pow(const Ragged& a, const Arg& b);
REEL_API Ragged add(const Arg& a, const Ragged& b);
REEL_API Ragged sub(const Arg& a, const Ragged& b);
REEL_API Ragged mul(const Arg& a, const Ragged& b);
REEL_API Ragged div(const Arg& a, const Ragged& b);
REEL_API Ragged maximum(const Arg& a, const Ragged& b);
REEL_API Ragged minimum(const Arg& a, const Ragged& b);
REEL_API Ragged pow(const Arg& a, const Ragged& b);

inline Ragged operator+(const detail::RaggedArg& a, const Ragged& b) { return add(a.ragged, b, a.where); }
inline Ragged operator-(const detail::RaggedArg& a, const Ragged& b) { return sub(a.ragged, b, a.where); }
inline Ragged operator*(const detail::RaggedArg& a, const Ragged& b) { return mul(a.ragged, b, a.where); }
inline Ragged operator/(const detail::RaggedArg& a, const Ragged& b) { return div(a.ragged, b, a.where); }
inline Ragged operator+(const Ragged& a, const Arg& b) { return add(a, b); }
inline Ragged operator-(const Ragged& a, const Arg& b) { return sub(a, b); }
inline Ragged operator*(const Ragged& a, const Arg& b) { return mul(a, b); }
inline Ragged operator/(const Ragged& a, const Arg& b) { return div(a, b); }
inline Ragged operator+(const Arg& a, const Ragged& b) { return add(a, b); }
inline Ragged operator-(const Arg& a, const Ragged& b) { return sub(a, b); }
inline Ragged operator*(const Arg& a, const Ragged& b) { return mul(a, b); }
inline Ragged operator/(const Arg& a, const Ragged& b) { return div(a, b); }

/// One row per sequence: values [total, ...] give [n, ...]. A sequence without rows gives 0 for sum and mean, -inf for
/// max, +inf for min (an integer's least and greatest). The gradient of max and min goes to the first winner. Integers
/// and bool8 are summed as i64, and keep their dtype in max and min; mean is for f32 and f64, else it throws
/// DTypeError.
REEL_API Tensor sum(const Ragged& x, SourceLocation where = SourceLocation::current());
REEL_API Tensor mean(const Ragged& x, SourceLocation where = SourceLocation::current());
REEL_API Tensor max(const Ragged& x, SourceLocation where = SourceLocation::current());
REEL_API Tensor min(const Ragged& x, SourceLocation where = SourceLocation::current());
/// Per row, over axes of the values behind the first. Throw ShapeError for axis 0.
REEL_API Ragged sum(const Ragged& x, const Axes& axes, Keep keep = Keep::no,
                    SourceLocation where = SourceLocation::current());
REEL_API Ragged mean(const Ragged& x, const Axes& axes, Keep keep = Keep::no,
                     SourceLocation where = SourceLocation::current());
REEL_API Ragged max(const Ragged& x, const Axes& axes, Keep keep = Keep::no,
                    SourceLocation where = SourceLocation::current());
REEL_API Ragged min(const Ragged& x, const Axes& axes, Keep keep = Keep::no,
                    SourceLocation where = SourceLocation::current());

/// One row per sequence, of any dtype, repeated for each of its rows: x [n, ...] gives values [total, ...]. Throws
/// ShapeError.
REEL_API Ragged repeat_rows(const Tensor& x, const Offsets& offsets, SourceLocation where = SourceLocation::current());

/// The sequences as tensors [length, ...]: recorded views.
REEL_API Tensors to_list(const Ragged& x, SourceLocation where = SourceLocation::current());
/// [n, longest, ...], each sequence followed by `padding`; recorded.
REEL_API Tensor to_padded(const Ragged& x, Scalar padding = 0, SourceLocation where = SourceLocation::current());
/// The first lengths[i] rows of x[i], for x [n, longest, ...]; recorded. Throws ShapeError unless there is a length for
/// each of the n, none above `longest`.
REEL_API Ragged from_padded(const Tensor& x, std::span<const std::int64_t> lengths,
                            SourceLocation where = SourceLocation::current());
REEL_API Ragged from_padded(const Tensor& x, std::initializer_list<std::int64_t> lengths,
                            SourceLocation where = SourceLocation::current());

namespace detail {
/// A function of two operands on two Ragged, or on one and what broadcasts beside it.
using BinaryFunction = Tensor (*)(const Arg&, const Arg&);
REEL_API Ragged broadcast(const char* op, BinaryFunction f, const Ragged& a, const Ragged& b, SourceLocation where);
REEL_API Ragged broadcast(const char* op, BinaryFunction f, const Ragged& a, const Arg& b);
REEL_API Ragged broadcast(const char* op, BinaryFunction f, const Arg& a, const Ragged& b);
/// The same for three operands, of which one at least is a Ragged.
using TernaryFunction = Tensor (*)(const Arg&, const Arg&, const Arg&, SourceLocation);
REEL_API Ragged broadcast(const char* op, TernaryFunction f, const RaggedOperand& a, const RaggedOperand& b,
                          const RaggedOperand& c, SourceLocation where);
/// max or min per sequence, recorded, and where the first winner is: a row of its sequence, -1 if that is empty.
REEL_API Tensor extremes(ReduceOp op, const Ragged& x, Tensor& which, SourceLocation where);
}  // namespace detail

}  // namespace reel
