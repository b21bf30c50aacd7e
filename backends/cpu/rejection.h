#pragma once

#include "reel/core/array.h"
#include "reel/core/ops.h"

/// Random numbers by rejection, an element at a time: nothing for vectors, so compiled once for the baseline.
namespace reel::cpu {

void random_gamma(const Array& alpha, const PhiloxState& state, const Array& y);
void random_poisson(const Array& rate, const PhiloxState& state, const Array& y);

}  // namespace reel::cpu
