// What the op-case table cannot say about normalisations: large means, constant rows, NaN, running statistics.

#include "reel/ops/normalize.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdio>
#include <cstring>
#include <limits>

#include "reel/core/memory.h"
#include "reel/core/tape.h"
#include "reel/ops/arithmetic.h"
#include "reel/ops/create.h"
#include "reel/ops/gradcheck.h"
#include "reel/ops/reduce.h"
#include "reel/ops/views.h"
#include "reel/tests/expect.h"

namespace reel::test {
namespace {

using testing::Each;
using testing::ElementsAre;
using testing::NanSensitiveDoubleEq;

const TensorOptions kDouble{.dtype = f64};

// d sum(f(x) dy) / dx
template <class F>
Tensor gradient_of(const Tensor& x, const Tensor& dy, F&& f) {
  Tape tape;
  tape.watch(x);
  return tape.gradient(f(x), dy, {x})[0];
}

// Rows of x, and of the gradient for dy, from their definition in long double. Differences from the row's first element are
// exact: a large mean costs no digits here.
struct Exact {
  std::vector<long double> y, dx;
  long double terms = 0;  // the largest dy rstd, of which dx is what the mean and the slope leave
};
Exact exact_norm(const std::vector<double>& x, const std::vector<double>& dy, std::size_t n, bool center,
                 long double eps) {
  Exact result;
  for (std::size_t r = 0; r < x.size(); r += n) {
    std::vector<long double> d(n);
    long double mean = 0, variance = 0, mean_dy = 0, mean_dyy = 0;
    for (std::size_t i = 0; i < n; ++i) d[i] = static_cast<long double>(x[r + i]) - (center ? x[r] : 0);
    for (std::size_t i = 0; i < n && center; ++i) mean += d[i] / n;
    for (std::size_t i = 0; i < n; ++i) d[i] -= mean;
    for (std::size_t i = 0; i < n; ++i) variance += d[i] * d[i] / n;
    const long double rstd = 1 / std::sqrt(variance + eps);
    for (std::size_t i = 0; i < n; ++i) {
      mean_dy += center ? static_cast<long double>(dy[r + i]) / n : 0;
      mean_dyy += dy[r + i] * d[i] * rstd / n;
    }
    for (std::size_t i = 0; i < n; ++i) {
      result.y.push_back(d[i] * rstd);
      result.dx.push_back(rstd * (dy[r + i] - mean_dy - d[i] * rstd * mean_dyy));
      result.terms = std::max(result.terms, std::abs(dy[r + i] * rstd));
    }
  }
  return result;
}

// The largest error in units of epsilon x size.
double worst_error(const Tensor& got, const std::vector<long double>& expected, long double size) {
  const double epsilon = got.dtype() == f32 ? std::numeric_limits<float>::epsilon() : 0x1p-52;
  long double worst = 0;
  const std::vector<double> values = got.to_vector<double>();
  for (std::size_t i = 0; i < expected.size(); ++i) {
    worst = std::fmax(worst, std::abs(values[i] - expected[i]));
    if (std::isnan(values[i])) return INFINITY;
  }
  return static_cast<double>(worst / (epsilon * size));
}

TEST(LayerNorm, KeepsItsDigitsUnderALargeMean) {
  for (const DType dtype : {f32, f64})
    for (const bool center : {true, false}) {
      double worst_y = 0, worst_dx = 0;
      for (const std::int64_t n : {2, 3, 5, 31, 33, 64, 255, 1025, 100000})
        for (const double mean : {0.0, 1.0, 1e4}) {
          Generator generator(7);
          const Tensor x = 1e-2 * randn({n < 10 ? 4096 : 4, n}, generator, {.dtype = dtype}) + mean;
          const Tensor dy = randn(x.shape(), generator, {.dtype = dtype});
          const double eps = 1e-12;
          const auto f = [&](const Tensor& x) {
            return center ? layer_norm(x, {n}, {}, {}, eps) : rms_norm(x, {n}, {}, eps);
          };
          const Exact exact =
              exact_norm(x.to_vector<double>(), dy.to_vector<double>(), static_cast<std::size_t>(n), center, eps);
          long double largest = 0;
          for (const long double v : exact.y) largest = std::max(largest, std::abs(v));
          const double y = worst_error(f(x), exact.y, largest);
          worst_y = std::max(worst_y, y);
          EXPECT_LE(y, 4) << n << " elements around " << mean;
          // Of few elements the mean and the slope leave next to nothing of dy: a result may be small by cancellation.
          const double dx = worst_error(gradient_of(x, dy, f), exact.dx, exact.terms);
          worst_dx = std::max(worst_dx, dx);
          EXPECT_LE(dx, 4) << n << " elements around " << mean;
        }
      std::printf("%s %s: y %.1f epsilon of the largest element, dx %.1f of the largest dy / deviation\n",
                  center ? "layer_norm" : "rms_norm", reel::name_of(dtype), worst_y, worst_dx);
    }
}

TEST(LayerNorm, KeepsItsDigitsWhereARowBeginsFarFromItsMean) {
  for (const DType dtype : {f32, f64}) {
    double worst = 0;
    for (const std::int64_t n : {17, 40, 1025, 100000})
      for (const double step : {0.7, 1.5, 3.0, 100.0, 3e4}) {
        Generator generator(8);
        const Tensor away =
            concatenate({full({8, 16}, step, {.dtype = dtype}), zeros({8, n - 16}, {.dtype = dtype})}, 1);
        const Tensor x = randn({8, n}, generator, {.dtype = dtype}) + away;
        const std::vector<long double> exact =
            exact_norm(x.to_vector<double>(), std::vector<double>(static_cast<std::size_t>(8 * n)),
                       static_cast<std::size_t>(n), true, 1e-12)
                .y;
        long double largest = 0;
        for (const long double v : exact) largest = std::max(largest, std::abs(v));
        const double y = worst_error(layer_norm(x, {n}, {}, {}, 1e-12), exact, largest);
        worst = std::max(worst, y);
        EXPECT_LE(y, 4) << n << " elements, of which 16 are " << step << " away";
      }
    std::printf("layer_norm %s: y %.1f epsilon of the largest element\n", reel::name_of(dtype), worst);
  }
}

TEST(LayerNorm, OfAConstantRowIsTheBiasWithZeroGradient) {
  for (const double value : {0.1, 1e4 + 0.1, -3e30}) {
    const Tensor x = full({3, 37}, value), bias = arange(37, {.dtype = f32});
    const auto f = [&](const Tensor& x) { return layer_norm(x, {37}, {}, bias); };
    EXPECT_EQ(f(x).to_vector<double>(), expand(bias, {3, 37}).to_vector<double>());
    EXPECT_THAT(gradient_of(x, ones_like(x), f).to_vector<double>(), Each(0));
  }
  EXPECT_THAT(layer_norm(full({1, 5}, 0.1), {5}, {}, {}, 0).to_vector<double>(), Each(NanSensitiveDoubleEq(NAN)));
  EXPECT_EQ(layer_norm(tensor({7}), {1}).item(), 0);
  EXPECT_THAT(layer_norm(tensor({-3, 5}, kDouble), {2}, {}, {}, 0).to_vector<double>(), ElementsAre(-1, 1));
}

TEST(LayerNorm, ANaNOrInfinityMakesItsOwnRowNaN) {
  for (const double bad : {double(NAN), double(INFINITY)})
    for (const int place : {0, 20, 36}) {
      Generator generator(1);
      Tensor x = randn({3, 37}, generator);
      const Tensor clean = layer_norm(x, {37});
      x.mutable_data<float>()[static_cast<std::size_t>(37 + place)] = static_cast<float>(bad);
      const Tensor y = layer_norm(x, {37});
      EXPECT_THAT(y[1].to_vector<double>(), Each(NanSensitiveDoubleEq(NAN)));
      EXPECT_EQ(y[0].to_vector<double>(), clean[0].to_vector<double>());
      EXPECT_EQ(y[2].to_vector<double>(), clean[2].to_vector<double>());
    }
  const std::vector<double> y = rms_norm(tensor({1, INFINITY, -2}), {3}).to_vector<double>();
  EXPECT_EQ(y[0], 0);
  EXPECT_TRUE(std::isnan(y[1]));
  EXPECT_EQ(y[2], 0);
}

TEST(Norms, OfRowsWhoseSquaresOverflowAreZeroWithZeroGradient) {
  Generator generator(1);
  for (const std::int64_t n : {3, 40, 3000})
    for (const bool center : {false, true}) {
      const Tensor x = 1e30 * randn({2, n}, generator), dy = 1e9 * randn({2, n}, generator);
      const auto norm = [&](const Tensor& x) { return center ? layer_norm(x, {n}) : rms_norm(x, {n}); };
      EXPECT_THAT(norm(x).to_vector<double>(), Each(0)) << n;
      EXPECT_THAT(gradient_of(x, dy, norm).to_vector<double>(), Each(0)) << n;
      Tape outer;
      EXPECT_THAT(gradient_of(x, dy, norm).to_vector<double>(), Each(0)) << n;
    }
}

TEST(LayerNorm, NormalisesSeveralAxesAsOne) {
  Generator generator(2);
  const Tensor x = randn({5, 2, 3}, generator, kDouble), weight = randn({2, 3}, generator, kDouble);
  EXPECT_EQ(layer_norm(x, {2, 3}, weight).to_vector<double>(),
            layer_norm(reshape(x, {5, 6}), {6}, reshape(weight, {6})).to_vector<double>());
}

TEST(LayerNorm, WithoutRowsOrColumnsHasEmptyOrZeroGradients) {
  Tape tape;
  const Tensor x = zeros({0, 3}), weight = ones({3}), none = zeros({2, 0});
  tape.watch(x);
  tape.watch(weight);
  tape.watch(none);
  const Tensor y = layer_norm(x, {3}, weight), nothing = layer_norm(none, {0});
  EXPECT_THAT(tape.gradient(y, y, {weight}, {.keep = true})[0].to_vector<double>(), ElementsAre(0, 0, 0));
  EXPECT_EQ(tape.gradient(nothing, nothing, {none})[0].shape(), (Shape{2, 0}));
}

TEST(LayerNorm, HasAThirdDerivative) {
  Generator generator(3);
  const Tensor x = randn({2, 5}, generator, kDouble), weight = randn({5}, generator, kDouble);
  const Tensor dy = randn({2, 5}, generator, kDouble);
  // The first gradient, checked to second order: the third of layer_norm.
  const auto slope = [&](const Tensor& x, const Tensor& weight) {
    Tape tape;
    tape.watch(x);
    const Tensor y = layer_norm(x, {5}, weight);
    return tape.gradient(y * y, dy, {x})[0];
  };
  const GradcheckReport report = gradcheck(slope, {x, weight});
  EXPECT_TRUE(report) << report;
}

TEST(LayerNorm, ASequenceAloneHasTheSameBits) {
  Generator generator(4);
  const Ragged x = Ragged::from_lengths(randn({40, 33}, generator), {7, 0, 32, 1});
  const Ragged y = layer_norm(x, {33});
  for (std::int64_t s = 0; s < x.count(); ++s)
    EXPECT_EQ(layer_norm(x[s], {33}).to_vector<float>(), y[s].to_vector<float>());
}

TEST(RmsNorm, TakesTheDtypesEpsilonUnlessToldOtherwise) {
  EXPECT_EQ(rms_norm(tensor({0}), {1}).item(), 0);
  EXPECT_FLOAT_EQ(static_cast<float>(rms_norm(tensor({0x1p-12}), {1}).item()),
                  static_cast<float>(0x1p-12 / std::sqrt(0x1p-24 + 0x1p-23)));
}

TEST(GroupNorm, OfOneGroupIsLayerNormAndOfAllChannelsNormalisesEach) {
  Generator generator(5);
  const Tensor x = randn({3, 4, 7}, generator, kDouble);
  EXPECT_EQ(group_norm(x, 1).to_vector<double>(), layer_norm(x, {4, 7}).to_vector<double>());
  EXPECT_EQ(group_norm(x, 4).to_vector<double>(), layer_norm(x, {7}).to_vector<double>());
}

TEST(BatchNorm, MovesTheRunningStatisticsByTheUnbiasedVariance) {
  const Tensor x = tensor({1, 10, 2, 10, 3, 10, 6, 10}, {4, 2}, kDouble);
  const Tensor mean = tensor({0, 5}, kDouble), variance = tensor({1, 2}, kDouble);
  const Tensor y = batch_norm(x, mean, variance, {}, {}, {.training = true, .momentum = 0.25});
  const double biased = 14.0 / 4;
  EXPECT_NEAR(y.to_vector<double>()[0], -2 / std::sqrt(biased + 1e-5), 1e-14);
  EXPECT_EQ(y.to_vector<double>()[1], 0);
  EXPECT_NEAR(mean.to_vector<double>()[0], 0.25 * 3, 1e-15);
  EXPECT_NEAR(mean.to_vector<double>()[1], 0.75 * 5 + 0.25 * 10, 1e-15);
  EXPECT_NEAR(variance.to_vector<double>()[0], 0.75 + 0.25 * 14 / 3, 1e-14);
  EXPECT_NEAR(variance.to_vector<double>()[1], 0.75 * 2, 1e-15);
}

// Where they lie: a channel's elements side by side in each image, also of a view.
TEST(BatchNorm, MovesTheRunningStatisticsByThoseOfImages) {
  Generator generator(9);
  const Tensor all = randn({7, 4, 9}, generator, kDouble), x = narrow(narrow(all, 0, 1, 5), 1, 1, 3);
  const Tensor mean = zeros({3}, kDouble), variance = zeros({3}, kDouble);
  batch_norm(x, mean, variance, {}, {}, {.training = true, .momentum = 1});
  for (std::int64_t c = 0; c < 3; ++c) {
    double m = 0, v = 0;
    const std::vector<double> values = narrow(x, 1, c, 1).to_vector<double>();
    for (const double value : values) m += value / 45;
    for (const double value : values) v += (value - m) * (value - m) / 44;
    EXPECT_NEAR(mean.to_vector<double>()[static_cast<std::size_t>(c)], m, 1e-14);
    EXPECT_NEAR(variance.to_vector<double>()[static_cast<std::size_t>(c)], v, 1e-14);
  }
}

TEST(BatchNorm, KeepsTheDigitsOfASmallVariance) {
  Generator generator(6);
  const Tensor x = 1e-4 * randn({1000, 1}, generator) + 1.0, mean = zeros({1}), variance = zeros({1});
  batch_norm(x, mean, variance, {}, {}, {.training = true, .momentum = 1});
  double m = 0, v = 0;
  for (const double value : x.to_vector<double>()) m += value / 1000;
  for (const double value : x.to_vector<double>()) v += (value - m) * (value - m) / 999;
  EXPECT_NEAR(variance.item() / v, 1, 1e-5);
  EXPECT_NEAR(mean.item(), m, 1e-7);
}

TEST(BatchNorm, OfAnEmptyBatchLeavesTheRunningStatistics) {
  const Tensor mean = ones({2}), variance = ones({2});
  EXPECT_EQ(batch_norm(zeros({0, 2}), mean, variance, {}, {}, {.training = true}).shape(), (Shape{0, 2}));
  EXPECT_EQ(batch_norm(Ragged::from_lengths(zeros({0, 2}), {0, 0}), mean, variance, {}, {}, {.training = true}).count(),
            2);
  EXPECT_THAT(mean.to_vector<double>(), Each(1));
  EXPECT_THAT(variance.to_vector<double>(), Each(1));
}

TEST(BatchNorm, RefusesRunningStatisticsThatItCannotWriteBeforeItWritesAny) {
  const Tensor x = tensor({1, 2, 3, 5}, {2, 2}, kDouble);
  const Tensor pair = zeros({2, 2}, kDouble), mean = select(pair, 1, 0), variance = select(pair, 1, 1),
               one = ones({1}, kDouble);
  const BatchNormOptions training{.training = true};
  EXPECT_THROW_WITH(batch_norm(x, mean, mean, {}, {}, training), Error,
                    "batch_norm: running_mean and running_variance must", "two that share memory",
                    "normalize_test.cpp:");
  EXPECT_THROW_WITH(batch_norm(x, mean, narrow(reshape(pair, {4}), 0, 1, 2), {}, {}, training), Error, "share memory");
  const Tensor fresh = ones({2}, kDouble);
  EXPECT_THROW_WITH(batch_norm(x, mean, fresh, mean, {}, training), Error,
                    "batch_norm: running_mean must have memory of its own, got a tensor that shares weight's",
                    "normalize_test.cpp:");
  EXPECT_THROW_WITH(batch_norm(x, mean, fresh, {}, mean, training), Error, "running_mean", "shares bias's");
  EXPECT_THROW_WITH(batch_norm(x, fresh, mean, mean, {}, training), Error, "running_variance", "shares weight's");
  EXPECT_THROW_WITH(batch_norm(x, fresh, mean, {}, mean, training), Error, "running_variance", "shares bias's");
  EXPECT_THAT(pair.to_vector<double>(), Each(0));
  EXPECT_THROW_WITH(batch_norm(x, mean, expand(one, {2}), {}, {}, training), ShapeError,
                    "batch_norm: in running_variance", "a view of shape [2] in which all share one",
                    "normalize_test.cpp:");
  EXPECT_THROW_WITH(batch_norm(x, expand(one, {2}), variance, {}, {}, training), ShapeError, "in running_mean");
  {
    Tape tape;
    tape.watch(variance);
    EXPECT_THROW_WITH(batch_norm(x, mean, variance, {}, {}, training), VersionError, "batch_norm", "live tape");
  }
  EXPECT_THAT(pair.to_vector<double>(), Each(0));
  batch_norm(x, mean, variance, {}, {}, training);  // columns of one tensor do
  EXPECT_THAT(mean.to_vector<double>(), testing::Pointwise(testing::DoubleEq(), {0.2, 0.35}));
  batch_norm(narrow(x, 1, 0, 1), expand(one, {1}), {}, {}, {}, training);
}

TEST(BatchNorm, OutOfTrainingUsesAndKeepsTheRunningStatistics) {
  const Tensor mean = tensor({1, 2}, kDouble), variance = tensor({4, 9}, kDouble);
  const Tensor y = batch_norm(tensor({3, 5}, {1, 2}, kDouble), mean, variance, {}, {}, {.eps = 0});
  EXPECT_NEAR(y.to_vector<double>()[0], 1, 1e-15);
  EXPECT_NEAR(y.to_vector<double>()[1], 1, 1e-15);
  EXPECT_EQ(mean.version(), 0u);
}

TEST(BatchNorm, OfARaggedCountsEveryRowOnce) {
  Generator generator(8);
  const Tensor x = randn({10, 3}, generator, kDouble);
  EXPECT_EQ(
      batch_norm(Ragged::from_lengths(x, {4, 0, 6}), {}, {}, {}, {}, {.training = true}).values().to_vector<double>(),
      batch_norm(x, {}, {}, {}, {}, {.training = true}).to_vector<double>());
}

// What only another input's gradient needs is not kept: it may be written before the sweep.
TEST(BatchNorm, MayBeTrainedBetweenARunOutOfTrainingAndItsSweep) {
  Tensor x = randn({3, 2, 3, 4}), running_mean = zeros({2}), running_variance = ones({2});
  const Tensor weight = rand({2}) + 1.0, bias = zeros({2}), dy = randn(x.shape());
  const auto gradients = [&](bool trains_between, const Tensors& wanted) {
    running_mean.fill_(0.25);
    running_variance.fill_(2);
    Tape tape;
    for (const Tensor& t : wanted) tape.watch(t);
    const Tensor y = batch_norm(x, running_mean, running_variance, weight, bias);
    if (trains_between) {
      const Tensor other = randn({4, 2, 9});
      batch_norm(other, running_mean, running_variance, weight, bias, {.training = true});
    }
    return tape.gradient(y, dy, wanted);
  };
  for (const Tensors& wanted : {Tensors{x, weight, bias}, Tensors{weight}, Tensors{x}, Tensors{bias}}) {
    const Tensors still = gradients(false, wanted), moved = gradients(true, wanted);
    for (std::size_t i = 0; i < wanted.size(); ++i) EXPECT_EQ(still[i].to_vector<float>(), moved[i].to_vector<float>());
  }
  Tape tape;
  tape.watch(bias);
  const Tensor y = batch_norm(x, running_mean, running_variance, weight, bias);
  x.fill_(0);
  EXPECT_NO_THROW(tape.gradient(y, dy, {bias}));
}

// Beside y only what gradients need: nothing for bias alone, for the others two numbers per group, as x is there anyway.
TEST(ChannelNorms, KeepNoCopies) {
  const Tensor weight = ones({4}), bias = zeros({4});
  using Op = Tensor (*)(const Tensor&, const Tensor&, const Tensor&);
  for (const Op op : {Op([](const Tensor&x, const Tensor&w, const Tensor&b) { return group_norm(x, 2, w, b); }),
                      Op([](const Tensor&x, const Tensor&w, const Tensor&b) {
                        return batch_norm(x, {}, {}, w, b, {.training = true});
                      })}) {
    Tensor x = randn({16, 4, 32, 32});
    const std::int64_t bytes = x.size() * 4;
    for (const Tensors& wanted : {Tensors{x, weight, bias}, Tensors{weight}, Tensors{bias}}) {
      Tape tape;
      for (const Tensor& t : wanted) tape.watch(t);
      const std::int64_t before = memory_stats().live_bytes;
      const Tensor y = op(x, weight, bias);
      EXPECT_LT(memory_stats().live_bytes - before, bytes + 8192);
    }
    Tape tape;
    tape.watch(bias);
    const Tensor y = op(x, weight, bias);
    x.fill_(0);
    EXPECT_EQ(tape.gradient(y, ones(y.shape()), {bias})[0].to_vector<float>(), std::vector<float>(4, 16 * 32 * 32));
  }
}

}  // namespace
}  // namespace reel::test
