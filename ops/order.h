#pragma once

#include <cstdint>
#include <vector>

#include "reel/core/ragged.h"

/// Elements in order, of any dtype but bf16 and f16. Equal elements keep the order that they have in x, -0 and 0 are equal, and
/// a NaN counts as the largest; a tensor without axes is sorted as its one element. Gradients go to where the elements came
/// from, of any order. Negative axes count from the last. Throw ShapeError, DTypeError.
namespace reel {

enum class Order : std::uint8_t { ascending, descending };

/// Elements and, in the same shape, i64, the index along the axis that each came from.
struct Sorted {
  Tensor values, which;
};
/// For each sequence: `which` counts from its first row.
struct RaggedSorted {
  Ragged values, which;
};

REEL_API Sorted sort(const Tensor& x, int axis = -1, Order order = Order::ascending,
                     SourceLocation where = SourceLocation::current());
/// The rows of each sequence, each column by itself.
REEL_API RaggedSorted sort(const Ragged& x, Order order = Order::ascending,
                           SourceLocation where = SourceLocation::current());

/// Per row, along an axis of the values behind the first; axis 0: the rows of each sequence.
REEL_API RaggedSorted sort(const Ragged& x, int axis, Order order = Order::ascending,
                           SourceLocation where = SourceLocation::current());

/// sort(x).which
REEL_API Tensor argsort(const Tensor& x, int axis = -1, Order order = Order::ascending,
                        SourceLocation where = SourceLocation::current());
REEL_API Ragged argsort(const Ragged& x, Order order = Order::ascending,
                        SourceLocation where = SourceLocation::current());
REEL_API Ragged argsort(const Ragged& x, int axis, Order order = Order::ascending,
                        SourceLocation where = SourceLocation::current());

/// The k largest elements along an axis, the largest first; or the k smallest, the smallest first (Order::ascending). Throws
/// ShapeError unless 0 <= k <= the axis's size.
REEL_API Sorted topk(const Tensor& x, std::int64_t k, int axis = -1, Order order = Order::descending,
                     SourceLocation where = SourceLocation::current());
/// Of each sequence and column; sequences of fewer than k rows keep what they have.
REEL_API RaggedSorted topk(const Ragged& x, std::int64_t k, Order order = Order::descending,
                           SourceLocation where = SourceLocation::current());
/// Per row, along an axis of the values behind the first; axis 0: of each sequence.
REEL_API RaggedSorted topk(const Ragged& x, std::int64_t k, int axis, Order order = Order::descending,
                           SourceLocation where = SourceLocation::current());

/// What unique() finds.
struct Unique {
  Tensor values;   // [m], each element once, ascending
  Tensor inverse;  // i64, x's shape: x = values[inverse]
  Tensor counts;   // i64, [m]: how often each stands in x
};
/// The same of each sequence: its own values, and an inverse that counts from the first of them.
struct RaggedUnique {
  Ragged values, inverse, counts;
};
/// The different elements of x, of any shape. Each NaN is different from all others. No gradient. Waits for the device.
REEL_API Unique unique(const Tensor& x, SourceLocation where = SourceLocation::current());
/// Of each sequence of x [total].
REEL_API RaggedUnique unique(const Ragged& x, SourceLocation where = SourceLocation::current());

/// What sort_by_length() gives: sorted = take(x, order) and x = take(sorted, inverse).
struct SortedByLength {
  Ragged sorted;
  std::vector<std::int64_t> order, inverse;
};
/// The sequences by length, the longest first unless `order` says otherwise; equal ones stay in order. Any dtype.
REEL_API SortedByLength sort_by_length(const Ragged& x, Order order = Order::descending,
                                       SourceLocation where = SourceLocation::current());

}  // namespace reel
