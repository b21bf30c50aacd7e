#pragma once

// Private to ops/: elements and rows taken by index, which many ops are made of. Recorded; indices are checked by the caller.

#include <span>

#include "reel/core/ragged.h"
#include "reel/core/scratch.h"

namespace reel::detail {

/// At most `room` elements in memory of this thread's cache: a loop that makes such lists calls malloc no more once it is warm.
template <class T>
class HostList {
 public:
  explicit HostList(std::int64_t room) : memory_(static_cast<std::size_t>(room) * sizeof(T) + 1) {}
  void push_back(T value) { memory_.as<T>()[size_++] = value; }
  std::size_t size() const { return size_; }
  operator std::span<const T>() const { return {memory_.as<T>(), size_}; }

 private:
  Scratch memory_;
  std::size_t size_ = 0;
};

/// The index in row-major order. Throws DTypeError unless it is i32 or i64, DeviceError unless it is where x is.
Tensor index_beside(const char* op, const Tensor& index, const Tensor& x, SourceLocation where);
/// The same; IndexError (position and value) unless all of it is in [0, limit).
Tensor checked_index(const char* op, const Tensor& index, std::int64_t limit, const Tensor& x, SourceLocation where);

/// Rows of x [rows, ...] by index [...]: the index's shape followed by x's other axes.
Tensor take_rows(const char* op, const Tensor& x, const Tensor& index, SourceLocation where);
/// The reverse: zeros of `shape` with the rows of dy added in ascending order.
Tensor add_rows(const Tensor& dy, const Tensor& index, const Shape& shape);

/// Puts on the tape that y[.., i, ..] = x[.., index[.., i, ..], ..] along `axis`, which y may lack where index has size 1.
void record_gather(const char* op, SourceLocation where, const Tensor& x, const Tensor& y, int axis,
                   const Tensor& index);

/// `length` rows from `begin` on.
struct Block {
  std::int64_t begin, length;
};
/// Sequences of x's rows, one for each block.
Ragged take_blocks(const char* op, const Tensor& x, std::span<const Block> blocks, SourceLocation where);

/// For each row that `index` says of a sequence of x, counted from its first, the row counted from x's first; shaped to
/// Throws IndexError, naming the sequence, unless the sequences have these rows.
Tensor rows_in_sequences(const char* op, const Ragged& index, const Ragged& x, SourceLocation where);

/// Where the mask (bool8, any shape) is set, in row-major order: i64. Waits for the device.
Tensor positions(const Tensor& mask);

}  // namespace reel::detail
