#pragma once

#include <concepts>
#include <cstdint>

namespace reel {

/// One number for each axis over which windows slide, or one for all: `.stride = 2`, `.padding = {0, 1}`; outermost first.
class PerAxis {
 public:
  /// None.
  PerAxis() = default;
  template <std::integral... Is>
  requires(sizeof...(Is) >= 1 && sizeof...(Is) <= 3) PerAxis(Is... sizes)
      : sizes_{static_cast<std::int64_t>(sizes)...}, count_(sizeof...(Is)) {}

  /// How many were given.
  int count() const { return count_; }
  /// That of one axis.
  std::int64_t operator[](int axis) const { return sizes_[count_ == 1 ? 0 : axis]; }

 private:
  std::int64_t sizes_[3] = {0, 0, 0};
  int count_ = 0;
};

}  // namespace reel
