#pragma once

#include "reel/core/dtype.h"
#include "reel/core/error.h"

namespace reel::detail {

/// Throws Error unless `dtype` can hold the number: an integer's dtype what lies in its range, a fraction cut off; others any.
REEL_API void check_fits(const char* op, Scalar value, DType dtype, SourceLocation where);

}  // namespace reel::detail
