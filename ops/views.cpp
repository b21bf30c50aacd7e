#include "reel/ops/views.h"

#include <algorithm>
#include <string>

#include "reel/core/ragged.h"
#include "reel/core/scratch.h"
#include "reel/ops/arithmetic.h"
#include "reel/ops/check.h"

namespace reel {

namespace {

using detail::Gradients;
using detail::record_op;
using detail::Seen;
using detail::taping;

// Where a strided part lies in a tensor of shape `whole`; `order`: how the axes of its gradient lie in memory.
struct Part {
  Shape whole;
  detail::AxisOrder order;
  int axis = 0;
  std::int64_t begin = 0, step = 1, length = 0;
};

Tensor part_of(const Tensor& x, const Part& part) {
  Shape shape = x.shape();
  shape[part.axis] = part.length;
  std::int64_t strides[kMaxRank];
  std::copy_n(x.array().strides, x.rank(), strides);
  const std::int64_t offset = part.length > 0 ? part.begin * strides[part.axis] : 0;
  strides[part.axis] *= part.step;
  return detail::view(x, offset, shape, strides);
}

Tensor without_axis(const Tensor& x, int axis) {
  Shape shape;
  std::int64_t strides[kMaxRank];
  for (int i = 0; i < x.rank(); ++i) {
    if (i == axis) continue;
    strides[shape.rank()] = x.stride(i);
    shape.push_back(x.shape()[i]);
  }
  return detail::view(x, 0, shape, strides);
}

Tensor sliced(const char* op, const Tensor& x, const Part& part, SourceLocation where);

// Zeros of the whole shape with dy in its part: the adjoint of slicing, recorded.
Tensor spread(const Tensor& dy, const Part& part) {
  Tensor dx = empty(part.whole, dy.options());
  Ops& ops = backend(dy.device());
  ops.fill(dx.array(), 0);
  ops.copy(dy.array(), part_of(dx, part).array());
  if (taping())
    record_op("slice_backward", SourceLocation{}, {&dy}, dx, {},
              [part](Gradients& g) { g.add(0, sliced("slice", g.dy(), part, SourceLocation{})); });
  return dx;
}

// Adds dy to a part, seen as dy's shape: many slices of one tensor write into one gradient, each its part. It lies in memory as
// the tensor does, so that what was permuted and then cut up comes together without a gap.
template <class View>
void add_to_part(Gradients& g, const Part& part, View view) {
  const auto [dx, fresh] = g.destination(0, part.order);
  const Tensor place = view(part_of(dx, part));
  if (!fresh) return detail::accumulate(g.dy(), place);
  Ops& ops = backend(dx.device());
  const auto clear = [&, &dx = dx](std::int64_t begin, std::int64_t end) {  // clang 14 captures no structured binding
    if (end > begin) ops.fill(part_of(dx, {part.whole, part.order, part.axis, begin, 1, end - begin}).array(), 0);
  };
  const std::int64_t size = part.whole[part.axis];
  if (part.step == 1) {  // only what lies beside the part
    clear(0, part.begin);
    clear(part.begin + part.length, size);
  } else {
    clear(0, size);
  }
  ops.copy(g.dy().array(), place.array());
}

// What a part shows of the gradient of what it is cut out of.
Seen seen_part(const Tensor& whole, const Part& part) {
  if (part.step != 1) return {};
  return {part_of(whole, part), part.axis, part.begin, part.begin + part.length};
}

struct SliceGradient {
  Part part;
  void operator()(Gradients& g) const {
    if (g.recording()) g.add(0, spread(g.dy(), part));
    else add_to_part(g, part, [](const Tensor& place) { return place; });
  }
  Seen see(const Tensor& whole, const Shape&) const { return seen_part(whole, part); }
};

Tensor sliced(const char* op, const Tensor& x, const Part& part, SourceLocation where) {
  Tensor y = part_of(x, part);
  if (taping()) record_op(op, where, {&x}, y, {}, SliceGradient{part});
  return y;
}

// Where the parts of a concatenation lie.
class Ends {
 public:
  Ends(const Tensors& parts, int axis) : offsets_(lengths(parts, axis)) {}
  int count() const { return static_cast<int>(offsets_.count()); }
  std::int64_t begin(int i) const { return offsets_.span()[static_cast<std::size_t>(i)]; }

