#include "reel/ops/index.h"

#include <algorithm>
#include <string>

#include "reel/ops/arithmetic.h"
#include "reel/ops/check.h"
#include "reel/ops/create.h"
#include "reel/ops/offsets.h"
#include "reel/ops/rows.h"
#include "reel/ops/views.h"

namespace reel {

namespace {

using detail::Block;
using detail::Gradients;
using detail::HostList;
using detail::packed;
using detail::record_op;
using detail::taping;

std::int64_t first_row(const Ragged& x, std::int64_t s) { return x.offsets().span()[static_cast<std::size_t>(s)]; }

// ShapeError unless `name` has x's shape, but for `axis`.
void check_around(const char* op, const char* name, const Tensor& index, const Tensor& x, int axis,
                  SourceLocation where) {
  bool fits = index.rank() == x.rank();
  for (int i = 0; fits && i < x.rank(); ++i) fits = i == axis || index.shape()[i] == x.shape()[i];
  if (!fits)
    throw ShapeError(std::string(op) + ": " + name + " must have the shape of x, " + x.shape().str() +
                         ", but for axis " + std::to_string(axis) + ", got " + index.shape().str(),
                     where);
}

void check_mask(const char* op, const Tensor& mask, const Tensor& x, SourceLocation where) {
  check::defined(op, "mask", mask, where);
  if (mask.dtype() != bool8)
    throw DTypeError(std::string(op) + ": mask must be bool8, got " + name_of(mask.dtype()), where);
  if (!(mask.device() == x.device()))
    throw DeviceError(
        std::string(op) + ": mask must be on " + x.device().name() + " like x, got " + mask.device().name(), where);
}

// An array as rows: of what lies behind an axis, [outer size] of `inner` elements.
struct RowsAlong {
  std::int64_t outer = 1, size, inner = 1;

