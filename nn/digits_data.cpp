#include "reel/nn/digits_data.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <vector>

namespace reel::nn::digits {
namespace {

constexpr std::uint64_t kEncoded[] = {
#include "reel/nn/digits_data.inc"
};

// Arithmetic decoding: an interval of 32-bit numbers that holds the code is narrowed by the probability of each bit, and the bytes
// that both its ends share are left behind.
class Decoder {
 public:
  Decoder() {
    for (int i = 0; i < 4; ++i) shift();
  }

  // `one`, the probability of a 1 in 65536ths, follows what came.
  int bit(std::uint16_t& one) {
    const auto middle = static_cast<std::uint32_t>(low_ + ((std::uint64_t{high_ - low_} * one) >> 16));
    const bool is_one = code_ <= middle;
    if (is_one) {
      high_ = middle;
      one = static_cast<std::uint16_t>(one + ((65536 - one) >> 5));
    } else {
      low_ = middle + 1;
      one = static_cast<std::uint16_t>(one - (one >> 5));
    }
    while (low_ >> 24 == high_ >> 24) shift();
    return is_one ? 1 : 0;
  }
  int four_bits(std::uint16_t (&ones)[16]) {
    int node = 1;
    while (node < 16) node = 2 * node + bit(ones[node]);
    return node - 16;
  }

 private:
  void shift() {
    const std::size_t word = next_ / 8;
    const std::uint64_t byte = word < std::size(kEncoded) ? kEncoded[word] >> (56 - 8 * (next_ % 8)) & 255 : 0;
    ++next_;
    low_ <<= 8;
    high_ = high_ << 8 | 255;
    code_ = code_ << 8 | static_cast<std::uint32_t>(byte);
  }

  std::uint32_t low_ = 0, high_ = 0xffffffff, code_ = 0;
  std::size_t next_ = 0;  // byte of the code
};

// The probabilities of a pixel's bits, given its place and the ink on its left and above: whether it is above 0, then those of
// pixel - 1. Or those of the digit's.
struct Context {
  std::uint16_t ones[16];
  Context() { std::fill(std::begin(ones), std::end(ones), std::uint16_t{1 << 15}); }
};

Images decode() {
  Images result;
  Decoder decoder;
  constexpr int kAmounts = 5;
  Context digit;
  std::vector<Context> contexts(kPixels * kAmounts);
  for (int image = 0; image < kImages; ++image) {
    result.labels[image] = static_cast<std::uint8_t>(decoder.four_bits(digit.ones));
    std::uint8_t* const pixels = result.pixels[image];
    for (int i = 0; i < kPixels; ++i) {
      const int left = i % kSide > 0 ? pixels[i - 1] : 0, above = i >= kSide ? pixels[i - kSide] : 0;
      auto& ones = contexts[static_cast<std::size_t>(i * kAmounts + (left + above + 7) / 8)].ones;
      pixels[i] = static_cast<std::uint8_t>(decoder.bit(ones[0]) == 1 ? decoder.four_bits(ones) + 1 : 0);
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
