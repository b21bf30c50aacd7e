#include "reel/ops/embedding.h"

#include <string>

#include "reel/ops/check.h"

namespace reel {

namespace {

using detail::Gradients;

// Seen as [rows, width].
Tensor as_rows(const Tensor& x, std::int64_t rows) {
  return detail::reshaped(x, {rows, rows == 0 ? 0 : x.size() / rows});
}

// Zeros of the table's shape with the rows of dy added at `index`: the adjoint of embedding, recorded.
Tensor add_rows(const Tensor& dy, const Tensor& index, const Shape& table) {
  Tensor sum = empty(table, {.dtype = dy.dtype(), .device = dy.device()});
  Ops& ops = backend(dy.device());
  ops.fill(sum.array(), 0);
  if (dy.size() > 0)
    ops.add_rows(as_rows(detail::packed(dy), index.size()).array(), detail::reshaped(index, {index.size()}).array(),
                 as_rows(sum, table[0]).array());
  if (detail::taping())
    detail::record_op("embedding_backward", SourceLocation{}, {&dy}, sum, {&index},
                      [index](Gradients& g) { g.add(0, embedding(g.dy(), index)); });
  return sum;
}

}  // namespace

Tensor embedding(const Tensor& table, const Tensor& index, SourceLocation where) {
  check::defined("embedding", "table", table, where);
  check::index("embedding", "index", index, where);
  if (table.rank() < 1)
    throw ShapeError("embedding: table must have shape [rows, ...], got " + table.shape().str(), where);
  if (!(table.device() == index.device()))
    throw DeviceError(
        "embedding: index must be on " + table.device().name() + " like table, got " + index.device().name(), where);
  if (index.rank() + table.rank() - 1 > kMaxRank)
    throw ShapeError("embedding: the result would have more than 8 axes, got index " + index.shape().str() +
                         " and table " + table.shape().str(),
                     where);
  const Tensor at = detail::packed(index);
  Ops& ops = backend(table.device());
  ops.check_indices(at.array(), table.shape()[0], "embedding", where);
  Shape shape = index.shape();
  for (int i = 1; i < table.rank(); ++i) shape.push_back(table.shape()[i]);
  Tensor y = empty(shape, {.dtype = table.dtype(), .device = table.device()});
  if (y.size() > 0)
    ops.take_rows(as_rows(detail::packed(table), table.shape()[0]).array(), detail::reshaped(at, {at.size()}).array(),
                  as_rows(y, at.size()).array());
  if (detail::taping() && is_floating(table.dtype()))
    detail::record_op("embedding", where, {&table}, y, {&at},
                      [at](Gradients& g) { g.add(0, add_rows(g.dy(), at, g.shape(0))); });
  return y;
}

Ragged embedding(const Tensor& table, const Ragged& index, SourceLocation where) {
  return index.with(embedding(table, index.values(), where));
}

}  // namespace reel
