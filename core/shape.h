#pragma once

#include <cstdint>
#include <string>
#include <type_traits>

#include "reel/core/macros.h"
#include "reel/core/source_location.h"

namespace reel {

/// Tensors have at most this many axes.
inline constexpr int kMaxRank = 8;

class Shape;

namespace detail {
/// An axis with the line that wrote it: shape[i] has no room for a defaulted argument.
struct Axis {
  std::int64_t value;
  SourceLocation where;

  template <class I>
  requires std::is_integral_v<I> REEL_INLINE Axis(I axis, SourceLocation at = SourceLocation::current())
      : value(static_cast<std::int64_t>(axis)), where(at) {}
};

/// Throws IndexError "call: axis must be in [0, rank) of shape, got axis"; ShapeError "call: a shape has at most 8 axes".
[[noreturn]] REEL_API void refuse_axis(const char* call, const Shape& shape, std::int64_t axis, SourceLocation where);
[[noreturn]] REEL_API void refuse_rank(const char* call, SourceLocation where);
}  // namespace detail

/// The sizes of a tensor's axes, outermost first. A scalar has rank 0 and one element. Holds them inline.
class Shape {
 public:
  REEL_INLINE Shape() : rank_(0) {}

  /// Shape{2, n, 3u}: any integer types.
  template <class... Is>
  requires(sizeof...(Is) >= 1 && sizeof...(Is) <= kMaxRank && (std::is_integral_v<Is> && ...)) REEL_INLINE
      Shape(Is... dims)
      : dims_{static_cast<std::int64_t>(dims)...}, rank_(static_cast<std::int8_t>(sizeof...(Is))) {}

  /// From `rank` sizes in memory. Throws ShapeError if there are more than kMaxRank.
  REEL_INLINE static Shape of(const std::int64_t* dims, int rank, SourceLocation where = SourceLocation::current()) {
    if (REEL_USER_CODE && rank > kMaxRank) [[unlikely]]
      detail::refuse_rank("Shape::of", where);
    Shape shape;
    for (int i = 0; i < rank; ++i) shape.push_back(dims[i]);
    return shape;
  }

  REEL_INLINE int rank() const { return rank_; }
  /// The size of an axis, counted from 0. Throws IndexError.
  REEL_INLINE std::int64_t operator[](detail::Axis axis) const {
    check("shape[]", axis);
    return dims_[axis.value];
  }
  REEL_INLINE std::int64_t& operator[](detail::Axis axis) {
    check("shape[]", axis);
    return dims_[axis.value];
  }
  REEL_INLINE const std::int64_t* begin() const { return dims_; }
  REEL_INLINE const std::int64_t* end() const { return dims_ + rank_; }
  /// The last size. Throws IndexError if there is none.
  REEL_INLINE std::int64_t back(SourceLocation where = SourceLocation::current()) const {
    check("back", {rank_ - 1, where});
    return dims_[rank_ - 1];
  }

  /// Appends an axis. Throws ShapeError if there are kMaxRank already.
  REEL_INLINE void push_back(std::int64_t dim, SourceLocation where = SourceLocation::current()) {
    if (REEL_USER_CODE && rank_ == kMaxRank) [[unlikely]]
      detail::refuse_rank("push_back", where);
    dims_[rank_++] = dim;
  }
  /// Drops the last axis. Throws IndexError if there is none.
  REEL_INLINE void pop_back(SourceLocation where = SourceLocation::current()) {
    check("pop_back", {rank_ - 1, where});
    --rank_;
  }

  /// Number of elements: the product of all sizes. Of a shape that nothing can have it is taken modulo 2^64.
  REEL_INLINE std::int64_t size() const {
    std::uint64_t product = 1;
    for (int i = 0; i < rank_; ++i) product *= static_cast<std::uint64_t>(dims_[i]);
    return static_cast<std::int64_t>(product);
  }

  REEL_INLINE bool operator==(const Shape& other) const {
    if (rank_ != other.rank_) return false;
    for (int i = 0; i < rank_; ++i)
      if (dims_[i] != other.dims_[i]) return false;
    return true;
  }

  /// "[2, 3]"
  REEL_API std::string str() const;

 private:
  REEL_INLINE void check(const char* call, detail::Axis axis) const {
    if (REEL_USER_CODE && (axis.value < 0 || axis.value >= rank_)) [[unlikely]]
      detail::refuse_axis(call, *this, axis.value, axis.where);
  }

  std::int64_t dims_[kMaxRank];
  std::int8_t rank_;
};

}  // namespace reel
