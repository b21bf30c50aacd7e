#include "reel/ops/embedding.h"

#include "reel/ops/check.h"
#include "reel/ops/rows.h"

namespace reel {

Tensor embedding(const Tensor& table, const Tensor& index, SourceLocation where) {
  check::defined("embedding", "table", table, where);
  if (table.rank() < 1)
    throw ShapeError("embedding: table must have shape [rows, ...], got " + table.shape().str(), where);
  const Tensor at = detail::checked_index("embedding", index, table.shape()[0], table, where);
  return detail::take_rows("embedding", table, at, where);
}

Ragged embedding(const Tensor& table, const Ragged& index, SourceLocation where) {
  return index.with(embedding(table, index.values(), where));
}

}  // namespace reel
