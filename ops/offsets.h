#pragma once

// Private to ops/: what ops on two Ragged check.

#include <string>

#include "reel/core/error.h"
#include "reel/core/ragged.h"

namespace reel::check {

/// ShapeError unless both have the same lengths.
inline void same_lengths(const char* op, const Ragged& a, const Ragged& b, SourceLocation where) {
  if (!(a.offsets() == b.offsets()))
    throw ShapeError(std::string(op) + ": Ragged operands must have the same lengths, got " +
                         std::to_string(a.count()) + " sequences of " + std::to_string(a.total()) + " rows and " +
                         std::to_string(b.count()) + " of " + std::to_string(b.total()),
                     where);
}

}  // namespace reel::check
