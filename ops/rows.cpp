#include "reel/ops/rows.h"

#include <limits>
#include <string>
#include <vector>

#include "reel/core/index_error.h"
#include "reel/ops/arithmetic.h"
#include "reel/ops/check.h"
#include "reel/ops/convert.h"
#include "reel/ops/create.h"
#include "reel/ops/elementwise.h"
#include "reel/ops/index.h"
#include "reel/ops/logical.h"
#include "reel/ops/views.h"

namespace reel::detail {

namespace {

// Seen as [rows, width].
Tensor as_rows(const Tensor& x, std::int64_t rows) { return reshaped(x, {rows, rows == 0 ? 0 : x.size() / rows}); }

// The numbers f(sequence, i) for each row i of each sequence, on a device.
template <class F>
Tensor per_row(const Offsets& offsets, Device device, F&& f) {
  const Tensor y = empty({offsets.total()}, {.dtype = i64});
  auto* to = y.array().as<std::int64_t>();
  for (std::int64_t s = 0; s < offsets.count(); ++s)
    for (std::int64_t i = 0; i < offsets.length(s); ++i) *to++ = f(s, i);
  return transferred(y, device);
}

// Says which index is outside.
[[noreturn]] void throw_outside(const char* op, const Ragged& index, const Offsets& x, SourceLocation where) {
  const std::vector<std::int64_t> all = index.values().to_vector<std::int64_t>();
  const std::int64_t width = index.values().size() / index.total();
  for (std::int64_t s = 0, at = 0; s < index.count(); ++s)
    for (std::int64_t i = 0; i < index.length(s) * width; ++i, ++at) {
      const std::int64_t value = all[static_cast<std::size_t>(at)];
      if (value >= 0 && value < x.length(s)) continue;
      throw IndexError(std::string(op) + ": indices of sequence " + std::to_string(s) + " must be in [0, " +
                           std::to_string(x.length(s)) + "), got " + std::to_string(value) + " in row " +
                           std::to_string(i / width),
                       where);
    }
  throw IndexError(std::string(op) + ": indices must lie in their sequences", where);
}

}  // namespace

Tensor index_beside(const char* op, const Tensor& index, const Tensor& x, SourceLocation where) {
  check::index(op, "index", index, where);
  if (!(index.device() == x.device()))
    throw DeviceError(std::string(op) + ": index must be on " + x.device().name() + " like the elements, got " +
                          index.device().name(),
                      where);
  return packed(index);
}

Tensor checked_index(const char* op, const Tensor& index, std::int64_t limit, const Tensor& x, SourceLocation where) {
  Tensor at = index_beside(op, index, x, where);
  backend(x.device()).check_indices(at.array(), limit, nullptr, op, where);
  return at;
}

Tensor take_rows(const char* op, const Tensor& x, const Tensor& index, SourceLocation where) {
  if (index.rank() + x.rank() - 1 > kMaxRank)
    throw ShapeError(std::string(op) + ": the result would have more than 8 axes, got index " + index.shape().str() +
                         " and rows of " + x.shape().str(),
                     where);
  const Tensor at = packed(index);
  Shape shape = index.shape();
  for (int i = 1; i < x.rank(); ++i) shape.push_back(x.shape()[i]);
  Tensor y = empty(shape, x.options());
  if (y.size() > 0)
    backend(x.device())
        .take_rows(as_rows(packed(x), x.shape()[0]).array(), reshaped(at, {at.size()}).array(),
                   as_rows(y, at.size()).array());
  if (taping() && is_floating(x.dtype()))
    record_op(op, where, {&x}, y, {&at}, [at](Gradients& g) { g.add(0, add_rows(g.dy(), at, g.shape(0))); });
  return y;
}

Tensor add_rows(const Tensor& dy, const Tensor& index, const Shape& shape) {
  Tensor sum = zeros(shape, dy.options());
  if (dy.size() > 0)
    backend(dy.device())
        .add_rows(as_rows(packed(dy), index.size()).array(), reshaped(index, {index.size()}).array(),
                  as_rows(sum, shape[0]).array());
  if (taping())
    record_op("add_rows", SourceLocation{}, {&dy}, sum, {&index},
              [index](Gradients& g) { g.add(0, take_rows("take_rows", g.dy(), index, SourceLocation{})); });
  return sum;
}

void record_gather(const char* op, SourceLocation where, const Tensor& x, const Tensor& y, int axis,
                   const Tensor& index) {
  if (!taping() || !is_floating(x.dtype())) return;
  record_op(op, where, {&x}, y, {&index}, [axis, index](Gradients& g) {
    const Tensor dy = reshape(g.dy(), index.shape());
    if (g.recording()) return g.add(0, scatter_add(zeros(g.shape(0), dy.options()), axis, index, dy));
    const auto [dx, fresh] = g.destination(0);
    Ops& ops = backend(dx.device());
    if (fresh) ops.fill(dx.array(), 0);
    ops.scatter_add(packed(dy).array(), index.array(), axis, dx.array());
  });
}

Ragged take_blocks(const char* op, const Tensor& x, std::span<const Block> blocks, SourceLocation where) {
  HostList<std::int64_t> lengths(static_cast<std::int64_t>(blocks.size()));
  for (const Block& block : blocks) lengths.push_back(block.length);
  const Offsets offsets(lengths, where);
  const Tensor index = per_row(offsets, x.device(), [&](std::int64_t s, std::int64_t i) {
    return blocks[static_cast<std::size_t>(s)].begin + i;
  });
  return Ragged(take_rows(op, x, index, where), offsets, where);
}

Tensor rows_in_sequences(const char* op, const Ragged& index, const Ragged& x, SourceLocation where) {
  if (index.count() != x.count())
    throw ShapeError(std::string(op) + ": index must have as many sequences as x, " + std::to_string(x.count()) +
                         ", got " + std::to_string(index.count()),
                     where);
  const Tensor local = index_beside(op, index.values(), x.values(), where);
  Shape rows = local.shape();
  for (int i = 1; i < rows.rank(); ++i) rows[i] = 1;
  return untaped([&] {
    const Offsets& offsets = x.offsets();
    const auto beside = [&](auto&& f) {
      return reshaped(per_row(index.offsets(), x.device(), [&](std::int64_t s, std::int64_t) { return f(s); }), rows);
    };
    const Tensor lengths = beside([&](std::int64_t s) { return offsets.length(s); });
    // What is inside becomes one number, so that the device can check the others as it checks indices, without waiting.
    constexpr std::int64_t kInside = std::numeric_limits<std::int64_t>::max();
    const Tensor wide = cast(local, i64);
    const Tensor others = reel::where(logical_and(wide >= 0, wide < lengths), kInside, wide);
    try {
      backend(x.device()).check_indices(packed(others).array(), kOfSequences, &kInside, op, where);
    } catch (const IndexError&) {
      throw_outside(op, index, offsets, where);
    }
    return packed(local + beside([&](std::int64_t s) { return offsets.span()[static_cast<std::size_t>(s)]; }));
  });
}

Tensor positions(const Tensor& mask) {
  const Tensor index = empty({mask.size()}, {.dtype = i64, .device = mask.device()});
  const std::int64_t count = backend(mask.device()).nonzero(packed(mask).array(), index.array());
  return copied(reshaped(index, {count}), i64);
}

}  // namespace reel::detail
