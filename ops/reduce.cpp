#include "reel/ops/reduce.h"

#include <string>

#include "reel/ops/arithmetic.h"
#include "reel/ops/convert.h"
#include "reel/ops/create.h"
#include "reel/ops/logical.h"
#include "reel/ops/offsets.h"
#include "reel/ops/padding.h"
#include "reel/ops/ragged.h"
#include "reel/ops/rows.h"
#include "reel/ops/scan.h"
#include "reel/ops/sequence.h"
#include "reel/ops/unary_op.h"
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
  Tensor y = empty(keep == Keep::yes ? kept : without(x.shape(), axes), x.options());
  if (which != nullptr) *which = empty(kept, {.dtype = i64, .device = x.device()});
  Array out;  // not a copy of y's: loads of 16 bytes would wait for what has just been stored in parts
  out.data = y.array().data;
  out.size = y.size();
  out.shape = kept;
  out.dtype = x.dtype();
  out.device = x.device();
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

// What each element of `shape` gets of a mean's gradient.
Tensor share_of_mean(const Tensor& dy, const Shape& shape, std::uint32_t axes) {
  const Tensor all = kept(dy, shape, axes);
  if (shape.size() == 0) return expand(all, shape);
  return expand(all / static_cast<double>(shape.size() / all.size()), shape);
}

// 1 where x is the extremum y, which NaN are if there are any, else 0.
template <class T>
T winning(const T& x, const Tensor& y) {
  return untaped([&] { return cast(logical_or(x == y, isnan(x)), y.dtype()); });
}

// How many won, for a divisor: 1 where there is nothing.
Tensor at_least_one(const Tensor& count) {
  return untaped([&] { return maximum(count, 1); });
}

// The gradient of an extremum over several axes: split evenly among the elements that equal it.
Tensor split_evenly(const Tensor& dy, const Tensor& x, const Tensor& y, std::uint32_t axes) {
  const Tensor winners = winning(x, y);
  const Tensor share = dy / at_least_one(reduced(ReduceOp::sum, winners, axes, Keep::yes));
  return detail::relu_mask(share, winners);
}

// The gradient of the product along an axis for dy of size 1 there: times those before and those behind each element, in f64, where
// one of both may leave f32's range and the other leads back.
Tensor product_gradient(const Tensor& x, const Tensor& dy, int axis, bool recording) {
  if (!recording && x.dtype() != f64) return detail::prod_gradient(x, dy, axis);
  const Tensor from = cast(x, f64);
  const Tensor others =
      cumprod(from, axis, {.exclusive = true}) * cumprod(from, axis, {.reverse = true, .exclusive = true});
  return cast(cast(dy, f64) * others, x.dtype());
}

// The same over the axes in `mask`.
Tensor product_gradient(const Tensor& x, const Tensor& dy, std::uint32_t mask, bool recording) {
  if (mask == 0) return dy;
  if ((mask & (mask - 1)) == 0) return product_gradient(x, dy, __builtin_ctz(mask), recording);
  // The reduced axes become one, the last.
  Shape order, inverse = x.shape(), joined, joined_dy;
  for (const bool gone : {false, true})
    for (int i = 0; i < x.rank(); ++i) {
      if ((mask >> i & 1) != gone) continue;
      inverse[i] = order.rank();
      order.push_back(i);
      if (!gone) joined.push_back(x.shape()[i]);
    }
  std::int64_t count = 1;
  for (int i = joined.rank(); i < x.rank(); ++i) count *= x.shape()[static_cast<int>(order[i])];
  joined_dy = joined;
  joined.push_back(count);
  joined_dy.push_back(1);
  const Tensor moved = permute(x, order);
  const Tensor dx = product_gradient(reshape(moved, joined), reshape(dy, joined_dy), joined.rank() - 1, recording);
  return permute(reshape(dx, moved.shape()), inverse);
}

Tensor extremum(const char* name, ReduceOp op, const Tensor& x, const Axes& axes, Keep keep, bool first_wins,
                SourceLocation where, Tensor* winners = nullptr) {
  check::defined(name, "x", x, where);
  if (x.dtype() == bool8) return cast(extremum(name, op, cast(x, u8), axes, keep, first_wins, where, winners), bool8);
  const std::uint32_t mask = axes.mask(name, x.rank(), where);
  const bool one = first_wins && mask != 0 && !axes.all() && axes.count() == 1 && x.size() > 0;
  const bool taped = taping() && is_floating(x.dtype());
  Tensor which;
  Tensor y = reduced(op, x, mask, keep, (taped && one) || winners != nullptr ? &which : nullptr);
  if (winners != nullptr) *winners = detail::reshaped(which, y.shape());
  if (taped && one) {  // all of the gradient to the winner
    detail::record_gather(name, where, x, y, __builtin_ctz(mask), which);
  } else if (taped) {
    record_op(name, where, {&x}, y, {&x, &y}, [x, y, mask](Gradients& g) {
      const Tensor extreme = detail::reshaped(y, with_ones(x.shape(), mask));
      g.add(0, split_evenly(kept(g.dy(), x.shape(), mask), x, extreme, mask));
    });
  }
  return y;
}

