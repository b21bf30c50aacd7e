#pragma once

#include <cstdint>
#include <type_traits>

#include "reel/core/dtype.h"
#include "reel/core/macros.h"

namespace reel::cuda {

/// The extreme values of an integer type.
template <class T>
inline constexpr T kLowest = std::is_signed_v<T> ? static_cast<T>(T(1) << (8 * sizeof(T) - 1)) : T(0);
template <class T>
inline constexpr T kHighest = static_cast<T>(~kLowest<T>);

/// x as a To, as `Ops::copy` converts: to bool x != 0; floating to integer truncates, out of range becomes the nearest integer
/// there is and NaN 0; integers modulo 2^bits; to floating rounds to nearest. (bfloat16 and float16: from float and double, to
/// float.)
template <class To, class From>
REEL_SCALAR To convert(From x) {
  if constexpr (std::is_same_v<To, From>) {
    return x;
  } else if constexpr (std::is_same_v<To, bool>) {
    return x != From(0);
  } else if constexpr (std::is_integral_v<To> && std::is_floating_point_v<From>) {
    // 2^bits and 0 or -2^bits are exact in any floating type, unlike the highest integer.
    constexpr From below = static_cast<From>(kLowest<To>);
    constexpr From beyond = static_cast<From>(kHighest<To> / 2 + 1) * 2;
    const bool fits = x > below - 1 && x < beyond;
    const To inside = static_cast<To>(fits ? x : From(0));
    return x >= beyond ? kHighest<To> : x <= below ? kLowest<To> : inside;
  } else {
    return static_cast<To>(x);
  }
}

/// A plain number as an element.
template <class T>
T convert_scalar(const Scalar& value) {
  if constexpr (std::is_integral_v<T>) {
    return value.integral ? convert<T>(value.integer) : convert<T>(value.real);
  } else {
    return static_cast<T>(value.real);
  }
}

/// The bytes of `value` as an element of a dtype.
std::uint64_t element_bits(DType dtype, Scalar value);

}  // namespace reel::cuda
