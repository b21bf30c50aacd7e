#include "reel/ops/scan.h"

#include <optional>
#include <string>

#include "reel/ops/arithmetic.h"
#include "reel/ops/convert.h"
#include "reel/ops/offsets.h"
#include "reel/ops/views.h"

// Three recorded scans, whose gradients are made of each other:
//   E(x, f), exclusive: y[i + 1] = x[i] + f[i] y[i].   dx = E'(dy, f), df = dx y, with E' in the other direction.
//   inclusive: y = x + f E(x, f).
//   P(x), exclusive product: dx = P(x) E'(dy, x). Inclusive: y = x P(x).

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

// Unrecorded. `factor` may be undefined.
Tensor scanned(ScanOp op, const Tensor& x, const Tensor& factor, const Lines& lines, ScanOptions options) {
  Tensor y = empty(x.shape(), x.options());
  Ops& ops = backend(x.device());
  const auto seen = [&](const Tensor& t) { return !t.defined() ? t : lines.offsets ? as_rows(t) : packed(t); };
  const Tensor from = seen(x), by = seen(factor), to = seen(y);
  const Array* f = by.defined() ? &by.array() : nullptr;
  if (lines.offsets) {
    ops.segment_scan(op, from.array(), f, lines.offsets->segments(x.device()), options.reverse, options.exclusive,
                     to.array());
  } else {
    ops.scan(op, from.array(), f, lines.axis, options.reverse, options.exclusive, to.array());
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

// Gradients are made in f64 and rounded once: where a scan leaves f32's range, what it is multiplied by may lead back.
Tensor wide(const Tensor& x) { return cast(x, f64); }

Tensor recurrence(const Tensor& x, const Tensor& factor, const Lines& lines, ScanOptions options,
                  SourceLocation where) {
  Tensor y = scanned(ScanOp::sum, x, factor, lines, options);
  if (!taping()) return y;
  record_op("linear_scan", where, {&x, &factor}, y, {&x, &factor}, [x, factor, lines, options](Gradients& g) {
    const ScanOptions exclusive = without_own(options);
    const Tensor f = wide(factor), dy = wide(g.dy());
    const Tensor dx = options.exclusive
                          ? recurrence(dy, f, lines, back(options), SourceLocation{})
                          : dy + recurrence(f * dy, f, lines, back(exclusive), SourceLocation{});
    if (g.needs(0)) g.add(0, cast(dx, x.dtype()));
    if (g.needs(1)) g.add(1, cast(dx * recurrence(wide(x), f, lines, exclusive, SourceLocation{}), x.dtype()));
  });
  return y;
}

Tensor products(const Tensor& x, const Lines& lines, ScanOptions options, SourceLocation where) {
  Tensor y = scanned(ScanOp::prod, x, {}, lines, options);
  if (!taping() || !is_floating(x.dtype())) return y;
  record_op("cumprod", where, {&x}, y, {&x}, [x, lines, options](Gradients& g) {
    const ScanOptions exclusive = without_own(options);
    const Tensor factors = wide(x), dy = wide(g.dy());
    const Tensor later = options.exclusive
                             ? recurrence(dy, factors, lines, back(options), SourceLocation{})
                             : dy + recurrence(factors * dy, factors, lines, back(exclusive), SourceLocation{});
    g.add(0, cast(products(factors, lines, exclusive, SourceLocation{}) * later, x.dtype()));
  });
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
