#include "reel/ops/logical.h"

#include <cmath>
#include <string>

#include "reel/ops/arithmetic.h"
#include "reel/ops/check.h"
#include "reel/ops/convert.h"
#include "reel/ops/create.h"
#include "reel/ops/ragged.h"
#include "reel/ops/unary.h"

namespace reel {

namespace {

// On bool8 a product is `and`, a maximum `or`, and not equal the exclusive `or`.
Tensor combined(BinaryOp op, const char* name, const Tensor& a, const Tensor& b, SourceLocation where) {
  check::defined(name, "a", a, where);
  check::defined(name, "b", b, where);
  if (!(a.device() == b.device()))
    throw DeviceError(std::string(name) + ": b must be on " + a.device().name() + " like a, got " + b.device().name(),
                      where);
  const Shape shape = check::broadcast(name, a.shape(), b.shape(), where);
  const Tensor left = detail::broadcast_view(cast(a, bool8), shape),
               right = detail::broadcast_view(cast(b, bool8), shape);
  Tensor y = empty(shape, {.dtype = bool8, .device = a.device()});
  backend(a.device()).binary(op, {.array = &left.array()}, {.array = &right.array()}, y.array());
  detail::ran(name, where, {&a, &b}, y);
  return y;
}

// For operands beside a Ragged.
template <Tensor (*op)(const Tensor&, const Tensor&, SourceLocation)>
Tensor of_args(const Arg& a, const Arg& b) {
  return op(a.tensor(), b.tensor(), a.where());
}

}  // namespace

Tensor logical_and(const Tensor& a, const Tensor& b, SourceLocation where) {
  return combined(BinaryOp::mul, "logical_and", a, b, where);
}
Tensor logical_or(const Tensor& a, const Tensor& b, SourceLocation where) {
  return combined(BinaryOp::maximum, "logical_or", a, b, where);
}
Tensor logical_xor(const Tensor& a, const Tensor& b, SourceLocation where) {
  return combined(BinaryOp::not_equal, "logical_xor", a, b, where);
}
Tensor logical_not(const Tensor& x, SourceLocation where) {
  check::defined("logical_not", "x", x, where);
  return x.dtype() == bool8 ? x == zeros({}, x.options(), where) : x == 0;  // by 0 it would become i64
}

Tensor isnan(const Tensor& x, SourceLocation where) {
  check::defined("isnan", "x", x, where);
  return x != x;
}
Tensor isinf(const Tensor& x, SourceLocation where) {
  check::defined("isinf", "x", x, where);
  if (!is_floating(x.dtype())) return x != x;
  check::floating("isinf", "x", x, where);
  return untaped([&] { return abs(x) == INFINITY; });
}
Tensor isfinite(const Tensor& x, SourceLocation where) {
  check::defined("isfinite", "x", x, where);
  if (!is_floating(x.dtype())) return x == x;
  check::floating("isfinite", "x", x, where);
  return untaped([&] { return abs(x) < INFINITY; });
}

Ragged logical_and(const Ragged& a, const Ragged& b, SourceLocation where) {
  return detail::broadcast("logical_and", of_args<logical_and>, a, b, where);
}
Ragged logical_and(const Ragged& a, const Tensor& b, SourceLocation where) {
  return detail::broadcast("logical_and", of_args<logical_and>, a, Arg(b, where));
}
Ragged logical_and(const Tensor& a, const Ragged& b, SourceLocation where) {
  return detail::broadcast("logical_and", of_args<logical_and>, Arg(a, where), b);
}
Ragged logical_or(const Ragged& a, const Ragged& b, SourceLocation where) {
  return detail::broadcast("logical_or", of_args<logical_or>, a, b, where);
}
Ragged logical_or(const Ragged& a, const Tensor& b, SourceLocation where) {
  return detail::broadcast("logical_or", of_args<logical_or>, a, Arg(b, where));
}
Ragged logical_or(const Tensor& a, const Ragged& b, SourceLocation where) {
  return detail::broadcast("logical_or", of_args<logical_or>, Arg(a, where), b);
}
Ragged logical_xor(const Ragged& a, const Ragged& b, SourceLocation where) {
  return detail::broadcast("logical_xor", of_args<logical_xor>, a, b, where);
}
Ragged logical_xor(const Ragged& a, const Tensor& b, SourceLocation where) {
  return detail::broadcast("logical_xor", of_args<logical_xor>, a, Arg(b, where));
}
Ragged logical_xor(const Tensor& a, const Ragged& b, SourceLocation where) {
  return detail::broadcast("logical_xor", of_args<logical_xor>, Arg(a, where), b);
}
Ragged logical_not(const Ragged& x, SourceLocation where) { return x.with(logical_not(x.values(), where)); }
Ragged isnan(const Ragged& x, SourceLocation where) { return x.with(isnan(x.values(), where)); }
Ragged isinf(const Ragged& x, SourceLocation where) { return x.with(isinf(x.values(), where)); }
Ragged isfinite(const Ragged& x, SourceLocation where) { return x.with(isfinite(x.values(), where)); }

Ragged equal(const Ragged& a, const Ragged& b, SourceLocation where) {
  return detail::broadcast("equal", equal, a, b, where);
}
Ragged not_equal(const Ragged& a, const Ragged& b, SourceLocation where) {
  return detail::broadcast("not_equal", not_equal, a, b, where);
}
Ragged less(const Ragged& a, const Ragged& b, SourceLocation where) {
  return detail::broadcast("less", less, a, b, where);
}
Ragged less_equal(const Ragged& a, const Ragged& b, SourceLocation where) {
  return detail::broadcast("less_equal", less_equal, a, b, where);
}
Ragged greater(const Ragged& a, const Ragged& b, SourceLocation where) {
  return detail::broadcast("greater", greater, a, b, where);
}
Ragged greater_equal(const Ragged& a, const Ragged& b, SourceLocation where) {
  return detail::broadcast("greater_equal", greater_equal, a, b, where);
}
Ragged equal(const Ragged& a, const Arg& b) { return detail::broadcast("equal", equal, a, b); }
Ragged not_equal(const Ragged& a, const Arg& b) { return detail::broadcast("not_equal", not_equal, a, b); }
Ragged less(const Ragged& a, const Arg& b) { return detail::broadcast("less", less, a, b); }
Ragged less_equal(const Ragged& a, const Arg& b) { return detail::broadcast("less_equal", less_equal, a, b); }
Ragged greater(const Ragged& a, const Arg& b) { return detail::broadcast("greater", greater, a, b); }
Ragged greater_equal(const Ragged& a, const Arg& b) { return detail::broadcast("greater_equal", greater_equal, a, b); }
Ragged equal(const Arg& a, const Ragged& b) { return detail::broadcast("equal", equal, a, b); }
Ragged not_equal(const Arg& a, const Ragged& b) { return detail::broadcast("not_equal", not_equal, a, b); }
Ragged less(const Arg& a, const Ragged& b) { return detail::broadcast("less", less, a, b); }
Ragged less_equal(const Arg& a, const Ragged& b) { return detail::broadcast("less_equal", less_equal, a, b); }
Ragged greater(const Arg& a, const Ragged& b) { return detail::broadcast("greater", greater, a, b); }
Ragged greater_equal(const Arg& a, const Ragged& b) { return detail::broadcast("greater_equal", greater_equal, a, b); }

}  // namespace reel
