#include "reel/ops/ragged.h"

#include <cmath>
#include <string>

#include "reel/ops/arithmetic.h"
#include "reel/ops/check.h"
#include "reel/ops/convert.h"
#include "reel/ops/create.h"
#include "reel/ops/elementwise.h"
#include "reel/ops/offsets.h"
#include "reel/ops/order.h"
#include "reel/ops/reduce.h"
#include "reel/ops/rows.h"
#include "reel/ops/scan.h"
#include "reel/ops/sequence.h"
#include "reel/ops/softmax.h"
#include "reel/ops/unary.h"
#include "reel/ops/views.h"

namespace reel {

namespace {

using detail::as_rows;
using detail::Gradients;
using detail::numbers_on;
using detail::record_op;
using detail::taping;

Shape with_rows(Shape shape, std::int64_t rows) {
  shape[0] = rows;
  return shape;
}

// --- between rows and sequences: a sum's gradient is a repetition and the other way round ------------------------------

Tensor reduced_rows(ReduceOp op, const Tensor& x, const Offsets& offsets, SourceLocation where,
                    Tensor* winners = nullptr);

// x [n, ...] to [total, ...], each row divided by its sequence's length if `mean`.
Tensor repeated_rows(const Tensor& x, const Offsets& offsets, bool mean, SourceLocation where) {
  Tensor y = empty(with_rows(x.shape(), offsets.total()), x.options());
  backend(x.device()).segment_broadcast(as_rows(x).array(), offsets.segments(x.device()), mean, as_rows(y).array());
  if (taping())
    record_op("repeat_rows", where, {&x}, y, {}, [offsets, mean](Gradients& g) {
      g.add(0, reduced_rows(mean ? ReduceOp::mean : ReduceOp::sum, g.dy(), offsets, SourceLocation{}));
    });
  return y;
}

// As repeated_rows, for any dtype.
Tensor repeated(const char* op, const Tensor& x, const Offsets& offsets, SourceLocation where) {
  if (is_floating(x.dtype())) return repeated_rows(x, offsets, false, where);
  const Tensor sequence = detail::numbers_on(x.device(), offsets.total(), [&](std::int64_t* numbers) {
    for (std::int64_t s = 0; s < offsets.count(); ++s)
      for (std::int64_t i = 0; i < offsets.length(s); ++i) *numbers++ = s;
  });
  return detail::take_rows(op, x, sequence, where);
}

// 1 at the winner of each sequence and column.
Tensor winners(const Tensor& which, const Offsets& offsets, DType dtype) {
  const Tensor ones = reel::ones(which.shape(), {.dtype = dtype, .device = which.device()});
  Tensor mask = empty({offsets.total(), which.shape()[1]}, ones.options());
  backend(which.device())
      .segment_select_backward(ones.array(), which.array(), offsets.segments(which.device()), mask.array());
  return mask;
}

void select_backward(Gradients& g, const Tensor& which, const Offsets& offsets) {
  const Tensor& dy = g.dy();
  const Shape shape = g.shape(0);
  if (g.recording()) {
    const Tensor mask = detail::reshaped(winners(which, offsets, dy.dtype()), shape);
    g.add(0, detail::relu_mask(repeated_rows(dy, offsets, false, SourceLocation{}), mask));
    return;
  }
  Tensor dx = empty(shape, dy.options());
  backend(dy.device())
      .segment_select_backward(as_rows(dy).array(), which.array(), offsets.segments(dy.device()), as_rows(dx).array());
  g.add(0, std::move(dx));
}

constexpr const char* name_of(ReduceOp op) {
  return op == ReduceOp::sum ? "sum" : op == ReduceOp::mean ? "mean" : op == ReduceOp::max ? "max" : "min";
}

// By the order of each sequence's rows: exact, and of few uses. A sequence without rows has what an axis of none has.
Tensor integer_extremes(ReduceOp op, const Ragged& x, Tensor* winners) {
  const bool largest = op == ReduceOp::max;
  const RaggedSorted best = topk(x, 1, largest ? Order::descending : Order::ascending);
  Shape along = x.values().shape();
  for (int i = 1; i < along.rank(); ++i) along[i] = 1;
  along[0] = x.count();
  const Tensor some = reshape(numbers_on(x.device(), x.count(),
                                         [&](std::int64_t* numbers) {
                                           for (std::int64_t s = 0; s < x.count(); ++s) *numbers++ = x.length(s);
                                         }),
                              along) > 0;
  const Tensor none = narrow(x.values(), 0, 0, 0);
  if (winners != nullptr) *winners = reel::where(some, reduce_first(best.which), -1);
  return reel::where(some, reduce_first(best.values), largest ? max(none, 0) : min(none, 0));
}

Tensor reduced_rows(ReduceOp op, const Tensor& x, const Offsets& offsets, SourceLocation where, Tensor* winners) {
  const char* const name = winners == nullptr ? name_of(op) : op == ReduceOp::max ? "max_which" : "min_which";
  check::defined(name, "x", x, where);
  if ((op == ReduceOp::max || op == ReduceOp::min) && !is_floating(x.dtype()))
    return integer_extremes(op, Ragged(x, offsets), winners);
  check::floating(name, "x", x, where);
  Tensor y = empty(with_rows(x.shape(), offsets.count()), x.options());
  const bool adds = op == ReduceOp::sum || op == ReduceOp::mean;
  const Tensor out = as_rows(y);
  const bool places = !adds && (taping() || winners != nullptr);
  const Tensor which = places ? empty(out.shape(), {.dtype = i64, .device = x.device()}) : Tensor();
  backend(x.device())
      .segment_reduce(op, as_rows(x).array(), offsets.segments(x.device()), out.array(),
                      which.defined() ? &which.array() : nullptr);
  if (winners != nullptr) *winners = detail::reshaped(which, y.shape());
  if (taping() && adds)
    record_op(name, where, {&x}, y, {}, [offsets, mean = op == ReduceOp::mean](Gradients& g) {
      g.add(0, repeated_rows(g.dy(), offsets, mean, SourceLocation{}));
    });
  if (taping() && !adds) {
    const detail::InfinityOfNoRows given(op, offsets);
    record_op(name, where, {&x}, y, {&which}, [offsets, which](Gradients& g) { select_backward(g, which, offsets); });
  }
  return y;
}

}  // namespace

// --- softmax ----------------------------------------------------------------------------------------------------------

Ragged detail::softmax_of_sequences(SoftmaxOp op, const char* name, const Ragged& x, double temperature,
                                    SourceLocation where) {
  check::floating(name, "x", x.values(), where);
  const Tensor& values = x.values();
  const Offsets& offsets = x.offsets();
  Tensor y = empty(values.shape(), values.options());
  backend(y.device()).segment_softmax(op, as_rows(values).array(), x.segments(), temperature, as_rows(y).array());
  if (taping())
    record_op(name, where, {&values}, y, {&y}, [op, y, offsets, temperature](Gradients& g) {
      const Tensor& dy = g.dy();
      if (g.recording()) {
        const auto total = [&](const Tensor& rows) {
          const Tensor sums = reduced_rows(ReduceOp::sum, rows, offsets, SourceLocation{});
          return repeated_rows(sums, offsets, false, SourceLocation{});
        };
        if (op == SoftmaxOp::softmax) {
          g.add(0, y * (dy - total(dy * y)) / temperature);
          return;
        }
        // A sequence that is all -inf has no gradient.
        const Tensor some = untaped([&] {
          const Tensor largest = reduced_rows(ReduceOp::max, y, offsets, SourceLocation{});
          return repeated_rows(cast(largest != -INFINITY, y.dtype()), offsets, false, SourceLocation{});
        });
        g.add(0, (dy * some - exp(y) * total(dy)) / temperature);
        return;
      }
      Tensor dx = empty(y.shape(), y.options());
      backend(y.device())
          .segment_softmax_backward(op, as_rows(y).array(), as_rows(dy).array(), offsets.segments(y.device()),
                                    temperature, as_rows(dx).array());
      g.add(0, std::move(dx));
    });
  return x.with(std::move(y));
}

Tensor sum(const Ragged& x, SourceLocation where) {
  check::defined("sum", "x", x.values(), where);
  if (!is_floating(x.dtype())) return reduce_last(cumsum(x, {}));
  return reduced_rows(ReduceOp::sum, x.values(), x.offsets(), where);
}
Tensor mean(const Ragged& x, SourceLocation where) {
  return reduced_rows(ReduceOp::mean, x.values(), x.offsets(), where);
}
Tensor max(const Ragged& x, SourceLocation where) {
  return reduced_rows(ReduceOp::max, x.values(), x.offsets(), where);
}
Tensor min(const Ragged& x, SourceLocation where) {
  return reduced_rows(ReduceOp::min, x.values(), x.offsets(), where);
}

Ragged sum(const Ragged& x, const Axes& axes, Keep keep, SourceLocation where) {
  check::row_axes("sum", x, axes, where);
  return x.with(sum(x.values(), axes, keep, where));
}
Ragged mean(const Ragged& x, const Axes& axes, Keep keep, SourceLocation where) {
  check::row_axes("mean", x, axes, where);
  return x.with(mean(x.values(), axes, keep, where));
}
Ragged max(const Ragged& x, const Axes& axes, Keep keep, SourceLocation where) {
  check::row_axes("max", x, axes, where);
  return x.with(max(x.values(), axes, keep, where));
}
Ragged min(const Ragged& x, const Axes& axes, Keep keep, SourceLocation where) {
  check::row_axes("min", x, axes, where);
  return x.with(min(x.values(), axes, keep, where));
}

Ragged softmax(const Ragged& x, SourceLocation where) {
  return detail::softmax_of_sequences(SoftmaxOp::softmax, "softmax", x, 1, where);
}
Ragged log_softmax(const Ragged& x, SourceLocation where) {
  return detail::softmax_of_sequences(SoftmaxOp::log_softmax, "log_softmax", x, 1, where);
}

Ragged repeat_rows(const Tensor& x, const Offsets& offsets, SourceLocation where) {
  check::defined("repeat_rows", "x", x, where);
  if (x.rank() < 1 || x.shape()[0] != offsets.count())
    throw ShapeError("repeat_rows: x must have one row for each of the " + std::to_string(offsets.count()) +
                         " sequences, got shape " + x.shape().str(),
                     where);
  return Ragged(repeated("repeat_rows", x, offsets, where), offsets, where);
}

namespace detail {

Tensor extremes(ReduceOp op, const Ragged& x, Tensor& which, SourceLocation where) {
  return reduced_rows(op, x.values(), x.offsets(), where, &which);
}

}  // namespace detail

}  // namespace reel
