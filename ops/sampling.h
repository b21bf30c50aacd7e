#pragma once

#include "reel/core/random.h"
#include "reel/core/tensor.h"

namespace reel {

/// Numbers from the standard gamma distribution (rate 1) of shapes alpha [...], computed in f64; the result has alpha's shape
/// and dtype (f32 or f64) and is a constant to tapes. Shape 0 gives 0, below 0 NaN. Marsaglia and Tsang (2000). From the
/// process's generator unless one is given, which moves on by 64 blocks per element. Throws DTypeError.
REEL_API Tensor standard_gamma(const Tensor& alpha, Generator* generator = nullptr,
                               SourceLocation where = SourceLocation::current());
/// The same from Poisson's distribution of mean rate [...]: whole numbers. By inversion below rate 10, else by Hoermann's PTRS
/// (1993). Below 0 NaN.
REEL_API Tensor poisson(const Tensor& rate, Generator* generator = nullptr,
                        SourceLocation where = SourceLocation::current());

}  // namespace reel