  RowsAlong(const Tensor& x, int axis) : size(x.shape()[axis]) {
    for (int i = 0; i < axis; ++i) outer *= x.shape()[i];
    for (int i = axis + 1; i < x.rank(); ++i) inner *= x.shape()[i];
  }
  Shape shape() const { return {outer * size, inner}; }
  // The numbers of rows that an index [outer, n] or [n] names.
  Tensor numbers(const Tensor& at) const {
    if (outer == 1) return reshape(at, {at.size()});
    return untaped([&] {
      const Tensor first = unsqueeze(arange(outer, {.dtype = i64, .device = at.device()}), 1) * size;
      const Tensor rows = first + (at.rank() == 1 ? at : reshape(at, {outer, at.shape().back()}));
      return reshape(rows, {rows.size()});
    });
  }
};

// Whether an index of gather is one number for all that lies behind the axis, as an expanded one is.
bool names_rows(const Tensor& index, int axis) {
  std::int64_t inner = 1;
  for (int i = axis + 1; i < index.rank(); ++i) {
    if (index.shape()[i] > 1 && index.array().strides[i] != 0) return false;
    inner *= index.shape()[i];
  }
  return inner > 1;
}

// Of what names_rows, that number: without the axes behind `axis`.
Tensor of_rows(Tensor index, int axis) {
  while (index.rank() > axis + 1) index = select(index, -1, 0);
  return index;
}

// An index of gather, checked; of one that names_rows only a number for each row is checked, and packed.
Tensor checked_along(const char* op, const Tensor& index, int axis, const Tensor& x, SourceLocation where) {
  const std::int64_t size = x.shape()[axis];
  if (!names_rows(index, axis)) return detail::checked_index(op, index, size, x, where);
  Tensor at = detail::checked_index(op, of_rows(index, axis), size, x, where);
  while (at.rank() < index.rank()) at = unsqueeze(at, -1);
  return expand(at, index.shape());
}

Tensor gathered(const char* op, const Tensor& x, int axis, const Tensor& at, SourceLocation where) {
  if (names_rows(at, axis)) {
    const RowsAlong rows(x, axis);
    return reshape(detail::take_rows(op, reshape(x, rows.shape()), rows.numbers(of_rows(at, axis)), where), at.shape());
  }
  Tensor y = empty(at.shape(), x.options());
  backend(x.device()).gather(packed(x).array(), at.array(), axis, y.array());
  detail::record_gather(op, where, x, y, axis, at);
  return y;
}

Tensor scattered(const Tensor& x, int axis, const Tensor& at, const Tensor& src, SourceLocation where) {
  check::floating("scatter_add", "x", x, where);
  check::like("scatter_add", "src", src, "x", x, where);
  check::shape("scatter_add", "src", src, at.shape(), where);
  Tensor y = detail::copied(x, x.dtype());
  if (src.size() > 0 && names_rows(at, axis)) {
    const RowsAlong rows(x, axis), taken(src, axis);
    backend(x.device())
        .add_rows(detail::reshaped(packed(src), taken.shape()).array(), rows.numbers(of_rows(at, axis)).array(),
                  detail::reshaped(y, rows.shape()).array());
  } else {
    backend(x.device()).scatter_add(packed(src).array(), at.array(), axis, y.array());
  }
  if (taping())
    record_op("scatter_add", where, {&x, &src}, y, {&at}, [axis, at](Gradients& g) {
      if (g.needs(0)) g.add(0, g.dy());
      if (g.needs(1)) g.add(1, gathered("gather", g.dy(), axis, at, SourceLocation{}));
    });
  return y;
}

Tensor added_back(const Tensor& dy, int axis, const Tensor& at, const Shape& shape);

// Elements by one index [n] for all lines along an axis behind which are only axes of size 1.
Tensor selected(const Tensor& x, int axis, const Tensor& at, SourceLocation where) {
  Shape shape = x.shape();
  shape[axis] = at.size();
  Tensor y = empty(shape, x.options());
  backend(x.device()).gather(packed(x).array(), at.array(), axis, y.array());
  if (taping() && is_floating(x.dtype()))
    record_op("index_select", where, {&x}, y, {&at},
              [axis, at](Gradients& g) { g.add(0, added_back(g.dy(), axis, at, g.shape(0))); });
  return y;
}

Tensor added_back(const Tensor& dy, int axis, const Tensor& at, const Shape& shape) {
  Tensor dx = zeros(shape, dy.options());
  backend(dy.device()).scatter_add(packed(dy).array(), at.array(), axis, dx.array());
  if (taping())
    record_op("index_select", SourceLocation{}, {&dy}, dx, {&at},
              [axis, at](Gradients& g) { g.add(0, selected(g.dy(), axis, at, SourceLocation{})); });
  return dx;
}

// The rows of x that an index, as in gather, counts from the first of each sequence.
Tensor row_index(const char* op, const Ragged& x, const Ragged& index, SourceLocation where) {
  check::defined(op, "x", x.values(), where);
  check::index(op, "index", index.values(), where);
  check_around(op, "index", index.values(), x.values(), 0, where);
  return detail::rows_in_sequences(op, index, x, where);
}

// Rows of each sequence, from begin_of(s) to before end_of(s).
template <class Begin, class End>
Ragged sliced(const Ragged& x, Begin&& begin_of, End&& end_of, SourceLocation where) {
  HostList<Block> blocks(x.count());
  for (std::int64_t s = 0; s < x.count(); ++s) {
    const std::int64_t length = x.length(s);
    const auto clipped = [length](std::int64_t i) {
      return std::clamp<std::int64_t>(i < 0 ? i + length : i, 0, length);
    };
    const std::int64_t begin = clipped(begin_of(s)), end = clipped(end_of(s));
    blocks.push_back({first_row(x, s) + begin, std::max<std::int64_t>(end - begin, 0)});
  }
  return detail::take_blocks("slice", x.values(), blocks, where);
}

// ShapeError unless there is a part, and each has values.
void check_parts(const char* op, const std::vector<Ragged>& parts, SourceLocation where) {
  if (parts.empty()) throw ShapeError(std::string(op) + ": at least one Ragged is needed, got none", where);
  for (const Ragged& part : parts) check::defined(op, "each part", part.values(), where);
}

Tensor joined_values(const char* op, const std::vector<Ragged>& parts, int axis, SourceLocation where) {
  Tensors values;
  for (const Ragged& part : parts) values.push_back(part.values());
  return detail::concatenated(op, values, axis, where);
}

}  // namespace

Tensor gather(const Tensor& x, int axis, const Tensor& index, SourceLocation where) {
  check::defined("gather", "x", x, where);
  axis = check::axis("gather", axis, x.rank(), where);
  check::index("gather", "index", index, where);
  check_around("gather", "index", index, x, axis, where);
  return gathered("gather", x, axis, checked_along("gather", index, axis, x, where), where);
}

Ragged gather(const Ragged& x, const Ragged& index, SourceLocation where) {
  return index.with(gathered("gather", x.values(), 0, row_index("gather", x, index, where), where));
}

Ragged gather(const Ragged& x, int axis, const Ragged& index, SourceLocation where) {
  axis = check::row_axis("gather", x, axis, where);
  check::same_lengths("gather", x, index, where);
  return x.with(gather(x.values(), axis, index.values(), where));
}

Tensor scatter_add(const Tensor& x, int axis, const Tensor& index, const Tensor& src, SourceLocation where) {
  check::defined("scatter_add", "x", x, where);
  axis = check::axis("scatter_add", axis, x.rank(), where);
  check::index("scatter_add", "index", index, where);
  check_around("scatter_add", "index", index, x, axis, where);
  return scattered(x, axis, checked_along("scatter_add", index, axis, x, where), src, where);
}

Ragged scatter_add(const Ragged& x, const Ragged& index, const Ragged& src, SourceLocation where) {
  check::same_lengths("scatter_add", index, src, where);
  return x.with(scattered(x.values(), 0, row_index("scatter_add", x, index, where), src.values(), where));
}

Ragged scatter_add(const Ragged& x, int axis, const Ragged& index, const Ragged& src, SourceLocation where) {
  axis = check::row_axis("scatter_add", x, axis, where);
  check::same_lengths("scatter_add", x, index, where);
  check::same_lengths("scatter_add", index, src, where);
  return x.with(scatter_add(x.values(), axis, index.values(), src.values(), where));
}

Tensor index_select(const Tensor& x, int axis, const Tensor& index, SourceLocation where) {
  check::defined("index_select", "x", x, where);
  axis = check::axis("index_select", axis, x.rank(), where);
  check::index("index_select", "index", index, where);
  check::rank("index_select", "index", index, 1, "[n]", where);
  const std::int64_t size = x.shape()[axis];
  const Tensor at = detail::checked_index("index_select", index, size, x, where);
  if (axis == 0) return detail::take_rows("index_select", x, at, where);
  const RowsAlong rows(x, axis);
  if (rows.inner == 1 && !is_half(x.dtype())) return selected(x, axis, at, where);
  Shape shape = x.shape();
  shape[axis] = at.size();
  return reshape(detail::take_rows("index_select", reshape(x, rows.shape()), rows.numbers(at), where), shape);
}

Ragged index_select(const Ragged& x, int axis, const Tensor& index, SourceLocation where) {
  check::defined("index_select", "x", x.values(), where);
  if (check::axis("index_select", axis, x.values().rank(), where) == 0)
    throw ShapeError("index_select: the axis of a Ragged must lie behind the rows' axis 0; rows take a Ragged index",
                     where);
  return x.with(index_select(x.values(), axis, index, where));
}

Ragged index_select(const Ragged& x, const Ragged& index, SourceLocation where) {
  check::defined("index_select", "x", x.values(), where);
  check::rank("index_select", "index", index.values(), 1, "[total]", where);
  const Tensor rows = detail::rows_in_sequences("index_select", index, x, where);
  return index.with(detail::take_rows("index_select", x.values(), rows, where));
}

Tensor masked_select(const Tensor& x, const Tensor& mask, SourceLocation where) {
  check::defined("masked_select", "x", x, where);
  check_mask("masked_select", mask, x, where);
  const Shape shape = check::broadcast("masked_select", x.shape(), mask.shape(), where);
  const Tensor at = detail::positions(detail::broadcast_view(mask, shape));
  const Tensor all = x.shape() == shape ? x : expand(x, shape);
  return detail::take_rows("masked_select", reshape(all, {shape.size()}), at, where);
}

Ragged masked_select(const Ragged& x, const Ragged& mask, SourceLocation where) {
  check::defined("masked_select", "x", x.values(), where);
  check_mask("masked_select", mask.values(), x.values(), where);
  check::rank("masked_select", "mask", mask.values(), 1, "[total]", where);
  check::same_lengths("masked_select", x, mask, where);
  const Tensor at = detail::positions(mask.values());
  std::vector<std::int64_t> lengths;
  const std::vector<std::int64_t> rows = at.to_vector<std::int64_t>();
  auto row = rows.begin();
  for (const std::int64_t end : x.offsets().span().subspan(1)) {
    const auto behind = std::lower_bound(row, rows.end(), end);
    lengths.push_back(behind - row);
    row = behind;
  }
  return Ragged::from_lengths(detail::take_rows("masked_select", x.values(), at, where), lengths, where);
}

Ragged take(const Ragged& x, std::span<const std::int64_t> sequences, SourceLocation where) {
  check::defined("take", "x", x.values(), where);
  HostList<Block> blocks(static_cast<std::int64_t>(sequences.size()));
  for (std::int64_t s : sequences) {
    if (s < -x.count() || s >= x.count())
      throw IndexError("take: sequences must be in [" + std::to_string(-x.count()) + ", " + std::to_string(x.count()) +
                           "), got " + std::to_string(s) + " at position " + std::to_string(blocks.size()),
                       where);
    if (s < 0) s += x.count();
    blocks.push_back({first_row(x, s), x.length(s)});
  }
  return detail::take_blocks("take", x.values(), blocks, where);
}

Ragged take(const Ragged& x, std::initializer_list<std::int64_t> sequences, SourceLocation where) {
  return take(x, std::span(sequences.begin(), sequences.size()), where);
}

Ragged slice(const Ragged& x, std::span<const std::int64_t> begins, std::span<const std::int64_t> ends,
             SourceLocation where) {
  check::defined("slice", "x", x.values(), where);
  const auto count = static_cast<std::size_t>(x.count());
  if (begins.size() != count || ends.size() != count)
    throw ShapeError("slice: a begin and an end are needed for each of the " + std::to_string(count) +
                         " sequences, got " + std::to_string(begins.size()) + " and " + std::to_string(ends.size()),
                     where);
  const auto of = [](std::span<const std::int64_t> list) {
    return [list](std::int64_t s) { return list[static_cast<std::size_t>(s)]; };
  };
  return sliced(x, of(begins), of(ends), where);
}

Ragged slice(const Ragged& x, std::int64_t begin, std::int64_t end, SourceLocation where) {
  check::defined("slice", "x", x.values(), where);
  const auto always = [](std::int64_t i) { return [i](std::int64_t) { return i; }; };
  return sliced(x, always(begin), always(end), where);
}

Ragged concatenate(const std::vector<Ragged>& parts, int axis, SourceLocation where) {
  check_parts("concatenate", parts, where);
  const Ragged& first = parts[0];
  axis = check::axis("concatenate", axis, first.values().rank(), where);
  if (axis > 0) {
    for (const Ragged& part : parts) check::same_lengths("concatenate", part, first, where);
    return first.with(joined_values("concatenate", parts, axis, where));
  }
  for (const Ragged& part : parts)
    if (part.count() != first.count())
      throw ShapeError("concatenate: all parts must have as many sequences, got " + std::to_string(first.count()) +
                           " and " + std::to_string(part.count()),
                       where);
  HostList<Block> blocks(first.count() * static_cast<std::int64_t>(parts.size()));
  HostList<std::int64_t> lengths(first.count());
  for (std::int64_t s = 0; s < first.count(); ++s) {
    std::int64_t length = 0, before = 0;
    for (const Ragged& part : parts) {
      blocks.push_back({before + first_row(part, s), part.length(s)});
      before += part.total();
      length += part.length(s);
    }
    lengths.push_back(length);
  }
  const Ragged pieces =
      detail::take_blocks("concatenate", joined_values("concatenate", parts, 0, where), blocks, where);
  return Ragged::from_lengths(pieces.values(), lengths, where);
}

Ragged concatenate_batches(const std::vector<Ragged>& parts, SourceLocation where) {
  check_parts("concatenate_batches", parts, where);
  std::int64_t count = 0;
  for (const Ragged& part : parts) count += part.count();
  HostList<std::int64_t> lengths(count);
  for (const Ragged& part : parts)
    for (std::int64_t s = 0; s < part.count(); ++s) lengths.push_back(part.length(s));
  return Ragged::from_lengths(joined_values("concatenate_batches", parts, 0, where), lengths, where);
}

}  // namespace reel
