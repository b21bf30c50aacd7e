#pragma once

#include "reel/core/ragged.h"
#include "reel/ops/arg.h"

/// Logic on elements, without gradients. Any dtype, logical_not and the questions about NaN and infinity but bf16 and f16: an
/// element counts as true if it is not 0 (NaN is not); the result is bool8.
/// Two tensors broadcast; two Ragged, or a tensor beside one, as in ragged.h. Throw ShapeError, DeviceError.
namespace reel {

REEL_API Tensor logical_and(const Tensor& a, const Tensor& b, SourceLocation where = SourceLocation::current());
REEL_API Tensor logical_or(const Tensor& a, const Tensor& b, SourceLocation where = SourceLocation::current());
REEL_API Tensor logical_xor(const Tensor& a, const Tensor& b, SourceLocation where = SourceLocation::current());
REEL_API Tensor logical_not(const Tensor& x, SourceLocation where = SourceLocation::current());

REEL_API Tensor isnan(const Tensor& x, SourceLocation where = SourceLocation::current());
/// Either infinity.
REEL_API Tensor isinf(const Tensor& x, SourceLocation where = SourceLocation::current());
/// Neither infinite nor NaN.
REEL_API Tensor isfinite(const Tensor& x, SourceLocation where = SourceLocation::current());

REEL_API Ragged logical_and(const Ragged& a, const Ragged& b, SourceLocation where = SourceLocation::current());
REEL_API Ragged logical_and(const Ragged& a, const Tensor& b, SourceLocation where = SourceLocation::current());
REEL_API Ragged logical_and(const Tensor& a, const Ragged& b, SourceLocation where = SourceLocation::current());
REEL_API Ragged logical_or(const Ragged& a, const Ragged& b, SourceLocation where = SourceLocation::current());
REEL_API Ragged logical_or(const Ragged& a, const Tensor& b, SourceLocation where = SourceLocation::current());
REEL_API Ragged logical_or(const Tensor& a, const Ragged& b, SourceLocation where = SourceLocation::current());
REEL_API Ragged logical_xor(const Ragged& a, const Ragged& b, SourceLocation where = SourceLocation::current());
REEL_API Ragged logical_xor(const Ragged& a, const Tensor& b, SourceLocation where = SourceLocation::current());
REEL_API Ragged logical_xor(const Tensor& a, const Ragged& b, SourceLocation where = SourceLocation::current());
REEL_API Ragged logical_not(const Ragged& x, SourceLocation where = SourceLocation::current());
REEL_API Ragged isnan(const Ragged& x, SourceLocation where = SourceLocation::current());
REEL_API Ragged isinf(const Ragged& x, SourceLocation where = SourceLocation::current());
REEL_API Ragged isfinite(const Ragged& x, SourceLocation where = SourceLocation::current());

/// Comparisons with a Ragged: bool8, operands as in ragged.h.
REEL_API Ragged equal(const Ragged& a, const Ragged& b, SourceLocation where = SourceLocation::current());
REEL_API Ragged not_equal(const Ragged& a, const Ragged& b, SourceLocation where = SourceLocation::current());
REEL_API Ragged less(const Ragged& a, const Ragged& b, SourceLocation where = SourceLocation::current());
REEL_API Ragged less_equal(const Ragged& a, const Ragged& b, SourceLocation where = SourceLocation::current());
REEL_API Ragged greater(const Ragged& a, const Ragged& b, SourceLocation where = SourceLocation::current());
REEL_API Ragged greater_equal(const Ragged& a, const Ragged& b, SourceLocation where = SourceLocation::current());
REEL_API Ragged equal(const Ragged& a, const Arg& b);
REEL_API Ragged not_equal(const Ragged& a, const Arg& b);
REEL_API Ragged less(const Ragged& a, const Arg& b);
REEL_API Ragged less_equal(const Ragged& a, const Arg& b);
REEL_API Ragged greater(const Ragged& a, const Arg& b);
REEL_API Ragged greater_equal(const Ragged& a, const Arg& b);
REEL_API Ragged equal(const Arg& a, const Ragged& b);
REEL_API Ragged not_equal(const Arg& a, const Ragged& b);
REEL_API Ragged less(const Arg& a, const Ragged& b);
REEL_API Ragged less_equal(const Arg& a, const Ragged& b);
REEL_API Ragged greater(const Arg& a, const Ragged& b);
REEL_API Ragged greater_equal(const Arg& a, const Ragged& b);

inline Ragged operator==(const detail::RaggedArg& a, const detail::RaggedArg& b) {
  return equal(a.ragged, b.ragged, a.where);
}
inline Ragged operator!=(const detail::RaggedArg& a, const detail::RaggedArg& b) {
  return not_equal(a.ragged, b.ragged, a.where);
}
inline Ragged operator<(const detail::RaggedArg& a, const detail::RaggedArg& b) {
  return less(a.ragged, b.ragged, a.where);
}
inline Ragged operator<=(const detail::RaggedArg& a, const detail::RaggedArg& b) {
  return less_equal(a.ragged, b.ragged, a.where);
}
inline Ragged operator>(const detail::RaggedArg& a, const detail::RaggedArg& b) {
  return greater(a.ragged, b.ragged, a.where);
}
inline Ragged operator>=(const detail::RaggedArg& a, const detail::RaggedArg& b) {
  return greater_equal(a.ragged, b.ragged, a.where);
}
inline Ragged operator==(const Ragged& a, const Arg& b) { return equal(a, b); }
inline Ragged operator!=(const Ragged& a, const Arg& b) { return not_equal(a, b); }
inline Ragged operator<(const Ragged& a, const Arg& b) { return less(a, b); }
inline Ragged operator<=(const Ragged& a, const Arg& b) { return less_equal(a, b); }
inline Ragged operator>(const Ragged& a, const Arg& b) { return greater(a, b); }
inline Ragged operator>=(const Ragged& a, const Arg& b) { return greater_equal(a, b); }
inline Ragged operator==(const Arg& a, const Ragged& b) { return equal(a, b); }
inline Ragged operator!=(const Arg& a, const Ragged& b) { return not_equal(a, b); }
inline Ragged operator<(const Arg& a, const Ragged& b) { return less(a, b); }
inline Ragged operator<=(const Arg& a, const Ragged& b) { return less_equal(a, b); }
inline Ragged operator>(const Arg& a, const Ragged& b) { return greater(a, b); }
inline Ragged operator>=(const Arg& a, const Ragged& b) { return greater_equal(a, b); }

}  // namespace reel
