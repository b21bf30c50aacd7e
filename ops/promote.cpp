#include "reel/ops/promote.h"

#include <string>

#include "reel/ops/check.h"

namespace reel::detail {

namespace {

int kind(DType dtype) { return is_floating(dtype) ? 2 : dtype == bool8 ? 0 : 1; }

DType wider(DType a, DType b) {
  if (kind(a) != kind(b)) return kind(a) > kind(b) ? a : b;
  if (is_half(a) && is_half(b) && a != b) return f32;  // neither holds the other
  return size_of(a) >= size_of(b) ? a : b;
}

}  // namespace

DType promoted(const Arg& a, const Arg& b) {
  if (a.is_tensor() && b.is_tensor()) {
    const Tensor &x = a.tensor(), &y = b.tensor();
    if (x.dtype() == y.dtype()) return x.dtype();
    if ((x.rank() == 0) == (y.rank() == 0)) return wider(x.dtype(), y.dtype());
    const DType with_axes = x.rank() == 0 ? y.dtype() : x.dtype(), without = x.rank() == 0 ? x.dtype() : y.dtype();
    return kind(without) > kind(with_axes) ? without : with_axes;
  }
  const DType tensor = a.is_tensor() ? a.tensor().dtype() : b.tensor().dtype();
  const bool integral = (a.is_tensor() ? b : a).scalar().integral;
  if (!integral && kind(tensor) < 2) return f32;
  return integral && tensor == bool8 ? i64 : tensor;
}

Tensor fractions(const char* op, const Tensor& x, SourceLocation where) {
  check::defined(op, "x", x, where);
  return is_floating(x.dtype()) ? x : copied(x, f32);
}

bool integers(const char* op, const Tensor& x, SourceLocation where) {
  check::defined(op, "x", x, where);
  if (x.dtype() == bool8) throw DTypeError(std::string(op) + ": x must be numbers, got bool8", where);
  return !is_floating(x.dtype());
}

}  // namespace reel::detail
