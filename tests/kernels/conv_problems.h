#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <random>
#include <string>
#include <type_traits>
#include <vector>

#include "reel/backends/cpu/cpu.h"
#include "reel/core/ops.h"

/// For tests of convolution kernels: problems, the definition as plain loops in double precision, and calls of the kernels
/// on guarded memory.
namespace reel::conv_testing {

using std::int64_t;

// --- problems ----------------------------------------------------------------------------------------------------------

struct Sizes {
  int64_t batch = 1, in = 1, out = 1, groups = 1;
  std::vector<int64_t> input, kernel, stride, dilation, padding;
  PaddingMode mode = PaddingMode::zero;
};

/// False if no output would exist or the contract does not allow it.
inline bool make_conv(const Sizes& s, Conv* conv) {
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
    if (s.mode == PaddingMode::reflect && s.padding[i] >= s.input[i]) return false;
    if (s.mode == PaddingMode::replicate && s.input[i] == 0) return false;
    const int64_t room = s.input[i] + 2 * s.padding[i] - s.dilation[i] * (s.kernel[i] - 1) - 1;
    if (room < 0) return false;
    conv->output[a] = room / s.stride[i] + 1;
  }
  return s.in % s.groups == 0 && s.out % s.groups == 0;
}

inline Conv conv_of(const Sizes& s) {
  Conv conv;
  EXPECT_TRUE(make_conv(s, &conv));
  return conv;
}

/// A 2-D problem with the same numbers along both axes.
inline Sizes square(int64_t batch, int64_t in, int64_t out, int64_t size, int64_t kernel, int64_t padding,
                    int64_t stride = 1, int64_t dilation = 1, PaddingMode mode = PaddingMode::zero) {
  return {batch, in, out, 1, {size, size}, {kernel, kernel}, {stride, stride}, {dilation, dilation}, {padding, padding},
          mode};
}

inline int64_t product(const int64_t (&n)[3]) { return n[0] * n[1] * n[2]; }
inline int64_t x_size(const Conv& c) { return c.batch * c.in * product(c.input); }
inline int64_t y_size(const Conv& c) { return c.batch * c.out * product(c.output); }
inline int64_t weight_size(const Conv& c) { return c.out * (c.in / c.groups) * product(c.kernel); }

inline const char* name_of(PaddingMode mode) {
  const char* names[] = {"zero", "symmetric", "reflect", "replicate"};
  return names[static_cast<int>(mode)];
}

inline std::string describe(const Conv& c) {
  const auto triple = [](const char* name, const int64_t(&n)[3]) {
    return std::string(" ") + name + " " + std::to_string(n[0]) + "," + std::to_string(n[1]) + "," +
           std::to_string(n[2]);
  };
  return "batch " + std::to_string(c.batch) + " channels " + std::to_string(c.in) + "->" + std::to_string(c.out) +
         " groups " + std::to_string(c.groups) + triple("input", c.input) + triple("kernel", c.kernel) +
         triple("stride", c.stride) + triple("dilation", c.dilation) + triple("padding", c.padding) + " " +
         name_of(c.mode);
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
inline int64_t source(int64_t i, int64_t size, PaddingMode mode) {
  if (i >= 0 && i < size) return i;
  switch (mode) {
    case PaddingMode::zero:
      return -1;
    case PaddingMode::symmetric:
      return i < 0 ? -1 - i : 2 * size - 1 - i;
    case PaddingMode::reflect:
      return i < 0 ? -i : 2 * size - 2 - i;
    case PaddingMode::replicate:
      break;
  }
  return i < 0 ? 0 : size - 1;
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
  /// As `images` equal parts.
  Array array(int64_t images = 1) {
    Array a;
    a.data = data_.data() + kMargin;
    a.size = size_;
    a.shape = Shape{images, images == 0 ? 0 : size_ / images};
    a.strides[0] = a.shape[1];
    a.strides[1] = 1;
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
  cpu::ops().conv(c, gx.array(c.batch), gw.array(), bias ? &b : nullptr, epilogue, gy.array(c.batch));
  EXPECT_TRUE(gy.margins_untouched()) << describe(c);
  return gy.values();
}

template <class T>
std::vector<T> run_backward_input(const Conv& c, const std::vector<T>& dy, const Values<T>* y,
                                  const std::vector<T>& weight) {
  Guarded<T> gdy(dy), gy(y ? *y : std::vector<T>()), gw(weight), gdx(x_size(c));
  const Array relu_output = gy.array(c.batch);
  cpu::ops().conv_backward_input(c, gdy.array(c.batch), y ? &relu_output : nullptr, gw.array(), gdx.array(c.batch));
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
  const Array relu_output = gy.array(c.batch), dbias = gdb.array();
  cpu::ops().conv_backward_weight(c, gx.array(c.batch), gdy.array(c.batch), y ? &relu_output : nullptr, gdw.array(),
                                  with_bias ? &dbias : nullptr);
  EXPECT_TRUE(gdw.margins_untouched() && gdb.margins_untouched()) << describe(c);
  return {gdw.values(), gdb.values()};
}

template <class T>
struct AllGradients {
  std::vector<T> dx, dweight, dbias;
};

/// What run_backward_input and run_backward_weight compute, in one call.
template <class T>
AllGradients<T> run_backward(const Conv& c, const std::vector<T>& x, const std::vector<T>& dy, const Values<T>* y,
                             const std::vector<T>& weight, bool with_bias = true) {
  Guarded<T> gx(x), gdy(dy), gy(y ? *y : std::vector<T>()), gw(weight), gdx(x_size(c)), gdw(weight_size(c)), gdb(c.out);
  const Array relu_output = gy.array(c.batch), dbias = gdb.array();
  cpu::ops().conv_backward(c, gx.array(c.batch), gdy.array(c.batch), y ? &relu_output : nullptr, gw.array(),
                           gdx.array(c.batch), gdw.array(), with_bias ? &dbias : nullptr);
  EXPECT_TRUE(gdx.margins_untouched() && gdw.margins_untouched() && gdb.margins_untouched()) << describe(c);
  return {gdx.values(), gdw.values(), gdb.values()};
}

/// The values as bytes, for comparisons to the bit.
template <class T>
std::string bytes_of(const std::vector<T>& values) {
  return std::string(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T));
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
  const std::vector<T> dx = run_backward_input(c, dy, relu_output, weight);
  expect_close(dx, want_dx, "dx", c);
  const WeightGradients<T> gradients = run_backward_weight(c, x, dy, relu_output);
  expect_close(gradients.dweight, want_dw, "dweight", c);
  expect_close(gradients.dbias, want_db, "dbias", c);

  const AllGradients<T> all = run_backward(c, x, dy, relu_output, weight);
  EXPECT_TRUE(bytes_of(all.dx) == bytes_of(dx)) << describe(c);
  expect_close(all.dweight, want_dw, "dweight along with dx", c);
  expect_close(all.dbias, want_db, "dbias along with dx", c);
}

template <class T>
void check(const Conv& c, const Options& options) {
  check(c, options, random_values<T>(x_size(c), 1), random_values<T>(weight_size(c), 2),
        random_values<T>(y_size(c), 3));
}

}  // namespace reel::conv_testing
