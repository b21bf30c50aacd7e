#pragma once

#include "reel/core/scalar/log.h"
#include "reel/core/scalar/trig.h"

/// Philox4x32-10 (Salmon, Moraes, Dror and Shaw, "Parallel random numbers: as easy as 1, 2, 3", 2011) and the numbers
/// that are made of it. Counter-based: block number `counter` of a stream needs no other block. Everything here is
/// integer arithmetic, separate multiplications and additions and square roots: every machine gives the same bits.
namespace reel::scalar {

/// Four random numbers of 32 bits.
struct PhiloxBlock {
  std::uint32_t lane[4];
};

/// Key = seed; counter = {counter low, counter high, stream low, stream high}.
REEL_SCALAR PhiloxBlock philox(std::uint64_t seed, std::uint64_t stream, std::uint64_t counter) {
  std::uint32_t c0 = static_cast<std::uint32_t>(counter), c1 = static_cast<std::uint32_t>(counter >> 32);
  std::uint32_t c2 = static_cast<std::uint32_t>(stream), c3 = static_cast<std::uint32_t>(stream >> 32);
  std::uint32_t k0 = static_cast<std::uint32_t>(seed), k1 = static_cast<std::uint32_t>(seed >> 32);
  REEL_UNROLL
  for (int round = 0; round < 10; ++round) {
    const std::uint64_t p0 = std::uint64_t{0xD2511F53u} * c0;
    const std::uint64_t p1 = std::uint64_t{0xCD9E8D57u} * c2;
    c0 = static_cast<std::uint32_t>(p1 >> 32) ^ c1 ^ k0;
    c1 = static_cast<std::uint32_t>(p1);
    c2 = static_cast<std::uint32_t>(p0 >> 32) ^ c3 ^ k1;
    c3 = static_cast<std::uint32_t>(p0);
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
  }
  return {{c0, c1, c2, c3}};
}

/// [0, 1) in steps of 2^-24: one lane per number.
REEL_SCALAR float uniform_float(std::uint32_t lane) {
  return static_cast<float>(static_cast<int>(lane >> 8)) * 0x1p-24f;
}

/// [0, 1) in steps of 2^-53: two lanes per number.
REEL_SCALAR double uniform_double(std::uint32_t high, std::uint32_t low) {
  const double leading = static_cast<int>(high >> 5);  // 27 bits
  const double rest = static_cast<int>(low >> 6);      // 26 bits
  return (leading * 0x1p26 + rest) * 0x1p-53;
}

template <class T>
struct Pair {
  T first, second;
};

/// Box and Muller: radius (cos, sin) for radius = sqrt(-2 log u), u in (0, 1], and the angle 2 pi (quarters / 4) + r,
/// with |r| <= pi / 4: the angle comes reduced, for it is made of random bits.
template <class T>
REEL_SCALAR Pair<T> box_muller(T u, std::uint32_t quarters, T r) {
  const T radius = sqrt(T(-2) * log<NoFma>(u));
  const T s = sin_polynomial<NoFma>(r);
  const T c = cos_polynomial<NoFma>(r);
  const bool odd = (quarters & 1u) != 0;
  const T x = odd ? s : c;
  const T y = odd ? c : s;
  const T signed_x = ((quarters + 1u) & 2u) != 0 ? -x : x;  // quarters 1 and 2
  const T signed_y = (quarters & 2u) != 0 ? -y : y;         // quarters 2 and 3
  return {radius * signed_x, radius * signed_y};
}

/// Two independent standard normal numbers of two lanes; at most 6.77 in size.
REEL_SCALAR Pair<float> normal_pair(std::uint32_t a, std::uint32_t b) {
  // u = (a + 1/2) 2^-32, rounded once: the halves of a are exact numbers.
  const float high = static_cast<float>(static_cast<int>(a >> 16)) * 65536.0f;
  const float low = static_cast<float>(static_cast<int>(a & 0xffffu)) + 0.5f;
  const float u = (high + low) * 0x1p-32f;
  const std::uint32_t quarters = (b + 0x20000000u) >> 30;
  const float turn = static_cast<float>(static_cast<int>(b - (quarters << 30)));
  return box_muller(u, quarters, turn * 0x1.921fb6p-30f);  // 2 pi / 2^32
}

/// Two independent standard normal numbers of a block; at most 8.66 in size.
REEL_SCALAR Pair<double> normal_pair(const PhiloxBlock& block) {
  const double u = uniform_double(block.lane[0], block.lane[1]) + 0x1p-54;
  const std::uint32_t b = block.lane[2];
  const std::uint32_t quarters = (b + 0x20000000u) >> 30;
  const double leading = static_cast<int>(b - (quarters << 30));
  const double rest = static_cast<int>(block.lane[3] >> 9);  // 23 bits
  const double turn = leading + rest * 0x1p-23;
  return box_muller(u, quarters, turn * 0x1.921fb54442d18p-30);
}

}  // namespace reel::scalar
