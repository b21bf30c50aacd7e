#pragma once

#include "reel/core/ragged.h"

namespace reel {

/// x with another element type; x itself if it has it already. Floats become integers by cutting off the fraction, anything
/// becomes bool8 by != 0. Recorded between floating types; to and from the others there is no gradient.
REEL_API Tensor cast(const Tensor& x, DType dtype, SourceLocation where = SourceLocation::current());
REEL_API Ragged cast(const Ragged& x, DType dtype, SourceLocation where = SourceLocation::current());

/// x on another device; x itself if it is there already. Recorded. Throws DeviceError if there is no such device.
REEL_API Tensor to(const Tensor& x, Device device, SourceLocation where = SourceLocation::current());
REEL_API Ragged to(const Ragged& x, Device device, SourceLocation where = SourceLocation::current());

/// x in row-major order without gaps; x itself if it is. Recorded.
REEL_API Tensor contiguous(const Tensor& x, SourceLocation where = SourceLocation::current());
REEL_API Ragged contiguous(const Ragged& x, SourceLocation where = SourceLocation::current());

/// A copy with memory of its own. Recorded.
REEL_API Tensor clone(const Tensor& x, SourceLocation where = SourceLocation::current());
REEL_API Ragged clone(const Ragged& x, SourceLocation where = SourceLocation::current());

/// x as a constant: the same elements, without a past on any tape. A view.
REEL_API Tensor stop_gradient(const Tensor& x, SourceLocation where = SourceLocation::current());
REEL_API Ragged stop_gradient(const Ragged& x, SourceLocation where = SourceLocation::current());

}  // namespace reel
