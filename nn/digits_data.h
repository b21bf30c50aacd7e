#pragma once

#include <cstdint>

#include "reel/core/macros.h"

/// A small data set of real images that is part of the library: 1,797 handwritten digits of 8 x 8 pixels.
/// "Optical Recognition of Handwritten Digits", E. Alpaydin and C. Kaynak, UCI Machine Learning Repository,
/// https://archive.ics.uci.edu/dataset/80, licensed under CC BY 4.0.
namespace reel::nn::digits {

inline constexpr int kTrain = 1437;
inline constexpr int kTest = 360;
inline constexpr int kImages = kTrain + kTest;
inline constexpr int kSide = 8;
inline constexpr int kPixels = kSide * kSide;
inline constexpr int kClasses = 10;

/// The first kTrain images are for training, the last kTest for testing: a fixed split with the same share of each digit.
struct Images {
  std::uint8_t pixels[kImages][kPixels];  // 0 (paper) to 16 (ink), row by row
  std::uint8_t labels[kImages];           // 0 to 9
};

/// Decoded at the first call; safe to call from several threads.
REEL_API const Images& images();

}  // namespace reel::nn::digits
