// Convolution kernels against plain loops in double precision, written from the definition.

#include <gtest/gtest.h>

#include <cstdint>
#include <iterator>
#include <limits>
#include <random>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "reel/core/parallel.h"
#include "reel/tests/kernels/arrays.h"
#include "reel/tests/kernels/conv_problems.h"

namespace reel {
namespace {

using namespace conv_testing;

template <class T>
class Convolution : public testing::Test {};
using Types = testing::Types<float, double>;
TYPED_TEST_SUITE(Convolution, Types);

TYPED_TEST(Convolution, OfAFewNumbersIsWhatOneWritesByHand) {
  using T = TypeParam;
  Conv c = conv_of({1, 1, 1, 1, {4}, {2}, {1}, {1}, {1}, PaddingMode::zero});
  const std::vector<T> x = {1, 2, 3, 4}, weight = {10, 1}, bias = {100};

  EXPECT_EQ(run_forward(c, x, weight, &bias, Epilogue::none), (std::vector<T>{101, 112, 123, 134, 140}));
  c.mode = PaddingMode::reflect;
  EXPECT_EQ(run_forward(c, x, weight, &bias, Epilogue::none), (std::vector<T>{121, 112, 123, 134, 143}));
  c.mode = PaddingMode::replicate;
  EXPECT_EQ(run_forward(c, x, weight, &bias, Epilogue::none), (std::vector<T>{111, 112, 123, 134, 144}));
  c.mode = PaddingMode::symmetric;
  EXPECT_EQ(run_forward(c, x, weight, &bias, Epilogue::none), (std::vector<T>{111, 112, 123, 134, 144}));

  const std::vector<T> dy = {1, 0, 0, 0, 2};
  EXPECT_EQ(run_backward_input(c, dy, nullptr, weight), (std::vector<T>{11, 0, 0, 22}));
  EXPECT_EQ(run_backward_weight(c, x, dy, nullptr).dweight, (std::vector<T>{9, 9}));
  EXPECT_EQ(run_backward_weight(c, x, dy, nullptr).dbias, (std::vector<T>{3}));
}

TYPED_TEST(Convolution, IsItsDefinitionForManySizes) {
  std::mt19937 engine(7);
  const auto pick = [&](const auto& choices) {
    return choices[std::uniform_int_distribution<std::size_t>(0, std::size(choices) - 1)(engine)];
  };
  const std::pair<int, int> channels[] = {{1, 1},   {1, 1},   {1, 16},  {3, 5}, {8, 8},
                                          {16, 16}, {17, 33}, {64, 10}, {16, 1}};
  const std::vector<int64_t> kernels[] = {{1, 1, 1}, {2, 2, 2}, {3, 3, 3}, {3, 3, 3}, {3, 5, 3}, {3, 1, 7}};
  const int64_t sizes[] = {1, 5, 8, 31, 32, 33, 70}, strides[] = {1, 1, 2, 3}, dilations[] = {1, 1, 2, 4};
  const int64_t batches[] = {0, 1, 1, 3};
  int checked = 0;
  const PaddingMode modes[] = {PaddingMode::zero, PaddingMode::zero, PaddingMode::symmetric, PaddingMode::reflect,
                               PaddingMode::replicate};
  for (int trial = 0; checked < 400; ++trial) {
    ASSERT_LT(trial, 100000);
    const int axes = std::uniform_int_distribution<int>(1, 3)(engine);
    Sizes s;
    s.batch = pick(batches);
    std::tie(s.in, s.out) = pick(channels);
    const std::vector<int64_t> kernel = pick(kernels);
    s.mode = pick(modes);
    for (int a = 0; a < axes; ++a) {
      s.input.push_back(pick(sizes));
      s.kernel.push_back(kernel[static_cast<std::size_t>(3 - axes + a)]);
      s.stride.push_back(pick(strides));
      s.dilation.push_back(pick(dilations));
      const int64_t reach = s.dilation.back() * (s.kernel.back() - 1);
      const int64_t paddings[] = {0, reach / 2, reach, reach + 2, s.input.back()};
      s.padding.push_back(pick(paddings));
    }
    const int64_t groups[] = {1, 1, 2, s.in};
    s.groups = pick(groups);
    Conv c;
    if (!make_conv(s, &c)) continue;
    if (y_size(c) * (c.in / c.groups) * product(c.kernel) > 400000) continue;
    check<TypeParam>(c, {trial % 3 != 0, trial % 4 < 2});
    if (this->HasFatalFailure()) return;
    ++checked;
  }
}

TYPED_TEST(Convolution, IsItsDefinitionWhereOneImageIsManyBlocks) {
  const Sizes problems[] = {
      square(1, 1, 1, 193, 3, 1),
      square(1, 1, 1, 193, 3, 10, 1, 10, PaddingMode::symmetric),
      square(1, 2, 3, 129, 3, 4, 1, 4),
      square(2, 5, 1, 65, 3, 4, 1, 4, PaddingMode::symmetric),
      square(1, 16, 16, 32, 3, 1),
      square(1, 4, 4, 97, 5, 2, 2, 1),
      square(1, 9, 1, 96, 3, 3, 1, 3),
      square(40, 1, 8, 8, 3, 1),
      {1, 1, 2, 1, {50000}, {5}, {1}, {7}, {14}, PaddingMode::zero},
      {1, 2, 2, 1, {9, 17, 65}, {3, 3, 3}, {1, 1, 1}, {2, 1, 1}, {2, 1, 1}, PaddingMode::symmetric},
      {1, 64, 3, 1, {3, 1500}, {3, 3}, {1, 1}, {1, 1}, {1, 1}, PaddingMode::zero},
      {1, 3, 17, 1, {80, 80}, {1, 1}, {1, 1}, {1, 1}, {0, 0}, PaddingMode::zero},
      {1, 45, 1, 1, {35, 260}, {3, 3}, {1, 1}, {1, 1}, {1, 1}, PaddingMode::zero},
      {2, 72, 2, 2, {19, 300}, {3, 3}, {1, 1}, {2, 1}, {2, 1}, PaddingMode::replicate},
      {3, 90, 1, 1, {16, 254}, {3, 3}, {1, 1}, {1, 1}, {1, 1}, PaddingMode::zero},
      // More padding than columns of a block: the row itself begins within a block, wherever in a vector.
      {1, 3, 1, 1, {3, 1498}, {3, 3}, {1, 1}, {1, 1}, {1, 1392}, PaddingMode::replicate},
      {1, 17, 1, 1, {4, 218}, {3, 3}, {1, 1}, {1, 1}, {1, 112}, PaddingMode::replicate},
  };
  for (const Sizes& problem : problems) {
    for (const bool relu : {false, true}) {
      check<TypeParam>(conv_of(problem), {true, relu});
      if (this->HasFatalFailure()) return;
    }
  }
}

// So many taps are taken in parts, between which the sums wait in y; of few positions they are not, and the bits are the same.
TYPED_TEST(Convolution, OfManyTapsIsOneChain) {
  using T = TypeParam;
  const Sizes problems[] = {
      {1, 70, 5, 1, {9, 45}, {3, 3}, {1, 1}, {1, 1}, {0, 0}, PaddingMode::zero},   // row by row
      {2, 90, 9, 1, {34, 19}, {3, 3}, {1, 1}, {1, 1}, {0, 0}, PaddingMode::zero},  // rows joined to one run
      {1, 200, 9, 1, {65, 6}, {2, 2}, {1, 1}, {1, 1}, {0, 0}, PaddingMode::zero},  // with narrower vectors too
      {1, 20, 3, 1, {30, 91}, {5, 7}, {1, 1}, {2, 3}, {0, 0}, PaddingMode::zero},
      {1, 100, 4, 1, {40, 40}, {3, 3}, {2, 2}, {1, 1}, {0, 0}, PaddingMode::zero},
      {1, 30, 4, 1, {5, 14, 25}, {3, 3, 3}, {1, 1, 1}, {1, 1, 1}, {0, 0, 0}, PaddingMode::zero},
      {2, 45, 1, 1, {23, 261}, {3, 3}, {1, 1}, {1, 1}, {0, 0}, PaddingMode::zero},  // some channels at a time
      {1, 1300, 1, 1, {40, 9}, {3, 3}, {1, 1}, {1, 1}, {0, 0}, PaddingMode::zero},
      {1, 90, 2, 2, {24, 250}, {3, 3}, {1, 1}, {2, 3}, {0, 0}, PaddingMode::zero},
  };
  for (const Sizes& problem : problems) {
    for (const bool relu : {false, true}) check<T>(conv_of(problem), {true, relu});
    if (this->HasFatalFailure()) return;

    // The last rows and columns of the first image, just enough for two outputs along each axis.
    Sizes corner = problem;
    corner.batch = 1;
    for (std::size_t a = 0; a < corner.input.size(); ++a) {
      corner.input[a] = corner.dilation[a] * (corner.kernel[a] - 1) + corner.stride[a] + 1;
    }
    const Conv whole = conv_of(problem), part = conv_of(corner);
    int64_t from[3], to[3];  // where the corner lies, in the input and in the output
    for (int a = 0; a < 3; ++a) {
      to[a] = whole.output[a] - part.output[a];
      from[a] = to[a] * whole.stride[a];
    }
    const auto crop = [](const std::vector<T>& values, int64_t channels, const int64_t(&n)[3], const int64_t(&first)[3],
                         const int64_t(&count)[3]) {
      std::vector<T> cropped;
      for (int64_t c = 0; c < channels; ++c) {
        for (int64_t i = 0; i < count[0]; ++i) {
          for (int64_t j = 0; j < count[1]; ++j) {
            const int64_t row = ((c * n[0] + first[0] + i) * n[1] + first[1] + j) * n[2] + first[2];
            cropped.insert(cropped.end(), values.begin() + row, values.begin() + row + count[2]);
          }
        }
      }
      return cropped;
    };
    const std::vector<T> x = random_values<T>(x_size(whole), 1), weight = random_values<T>(weight_size(whole), 2);
    const std::vector<T> bias = random_values<T>(whole.out, 3);
    const std::vector<T> y = run_forward(whole, x, weight, &bias, Epilogue::relu);
    const std::vector<T> x_corner = crop(x, whole.in, whole.input, from, part.input);
    const std::vector<T> y_corner = run_forward(part, x_corner, weight, &bias, Epilogue::relu);
    EXPECT_TRUE(bytes_of(y_corner) == bytes_of(crop(y, whole.out, whole.output, to, part.output))) << describe(whole);
  }
}

// The input's gradient takes taps from all output channels, of strided outputs, beside the mask and the padding.
TYPED_TEST(Convolution, OfManyOutputsHasItsInputGradient) {
  const Sizes problems[] = {
      {1, 5, 100, 1, {24, 45}, {3, 3}, {1, 1}, {1, 1}, {1, 1}, PaddingMode::zero},
      {1, 5, 200, 1, {40, 45}, {3, 3}, {2, 2}, {1, 1}, {1, 1}, PaddingMode::zero},
      {2, 4, 140, 2, {20, 31}, {3, 3}, {1, 1}, {1, 2}, {2, 2}, PaddingMode::zero},
      {1, 3, 90, 1, {21, 33}, {3, 3}, {1, 1}, {1, 1}, {2, 2}, PaddingMode::symmetric},
      {1, 1, 50, 1, {22, 270}, {3, 3}, {1, 1}, {1, 1}, {1, 1}, PaddingMode::zero},
  };
  for (const Sizes& problem : problems) {
    for (const bool relu : {false, true}) check<TypeParam>(conv_of(problem), {true, relu});
    if (this->HasFatalFailure()) return;
  }
}

TYPED_TEST(Convolution, OfOneChannelHasItsGradientsInOnePass) {
  std::mt19937 engine(11);
  const auto up_to = [&](int64_t least, int64_t most) {
    return std::uniform_int_distribution<int64_t>(least, most)(engine);
  };
  for (int trial = 0; trial < 200; ++trial) {
    Sizes s;
    s.batch = up_to(1, 3);
    s.in = s.out = s.groups = trial % 3 == 0 ? up_to(2, 5) : 1;
    const int64_t most = trial % 8 == 0 ? 150 : 40;
    for (int a = 0; a < 2; ++a) {
      s.input.push_back(up_to(trial % 10 == 0 ? 0 : 1, most));
      s.kernel.push_back(3);
      s.stride.push_back(1);
      s.dilation.push_back(up_to(1, 6));
      s.padding.push_back(up_to(0, 2 * s.dilation.back() + 1));  // the last is too much for one pass
    }
    Conv c;
    if (!make_conv(s, &c) || y_size(c) == 0) continue;
    check<TypeParam>(c, {true, trial % 2 == 0});
    if (this->HasFatalFailure()) return;
  }
}

TYPED_TEST(Convolution, OfAnEmptyImageHasItsGradientsInOnePass) {
  for (const std::vector<int64_t>& input : {std::vector<int64_t>{0, 5}, {5, 0}, {0, 0}})
    check<TypeParam>(conv_of({2, 1, 1, 1, input, {3, 3}, {1, 1}, {1, 1}, {2, 2}, PaddingMode::zero}), {});
}

TYPED_TEST(Convolution, OfNothingGivesBiasAndZeroGradients) {
  using T = TypeParam;
  const Conv empty_batch = conv_of(square(0, 2, 3, 5, 3, 1));
  const WeightGradients<T> gradients = run_backward_weight<T>(empty_batch, {}, {}, nullptr);
  EXPECT_EQ(gradients.dweight, std::vector<T>(54, 0));
  EXPECT_EQ(gradients.dbias, std::vector<T>(3, 0));

  const Conv no_channels = conv_of(square(1, 0, 2, 2, 1, 0));
  const std::vector<T> bias = {5, -7};
  EXPECT_EQ(run_forward<T>(no_channels, {}, {}, &bias, Epilogue::none), (std::vector<T>{5, 5, 5, 5, -7, -7, -7, -7}));

  const WeightGradients<T> only_bias = run_backward_weight<T>(no_channels, {}, {1, 2, 3, 4, 5, 6, 7, 8}, nullptr);
  EXPECT_EQ(only_bias.dweight, std::vector<T>());
  EXPECT_EQ(only_bias.dbias, (std::vector<T>{10, 26}));

  const Conv no_outputs = conv_of(square(1, 2, 0, 3, 3, 1));
  EXPECT_EQ(run_backward_input<T>(no_outputs, {}, nullptr, {}), std::vector<T>(18, 0));

  const Conv only_padding = conv_of({1, 1, 1, 1, {0}, {1}, {1}, {1}, {1}, PaddingMode::zero});
  EXPECT_EQ(run_forward<T>(only_padding, {}, {3}, nullptr, Epilogue::none), (std::vector<T>{0, 0}));
}

TYPED_TEST(Convolution, InputsThatNoOutputReachesGetNoGradient) {
  using T = TypeParam;
  const Conv c = conv_of({1, 1, 1, 1, {8}, {1}, {3}, {1}, {0}, PaddingMode::zero});
  EXPECT_EQ(run_backward_input<T>(c, {1, 2, 3}, nullptr, {5}), (std::vector<T>{5, 0, 0, 10, 0, 0, 15, 0}));
}

TYPED_TEST(Convolution, GradientOfTheInputIsTheAdjoint) {
  using T = TypeParam;
  for (const PaddingMode mode :
       {PaddingMode::zero, PaddingMode::symmetric, PaddingMode::reflect, PaddingMode::replicate}) {
    for (const int64_t padding : {0, 1, 4, 8}) {
      for (const int64_t stride : {1, 2, 3}) {
        const Conv c = conv_of(square(2, 3, 5, 9, 3, padding, stride, 2, mode));
        const std::vector<T> x = random_values<T>(x_size(c), 1), weight = random_values<T>(weight_size(c), 2);
        const std::vector<T> g = random_values<T>(y_size(c), 3);

        const std::vector<T> y = run_forward(c, x, weight, nullptr, Epilogue::none);
        const std::vector<T> dx = run_backward_input(c, g, nullptr, weight);

        Sum forward, backward;
        for (std::size_t i = 0; i < y.size(); ++i) forward.add(static_cast<double>(y[i]) * static_cast<double>(g[i]));
        for (std::size_t i = 0; i < x.size(); ++i) backward.add(static_cast<double>(x[i]) * static_cast<double>(dx[i]));
        const double tolerance = 4 * static_cast<double>(std::numeric_limits<T>::epsilon()) * forward.scale;
        EXPECT_NEAR(forward.value, backward.value, tolerance) << describe(c);
      }
    }
  }
}

TYPED_TEST(Convolution, NanAndInfinityReachExactlyWhatDependsOnThem) {
  using T = TypeParam;
  const T nan = std::numeric_limits<T>::quiet_NaN(), infinity = std::numeric_limits<T>::infinity();
  const Sizes problems[] = {
      square(1, 2, 3, 9, 3, 1),    square(2, 1, 1, 40, 3, 2, 1, 2),
      square(1, 1, 2, 9, 3, 1, 2), square(1, 2, 2, 8, 3, 2, 1, 2, PaddingMode::symmetric),
      square(3, 4, 4, 5, 1, 0),    square(1, 2, 33, 9, 3, 1),
      square(2, 3, 16, 40, 3, 1),  {1, 1, 1, 1, {1, 8}, {3, 3}, {1, 1}, {5, 5}, {6, 6}, PaddingMode::zero}};
  for (const Sizes& problem : problems) {
    const Conv c = conv_of(problem);
    for (const T special : {nan, infinity, -infinity}) {
      for (const bool relu : {false, true}) {
        std::vector<T> x = random_values<T>(x_size(c), 1), dy = random_values<T>(y_size(c), 3);
        const std::vector<T> weight = random_values<T>(weight_size(c), 2);
        x[3] = x[x.size() - 1] = special;
        check<T>(c, {true, relu}, x, weight, dy);
        x = random_values<T>(x_size(c), 1);
        dy[0] = dy[dy.size() / 2] = special;
        check<T>(c, {true, relu}, x, weight, dy);
        if (this->HasFatalFailure()) return;
      }
    }
  }
}

TYPED_TEST(Convolution, MaskPassesNanAndStopsAtZero) {
  using T = TypeParam;
  const T nan = std::numeric_limits<T>::quiet_NaN();
  const Conv c = conv_of({1, 1, 1, 1, {5}, {1}, {1}, {1}, {0}, PaddingMode::zero});
  const std::vector<T> y = {nan, 0, T(-0.0), -1, 2}, dy = {1, 2, 3, 4, 5};
  EXPECT_EQ(run_backward_input<T>(c, dy, &y, {10}), (std::vector<T>{10, 0, 0, 0, 50}));
  const WeightGradients<T> gradients = run_backward_weight<T>(c, {1, 1, 1, 1, 1}, dy, &y);
  EXPECT_EQ(gradients.dweight, std::vector<T>{6});
  EXPECT_EQ(gradients.dbias, std::vector<T>{6});
}

std::vector<Conv> assorted_problems(int64_t batch) {
  return {conv_of(square(batch, 1, 1, 257, 3, 1)),
          conv_of({batch, 3, 3, 3, {150, 70}, {3, 3}, {1, 1}, {3, 2}, {3, 1}, PaddingMode::zero}),
          conv_of(square(batch, 1, 16, 32, 3, 1)),
          conv_of(square(batch, 16, 16, 33, 3, 4, 1, 4, PaddingMode::symmetric)),
          conv_of(square(batch, 17, 33, 8, 3, 1)),
          conv_of({batch, 50, 1, 1, {18, 260}, {3, 3}, {1, 1}, {1, 1}, {1, 1}, PaddingMode::zero}),
          conv_of(square(batch, 8, 8, 70, 5, 2, 2)),
          conv_of({batch, 6, 6, 6, {31, 31}, {3, 3}, {1, 1}, {1, 1}, {1, 1}, PaddingMode::zero}),
          conv_of({batch, 70, 72, 1, {9, 41}, {3, 3}, {1, 1}, {1, 1}, {1, 1}, PaddingMode::zero}),
          conv_of({batch, 2, 3, 1, {9, 17, 33}, {3, 3, 3}, {1, 1, 1}, {1, 1, 2}, {1, 1, 2}, PaddingMode::symmetric})};
}

TYPED_TEST(Convolution, GivesTheSameBitsForAnyNumberOfThreads) {
  using T = TypeParam;
  const int threads_before = num_threads();
  for (const Conv& c : assorted_problems(9)) {
    const std::vector<T> x = random_values<T>(x_size(c), 1), weight = random_values<T>(weight_size(c), 2);
    const std::vector<T> dy = random_values<T>(y_size(c), 3);
    std::string first;
    for (const int threads : {1, 2, 3, 7}) {
      set_num_threads(threads);
      const std::vector<T> y = run_forward<T>(c, x, weight, nullptr, Epilogue::relu);
      const WeightGradients<T> gradients = run_backward_weight(c, x, dy, &y);
      const AllGradients<T> all = run_backward(c, x, dy, &y, weight);
      const std::string bytes = bytes_of(y) + bytes_of(run_backward_input(c, dy, &y, weight)) +
                                bytes_of(gradients.dweight) + bytes_of(gradients.dbias) + bytes_of(all.dx) +
                                bytes_of(all.dweight) + bytes_of(all.dbias);
      if (threads == 1) first = bytes;
      EXPECT_TRUE(bytes == first) << threads << " threads: " << describe(c);
    }
  }
  set_num_threads(threads_before);
}

TYPED_TEST(Convolution, OfAnImageAloneGivesTheSameBitsAsInABatch) {
  using T = TypeParam;
  for (const Conv& c : assorted_problems(3)) {
    const std::vector<T> x = random_values<T>(x_size(c), 1), weight = random_values<T>(weight_size(c), 2);
    const std::vector<T> dy = random_values<T>(y_size(c), 3);
    const std::vector<T> y = run_forward<T>(c, x, weight, nullptr, Epilogue::relu);
    const std::vector<T> dx = run_backward_input(c, dy, &y, weight);

    Conv alone = c;
    alone.batch = 1;
    std::vector<T> joined_y, joined_dx;
    for (int64_t n = 0; n < c.batch; ++n) {
      const auto image = [n](const std::vector<T>& values, int64_t size) {
        return std::vector<T>(values.begin() + n * size, values.begin() + (n + 1) * size);
      };
      const std::vector<T> one_y = run_forward<T>(alone, image(x, x_size(alone)), weight, nullptr, Epilogue::relu);
      const std::vector<T> one_dx = run_backward_input(alone, image(dy, y_size(alone)), &one_y, weight);
      joined_y.insert(joined_y.end(), one_y.begin(), one_y.end());
      joined_dx.insert(joined_dx.end(), one_dx.begin(), one_dx.end());
    }

    EXPECT_TRUE(bytes_of(y) == bytes_of(joined_y)) << describe(c);
    EXPECT_TRUE(bytes_of(dx) == bytes_of(joined_dx)) << describe(c);
  }
}

// So much input that, with AVX2, tiles ask for the next block of it.
TYPED_TEST(Convolution, OfImagesFromMemoryGivesTheSameBitsAsOfEach) {
  using T = TypeParam;
  const int64_t images = test::bytes_past_caches() / (16 * 260 * 270 * static_cast<int64_t>(sizeof(T))) + 1;
  const Conv c = conv_of({images, 16, 2, 2, {260, 270}, {3, 3}, {1, 1}, {2, 1}, {2, 1}, PaddingMode::zero});
  const std::vector<T> x = random_values<T>(x_size(c), 1), weight = random_values<T>(weight_size(c), 2);
  const std::vector<T> y = run_forward<T>(c, x, weight, nullptr, Epilogue::none);

  Conv alone = c;
  alone.batch = 1;
  std::vector<T> joined;
  for (int64_t n = 0; n < c.batch; ++n) {
    const auto first = x.begin() + n * x_size(alone);
    const std::vector<T> one = run_forward<T>(alone, {first, first + x_size(alone)}, weight, nullptr, Epilogue::none);
    joined.insert(joined.end(), one.begin(), one.end());
  }
  EXPECT_TRUE(bytes_of(y) == bytes_of(joined));
}

TYPED_TEST(Convolution, BiasGradientMayBeLeftOut) {
  using T = TypeParam;
  const Conv c = conv_of(square(2, 3, 5, 9, 3, 1));
  const std::vector<T> x = random_values<T>(x_size(c), 1), dy = random_values<T>(y_size(c), 3);
  const WeightGradients<T> with = run_backward_weight<T>(c, x, dy, nullptr);
  const WeightGradients<T> without = run_backward_weight<T>(c, x, dy, nullptr, false);
  EXPECT_EQ(with.dweight, without.dweight);
  EXPECT_EQ(without.dbias, std::vector<T>(5, T(-12345)));  // as it was
}

}  // namespace
}  // namespace reel
