#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "reel/core/half.h"
#include "reel/core/macros.h"

namespace reel {

/// The element types of a Tensor.
enum class DType : std::uint8_t { f32, f64, bf16, f16, i32, i64, u8, bool8 };

inline constexpr DType f32 = DType::f32;
inline constexpr DType f64 = DType::f64;
inline constexpr DType bf16 = DType::bf16;
inline constexpr DType f16 = DType::f16;
inline constexpr DType i32 = DType::i32;
inline constexpr DType i64 = DType::i64;
inline constexpr DType u8 = DType::u8;
inline constexpr DType bool8 = DType::bool8;

/// Bytes of one element.
REEL_INLINE constexpr std::size_t size_of(DType dtype) {
  constexpr std::uint64_t sizes = 0x01'01'08'04'02'02'08'04;  // a byte for each; a shift is less than a table in memory
  return sizes >> (8 * static_cast<int>(dtype)) & 0xff;
}

/// Numbers with fractions, which have gradients.
REEL_INLINE constexpr bool is_floating(DType dtype) { return dtype <= DType::f16; }

/// bf16 or f16: moved, converted and multiplied (matmul, linear), but not computed with otherwise.
REEL_INLINE constexpr bool is_half(DType dtype) { return dtype == DType::bf16 || dtype == DType::f16; }

/// "f32", "i64", ...
REEL_INLINE constexpr const char* name_of(DType dtype) {
  constexpr const char* names[] = {"f32", "f64", "bf16", "f16", "i32", "i64", "u8", "bool8"};
  return names[static_cast<int>(dtype)];
}

namespace detail {
template <class T>
struct DTypeOf;
template <>
struct DTypeOf<float> {
  static constexpr DType value = DType::f32;
};
template <>
struct DTypeOf<double> {
  static constexpr DType value = DType::f64;
};
template <>
struct DTypeOf<bfloat16> {
  static constexpr DType value = DType::bf16;
};
template <>
struct DTypeOf<float16> {
  static constexpr DType value = DType::f16;
};
template <>
struct DTypeOf<std::int32_t> {
  static constexpr DType value = DType::i32;
};
template <>
struct DTypeOf<std::int64_t> {
  static constexpr DType value = DType::i64;
};
template <>
struct DTypeOf<long long> {
  static constexpr DType value = DType::i64;
};
template <>
struct DTypeOf<std::uint8_t> {
  static constexpr DType value = DType::u8;
};
template <>
struct DTypeOf<bool> {
  static constexpr DType value = DType::bool8;
};

/// Throws DTypeError for the op that runs: it has no kernels for bf16 and f16.
[[noreturn]] REEL_API void refuse_half(DType dtype);
}  // namespace detail

/// The DType of the C++ type T.
template <class T>
inline constexpr DType dtype_of = detail::DTypeOf<T>::value;

/// A plain number in an expression: it never becomes a tensor and never changes a tensor's dtype class.
struct Scalar {
  double real = 0;
  std::int64_t integer = 0;
  bool integral = false;

  REEL_INLINE constexpr Scalar() = default;
  REEL_INLINE constexpr Scalar(double value) : real(value) {}
  REEL_INLINE constexpr Scalar(float value) : real(value) {}
  template <class I>
  requires std::is_integral_v<I> REEL_INLINE constexpr Scalar(I value)
      : real(static_cast<double>(value)), integer(static_cast<std::int64_t>(value)), integral(true) {}

  template <class T>
  REEL_INLINE constexpr T as() const {
    if constexpr (is_floating(dtype_of<T>)) return static_cast<T>(real);
    return integral ? static_cast<T>(integer) : static_cast<T>(real);
  }
};

}  // namespace reel
