#pragma once

#include <cstdint>
#include <type_traits>

#include "reel/core/macros.h"

// Numbers of 16 bits, and how they are rounded: to nearest, ties to even. Branch-free, for loops that are vectorised, and
// without a library, for kernels and constants.

namespace reel {

namespace detail {

/// Bits of the floats at which something changes for float16: 2^-14, its least normal number; 2^16, beyond its range; infinity.
inline constexpr std::uint32_t kLeastNormal16 = 0x38800000, kBeyond16 = 0x47800000, kInfinity32 = 0x7f800000;
/// A float's exponent counts from 127, a float16's from 15; its fraction has 23 bits, the other's 10.
inline constexpr std::uint32_t kRebias = 112u << 23;

REEL_SCALAR constexpr std::uint32_t bits_of(float x) { return __builtin_bit_cast(std::uint32_t, x); }
REEL_SCALAR constexpr float float_of(std::uint32_t bits) { return __builtin_bit_cast(float, bits); }

/// x / 2^cut, rounded; at most 2^32 - 1 as well.
REEL_SCALAR constexpr std::uint32_t shifted_to_even(std::uint32_t x, int cut) {
  return (x + ((1u << (cut - 1)) - 1) + (x >> cut & 1)) >> cut;
}

/// A NaN keeps its sign and the first bits of its payload, and becomes quiet.
REEL_SCALAR constexpr std::uint16_t bfloat16_bits(float x) {
  const std::uint32_t bits = bits_of(x);
  const bool nan = (bits & 0x7fffffff) > kInfinity32;
  return static_cast<std::uint16_t>(nan ? bits >> 16 | 0x40 : shifted_to_even(bits, 16));
}
REEL_SCALAR constexpr float bfloat16_value(std::uint16_t bits) {
  return float_of(static_cast<std::uint32_t>(bits) << 16);
}

REEL_SCALAR constexpr std::uint16_t float16_bits(float x) {
  const std::uint32_t bits = bits_of(x), size = bits & 0x7fffffff;
  const std::uint32_t nan = 0x7e00 | (size >> 13 & 0x3ff), normal = shifted_to_even(size - kRebias, 13);
  // Beside 0.5 a float's last bit is 2^-24, that of float16's denormal numbers: the sum rounds as they are rounded.
  const bool tiny = size < kLeastNormal16;
  const std::uint32_t denormal = bits_of(float_of(tiny ? size : 0) + 0.5F) - bits_of(0.5F);
  const std::uint32_t finite = tiny ? denormal : normal;
  const std::uint32_t result = size > kInfinity32 ? nan : size >= kBeyond16 ? 0x7c00 : finite;
  return static_cast<std::uint16_t>(result | (bits >> 16 & 0x8000));
}
REEL_SCALAR constexpr float float16_value(std::uint16_t bits) {
  const std::uint32_t size = (bits & 0x7fffu) << 13, exponent = bits & 0x7c00u;
  // A denormal number's fraction behind the exponent of 2^-14 is 2^-14 too much.
  const std::uint32_t denormal = bits_of(float_of(size + kLeastNormal16) - float_of(kLeastNormal16));
  const std::uint32_t normal = size + kRebias, infinite = normal + kRebias;
  const std::uint32_t result = exponent == 0x7c00 ? infinite : exponent == 0 ? denormal : normal;
  return float_of(result | (bits & 0x8000u) << 16);
}

/// x as a float of which rounding to 16 bits gives what rounding x at once would: cut off, but with the last bit set if
/// anything was lost.
REEL_SCALAR constexpr float rounded_to_odd(double x) {
  const auto nearest = static_cast<float>(x);
  const auto back = static_cast<double>(nearest);
  const bool odd = (bits_of(nearest) & 1) != 0, lost = back < x || back > x, smaller = (back < x) == (x > 0);
  const std::uint32_t step = odd || !lost ? 0 : smaller ? 1 : 0xffffffff;
  return float_of(bits_of(nearest) + step);
}

}  // namespace detail

/// A number in 16 bits with float's range and 8 significant bits. From a number: rounded once, to nearest even; beyond the
/// range infinity. To float: exact. It stores: to compute, convert.
struct bfloat16 {
  std::uint16_t bits;

  bfloat16() = default;
  REEL_SCALAR explicit constexpr bfloat16(float x) : bits(detail::bfloat16_bits(x)) {}
  REEL_SCALAR explicit constexpr bfloat16(double x) : bfloat16(detail::rounded_to_odd(x)) {}
  /// By way of double.
  template <class I>
  requires std::is_integral_v<I> REEL_SCALAR explicit constexpr bfloat16(I x) : bfloat16(static_cast<double>(x)) {}
  REEL_SCALAR constexpr operator float() const { return detail::bfloat16_value(bits); }
};

/// The same with 11 significant bits, up to 65504 (IEEE 754's binary16).
struct float16 {
  std::uint16_t bits;

  float16() = default;
  REEL_SCALAR explicit constexpr float16(float x) : bits(detail::float16_bits(x)) {}
  REEL_SCALAR explicit constexpr float16(double x) : float16(detail::rounded_to_odd(x)) {}
  template <class I>
  requires std::is_integral_v<I> REEL_SCALAR explicit constexpr float16(I x) : float16(static_cast<double>(x)) {}
  REEL_SCALAR constexpr operator float() const { return detail::float16_value(bits); }
};

/// Whether T is one of them.
template <class T>
inline constexpr bool is_half_type = std::is_same_v<T, bfloat16> || std::is_same_v<T, float16>;

}  // namespace reel
