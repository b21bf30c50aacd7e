#include "reel/ops/scan.h"

#include <optional>
#include <string>

#include "reel/ops/arithmetic.h"
#include "reel/ops/convert.h"
#include "reel/ops/offsets.h"
#include "reel/ops/views.h"

// Recorded scans, whose gradients have a kernel and, for an outer tape, are made of each other:
//   E(x, f), exclusive: y[i + 1] = x[i] + f[i] y[i].   dx = E'(dy, f), df = dx y, with E' in the other direction.
//   inclusive: y = x + f E(x, f).                      dx = dy + E'(f dy, f), df = dx E(x, f).
//   products: y with f = x, from 1.                    dx is df.

namespace reel {

namespace {

using detail::as_rows;
using detail::Gradients;
using detail::packed;
using detail::record_op;
using detail::taping;

// What a scan runs along: an axis of a tensor, or the sequences of a Ragged.
struct Lines {
  int axis = 0;
  std::optional<Offsets> offsets = {};
};

constexpr ScanOptions back(ScanOptions options) { return {!options.reverse, options.exclusive}; }
constexpr ScanOptions without_own(ScanOptions options) { return {options.reverse, true}; }

// What contiguous arrays a scan sees.
Tensor seen(const Tensor& t, const Lines& lines) { return !t.defined() ? t : lines.offsets ? as_rows(t) : packed(t); }
const Array* array_of(const Tensor& t) { return t.defined() ? &t.array() : nullptr; }

// Unrecorded. `factor` may be undefined.
Tensor scanned(ScanOp op, const Tensor& x, const Tensor& factor, const Lines& lines, ScanOptions options) {
  Tensor y = empty(x.shape(), x.options());
  Ops& ops = backend(x.device());
  const Tensor from = seen(x, lines), by = seen(factor, lines), to = seen(y, lines);
  if (lines.offsets) {
    ops.segment_scan(op, from.array(), array_of(by), lines.offsets->segments(x.device()), options.reverse,
                     options.exclusive, to.array());
  } else {
    ops.scan(op, from.array(), array_of(by), lines.axis, options.reverse, options.exclusive, to.array());
  }
  return y;
}

Tensor sums(const Tensor& x, const Lines& lines, ScanOptions options, SourceLocation where) {
  Tensor y = scanned(ScanOp::sum, x, {}, lines, options);
  if (taping() && is_floating(x.dtype()))
    record_op("cumsum", where, {&x}, y, {},
              [lines, options](Gradients& g) { g.add(0, sums(g.dy(), lines, back(options), SourceLocation{})); });
  return y;
}

Tensor recurrence(const Tensor& x, const Tensor& factor, const Lines& lines, ScanOptions options, SourceLocation where);
Tensor products(const Tensor& x, const Lines& lines, ScanOptions options, SourceLocation where);

// The gradient of the state after each element.
Tensor of_states(const Tensor& dy, const Tensor& factor, const Lines& lines, ScanOptions options) {
  const ScanOptions against = back(without_own(options));
  if (options.exclusive) return recurrence(dy, factor, lines, against, SourceLocation{});
  return dy + recurrence(factor * dy, factor, lines, against, SourceLocation{});
}

// In f64 and rounded once: where a scan leaves f32's range, what it is multiplied by may lead back.
void recorded_gradients(ScanOp op, Gradients& g, const Tensor& x, const Tensor& factor, const Lines& lines,
                        ScanOptions options) {
  const Tensor from = cast(x, f64), by = op == ScanOp::prod ? from : cast(factor, f64);
  const Tensor after = of_states(cast(g.dy(), f64), by, lines, options);
  const auto before = [&] {
    const ScanOptions exclusive = without_own(options);
    return op == ScanOp::prod ? products(from, lines, exclusive, SourceLocation{})
                              : recurrence(from, by, lines, exclusive, SourceLocation{});
  };
  if (op == ScanOp::prod) return g.add(0, cast(after * before(), x.dtype()));
  if (g.needs(0)) g.add(0, cast(after, x.dtype()));
  if (g.needs(1)) g.add(1, cast(after * before(), x.dtype()));
}

// By the kernel: f32, unrecorded. Of dy and dlast one is defined, of dx and dfactor those that are wanted.
void make_gradients(ScanOp op, const Tensor& x, const Tensor& factor, const Lines& lines, ScanOptions options,
                    const Tensor& dy, const Tensor& dlast, const Tensor& dx, const Tensor& dfactor) {
  const Tensor from = seen(x, lines), by = seen(factor, lines), of_y = seen(dy, lines), of_last = seen(dlast, lines),
               to_x = seen(dx, lines), to_factor = seen(dfactor, lines);
  const ScanGradients gradients{array_of(of_y), array_of(of_last), array_of(to_x), array_of(to_factor)};
  Ops& ops = backend(x.device());
  if (lines.offsets) {
    ops.segment_scan_backward(op, from.array(), array_of(by), lines.offsets->segments(x.device()), options.reverse,
                              options.exclusive, gradients);
  } else {
    ops.scan_backward(op, from.array(), array_of(by), lines.axis, options.reverse, options.exclusive, gradients);
  }
}

void gradients(ScanOp op, Gradients& g, const Tensor& x, const Tensor& factor, const Lines& lines,
               ScanOptions options) {
  if (g.recording() || x.dtype() == f64) return recorded_gradients(op, g, x, factor, lines, options);
  const auto room = [&](bool wanted) { return wanted ? empty(x.shape(), x.options()) : Tensor(); };
  const Tensor dx = room(g.needs(0)), dfactor = room(factor.defined() && g.needs(1));
  make_gradients(op, x, factor, lines, options, g.dy(), {}, dx, dfactor);
  if (dx.defined()) g.add(0, dx);
  if (dfactor.defined()) g.add(1, dfactor);
}

Tensor recurrence(const Tensor& x, const Tensor& factor, const Lines& lines, ScanOptions options,
                  SourceLocation where) {
  Tensor y = scanned(ScanOp::sum, x, factor, lines, options);
  if (taping())
    record_op("linear_scan", where, {&x, &factor}, y, {&x, &factor},
              [=](Gradients& g) { gradients(ScanOp::sum, g, x, factor, lines, options); });
  return y;
}

Tensor products(const Tensor& x, const Lines& lines, ScanOptions options, SourceLocation where) {
  Tensor y = scanned(ScanOp::prod, x, {}, lines, options);
  if (taping() && is_floating(x.dtype()))
    record_op("cumprod", where, {&x}, y, {&x},
              [=](Gradients& g) { gradients(ScanOp::prod, g, x, {}, lines, options); });
  return y;
}

// Integers count in i64.
Tensor countable(const Tensor& x) { return is_floating(x.dtype()) || x.dtype() == i64 ? x : detail::copied(x, i64); }

Lines along(const char* op, const Tensor& x, int axis, SourceLocation where) {
  check::defined(op, "x", x, where);
  return {.axis = check::axis(op, axis, x.rank(), where)};
}

Lines along(const char* op, const Ragged& x, SourceLocation where) {
  check::defined(op, "x", x.values(), where);
  return {.offsets = x.offsets()};
}

Lines along(const char* op, const Ragged& x, int axis, SourceLocation where) {
  Lines lines = along(op, x.values(), axis, where);
  if (lines.axis == 0) lines.offsets = x.offsets();
  return lines;
}

void check_factor(const Tensor& x, const Tensor& factor, SourceLocation where) {
  check::floating("linear_scan", "x", x, where);
  check::like("linear_scan", "factor", factor, "x", x, where);
  check::shape("linear_scan", "factor", factor, x.shape(), where);
}

}  // namespace

namespace detail {

namespace {

Tensor gradient_of_prod(const Tensor& x, const Tensor& dy, const Lines& lines) {
  Tensor dx = empty(x.shape(), x.options());
  make_gradients(ScanOp::prod, x, {}, lines, {}, {}, dy, dx, {});
  return dx;
}

}  // namespace

Tensor prod_gradient(const Tensor& x, const Tensor& dy, int axis) { return gradient_of_prod(x, dy, {.axis = axis}); }
Tensor prod_gradient(const Ragged& x, const Tensor& dy) {
  return gradient_of_prod(x.values(), dy, {.offsets = x.offsets()});
}

}  // namespace detail

Tensor cumsum(const Tensor& x, int axis, ScanOptions options, SourceLocation where) {
  check::defined("cumsum", "x", x, where);
  if (x.rank() == 0) return reshape(cumsum(reshape(x, {1}), axis, options, where), {});
  const Lines lines = along("cumsum", x, axis, where);
  return sums(countable(x), lines, options, where);
}
Tensor cumprod(const Tensor& x, int axis, ScanOptions options, SourceLocation where) {
  check::defined("cumprod", "x", x, where);
  if (x.rank() == 0) return reshape(cumprod(reshape(x, {1}), axis, options, where), {});
  const Lines lines = along("cumprod", x, axis, where);
  return products(countable(x), lines, options, where);
}
Tensor linear_scan(const Tensor& x, const Tensor& factor, int axis, ScanOptions options, SourceLocation where) {
  check_factor(x, factor, where);
  if (x.rank() == 0) return reshape(linear_scan(reshape(x, {1}), reshape(factor, {1}), axis, options, where), {});
  const Lines lines = along("linear_scan", x, axis, where);
  return recurrence(x, factor, lines, options, where);
}

Ragged cumsum(const Ragged& x, ScanOptions options, SourceLocation where) {
  const Lines lines = along("cumsum", x, where);
  return x.with(sums(countable(x.values()), lines, options, where));
}
Ragged cumsum(const Ragged& x, int axis, ScanOptions options, SourceLocation where) {
  const Lines lines = along("cumsum", x, axis, where);
  return x.with(sums(countable(x.values()), lines, options, where));
}
Ragged cumprod(const Ragged& x, ScanOptions options, SourceLocation where) {
  const Lines lines = along("cumprod", x, where);
  return x.with(products(countable(x.values()), lines, options, where));
}
Ragged cumprod(const Ragged& x, int axis, ScanOptions options, SourceLocation where) {
  const Lines lines = along("cumprod", x, axis, where);
  return x.with(products(countable(x.values()), lines, options, where));
}
Ragged linear_scan(const Ragged& x, const Ragged& factor, ScanOptions options, SourceLocation where) {
  const Lines lines = along("linear_scan", x, where);
  check::same_lengths("linear_scan", x, factor, where);
  check_factor(x.values(), factor.values(), where);
  return x.with(recurrence(x.values(), factor.values(), lines, options, where));
}

}  // namespace reel
