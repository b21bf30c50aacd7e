#include "reel/ops/ragged.h"

#include <algorithm>
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

TensorOptions like(const Tensor& x) { return {.dtype = x.dtype(), .device = x.device()}; }

Shape with_rows(Shape shape, std::int64_t rows) {
  shape[0] = rows;
  return shape;
}

// --- between rows and sequences: a sum's gradient is a repetition and the other way round ------------------------------

Tensor reduced_rows(ReduceOp op, const Tensor& x, const Offsets& offsets, SourceLocation where,
                    Tensor* winners = nullptr);

// x [n, ...] to [total, ...], each row divided by its sequence's length if `mean`.
Tensor repeated_rows(const Tensor& x, const Offsets& offsets, bool mean, SourceLocation where) {
  Tensor y = empty(with_rows(x.shape(), offsets.total()), like(x));
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
  Tensor mask = empty({offsets.total(), which.shape()[1]}, like(ones));
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
  Tensor dx = empty(shape, like(dy));
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
  Tensor y = empty(with_rows(x.shape(), offsets.count()), like(x));
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
  else if (taping())
    record_op(name, where, {&x}, y, {}, [offsets, which](Gradients& g) { select_backward(g, which, offsets); });
  return y;
}

// --- broadcasting -----------------------------------------------------------------------------------------------------

void check_offsets(const char* op, const Ragged& a, const Ragged& b, SourceLocation where) {
  if (!(a.offsets() == b.offsets()))
    throw ShapeError(std::string(op) + ": both Ragged operands must have the same lengths, got " +
                         std::to_string(a.count()) + " sequences of " + std::to_string(a.total()) + " rows and " +
                         std::to_string(b.count()) + " of " + std::to_string(b.total()) +
                         (a.count() == b.count() && a.total() == b.total() ? ", cut differently" : ""),
                     where);
}

// A tensor beside `x`, ready to broadcast against values of `rank` axes.
Tensor beside(const char* op, const Ragged& x, int rank, const Tensor& other, SourceLocation where) {
  check::defined(op, "the operand beside the Ragged", other, where);
  if (other.rank() < rank) return other;
  if (other.rank() > rank || other.shape()[0] != x.count())
    throw ShapeError(std::string(op) + ": a tensor beside a Ragged of " + std::to_string(x.count()) +
                         " sequences and values " + x.values().shape().str() + " must have one row per sequence, [" +
                         std::to_string(x.count()) + ", ...], or lower rank, got " + other.shape().str(),
                     where);
  return repeated(op, other, x.offsets(), {});
}

// Values with axes of size 1 behind the rows', so that rows of lower rank broadcast by their own axes.
Tensor of_rank(const Tensor& values, int rank) {
  if (values.rank() == rank) return values;
  Shape shape{values.shape()[0]};
  while (shape.rank() < rank - values.rank() + 1) shape.push_back(1);
  for (int i = 1; i < values.rank(); ++i) shape.push_back(values.shape()[i]);
  return reshape(values, shape);
}

using Binary = Tensor (*)(const Arg&, const Arg&);

// Rows must not be broadcast away: the result has the Ragged's rows.
Ragged checked(const char* op, const Ragged& x, int rank, Tensor values, SourceLocation where) {
  if (values.rank() != rank || values.shape()[0] != x.total())
    throw ShapeError(std::string(op) + ": rows of shapes that broadcast are needed, got a result of shape " +
                         values.shape().str() + " for " + std::to_string(x.total()) + " rows",
                     where);
  return x.with(std::move(values));
}

Ragged both(const char* op, Binary f, const Ragged& a, const Ragged& b, SourceLocation where) {
  for (const Ragged* x : {&a, &b}) check::defined(op, "each operand", x->values(), where);
  check_offsets(op, a, b, where);
  const int rank = std::max(a.values().rank(), b.values().rank());
  const Tensor left = of_rank(a.values(), rank), right = of_rank(b.values(), rank);
  return a.with(f(Arg(left, where), Arg(right, where)));
}
Ragged left(const char* op, Binary f, const Ragged& a, const Arg& b) {
  const SourceLocation where = b.where();
  check::defined(op, "the Ragged", a.values(), where);
  if (!b.is_tensor()) return a.with(f(Arg(a.values(), where), b));
  const Tensor other = beside(op, a, a.values().rank(), b.tensor(), where);
  return checked(op, a, a.values().rank(), f(Arg(a.values(), where), Arg(other, where)), where);
}
Ragged right(const char* op, Binary f, const Arg& a, const Ragged& b) {
  const SourceLocation where = a.where();
  check::defined(op, "the Ragged", b.values(), where);
  if (!a.is_tensor()) return b.with(f(a, Arg(b.values(), where)));
  const Tensor other = beside(op, b, b.values().rank(), a.tensor(), where);
  return checked(op, b, b.values().rank(), f(Arg(other, where), Arg(b.values(), where)), where);
}

// --- softmax ----------------------------------------------------------------------------------------------------------

