#include "reel/ops/jacobian.h"

#include <string>

#include "reel/ops/arithmetic.h"
#include "reel/ops/check.h"
#include "reel/ops/convert.h"
#include "reel/ops/create.h"
#include "reel/ops/logical.h"
#include "reel/ops/views.h"

namespace reel::detail {

namespace {
// Recorded now: what was computed before, or is a parameter, is no constant to the tape under this identity.
Tensor renamed(const Tensor& x) { return reshape(x, x.shape()); }
}  // namespace

Tensor watched(const char* call, Tape& tape, const Tensor& x, SourceLocation where) {
  check::floating(call, "x", x, where);
  if (is_tracked(x)) return renamed(x);
  const Tensor at = stop_gradient(x);
  tape.watch(at, where);
  return at;
}

Tensor jacobian_of(Tape& tape, const Tensor& y, const Tensor& x, SourceLocation where) {
  check::floating("jacobian", "f(x)", y, where);
  if (y.rank() + x.rank() > kMaxRank)
    throw ShapeError("jacobian: the axes of x and f(x) must be at most " + std::to_string(kMaxRank) +
                         " together, got " + x.shape().str() + " and " + y.shape().str(),
                     where);
  Shape shape = y.shape();
  for (const std::int64_t size : x.shape()) shape.push_back(size);
  if (!is_tracked(y) || shape.size() == 0) return zeros(shape, x.options());

  const Tensor indices = arange(y.size(), {.dtype = i64, .device = y.device()});
  const Tensor known = renamed(y);
  Tensors rows;
  for (std::int64_t i = 0; i < y.size(); ++i) {
    const Tensor seed = reshape(cast(indices == i, y.dtype()), y.shape());
    rows.push_back(tape.gradient(known, seed, Tensors{x}, {.keep = true}, where)[0]);
  }
  return reshape(stack(rows), shape);
}

Tensor gradient_of(const char* call, Tape& tape, const Tensor& y, const Tensor& x, SourceLocation where) {
  check::floating(call, "f(x)", y, where);
  if (y.size() != 1)
    throw ShapeError(std::string(call) + ": f must give one element, got shape " + y.shape().str(), where);
  return is_tracked(y) ? tape.gradient(renamed(y), Tensors{x}, {}, where)[0] : zeros_like(x);
}

Tensor product_of(Tape& tape, const Tensor& slope, const Tensor& v, const Tensor& x, SourceLocation where) {
  check::like("hessian_vector_product", "v", v, "x", x, where);
  check::shape("hessian_vector_product", "v", v, x.shape(), where);
  return is_tracked(slope) ? tape.gradient(slope, v, Tensors{x}, {}, where)[0] : zeros_like(x);
}

}  // namespace reel::detail
