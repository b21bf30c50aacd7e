#pragma once

#include <string>
#include <utility>

#include "reel/core/error.h"
#include "reel/core/tape.h"
#include "reel/ops/arithmetic.h"
#include "reel/ops/convert.h"
#include "reel/ops/create.h"
#include "reel/ops/views.h"

/// Whole matrices of derivatives, for small sizes, and products with the second one for any size. f takes and returns a
/// Tensor (f32 or f64). Parameters' gradients are untouched. While a tape is alive the results are recorded: a jacobian has
/// a jacobian.
namespace reel {

namespace detail {

// x, or x under another identity if no tape knows it, so that watching it stays within the call.
inline Tensor watchable(const Tensor& x, SourceLocation where) { return is_tracked(x) ? x : stop_gradient(x, where); }

template <class F>
Tensor gradient_at(F& f, const Tensor& x, const char* call, SourceLocation where) {
  Tape tape;
  const Tensor y = f(x);
  if (y.size() != 1)
    throw ShapeError(std::string(call) + ": f must give one element, got shape " + y.shape().str(), where);
  return is_tracked(y) ? tape.gradient(y, Tensors{x}, {}, where)[0] : zeros_like(x);
}

}  // namespace detail

/// d f(x)[i...] / d x[j...], of f(x)'s shape followed by x's. One sweep per element of f(x).
template <class F>
Tensor jacobian(F&& f, const Tensor& x, SourceLocation where = SourceLocation::current()) {
  const Tensor at = detail::watchable(x, where);
  Tape tape;
  tape.watch(at, where);
  const Tensor y = f(at);
  if (y.rank() + x.rank() > kMaxRank)
    throw ShapeError("jacobian: the axes of x and f(x) must be at most " + std::to_string(kMaxRank) +
                         " together, got " + x.shape().str() + " and " + y.shape().str(),
                     where);
  Shape shape = y.shape();
  for (const std::int64_t size : x.shape()) shape.push_back(size);
  if (!is_tracked(y) || shape.size() == 0) return zeros(shape, {.dtype = x.dtype(), .device = x.device()});

  const Tensor indices = arange(y.size(), {.dtype = i64, .device = y.device()});
  Tensors rows;
  for (std::int64_t i = 0; i < y.size(); ++i) {
    const Tensor seed = reshape(cast(indices == i, y.dtype()), y.shape());
    rows.push_back(tape.gradient(y, seed, Tensors{at}, {.keep = true}, where)[0]);
  }
  return reshape(stack(rows), shape);
}

/// d^2 f(x) / d x[i...] d x[j...], of x's shape twice; f(x) has one element. Throws ShapeError.
template <class F>
Tensor hessian(F&& f, const Tensor& x, SourceLocation where = SourceLocation::current()) {
  return jacobian([&](const Tensor& at) { return detail::gradient_at(f, at, "hessian", where); }, x, where);
}

/// hessian(f, x) v, of x's shape like v, in two sweeps, without the matrix. Throws ShapeError, DTypeError, DeviceError.
template <class F>
Tensor hessian_vector_product(F&& f, const Tensor& x, const Tensor& v,
                              SourceLocation where = SourceLocation::current()) {
  const Tensor at = detail::watchable(x, where);
  Tape tape;
  tape.watch(at, where);
  const Tensor slope = detail::gradient_at(f, at, "hessian_vector_product", where);
  return is_tracked(slope) ? tape.gradient(slope, v, Tensors{at}, {}, where)[0] : zeros_like(x);
}

}  // namespace reel