Ragged within_sequences(SoftmaxOp op, const char* name, const Ragged& x, SourceLocation where) {
  check::floating(name, "x", x.values(), where);
  const Tensor& values = x.values();
  const Offsets& offsets = x.offsets();
  Tensor y = empty(values.shape(), like(values));
  backend(y.device()).segment_softmax(op, as_rows(values).array(), x.segments(), as_rows(y).array());
  if (taping())
    record_op(name, where, {&values}, y, {&y}, [op, y, offsets](Gradients& g) {
      const Tensor& dy = g.dy();
      if (g.recording()) {
        const auto total = [&](const Tensor& rows) {
          const Tensor sums = reduced_rows(ReduceOp::sum, rows, offsets, SourceLocation{});
          return repeated_rows(sums, offsets, false, SourceLocation{});
        };
        if (op == SoftmaxOp::softmax) {
          g.add(0, y * (dy - total(dy * y)));
          return;
        }
        // A sequence that is all -inf has no gradient.
        const Tensor some = untaped([&] {
          const Tensor largest = reduced_rows(ReduceOp::max, y, offsets, SourceLocation{});
          return repeated_rows(cast(largest != -INFINITY, y.dtype()), offsets, false, SourceLocation{});
        });
        g.add(0, dy * some - exp(y) * total(dy));
        return;
      }
      Tensor dx = empty(y.shape(), like(y));
      backend(y.device())
          .segment_softmax_backward(op, as_rows(y).array(), as_rows(dy).array(), offsets.segments(y.device()),
                                    as_rows(dx).array());
      g.add(0, std::move(dx));
    });
  return x.with(std::move(y));
}

}  // namespace

Ragged add(const Ragged& a, const Ragged& b, SourceLocation where) { return both("add", add, a, b, where); }
Ragged sub(const Ragged& a, const Ragged& b, SourceLocation where) { return both("sub", sub, a, b, where); }
Ragged mul(const Ragged& a, const Ragged& b, SourceLocation where) { return both("mul", mul, a, b, where); }
Ragged div(const Ragged& a, const Ragged& b, SourceLocation where) { return both("div", div, a, b, where); }
Ragged maximum(const Ragged& a, const Ragged& b, SourceLocation where) { return both("maximum", maximum, a, b, where); }
Ragged minimum(const Ragged& a, const Ragged& b, SourceLocation where) { return both("minimum", minimum, a, b, where); }
Ragged pow(const Ragged& a, const Ragged& b, SourceLocation where) { return both("pow", pow, a, b, where); }
Ragged add(const Ragged& a, const Arg& b) { return left("add", add, a, b); }
Ragged sub(const Ragged& a, const Arg& b) { return left("sub", sub, a, b); }
Ragged mul(const Ragged& a, const Arg& b) { return left("mul", mul, a, b); }
Ragged div(const Ragged& a, const Arg& b) { return left("div", div, a, b); }
Ragged maximum(const Ragged& a, const Arg& b) { return left("maximum", maximum, a, b); }
Ragged minimum(const Ragged& a, const Arg& b) { return left("minimum", minimum, a, b); }
Ragged pow(const Ragged& a, const Arg& b) { return left("pow", pow, a, b); }
Ragged add(const Arg& a, const Ragged& b) { return right("add", add, a, b); }
Ragged sub(const Arg& a, const Ragged& b) { return right("sub", sub, a, b); }
Ragged mul(const Arg& a, const Ragged& b) { return right("mul", mul, a, b); }
Ragged div(const Arg& a, const Ragged& b) { return right("div", div, a, b); }
Ragged maximum(const Arg& a, const Ragged& b) { return right("maximum", maximum, a, b); }
Ragged minimum(const Arg& a, const Ragged& b) { return right("minimum", minimum, a, b); }
Ragged pow(const Arg& a, const Ragged& b) { return right("pow", pow, a, b); }

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
  return within_sequences(SoftmaxOp::softmax, "softmax", x, where);
}
Ragged log_softmax(const Ragged& x, SourceLocation where) {
  return within_sequences(SoftmaxOp::log_softmax, "log_softmax", x, where);
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

Ragged broadcast(const char* op, BinaryFunction f, const Ragged& a, const Ragged& b, SourceLocation where) {
  return both(op, f, a, b, where);
}
Ragged broadcast(const char* op, BinaryFunction f, const Ragged& a, const Arg& b) { return left(op, f, a, b); }
Ragged broadcast(const char* op, BinaryFunction f, const Arg& a, const Ragged& b) { return right(op, f, a, b); }

Ragged broadcast(const char* op, TernaryFunction f, const RaggedOperand& a, const RaggedOperand& b,
                 const RaggedOperand& c, SourceLocation where) {
  const RaggedOperand* const all[] = {&a, &b, &c};
  const Ragged* rows = nullptr;
  int rank = 0;
  for (const RaggedOperand* x : all) {
    if (!x->is_ragged()) continue;
    check::defined(op, "each operand", x->ragged().values(), where);
    if (rows == nullptr) rows = &x->ragged();
    check_offsets(op, *rows, x->ragged(), where);
    rank = std::max(rank, x->ragged().values().rank());
  }
  const auto tensor = [&](const RaggedOperand& x) {
    if (x.is_ragged()) return of_rank(x.ragged().values(), rank);
    return x.arg().is_tensor() ? beside(op, *rows, rank, x.arg().tensor(), where) : Tensor();
  };
  const Tensor tensors[] = {tensor(a), tensor(b), tensor(c)};
  const auto arg = [&](int i) { return tensors[i].defined() ? Arg(tensors[i], where) : all[i]->arg(); };
  return checked(op, *rows, rank, f(arg(0), arg(1), arg(2), where), where);
}

Tensor extremes(ReduceOp op, const Ragged& x, Tensor& which, SourceLocation where) {
  return reduced_rows(op, x.values(), x.offsets(), where, &which);
}

}  // namespace detail

}  // namespace reel
