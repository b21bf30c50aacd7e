#pragma once

#include "reel/backends/cuda/kernel.h"

namespace reel::cuda {

/// values [n] to the sums of what stands before each, in place.
void exclusive_sums(const Context& context, int64_t* values, int64_t n);

}  // namespace reel::cuda
