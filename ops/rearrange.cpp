#include "reel/ops/rearrange.h"

#include <algorithm>
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

Tensor flipped(const Tensor& x, std::uint32_t axes, SourceLocation where) {
  std::int64_t strides[kMaxRank], offset = 0;
  for (int i = 0; i < x.rank(); ++i) {
    strides[i] = x.stride(i);
    if ((axes >> i & 1) == 0 || x.size() == 0) continue;
    offset += (x.shape()[i] - 1) * strides[i];
    strides[i] = -strides[i];
  }
  // A result of its own, in row-major order.
  Tensor y = detail::copied(detail::view(x, offset, x.shape(), strides), x.dtype());
  if (taping() && is_floating(x.dtype()))
    record_op("flip", where, {&x}, y, {}, [axes](Gradients& g) { g.add(0, flipped(g.dy(), axes, SourceLocation{})); });
  return y;
}

Tensor triangle(const char* op, const Tensor& x, std::int64_t diagonal, bool lower, SourceLocation location) {
  check::defined(op, "x", x, location);
  if (x.rank() < 2)
    throw ShapeError(std::string(op) + ": x must have shape [..., rows, cols], got " + x.shape().str(), location);
  const auto rows = x.size(-2), cols = x.size(-1);
  if (is_floating(x.dtype())) {
    // How far inside each element is, at least 1 where it is kept; f32 counts as far as these sizes.
    const bool exact = x.dtype() != f64 && rows + cols < 1 << 23;
    const Tensor inside = untaped([&] {
      const TensorOptions options{.dtype = exact ? f32 : f64, .device = x.device()};
      const Tensor row = unsqueeze(arange(rows, options), 1), col = arange(cols, options);
      const auto at = static_cast<double>(std::clamp(diagonal, -rows - 1, cols + 1));
      const Tensor mask = lower ? row - (col - (at + 1)) : (col - (at - 1)) - row;
      return detail::broadcast_view(cast(mask, x.dtype()), x.shape());
    });
    Tensor y = untaped([&] { return detail::relu_mask(x, inside); });
    if (taping())
      record_op(op, location, {&x}, y, {}, [inside](Gradients& g) { g.add(0, detail::relu_mask(g.dy(), inside)); });
    return y;
  }
  const TensorOptions options{.dtype = i64, .device = x.device()};
  const Tensor row = unsqueeze(arange(rows, options), 1), col = arange(cols, options);
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
  // Each axis that is repeated has another one in front of it; for three of them at a time there are axes enough.
  bool copied = false;
  Shape shape = y.shape();
  for (int i = lead; i < shape.rank();) {
    std::int64_t before = 1;
    for (int k = 0; k < i; ++k) before *= shape[k];
    Shape once{before}, repeated{before};
    for (int room = 3; i < shape.rank() && (room > 0 || repeats[i - lead] == 1); ++i) {
      if (repeats[i - lead] != 1) {
        --room;
        once.push_back(1);
        once.push_back(1);
        repeated.push_back(repeats[i - lead]);
        repeated.push_back(1);
      }
      once[once.rank() - 1] *= shape[i];
      repeated[repeated.rank() - 1] *= shape[i];
      shape[i] = whole[i];
    }
    for (int k = i; k < shape.rank(); ++k) {
      once[once.rank() - 1] *= shape[k];
      repeated[repeated.rank() - 1] *= shape[k];
    }
    if (once == repeated) continue;
    y = reshape(expand(reshape(y, once), repeated), shape);
    copied = true;
  }
  return copied ? y : clone(y);
}

Tensor repeat_interleave(const Tensor& x, std::int64_t repeats, int axis, SourceLocation where) {
  check::defined("repeat_interleave", "x", x, where);
  axis = check::axis("repeat_interleave", axis, x.rank(), where);
  not_negative("repeat_interleave", "repeats", repeats, where);
  const Around at(x.shape(), axis);
  Shape shape = x.shape();
  shape[axis] = check::times("repeat_interleave", shape[axis], repeats, where);
  check::elements("repeat_interleave", shape, where);
  if (repeats == 1) return clone(x);
  const Tensor apart = reshape(x, {at.before * at.length, 1, at.behind});
  return reshape(expand(apart, {at.before * at.length, repeats, at.behind}), shape);
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
    const Tensor numbers = arange(classes, index.options());
    return cast(unsqueeze(index, -1) == numbers, dtype);
  });
}

Ragged one_hot(const Ragged& index, std::int64_t classes, DType dtype, SourceLocation where) {
  return index.with(one_hot(index.values(), classes, dtype, where));
}

}  // namespace reel
