#include "reel/ops/padding.h"

#include <algorithm>
#include <string>

#include "reel/core/fits.h"
#include "reel/core/given_numbers.h"
#include "reel/ops/arithmetic.h"
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

// Which of n > 0 elements lies at index i, before the first or behind the last.
std::int64_t source(std::int64_t i, std::int64_t n, PaddingMode mode) {
  if (mode == PaddingMode::replicate || n == 1) return std::clamp<std::int64_t>(i, 0, n - 1);
  // The image and its mirror image, again and again.
  const std::int64_t edge = mode == PaddingMode::symmetric, period = 2 * (n - 1 + edge);
  i = ((i % period) + period) % period;
  return i < n ? i : period - edge - i;
}

// Writes where each element of a padded axis comes from: one of n from `first` on, or `outside`. Returns the end.
std::int64_t* write_sources(std::int64_t* to, std::int64_t n, const PadAxis& width, PaddingMode mode,
                            std::int64_t first, std::int64_t outside) {
  for (std::int64_t i = -width.before; i < n + width.after; ++i) {
    const bool inside = (i >= 0 && i < n) || (n > 0 && mode != PaddingMode::zero);
    *to++ = inside ? first + source(i, n, mode) : outside;
  }
  return to;
}

// So many mirror images take longer, a copy each, than an index for each element.
constexpr std::int64_t kManyImages = 8;

// Elements begin, begin + step, ... along an axis; not recorded, and no Trace tells of it.
Tensor part(const Tensor& x, int axis, std::int64_t begin, std::int64_t count, std::int64_t step = 1) {
  Shape shape = x.shape();
  shape[axis] = count;
  std::int64_t strides[kMaxRank];
  for (int k = 0; k < x.rank(); ++k) strides[k] = x.stride(k);
  strides[axis] *= step;
  return detail::view(x, begin * x.stride(axis), shape, strides);
}

// How many elements each axis gets before and behind its own, and which.
struct Borders {
  std::int64_t before[kMaxRank] = {}, after[kMaxRank] = {};
  PaddingMode mode;

  Shape around(Shape shape) const {
    for (int i = 0; i < shape.rank(); ++i) shape[i] += before[i] + after[i];
    return shape;
  }
  // What of y is x [x_shape...] and, along axes up to `last`, its borders.
  Tensor inside(Tensor y, const Shape& x_shape, int last = -1) const {
    for (int i = last + 1; i < x_shape.rank(); ++i)
      if (y.shape()[i] != x_shape[i])
        y = is_recording() ? narrow(y, i, before[i], x_shape[i]) : part(y, i, before[i], x_shape[i]);
    return y;
  }

  // For each border of axis `axis` of y, whose own part has n elements, or part of a border whose sources follow one another:
  // f(the sources, the border, step), views of one shape; step is from one source to the next, 0 for one again and again.
  template <class F>
  void for_each(const Tensor& y, int axis, std::int64_t n, F&& f) const {
    if (y.size() == 0) return;
    const std::int64_t ends[2][2] = {{-before[axis], 0}, {n, n + after[axis]}};
    for (const auto& [begin, end] : ends) {
      for (std::int64_t i = begin, count; i < end; i += count) {
        const std::int64_t from = source(i, n, mode), step = i + 1 < end ? source(i + 1, n, mode) - from : 1;
        for (count = 1; i + count < end && source(i + count, n, mode) == from + count * step;) ++count;
        f(part(y, axis, before[axis] + from, count, step), part(y, axis, before[axis] + i, count), step);
      }
    }
  }
};

Tensor folded(const Tensor& dy, const Shape& x_shape, const Borders& borders);

Tensor padded(const Tensor& x, const Borders& borders, SourceLocation where) {
  Tensor y = empty(borders.around(x.shape()), x.options());
  untaped([&] {
    Ops& ops = backend(x.device());
    ops.copy(x.array(), borders.inside(y, x.shape()).array());
    for (int i = 0; i < x.rank(); ++i) {
      borders.for_each(borders.inside(y, x.shape(), i), i, x.shape()[i],
                       [&](const Tensor& from, const Tensor& to, std::int64_t) { ops.copy(from.array(), to.array()); });
    }
  });
  if (taping() && is_floating(x.dtype())) {
    record_op("pad", where, {&x}, y, {},
              [borders, shape = x.shape()](Gradients& g) { g.add(0, folded(g.dy(), shape, borders)); });
  }
  return y;
}

// The gradient: each border is added to the elements that it came from.
Tensor folded(const Tensor& dy, const Shape& x_shape, const Borders& borders) {
  Tensor dx = untaped([&] {
    const Tensor sums = clone(dy);
    for (int i = x_shape.rank() - 1; i >= 0; --i) {
      borders.for_each(borders.inside(sums, x_shape, i), i, x_shape[i],
                       [&](const Tensor& from, const Tensor& border, std::int64_t step) {
                         const Tensor to = step == 0 ? part(from, i, 0, 1) : from;
                         const Tensor sum = to + (step == 0 ? reel::sum(border, i, Keep::yes) : border);
                         backend(dy.device()).copy(sum.array(), to.array());
                       });
    }
    return clone(borders.inside(sums, x_shape));
  });
  if (taping()) {
    record_op("pad", SourceLocation{}, {&dy}, dx, {},
              [borders](Gradients& g) { g.add(0, padded(g.dy(), borders, SourceLocation{})); });
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
  Borders borders{.mode = PaddingMode::zero};
  for_each_axis(x, widths, where, [&](int axis, std::int64_t before, std::int64_t after) {
    borders.before[axis] = before;
    borders.after[axis] = after;
  });
  detail::check_fits("pad", value, x.dtype(), where);
  Tensor y = full(borders.around(x.shape()), value, x.options());
  untaped([&] { backend(x.device()).copy(x.array(), borders.inside(y, x.shape()).array()); });
  if (taping() && is_floating(x.dtype())) {
    const detail::GivenNumbers given(&value, 1);
    record_op("pad", where, {&x}, y, {},
              [borders, shape = x.shape()](Gradients& g) { g.add(0, borders.inside(g.dy(), shape)); });
  }
  return y;
}

Tensor pad(const Tensor& x, Widths widths, PaddingMode mode, SourceLocation where) {
  if (mode == PaddingMode::zero) return pad(x, widths, 0, where);
  Borders borders{.mode = mode};
  Tensor y = x;
  for_each_axis(x, widths, where, [&](int axis, std::int64_t before, std::int64_t after) {
    const std::int64_t n = x.shape()[axis];
    if (n == 0 && before + after > 0)
      throw ShapeError(
          "pad: axis " + std::to_string(axis) + " must have an element to repeat, got shape " + x.shape().str(), where);
    if (mode != PaddingMode::replicate && x.size() > 0 && n > 1 && (before + after) / n >= kManyImages) {
      const Tensor index = empty({before + n + after}, {.dtype = i64});
      write_sources(index.array().as<std::int64_t>(), n, {axis, before, after}, mode, 0, 0);
      y = index_select(y, axis, detail::transferred(index, x.device()), where);
    } else {
      borders.before[axis] = before;
      borders.after[axis] = after;
    }
  });
  return y.is(x) || borders.around(y.shape()) != y.shape() ? padded(y, borders, where) : y;
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
