#pragma once

#include "reel/core/ragged.h"
#include "reel/core/random.h"

namespace reel {

struct DropoutOptions {
  /// Otherwise the result is x itself.
  bool training = true;
  /// Where the random numbers come from; none: the process's generator (manual_seed).
  Generator* generator = nullptr;
};

/// Each element with probability p is 0, else x / (1 - p): Srivastava et al., "Dropout", 2014, scaled in training. Element i
/// stays if the i-th uniform number is at least p: the same elements on every backend and for any number of threads. p = 0
/// gives x itself and uses no numbers; p = 1 gives zeros. f32 or f64, any shape. Backward keeps the numbers' place (seed,
/// stream, counter), and draws them again. Throws DTypeError, and Error unless 0 <= p <= 1.
REEL_API Tensor dropout(const Tensor& x, double p = 0.5, DropoutOptions options = {},
                        SourceLocation where = SourceLocation::current());
/// Element by element of the values.
REEL_API Ragged dropout(const Ragged& x, double p = 0.5, DropoutOptions options = {},
                        SourceLocation where = SourceLocation::current());

}  // namespace reel
