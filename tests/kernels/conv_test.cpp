// Convolution kernels against plain loops in double precision, written from the definition.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <random>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "reel/backends/cpu/cpu.h"
#include "reel/core/ops.h"
#include "reel/core/parallel.h"

namespace reel {
namespace {

using std::int64_t;

// --- problems ----------------------------------------------------------------------------------------------------------

struct Sizes {
  int64_t batch = 1, in = 1, out = 1, groups = 1;
  std::vector<int64_t> input, kernel, stride, dilation, padding;
  PaddingMode mode = PaddingMode::zero;
};

/// False if no output would exist or the contract does not allow it.
bool make_conv(const Sizes& s, Conv* conv) {
  *conv = Conv{};
  conv->batch = s.batch;
  conv->in = s.in;
  conv->out = s.out;
  conv->groups = s.groups;
  conv->mode = s.mode;
  for (std::size_t i = 0; i < s.input.size(); ++i) {
    const std::size_t a = 3 - s.input.size() + i;
    conv->input[a] = s.input[i];
    conv->kernel[a] = s.kernel[i];
    conv->stride[a] = s.stride[i];
    conv->dilation[a] = s.dilation[i];
    conv->padding[a] = s.padding[i];
    if (s.mode == PaddingMode::symmetric && s.padding[i] > s.input[i]) return false;
    const int64_t room = s.input[i] + 2 * s.padding[i] - s.dilation[i] * (s.kernel[i] - 1) - 1;
    if (room < 0) return false;
    conv->output[a] = room / s.stride[i] + 1;
  }
  return s.in % s.groups == 0 && s.out % s.groups == 0;
}

Conv conv_of(const Sizes& s) {
  Conv conv;
  EXPECT_TRUE(make_conv(s, &conv));
  return conv;
}

/// A 2-D problem with the same numbers along both axes.
Sizes square(int64_t batch, int64_t in, int64_t out, int64_t size, int64_t kernel, int64_t padding, int64_t stride = 1,
             int64_t dilation = 1, PaddingMode mode = PaddingMode::zero) {
  return {batch, in, out, 1, {size, size}, {kernel, kernel}, {stride, stride}, {dilation, dilation}, {padding, padding},
          mode};
}

int64_t product(const int64_t (&n)[3]) { return n[0] * n[1] * n[2]; }
int64_t x_size(const Conv& c) { return c.batch * c.in * product(c.input); }
int64_t y_size(const Conv& c) { return c.batch * c.out * product(c.output); }
int64_t weight_size(const Conv& c) { return c.out * (c.in / c.groups) * product(c.kernel); }

std::string describe(const Conv& c) {
  const auto triple = [](const char* name, const int64_t(&n)[3]) {
    return std::string(" ") + name + " " + std::to_string(n[0]) + "," + std::to_string(n[1]) + "," +
           std::to_string(n[2]);
  };
  return "batch " + std::to_string(c.batch) + " channels " + std::to_string(c.in) + "->" + std::to_string(c.out) +
         " groups " + std::to_string(c.groups) + triple("input", c.input) + triple("kernel", c.kernel) +
         triple("stride", c.stride) + triple("dilation", c.dilation) + triple("padding", c.padding) +
         (c.mode == PaddingMode::symmetric ? " symmetric" : " zero");
}

// --- the definition ----------------------------------------------------------------------------------------------------

/// A sum in double, and that of its terms' absolute values, which scales the tolerance.
struct Sum {
  double value = 0, scale = 0;
  void add(double term) {
    value += term;
    scale += std::abs(term);
  }
};

/// The input index behind padded index i of an axis, or -1 for a zero.
int64_t source(int64_t i, int64_t size, PaddingMode mode) {
  if (i >= 0 && i < size) return i;
  if (mode == PaddingMode::zero) return -1;
  return i < 0 ? -1 - i : 2 * size - 1 - i;
}

/// Calls term(x, weight, y) with the indices of every product x * weight that is a term of y; x is -1 for a zero of the
/// padding, which is multiplied like any other number.
template <class F>
void for_each_term(const Conv& c, F term) {
  const int64_t in = c.in / c.groups, out = c.out / c.groups;
  int64_t o[3], k[3];
  for (int64_t n = 0; n < c.batch; ++n) {
    for (int64_t channel = 0; channel < c.out; ++channel) {
      int64_t y = (n * c.out + channel) * product(c.output);
      for (o[0] = 0; o[0] < c.output[0]; ++o[0]) {
        for (o[1] = 0; o[1] < c.output[1]; ++o[1]) {
          for (o[2] = 0; o[2] < c.output[2]; ++o[2], ++y) {
            for (int64_t i = 0; i < in; ++i) {
              int64_t weight = (channel * in + i) * product(c.kernel);
              const int64_t x = (n * c.in + channel / out * in + i) * product(c.input);
              for (k[0] = 0; k[0] < c.kernel[0]; ++k[0]) {
                for (k[1] = 0; k[1] < c.kernel[1]; ++k[1]) {
                  for (k[2] = 0; k[2] < c.kernel[2]; ++k[2], ++weight) {
                    int64_t at[3];
                    for (int a = 0; a < 3; ++a) {
                      at[a] = source(o[a] * c.stride[a] + k[a] * c.dilation[a] - c.padding[a], c.input[a], c.mode);
                    }
                    const bool inside = at[0] >= 0 && at[1] >= 0 && at[2] >= 0;
                    term(inside ? x + (at[0] * c.input[1] + at[1]) * c.input[2] + at[2] : -1, weight, y);
                  }
                }
              }
            }
          }
        }
      }
    }
  }
}

// --- running the kernels ---------------------------------------------------------------------------------------------

/// Elements with a margin on both sides that tells whether somebody wrote there.
template <class T>
class Guarded {
 public:
  explicit Guarded(int64_t size) : size_(size), data_(static_cast<std::size_t>(size + 2 * kMargin), T(-12345)) {}
  explicit Guarded(const std::vector<T>& values) : Guarded(static_cast<int64_t>(values.size())) {
    std::copy(values.begin(), values.end(), data_.begin() + kMargin);
  }
  Array array() {
    Array a;
    a.data = data_.data() + kMargin;
    a.size = size_;
    a.shape = Shape{size_};
    a.strides[0] = 1;
    a.dtype = dtype_of<T>;
    return a;
  }
  std::vector<T> values() const {
    return std::vector<T>(data_.begin() + kMargin, data_.begin() + kMargin + static_cast<std::ptrdiff_t>(size_));
  }
  bool margins_untouched() const {
    for (int64_t i = 0; i < kMargin; ++i) {
      if (data_[static_cast<std::size_t>(i)] != T(-12345)) return false;
      if (data_[static_cast<std::size_t>(kMargin + size_ + i)] != T(-12345)) return false;
    }
    return true;
  }

