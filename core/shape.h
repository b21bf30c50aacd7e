#pragma once

#include <cstdint>
#include <string>
#include <type_traits>

#include "reel/core/macros.h"

namespace reel {

/// Tensors have at most this many axes.
inline constexpr int kMaxRank = 8;

/// The sizes of a tensor's axes, outermost first. A scalar has rank 0 and one element. Holds them inline.
class Shape {
 public:
  REEL_INLINE Shape() : rank_(0) {}

  /// Shape{2, n, 3u}: any integer types.
  template <class... Is>
  requires(sizeof...(Is) >= 1 && sizeof...(Is) <= kMaxRank && (std::is_integral_v<Is> && ...)) REEL_INLINE
      Shape(Is... dims)
      : dims_{static_cast<std::int64_t>(dims)...}, rank_(static_cast<std::int8_t>(sizeof...(Is))) {}

  /// From `rank` sizes in memory.
  REEL_INLINE static Shape of(const std::int64_t* dims, int rank) {
    Shape shape;
    for (int i = 0; i < rank; ++i) shape.push_back(dims[i]);
    return shape;
  }

  REEL_INLINE int rank() const { return rank_; }
  REEL_INLINE std::int64_t operator[](int axis) const { return dims_[axis]; }
  REEL_INLINE std::int64_t& operator[](int axis) { return dims_[axis]; }
  REEL_INLINE const std::int64_t* begin() const { return dims_; }
  REEL_INLINE const std::int64_t* end() const { return dims_ + rank_; }
  REEL_INLINE std::int64_t back() const { return dims_[rank_ - 1]; }

  /// Appends an axis. There must be room (rank < kMaxRank).
  REEL_INLINE void push_back(std::int64_t dim) { dims_[rank_++] = dim; }
  REEL_INLINE void pop_back() { --rank_; }

  /// Number of elements: the product of all sizes.
  REEL_INLINE std::int64_t size() const {
    std::int64_t product = 1;
    for (int i = 0; i < rank_; ++i) product *= dims_[i];
    return product;
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
  std::int64_t dims_[kMaxRank];
  std::int8_t rank_;
};

}  // namespace reel
