#pragma once

// The whole of the scalar maths. Bounds, measured errors and extremes: docs/numerics.md.
#include "reel/core/scalar/activations.h"
#include "reel/core/scalar/arithmetic.h"
#include "reel/core/scalar/exp.h"
#include "reel/core/scalar/gamma.h"
#include "reel/core/scalar/log.h"
#include "reel/core/scalar/normal.h"
#include "reel/core/scalar/pow.h"
#include "reel/core/scalar/tanh.h"
#include "reel/core/scalar/trig.h"
