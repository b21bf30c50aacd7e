#pragma once

#include <cstdint>
#include <initializer_list>

#include "reel/core/ragged.h"

namespace reel {

/// How many elements to add in front of and behind an axis.
struct PadAxis {
  int axis;
  std::int64_t before = 0, after = 0;
};

/// x, of any dtype, with `value` around it: pad(x, {{-1, 2, 2}}) adds two elements at both ends of the last axis. Recorded.
/// Throws ShapeError for a negative number, and for an axis named twice.
REEL_API Tensor pad(const Tensor& x, std::initializer_list<PadAxis> widths, Scalar value = 0,
                    SourceLocation where = SourceLocation::current());

/// With what the mode finds in x, as numpy does it, one axis after the other in their order: of 1 2 3 come, to both sides,
///   symmetric  2 1 | 1 2 3 | 3 2    the mirror image with the edge
///   reflect    3 2 | 1 2 3 | 2 1    without it; an axis of one element is repeated
///   replicate  1 1 | 1 2 3 | 3 3    the edge
///   zero       0 0 | 1 2 3 | 0 0
/// Wider paddings mirror the image again. Recorded. Throws ShapeError also if there is something to add to an axis of size 0, but
/// zeros.
REEL_API Tensor pad(const Tensor& x, std::initializer_list<PadAxis> widths, PaddingMode mode,
                    SourceLocation where = SourceLocation::current());

/// Axis 0 is the rows of each sequence, which grows at both ends; a sequence without rows gets zeros in every mode.
REEL_API Ragged pad(const Ragged& x, std::initializer_list<PadAxis> widths, Scalar value = 0,
                    SourceLocation where = SourceLocation::current());
REEL_API Ragged pad(const Ragged& x, std::initializer_list<PadAxis> widths, PaddingMode mode,
                    SourceLocation where = SourceLocation::current());

}  // namespace reel
