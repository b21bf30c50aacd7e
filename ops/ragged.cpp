#include "reel/ops/ragged.h"

#include <cmath>
#include <string>

#include "reel/core/fits.h"
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
using detail::packed;
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
Tensor integer_extremes(ReduceOp op, const Ragged& x, SourceLocation where, Tensor* winners) {
  const bool largest = op == ReduceOp::max;
  const RaggedSorted best = topk(x, 1, largest ? Order::descending : Order::ascending, where);
  Shape along = x.values().shape();
  for (int i = 1; i < along.rank(); ++i) along[i] = 1;
  along[0] = x.count();
  const Tensor some = reshape(numbers_on(x.device(), x.count(),
                                         [&](std::int64_t* numbers) {
                                           for (std::int64_t s = 0; s < x.count(); ++s) *numbers++ = x.length(s);
                                         }),
                              along) > 0;
  const Tensor none = narrow(x.values(), 0, 0, 0);
  if (winners != nullptr) *winners = reel::where(some, reduce_first(best.which, where), -1);
  return reel::where(some, reduce_first(best.values, where), largest ? max(none, 0) : min(none, 0));
}

Tensor reduced_rows(ReduceOp op, const Tensor& x, const Offsets& offsets, SourceLocation where, Tensor* winners) {
  if ((op == ReduceOp::max || op == ReduceOp::min) && x.defined() && !is_floating(x.dtype()))
    return integer_extremes(op, Ragged(x, offsets), where, winners);
  check::floating(name_of(op), "x", x, where);
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
    record_op(name_of(op), where, {&x}, y, {}, [offsets, mean = op == ReduceOp::mean](Gradients& g) {
      g.add(0, repeated_rows(g.dy(), offsets, mean, SourceLocation{}));
    });
  else if (taping())
    record_op(name_of(op), where, {&x}, y, {}, [offsets, which](Gradients& g) { select_backward(g, which, offsets); });
  return y;
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

// --- padding ----------------------------------------------------------------------------------------------------------

Tensor unpadded(const Tensor& x, const Offsets& offsets, SourceLocation where);

// [n, length, ...] seen as [n, length, width].
Tensor as_blocks(const Tensor& x) {
  std::int64_t width = 1;
  for (int i = 2; i < x.rank(); ++i) width *= x.shape()[i];
  return detail::reshaped(packed(x), {x.shape()[0], x.shape()[1], width});
}

Tensor padded(const Tensor& values, const Offsets& offsets, std::int64_t length, Scalar padding, SourceLocation where) {
  Shape shape{offsets.count(), length};
  for (int i = 1; i < values.rank(); ++i) shape.push_back(values.shape()[i]);
  Tensor y = empty(shape, like(values));
  backend(y.device()).segment_pad(as_rows(values).array(), offsets.segments(y.device()), padding, as_blocks(y).array());
  if (taping() && is_floating(values.dtype()))
    record_op("to_padded", where, {&values}, y, {},
              [offsets](Gradients& g) { g.add(0, unpadded(g.dy(), offsets, SourceLocation{})); });
  return y;
}

Tensor unpadded(const Tensor& x, const Offsets& offsets, SourceLocation where) {
  Shape shape{offsets.total()};
  for (int i = 2; i < x.rank(); ++i) shape.push_back(x.shape()[i]);
  Tensor y = empty(shape, like(x));
  backend(y.device()).segment_unpad(as_blocks(x).array(), offsets.segments(y.device()), as_rows(y).array());
  if (taping() && is_floating(x.dtype()))
    record_op("from_padded", where, {&x}, y, {}, [offsets, length = x.shape()[1]](Gradients& g) {
      g.add(0, padded(g.dy(), offsets, length, 0, SourceLocation{}));
    });
  return y;
}

}  // namespace

Tensor sum(const Ragged& x, SourceLocation where) {
  check::defined("sum", "x", x.values(), where);
  if (!is_floating(x.dtype())) return reduce_last(cumsum(x, {}, where), where);
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

Ragged Ragged::from_list(const Tensors& sequences, SourceLocation where) {
  if (sequences.empty()) throw ShapeError("Ragged::from_list: at least one sequence is needed, got none", where);
  std::vector<std::int64_t> lengths;
  for (std::size_t i = 0; i < sequences.size(); ++i) {
    check::defined("Ragged::from_list", "each sequence", sequences[i], where);
    if (sequences[i].rank() < 1)
      throw ShapeError("Ragged::from_list: sequences must have shape [length, ...], got a tensor without axes", where);
    lengths.push_back(sequences[i].shape()[0]);
  }
  return Ragged(detail::concatenated("Ragged::from_list", sequences, 0, where), Offsets(lengths, where), where);
}

Tensor Ragged::operator[](detail::Index index) const {
  check::defined("Ragged[]", "the Ragged", values_, index.where);
  std::int64_t i = index.value;
  if (i < -count() || i >= count()) detail::refuse_index("Ragged[]", "sequence", -count(), count(), i, index.where);
  if (i < 0) i += count();
  return narrow(values_, 0, offsets_.span()[static_cast<std::size_t>(i)], length(i), index.where);
}

Tensors to_list(const Ragged& x, SourceLocation where) {
  check::defined("to_list", "x", x.values(), where);
  Tensors list;
  for (std::int64_t i = 0; i < x.count(); ++i)
    list.push_back(narrow(x.values(), 0, x.offsets().span()[static_cast<std::size_t>(i)], x.length(i), where));
  return list;
}

Tensor to_padded(const Ragged& x, Scalar padding, SourceLocation where) {
  check::defined("to_padded", "x", x.values(), where);
  if (x.values().rank() == kMaxRank) throw ShapeError("to_padded: values must have fewer than 8 axes", where);
  detail::check_fits("to_padded", padding, x.dtype(), where);
  return padded(x.values(), x.offsets(), x.offsets().max_length(), padding, where);
}

Ragged from_padded(const Tensor& x, std::span<const std::int64_t> lengths, SourceLocation where) {
  check::defined("from_padded", "x", x, where);
  Offsets offsets(lengths, where);
  if (x.rank() < 2 || x.shape()[0] != offsets.count() || offsets.max_length() > x.shape()[1])
    throw ShapeError("from_padded: x must have shape [" + std::to_string(offsets.count()) + ", at least " +
                         std::to_string(offsets.max_length()) + ", ...] for these lengths, got " + x.shape().str(),
                     where);
  Tensor values = unpadded(x, offsets, where);
  return Ragged(std::move(values), std::move(offsets), where);
}

Ragged from_padded(const Tensor& x, std::initializer_list<std::int64_t> lengths, SourceLocation where) {
  return from_padded(x, std::span(lengths.begin(), lengths.size()), where);
}

namespace detail {

Tensor extremes(ReduceOp op, const Ragged& x, Tensor& which, SourceLocation where) {
  return reduced_rows(op, x.values(), x.offsets(), where, &which);
}

}  // namespace detail

}  // namespace reel
