#pragma once

#include "reel/nn/batches.h"
#include "reel/nn/digits_data.h"

namespace reel::nn::digits {

/// The embedded digits as tensors: inputs f32 [n, 1, 8, 8], from 0 (paper) to 1 (ink); targets i64 [n], 0 to 9.
/// 1,437 images for training.
REEL_API Dataset train();
/// 360 others for testing.
REEL_API Dataset test();

}  // namespace reel::nn::digits
