#pragma once

#include "reel/core/ragged.h"
#include "reel/ops/reduce.h"

/// Activations that make the last axis shorter. A Ragged keeps its offsets; its values have at least two axes. f32 or f64.
/// Backward keeps x; gradients of any order. Throw DTypeError, and ShapeError for the size of the last axis.
namespace reel {

/// a sigmoid(b) for x [.., 2 n], whose last axis is a | b; the result is [.., n] (Dauphin et al., 2017).
REEL_API Tensor glu(const Tensor& x, SourceLocation where = SourceLocation::current());
/// a gelu(b), with the error function (Shazeer, 2020).
REEL_API Tensor geglu(const Tensor& x, SourceLocation where = SourceLocation::current());
/// a silu(b) (Shazeer, 2020).
REEL_API Tensor swiglu(const Tensor& x, SourceLocation where = SourceLocation::current());

/// The largest of each `pieces` neighbours: x [.., n pieces] gives [.., n] (Goodfellow et al., 2013). NaN if there is one; the
/// gradient goes to the first maximum. Throws ShapeError unless pieces >= 1 divides the last axis.
REEL_API Tensor maxout(const Tensor& x, std::int64_t pieces, SourceLocation where = SourceLocation::current());
/// As maxout, with the number of the first maximum among its neighbours, 0 .. pieces - 1.
REEL_API Winners maxout_which(const Tensor& x, std::int64_t pieces, SourceLocation where = SourceLocation::current());

REEL_API Ragged glu(const Ragged& x, SourceLocation where = SourceLocation::current());
REEL_API Ragged geglu(const Ragged& x, SourceLocation where = SourceLocation::current());
REEL_API Ragged swiglu(const Ragged& x, SourceLocation where = SourceLocation::current());
REEL_API Ragged maxout(const Ragged& x, std::int64_t pieces, SourceLocation where = SourceLocation::current());
REEL_API RaggedWinners maxout_which(const Ragged& x, std::int64_t pieces,
                                    SourceLocation where = SourceLocation::current());

}  // namespace reel
