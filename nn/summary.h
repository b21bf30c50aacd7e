#pragma once

#include <string>

#include "reel/nn/module.h"

namespace reel::nn {

/// An aligned table: a row per module with its kind, its parameters' shapes (frozen ones marked, shared ones counted where
/// they are first), their elements and bytes; and the sums.
REEL_API std::string summary(const Module& module);

}  // namespace reel::nn