void check_not_empty(const char* name, const Tensor& x, int axis, SourceLocation where) {
  check::defined(name, "x", x, where);
  axis = check::axis(name, axis, x.rank(), where);
  if (x.shape()[axis] == 0)
    throw ShapeError(
        std::string(name) + ": axis " + std::to_string(axis) + " must not be empty, got shape " + x.shape().str(),
        where);
}

Winners winners_of(const char* name, ReduceOp op, const Tensor& x, int axis, Keep keep, SourceLocation where) {
  check::defined(name, "x", x, where);
  if (x.rank() == 0) {
    const Winners one = winners_of(name, op, reshape(x, {1}), axis, keep, where);
    return {reshape(one.y, {}), reshape(one.which, {})};
  }
  check_not_empty(name, x, axis, where);
  Winners winners;
  winners.y = extremum(name, op, x, axis, keep, true, where, &winners.which);
  return winners;
}

Tensor position(const char* name, ReduceOp op, const Tensor& x, int axis, Keep keep, SourceLocation where) {
  return untaped([&] { return winners_of(name, op, x, axis, keep, where).which; });
}

// Over all axes.
Tensor place(const char* name, ReduceOp op, const Tensor& x, SourceLocation where) {
  check::defined(name, "x", x, where);
  if (x.size() == 0) throw ShapeError(std::string(name) + ": x must not be empty, got shape " + x.shape().str(), where);
  return untaped([&] { return position(name, op, reshape(x, {x.size()}), 0, Keep::no, where); });
}

// --- per sequence -----------------------------------------------------------------------------------------------------

Winners winners_of(ReduceOp op, const Ragged& x, SourceLocation where) {
  Winners winners;
  winners.y = detail::extremes(op, x, winners.which, where);
  return winners;
}

// What is refused is refused under the name that the user called.
void check_numbers(const char* name, const Ragged& x, SourceLocation where) {
  check::defined(name, "x", x.values(), where);
  if (is_floating(x.dtype())) check::floating(name, "x", x.values(), where);
}

Tensor position(const char* name, ReduceOp op, const Ragged& x, SourceLocation where) {
  check_numbers(name, x, where);
  return untaped([&] { return winners_of(op, x, SourceLocation{}).which; });
}

Tensor extremum(const char* name, ReduceOp op, const Ragged& x, SourceLocation where) {
  check_numbers(name, x, where);
  const Tensor y = untaped([&] { return op == ReduceOp::max ? max(x) : min(x); });
  if (taping() && is_floating(x.dtype())) {
    const detail::InfinityOfNoRows given(op, x.offsets());
    record_op(name, where, {&x.values()}, y, {&x.values(), &y}, [x, y](Gradients& g) {
      const Ragged winners = winning(x, y);
      const Tensor count = untaped([&] { return sum(winners); });
      const Ragged share = repeat_rows(g.dy() / at_least_one(count), x.offsets());
      g.add(0, detail::relu_mask(share.values(), winners.values()));
    });
  }
  return y;
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
    record_op("mean", where, {&x}, y, {}, [mask](Gradients& g) { g.add(0, share_of_mean(g.dy(), g.shape(0), mask)); });
  return y;
}

