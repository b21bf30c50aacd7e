// What the op-case table cannot say about convolutions and pooling.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include "reel/core/tape.h"
#include "reel/ops/arithmetic.h"
#include "reel/ops/conv.h"
#include "reel/ops/convert.h"
#include "reel/ops/create.h"
#include "reel/ops/pool.h"
#include "reel/ops/ragged.h"
#include "reel/ops/reduce.h"
#include "reel/ops/views.h"

namespace reel::test {
namespace {

using testing::ElementsAre;

const TensorOptions kDouble{.dtype = f64};

Tensor shaped(std::initializer_list<double> values, const Shape& shape) {
  return reshape(tensor(values, kDouble), shape);
}

bool same_bits(const Tensor& a, const Tensor& b) {
  const Tensor x = contiguous(a), y = contiguous(b);
  return x.shape() == y.shape() &&
         std::memcmp(x.array().data, y.array().data, static_cast<std::size_t>(x.size()) * size_of(x.dtype())) == 0;
}

TEST(MaxPool, TellsWhereTheMaximaWere) {
  const Tensor x = shaped({1, 5, 5, 2, 0, 7, NAN, 3}, {1, 1, 2, 4});
  const MaxPooled y = max_pool2d_which(x, {.kernel = {2, 2}, .stride = {1, 1}});
  EXPECT_THAT(y.which.to_vector<std::int64_t>(), ElementsAre(5, 6, 6));
  EXPECT_EQ(y.values.to_vector<double>()[0], 7);
  EXPECT_TRUE(std::isnan(y.values.to_vector<double>()[1]));
  // The first of equals, and something even where all is -inf.
  EXPECT_THAT(max_pool1d_which(shaped({5, 5, 1}, {1, 1, 3}), {.kernel = 3}).which.to_vector<std::int64_t>(),
              ElementsAre(0));
  const Tensor lowest = full({1, 1, 1, 2, 2}, -INFINITY, kDouble);
  const MaxPooled z = max_pool3d_which(lowest, {.kernel = {1, 2, 2}, .stride = 1, .padding = {0, 1, 1}});
  EXPECT_THAT(z.which.to_vector<std::int64_t>(), ElementsAre(0, 0, 1, 0, 0, 1, 2, 2, 3));
}

// Windows of 2 x 2 side by side have a kernel of their own, by vectors.
template <class T>
void expect_halves(DType dtype) {
  Generator generator(5);
  for (std::int64_t width = 2; width < 80; width += 1 + width / 24) {
    const std::int64_t planes = width == 9 ? 6001 : 3;  // so many that tasks begin within planes
    const std::int64_t height = 7, rows = height / 2, columns = width / 2;
    std::vector<T> x = randn({planes * height * width}, generator, {.dtype = dtype}).to_vector<T>();
    const auto n = static_cast<std::int64_t>(x.size());
    for (std::int64_t i = 0; i < n; i += 7) x[static_cast<std::size_t>(i)] = -std::numeric_limits<T>::infinity();
    for (std::int64_t i = 3; i < n; i += 11) x[static_cast<std::size_t>(i)] = std::numeric_limits<T>::quiet_NaN();
    for (std::int64_t i = 0; i < width; ++i)
      x[static_cast<std::size_t>(i)] = x[static_cast<std::size_t>(width + i)] = 1;
    const Tensor input = from_vector(x, {1, planes, height, width});
    const MaxPooled y = max_pool2d_which(input, {.kernel = 2});
    EXPECT_TRUE(same_bits(max_pool2d(input, {.kernel = 2}), y.values));
    const auto values = y.values.template to_vector<T>();
    const auto which = y.which.template to_vector<std::int64_t>();
    ASSERT_EQ(values.size(), static_cast<std::size_t>(planes * rows * columns));
    for (std::int64_t o = 0; o < planes * rows * columns; ++o) {
      const std::int64_t plane = o / (rows * columns), row = o / columns % rows, column = o % columns;
      std::int64_t best = 2 * row * width + 2 * column;
      const auto at = [&](std::int64_t place) { return x[static_cast<std::size_t>(plane * height * width + place)]; };
      for (const std::int64_t step : {std::int64_t{1}, width, width + 1}) {
        const std::int64_t place = 2 * row * width + 2 * column + step;
        if (!std::isnan(at(best)) && (std::isnan(at(place)) || at(place) > at(best))) best = place;
      }
      ASSERT_EQ(which[static_cast<std::size_t>(o)], best) << "width " << width << ", output " << o;
      const T value = values[static_cast<std::size_t>(o)];
      ASSERT_TRUE(value == at(best) || (std::isnan(value) && std::isnan(at(best)))) << "width " << width;
    }
  }
}
TEST(MaxPool, HalvesPlanesOfAnyWidth) {
  expect_halves<float>(f32);
  expect_halves<double>(f64);
}

// Kernels, strides, dilations and paddings around those that have a kernel of their own, in two and three dimensions.
template <class T>
void expect_maxima(std::mt19937_64& random, DType dtype) {
  const auto pick = [&](std::int64_t from, std::int64_t to) {
    return from + static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(to - from + 1));
  };
  const std::int64_t planes = pick(1, 3), n[3] = {pick(1, 3), pick(3, 7), pick(3, 40)};
  const bool flat = random() % 2 == 0;
  std::int64_t kernel[3], stride[3], dilation[3], padding[3];
  for (int i = 0; i < 3; ++i) {  // most often 1 x 2 x 2 side by side, with something else here or there
    const std::int64_t usual = i == 0 ? 1 : 2;
    kernel[i] = random() % 8 != 0 || i == 0 ? usual : pick(1, 2);
    stride[i] = random() % 8 != 0 ? usual : pick(1, 3);
    dilation[i] = i == 0 || random() % 8 != 0 ? 1 : 2;
    padding[i] = i == 0 || random() % 8 != 0 ? 0 : kernel[i] / 2;
  }
  const MaxPoolOptions options{.kernel = {kernel[0], kernel[1], kernel[2]},
                               .stride = {stride[0], stride[1], stride[2]},
                               .padding = {padding[0], padding[1], padding[2]},
                               .dilation = {dilation[0], dilation[1], dilation[2]},
                               .ceil = random() % 4 == 0};
  const MaxPoolOptions options_2d{.kernel = {kernel[1], kernel[2]},
                                  .stride = {stride[1], stride[2]},
                                  .padding = {padding[1], padding[2]},
                                  .dilation = {dilation[1], dilation[2]},
                                  .ceil = options.ceil};
  const std::int64_t depth = flat ? 1 : n[0], size = depth * n[1] * n[2];
  std::vector<T> x(static_cast<std::size_t>(planes * size));
  for (T& value : x) {
    const std::uint64_t kind = random() % 12;
    value = kind == 0   ? std::numeric_limits<T>::quiet_NaN()
            : kind == 1 ? -std::numeric_limits<T>::infinity()
                        : static_cast<T>(random() % 5);
  }
  const Tensor input = from_vector(x, {1, planes, depth, n[1], n[2]});
  const MaxPooled y = flat ? max_pool2d_which(squeeze(input, 2), options_2d) : max_pool3d_which(input, options);
  const Tensor alone = flat ? max_pool2d(squeeze(input, 2), options_2d) : max_pool3d(input, options);
  EXPECT_TRUE(same_bits(alone, y.values));
  const auto values = y.values.template to_vector<T>();
  const auto which = y.which.template to_vector<std::int64_t>();
  const Shape& shape = y.values.shape();
  const std::int64_t rows = shape[shape.rank() - 2], columns = shape[shape.rank() - 1], depths = flat ? 1 : shape[2];
  ASSERT_EQ(shape[1], planes);
  for (std::int64_t o = 0; o < y.values.size(); ++o) {
    const std::int64_t plane = o / (depths * rows * columns);
    const std::int64_t at[3] = {o / (rows * columns) % depths, o / columns % rows, o % columns};
    const auto of = [&](std::int64_t place) { return x[static_cast<std::size_t>(plane * size + place)]; };
    std::int64_t best = -1;
    for (std::int64_t k = 0; k < kernel[0] * kernel[1] * kernel[2]; ++k) {
      const std::int64_t tap[3] = {k / (kernel[1] * kernel[2]), k / kernel[2] % kernel[1], k % kernel[2]};
      std::int64_t from[3];
      bool inside = true;
      for (int i = 0; i < 3; ++i) {
        from[i] = (flat && i == 0 ? 0 : at[i] * stride[i]) - padding[i] + tap[i] * dilation[i];
        inside = inside && from[i] >= 0 && from[i] < (i == 0 ? depth : n[i]);
      }
      const std::int64_t place = (from[0] * n[1] + from[1]) * n[2] + from[2];
      if (!inside) continue;
      if (best < 0 || (!std::isnan(of(best)) && (std::isnan(of(place)) || of(place) > of(best)))) best = place;
    }
    const auto at_o = static_cast<std::size_t>(o);
    ASSERT_EQ(which[at_o], best) << name_of(dtype) << " " << input.shape().str() << ", output " << o;
    ASSERT_TRUE(values[at_o] == of(best) || (std::isnan(values[at_o]) && std::isnan(of(best)))) << o;
  }
}
TEST(MaxPool, EqualsItsDefinitionForRandomWindows) {
  std::mt19937_64 random(7);
  for (int i = 0; i < 300; ++i) {
    expect_maxima<float>(random, f32);
    expect_maxima<double>(random, f64);
    if (HasFatalFailure()) return;
  }
}

TEST(MaxPool, OfNothingHasASecondDerivative) {
  const Tensor x = zeros({0, 2, 8}), dy = zeros({0, 2, 4});
  Tape outer;
  outer.watch(x);
  outer.watch(dy);
  Tensor g;
  {
    Tape inner;
    g = inner.gradient(max_pool1d(x, {.kernel = 2}), dy, {x})[0];
  }
  EXPECT_EQ(outer.gradient(sum(g), {dy})[0].shape(), dy.shape());
}

TEST(MaxPool, GivesTheGradientToTheFirstOfEquals) {
  const Tensor x = shaped({4, 4, 4, 4}, {1, 1, 4});
  for (const bool recorded : {false, true}) {
    Tape outer;
    if (recorded) outer.watch(x);
    Tape tape;
    tape.watch(x);
    const Tensor y = max_pool1d(x, {.kernel = 3, .stride = 1});
    EXPECT_THAT(tape.gradient(y, shaped({10, 1}, {1, 1, 2}), {x})[0].to_vector<double>(), ElementsAre(10, 1, 0, 0));
  }
}

TEST(AvgPool, CountsThePaddingUnlessToldNotTo) {
  const Tensor x = shaped({6, 3, 9}, {1, 1, 3});
  EXPECT_THAT(avg_pool1d(x, {.kernel = 3, .stride = 1, .padding = 1}).to_vector<double>(), ElementsAre(3, 6, 4));
  EXPECT_THAT(avg_pool1d(x, {.kernel = 3, .stride = 1, .padding = 1, .count_padding = false}).to_vector<double>(),
              ElementsAre(4.5, 6, 6));
  // Beyond the padding nothing counts: the last window is 3 and 9 only.
  EXPECT_THAT(avg_pool1d(shaped({6, 3, 9, 3, 9}, {1, 1, 5}), {.kernel = 3, .ceil = true}).to_vector<double>(),
              ElementsAre(6, 6));
}

// Windows of 2 x 2 side by side have a loop of their own. Elements are added one by one to 0, and so are gradients: no -0 is left.
template <class T>
void expect_halves_of_averages(std::int64_t planes, std::int64_t height, std::int64_t width, DType dtype) {
  constexpr std::int64_t kDepth = 2;
  std::mt19937 random(static_cast<unsigned>(width));
  const auto numbers = [&](std::int64_t count) {
    std::vector<T> values(static_cast<std::size_t>(count));
    for (T& value : values) {
      const auto kind = random() % 16;
      value = kind == 0   ? T(-0.0)
              : kind == 1 ? std::numeric_limits<T>::infinity()
              : kind == 2 ? std::numeric_limits<T>::denorm_min()
                          : static_cast<T>(random()) / static_cast<T>(1 << 20) - T(2000);
    }
    return values;
  };
  const std::int64_t rows = height / 2, columns = width / 2;
  const std::vector<T> x = numbers(planes * kDepth * height * width), dy = numbers(planes * kDepth * rows * columns);
  std::vector<T> y(dy.size()), dx(x.size());
  for (std::size_t o = 0; o < y.size(); ++o) {
    const auto row = static_cast<std::int64_t>(o) / columns, column = static_cast<std::int64_t>(o) % columns;
    const std::int64_t top = row / rows * height + row % rows * 2;
    T sum = 0;
    for (const std::int64_t at : {top * width, top * width + 1, (top + 1) * width, (top + 1) * width + 1}) {
      sum += x[static_cast<std::size_t>(at + 2 * column)];
      dx[static_cast<std::size_t>(at + 2 * column)] += dy[o] / 4;
    }
    y[o] = sum / 4;
  }
  const Tensor input = from_vector(x, {1, planes, kDepth, height, width});
  Tape tape;
  tape.watch(input);
  const Tensor result = avg_pool3d(input, {.kernel = {1, 2, 2}});
  ASSERT_TRUE(same_bits(result, from_vector(y, result.shape()))) << name_of(dtype) << ", width " << width;
  const Tensor gradient = tape.gradient(result, from_vector(dy, result.shape()), {input})[0];
  ASSERT_TRUE(same_bits(gradient, from_vector(dx, input.shape()))) << name_of(dtype) << ", width " << width;
}
template <class T>
void expect_halves_of_averages(DType dtype) {
  for (std::int64_t width = 2; width <= 80; ++width) expect_halves_of_averages<T>(3, 2 + width % 4, width, dtype);
  expect_halves_of_averages<T>(3001, 7, 9, dtype);  // tasks begin within planes
}
TEST(AvgPool, HalvesPlanesOfAnyWidth) {
  expect_halves_of_averages<float>(f32);
  expect_halves_of_averages<double>(f64);
}

// Only the first place of the input has a gradient; the others are not gone through one remainder of the stride after the other.
TEST(Convolution, OfAStrideFarBeyondTheInputHasItsGradient) {
  const Tensor x = ones({1, 1, 3, 2}), weight = full({1, 1, 1, 1}, 2);
  Tape tape;
  tape.watch(x);
  const Tensor y = conv2d(x, weight, {}, {.stride = std::int64_t{1} << 31});
  EXPECT_EQ(y.shape(), (Shape{1, 1, 1, 1}));
  EXPECT_THAT(tape.gradient(y, full(y.shape(), 3), {x})[0].to_vector<float>(), ElementsAre(6, 0, 0, 0, 0, 0));
}

TEST(Convolution, OfPaddingWithAnInfiniteWeightIsNaN) {
  const Tensor x = ones({1, 1, 3}), weight = full({1, 1, 3}, INFINITY);
  EXPECT_TRUE(std::isnan(conv1d(x, weight, {}, {.padding = 1}).to_vector<float>()[0]));
  EXPECT_EQ(conv1d(x, weight).to_vector<float>()[0], INFINITY);
}

TEST(RaggedConvolution, OfASequenceAloneGivesTheSameBitsAsInABatch) {
  manual_seed(3);
  const std::vector<std::int64_t> lengths = {0, 1, 5, 0, 2, 33, 100, 0};
  for (const ConvOptions& options : {ConvOptions{.padding = 1}, ConvOptions{}, ConvOptions{.padding = 4, .dilation = 2},
                                     ConvOptions{.padding = 7}}) {
    const Ragged x = Ragged::from_lengths(randn({141, 9}), lengths);
    const Tensor weight = randn({5, 9, 3}), bias = randn({5});
    const Ragged y = conv1d_relu(x, weight, bias, options);
    const Tensor dy = randn(y.values().shape());
    const auto gradient = [&](const Ragged& part, const Tensor& seed) {
      Tape tape;
      tape.watch(part.values());
      const Tensor values = conv1d_relu(part, weight, bias, options).values();
      return tape.gradient(values, seed, {part.values()})[0];
    };
    const Ragged dx = x.with(gradient(x, dy));
    ASSERT_EQ(y.count(), 8);
    for (std::int64_t i = 0; i < y.count(); ++i) {
      const Ragged part = Ragged::from_list({contiguous(x[i])});
      const Ragged alone = conv1d_relu(part, weight, bias, options);
      EXPECT_TRUE(same_bits(alone.values(), y[i])) << i;
      EXPECT_TRUE(same_bits(gradient(part, contiguous(y.with(dy)[i])), dx[i])) << i;
      const bool possible = x.length(i) + 2 * options.padding[0] > options.dilation[0] * 2;
      ASSERT_EQ(y.length(i), possible ? x.length(i) + 2 * options.padding[0] - options.dilation[0] * 2 : 0);
      if (!possible) continue;
      const Tensor dense = conv1d_relu(unsqueeze(transpose(x[i]), 0), weight, bias, options);
      EXPECT_TRUE(same_bits(transpose(squeeze(dense, 0)), y[i])) << i;
    }
  }
}

TEST(RaggedConvolution, OfNoSequencesIsNone) {
  const Ragged none = Ragged::from_lengths(zeros({0, 2}), std::vector<std::int64_t>{});
  const Ragged y = conv1d(none, ones({3, 2, 5}), {}, {.padding = 2});
  EXPECT_EQ(y.count(), 0);
  EXPECT_EQ(y.values().shape(), (Shape{0, 3}));
}

}  // namespace
}  // namespace reel::test
