#pragma once

#include <cstdint>
#include <initializer_list>
#include <iosfwd>
#include <span>
#include <string>
#include <vector>

#include "reel/core/ops.h"
#include "reel/core/tensors.h"

namespace reel {

/// Where sequences begin: [0, 3, 3, 20] are three sequences of 3, 0 and 17 rows. Immutable and shared; checked once.
class REEL_API Offsets {
 public:
  /// No sequences.
  Offsets() : Offsets(std::span<const std::int64_t>()) {}
  /// From the sequences' lengths. Throws ShapeError if one is negative or the sum overflows.
  explicit Offsets(std::span<const std::int64_t> lengths, SourceLocation where = SourceLocation::current());
  /// From the offsets themselves. Throws ShapeError unless they start with 0 and never decrease.
  static Offsets from_offsets(std::span<const std::int64_t> offsets, SourceLocation where = SourceLocation::current());

  Offsets(const Offsets& other);
  /// `other` stays what it is: a Ragged that was moved from can still be copied.
  Offsets(Offsets&& other) noexcept : Offsets(static_cast<const Offsets&>(other)) {}
  Offsets& operator=(Offsets other) noexcept {
    std::swap(state_, other.state_);
    return *this;
  }
  ~Offsets();

  /// Number of sequences, n.
  std::int64_t count() const { return state_->count; }
  /// All rows of all sequences.
  std::int64_t total() const { return values()[state_->count]; }
  std::int64_t max_length() const { return state_->max_length; }
  /// Rows of sequence i. Throws IndexError.
  REEL_INLINE std::int64_t length(std::int64_t i, SourceLocation where = SourceLocation::current()) const {
    if (REEL_USER_CODE && (i < 0 || i >= count())) [[unlikely]]
      detail::refuse_index("Offsets::length", "sequence", 0, count(), i, where);
    return values()[i + 1] - values()[i];
  }
  /// The n + 1 offsets.
  std::span<const std::int64_t> span() const { return {values(), static_cast<std::size_t>(count() + 1)}; }
  std::vector<std::int64_t> lengths() const;
  bool operator==(const Offsets& other) const;

  /// For kernels on `device`.
  Segments segments(Device device) const;

 private:
  struct DeviceCopy;
  struct State {
    std::atomic<std::int64_t> references{1};
    std::atomic<DeviceCopy*> copies{nullptr};  // a list; made when a device first asks
    std::int64_t count = 0;
    std::int64_t max_length = 0;
  };
  struct Room {};
  Offsets(Room, std::int64_t count);
  const std::int64_t* values_on(Device device) const;
  std::int64_t* values() const { return reinterpret_cast<std::int64_t*>(state_ + 1); }
  std::size_t bytes() const {
    return sizeof(State) + static_cast<std::size_t>(state_->count + 1) * sizeof(std::int64_t);
  }

  State* state_;
};

/// Sequences of different lengths, one after the other, without padding: values [total, ...] and offsets. Sequences may have
/// no rows, and there may be no sequences. One made without values is undefined, as are those of which values were moved:
/// ops on it throw Error.
class REEL_API Ragged {
 public:
  Ragged() = default;
  /// Throws ShapeError unless values has rank >= 1 and offsets.total() rows.
  Ragged(Tensor values, Offsets offsets, SourceLocation where = SourceLocation::current());
  /// From values [total, ...] and the sequences' lengths, which sum up to total.
  static Ragged from_lengths(const Tensor& values, std::span<const std::int64_t> lengths,
                             SourceLocation where = SourceLocation::current());
  static Ragged from_lengths(const Tensor& values, std::initializer_list<std::int64_t> lengths,
                             SourceLocation where = SourceLocation::current());
  /// One tensor [length, ...] per sequence; their trailing sizes, dtypes and devices agree. Recorded.
  /// Throws ShapeError, DTypeError, DeviceError.
  static Ragged from_list(const Tensors& sequences, SourceLocation where = SourceLocation::current());

  /// [total, ...]
  const Tensor& values() const { return values_; }
  const Offsets& offsets() const { return offsets_; }
  /// Number of sequences.
  std::int64_t count() const { return offsets_.count(); }
  /// Rows of all sequences.
  std::int64_t total() const { return offsets_.total(); }
  /// Throws IndexError.
  std::int64_t length(std::int64_t i, SourceLocation where = SourceLocation::current()) const {
    if (i < 0 || i >= count()) detail::refuse_index("Ragged::length", "sequence", 0, count(), i, where);
    return offsets_.length(i);
  }
  bool defined() const { return values_.defined(); }
  DType dtype(SourceLocation where = SourceLocation::current()) const { return known("dtype", where).dtype(); }
  Device device(SourceLocation where = SourceLocation::current()) const { return known("device", where).device(); }
  TensorOptions options(SourceLocation where = SourceLocation::current()) const {
    return known("options", where).options();
  }
  Segments segments(SourceLocation where = SourceLocation::current()) const {
    return offsets_.segments(known("segments", where).device());
  }
  /// The same sequences with other values [total, ...].
  Ragged with(Tensor values, SourceLocation where = SourceLocation::current()) const {
    return Ragged(std::move(values), offsets_, where);
  }

  /// Sequence i as a tensor [length, ...]: a recorded view. Throws IndexError.
  Tensor operator[](detail::Index i) const;

 private:
  const Tensor& known(const char* call, SourceLocation where) const {
    if (!values_.defined()) [[unlikely]]
      detail::refuse_undefined(call, "Ragged", where);
    return values_;
  }

  Tensor values_;
  Offsets offsets_;
};

namespace detail {
/// The left operand of an operator between two Ragged, with the line of the expression: an operator has no room for an
/// argument that carries it.
struct RaggedArg {
  const Ragged& ragged;
  SourceLocation where;

  RaggedArg(const Ragged& x, SourceLocation at = SourceLocation::current()) : ragged(x), where(at) {}
};
}  // namespace detail

REEL_API std::ostream& operator<<(std::ostream& out, const Ragged& x);
REEL_API std::string to_string(const Ragged& x);
REEL_API void print(const Ragged& x);

}  // namespace reel
