#include "reel/ops/convert.h"

#include "reel/ops/check.h"

namespace reel {

using detail::Gradients;
using detail::record_op;
using detail::taping;

Tensor cast(const Tensor& x, DType dtype, SourceLocation where) {
  check::defined("cast", "x", x, where);
  if (x.dtype() == dtype) return x;
  Tensor y = detail::copied(x, dtype);
  if (taping() && is_floating(dtype) && is_floating(x.dtype()))
    record_op("cast", where, {&x}, y, {}, [from = x.dtype()](Gradients& g) { g.add(0, cast(g.dy(), from)); });
  else detail::ran("cast", where, {&x}, y);
  return y;
}

Ragged cast(const Ragged& x, DType dtype, SourceLocation where) { return x.with(cast(x.values(), dtype, where)); }

Tensor to(const Tensor& x, Device device, SourceLocation where) {
  check::defined("to", "x", x, where);
  if (x.device() == device) return x;
  Tensor y = detail::transferred(x, device);
  if (taping()) record_op("to", where, {&x}, y, {}, [from = x.device()](Gradients& g) { g.add(0, to(g.dy(), from)); });
  return y;
}

Ragged to(const Ragged& x, Device device, SourceLocation where) { return x.with(to(x.values(), device, where)); }

static Tensor recorded_copy(const char* op, const Tensor& x, SourceLocation where) {
  Tensor y = detail::copied(x, x.dtype());
  if (taping() && is_floating(x.dtype())) record_op(op, where, {&x}, y, {}, [](Gradients& g) { g.add(0, g.dy()); });
  return y;
}

Tensor clone(const Tensor& x, SourceLocation where) {
  check::defined("clone", "x", x, where);
  return recorded_copy("clone", x, where);
}

Tensor contiguous(const Tensor& x, SourceLocation where) {
  check::defined("contiguous", "x", x, where);
  return x.is_contiguous() ? x : recorded_copy("contiguous", x, where);
}

Tensor stop_gradient(const Tensor& x, SourceLocation where) {
  check::defined("stop_gradient", "x", x, where);
  return detail::view(x, 0, x.shape(), x.array().strides);
}

Ragged contiguous(const Ragged& x, SourceLocation where) { return x.with(contiguous(x.values(), where)); }
Ragged clone(const Ragged& x, SourceLocation where) { return x.with(clone(x.values(), where)); }
Ragged stop_gradient(const Ragged& x, SourceLocation where) { return x.with(stop_gradient(x.values(), where)); }

}  // namespace reel
