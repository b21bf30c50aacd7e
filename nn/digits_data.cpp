#include "reel/nn/digits_data.h"

#include <array>
#include <cstddef>

namespace reel::nn::digits {
namespace {

constexpr char kAlphabet[] = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz!#$%&()*+";
constexpr int kBase = sizeof kAlphabet - 1;
constexpr int kLevels = 17;
constexpr int kImageChars = 1 + 2 * ((kPixels + 2) / 3);  // the digit, then a pair of characters for three pixels

constexpr char kEncoded[] =
#include "reel/nn/digits_data.inc"
    ;
static_assert(sizeof kEncoded - 1 == std::size_t{kImages} * kImageChars);

Images decode() {
  std::array<std::uint8_t, 128> value{};
  for (int i = 0; i < kBase; ++i) value[kAlphabet[i]] = static_cast<std::uint8_t>(i);
  Images result;
  const char* next = kEncoded;
  for (int image = 0; image < kImages; ++image) {
    result.labels[image] = static_cast<std::uint8_t>(*next++ - '0');
    for (int first = 0; first < kPixels; first += 3) {
      const int last = first + 3 < kPixels ? first + 2 : kPixels - 1;
      int number = value[next[0]] * kBase + value[next[1]];
      next += 2;
      for (int pixel = last; pixel >= first; --pixel, number /= kLevels)
        result.pixels[image][pixel] = static_cast<std::uint8_t>(number % kLevels);
    }
  }
  return result;
}

}  // namespace

const Images& images() {
  static const Images decoded = decode();
  return decoded;
}

}  // namespace reel::nn::digits