 private:
  static constexpr int64_t kMargin = 64;
  int64_t size_;
  std::vector<T> data_;
};

template <class T>
std::vector<T> random_values(int64_t size, unsigned seed) {
  std::mt19937 engine(seed);
  std::uniform_real_distribution<double> uniform(-1, 1);
  std::vector<T> values(static_cast<std::size_t>(size));
  for (T& value : values) value = static_cast<T>(uniform(engine));
  return values;
}

/// May be null without saying of which type.
template <class T>
using Values = std::type_identity_t<std::vector<T>>;

template <class T>
std::vector<T> run_forward(const Conv& c, const std::vector<T>& x, const std::vector<T>& weight, const Values<T>* bias,
                           Epilogue epilogue) {
  Guarded<T> gx(x), gw(weight), gb(bias ? *bias : std::vector<T>()), gy(y_size(c));
  const Array b = gb.array();
  cpu::ops().conv(c, gx.array(), gw.array(), bias ? &b : nullptr, epilogue, gy.array());
  EXPECT_TRUE(gy.margins_untouched()) << describe(c);
  return gy.values();
}

template <class T>
std::vector<T> run_backward_input(const Conv& c, const std::vector<T>& dy, const Values<T>* y,
                                  const std::vector<T>& weight) {
  Guarded<T> gdy(dy), gy(y ? *y : std::vector<T>()), gw(weight), gdx(x_size(c));
  const Array relu_output = gy.array();
  cpu::ops().conv_backward_input(c, gdy.array(), y ? &relu_output : nullptr, gw.array(), gdx.array());
  EXPECT_TRUE(gdx.margins_untouched()) << describe(c);
  return gdx.values();
}

template <class T>
struct WeightGradients {
  std::vector<T> dweight, dbias;
};

template <class T>
WeightGradients<T> run_backward_weight(const Conv& c, const std::vector<T>& x, const std::vector<T>& dy,
                                       const Values<T>* y, bool with_bias = true) {
  Guarded<T> gx(x), gdy(dy), gy(y ? *y : std::vector<T>()), gdw(weight_size(c)), gdb(c.out);
  const Array relu_output = gy.array(), dbias = gdb.array();
  cpu::ops().conv_backward_weight(c, gx.array(), gdy.array(), y ? &relu_output : nullptr, gdw.array(),
                                  with_bias ? &dbias : nullptr);
  EXPECT_TRUE(gdw.margins_untouched() && gdb.margins_untouched()) << describe(c);
  return {gdw.values(), gdb.values()};
}

/// Equal within a few roundings per term; NaN to NaN and infinity to infinity.
template <class T>
void expect_close(const std::vector<T>& got, const std::vector<Sum>& want, const char* what, const Conv& c) {
  ASSERT_EQ(got.size(), want.size());
  for (std::size_t i = 0; i < got.size(); ++i) {
    const double value = static_cast<double>(got[i]), expected = want[i].value;
    if (std::isnan(expected) && std::isnan(value)) continue;
    if (value == expected) continue;
    const double tolerance = 4 * static_cast<double>(std::numeric_limits<T>::epsilon()) * want[i].scale;
    ASSERT_TRUE(std::isfinite(expected) && std::abs(value - expected) <= tolerance)
        << what << "[" << i << "] is " << value << " instead of " << expected << ": " << describe(c);
  }
}

struct Options {
  bool bias = true, relu = false;
};

/// Forward and all gradients against the definition, for given x.
template <class T>
void check(const Conv& c, const Options& options, const std::vector<T>& x, const std::vector<T>& weight,
           const std::vector<T>& dy) {
  const std::vector<T> bias = random_values<T>(c.out, 4);
  const int64_t plane = product(c.output);
  std::vector<Sum> want_y(static_cast<std::size_t>(y_size(c)));
  if (options.bias) {
    for (std::size_t i = 0; i < want_y.size(); ++i) {
      want_y[i].add(static_cast<double>(bias[static_cast<std::size_t>(static_cast<int64_t>(i) / plane % c.out)]));
    }
  }
  const auto x_at = [&](int64_t i) { return i < 0 ? 0 : static_cast<double>(x[static_cast<std::size_t>(i)]); };
  const auto weight_at = [&](int64_t w) { return static_cast<double>(weight[static_cast<std::size_t>(w)]); };
  for_each_term(
      c, [&](int64_t i, int64_t w, int64_t o) { want_y[static_cast<std::size_t>(o)].add(x_at(i) * weight_at(w)); });
  if (options.relu) {
    for (Sum& sum : want_y) sum.value = sum.value < 0 ? 0 : sum.value;
  }
  const std::vector<T> y =
      run_forward(c, x, weight, options.bias ? &bias : nullptr, options.relu ? Epilogue::relu : Epilogue::none);
  expect_close(y, want_y, "y", c);

  std::vector<Sum> want_dx(x.size()), want_dw(weight.size()), want_db(static_cast<std::size_t>(c.out));
  std::vector<double> dz(dy.size());
  for (std::size_t i = 0; i < dz.size(); ++i) {
    dz[i] = options.relu && y[i] <= 0 ? 0 : static_cast<double>(dy[i]);
    want_db[static_cast<std::size_t>(static_cast<int64_t>(i) / plane % c.out)].add(dz[i]);
  }
  for_each_term(c, [&](int64_t i, int64_t w, int64_t o) {
    const double d = dz[static_cast<std::size_t>(o)];
    if (i >= 0) want_dx[static_cast<std::size_t>(i)].add(d * weight_at(w));
    want_dw[static_cast<std::size_t>(w)].add(d * x_at(i));
  });
  const std::vector<T>* relu_output = options.relu ? &y : nullptr;
  expect_close(run_backward_input(c, dy, relu_output, weight), want_dx, "dx", c);
  const WeightGradients<T> gradients = run_backward_weight(c, x, dy, relu_output);
  expect_close(gradients.dweight, want_dw, "dweight", c);
  expect_close(gradients.dbias, want_db, "dbias", c);
}

template <class T>
void check(const Conv& c, const Options& options) {
  check(c, options, random_values<T>(x_size(c), 1), random_values<T>(weight_size(c), 2),
        random_values<T>(y_size(c), 3));
}

// --- tests -------------------------------------------------------------------------------------------------------------

template <class T>
class Convolution : public testing::Test {};
using Types = testing::Types<float, double>;
TYPED_TEST_SUITE(Convolution, Types);

TYPED_TEST(Convolution, OfAFewNumbersIsWhatOneWritesByHand) {
  using T = TypeParam;
  Conv c = conv_of({1, 1, 1, 1, {4}, {2}, {1}, {1}, {1}, PaddingMode::zero});
  const std::vector<T> x = {1, 2, 3, 4}, weight = {10, 1}, bias = {100};

  EXPECT_EQ(run_forward(c, x, weight, &bias, Epilogue::none), (std::vector<T>{101, 112, 123, 134, 140}));
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
  for (int trial = 0; checked < 250; ++trial) {
    ASSERT_LT(trial, 100000);
    const int axes = std::uniform_int_distribution<int>(1, 3)(engine);
    Sizes s;
    s.batch = pick(batches);
    std::tie(s.in, s.out) = pick(channels);
    const std::vector<int64_t> kernel = pick(kernels);
    s.mode = trial % 2 ? PaddingMode::symmetric : PaddingMode::zero;
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
  };
  for (const Sizes& problem : problems) {
    for (const bool relu : {false, true}) {
      check<TypeParam>(conv_of(problem), {true, relu});
      if (this->HasFatalFailure()) return;
    }
  }
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
  for (const PaddingMode mode : {PaddingMode::zero, PaddingMode::symmetric}) {
    for (const int64_t padding : {0, 1, 4, 9}) {
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
  const Sizes problems[] = {square(1, 2, 3, 9, 3, 1), square(2, 1, 1, 40, 3, 2, 1, 2), square(1, 1, 2, 9, 3, 1, 2),
                            square(1, 2, 2, 8, 3, 2, 1, 2, PaddingMode::symmetric), square(3, 4, 4, 5, 1, 0)};
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

/// The kernels' results as bytes, for comparisons to the bit.
template <class T>
std::string bytes_of(const std::vector<T>& values) {
  return std::string(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T));
}

std::vector<Conv> assorted_problems(int64_t batch) {
  return {conv_of(square(batch, 1, 1, 257, 3, 1)),
          conv_of(square(batch, 1, 16, 32, 3, 1)),
          conv_of(square(batch, 16, 16, 33, 3, 4, 1, 4, PaddingMode::symmetric)),
          conv_of(square(batch, 17, 33, 8, 3, 1)),
          conv_of(square(batch, 8, 8, 70, 5, 2, 2)),
          conv_of({batch, 6, 6, 6, {31, 31}, {3, 3}, {1, 1}, {1, 1}, {1, 1}, PaddingMode::zero}),
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
      const std::string bytes = bytes_of(y) + bytes_of(run_backward_input(c, dy, &y, weight)) +
                                bytes_of(gradients.dweight) + bytes_of(gradients.dbias);
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
