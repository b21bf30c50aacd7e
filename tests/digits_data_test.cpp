#include "reel/nn/digits_data.h"

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <cstring>
#include <set>
#include <string>

namespace reel::nn::digits {
namespace {

using Counts = std::array<int, kClasses>;

Counts counts_of(int begin, int end) {
  Counts counts{};
  for (int i = begin; i < end; ++i) ++counts.at(images().labels[i]);
  return counts;
}

std::string image(int i) { return {reinterpret_cast<const char*>(images().pixels[i]), kPixels}; }

TEST(DigitsData, CountsAreThoseOfTheSource) {
  EXPECT_EQ(counts_of(0, kImages), (Counts{178, 182, 177, 183, 181, 182, 181, 179, 174, 180}));
}

TEST(DigitsData, BothPartsHaveTheSameShareOfEachDigit) {
  const Counts all = counts_of(0, kImages), train = counts_of(0, kTrain), test = counts_of(kTrain, kImages);
  for (int digit = 0; digit < kClasses; ++digit) {
    EXPECT_LT(std::abs(train[digit] - double(all[digit]) * kTrain / kImages), 1) << digit;
    EXPECT_LT(std::abs(test[digit] - double(all[digit]) * kTest / kImages), 1) << digit;
  }
}

TEST(DigitsData, NoImageIsThereTwice) {
  std::set<std::string> seen;
  for (int i = 0; i < kImages; ++i) EXPECT_TRUE(seen.insert(image(i)).second) << i;
}

// A sum over images of FNV-1a of the 64 pixels and the digit, computed from the CSV file by other means: every pixel is
// the source's, whatever the order.
TEST(DigitsData, PixelsAreThoseOfTheSource) {
  std::uint64_t sum = 0, ink = 0;
  for (int i = 0; i < kImages; ++i) {
    std::uint64_t hash = 0xcbf29ce484222325;
    const auto add = [&hash](std::uint8_t byte) { hash = (hash ^ byte) * 0x100000001b3; };
    for (const std::uint8_t pixel : images().pixels[i]) {
      EXPECT_LE(pixel, 16);
      add(pixel);
      ink += pixel;
    }
    add(images().labels[i]);
    sum += hash;
  }
  EXPECT_EQ(sum, 0xb1c670a6c8285a09);
  EXPECT_EQ(ink, 561718u);
}

TEST(DigitsData, TheFirstTestImageIsTheZeroThatOpensTheFile) {
  const std::uint8_t zero[kPixels] = {0, 0,  5, 13, 9,  1, 0,  0, 0,  0,  13, 15, 10, 15, 5, 0,  0,  3, 15, 2, 0,  11,
                                      8, 0,  0, 4,  12, 0, 0,  8, 8,  0,  0,  5,  8,  0,  0, 9,  8,  0, 0,  4, 11, 0,
                                      1, 12, 7, 0,  0,  2, 14, 5, 10, 12, 0,  0,  0,  0,  6, 13, 10, 0, 0,  0};
  EXPECT_EQ(std::memcmp(images().pixels[kTrain], zero, kPixels), 0);
  EXPECT_EQ(images().labels[kTrain], 0);
}

}  // namespace
}  // namespace reel::nn::digits
