#pragma once

#include <cstdint>
#include <initializer_list>

#include "reel/core/shape.h"
#include "reel/core/source_location.h"

namespace reel {

/// Which axes an op works over: one, a list, or all of them (default). Negative axes count from the last.
class Axes {
 public:
  Axes() = default;
  Axes(int axis) : count_(1), all_(false) { list_[0] = axis; }
  Axes(std::initializer_list<int> axes) : all_(false) {
    for (const int axis : axes) {
      if (count_ < kMaxRank) list_[count_] = axis;
      ++count_;
    }
  }

  bool all() const { return all_; }
  int count() const { return count_; }

  /// Bit i is set for axis i of a tensor of rank `rank`; no bit for axis 0 of a tensor without axes, which counts as a vector
  /// of one. Throws ShapeError, naming `op`, for an axis out of range or twice.
  REEL_API std::uint32_t mask(const char* op, int rank, SourceLocation where) const;

 private:
  int list_[kMaxRank] = {};
  int count_ = 0;
  bool all_ = true;
};

/// Whether a reduction keeps the reduced axes, with size 1.
enum class Keep : bool { no, yes };

}  // namespace reel
