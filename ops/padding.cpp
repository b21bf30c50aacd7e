#include "reel/ops/padding.h"

#include <algorithm>
#include <string>

#include "reel/core/fits.h"
#include "reel/core/given_numbers.h"
#include "reel/core/scalar/padding.h"
#include "reel/ops/check.h"
#include "reel/ops/convert.h"
#include "reel/ops/create.h"
#include "reel/ops/index.h"
#include "reel/ops/reduce.h"
#include "reel/ops/rows.h"
#include "reel/ops/views.h"

namespace reel {

namespace {

using detail::Gradients;
using detail::record_op;
using detail::taping;
using Widths = std::initializer_list<PadAxis>;

// Calls f(axis, before, after) for each width, checked.
template <class F>
void for_each_axis(const Tensor& x, Widths widths, SourceLocation where, F&& f) {
  check::defined("pad", "x", x, where);
  std::uint32_t seen = 0;
  for (const PadAxis& width : widths) {
    const int axis = check::axis("pad", width.axis, x.rank(), where);
    if ((seen >> axis & 1) != 0)
      throw ShapeError("pad: axes must differ, got axis " + std::to_string(axis) + " twice", where);
    seen |= 1u << axis;
    if (width.before < 0 || width.after < 0)
      throw ShapeError(std::string("pad: ") + (width.before < 0 ? "before" : "after") + " must be at least 0, got " +
                           std::to_string(std::min(width.before, width.after)),
                       where);
    check::plus("pad", check::plus("pad", width.before, width.after, where), x.shape()[axis], where);
    f(axis, width.before, width.after);
  }
}

// Writes where each element of a padded axis comes from: one of n from `first` on, or `outside`. Returns the end.
std::int64_t* write_sources(std::int64_t* to, std::int64_t n, const PadAxis& width, PaddingMode mode,
                            std::int64_t first, std::int64_t outside) {
  for (std::int64_t i = -width.before; i < n + width.after; ++i) {
    const bool inside = (i >= 0 && i < n) || (n > 0 && mode != PaddingMode::zero);
    *to++ = inside ? first + scalar::padding_source(i, n, mode) : outside;
  }
  return to;
}

// So many mirror images are taken by an index for each element (but of bf16 and f16, whose index_select has no gradient).
constexpr std::int64_t kManyImages = 8;

// [x_shape + borders]
Shape around(Shape x_shape, const Padding& padding) {
  for (int i = 0; i < x_shape.rank(); ++i) x_shape[i] += padding.before[i] + padding.after[i];
  return x_shape;
}

// x as the backend reads it.
Tensor with_dense_rows(const Tensor& x) {
  const int last = x.rank() - 1;
  return last < 0 || x.size(last) <= 1 || x.stride(last) == 1 ? x : contiguous(x);
}

Tensor folded(const Tensor& dy, const Shape& x_shape, const Padding& padding);

Tensor padded(const Tensor& x, const Padding& padding, SourceLocation where) {
  const Tensor y = empty(around(x.shape(), padding), x.options());
  untaped([&] { backend(x.device()).pad(with_dense_rows(x).array(), padding, y.array()); });
  if (taping() && is_floating(x.dtype())) {
    const detail::GivenNumbers given(&padding.value, padding.mode == PaddingMode::zero ? 1 : 0);
    record_op("pad", where, {&x}, y, {},
              [padding, shape = x.shape()](Gradients& g) { g.add(0, folded(g.dy(), shape, padding)); });
  }
  return y;
}

// Copies of an edge are summed first where there are more: a GPU's thread adds up all places of an element.
constexpr std::int64_t kManyCopies = 64;

// dy with one place for each edge that is repeated more often; `padding` is without these.
Tensor with_summed_edges(Tensor dy, const Shape& x_shape, Padding& padding) {
  for (int i = 0; i < x_shape.rank(); ++i) {
    const std::int64_t n = x_shape[i], before = padding.before[i], after = padding.after[i];
    if (before + after <= kManyCopies || !scalar::repeats_edge(n, padding.mode)) continue;
    const auto part = [&](std::int64_t begin, std::int64_t count) { return narrow(dy, i, begin, count); };
    dy = n == 1 ? sum(dy, i, Keep::yes)
                : concatenate({sum(part(0, before + 1), i, Keep::yes), part(before + 1, n - 2),
                               sum(part(before + n - 1, after + 1), i, Keep::yes)},
                              i);
    padding.before[i] = padding.after[i] = 0;
  }
  return dy;
}

// The gradient: what stands in each element's places, added up. Among zeros a view of dy.
Tensor folded(const Tensor& dy, const Shape& x_shape, const Padding& padding) {
  if (padding.mode == PaddingMode::zero) {
    Tensor own = dy;
    for (int i = 0; i < x_shape.rank(); ++i)
      if (own.size(i) != x_shape[i]) own = narrow(own, i, padding.before[i], x_shape[i]);
    return own;
  }
  Tensor dx = untaped([&] {
    const DType dtype = is_half(dy.dtype()) ? f32 : dy.dtype();
    Padding rest = padding;
    const Tensor all = contiguous(with_summed_edges(cast(dy, dtype), x_shape, rest));
    const Tensor sums = empty(x_shape, {.dtype = dtype, .device = dy.device()});
    backend(dy.device()).pad_backward(all.array(), rest, sums.array());
    return cast(sums, dy.dtype());
  });
  if (taping()) {
    record_op("pad", SourceLocation{}, {&dy}, dx, {},
              [padding](Gradients& g) { g.add(0, padded(g.dy(), padding, SourceLocation{})); });
  }
  return dx;
}

// The rows of each sequence padded: rows taken by index, of which one more is `value`.
Ragged pad_rows(const Ragged& x, const PadAxis& width, PaddingMode mode, Scalar value, SourceLocation where) {
  Shape row = x.values().shape();
  row[0] = 1;
  detail::check_fits("pad", value, x.dtype(), where);
  const Tensor outside = full(row, value, x.options());
  detail::HostList<std::int64_t> lengths(x.count());
  const std::int64_t more = width.before + width.after;
  check::plus("pad", check::times("pad", more, x.count(), where), x.total(), where);
  for (std::int64_t s = 0; s < x.count(); ++s) lengths.push_back(x.length(s) + more);
  const Offsets offsets(lengths, where);
  const Tensor index = empty({offsets.total()}, {.dtype = i64});
  auto* to = index.array().as<std::int64_t>();
  for (std::int64_t s = 0; s < x.count(); ++s)
    to = write_sources(to, x.length(s), width, mode, x.offsets().span()[static_cast<std::size_t>(s)], x.total());
  const Tensor all = concatenate({x.values(), outside}, 0);
  return Ragged(detail::take_rows("pad", all, detail::transferred(index, x.device()), where), offsets, where);
}

// The rows by themselves, the other axes of all rows at once by `pad_values`.
template <class F>
Ragged pad_ragged(Ragged x, Widths widths, PaddingMode mode, Scalar value, SourceLocation where, F&& pad_values) {
  const Tensor values = x.values();
  for_each_axis(values, widths, where, [&](int axis, std::int64_t before, std::int64_t after) {
    x = axis == 0 ? pad_rows(x, {0, before, after}, mode, value, where)
                  : x.with(pad_values(x.values(), Widths{{axis, before, after}}));
  });
  return x;
}

}  // namespace

Tensor pad(const Tensor& x, Widths widths, Scalar value, SourceLocation where) {
  Padding padding{.value = value};
  for_each_axis(x, widths, where, [&](int axis, std::int64_t before, std::int64_t after) {
    padding.before[axis] = before;
    padding.after[axis] = after;
  });
  detail::check_fits("pad", value, x.dtype(), where);
  return padded(x, padding, where);
}

Tensor pad(const Tensor& x, Widths widths, PaddingMode mode, SourceLocation where) {
  Padding padding{.mode = mode};
  Tensor y = x;
  for_each_axis(x, widths, where, [&](int axis, std::int64_t before, std::int64_t after) {
    const std::int64_t n = x.shape()[axis];
    if (mode != PaddingMode::zero && n == 0 && before + after > 0)
      throw ShapeError(
          "pad: axis " + std::to_string(axis) + " must have an element to repeat, got shape " + x.shape().str(), where);
    const bool mirrors = mode != PaddingMode::zero && x.size() > 0 && !scalar::repeats_edge(n, mode);
    if (mirrors && (before + after) / n >= kManyImages && !is_half(x.dtype())) {
      const Tensor index = empty({before + n + after}, {.dtype = i64});
      write_sources(index.array().as<std::int64_t>(), n, {axis, before, after}, mode, 0, 0);
      y = index_select(y, axis, detail::transferred(index, x.device()), where);
    } else {
      padding.before[axis] = before;
      padding.after[axis] = after;
    }
  });
  return y.is(x) || around(y.shape(), padding) != y.shape() ? padded(y, padding, where) : y;
}

Ragged pad(const Ragged& x, Widths widths, Scalar value, SourceLocation where) {
  return pad_ragged(x, widths, PaddingMode::zero, value, where,
                    [&](const Tensor& values, Widths one) { return pad(values, one, value, where); });
}

Ragged pad(const Ragged& x, Widths widths, PaddingMode mode, SourceLocation where) {
  return pad_ragged(x, widths, mode, 0, where,
                    [&](const Tensor& values, Widths one) { return pad(values, one, mode, where); });
}

}  // namespace reel
