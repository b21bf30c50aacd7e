#include "reel/ops/reduce.h"

#include <string>

#include "reel/ops/arithmetic.h"
#include "reel/ops/check.h"
#include "reel/ops/convert.h"
#include "reel/ops/create.h"
#include "reel/ops/views.h"

namespace reel {

namespace {

using detail::Gradients;
using detail::record_op;
using detail::taping;

Shape with_ones(const Shape& shape, std::uint32_t axes) {
  Shape result = shape;
  for (int i = 0; i < shape.rank(); ++i)
    if ((axes >> i & 1) != 0) result[i] = 1;
  return result;
}

Shape without(const Shape& shape, std::uint32_t axes) {
  Shape result;
  for (int i = 0; i < shape.rank(); ++i)
    if ((axes >> i & 1) == 0) result.push_back(shape[i]);
  return result;
}

// The kernel sees size 1 on each reduced axis; the result has it, or not. `which` has.
Tensor reduced(ReduceOp op, const Tensor& x, std::uint32_t axes, Keep keep, Tensor* which = nullptr) {
  const Shape kept = with_ones(x.shape(), axes);
  Tensor y = empty(keep == Keep::yes ? kept : without(x.shape(), axes), {.dtype = x.dtype(), .device = x.device()});
  if (which != nullptr) *which = empty(kept, {.dtype = i64, .device = x.device()});
  Array out = y.array();
  out.shape = kept;
  std::int64_t stride = 1;
  for (int i = kept.rank() - 1; i >= 0; --i) {
    out.strides[i] = stride;
    stride *= kept[i];
  }
  backend(x.device()).reduce(op, x.array(), out, which != nullptr ? &which->array() : nullptr);
  return y;
}

// dy with size 1 on the reduced axes of `shape`.
Tensor kept(const Tensor& dy, const Shape& shape, std::uint32_t axes) {
  return dy.rank() == shape.rank() ? dy : reshape(dy, with_ones(shape, axes));
}

void record_sum(const Tensor& x, const Tensor& y, std::uint32_t axes, SourceLocation where) {
  record_op("sum", where, {&x}, y, {}, [axes](Gradients& g) {
    const Shape shape = g.shape(0);
    g.add(0, expand(kept(g.dy(), shape, axes), shape));
  });
}

// The gradient of an extremum over several axes: split evenly among the elements that equal it.
Tensor split_evenly(const Tensor& dy, const Tensor& x, const Tensor& y, std::uint32_t axes) {
  const Tensor winners = untaped([&] { return cast(stop_gradient(x) == y, x.dtype()); });
  const Tensor share = dy / reduced(ReduceOp::sum, winners, axes, Keep::yes);
  return detail::relu_mask(share, winners);
}

// The gradient of an extremum over one axis: all of it to the winner.
Tensor to_winner(const Tensor& dy, const Tensor& which, int axis, const Shape& shape) {
  const Tensor winners = untaped([&] {
    Shape along = with_ones(shape, ~0u);
    along[axis] = shape[axis];
    const Tensor index = reshape(arange(shape[axis], {.dtype = i64, .device = dy.device()}), along);
    return cast(index == which, dy.dtype());
  });
  return detail::relu_mask(dy, winners);
}

Tensor extremum(const char* name, ReduceOp op, const Tensor& x, const Axes& axes, Keep keep, bool first_wins,
                SourceLocation where) {
  check::defined(name, "x", x, where);
  const std::uint32_t mask = axes.mask(name, x.rank(), where);
  if (x.dtype() == bool8) throw DTypeError(std::string(name) + ": x must be numbers, got bool8", where);
  const bool one = first_wins && !axes.all() && axes.count() == 1;
  const bool taped = taping() && is_floating(x.dtype());
  Tensor which;
  Tensor y = reduced(op, x, mask, keep, taped && one ? &which : nullptr);
  if (taped && one) {
    record_op(name, where, {&x}, y, {}, [which, mask](Gradients& g) {
      const Shape shape = g.shape(0);
      g.add(0, to_winner(kept(g.dy(), shape, mask), which, __builtin_ctz(mask), shape));
    });
  } else if (taped) {
    record_op(name, where, {&x}, y, {&x, &y}, [x, y, mask](Gradients& g) {
      const Tensor extreme = detail::reshaped(y, with_ones(x.shape(), mask));
      g.add(0, split_evenly(kept(g.dy(), x.shape(), mask), x, extreme, mask));
    });
  }
  return y;
}

Tensor position(const char* name, ReduceOp op, const Tensor& x, int axis, Keep keep, SourceLocation where) {
  check::defined(name, "x", x, where);
  axis = check::axis(name, axis, x.rank(), where);
  if (x.dtype() == bool8) throw DTypeError(std::string(name) + ": x must be numbers, got bool8", where);
  if (x.shape()[axis] == 0)
    throw ShapeError(
        std::string(name) + ": axis " + std::to_string(axis) + " must not be empty, got shape " + x.shape().str(),
        where);
  Tensor which;
  reduced(op, x, 1u << axis, Keep::yes, &which);
  return keep == Keep::yes ? which : detail::reshaped(which, without(which.shape(), 1u << axis));
}

}  // namespace

Tensor sum(const Tensor& x, const Axes& axes, Keep keep, SourceLocation where) {
  check::defined("sum", "x", x, where);
  if (!is_floating(x.dtype()) && x.dtype() != i64) return sum(detail::copied(x, i64), axes, keep, where);
  const std::uint32_t mask = axes.mask("sum", x.rank(), where);
  Tensor y = reduced(ReduceOp::sum, x, mask, keep);
  if (taping() && is_floating(x.dtype())) record_sum(x, y, mask, where);
  return y;
}

Tensor mean(const Tensor& x, const Axes& axes, Keep keep, SourceLocation where) {
  check::floating("mean", "x", x, where);
  const std::uint32_t mask = axes.mask("mean", x.rank(), where);
  Tensor y = reduced(ReduceOp::mean, x, mask, keep);
  if (taping())
    record_op("mean", where, {&x}, y, {}, [mask](Gradients& g) {
      const Shape shape = g.shape(0);
      const Tensor dy = kept(g.dy(), shape, mask);
      if (shape.size() == 0) return g.add(0, expand(dy, shape));
      g.add(0, expand(dy / static_cast<double>(shape.size() / dy.size()), shape));
    });
  return y;
}

Tensor max(const Tensor& x, const Axes& axes, Keep keep, SourceLocation where) {
  return extremum("max", ReduceOp::max, x, axes, keep, true, where);
}
Tensor min(const Tensor& x, const Axes& axes, Keep keep, SourceLocation where) {
  return extremum("min", ReduceOp::min, x, axes, keep, true, where);
}
Tensor amax(const Tensor& x, const Axes& axes, Keep keep, SourceLocation where) {
  return extremum("amax", ReduceOp::max, x, axes, keep, false, where);
}
Tensor amin(const Tensor& x, const Axes& axes, Keep keep, SourceLocation where) {
  return extremum("amin", ReduceOp::min, x, axes, keep, false, where);
}
Tensor argmax(const Tensor& x, int axis, Keep keep, SourceLocation where) {
  return position("argmax", ReduceOp::max, x, axis, keep, where);
}
Tensor argmin(const Tensor& x, int axis, Keep keep, SourceLocation where) {
  return position("argmin", ReduceOp::min, x, axis, keep, where);
}

namespace detail {

Tensor sum_over(const Tensor& x, std::uint32_t axes) {
  if (axes == 0) return x;
  Tensor y = reduced(ReduceOp::sum, x, axes, Keep::yes);
  if (taping()) record_sum(x, y, axes, SourceLocation{});
  return y;
}

}  // namespace detail

}  // namespace reel