Tensor prod(const Tensor& x, const Axes& axes, Keep keep, SourceLocation where) {
  check::defined("prod", "x", x, where);
  if (!is_floating(x.dtype()) && x.dtype() != i64) return prod(detail::copied(x, i64), axes, keep, where);
  const std::uint32_t mask = axes.mask("prod", x.rank(), where);
  Tensor y = reduced(ReduceOp::prod, x, mask, keep);
  if (taping() && is_floating(x.dtype()))
    record_op("prod", where, {&x}, y, {&x}, [x, mask](Gradients& g) {
      g.add(0, product_gradient(x, kept(g.dy(), x.shape(), mask), mask, g.recording()));
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

Tensor argmax(const Tensor& x, SourceLocation where) { return place("argmax", ReduceOp::max, x, where); }
Tensor argmin(const Tensor& x, SourceLocation where) { return place("argmin", ReduceOp::min, x, where); }

Winners max_which(const Tensor& x, int axis, Keep keep, SourceLocation where) {
  return winners_of("max_which", ReduceOp::max, x, axis, keep, where);
}
Winners min_which(const Tensor& x, int axis, Keep keep, SourceLocation where) {
  return winners_of("min_which", ReduceOp::min, x, axis, keep, where);
}

Tensor prod(const Ragged& x, SourceLocation where) {
  check::defined("prod", "x", x.values(), where);
  // With a 1 in front of each sequence, which is the product of one without rows.
  if (!is_floating(x.dtype())) return reduce_last(cumprod(pad(x, {{0, 1, 0}}, 1)));
  Shape shape = x.values().shape();
  shape[0] = x.count();
  Tensor y = empty(shape, x.options());
  backend(x.device())
      .segment_reduce(ReduceOp::prod, detail::as_rows(x.values()).array(), x.segments(), detail::as_rows(y).array(),
                      nullptr);
  if (taping())
    record_op("prod", where, {&x.values()}, y, {&x.values()}, [x](Gradients& g) {
      if (!g.recording() && x.dtype() != f64) return g.add(0, detail::prod_gradient(x, g.dy()));
      const Ragged wide = cast(x, f64);
      const Ragged others = cumprod(wide, {.exclusive = true}) * cumprod(wide, {.reverse = true, .exclusive = true});
      g.add(0, cast((others * cast(g.dy(), f64)).values(), x.dtype()));
    });
  return y;
}
Tensor amax(const Ragged& x, SourceLocation where) { return extremum("amax", ReduceOp::max, x, where); }
Tensor amin(const Ragged& x, SourceLocation where) { return extremum("amin", ReduceOp::min, x, where); }
Tensor argmax(const Ragged& x, SourceLocation where) { return position("argmax", ReduceOp::max, x, where); }
Tensor argmin(const Ragged& x, SourceLocation where) { return position("argmin", ReduceOp::min, x, where); }
Winners max_which(const Ragged& x, SourceLocation where) {
  check::defined("max_which", "x", x.values(), where);
  return winners_of(ReduceOp::max, x, where);
}
Winners min_which(const Ragged& x, SourceLocation where) {
  check::defined("min_which", "x", x.values(), where);
  return winners_of(ReduceOp::min, x, where);
}

Ragged prod(const Ragged& x, const Axes& axes, Keep keep, SourceLocation where) {
  check::row_axes("prod", x, axes, where);
  return x.with(prod(x.values(), axes, keep, where));
}
Ragged amax(const Ragged& x, const Axes& axes, Keep keep, SourceLocation where) {
  check::row_axes("amax", x, axes, where);
  return x.with(amax(x.values(), axes, keep, where));
}
Ragged amin(const Ragged& x, const Axes& axes, Keep keep, SourceLocation where) {
  check::row_axes("amin", x, axes, where);
  return x.with(amin(x.values(), axes, keep, where));
}
Ragged argmax(const Ragged& x, int axis, Keep keep, SourceLocation where) {
  check::row_axes("argmax", x, axis, where);
  return x.with(argmax(x.values(), axis, keep, where));
}
Ragged argmin(const Ragged& x, int axis, Keep keep, SourceLocation where) {
  check::row_axes("argmin", x, axis, where);
  return x.with(argmin(x.values(), axis, keep, where));
}

RaggedWinners max_which(const Ragged& x, int axis, Keep keep, SourceLocation where) {
  const Winners rows = max_which(x.values(), check::row_axis("max_which", x, axis, where), keep, where);
  return {x.with(rows.y), x.with(rows.which)};
}
RaggedWinners min_which(const Ragged& x, int axis, Keep keep, SourceLocation where) {
  const Winners rows = min_which(x.values(), check::row_axis("min_which", x, axis, where), keep, where);
  return {x.with(rows.y), x.with(rows.which)};
}

namespace detail {

Tensor sum_over(const Tensor& x, std::uint32_t axes) {
  if (axes == 0) return x;
  Tensor y = reduced(ReduceOp::sum, x, axes, Keep::yes);
  if (taping()) record_sum(x, y, axes, SourceLocation{});
  return y;
}

Tensor reduced_squares(const char* name, ReduceOp op, const Tensor& x, const Axes& axes, Keep keep,
                       SourceLocation where) {
  const std::uint32_t mask = axes.mask(name, x.rank(), where);
  Tensor y = reduced(op, x, mask, keep);
  if (taping())
    record_op(name, where, {&x}, y, {&x}, [op, x, mask](Gradients& g) {
      const Tensor share =
          is_mean(op) ? share_of_mean(g.dy(), x.shape(), mask) : expand(kept(g.dy(), x.shape(), mask), x.shape());
      g.add(0, unary_gradient(kSquare, share, x));
    });
  return y;
}

}  // namespace detail

}  // namespace reel
