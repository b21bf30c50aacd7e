#include "reel/ops/ragged_shape.h"

#include <algorithm>
#include <string>

#include "reel/ops/index.h"
#include "reel/ops/offsets.h"
#include "reel/ops/rearrange.h"
#include "reel/ops/rows.h"
#include "reel/ops/sequence.h"
#include "reel/ops/views.h"

namespace reel {

namespace {

using check::row_axis;

// `shape` begins with the rows of x, and has as many axes as its values if `same_rank`; with the rows' number in it.
Shape with_rows(const char* op, const Ragged& x, const Shape& shape, bool same_rank, SourceLocation where) {
  check::defined(op, "x", x.values(), where);
  if (shape.rank() == 0 || (shape[0] != -1 && shape[0] != x.total()) ||
      (same_rank && shape.rank() != x.values().rank()))
    throw ShapeError(std::string(op) + ": a shape that begins with -1, the rows," +
                         (same_rank ? " and has as many axes as the values, " + x.values().shape().str() + "," : "") +
                         " is required for a Ragged, got " + shape.str(),
                     where);
  Shape full = shape;
  full[0] = x.total();
  return full;
}

std::int64_t times(const char* op, std::int64_t number, SourceLocation where) {
  if (number < 0)
    throw ShapeError(std::string(op) + ": repeats must be at least 0, got " + std::to_string(number), where);
  return number;
}

}  // namespace

Ragged reshape(const Ragged& x, const Shape& shape, SourceLocation where) {
  with_rows("reshape", x, shape, false, where);
  return x.with(reshape(x.values(), detail::reshaped_to(x.values().shape(), shape, where, true), where), where);
}

Ragged flatten(const Ragged& x, int first, int last, SourceLocation where) {
  first = row_axis("flatten", x, first, where);
  return x.with(flatten(x.values(), first, row_axis("flatten", x, last, where), where), where);
}

Ragged transpose(const Ragged& x, int a, int b, SourceLocation where) {
  a = row_axis("transpose", x, a, where);
  return x.with(transpose(x.values(), a, row_axis("transpose", x, b, where), where), where);
}

Ragged permute(const Ragged& x, const Shape& order, SourceLocation where) {
  check::defined("permute", "x", x.values(), where);
  if (order.rank() == 0 || order[0] != 0)
    throw ShapeError("permute: the rows' axis 0 of a Ragged must stay first, got " + order.str(), where);
  return x.with(permute(x.values(), order, where), where);
}

Ragged unsqueeze(const Ragged& x, int axis, SourceLocation where) {
  return x.with(unsqueeze(x.values(), row_axis("unsqueeze", x, axis, where, 1), where), where);
}

Ragged squeeze(const Ragged& x, int axis, SourceLocation where) {
  return x.with(squeeze(x.values(), row_axis("squeeze", x, axis, where), where), where);
}

Ragged expand(const Ragged& x, const Shape& shape, SourceLocation where) {
  return x.with(detail::expanded(x.values(), with_rows("expand", x, shape, true, where), shape, where), where);
}

Ragged slice(const Ragged& x, int axis, std::int64_t begin, std::int64_t end, std::int64_t step, SourceLocation where) {
  return x.with(slice(x.values(), row_axis("slice", x, axis, where), begin, end, step, where), where);
}

Ragged narrow(const Ragged& x, int axis, std::int64_t begin, std::int64_t length, SourceLocation where) {
  return x.with(narrow(x.values(), row_axis("narrow", x, axis, where), begin, length, where), where);
}

Ragged select(const Ragged& x, int axis, std::int64_t index, SourceLocation where) {
  return x.with(select(x.values(), row_axis("select", x, axis, where), index, where), where);
}

std::vector<Ragged> split(const Ragged& x, const std::vector<std::int64_t>& sizes, int axis, SourceLocation where) {
  std::vector<Ragged> parts;
  for (const Tensor& part : split(x.values(), sizes, row_axis("split", x, axis, where), where))
    parts.push_back(x.with(part, where));
  return parts;
}

Ragged stack(const std::vector<Ragged>& parts, int axis, SourceLocation where) {
  if (parts.empty()) throw ShapeError("stack: at least one Ragged is needed, got none", where);
  axis = row_axis("stack", parts[0], axis, where, 1);
  Tensors values;
  for (const Ragged& part : parts) {
    check::same_lengths("stack", part, parts[0], where);
    check::defined("stack", "each part", part.values(), where);
    values.push_back(part.values());
  }
  return parts[0].with(stack(values, axis, where), where);
}

Ragged tril(const Ragged& x, std::int64_t diagonal, SourceLocation where) {
  row_axis("tril", x, -2, where);
  return x.with(tril(x.values(), diagonal, where), where);
}

Ragged triu(const Ragged& x, std::int64_t diagonal, SourceLocation where) {
  row_axis("triu", x, -2, where);
  return x.with(triu(x.values(), diagonal, where), where);
}

Ragged flip(const Ragged& x, const Axes& axes, SourceLocation where) {
  check::defined("flip", "x", x.values(), where);
  const std::uint32_t mask = axes.mask("flip", x.values().rank(), where);
  Ragged y = (mask & 1) != 0 ? reverse(x) : x;
  for (int axis = 1; axis < x.values().rank(); ++axis)
    if ((mask >> axis & 1) != 0) y = y.with(flip(y.values(), axis, where), where);
  return y;
}

Ragged roll(const Ragged& x, std::int64_t shift, int axis, SourceLocation where) {
  check::defined("roll", "x", x.values(), where);
  if (check::axis("roll", axis, x.values().rank(), where) != 0)
    return x.with(roll(x.values(), shift, axis, where), where);
  // The row that comes to each place, or that goes there.
  const auto order = [&](int direction) {
    return detail::numbers_on(x.device(), x.total(), [&](std::int64_t* numbers) {
      for (std::int64_t s = 0; s < x.count(); ++s) {
        const std::int64_t n = x.length(s), first = x.offsets().span()[static_cast<std::size_t>(s)];
        for (std::int64_t i = 0; i < n; ++i) *numbers++ = first + (i + direction * (shift % n) + n) % n;
      }
    });
  };
  return x.with(detail::permuted_rows(x.values(), order(-1), order(1)), where);
}

Ragged tile(const Ragged& x, const Shape& repeats, SourceLocation where) {
  check::defined("tile", "x", x.values(), where);
  const int rank = x.values().rank();
  if (repeats.rank() > rank)
    throw ShapeError("tile: repeats for at most the values' " + std::to_string(rank) +
                         " axes are required for a Ragged, got " + repeats.str(),
                     where);
  if (repeats.rank() < rank) return x.with(tile(x.values(), repeats, where), where);
  Shape of_rows = repeats;
  of_rows[0] = 1;
  const Ragged y = x.with(tile(x.values(), of_rows, where), where);
  const std::int64_t copies = times("tile", repeats[0], where);
  if (copies == 0) return slice(y, 0, 0);
  Shape shape = y.values().shape();
  shape[0] = check::times("tile", shape[0], copies, where);
  check::elements("tile", shape, where);
  // By doubling, so that there are never more parts than two, however many copies.
  Ragged result, power = y;
  for (std::int64_t left = copies;; left /= 2) {
    if (left % 2 == 1) result = result.defined() ? concatenate(std::vector{result, power}, 0) : power;
    if (left == 1) return result;
    power = concatenate(std::vector{power, power}, 0);
  }
}

Ragged slice_batch(const Ragged& x, std::int64_t begin, std::int64_t end, SourceLocation where) {
  check::defined("slice_batch", "x", x.values(), where);
  const auto clipped = [&](std::int64_t i) {
    return std::clamp<std::int64_t>(i < 0 ? i + x.count() : i, 0, x.count());
  };
  begin = clipped(begin);
  end = std::max(begin, clipped(end));
  const auto offsets =
      x.offsets().span().subspan(static_cast<std::size_t>(begin), static_cast<std::size_t>(end - begin) + 1);
  detail::HostList<std::int64_t> lengths(end - begin);
  for (std::size_t i = 1; i < offsets.size(); ++i) lengths.push_back(offsets[i] - offsets[i - 1]);
  return Ragged::from_lengths(narrow(x.values(), 0, offsets.front(), offsets.back() - offsets.front()), lengths, where);
}

Ragged repeat_interleave(const Ragged& x, std::int64_t repeats, int axis, SourceLocation where) {
  check::defined("repeat_interleave", "x", x.values(), where);
  Tensor y = repeat_interleave(x.values(), repeats, axis, where);
  if (check::axis("repeat_interleave", axis, x.values().rank(), where) != 0) return x.with(std::move(y), where);
  detail::HostList<std::int64_t> lengths(x.count());
  for (std::int64_t s = 0; s < x.count(); ++s) lengths.push_back(x.length(s) * repeats);
  return Ragged::from_lengths(y, lengths, where);
}

}  // namespace reel
