#pragma once

#include "reel/backends/cuda/group.h"

namespace reel::cuda {

namespace device {

/// Lines one after the other: element i of line l lies at line_start(lines, l) + i.
REEL_DEVICE int64_t line_start(const Lines& lines, int64_t line) {
  const int64_t s = line / lines.width, column = line % lines.width;
  return lines.rows.begin(s) * lines.width + column * lines.rows.count(s);
}

}  // namespace device

/// A stable radix sort of lines by unsigned keys, 8 bits per pass. The lines' keys lie one after the other; those of lines of
/// up to `shortest` elements are left alone. Lines have fewer than 2^32 elements.
template <class Key>
class RadixSort {
 public:
  /// `total`: the elements of all lines, `width` times those of the rows.
  RadixSort(const Context& context, const device::Lines& lines, int64_t total, int64_t shortest);

  /// Where the keys go before `sort`.
  Key* keys() const { return keys_[0]; }
  /// By the lowest `bits` bits.
  void sort(int bits);
  /// The sorted keys, and the place in its line from which each came.
  const Key* sorted_keys() const { return keys_[side_]; }
  const uint32_t* sorted_places() const { return places_[side_]; }

 private:
  const Context& context_;
  device::Lines lines_;
  int64_t shortest_, tiles_;
  Workspace memory_;
  Key* keys_[2];
  uint32_t* places_[2];
  int64_t *starts_, *counts_;
  int side_ = 0;
};

extern template class RadixSort<std::uint32_t>;
extern template class RadixSort<std::uint64_t>;

}  // namespace reel::cuda
