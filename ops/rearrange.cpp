#include "reel/ops/rearrange.h"

#include <string>

#include "reel/ops/arithmetic.h"
#include "reel/ops/check.h"
#include "reel/ops/convert.h"
#include "reel/ops/create.h"
#include "reel/ops/elementwise.h"
#include "reel/ops/logical.h"
#include "reel/ops/views.h"

namespace reel {

namespace {

using detail::Gradients;
using detail::record_op;
using detail::taping;

std::int64_t not_negative(const char* op, const char* name, std::int64_t number, SourceLocation where) {
  if (number < 0)
    throw ShapeError(std::string(op) + ": " + name + " must be at least 0, got " + std::to_string(number), where);
  return number;
}

// x as [elements before the axis, the axis, elements behind it].
struct Around {
  std::int64_t before = 1, length, behind = 1;
  Around(const Shape& shape, int axis) : length(shape[axis]) {
    for (int i = 0; i < axis; ++i) before *= shape[i];
    for (int i = axis + 1; i < shape.rank(); ++i) behind *= shape[i];
  }
};

// Rows of [length, rest], backwards; unrecorded.
Tensor reversed(const Tensor& x, int axis) {
  return untaped([&] {
    const Tensor in_front = contiguous(transpose(x, 0, axis));
    const std::int64_t n = in_front.shape()[0];
    const std::int64_t width = n == 0 ? 0 : in_front.size() / n;
    const Tensor index = n - 1 - arange(n, {.dtype = i64, .device = x.device()});
    Tensor y = empty_like(in_front);
    backend(x.device())
        .take_rows(detail::reshaped(in_front, {n, width}).array(), index.array(),
                   detail::reshaped(y, {n, width}).array());
    return transpose(y, 0, axis);
  });
}

Tensor flipped(const Tensor& x, std::uint32_t axes, SourceLocation where) {
  Tensor y = x;
  for (int i = 0; i < x.rank(); ++i)
    if ((axes >> i & 1) != 0) y = reversed(y, i);
  // A result of its own, in row-major order.
  y = detail::copied(y, y.dtype());
  if (taping() && is_floating(x.dtype()))
    record_op("flip", where, {&x}, y, {}, [axes](Gradients& g) { g.add(0, flipped(g.dy(), axes, SourceLocation{})); });
  return y;
}

Tensor triangle(const char* op, const Tensor& x, std::int64_t diagonal, bool lower, SourceLocation location) {
  check::defined(op, "x", x, location);
  if (x.rank() < 2)
    throw ShapeError(std::string(op) + ": x must have shape [..., rows, cols], got " + x.shape().str(), location);
  const TensorOptions options{.dtype = i64, .device = x.device()};
  const Tensor row = unsqueeze(arange(x.size(-2), options), 1), col = arange(x.size(-1), options);
  const Tensor kept = lower ? col - row <= diagonal : col - row >= diagonal;
  if (x.dtype() == bool8) return logical_and(kept, x);  // beside a number they would become integers
  return where(kept, x, 0);
}

}  // namespace

Tensors split(const Tensor& x, const std::vector<std::int64_t>& sizes, int axis, SourceLocation where) {
  check::defined("split", "x", x, where);
  axis = check::axis("split", axis, x.rank(), where);
  std::int64_t total = 0;
  for (const std::int64_t size : sizes)
    total = check::plus("split", total, not_negative("split", "sizes", size, where), where);
  if (total != x.shape()[axis])
    throw ShapeError("split: sizes must sum up to the " + std::to_string(x.shape()[axis]) + " indices of axis " +
                         std::to_string(axis) + ", got a sum of " + std::to_string(total),
                     where);
  Tensors parts;
  std::int64_t begin = 0;
  for (const std::int64_t size : sizes) {
    parts.push_back(narrow(x, axis, begin, size));
    begin += size;
  }
  return parts;
}

Tensor flip(const Tensor& x, const Axes& axes, SourceLocation where) {
  check::defined("flip", "x", x, where);
  return flipped(x, axes.mask("flip", x.rank(), where), where);
}

Tensor roll(const Tensor& x, std::int64_t shift, int axis, SourceLocation where) {
  check::defined("roll", "x", x, where);
  axis = check::axis("roll", axis, x.rank(), where);
  const std::int64_t n = x.shape()[axis];
  if (n == 0) return clone(x);
  const std::int64_t last = ((shift % n) + n) % n;
  return concatenate({narrow(x, axis, n - last, last), narrow(x, axis, 0, n - last)}, axis);
}

Tensor tile(const Tensor& x, const Shape& repeats, SourceLocation where) {
  check::defined("tile", "x", x, where);
  Tensor y = x;
  while (y.rank() < repeats.rank()) y = unsqueeze(y, 0);
  const int lead = y.rank() - repeats.rank();
  Shape whole = y.shape();
  for (int i = lead; i < y.rank(); ++i)
    whole[i] = check::times("tile", whole[i], not_negative("tile", "repeats", repeats[i - lead], where), where);
  check::elements("tile", whole, where);
  for (int i = lead; i < y.rank(); ++i) {
    const std::int64_t times = repeats[i - lead];
    if (times == 1) continue;
    const Around at(y.shape(), i);
    Shape shape = y.shape();
    shape[i] = whole[i];
    y = reshape(y, {at.before, 1, at.length * at.behind});
    y = reshape(expand(y, {at.before, times, at.length * at.behind}), shape);
  }
  return y.is(x) ? clone(x) : y;
}

Tensor repeat_interleave(const Tensor& x, std::int64_t repeats, int axis, SourceLocation where) {
  check::defined("repeat_interleave", "x", x, where);
  axis = check::axis("repeat_interleave", axis, x.rank(), where);
  not_negative("repeat_interleave", "repeats", repeats, where);
  const Around at(x.shape(), axis);
  Shape shape = x.shape();
  shape[axis] = check::times("repeat_interleave", shape[axis], repeats, where);
  check::elements("repeat_interleave", shape, where);
  const Tensor apart = reshape(x, {at.before * at.length, 1, at.behind});
  return clone(reshape(expand(apart, {at.before * at.length, repeats, at.behind}), shape));
}

Tensor tril(const Tensor& x, std::int64_t diagonal, SourceLocation where) {
  return triangle("tril", x, diagonal, true, where);
}
Tensor triu(const Tensor& x, std::int64_t diagonal, SourceLocation where) {
  return triangle("triu", x, diagonal, false, where);
}

Tensor one_hot(const Tensor& index, std::int64_t classes, DType dtype, SourceLocation where) {
  check::index("one_hot", "index", index, where);
  if (classes < 1) throw ShapeError("one_hot: classes must be above 0, got " + std::to_string(classes), where);
  if (index.rank() == kMaxRank) throw ShapeError("one_hot: index must have fewer than 8 axes", where);
  backend(index.device()).check_indices(detail::packed(index).array(), classes, nullptr, "one_hot", where);
  return untaped([&] {
    const Tensor numbers = arange(classes, {.dtype = index.dtype(), .device = index.device()});
    return cast(unsqueeze(index, -1) == numbers, dtype);
  });
}

Ragged one_hot(const Ragged& index, std::int64_t classes, DType dtype, SourceLocation where) {
  return index.with(one_hot(index.values(), classes, dtype, where));
}

}  // namespace reel
