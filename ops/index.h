#pragma once

#include <initializer_list>
#include <span>
#include <vector>

#include "reel/core/ragged.h"

/// Elements, rows and sequences by index, of any dtype. Copies; all are recorded, with gradients of any order. Indices are i32
/// or i64 and never negative; where several name one element, its gradients are summed in their order. Negative axes count
/// from the last. Throw DTypeError, DeviceError, ShapeError, and IndexError with position and value; of an index that `expand`
/// repeats over all axes behind its own, the position in what was expanded.
namespace reel {

/// y[.., i, ..] = x[.., index[.., i, ..], ..] along `axis`; y has index's shape, which is x's but for that axis. An index that is
/// one number for all that lies behind the axis, as `expand(unsqueeze(rows, 1), {n, width})`, takes whole rows at once.
REEL_API Tensor gather(const Tensor& x, int axis, const Tensor& index,
                       SourceLocation where = SourceLocation::current());
/// Along the rows of each sequence: index [its total, x's other axes] has as many sequences as x, of any lengths, and counts
/// from the first row of x's sequence. An IndexError names the sequence.
REEL_API Ragged gather(const Ragged& x, const Ragged& index, SourceLocation where = SourceLocation::current());
/// Per row, along an axis behind the rows'; index has the same lengths as x.
REEL_API Ragged gather(const Ragged& x, int axis, const Ragged& index,
                       SourceLocation where = SourceLocation::current());

/// x with x[.., index[.., i, ..], ..] += src[.., i, ..] along `axis`, in ascending order of i; index has src's shape, which is
/// x's but for that axis. Whole rows are added at once where the index is expanded as in gather. f32 or f64.
REEL_API Tensor scatter_add(const Tensor& x, int axis, const Tensor& index, const Tensor& src,
                            SourceLocation where = SourceLocation::current());
/// Along the rows of each sequence, as in gather; index and src have the same lengths.
REEL_API Ragged scatter_add(const Ragged& x, const Ragged& index, const Ragged& src,
                            SourceLocation where = SourceLocation::current());
/// Per row, along an axis behind the rows'; all have the same lengths.
REEL_API Ragged scatter_add(const Ragged& x, int axis, const Ragged& index, const Ragged& src,
                            SourceLocation where = SourceLocation::current());

/// Indices of an axis, the same everywhere: index [n] puts size n in that axis's place.
REEL_API Tensor index_select(const Tensor& x, int axis, const Tensor& index,
                             SourceLocation where = SourceLocation::current());
/// Per row, along an axis behind the rows'.
REEL_API Ragged index_select(const Ragged& x, int axis, const Tensor& index,
                             SourceLocation where = SourceLocation::current());
/// Rows of each sequence: index [its total] has as many sequences as x, of any lengths, and counts from the first row of x's
/// sequence. An IndexError names the sequence.
REEL_API Ragged index_select(const Ragged& x, const Ragged& index, SourceLocation where = SourceLocation::current());

/// The elements of x where the mask (bool8) is set, in row-major order: [how many]. x and mask broadcast. Waits for the
/// device, to know how many there are.
REEL_API Tensor masked_select(const Tensor& x, const Tensor& mask, SourceLocation where = SourceLocation::current());
/// The rows of each sequence where mask [total] is set.
REEL_API Ragged masked_select(const Ragged& x, const Ragged& mask, SourceLocation where = SourceLocation::current());

/// Sequences by number, in any order and as often as wanted; a negative number counts from the end.
REEL_API Ragged take(const Ragged& x, std::span<const std::int64_t> sequences,
                     SourceLocation where = SourceLocation::current());
REEL_API Ragged take(const Ragged& x, std::initializer_list<std::int64_t> sequences,
                     SourceLocation where = SourceLocation::current());

/// Rows begin .. end - 1 of each sequence, or of each its own; both may count from the sequence's end, and are clipped as in
/// Python.
REEL_API Ragged slice(const Ragged& x, std::int64_t begin, std::int64_t end,
                      SourceLocation where = SourceLocation::current());
REEL_API Ragged slice(const Ragged& x, std::span<const std::int64_t> begins, std::span<const std::int64_t> ends,
                      SourceLocation where = SourceLocation::current());

/// Sequence i is the parts' sequences i one after the other, along their rows (axis 0) or, if all lengths agree, along an axis
/// behind those. At least one part.
REEL_API Ragged concatenate(const std::vector<Ragged>& parts, int axis = 0,
                            SourceLocation where = SourceLocation::current());
/// The sequences of the first part, then those of the second, ... At least one part.
REEL_API Ragged concatenate_batches(const std::vector<Ragged>& parts, SourceLocation where = SourceLocation::current());

}  // namespace reel
