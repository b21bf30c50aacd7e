#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>

#include "reel/core/error.h"
#include "reel/tests/kernels/arrays.h"

namespace reel::test {
namespace {

template <class T>
class MemoryOfEveryType : public testing::Test {};
using AllTypes = testing::Types<float, double, std::int32_t, std::int64_t, std::uint8_t, bool>;
TYPED_TEST_SUITE(MemoryOfEveryType, AllTypes);

TYPED_TEST(MemoryOfEveryType, FillReachesEveryElementAndNoOther) {
  for (const Shape& shape : shapes()) {
    for (Layout layout : kOutputLayouts) {
      TestArray<TypeParam> y(shape, layout);
      cpu().fill(y, 3);
      for (std::int64_t i = 0; i < y.size(); ++i) ASSERT_EQ(y[i], static_cast<TypeParam>(3)) << shape.str() << i;
      EXPECT_TRUE(y.margins_intact()) << shape.str();
    }
  }
}

TYPED_TEST(MemoryOfEveryType, CopyBetweenAnyTwoLayouts) {
  for (const Shape& shape : shapes()) {
    for (Layout from : kLayouts) {
      const auto x = random_array<TypeParam>(shape, 1, from);
      for (Layout to : kOutputLayouts) {
        TestArray<TypeParam> y(shape, to);
        cpu().copy(x, y);
        ASSERT_TRUE(same_bits(x, y)) << shape.str() << " " << int(from) << " to " << int(to);
        ASSERT_TRUE(y.margins_intact()) << shape.str();
      }
    }
  }
}

TYPED_TEST(MemoryOfEveryType, CopyOfEverySize) {
  for (std::int64_t n : kSizes) {
    const auto x = random_array<TypeParam>(Shape{n}, 2);
    TestArray<TypeParam> y(Shape{n});
    cpu().copy(x, y);
    EXPECT_TRUE(same_bits(x, y)) << n;
    EXPECT_TRUE(y.margins_intact()) << n;
  }
}

// Large ones go by vectors from the first aligned place on, wherever the two arrays lie within a line and within a page.
TEST(Copy, OfManyBytesBetweenAnyTwoPlaces) {
  std::vector<unsigned char> from(9000), to;
  for (std::size_t i = 0; i < from.size(); ++i) from[i] = static_cast<unsigned char>(i * 7 + i / 256);
  for (const std::size_t bytes : {2047, 2048, 2049, 2175, 4096, 5000}) {
    for (const std::size_t source : {0, 1, 31, 64}) {
      for (std::size_t target = 0; target <= 66; ++target) {
        to.assign(9000, 0xa5);
        cpu().from_host(from.data() + source, to.data() + target, static_cast<std::int64_t>(bytes));
        for (std::size_t i = 0; i < to.size(); ++i) {
          const bool inside = i >= target && i < target + bytes;
          ASSERT_EQ(to[i], inside ? from[source + i - target] : 0xa5)
              << bytes << " " << source << " " << target << " " << i;
        }
      }
    }
  }
}

TYPED_TEST(MemoryOfEveryType, TransposedCopyOfEverySize) {
  for (std::int64_t n : {1, 3, 4, 31, 33, 257}) {
    const auto x = random_array<TypeParam>(Shape{n, 65}, 3, Layout::column_major);
    TestArray<TypeParam> y(Shape{n, 65});
    cpu().copy(x, y);
    EXPECT_TRUE(same_bits(x, y)) << n;
    EXPECT_TRUE(y.margins_intact()) << n;
  }
  for (const Shape& shape :
       {Shape{33, 2000}, Shape{260, 1024}}) {  // rows further apart than columns, or by 4,096 bytes
    const auto x = random_array<TypeParam>(shape, 3, Layout::column_major);
    TestArray<TypeParam> y(shape);
    cpu().copy(x, y);
    EXPECT_TRUE(same_bits(x, y) && y.margins_intact()) << shape.str();
  }
}

template <class From, class To>
void expect_plain_conversion() {
  for (Layout from : kLayouts) {
    for (Layout to : kOutputLayouts) {
      const auto x = random_array<From>(Shape{7, 300}, 4, from);
      TestArray<To> y(Shape{7, 300}, to);
      cpu().copy(x, y);
      for (std::int64_t i = 0; i < x.size(); ++i) ASSERT_EQ(y[i], static_cast<To>(x[i])) << +x[i];
      EXPECT_TRUE(y.margins_intact());
    }
  }
}

TYPED_TEST(MemoryOfEveryType, ConvertsFromEveryType) {
  expect_plain_conversion<std::int32_t, TypeParam>();
  expect_plain_conversion<std::int64_t, TypeParam>();
  expect_plain_conversion<std::uint8_t, TypeParam>();
  expect_plain_conversion<bool, TypeParam>();
  if constexpr (!std::is_same_v<TypeParam, std::uint8_t>) {  // a negative number does not fit: see below
    expect_plain_conversion<float, TypeParam>();
    expect_plain_conversion<double, TypeParam>();
  }
}

template <class From, class To>
To converted(From value) {
  TestArray<From> x(Shape{19});
  for (int i = 0; i < 19; ++i) x.set(i, value);
  TestArray<To> y(Shape{19});
  cpu().copy(x, y);
  for (int i = 0; i < 19; ++i) EXPECT_EQ(y[i], y[0]);
  return y[0];
}

TEST(Convert, FloatingToIntegerTruncatesTowardsZero) {
  EXPECT_EQ((converted<float, std::int32_t>(-1.9f)), -1);
  EXPECT_EQ((converted<double, std::int64_t>(2.9)), 2);
  EXPECT_EQ((converted<double, std::uint8_t>(255.9)), 255);
  EXPECT_EQ((converted<double, std::uint8_t>(-0.9)), 0);
}

TEST(Convert, OutOfRangeBecomesTheNearestInteger) {
  constexpr auto kMin32 = std::numeric_limits<std::int32_t>::min(), kMax32 = std::numeric_limits<std::int32_t>::max();
  constexpr auto kMin64 = std::numeric_limits<std::int64_t>::min(), kMax64 = std::numeric_limits<std::int64_t>::max();
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  EXPECT_EQ((converted<float, std::int32_t>(2147483648.0f)), kMax32);
  EXPECT_EQ((converted<float, std::int32_t>(2147483520.0f)), 2147483520);
  EXPECT_EQ((converted<double, std::int32_t>(2147483647.5)), kMax32);
  EXPECT_EQ((converted<double, std::int32_t>(-2147483648.5)), kMin32);
  EXPECT_EQ((converted<float, std::int32_t>(-3e9f)), kMin32);
  EXPECT_EQ((converted<double, std::int64_t>(9223372036854775808.0)), kMax64);
  EXPECT_EQ((converted<double, std::int64_t>(9223372036854774784.0)), 9223372036854774784);
  EXPECT_EQ((converted<float, std::int64_t>(-9223372036854775808.0f)), kMin64);
  EXPECT_EQ((converted<double, std::int64_t>(-kInfinity)), kMin64);
  EXPECT_EQ((converted<double, std::uint8_t>(300.0)), 255);
  EXPECT_EQ((converted<double, std::uint8_t>(-7.0)), 0);
  EXPECT_EQ((converted<float, float>(1e30f)), 1e30f);
}

// A run in which one number is out of range goes another way than one without.
TEST(Convert, ARunWithOneNumberOutOfRangeIsConvertedAsItsNumbersAre) {
  for (std::int64_t n : kSizes) {
    for (const double odd : {0.5, 1e30, -1e30, std::numeric_limits<double>::quiet_NaN()}) {
      TestArray<double> x(Shape{n});
      TestArray<std::int64_t> y(Shape{n});
      for (std::int64_t i = 0; i < n; ++i) x.set(i, static_cast<double>(i) * 1.75 - 3);
      if (n > 0) x.set(n / 2, odd);
      cpu().copy(x, y);
      for (std::int64_t i = 0; i < n; ++i) ASSERT_EQ(y[i], (converted<double, std::int64_t>(x[i]))) << n << " " << i;
      EXPECT_TRUE(y.margins_intact()) << n;
    }
  }
}

TEST(Convert, NanBecomesZeroAsIntegerAndTrueAsBool) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  EXPECT_EQ((converted<double, std::int32_t>(nan)), 0);
  EXPECT_EQ((converted<float, std::int64_t>(std::nanf(""))), 0);
  EXPECT_EQ((converted<double, std::uint8_t>(nan)), 0);
  EXPECT_TRUE((converted<double, bool>(nan)));
}

TEST(Convert, IntegersWrapAround) {
  EXPECT_EQ((converted<std::int64_t, std::int32_t>((std::int64_t(1) << 32) + 5)), 5);
  EXPECT_EQ((converted<std::int32_t, std::uint8_t>(-1)), 255);
  EXPECT_TRUE((converted<std::int32_t, bool>(256)));
}

TEST(Arange, CountsInEveryType) {
  for (std::int64_t n : kSizes) {
    TestArray<float> f(Shape{n});
    TestArray<double> d(Shape{n});
    TestArray<std::int32_t> i(Shape{n});
    TestArray<std::int64_t> l(Shape{n});
    cpu().arange(f, 0.5, 0.25);
    cpu().arange(d, -1, 0.1);
    cpu().arange(i, 10, -3);
    cpu().arange(l, std::int64_t(1) << 60, 7);
    for (std::int64_t k = 0; k < n; ++k) {
      ASSERT_EQ(f[k], static_cast<float>(0.5 + 0.25 * static_cast<double>(k)));
      ASSERT_EQ(d[k], -1 + 0.1 * static_cast<double>(k));
      ASSERT_EQ(i[k], 10 - 3 * k);
      ASSERT_EQ(l[k], (std::int64_t(1) << 60) + 7 * k);
    }
  }
}

TEST(CheckIndices, AcceptsWhatIsInside) {
  for (std::int64_t n : kSizes) {
    TestArray<std::int32_t> i(Shape{n});
    TestArray<std::int64_t> l(Shape{n});
    for (std::int64_t k = 0; k < n; ++k) {
      i.set(k, static_cast<std::int32_t>(k % 10));
      l.set(k, k % 10);
    }
    EXPECT_NO_THROW(cpu().check_indices(i, 10, nullptr, "embedding", {}));
    EXPECT_NO_THROW(cpu().check_indices(l, 10, nullptr, "embedding", {}));
  }
}

TEST(CheckIndices, NamesTheFirstOneOutside) {
  TestArray<std::int64_t> index(Shape{100000});
  index.set(99999, 77);
  index.set(70000, -1);
  index.set(68000, 12);
  try {
    cpu().check_indices(index, 10, nullptr, "embedding", {"model.cpp", 42});
    FAIL() << "no exception";
  } catch (const IndexError& error) {
    EXPECT_STREQ(error.what(), "embedding: indices must be in [0, 10), got 12 at position 68000 (at model.cpp:42)");
  }
}

TEST(CheckIndices, NothingIsInsideAnEmptyRange) {
  TestArray<std::int32_t> one(Shape{1}), none(Shape{0});
  EXPECT_THROW(cpu().check_indices(one, 0, nullptr, "take", {}), IndexError);
  EXPECT_NO_THROW(cpu().check_indices(none, 0, nullptr, "take", {}));
  one.set(0, -5);
  EXPECT_THROW(cpu().check_indices(one, 10, nullptr, "take", {}), IndexError);
}

TEST(CheckIndices, OneOtherValueMayBeExempt) {
  TestArray<std::int32_t> index(Shape{5});
  index.set(2, -100);
  const std::int64_t exempt = -100, other = -99;
  EXPECT_NO_THROW(cpu().check_indices(index, 10, &exempt, "cross_entropy", {}));
  EXPECT_THROW(cpu().check_indices(index, 10, &other, "cross_entropy", {}), IndexError);
  index.set(4, 10);
  EXPECT_THROW(cpu().check_indices(index, 10, &exempt, "cross_entropy", {}), IndexError);
}

TEST(HostCopies, CarryTheBytesBothWays) {
  for (std::int64_t n : kSizes) {
    std::vector<char> from(static_cast<std::size_t>(n)), device(from), to(from);
    for (std::size_t i = 0; i < from.size(); ++i) from[i] = static_cast<char>(i * 7);
    cpu().from_host(from.data(), device.data(), n);
    cpu().to_host(device.data(), to.data(), n);
    EXPECT_EQ(from, to);
  }
}

}  // namespace
}  // namespace reel::test
