#include "reel/ops/sequence.h"

#include <cmath>
#include <string>

#include "reel/core/number_text.h"
#include "reel/ops/arithmetic.h"
#include "reel/ops/check.h"
#include "reel/ops/convert.h"
#include "reel/ops/create.h"
#include "reel/ops/embedding.h"
#include "reel/ops/ragged.h"
#include "reel/ops/rows.h"
#include "reel/ops/unary.h"
#include "reel/ops/views.h"

namespace reel {

namespace {

using detail::Gradients;
using detail::record_op;
using detail::taping;

void check_values(const char* op, const Ragged& x, SourceLocation where) { check::defined(op, "x", x.values(), where); }
void check_matrix(const char* op, const Ragged& x, SourceLocation where) {
  check::rank(op, "x's values", x.values(), 2, "[total, width]", where);
}

// --- windows: each is the other's gradient ------------------------------------------------------------------------------

Tensor columns_to_rows(const Tensor& y, const Offsets& offsets, std::int64_t window);

Tensor rows_to_columns(const Tensor& x, const Offsets& offsets, std::int64_t window, SourceLocation where) {
  const std::int64_t total = x.shape()[0], width = x.shape()[1], places = 2 * window + 1;
  Tensor y = empty({total, places * width}, x.options());
  backend(x.device())
      .segment_window(detail::packed(x).array(), offsets.segments(x.device()), window,
                      detail::reshaped(y, {total, places, width}).array());
  if (taping() && is_floating(x.dtype()))
    record_op("seq2col", where, {&x}, y, {},
              [offsets, window](Gradients& g) { g.add(0, columns_to_rows(g.dy(), offsets, window)); });
  return y;
}

Tensor columns_to_rows(const Tensor& y, const Offsets& offsets, std::int64_t window) {
  const std::int64_t total = y.shape()[0], places = 2 * window + 1, width = y.shape()[1] / places;
  Tensor x = empty({total, width}, y.options());
  backend(y.device())
      .segment_window_backward(detail::reshaped(detail::packed(y), {total, places, width}).array(),
                               offsets.segments(y.device()), window, x.array());
  if (taping())
    record_op("seq2col_backward", SourceLocation{}, {&y}, x, {}, [offsets, window](Gradients& g) {
      g.add(0, rows_to_columns(g.dy(), offsets, window, SourceLocation{}));
    });
  return x;
}

// --- single rows --------------------------------------------------------------------------------------------------------

// One row of each sequence that has rows. Where others have none these are taken once more, with a row of zeros behind them:
// moved and not added up, so that the bits of a sequence do not depend on the others' lengths.
Tensor one_of_each(const char* op, const Ragged& x, bool last, SourceLocation where) {
  check_values(op, x, where);
  const auto offsets = x.offsets().span();
  std::int64_t found = 0;
  for (std::int64_t i = 0; i < x.count(); ++i) found += x.length(i) > 0 ? 1 : 0;
  const Tensor rows = detail::numbers_on(x.device(), found, [&](std::int64_t* numbers) {
    for (std::size_t i = 0; i + 1 < offsets.size(); ++i)
      if (offsets[i] < offsets[i + 1]) *numbers++ = last ? offsets[i + 1] - 1 : offsets[i];
  });
  const Tensor each = detail::take_rows(op, x.values(), rows, where);
  if (found == x.count()) return each;
  const Tensor places = detail::numbers_on(x.device(), x.count(), [&](std::int64_t* numbers) {
    std::int64_t next = 0;
    for (std::int64_t i = 0; i < x.count(); ++i) *numbers++ = x.length(i) > 0 ? next++ : found;
  });
  Shape row = each.shape();
  row[0] = 1;
  return detail::take_rows(op, concatenate({each, zeros(row, each.options())}, 0), places, SourceLocation{});
}

}  // namespace

namespace detail {

Tensor permuted_rows(const Tensor& x, const Tensor& order, const Tensor& inverse) {
  const std::int64_t rows = x.shape()[0];
  const Shape matrix{rows, rows == 0 ? 0 : x.size() / rows};
  Tensor y = empty(x.shape(), x.options());
  backend(x.device()).take_rows(reshaped(packed(x), matrix).array(), order.array(), reshaped(y, matrix).array());
  if (taping() && is_floating(x.dtype()))
    record_op("permuted_rows", SourceLocation{}, {&x}, y, {&order, &inverse},
              [order, inverse](Gradients& g) { g.add(0, permuted_rows(g.dy(), inverse, order)); });
  return y;
}

}  // namespace detail

Ragged seq2col(const Ragged& x, std::int64_t window, SourceLocation where) {
  check_matrix("seq2col", x, where);
  if (window < 0) throw ShapeError("seq2col: window must be at least 0, got " + std::to_string(window), where);
  const std::int64_t places = check::plus("seq2col", check::times("seq2col", 2, window, where), 1, where);
  check::elements("seq2col", {x.total(), places, x.values().shape()[1]}, where);
  check::times("seq2col", places, x.values().shape()[1], where);
  return x.with(rows_to_columns(x.values(), x.offsets(), window, where));
}

Tensor reduce_first(const Ragged& x, SourceLocation where) { return one_of_each("reduce_first", x, false, where); }
Tensor reduce_last(const Ragged& x, SourceLocation where) { return one_of_each("reduce_last", x, true, where); }

Ragged reverse(const Ragged& x, SourceLocation where) {
  check_values("reverse", x, where);
  // Its own inverse.
  const Tensor order = detail::numbers_on(x.device(), x.total(), [&](std::int64_t* numbers) {
    const auto offsets = x.offsets().span();
    for (std::size_t i = 0; i + 1 < offsets.size(); ++i)
      for (std::int64_t row = offsets[i + 1]; row-- > offsets[i];) *numbers++ = row;
  });
  return x.with(detail::permuted_rows(x.values(), order, order));
}

Ragged positions(const Ragged& x, SourceLocation where) {
  check_values("positions", x, where);
  return x.with(detail::numbers_on(x.device(), x.total(), [&](std::int64_t* numbers) {
    for (std::int64_t i = 0; i < x.count(); ++i)
      for (std::int64_t place = 0; place < x.length(i); ++place) *numbers++ = place;
  }));
}

Tensor position_encoding(std::int64_t length, std::int64_t width, TensorOptions options, double base,
                         SourceLocation where) {
  detail::now_running("position_encoding", where);
  if (length < 0 || width < 0)
    throw ShapeError("position_encoding: sizes of at least 0 are required, got length " + std::to_string(length) +
                         " and width " + std::to_string(width),
                     where);
  if (!is_floating(options.dtype))
    throw DTypeError(std::string("position_encoding: f32 or f64 is required, got ") + name_of(options.dtype), where);
  if (!(base > 0)) throw Error("position_encoding: base must be above 0, got " + detail::number_text(base), where);
  const std::int64_t pairs = (width + 1) / 2;
  const Tensor wavelengths = empty({pairs}, {.dtype = f64});
  for (std::int64_t i = 0; i < pairs; ++i)
    wavelengths.array().as<double>()[i] = std::pow(base, static_cast<double>(2 * i) / static_cast<double>(width));
  return untaped([&] {
    const Tensor place = reshape(arange(length, {.dtype = f64, .device = options.device}), {length, 1});
    const Tensor angle = place / detail::transferred(wavelengths, options.device);
    const Tensor both = reshape(stack({sin(angle), cos(angle)}, -1), {length, 2 * pairs});
    return cast(contiguous(narrow(both, 1, 0, width)), options.dtype);
  });
}

Ragged position_encoding(const Ragged& x, double base, SourceLocation where) {
  check_matrix("position_encoding", x, where);
  const Tensor table =
      position_encoding(x.offsets().max_length(), x.values().shape()[1], x.values().options(), base, where);
  return embedding(table, positions(x));
}

}  // namespace reel
