#pragma once

#include <utility>

#include "reel/core/call_at.h"
#include "reel/core/tape.h"

/// Whole matrices of derivatives, for small sizes, and products with the second one for any size. f takes and returns a
/// Tensor (f32 or f64). Parameters' gradients are untouched. While a tape is alive the results are recorded: a jacobian has
/// a jacobian.
namespace reel {

namespace detail {

/// x under another identity, of which `tape` knows, so that f may return it and what is watched stays within the call. Throws Error
/// if x is undefined.
REEL_API Tensor watched(const char* call, Tape& tape, const Tensor& x, SourceLocation where);
/// d y / d x, row by row, for y computed from x under `tape`.
REEL_API Tensor jacobian_of(Tape& tape, const Tensor& y, const Tensor& x, SourceLocation where);
/// The gradient of y, which has one element; zeros if it does not depend on x.
REEL_API Tensor gradient_of(const char* call, Tape& tape, const Tensor& y, const Tensor& x, SourceLocation where);
/// That of sum(slope * v).
REEL_API Tensor product_of(Tape& tape, const Tensor& slope, const Tensor& v, const Tensor& x, SourceLocation where);

template <class F>
Tensor gradient_at(const char* call, F& f, const Tensor& x, SourceLocation where) {
  Tape tape;
  return gradient_of(call, tape, call_at(where, f, x), x, where);
}

}  // namespace detail

/// d f(x)[i...] / d x[j...], of f(x)'s shape followed by x's. One sweep per element of f(x).
template <class F>
Tensor jacobian(F&& f, const Tensor& x, SourceLocation where = SourceLocation::current()) {
  Tape tape;
  const Tensor at = detail::watched("jacobian", tape, x, where);
  return detail::jacobian_of(tape, detail::call_at(where, f, at), at, where);
}

/// d^2 f(x) / d x[i...] d x[j...], of x's shape twice; f(x) has one element. Throws ShapeError.
template <class F>
Tensor hessian(F&& f, const Tensor& x, SourceLocation where = SourceLocation::current()) {
  return jacobian([&](const Tensor& at) { return detail::gradient_at("hessian", f, at, where); }, x, where);
}

/// hessian(f, x) v, of x's shape like v, in two sweeps, without the matrix. Throws ShapeError, DTypeError, DeviceError.
template <class F>
Tensor hessian_vector_product(F&& f, const Tensor& x, const Tensor& v,
                              SourceLocation where = SourceLocation::current()) {
  Tape tape;
  const Tensor at = detail::watched("hessian_vector_product", tape, x, where);
  return detail::product_of(tape, detail::gradient_at("hessian_vector_product", f, at, where), v, at, where);
}

}  // namespace reel
