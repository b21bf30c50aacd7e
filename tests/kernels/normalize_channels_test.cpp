// The kernels that normalise groups of channels, and channels of all images: sizes around vectors and pieces, what is left out,
// nothing written beside.

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "reel/tests/kernels/arrays.h"

namespace reel {
namespace {

using std::int64_t;
using test::TestArray;

// x [n, channels, length] in memory with gaps: behind each image, and where channels are normalised alone behind each channel.
struct Layout {
  Shape shape;
  int64_t groups;

  int64_t n() const { return shape[0]; }
  int64_t channels() const { return shape[1]; }
  int64_t length() const { return shape[2]; }
  Shape statistics() const { return {groups == 0 ? channels() : n() * groups}; }
  std::vector<int64_t> strides() const {
    const int64_t channel = length() + (groups == 0 ? 5 : 0);
    return {channel * channels() + 3, channel, 1};
  }
  // Of an element, in places without gaps.
  int64_t channel(int64_t i) const { return i / length() % channels(); }
  int64_t group(int64_t i) const {
    return groups == 0 ? channel(i) : i / (length() * channels()) * groups + channel(i) / (channels() / groups);
  }
  // f(i, group, channel) for all elements.
  void each(auto f) const {
    for (int64_t i = 0; i < shape.size(); ++i) f(i, group(i), channel(i));
  }
};

std::vector<Layout> layouts() {
  std::vector<Layout> all;
  for (const Shape& shape : {Shape{0, 4, 8}, Shape{3, 4, 0}, Shape{1, 4, 8}, Shape{2, 4, 9}, Shape{5, 4, 31},
                             Shape{70, 4, 64}, Shape{2, 4, 1031}, Shape{33, 12, 8}, Shape{1, 4, 20'000}})
    for (const int64_t groups : {0, 1, 2, 4}) all.push_back({shape, groups});
  return all;
}

template <class T>
TestArray<T> random_in(const Layout& in, unsigned seed) {
  const auto values = test::random_array<T>(in.shape, seed);
  TestArray<T> x(in.shape, in.strides());
  for (int64_t i = 0; i < x.size(); ++i) x.set(i, values[i]);
  return x;
}

// Of each group, in long double.
struct Statistics {
  std::vector<long double> mean, variance, count;

  template <class T>
  Statistics(const Layout& in, const TestArray<T>& x) : mean(in.statistics().size()), variance(mean), count(mean) {
    const auto at = [](int64_t i) { return static_cast<std::size_t>(i); };
    in.each([&](int64_t i, int64_t g, int64_t) { mean[at(g)] += x[i], ++count[at(g)]; });
    for (std::size_t g = 0; g < mean.size(); ++g) mean[g] /= count[g];
    in.each([&](int64_t i, int64_t g, int64_t) {
      variance[at(g)] += (x[i] - mean[at(g)]) * (x[i] - mean[at(g)]) / count[at(g)];
    });
  }
};

constexpr double kEpsilon = 1e-5;

template <class T>
class NormalizeChannels : public testing::Test {};
using Types = testing::Types<float, double>;
TYPED_TEST_SUITE(NormalizeChannels, Types);

TYPED_TEST(NormalizeChannels, WritesImagesAndTheirStatistics) {
  using T = TypeParam;
  const double epsilon = std::numeric_limits<T>::epsilon();
  for (const Layout& in : layouts()) {
    const auto x = random_in<T>(in, 1);
    const auto scale = test::random_array<T>({in.channels()}, 2), shift = test::random_array<T>({in.channels()}, 3);
    const Statistics expected(in, x);
    for (int given = 0; given < 4; ++given) {
      const bool has_scale = given & 1, has_shift = given & 2;
      TestArray<T> y(in.shape), mean(in.statistics()), rstd(in.statistics()), variance(in.statistics());
      test::cpu().normalize_channels(x, in.groups, kEpsilon, pointer(scale, has_scale), pointer(shift, has_shift), y,
                                     mean, rstd, pointer(variance, has_scale));
      EXPECT_TRUE(y.margins_intact() && mean.margins_intact() && rstd.margins_intact() && variance.margins_intact());
      if (x.size() == 0) continue;
      for (int64_t g = 0; g < mean.size(); ++g) {
        const auto k = static_cast<std::size_t>(g);
        ASSERT_NEAR(mean[g], expected.mean[k], 16 * epsilon);
        ASSERT_NEAR(rstd[g] * std::sqrt(expected.variance[k] + kEpsilon), 1, 16 * epsilon);
        ASSERT_NEAR(variance[g], has_scale ? expected.variance[k] : 0, 16 * epsilon);
      }
      in.each([&](int64_t i, int64_t g, int64_t c) {
        const auto k = static_cast<std::size_t>(g);
        const long double xhat = (x[i] - expected.mean[k]) / std::sqrt(expected.variance[k] + kEpsilon);
        ASSERT_NEAR(y[i], xhat * (has_scale ? scale[c] : 1) + (has_shift ? shift[c] : 0), 64 * epsilon)
            << in.shape.str() << " in " << in.groups << " groups, element " << i;
      });
    }
  }
}

TYPED_TEST(NormalizeChannels, BackwardGivesTheSameWhateverElseIsWanted) {
  using T = TypeParam;
  const double epsilon = std::numeric_limits<T>::epsilon();
  for (const Layout& in : layouts())
    for (const bool has_scale : {true, false}) {
      const Shape channels{in.channels()};
      const auto x = random_in<T>(in, 4), dy = test::random_array<T>(in.shape, 5);
      const auto factors = test::random_array<T>(channels, 6);
      const Array* const scale = pointer(factors, has_scale);
      TestArray<T> y(in.shape), mean(in.statistics()), rstd(in.statistics());
      test::cpu().normalize_channels(x, in.groups, kEpsilon, scale, nullptr, y, mean, rstd, nullptr);
      TestArray<T> dx(in.shape), dscale(channels), dshift(channels);
      const auto backward = [&](GradientSink to, const Array* of_scale, const Array* of_shift) {
        test::cpu().normalize_channels_backward(x, in.groups, scale, mean, rstd, dy, to, of_scale, of_shift);
      };
      backward({dx, false}, &dscale.array(), &dshift.array());
      EXPECT_TRUE(dx.margins_intact() && dscale.margins_intact() && dshift.margins_intact());

      const auto before = test::random_array<T>(in.shape, 7);
      TestArray<T> sum = before, added(in.shape), other(channels), one(in.shape);
      backward({sum, true}, nullptr, nullptr);
      test::cpu().binary(BinaryOp::add, {.array = &before.array()}, {.array = &dx.array()}, added);
      EXPECT_TRUE(test::same_bits(sum, added));
      backward({one, false}, &other.array(), nullptr);
      EXPECT_TRUE(test::same_bits(one, dx) && test::same_bits(other, dscale));
      backward({}, nullptr, &other.array());
      EXPECT_TRUE(test::same_bits(other, dshift));

      const Statistics is(in, x);
      const auto at = [](int64_t i) { return static_cast<std::size_t>(i); };
      std::vector<long double> of_g(is.mean.size()), of_gx(is.mean.size()), of_scale(at(in.channels())),
          of_shift(at(in.channels()));
      const auto xhat = [&](int64_t i, int64_t g) {
        return (x[i] - is.mean[at(g)]) / std::sqrt(is.variance[at(g)] + kEpsilon);
      };
      const auto inner = [&](int64_t i, int64_t c) { return dy[i] * (has_scale ? factors[c] : T(1)); };
      in.each([&](int64_t i, int64_t g, int64_t c) {
        of_g[at(g)] += inner(i, c) / is.count[at(g)];
        of_gx[at(g)] += inner(i, c) * xhat(i, g) / is.count[at(g)];
        of_scale[at(c)] += dy[i] * xhat(i, g);
        of_shift[at(c)] += dy[i];
      });
      in.each([&](int64_t i, int64_t g, int64_t c) {
        const long double rate = 1 / std::sqrt(is.variance[at(g)] + kEpsilon);
        ASSERT_NEAR(dx[i] / rate, inner(i, c) - of_g[at(g)] - xhat(i, g) * of_gx[at(g)], 64 * epsilon)
            << in.shape.str() << " in " << in.groups << " groups, element " << i;
      });
      const double bound = epsilon * 16 * (1 + static_cast<double>(in.n() * in.length()));
      for (int64_t c = 0; c < in.channels(); ++c) {
        ASSERT_NEAR(dscale[c], of_scale[at(c)], bound);
        ASSERT_NEAR(dshift[c], of_shift[at(c)], bound);
      }
    }
}

// A group of all channels is a row, of one piece for its sums or several.
TYPED_TEST(NormalizeChannels, AGroupHasTheBitsOfARow) {
  using T = TypeParam;
  for (const int64_t length : {37, 1000}) {
    const int64_t n = 6 * length;
    const Shape shape{7, 6, length}, rows{7, n};
    auto x = test::random_array<T>(shape, 8);
    for (int64_t i = 0; i < n; ++i) x.set(2 * n + i, 3);            // constant
    for (int64_t i = 0; i < n; ++i) x.set(i, x[i] * T(1e-3) + 90);  // far from 0
    x.set(4 * n + n / 2, std::numeric_limits<T>::max());            // its square overflows
    TestArray<T> y(shape), as_rows(rows), mean(Shape{7}), rstd(Shape{7}), mean_of_rows(Shape{7}),
        rstd_of_rows(Shape{7});
    test::cpu().normalize_channels(x, 1, kEpsilon, nullptr, nullptr, y, mean, rstd, nullptr);
    Array seen = x.array();
    seen.shape = rows;
    seen.strides[0] = n, seen.strides[1] = 1;
    test::cpu().normalize(seen, true, kEpsilon, nullptr, nullptr, as_rows, &mean_of_rows.array(), rstd_of_rows);
    for (int64_t i = 0; i < x.size(); ++i) ASSERT_EQ(y[i], as_rows[i]) << i;
    EXPECT_TRUE(test::same_bits(mean, mean_of_rows) && test::same_bits(rstd, rstd_of_rows));
  }
}

// The rounded mean that backward is given is off by as much as a twentieth of the deviation.
TYPED_TEST(NormalizeChannels, KeepTheirDigitsUnderALargeMean) {
  using T = TypeParam;
  const double size = sizeof(T) == 4 ? 1e4 : 1e12, bound = 64 * static_cast<double>(std::numeric_limits<T>::epsilon());
  for (const int64_t groups : {0, 2}) {
    const Layout in{{5, 4, 67}, groups};
    const auto noise = test::random_array<double>(in.shape, 10);
    const auto dy = test::random_array<T>(in.shape, 11);
    TestArray<T> x(in.shape), y(in.shape), dx(in.shape), mean(in.statistics()), rstd(in.statistics()), dscale(Shape{4});
    for (int64_t i = 0; i < x.size(); ++i) x.set(i, static_cast<T>(size + size * 1e-6 * noise[i]));
    test::cpu().normalize_channels(x, groups, 1e-12, nullptr, nullptr, y, mean, rstd, nullptr);
    test::cpu().normalize_channels_backward(x, groups, nullptr, mean, rstd, dy, {dx, false}, &dscale.array(), nullptr);
    TestArray<double> off(in.shape);  // exact
    for (int64_t i = 0; i < x.size(); ++i) off.set(i, static_cast<double>(x[i]) - size);
    const Statistics is(in, off);
    std::vector<long double> of_dy(is.mean.size()), of_dyx(is.mean.size()), of_scale(4);
    const auto xhat = [&](int64_t i, std::size_t g) {
      return (off[i] - is.mean[g]) / std::sqrt(is.variance[g] + 1e-12L);
    };
    in.each([&](int64_t i, int64_t group, int64_t c) {
      const auto g = static_cast<std::size_t>(group);
      ASSERT_NEAR(y[i], xhat(i, g), bound);
      of_dy[g] += dy[i] / is.count[g];
      of_dyx[g] += dy[i] * xhat(i, g) / is.count[g];
      of_scale[static_cast<std::size_t>(c)] += dy[i] * xhat(i, g);
    });
    in.each([&](int64_t i, int64_t group, int64_t) {
      const auto g = static_cast<std::size_t>(group);
      ASSERT_NEAR(dx[i] * std::sqrt(is.variance[g] + 1e-12L), dy[i] - of_dy[g] - xhat(i, g) * of_dyx[g], bound);
    });
    for (int64_t c = 0; c < 4; ++c) ASSERT_NEAR(dscale[c], of_scale[static_cast<std::size_t>(c)], 8 * bound);
  }
}

// NaN and infinities make their group NaN and no other.
TYPED_TEST(NormalizeChannels, NaNStaysInItsGroup) {
  using T = TypeParam;
  for (const T bad : {std::numeric_limits<T>::quiet_NaN(), std::numeric_limits<T>::infinity()})
    for (const int64_t groups : {0, 2}) {
      const Layout in{{3, 4, 21}, groups};
      auto x = random_in<T>(in, 12);
      const int64_t place = in.length() * (in.channels() + 1) + 20;
      x.set(place, bad);
      TestArray<T> y(in.shape), mean(in.statistics()), rstd(in.statistics());
      test::cpu().normalize_channels(x, groups, kEpsilon, nullptr, nullptr, y, mean, rstd, nullptr);
      in.each([&](int64_t i, int64_t g, int64_t) { ASSERT_EQ(std::isnan(y[i]), g == in.group(place)) << i; });
    }
}

TYPED_TEST(NormalizeChannels, DoNotDependOnThreads) {
  using T = TypeParam;
  for (const int64_t groups : {0, 3}) {
    const Layout in{{67, 9, 1000}, groups};
    const auto x = test::random_array<T>(in.shape, 17), dy = test::random_array<T>(in.shape, 18);
    const auto scale = test::random_array<T>({9}, 19);
    std::vector<TestArray<T>> first;
    for (const int threads : test::kThreadCounts) {
      const test::Threads scope(threads);
      TestArray<T> y(in.shape), dx(in.shape), dscale(Shape{9}), dshift(Shape{9});
      TestArray<T> mean(in.statistics()), rstd(in.statistics());
      test::cpu().normalize_channels(x, groups, kEpsilon, &scale.array(), nullptr, y, mean, rstd, nullptr);
      test::cpu().normalize_channels_backward(x, groups, &scale.array(), mean, rstd, dy, {dx, false}, &dscale.array(),
                                              &dshift.array());
      const std::vector<TestArray<T>> all{y, dx, dscale, dshift};
      if (first.empty()) first = all;
      for (std::size_t k = 0; k < all.size(); ++k) EXPECT_TRUE(test::same_bits(all[k], first[k]));
    }
  }
}

}  // namespace
}  // namespace reel