 private:
  static Offsets lengths(const Tensors& parts, int axis) {
    Scratch memory(parts.size() * sizeof(std::int64_t));
    auto* list = memory.as<std::int64_t>();
    for (std::size_t i = 0; i < parts.size(); ++i) list[i] = parts[i].shape()[axis];
    return Offsets(std::span<const std::int64_t>(list, parts.size()));
  }
  Offsets offsets_;
};

std::string axis_text(int axis) { return " of axis " + std::to_string(axis); }

}  // namespace

namespace detail {

Shape reshaped_to(const Shape& from, const Shape& shape, SourceLocation where, bool by_row) {
  Shape full = shape;
  int unknown = -1;
  if (by_row) full[0] = 1;  // of one row, so that it does not depend on how many there are
  for (int i = by_row; i < shape.rank(); ++i) {
    if (shape[i] == -1 && unknown < 0) full[unknown = i] = 1;
    else if (shape[i] < 0)
      throw ShapeError("reshape: sizes must be at least 0, but for one -1, got " + shape.str(), where);
  }
  const std::int64_t known = check::elements("reshape", full, where, &shape);
  if (unknown >= 0 && known == 0)
    throw ShapeError("reshape: -1 beside a size of 0 has no meaning, got " + shape.str(), where);
  const std::int64_t elements = by_row ? Shape::of(from.begin() + 1, from.rank() - 1).size() : from.size();
  if (unknown >= 0) full[unknown] = elements / known;
  if (known * (unknown >= 0 ? full[unknown] : 1) != elements)
    throw ShapeError(std::string("reshape: the new shape must have as many elements ") +
                         (by_row ? "in a row as " : "as ") + from.str() + ", got " + shape.str(),
                     where);
  if (by_row) full[0] = from[0];
  return full;
}

}  // namespace detail

namespace {

struct ReshapeGradient {
  void operator()(Gradients& g) const { g.add(0, reshape(g.dy(), g.shape(0))); }
  Seen see(const Tensor& whole, const Shape& shape) const {
    return whole.is_contiguous() ? Seen{detail::reshaped(whole, shape)} : Seen{};
  }
};

// x with its axes in another order: the i-th of x becomes the places[i]-th.
Tensor with_axes_at(const Tensor& x, const Shape& places) {
  Shape shape = x.shape();
  std::int64_t strides[kMaxRank];
  for (int i = 0; i < x.rank(); ++i) {
    shape[static_cast<int>(places[i])] = x.shape()[i];
    strides[places[i]] = x.stride(i);
  }
  return detail::view(x, 0, shape, strides);
}

struct PermuteGradient {
  Shape places;
  void operator()(Gradients& g) const { g.add(0, permute(g.dy(), places)); }
  Seen see(const Tensor& whole, const Shape&) const { return {with_axes_at(whole, places)}; }
};

}  // namespace

Tensor reshape(const Tensor& x, const Shape& shape, SourceLocation where) {
  check::defined("reshape", "x", x, where);
  Tensor y = detail::reshaped(detail::packed(x), detail::reshaped_to(x.shape(), shape, where));
  if (taping()) record_op("reshape", where, {&x}, y, {}, ReshapeGradient{});
  return y;
}

Tensor flatten(const Tensor& x, int first, int last, SourceLocation where) {
  check::defined("flatten", "x", x, where);
  if (x.rank() == 0) return reshape(x, {1});
  first = check::axis("flatten", first, x.rank(), where);
  last = check::axis("flatten", last, x.rank(), where);
  if (first > last)
    throw ShapeError("flatten: the first axis must not be behind the last, got " + std::to_string(first) + " and " +
                         std::to_string(last),
                     where);
  Shape shape = Shape::of(x.shape().begin(), first);
  std::int64_t merged = 1;
  for (int i = first; i <= last; ++i) merged = check::times("flatten", merged, x.shape()[i], where);
  shape.push_back(merged);
  for (int i = last + 1; i < x.rank(); ++i) shape.push_back(x.shape()[i]);
  return reshape(x, shape);
}

Tensor transpose(const Tensor& x, int a, int b, SourceLocation where) {
  check::defined("transpose", "x", x, where);
  a = check::axis("transpose", a, x.rank(), where);
  b = check::axis("transpose", b, x.rank(), where);
  Shape order;
  for (int i = 0; i < x.rank(); ++i) order.push_back(i == a ? b : i == b ? a : i);
  return permute(x, order);
}

Tensor permute(const Tensor& x, const Shape& order, SourceLocation where) {
  check::defined("permute", "x", x, where);
  Shape places = x.shape();
  std::uint32_t seen = 0;
  int place = 0;
  for (const std::int64_t axis : order) {
    const int from = check::axis("permute", axis, x.rank(), where);
    seen |= 1u << from;
    places[from] = place++;
  }
  if (order.rank() != x.rank() || seen != (1u << x.rank()) - 1)
    throw ShapeError(
        "permute: each of the " + std::to_string(x.rank()) + " axes must be named once, got " + order.str(), where);
  Tensor y = with_axes_at(x, places);
  if (taping()) record_op("permute", where, {&x}, y, {}, PermuteGradient{places});
  return y;
}

Tensor unsqueeze(const Tensor& x, int axis, SourceLocation where) {
  check::defined("unsqueeze", "x", x, where);
  if (x.rank() == kMaxRank) throw ShapeError("unsqueeze: x has 8 axes already, got shape " + x.shape().str(), where);
  axis = check::axis("unsqueeze", axis, x.rank() + 1, where);
  Shape shape;
  std::int64_t strides[kMaxRank];
  for (int i = 0; i <= x.rank(); ++i) {
    strides[i] = i < axis ? x.stride(i) : i == axis ? 1 : x.stride(i - 1);
    shape.push_back(i < axis ? x.shape()[i] : i == axis ? 1 : x.shape()[i - 1]);
  }
  Tensor y = detail::view(x, 0, shape, strides);
  if (taping()) record_op("unsqueeze", where, {&x}, y, {}, [axis](Gradients& g) { g.add(0, squeeze(g.dy(), axis)); });
  return y;
}

Tensor squeeze(const Tensor& x, int axis, SourceLocation where) {
  check::defined("squeeze", "x", x, where);
  axis = check::axis("squeeze", axis, x.rank(), where);
  if (x.shape()[axis] != 1)
    throw ShapeError("squeeze: axis " + std::to_string(axis) + " must have size 1, got shape " + x.shape().str(),
                     where);
  Tensor y = without_axis(x, axis);
  if (taping()) record_op("squeeze", where, {&x}, y, {}, [axis](Gradients& g) { g.add(0, unsqueeze(g.dy(), axis)); });
  return y;
}

Tensor expand(const Tensor& x, const Shape& shape, SourceLocation where) {
  check::defined("expand", "x", x, where);
  return detail::expanded(x, shape, shape, where);
}

Tensor detail::expanded(const Tensor& x, Shape shape, const Shape& given, SourceLocation where) {
  const int lead = shape.rank() - x.rank();
  bool fits = lead >= 0;
  for (int i = 0; fits && i < x.rank(); ++i) {
    std::int64_t& to = shape[i + lead];
    if (to == -1) to = x.shape()[i];
    fits = x.shape()[i] == to || x.shape()[i] == 1;
  }
  if (!fits)
    throw ShapeError("expand: " + x.shape().str() + " must broadcast to the new shape, got " + given.str(), where);
  for (int i = 0; i < lead; ++i)
    if (shape[i] == -1)
      throw ShapeError("expand: -1 keeps the size of an axis of " + x.shape().str() +
                           ", and a new one in front needs a size, got " + given.str(),
                       where);
  check::elements("expand", shape, where, &given);
  Tensor y = detail::broadcast_view(x, shape);
  if (taping())
    record_op("expand", where, {&x}, y, {}, [](Gradients& g) { g.add(0, detail::sum_to(g.dy(), g.shape(0))); });
  return y;
}

Tensor slice(const Tensor& x, int axis, std::int64_t begin, std::int64_t end, std::int64_t step, SourceLocation where) {
  check::defined("slice", "x", x, where);
  axis = check::axis("slice", axis, x.rank(), where);
  if (step < 1) throw ShapeError("slice: step must be at least 1, got " + std::to_string(step), where);
  const std::int64_t size = x.shape()[axis];
  const auto clipped = [size](std::int64_t i) {
    if (i < 0) i += size;
    return i < 0 ? 0 : i > size ? size : i;
  };
  begin = clipped(begin);
  end = clipped(end);
  const std::int64_t length = end > begin ? (end - begin - 1) / step + 1 : 0;
  return sliced("slice", x, {x.shape(), detail::axis_order(x), axis, begin, step, length}, where);
}

Tensor narrow(const Tensor& x, int axis, std::int64_t begin, std::int64_t length, SourceLocation where) {
  check::defined("narrow", "x", x, where);
  axis = check::axis("narrow", axis, x.rank(), where);
  const std::int64_t size = x.shape()[axis];
  if (begin < 0 || length < 0 || begin > size || length > size - begin)
    throw IndexError("narrow: begin and length must lie in the " + std::to_string(size) + " indices" + axis_text(axis) +
                         ", got " + std::to_string(begin) + " and " + std::to_string(length),
                     where);
  return sliced("narrow", x, {x.shape(), detail::axis_order(x), axis, begin, 1, length}, where);
}

namespace {

struct SelectGradient {
  Part part;
  void operator()(Gradients& g) const {
    if (g.recording()) g.add(0, spread(unsqueeze(g.dy(), part.axis), part));
    else add_to_part(g, part, [&](const Tensor& place) { return without_axis(place, part.axis); });
  }
  Seen see(const Tensor& whole, const Shape&) const {
    Seen seen = seen_part(whole, part);
    seen.part = without_axis(seen.part, part.axis);
    return seen;
  }
};

Tensor selected(const char* op, const Tensor& x, int axis, std::int64_t index, SourceLocation where) {
  const std::int64_t size = x.shape()[axis];
  if (index < -size || index >= size)
    throw IndexError(std::string(op) + ": index must be in [" + std::to_string(-size) + ", " + std::to_string(size) +
                         ")" + axis_text(axis) + ", got " + std::to_string(index) + " for shape " + x.shape().str(),
                     where);
  const Part part{x.shape(), detail::axis_order(x), axis, index < 0 ? index + size : index, 1, 1};
  Tensor y = without_axis(part_of(x, part), axis);
  if (taping()) record_op(op, where, {&x}, y, {}, SelectGradient{part});
  return y;
}

}  // namespace

Tensor select(const Tensor& x, int axis, std::int64_t index, SourceLocation where) {
  check::defined("select", "x", x, where);
  return selected("select", x, check::axis("select", axis, x.rank(), where), index, where);
}

Tensor Tensor::operator[](detail::Index index) const {
  check::defined("operator[]", "x", *this, index.where);
  if (rank() == 0)
    throw ShapeError("operator[]: a tensor without axes has one element, read it with item()", index.where);
  return selected("operator[]", *this, 0, index.value, index.where);
}

Tensor detail::concatenated(const char* op, const Tensors& parts, int axis, SourceLocation where) {
  if (parts.empty()) throw ShapeError(std::string(op) + ": at least one tensor is needed, got none", where);
  check::defined(op, "part 0", parts[0], where);
  Shape shape = parts[0].shape();
  axis = check::axis(op, axis, shape.rank(), where);
  shape[axis] = 0;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    const std::string name = "part " + std::to_string(i);
    check::like(op, name.c_str(), parts[i], "part 0", parts[0], where);
    bool fits = parts[i].rank() == shape.rank();
    for (int d = 0; fits && d < shape.rank(); ++d) fits = d == axis || parts[i].shape()[d] == shape[d];
    if (!fits)
      throw ShapeError(std::string(op) + ": parts must agree in all sizes but axis " + std::to_string(axis) + ", got " +
                           parts[0].shape().str() + " and " + parts[i].shape().str() + " for part " + std::to_string(i),
                       where);
    shape[axis] = check::plus(op, shape[axis], parts[i].shape()[axis], where);
  }
  Tensor y = empty(shape, parts[0].options());
  Ops& ops = backend(y.device());
  std::int64_t begin = 0;
  for (const Tensor& part : parts) {
    const std::int64_t length = part.shape()[axis];
    ops.copy(part.array(), part_of(y, {shape, {}, axis, begin, 1, length}).array());
    begin += length;
  }
  if (taping())
    record_list(op, where, parts, Tensors{y}, {}, [axis, ends = Ends(parts, axis)](Gradients& g) {
      const Tensor& dy = g.dy();
      for (int i = 0; i < ends.count(); ++i)
        if (g.needs(i)) g.add(i, narrow(dy, axis, ends.begin(i), ends.begin(i + 1) - ends.begin(i)));
    });
  return y;
}

Tensor concatenate(const Tensors& parts, int axis, SourceLocation where) {
  return detail::concatenated("concatenate", parts, axis, where);
}

Tensor stack(const Tensors& parts, int axis, SourceLocation where) {
  Tensors with_axis;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    check::defined("stack", "each tensor", parts[i], where);
    if (!(parts[i].shape() == parts[0].shape()))
      throw ShapeError(
          "stack: tensors must have one shape, got " + parts[0].shape().str() + " and " + parts[i].shape().str(),
          where);
    if (i == 0) {
      if (parts[0].rank() == kMaxRank)
        throw ShapeError("stack: the result must have at most 8 axes, got tensors of shape " + parts[0].shape().str(),
                         where);
      axis = check::axis("stack", axis, parts[0].rank() + 1, where);
    }
    with_axis.push_back(unsqueeze(parts[i], axis));
  }
  return detail::concatenated("stack", with_axis, axis, where);
}

}  // namespace reel
