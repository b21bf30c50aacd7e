#pragma once

#include "reel/core/ragged.h"

namespace reel {

struct RotaryOptions {
  /// Pair i of a row turns by position / theta^(2 i / width).
  double theta = 10000;
  /// The position of the first row.
  std::int64_t offset = 0;
  /// Pairs are neighbours (2 i, 2 i + 1); otherwise i and i + width / 2.
  bool interleaved = false;
};

/// Rotary position embedding: each pair of elements (a, b) of a row becomes (a cos - b sin, a sin + b cos). x [..., length,
/// width], where rows along `length` have positions offset, offset + 1, ...; f32 or f64. Angles, sines and cosines are computed
/// in f64, for positions up to 1e8. The gradient is the turn backwards; backward keeps sines and cosines. Throws DTypeError,
/// ShapeError for an odd width, and Error unless theta > 0 and positions are in [-1e8, 1e8]. Su et al., "RoFormer", 2021.
REEL_API Tensor rotary(const Tensor& x, RotaryOptions options = {}, SourceLocation where = SourceLocation::current());
/// Values [total, ..., width], as a rule [total, heads, width]: positions are those of the rows, and begin anew in each sequence.
REEL_API Ragged rotary(const Ragged& x, RotaryOptions options = {}, SourceLocation where = SourceLocation::current());

}  // namespace reel
