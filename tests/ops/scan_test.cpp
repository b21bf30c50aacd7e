// What the op-case table cannot say about scans, products and powers: zeros, special values, exactness, sequences.

#include "reel/ops/scan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "reel/core/parallel.h"
#include "reel/core/random.h"
#include "reel/core/tape.h"
#include "reel/ops/arithmetic.h"
#include "reel/ops/convert.h"
#include "reel/ops/create.h"
#include "reel/ops/ragged.h"
#include "reel/ops/reduce.h"
#include "reel/ops/views.h"

namespace reel::test {
namespace {

using testing::Each;
using testing::ElementsAre;

const TensorOptions kDouble{.dtype = f64};

// d sum(f(x)) / dx
template <class F>
std::vector<double> slopes(const Tensor& x, F&& f) {
  Tape tape;
  tape.watch(x);
  const Tensor y = f(x);
  return tape.gradient(y, ones_like(y), {x})[0].template to_vector<double>();
}

// NaN, which equals nothing, as a number that no scan gives.
std::vector<double> numbers_of(const Tensor& x) {
  std::vector<double> numbers = x.to_vector<double>();
  for (double& number : numbers) number = std::isnan(number) ? -12345 : number;
  return numbers;
}

// Both directions, with and without the own element.
std::vector<Tensor> scans(const Tensor& x, const Tensor& factor, int axis) {
  std::vector<Tensor> results;
  for (const bool reverse : {false, true})
    for (const bool exclusive : {false, true}) {
      const ScanOptions options{.reverse = reverse, .exclusive = exclusive};
      results.push_back(cumsum(x, axis, options));
      results.push_back(cumprod(x, axis, options));
      if (is_floating(x.dtype())) results.push_back(linear_scan(x, factor, axis, options));
    }
  return results;
}

TEST(Scan, GivesLinesWithoutGapsTheBitsOfThoseSideBySide) {
  Generator random(7);
  for (const DType dtype : {f32, f64, i64})
    for (const std::int64_t lines : {1, 3, 7, 8, 9, 31, 32, 33, 70})
      for (const std::int64_t length : {1, 2, 63, 64, 65, 200, 5000}) {
        SCOPED_TRACE(testing::Message() << name_of(dtype) << ' ' << lines << " x " << length);
        const auto numbers = [&] {
          const Tensor x = 2 * rand({lines, length}, random, {.dtype = f64}) - 1;
          return dtype == i64 ? cast(x * 10, i64) : cast(x, dtype);
        };
        Tensor x = numbers();
        const Tensor factor = numbers();
        if (dtype == f64) x.mutable_data<double>()[static_cast<std::size_t>(lines / 2 * length)] = NAN;
        const std::vector<Tensor> got = scans(x, factor, 1);
        const std::vector<Tensor> expected = scans(contiguous(transpose(x)), contiguous(transpose(factor)), 0);
        for (std::size_t i = 0; i < got.size(); ++i)
          ASSERT_EQ(numbers_of(got[i]), numbers_of(transpose(expected[i]))) << i;
      }
}

TEST(Prod, HasTheProductOfTheOthersAsGradientWithZerosToo) {
  const auto f = [](const Tensor& x) { return prod(x, 0); };
  EXPECT_THAT(slopes(tensor({2, 3, 4}, kDouble), f), ElementsAre(12, 8, 6));
  EXPECT_THAT(slopes(tensor({2, 0, 4}, kDouble), f), ElementsAre(0, 8, 0));
  EXPECT_THAT(slopes(tensor({0, 3, 0}, kDouble), f), ElementsAre(0, 0, 0));
}

TEST(Prod, HasASecondDerivativeAtTwoZeros) {
  const Tensor x = tensor({0, 3, 0}, kDouble);
  Tape outer;
  outer.watch(x);
  const Tensor dx = [&] {
    Tape inner;
    const Tensor y = prod(x);
    return inner.gradient(y, ones_like(y), {x})[0];
  }();
  // d^2 (x0 x1 x2) / dx0 dx = (0, x2, x1)
  const Tensor first = select(dx, 0, 0);
  EXPECT_THAT(outer.gradient(first, ones_like(first), {x})[0].to_vector<double>(), ElementsAre(0, 0, 3));
}

TEST(Prod, OverSeveralAxesTakesAllOtherElements) {
  const Tensor x = tensor({1, 2, 3, 4, 5, 6, 7, 8}, {2, 2, 2}, kDouble);
  EXPECT_THAT(prod(x, {0, 2}).to_vector<double>(), ElementsAre(60, 672));
  EXPECT_THAT(slopes(x,
                     [](const Tensor& x) {
                       return prod(x, {0, 2});
                     }),
              ElementsAre(60, 30, 672 / 3, 672 / 4, 12, 10, 96, 84));
}

TEST(Prod, OfNothingIsOne) {
  EXPECT_EQ(prod(empty({0})).item(), 1);
  const Ragged x = Ragged::from_lengths(tensor({2, 3}, {2, 1}), {0, 2});
  EXPECT_THAT(prod(x).to_vector<double>(), ElementsAre(1, 6));
}

TEST(Prod, OfIntegersCountsInI64) {
  const Tensor y = prod(tensor({100000, 100000, 3}, {.dtype = i32}));
  EXPECT_EQ(y.dtype(), i64);
  EXPECT_EQ(y.item<std::int64_t>(), 30000000000);
}

TEST(Prod, OfIntegersIsThatOfEachSequence) {
  const Tensor values = tensor({3, 0, 7, 2, 7, 5, 1, 1, 0, 4, 2, 2, 9, 1}, {7, 2});
  for (const DType dtype : {u8, i32, i64, bool8}) {
    const Ragged x = Ragged::from_lengths(cast(values, dtype), {0, 3, 1, 0, 3});
    const Tensor y = prod(x);
    EXPECT_EQ(y.dtype(), i64);
    EXPECT_EQ(y.shape(), (Shape{5, 2}));
    for (std::int64_t s = 0; s < x.count(); ++s)
      EXPECT_EQ(y[s].to_vector<std::int64_t>(), prod(x[s], 0).to_vector<std::int64_t>()) << s;
    EXPECT_EQ(prod(Ragged::from_lengths(zeros({0, 2}, {.dtype = dtype}), {})).shape(), (Shape{0, 2}));
    EXPECT_THAT(prod(x, 1).values().to_vector<std::int64_t>(), prod(x.values(), 1).to_vector<std::int64_t>());
  }
  // Exact beyond 2^53, and wrapping around.
  const std::int64_t odd = (std::int64_t{1} << 31) + 1;
  const Ragged large = Ragged::from_lengths(from_vector(std::vector<std::int64_t>{odd, odd, odd, odd}), {2, 0, 2});
  EXPECT_THAT(prod(large).to_vector<std::int64_t>(), ElementsAre(odd * odd, 1, odd * odd));
  const auto wrapped =
      static_cast<std::int64_t>(static_cast<std::uint64_t>(odd * odd) * static_cast<std::uint64_t>(odd));
  EXPECT_THAT(prod(Ragged::from_lengths(large.values(), {3, 1})).to_vector<std::int64_t>(), ElementsAre(wrapped, odd));
}

TEST(Prod, OfALongRowCountsEachFactorOnce) {
  for (const std::int64_t n : {15, 17, 31, 33, 63, 65, 1025, 4097, 100003}) {
    Tensor x = full({n}, 1, kDouble);
    x.mutable_data<double>()[static_cast<std::size_t>(n - 1)] = 3;
    x.mutable_data<double>()[static_cast<std::size_t>(n / 2)] = 5;
    EXPECT_EQ(prod(x).item(), 15) << n;
    EXPECT_EQ(prod(Ragged::from_lengths(reshape(x, {n, 1}), {n})).item(), 15) << n;
  }
}

TEST(Prod, OfALongSequenceHasTheSameBitsForAnyNumberOfThreads) {
  Generator generator(11);
  const Tensor x = 0.999 + 0.002 * rand({40000, 6}, generator);
  const int before = num_threads();
  set_num_threads(1);
  const std::vector<float> expected = prod(Ragged::from_lengths(x, {1, 39999})).to_vector<float>();
  for (const int threads : {2, 3, 7, 16}) {
    set_num_threads(threads);
    EXPECT_EQ(prod(Ragged::from_lengths(x, {1, 39999})).to_vector<float>(), expected);
    EXPECT_EQ(prod(Ragged::from_lengths(narrow(x, 0, 1, 39999), {39999})).to_vector<float>(),
              std::vector<float>(expected.begin() + 6, expected.end()));
  }
  set_num_threads(before);
}

TEST(Cumprod, HasAGradientAtZeros) {
  const auto f = [](const Tensor& x) { return cumprod(x, 0); };
  // y = (a, ab, abc)
  EXPECT_THAT(slopes(tensor({2, 0, 4}, kDouble), f), ElementsAre(1 + 0 + 0, 2 + 8, 0));
  EXPECT_THAT(slopes(tensor({0, 0, 4}, kDouble), f), ElementsAre(1, 0, 0));
}

TEST(Cumsum, OfF32IsRoundedOncePerElement) {
  // In f32 the small numbers would be lost one by one.
  Tensor x = full({1 << 16}, 0x1p-24);
  x.mutable_data<float>()[0] = 1;
  const std::vector<float> y = cumsum(x, 0).to_vector<float>();
  EXPECT_EQ(y.back(), 1.0f + static_cast<float>(((1 << 16) - 1) * 0x1p-24));
}

TEST(Cumsum, OfIntegersAndBooleansIsI64) {
  const Tensor y = cumsum(tensor({3, -1, 0}) > 0, 0);
  EXPECT_EQ(y.dtype(), i64);
  EXPECT_THAT(y.to_vector<std::int64_t>(), ElementsAre(1, 1, 1));
  EXPECT_THAT(cumsum(tensor({1, 2, 3}, {.dtype = u8}), 0, {.reverse = true}).to_vector<std::int64_t>(),
              ElementsAre(6, 5, 3));
}

TEST(Cumsum, OfASequenceAloneHasTheSameBits) {
  Generator generator(3);
  const Tensor x = randn({300, 5}, generator);
  const Ragged y = cumsum(Ragged::from_lengths(x, {0, 120, 0, 1, 179}));
  const Tensor alone = cumsum(narrow(x, 0, 121, 179), 0);
  const Tensor last = contiguous(y[4]);
  EXPECT_EQ(std::memcmp(last.array().data, alone.array().data, 179 * 5 * sizeof(float)), 0);
  EXPECT_EQ(cumsum(Ragged::from_lengths(empty({0, 2}), {0, 0})).total(), 0);
}

TEST(LinearScan, IsTheSameInWideRowsAsInNarrowOnes) {
  // Columns are walked in groups, or whole rows where they come from memory; every one has the bits that it has alone.
  Generator generator(4);
  const std::int64_t shapes[][2] = {{7, 1},   {7, 2},    {7, 255},    {7, 256},     {7, 257},
                                    {7, 600}, {70, 600}, {100, 5000}, {2200, 1000}, {600, 4100}};
  const int before = num_threads();
  for (const auto& [rows, width] : shapes) {
    const Tensor x = randn({rows, width}, generator), factor = randn({rows, width}, generator);
    for (const int threads : {1, 3}) {
      set_num_threads(threads);
      for (const bool reverse : {false, true}) {
        for (const bool exclusive : {false, true}) {
          const Tensor y = linear_scan(x, factor, 0, {.reverse = reverse, .exclusive = exclusive});
          for (std::int64_t c = 0; c < width; c += 1 + width / 50) {
            const Tensor alone =
                linear_scan(select(x, 1, c), select(factor, 1, c), 0, {.reverse = reverse, .exclusive = exclusive});
            ASSERT_EQ(select(y, 1, c).to_vector<float>(), alone.to_vector<float>()) << width << " " << c;
          }
        }
      }
    }
  }
  set_num_threads(before);
}

TEST(LinearScan, IsTheRecurrence) {
  const Tensor x = tensor({1, 2, 3}, kDouble), factor = tensor({7, 10, 0.5}, kDouble);
  EXPECT_THAT(linear_scan(x, factor, 0).to_vector<double>(), ElementsAre(1, 12, 9));
  EXPECT_THAT(linear_scan(x, factor, 0, {.exclusive = true}).to_vector<double>(), ElementsAre(0, 1, 12));
  EXPECT_THAT(linear_scan(x, factor, 0, {.reverse = true}).to_vector<double>(), ElementsAre(225, 32, 3));
}

TEST(Scans, KeepANaNToTheEndOfItsLineAlone) {
  const double nan = NAN;
  const Tensor x = tensor({1, 1, nan, 1, 1, 1, 1, 1}, {4, 2}, kDouble),
               factor = tensor({2, 2, 2, 2, 0, 0, 1, 3}, {4, 2}, kDouble);
  const std::vector<double> down = linear_scan(x, factor, 0).to_vector<double>();
  for (const std::size_t i : {2, 4, 6}) EXPECT_TRUE(std::isnan(down[i])) << i;
  EXPECT_THAT((std::vector<double>{down[0], down[1], down[3], down[5], down[7]}), ElementsAre(1, 1, 3, 1, 4));
  // The rows behind it are other sequences.
  const std::vector<double> apart =
      linear_scan(Ragged::from_lengths(x, {2, 0, 2}), Ragged::from_lengths(factor, {2, 0, 2}))
          .values()
          .to_vector<double>();
  EXPECT_TRUE(std::isnan(apart[2]));
  EXPECT_THAT((std::vector<double>(apart.begin() + 3, apart.end())), ElementsAre(3, 1, 1, 2, 4));
  for (const auto& y : {cumsum(x, 0), cumprod(x, 0)})
    for (const std::size_t i : {2, 4, 6}) {
      EXPECT_TRUE(std::isnan(y.to_vector<double>()[i])) << i;
      EXPECT_FALSE(std::isnan(y.to_vector<double>()[i + 1])) << i;
    }
}

TEST(Scans, OfFactorsKeepTheSignOfAProductThatIsZero) {
  for (const Shape& shape : {Shape(1, 2), Shape(2, 1)}) {
    const std::vector<float> y = cumprod(tensor({-1, 0}, shape), shape[0] == 1 ? 1 : 0).to_vector<float>();
    EXPECT_TRUE(y[1] == 0 && std::signbit(y[1]));
    const std::vector<float> z = cumprod(tensor({-1, -0.0}, shape), shape[0] == 1 ? 1 : 0).to_vector<float>();
    EXPECT_TRUE(z[1] == 0 && !std::signbit(z[1]));
  }
}

TEST(Scans, BeyondF64AreInfiniteAndBehindAZeroNaN) {
  const std::vector<double> y = cumprod(tensor({1e200, 1e200, -2, 0, 3}, kDouble), 0).to_vector<double>();
  EXPECT_THAT((std::vector<double>(y.begin(), y.begin() + 3)), ElementsAre(1e200, INFINITY, -INFINITY));
  EXPECT_TRUE(std::isnan(y[3]) && std::isnan(y[4]));
  const std::vector<double> z =
      linear_scan(tensor({1e200, 1, 1, 1}, kDouble), tensor({1, 1e200, 0, 1}, kDouble), 0).to_vector<double>();
  EXPECT_EQ(z[1], INFINITY);
  EXPECT_TRUE(std::isnan(z[2]) && std::isnan(z[3]));
}

TEST(Scans, OfF32FindBackFromBeyondItsRange) {
  const std::vector<float> y = cumprod(tensor({1e30, 1e30, 1e-30, 1e-30}), 0).to_vector<float>();
  EXPECT_EQ(y[1], INFINITY);
  EXPECT_FLOAT_EQ(y[2], 1e30f);
  EXPECT_FLOAT_EQ(y[3], 1);
  const std::vector<float> z = cumsum(tensor({3e38, 3e38, -3e38}), 0).to_vector<float>();
  EXPECT_EQ(z[1], INFINITY);
  EXPECT_FLOAT_EQ(z[2], 3e38f);
}

TEST(Pow, HasThePublishedGradientsAtZero) {
  const Tensor x = tensor({0, 0, 0, 2}, kDouble), exponent = tensor({0, 1, 2, 0}, kDouble);
  EXPECT_THAT(slopes(x, [&](const Tensor& x) { return pow(x, exponent); }), ElementsAre(0, 1, 0, 0));
  const std::vector<double> d = slopes(exponent, [&](const Tensor& y) { return pow(x, y); });
  EXPECT_THAT(std::vector<double>(d.begin(), d.end() - 1), Each(0));
  EXPECT_NEAR(d.back(), std::log(2.0), 1e-15);
  EXPECT_THAT(slopes(tensor({0, 1}, kDouble), [](const Tensor& y) { return pow(0, y); }), Each(0));
  EXPECT_THAT(slopes(tensor({0, 3}, kDouble), [](const Tensor& x) { return pow(x, 0); }), Each(0));
}

TEST(Pow, OfIntegersWrapsAround) {
  const Tensor x = tensor({2, -3, 0, 1, -1}, {.dtype = i32});
  EXPECT_EQ(pow(x, 3).dtype(), i32);
  EXPECT_THAT(pow(x, 3).to_vector<std::int64_t>(), ElementsAre(8, -27, 0, 1, -1));
  EXPECT_THAT(pow(x, 0).to_vector<std::int64_t>(), Each(1));
  EXPECT_THAT(pow(x, arange(1) - 1).to_vector<std::int64_t>(), ElementsAre(0, 0, 0, 1, -1));
  EXPECT_THAT(pow(tensor({3}, {.dtype = u8}), 6).to_vector<std::int64_t>(), ElementsAre(729 % 256));
  EXPECT_EQ(pow(x, 0.5).dtype(), f32);
}

TEST(RaggedExtremes, OfAnEmptySequenceHaveNoPlace) {
  const Ragged x = Ragged::from_lengths(tensor({3, 5, 5, 1}, {4, 1}, kDouble), {0, 3, 1});
  EXPECT_THAT(argmax(x).to_vector<std::int64_t>(), ElementsAre(-1, 1, 0));
  EXPECT_THAT(argmin(x).to_vector<std::int64_t>(), ElementsAre(-1, 0, 0));
  const Winners winners = max_which(x);
  EXPECT_THAT(winners.y.to_vector<double>(), ElementsAre(-INFINITY, 5, 1));
  EXPECT_THAT(winners.which.to_vector<std::int64_t>(), ElementsAre(-1, 1, 0));
  EXPECT_EQ(amin(x).to_vector<double>()[0], INFINITY);
  // Ties: amax splits evenly, max gives to the first.
  const auto per_row = [&](auto op) {
    return slopes(x.values(), [&](const Tensor& v) { return op(Ragged::from_lengths(v, {0, 3, 1})); });
  };
  EXPECT_THAT(per_row([](const Ragged& r) { return amax(r); }), ElementsAre(0, 0.5, 0.5, 1));
  EXPECT_THAT(per_row([](const Ragged& r) { return max_which(r).y; }), ElementsAre(0, 1, 0, 1));
}

}  // namespace
}  // namespace reel::test
