// Numbers of 16 bits: each pattern against what its format says in doubles, and each way of rounding.

#include "reel/core/half.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>
#include <vector>

#include "reel/core/tensor.h"
#include "reel/ops/arithmetic.h"
#include "reel/ops/convert.h"
#include "reel/ops/create.h"
#include "reel/ops/views.h"

namespace reel {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

template <class T>
T of_bits(unsigned bits) {
  T x;
  x.bits = static_cast<std::uint16_t>(bits);
  return x;
}

// sign, exponent, fraction: (-1)^sign 2^(exponent - bias) 1.fraction, and 2^(1 - bias) 0.fraction where the exponent is
// 0.
template <class T>
struct Format;
template <>
struct Format<bfloat16> {
  static constexpr int exponent_bits = 8, fraction_bits = 7;
  static constexpr DType dtype = bf16;
};
template <>
struct Format<float16> {
  static constexpr int exponent_bits = 5, fraction_bits = 10;
  static constexpr DType dtype = f16;
};

template <class T>
double value_of(unsigned bits) {
  using F = Format<T>;
  constexpr int bias = (1 << (F::exponent_bits - 1)) - 1, most = (1 << F::exponent_bits) - 1;
  const int exponent = static_cast<int>(bits >> F::fraction_bits) & most;
  const double fraction = std::ldexp(bits & ((1u << F::fraction_bits) - 1), -F::fraction_bits);
  const double size = exponent == most ? (fraction == 0 ? kInfinity : NAN)
                      : exponent == 0  ? std::ldexp(fraction, 1 - bias)
                                       : std::ldexp(1 + fraction, exponent - bias);
  return (bits & 0x8000) != 0 ? -size : size;
}

template <class T>
class Half : public testing::Test {};
using Halves = testing::Types<bfloat16, float16>;
TYPED_TEST_SUITE(Half, Halves);

TYPED_TEST(Half, EveryPatternIsTheNumberThatItsFormatSays) {
  for (unsigned bits = 0; bits <= 0xffff; ++bits) {
    const float got = of_bits<TypeParam>(bits);
    const double want = value_of<TypeParam>(bits);
    ASSERT_EQ(std::signbit(got), (bits & 0x8000) != 0) << std::hex << bits;
    if (std::isnan(want)) ASSERT_TRUE(std::isnan(got)) << std::hex << bits;
    else ASSERT_EQ(got, want) << std::hex << bits;
  }
}

TYPED_TEST(Half, EveryPatternComesBackAndNaNQuiet) {
  constexpr unsigned quiet = 1u << (Format<TypeParam>::fraction_bits - 1);
  for (unsigned bits = 0; bits <= 0xffff; ++bits) {
    const float x = of_bits<TypeParam>(bits);
    ASSERT_EQ(TypeParam(x).bits, std::isnan(x) ? bits | quiet : bits) << std::hex << bits;
    ASSERT_EQ(TypeParam(static_cast<double>(x)).bits, std::isnan(x) ? bits | quiet : bits) << std::hex << bits;
  }
}

// Between each number and the next: the middle goes to the even one, anything beside it to the nearer one. Infinity
// stands where the next number would be.
TYPED_TEST(Half, RoundsToNearestAndTiesToEven) {
  const unsigned infinity = TypeParam(kInfinity).bits;
  for (unsigned bits = 0; bits < infinity; ++bits) {
    const double low = value_of<TypeParam>(bits),
                 high = bits + 1 < infinity ? value_of<TypeParam>(bits + 1) : 2 * low - value_of<TypeParam>(bits - 1),
                 middle = low + (high - low) / 2;
    const unsigned even = bits + (bits & 1);
    for (const unsigned sign : {0u, 0x8000u}) {
      const double turn = sign != 0 ? -1 : 1;
      ASSERT_EQ(TypeParam(turn * middle).bits, even | sign) << middle;
      ASSERT_EQ(TypeParam(turn * std::nextafter(middle, 0)).bits, bits | sign) << middle;
      ASSERT_EQ(TypeParam(turn * std::nextafter(middle, kInfinity)).bits, (bits + 1) | sign) << middle;
      const auto single = static_cast<float>(middle);
      if (single != middle) continue;  // beyond float's denormal numbers
      ASSERT_EQ(TypeParam(static_cast<float>(turn) * single).bits, even | sign) << middle;
      ASSERT_EQ(TypeParam(static_cast<float>(turn) * std::nextafter(single, 0.0F)).bits, bits | sign) << middle;
      ASSERT_EQ(TypeParam(static_cast<float>(turn) * std::nextafter(single, INFINITY)).bits, (bits + 1) | sign);
    }
  }
}

TYPED_TEST(Half, BeyondTheRangeIsInfinityAndBelowItZero) {
  for (const double sign : {1.0, -1.0}) {
    for (const double size : {1e39, 1e300, kInfinity}) EXPECT_EQ(float(TypeParam(sign * size)), sign * kInfinity);
    for (const double size : {1e-46, 1e-300, 5e-324}) {
      EXPECT_EQ(float(TypeParam(sign * size)), 0);
      EXPECT_EQ(std::signbit(float(TypeParam(sign * size))), sign < 0);
    }
  }
  EXPECT_TRUE(std::isnan(float(TypeParam(NAN))));
}

static_assert(bfloat16(1.0F + 0x1p-8F).bits == 0x3f80 && bfloat16(3).bits == 0x4040 && bfloat16(-0.0).bits == 0x8000);
static_assert(float16(65519.0F).bits == 0x7bff && float16(65520.0F).bits == 0x7c00 && float16(0x1p-24).bits == 1);
static_assert(sizeof(bfloat16) == 2 && sizeof(float16) == 2 && std::is_trivial_v<bfloat16> &&
              std::is_trivial_v<float16>);

// --- as elements ---------------------------------------------------------------------------------------------------

TYPED_TEST(Half, ATensorOfEveryPatternIsConvertedAsOneNumberIs) {
  std::vector<TypeParam> all;
  for (unsigned bits = 0; bits <= 0xffff; ++bits) all.push_back(of_bits<TypeParam>(bits));
  const Tensor x = from_vector(all);
  EXPECT_EQ(x.dtype(), Format<TypeParam>::dtype);
  const std::vector<float> wide = cast(x, f32).to_vector<float>();
  const std::vector<double> wider = x.to_vector<double>();
  const std::vector<TypeParam> back = cast(cast(x, f32), x.dtype()).template to_vector<TypeParam>();
  for (unsigned bits = 0; bits <= 0xffff; ++bits) {
    const float want = all[bits];
    ASSERT_EQ(std::memcmp(&wide[bits], &want, sizeof want), 0) << std::hex << bits;
    ASSERT_TRUE(wider[bits] == want || std::isnan(want)) << std::hex << bits;
    ASSERT_EQ(back[bits].bits, TypeParam(want).bits) << std::hex << bits;
  }
  for (int n = 0; n < 20; ++n) {
    for (const int from : {1000, 0xffff - n}) {  // numbers, NaN
      const std::vector<float> some = cast(slice(x, 0, from, from + n), f32).to_vector<float>();
      ASSERT_EQ(some.size(), static_cast<std::size_t>(n));
      if (n > 0) {
        EXPECT_EQ(std::memcmp(some.data(), wide.data() + from, static_cast<std::size_t>(n) * sizeof(float)), 0);
      }
    }
  }
}

// Those between two halves, on either side of them and of the tie, and NaN with any payload; runs of any length.
TYPED_TEST(Half, ATensorOfFloatsIsRoundedAsOneFloatIs) {
  std::vector<float> all;
  for (std::uint64_t bits = 0; bits <= 0xffffffff; bits += 0x7fd)
    all.push_back(std::bit_cast<float>(static_cast<std::uint32_t>(bits)));
  const auto check = [](const std::vector<float>& x) {
    const std::vector<TypeParam> halves =
        cast(from_vector(x), Format<TypeParam>::dtype).template to_vector<TypeParam>();
    for (std::size_t i = 0; i < x.size(); ++i) ASSERT_EQ(halves[i].bits, TypeParam(x[i]).bits) << std::hexfloat << x[i];
  };
  check(all);
  const auto one = all.begin() + 0x3f800000 / 0x7fd;  // the number 1, about
  for (std::ptrdiff_t n = 0; n < 20; ++n) check({one, one + n});
}

// Halves and the ties between them with what a float cannot tell from them on either side, also beyond floats' range, and NaN
// whose payload a float has no place for; runs of any length.
TYPED_TEST(Half, ATensorOfDoublesIsRoundedAsOneDoubleIs) {
  std::vector<double> all;
  const auto add_around = [&](double x) {
    for (const double y : {x, std::nextafter(x, 0), std::nextafter(x, kInfinity)}) all.insert(all.end(), {y, -y});
  };
  for (unsigned bits = 0; bits < TypeParam(kInfinity).bits; ++bits) {
    const double half = value_of<TypeParam>(bits), before = value_of<TypeParam>(bits == 0 ? 0 : bits - 1);
    add_around(half);
    add_around((before + half) / 2);
  }
  for (int exponent = -1074; exponent < 1024; ++exponent) add_around(std::ldexp(1.0, exponent));
  for (int bit = 0; bit < 52; ++bit) {
    for (const std::uint64_t sign : {std::uint64_t(0), std::uint64_t(1) << 63})
      all.push_back(std::bit_cast<double>(sign | 0x7ff0000000000000 | std::uint64_t(1) << bit));
  }
  all.insert(all.end(), {kInfinity, -kInfinity, 0.0, -0.0, 65519.999999999, 65520.0, 1e39, -1e300});
  const auto check = [](const std::vector<double>& x) {
    const std::vector<TypeParam> halves =
        cast(from_vector(x), Format<TypeParam>::dtype).template to_vector<TypeParam>();
    for (std::size_t i = 0; i < x.size(); ++i) ASSERT_EQ(halves[i].bits, TypeParam(x[i]).bits) << std::hexfloat << x[i];
  };
  check(all);
  for (std::ptrdiff_t n = 0; n < 20; ++n) check({all.end() - n, all.end()});
}

TYPED_TEST(Half, ATensorOfIntegersIsRoundedAsOneIntegerIs) {
  std::vector<std::int64_t> all;
  for (int shift = 0; shift < 63; ++shift) {
    const std::int64_t power = std::int64_t(1) << shift, half = shift < 12 ? 0 : std::int64_t(1) << (shift - 12);
    for (const std::int64_t more : {std::int64_t(0), half, half / 2, 2 * half, 16 * half, 8 * half}) {
      for (const std::int64_t i : {power + more - 1, power + more, power + more + 1}) all.insert(all.end(), {i, -i});
    }
  }
  for (std::int64_t i = 65000; i < 66000; ++i) all.push_back(i);
  all.insert(all.end(), {INT64_MIN, INT64_MAX, INT32_MIN, INT32_MAX});
  const auto check = []<class T>(const std::vector<T>& x) {
    const std::vector<TypeParam> halves =
        cast(from_vector(x), Format<TypeParam>::dtype).template to_vector<TypeParam>();
    for (std::size_t i = 0; i < x.size(); ++i) ASSERT_EQ(halves[i].bits, TypeParam(x[i]).bits) << x[i];
  };
  check(all);
  std::vector<std::int32_t> small;
  for (const std::int64_t i : all)
    if (i == static_cast<std::int32_t>(i)) small.push_back(static_cast<std::int32_t>(i));
  check(small);
  std::vector<std::uint8_t> bytes(256);
  std::iota(bytes.begin(), bytes.end(), std::uint8_t(0));
  check(bytes);
  EXPECT_EQ(cast(tensor({0, 1}, {.dtype = bool8}), Format<TypeParam>::dtype).template to_vector<float>(),
            (std::vector<float>{0, 1}));
}

TYPED_TEST(Half, AnyOtherTypeIsConvertedInOneRounding) {
  constexpr DType dtype = Format<TypeParam>::dtype;
  const Tensor x = tensor({0, 1, 2.5, 200, 255}, {.dtype = f64});
  for (const DType other : {f32, f64, i32, i64, u8, bool8, bf16, f16}) {
    const Tensor y = cast(x, other);
    EXPECT_EQ(cast(cast(y, dtype), other).to_vector<double>(), y.to_vector<double>()) << name_of(other);
  }
  EXPECT_EQ(cast(tensor({NAN, -2.7, 300, -0.0}, {.dtype = dtype}), bool8).to_vector<int>(),
            (std::vector<int>{1, 1, 1, 0}));
  EXPECT_EQ(cast(tensor({NAN, -2.75, 1e39, -1e39}, {.dtype = dtype}), i32).to_vector<std::int32_t>(),
            (std::vector<std::int32_t>{0, -2, INT32_MAX, INT32_MIN}));
  // By way of f32 these would be rounded to a tie first, and then to the wrong side of it.
  const double tie = 1 + std::ldexp(1.0, -Format<TypeParam>::fraction_bits - 1), more = tie + 0x1p-40;
  EXPECT_GT(cast(full({}, more, {.dtype = f64}), dtype).item(), 1);
  EXPECT_EQ(cast(full({}, tie, {.dtype = f64}), dtype).item(), 1);
  constexpr int above_tie = (1 << 30) + (1 << 22) + 1;
  for (const DType integer : {i32, i64})
    EXPECT_EQ(cast(full({}, above_tie, {.dtype = integer}), bf16).item(), 0x1p30 + 0x1p23);
}

TYPED_TEST(Half, ElementsAreMovedWhereverTheyLie) {
  constexpr DType dtype = Format<TypeParam>::dtype;
  for (const Shape& shape : {Shape{3, 5}, Shape{40, 70}, Shape{2, 33, 31}, Shape{700, 300}}) {
    const Tensor wide = reshape(arange(shape.size(), {.dtype = f32}) - 50, shape), x = cast(wide, dtype);
    const Tensor same = cast(x, f32);
    const auto expect = [&](const char* what, const Tensor& y, const Tensor& want) {
      EXPECT_EQ(y.dtype(), dtype) << what;
      EXPECT_EQ(y.to_vector<float>(), want.to_vector<float>()) << what << " " << shape.str();
    };
    expect("transpose", contiguous(transpose(x)), transpose(same));
    expect("clone", clone(x), same);
    expect("every second", contiguous(slice(x, -1, 0, shape.back(), 2)), slice(same, -1, 0, shape.back(), 2));
    expect("concatenate", concatenate({x, slice(x, 0, 1, 2)}, 0), concatenate({same, slice(same, 0, 1, 2)}, 0));
    for (const DType other : {f32, f64, i64})  // one step, two, two or three
      expect("strided cast", cast(transpose(cast(wide, other)), dtype), transpose(same));
    Tensor filled = zeros(shape, {.dtype = dtype});
    transpose(filled).copy_(transpose(x));
    expect("copy_", filled, same);
    select(filled, 0, 1).fill_(0.1);
    EXPECT_EQ(filled[1].to_vector<TypeParam>()[0].bits, TypeParam(0.1).bits);
  }
  EXPECT_EQ(tensor({0.1}, {.dtype = dtype}).template item<TypeParam>().bits, TypeParam(0.1).bits);
  EXPECT_EQ(ones({3}, {.dtype = dtype}).data<TypeParam>()[2].bits, TypeParam(1).bits);
}

}  // namespace
}  // namespace reel
