#pragma once

#include <cstdint>

#include "reel/core/macros.h"

/// MurmurHash3_x64_128 (Austin Appleby, 2011, public domain): not for secrets, but every bit of the key moves every bit of the
/// hash. Integer arithmetic on bytes, so that every machine gives the same bits.
namespace reel::scalar {

struct Murmur3Hash {
  std::uint64_t word[2];

  /// 32 bits of the hash, the lowest ones first: i = 0 .. 3.
  REEL_SCALAR std::uint32_t lane(int i) const { return static_cast<std::uint32_t>(word[i / 2] >> (i % 2 * 32)); }
};

REEL_SCALAR std::uint64_t rotate_left(std::uint64_t x, int bits) { return x << bits | x >> (64 - bits); }

/// `count` <= 8 bytes, the lowest first.
REEL_SCALAR std::uint64_t murmur3_word(const unsigned char* bytes, std::int64_t count) {
  std::uint64_t word = 0;
  for (std::int64_t i = 0; i < count; ++i) word |= std::uint64_t{bytes[i]} << (8 * i);
  return word;
}

/// Spreads every bit of h over all of them.
REEL_SCALAR std::uint64_t murmur3_mix(std::uint64_t h) {
  h = (h ^ h >> 33) * 0xff51afd7ed558ccdu;
  h = (h ^ h >> 33) * 0xc4ceb9fe1a85ec53u;
  return h ^ h >> 33;
}

/// The hash of `size` bytes. Each 16 of them are two words, of which each goes into one half of the state; what is left at
/// the end goes in without stirring the state.
REEL_SCALAR Murmur3Hash murmur3(const unsigned char* key, std::int64_t size, std::uint32_t seed) {
  constexpr std::uint64_t c1 = 0x87c37b91114253d5u, c2 = 0x4cf5ad432745937fu;
  const auto first = [](std::uint64_t k) __attribute__((always_inline)) { return rotate_left(k * c1, 31) * c2; };
  const auto second = [](std::uint64_t k) __attribute__((always_inline)) { return rotate_left(k * c2, 33) * c1; };
  std::uint64_t h1 = seed, h2 = seed;
  std::int64_t i = 0;
  for (; i + 16 <= size; i += 16) {
    h1 = (rotate_left(h1 ^ first(murmur3_word(key + i, 8)), 27) + h2) * 5 + 0x52dce729u;
    h2 = (rotate_left(h2 ^ second(murmur3_word(key + i + 8, 8)), 31) + h1) * 5 + 0x38495ab5u;
  }
  const std::int64_t left = size - i;
  if (left > 8) h2 ^= second(murmur3_word(key + i + 8, left - 8));
  if (left > 0) h1 ^= first(murmur3_word(key + i, left < 8 ? left : 8));
  h1 ^= static_cast<std::uint64_t>(size);
  h2 ^= static_cast<std::uint64_t>(size);
  h1 += h2;
  h2 += h1;
  h1 = murmur3_mix(h1);
  h2 = murmur3_mix(h2);
  h1 += h2;
  h2 += h1;
  return {{h1, h2}};
}

}  // namespace reel::scalar
