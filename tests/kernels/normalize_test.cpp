// The kernels of normalisation and dropout: sizes around vectors and parts, what is left out, nothing written beside.

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "reel/tests/kernels/arrays.h"

namespace reel {
namespace {

using std::int64_t;
using test::TestArray;

template <class T>
class NormalizeKernel : public testing::Test {};
using Types = testing::Types<float, double>;
TYPED_TEST_SUITE(NormalizeKernel, Types);

const Shape kMatrices[] = {{0, 3}, {3, 0}, {1, 1}, {2, 31}, {33, 32}, {257, 33}, {1025, 7}, {130, 1025}, {3, 20000}};

// A row's mean and 1 / sqrt(variance + epsilon), in long double.
template <class T>
std::pair<long double, long double> statistics(const TestArray<T>& x, int64_t r, int64_t n, bool center, double eps) {
  long double mean = 0, variance = 0;
  for (int64_t i = 0; i < n && center; ++i) mean += static_cast<long double>(x[r * n + i]) / n;
  for (int64_t i = 0; i < n; ++i) variance += (x[r * n + i] - mean) * (x[r * n + i] - mean) / n;
  return {mean, 1 / std::sqrt(variance + eps)};
}

TYPED_TEST(NormalizeKernel, WritesRowsAndTheirStatistics) {
  using T = TypeParam;
  const double epsilon = std::numeric_limits<T>::epsilon();
  for (const Shape& shape : kMatrices)
    for (const bool center : {true, false})
      for (const bool affine : {true, false}) {
        const int64_t rows = shape[0], n = shape[1];
        const auto x = test::random_array<T>(shape, 1), scale = test::random_array<T>({n}, 2);
        const auto shift = test::random_array<T>({n}, 3);
        TestArray<T> y(shape), mean(Shape{rows}), rstd(Shape{rows});
        test::cpu().normalize(x, center, 1e-5, pointer(scale, affine), pointer(shift, affine), y, pointer(mean, center),
                              rstd);
        EXPECT_TRUE(y.margins_intact() && mean.margins_intact() && rstd.margins_intact());
        for (int64_t r = 0; r < rows && n > 0; ++r) {
          const auto [m, s] = statistics(x, r, n, center, 1e-5);
          if (center) {
            ASSERT_NEAR(mean[r], m, 16 * epsilon);
          }
          ASSERT_NEAR(rstd[r] / s, 1, 16 * epsilon);
          for (int64_t i = 0; i < n; ++i) {
            const long double expected = (x[r * n + i] - m) * s * (affine ? scale[i] : 1) + (affine ? shift[i] : 0);
            ASSERT_NEAR(y[r * n + i], expected, 64 * epsilon) << shape.str() << " row " << r << " element " << i;
          }
        }
      }
}

TYPED_TEST(NormalizeKernel, BackwardGivesTheSameWhateverElseIsWanted) {
  using T = TypeParam;
  const double epsilon = std::numeric_limits<T>::epsilon();
  for (const Shape& shape : kMatrices)
    for (const bool center : {true, false}) {
      const int64_t rows = shape[0], n = shape[1];
      const auto x = test::random_array<T>(shape, 4), dy = test::random_array<T>(shape, 5);
      const auto scale = test::random_array<T>({n}, 6);
      TestArray<T> y(shape), mean(Shape{rows}), rstd(Shape{rows});
      test::cpu().normalize(x, center, 1e-5, &scale.array(), nullptr, y, pointer(mean, center), rstd);
      TestArray<T> dx(shape), dscale(Shape{n}), dshift(Shape{n});
      test::cpu().normalize_backward(x, center, &scale.array(), pointer(mean, center), rstd, dy, {dx, false},
                                     &dscale.array(), &dshift.array());
      EXPECT_TRUE(dx.margins_intact() && dscale.margins_intact() && dshift.margins_intact());
      const auto before = test::random_array<T>(shape, 7);
      TestArray<T> sum = before, added(shape);
      test::cpu().normalize_backward(x, center, &scale.array(), pointer(mean, center), rstd, dy, {sum, true},
                                     &dscale.array(), nullptr);
      test::cpu().binary(BinaryOp::add, {.array = &before.array()}, {.array = &dx.array()}, added);
      EXPECT_TRUE(test::same_bits(sum, added));
      TestArray<T> again = before, scales(Shape{n}), shifts(Shape{n});
      test::cpu().normalize_backward(x, center, &scale.array(), pointer(mean, center), rstd, dy, {again, true},
                                     &scales.array(), &shifts.array());
      EXPECT_TRUE(test::same_bits(again, added) && test::same_bits(scales, dscale) && test::same_bits(shifts, dshift));
      for (const bool wants_scale : {true, false}) {
        TestArray<T> one(shape), other(Shape{n});
        test::cpu().normalize_backward(x, center, &scale.array(), pointer(mean, center), rstd, dy, {one, false},
                                       pointer(other, wants_scale), pointer(other, !wants_scale));
        EXPECT_TRUE(test::same_bits(one, dx));
        EXPECT_TRUE(test::same_bits(other, wants_scale ? dscale : dshift));
        test::cpu().normalize_backward(x, center, &scale.array(), pointer(mean, center), rstd, dy, {},
                                       pointer(other, wants_scale), pointer(other, !wants_scale));
        EXPECT_TRUE(test::same_bits(other, wants_scale ? dscale : dshift));
      }
      for (int64_t i = 0; i < n; ++i) {
        long double expected_scale = 0, expected_shift = 0;
        for (int64_t r = 0; r < rows; ++r) {
          const auto [m, s] =
              i == 0 || rows * n < 10000 ? statistics(x, r, n, center, 1e-5) : std::pair<long double, long double>();
          expected_scale += dy[r * n + i] * (x[r * n + i] - m) * s;
          expected_shift += dy[r * n + i];
        }
        ASSERT_NEAR(dshift[i], expected_shift, epsilon * 64 * (1 + static_cast<double>(rows)));
        if (i == 0 || rows * n < 10000) {
          ASSERT_NEAR(dscale[i], expected_scale, epsilon * 64 * (1 + static_cast<double>(rows)));
        }
      }
    }
}

// The rounded mean that backward is given is off by as much as a twentieth of the deviation.
TYPED_TEST(NormalizeKernel, BackwardKeepsItsDigitsUnderALargeMean) {
  using T = TypeParam;
  const int64_t rows = 5, n = 67;
  const double size = sizeof(T) == 4 ? 1e4 : 1e12;
  TestArray<T> x({rows, n}), y({rows, n}), dx({rows, n}), mean(Shape{rows}), rstd(Shape{rows});
  TestArray<T> dscale(Shape{n}), dshift(Shape{n});
  const auto dy = test::random_array<T>({rows, n}, 11);
  const auto noise = test::random_array<double>({rows, n}, 10);
  for (int64_t i = 0; i < x.size(); ++i) x.set(i, static_cast<T>(size + size * 1e-6 * noise[i]));
  test::cpu().normalize(x, true, 1e-12, nullptr, nullptr, y, &mean.array(), rstd);
  test::cpu().normalize_backward(x, true, nullptr, &mean.array(), rstd, dy, {dx, false}, &dscale.array(),
                                 &dshift.array());
  const double bound = 32 * static_cast<double>(std::numeric_limits<T>::epsilon());
  std::vector<long double> expected_scale(n);
  for (int64_t r = 0; r < rows; ++r) {
    long double m = 0, variance = 0, mean_dy = 0, mean_dyy = 0;
    const auto off = [&](int64_t i) { return static_cast<long double>(x[r * n + i]) - x[r * n]; };  // exact
    for (int64_t i = 0; i < n; ++i) m += off(i) / n;
    for (int64_t i = 0; i < n; ++i) variance += (off(i) - m) * (off(i) - m) / n;
    const long double s = 1 / std::sqrt(variance + 1e-12L);
    for (int64_t i = 0; i < n; ++i) {
      mean_dy += static_cast<long double>(dy[r * n + i]) / n;
      mean_dyy += dy[r * n + i] * (off(i) - m) * s / n;
    }
    for (int64_t i = 0; i < n; ++i) {
      const long double xhat = (off(i) - m) * s;
      ASSERT_NEAR(y[r * n + i], xhat, bound);
      ASSERT_NEAR(dx[r * n + i] / s, dy[r * n + i] - mean_dy - xhat * mean_dyy, bound);
      expected_scale[static_cast<std::size_t>(i)] += dy[r * n + i] * xhat;
    }
  }
  for (int64_t i = 0; i < n; ++i) ASSERT_NEAR(dscale[i], expected_scale[static_cast<std::size_t>(i)], 8 * bound);
}

TYPED_TEST(NormalizeKernel, GradientsOfScaleAndShiftDoNotDependOnThreads) {
  using T = TypeParam;
  const Shape shape{1025, 129};
  const auto x = test::random_array<T>(shape, 7), dy = test::random_array<T>(shape, 8);
  TestArray<T> y(shape), mean(Shape{1025}), rstd(Shape{1025}), first(Shape{129}), first_shift(Shape{129});
  for (const int threads : test::kThreadCounts) {
    const test::Threads scope(threads);
    TestArray<T> dx(shape), dscale(Shape{129}), dshift(Shape{129});
    test::cpu().normalize(x, true, 1e-5, nullptr, nullptr, y, &mean.array(), rstd);
    test::cpu().normalize_backward(x, true, nullptr, &mean.array(), rstd, dy, {dx, false}, &dscale.array(),
                                   &dshift.array());
    if (threads == 1) {
      first = dscale;
      first_shift = dshift;
    }
    EXPECT_TRUE(test::same_bits(dscale, first));
    EXPECT_TRUE(test::same_bits(dshift, first_shift));
  }
}

// A thread's first row is summed up alone, the others along with what is written: also where rows are cut for their sums.
TYPED_TEST(NormalizeKernel, RowsDoNotDependOnThreads) {
  using T = TypeParam;
  for (const int64_t n : {129, 1537, 5000}) {
    const int64_t rows = 40;
    const auto x = test::random_array<T>({rows, n}, 22);
    TestArray<T> first({rows, n});
    for (const int threads : test::kThreadCounts) {
      const test::Threads scope(threads);
      TestArray<T> y({rows, n}), mean(Shape{rows}), rstd(Shape{rows});
      test::cpu().normalize(x, true, 1e-5, nullptr, nullptr, y, &mean.array(), rstd);
      if (threads == 1) first = y;
      EXPECT_TRUE(test::same_bits(y, first));
    }
    // Each row alone.
    for (int64_t r = 0; r < rows; ++r) {
      TestArray<T> row({1, n}), y({1, n}), mean(Shape{1}), rstd(Shape{1});
      for (int64_t i = 0; i < n; ++i) row.set(i, x[r * n + i]);
      test::cpu().normalize(row, true, 1e-5, nullptr, nullptr, y, &mean.array(), rstd);
      for (int64_t i = 0; i < n; ++i) ASSERT_EQ(y[i], first[r * n + i]) << n << " row " << r << " element " << i;
    }
  }
}

// x is a view of [channels, n, length]; each of the numbers and gradients may be absent.
TYPED_TEST(NormalizeKernel, ChannelsAreScaledAndShifted) {
  using T = TypeParam;
  const double epsilon = std::numeric_limits<T>::epsilon();
  for (const auto& [n, channels, length] : {std::array<int64_t, 3>{3, 5, 1},
                                            {2, 4, 7},
                                            {3, 2, 64},
                                            {1, 3, 1031},
                                            {0, 3, 8},
                                            {300, 2, 19},
                                            {2, 2, 70'001}}) {
    const Shape shape{n, channels, length};
    const auto turned = test::random_array<T>({channels, n, length}, 12), dy = test::random_array<T>(shape, 13);
    Array x = turned.array();
    x.shape = shape;
    x.strides[0] = length, x.strides[1] = n * length;
    x.contiguous = false;
    const auto at = [&, n = n, length = length](int64_t i, int64_t c, int64_t k) {
      return turned[(c * n + i) * length + k];
    };
    const auto center = test::random_array<T>({channels}, 14), scale = test::random_array<T>({channels}, 15),
               shift = test::random_array<T>({channels}, 16);
    for (int given = 0; given < 8; ++given) {
      const bool has_center = given & 1, has_scale = given & 2, has_shift = given & 4;
      TestArray<T> y(shape), dx(shape), dscale(Shape{channels}), dshift(Shape{channels});
      test::cpu().scale_channels(x, pointer(center, has_center), pointer(scale, has_scale), pointer(shift, has_shift),
                                 y);
      test::cpu().scale_channels_backward(x, pointer(center, has_center), pointer(scale, has_scale), dy, &dx.array(),
                                          &dscale.array(), &dshift.array());
      EXPECT_TRUE(y.margins_intact() && dx.margins_intact() && dscale.margins_intact() && dshift.margins_intact());
      for (int64_t c = 0; c < channels; ++c) {
        const T m = has_center ? center[c] : T(0), factor = has_scale ? scale[c] : T(1);
        long double of_scale = 0, of_shift = 0, size = 1;
        for (int64_t i = 0; i < n; ++i)
          for (int64_t k = 0; k < length; ++k) {
            const int64_t place = (i * channels + c) * length + k;
            const T scaled = (at(i, c, k) - m) * factor;
            ASSERT_EQ(y[place], has_shift ? scaled + shift[c] : scaled);
            ASSERT_EQ(dx[place], dy[place] * factor);
            of_scale += static_cast<long double>(dy[place]) * (at(i, c, k) - m);
            of_shift += dy[place];
            size += std::abs(dy[place]) * (1 + std::abs(at(i, c, k) - m));
          }
        ASSERT_NEAR(dscale[c], of_scale, 8 * epsilon * static_cast<double>(size));
        ASSERT_NEAR(dshift[c], of_shift, 8 * epsilon * static_cast<double>(size));
      }
      TestArray<T> alone(Shape{channels}), other(shape);
      test::cpu().scale_channels_backward(x, pointer(center, has_center), pointer(scale, has_scale), dy, nullptr,
                                          nullptr, &alone.array());
      EXPECT_TRUE(test::same_bits(alone, dshift));
      test::cpu().scale_channels_backward(x, pointer(center, has_center), pointer(scale, has_scale), dy, nullptr,
                                          &alone.array(), nullptr);
      EXPECT_TRUE(test::same_bits(alone, dscale));
      test::cpu().scale_channels_backward(x, pointer(center, has_center), pointer(scale, has_scale), dy, &other.array(),
                                          nullptr, nullptr);
      EXPECT_TRUE(test::same_bits(other, dx));
    }
  }
}

// Of many runs, and of few that are cut.
TYPED_TEST(NormalizeKernel, GradientsOfChannelsDoNotDependOnThreads) {
  using T = TypeParam;
  for (const Shape& shape : {Shape{67, 9, 1000}, Shape{1, 2, 400'001}}) {
    const Shape channels{shape[1]};
    const auto x = test::random_array<T>(shape, 17), dy = test::random_array<T>(shape, 18);
    const auto center = test::random_array<T>(channels, 19);
    TestArray<T> first(channels), first_shift(channels);
    for (const int threads : test::kThreadCounts) {
      const test::Threads scope(threads);
      TestArray<T> dscale(channels), dshift(channels);
      test::cpu().scale_channels_backward(x, &center.array(), nullptr, dy, nullptr, &dscale.array(), &dshift.array());
      if (threads == 1) {
        first = dscale;
        first_shift = dshift;
      }
      EXPECT_TRUE(test::same_bits(dscale, first));
      EXPECT_TRUE(test::same_bits(dshift, first_shift));
    }
  }
}

TYPED_TEST(NormalizeKernel, DropoutWritesItsElementsOnly) {
  using T = TypeParam;
  for (const int64_t n : test::kSizes) {
    const auto x = test::random_array<T>({n}, 9);
    TestArray<T> y(Shape{n}), uniform(Shape{n});
    const PhiloxState state{5, 6, 7};
    test::cpu().dropout(x, 0.25, state, y);
    test::cpu().random(RandomOp::uniform, uniform, state);
    EXPECT_TRUE(y.margins_intact());
    for (int64_t i = 0; i < n; ++i) ASSERT_EQ(y[i], uniform[i] >= T(0.25) ? x[i] * T(1 / 0.75) : T(0)) << i;
  }
}

}  // namespace
}  // namespace reel
