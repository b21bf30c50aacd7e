#include "reel/ops/ragged.h"

#include <algorithm>
#include <string>

#include "reel/core/fits.h"
#include "reel/core/given_numbers.h"
#include "reel/ops/check.h"
#include "reel/ops/create.h"
#include "reel/ops/offsets.h"
#include "reel/ops/views.h"

namespace reel {

namespace {

using detail::as_rows;
using detail::Gradients;
using detail::packed;
using detail::record_op;
using detail::taping;

Tensor unpadded(const Tensor& x, const Offsets& offsets, SourceLocation where);

// [n, length, ...] seen as [n, length, width].
Tensor as_blocks(const Tensor& x) {
  std::int64_t width = 1;
  for (int i = 2; i < x.rank(); ++i) width *= x.shape()[i];
  return detail::reshaped(packed(x), {x.shape()[0], x.shape()[1], width});
}

Tensor padded(const Tensor& values, const Offsets& offsets, std::int64_t length, Scalar padding, SourceLocation where) {
  Shape shape{offsets.count(), length};
  for (int i = 1; i < values.rank(); ++i) shape.push_back(values.shape()[i]);
  Tensor y = empty(shape, values.options());
  backend(y.device()).segment_pad(as_rows(values).array(), offsets.segments(y.device()), padding, as_blocks(y).array());
  if (taping() && is_floating(values.dtype())) {
    const detail::GivenNumbers given(&padding, 1);
    record_op("to_padded", where, {&values}, y, {},
              [offsets](Gradients& g) { g.add(0, unpadded(g.dy(), offsets, SourceLocation{})); });
  }
  return y;
}

Tensor unpadded(const Tensor& x, const Offsets& offsets, SourceLocation where) {
  Shape shape{offsets.total()};
  for (int i = 2; i < x.rank(); ++i) shape.push_back(x.shape()[i]);
  Tensor y = empty(shape, x.options());
  backend(y.device()).segment_unpad(as_blocks(x).array(), offsets.segments(y.device()), as_rows(y).array());
  if (taping() && is_floating(x.dtype()))
    record_op("from_padded", where, {&x}, y, {}, [offsets, length = x.shape()[1]](Gradients& g) {
      g.add(0, padded(g.dy(), offsets, length, 0, SourceLocation{}));
    });
  return y;
}

}  // namespace

Ragged Ragged::from_list(const Tensors& sequences, SourceLocation where) {
  if (sequences.empty()) throw ShapeError("Ragged::from_list: at least one sequence is needed, got none", where);
  std::vector<std::int64_t> lengths;
  for (std::size_t i = 0; i < sequences.size(); ++i) {
    check::defined("Ragged::from_list", "each sequence", sequences[i], where);
    if (sequences[i].rank() < 1)
      throw ShapeError("Ragged::from_list: sequences must have shape [length, ...], got a tensor without axes", where);
    lengths.push_back(sequences[i].shape()[0]);
  }
  return Ragged(detail::concatenated("Ragged::from_list", sequences, 0, where), Offsets(lengths, where), where);
}

Tensor Ragged::operator[](detail::Index index) const {
  check::defined("Ragged[]", "the Ragged", values_, index.where);
  std::int64_t i = index.value;
  if (i < -count() || i >= count()) detail::refuse_index("Ragged[]", "sequence", -count(), count(), i, index.where);
  if (i < 0) i += count();
  return narrow(values_, 0, offsets_.span()[static_cast<std::size_t>(i)], length(i));
}

Tensors to_list(const Ragged& x, SourceLocation where) {
  check::defined("to_list", "x", x.values(), where);
  Tensors list;
  for (std::int64_t i = 0; i < x.count(); ++i)
    list.push_back(narrow(x.values(), 0, x.offsets().span()[static_cast<std::size_t>(i)], x.length(i)));
  return list;
}

Tensor to_padded(const Ragged& x, Scalar padding, SourceLocation where) {
  check::defined("to_padded", "x", x.values(), where);
  if (x.values().rank() == kMaxRank) throw ShapeError("to_padded: values must have fewer than 8 axes", where);
  detail::check_fits("to_padded", padding, x.dtype(), where);
  return padded(x.values(), x.offsets(), x.offsets().max_length(), padding, where);
}

Ragged from_padded(const Tensor& x, std::span<const std::int64_t> lengths, SourceLocation where) {
  check::defined("from_padded", "x", x, where);
  const auto count = static_cast<std::int64_t>(lengths.size());
  std::int64_t longest = 0;
  for (std::int64_t i = 0; i < count; ++i) {
    const std::int64_t length = lengths[static_cast<std::size_t>(i)];
    if (length < 0)
      throw ShapeError("from_padded: lengths must not be negative, got " + std::to_string(length) + " for sequence " +
                           std::to_string(i),
                       where);
    longest = std::max(longest, length);
  }
  if (x.rank() < 2 || x.shape()[0] != count || longest > x.shape()[1])
    throw ShapeError("from_padded: x must have shape [" + std::to_string(count) + ", at least " +
                         std::to_string(longest) + ", ...] for these lengths, got " + x.shape().str(),
                     where);
  Offsets offsets(lengths, where);
  Tensor values = unpadded(x, offsets, where);
  return Ragged(std::move(values), std::move(offsets), where);
}

Ragged from_padded(const Tensor& x, std::initializer_list<std::int64_t> lengths, SourceLocation where) {
  return from_padded(x, std::span(lengths.begin(), lengths.size()), where);
}

}  // namespace reel
