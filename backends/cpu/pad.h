#pragma once

#include "reel/core/ops.h"

/// Padding, which moves memory: nothing for vectors, so compiled once for the baseline.
namespace reel::cpu {

/// As Ops::pad; `value` has the bytes of padding.value in y's dtype.
void pad(const Array& x, const Padding& padding, std::uint64_t value, const Array& y);
/// As Ops::pad_backward, from dy without gaps; dx may be strided, but is contiguous along its last axis.
void pad_backward(const void* dy, const Padding& padding, const Array& dx);

}  // namespace reel::cpu
