#pragma once

#include <cstdint>

#include "reel/core/device.h"
#include "reel/core/dtype.h"
#include "reel/core/shape.h"

namespace reel {

/// What a kernel sees of a tensor: an address, a shape and strides. Owns nothing.
/// Strides count elements, may be 0 (broadcast) or negative; `shape` and `strides` have `shape.rank()` valid entries.
struct Array {
  void* data = nullptr;
  std::int64_t size = 0;  // number of elements
  Shape shape;
  std::int64_t strides[kMaxRank];
  DType dtype = DType::f32;
  Device device;
  bool contiguous = true;  // row-major without gaps

  REEL_INLINE Array() = default;

  template <class T>
  REEL_INLINE T* as() const {
    return static_cast<T*>(data);
  }
  REEL_INLINE int rank() const { return shape.rank(); }
};

/// Where a gradient goes; data of null: it is not wanted. `add`: to what is there, else over it.
struct GradientSink {
  Array to;
  bool add = false;
  REEL_INLINE bool wanted() const { return to.data != nullptr; }
};

}  // namespace reel
