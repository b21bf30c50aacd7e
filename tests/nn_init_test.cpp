#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "reel/core/error.h"
#include "reel/nn/conv.h"
#include "reel/nn/embedding.h"
#include "reel/nn/initialize.h"
#include "reel/nn/linear.h"
#include "reel/ops/create.h"
#include "reel/tests/expect.h"
#include "reel/tests/told.h"

namespace reel::nn {
namespace {

struct Moments {
  double mean, deviation, low, high;
};

Moments moments_of(const Tensor& x) {
  const std::vector<double> values = x.to_vector<double>();
  double sum = 0, squares = 0;
  for (const double value : values) sum += value;
  const double mean = sum / static_cast<double>(values.size());
  for (const double value : values) squares += (value - mean) * (value - mean);
  const auto [low, high] = std::minmax_element(values.begin(), values.end());
  return {mean, std::sqrt(squares / static_cast<double>(values.size())), *low, *high};
}

// Uniform within `bound`, of which both ends are nearly reached.
void expect_uniform(const Tensor& x, double bound) {
  const Moments m = moments_of(x);
  EXPECT_GE(m.low, -bound * (1 + 1e-6));
  EXPECT_LE(m.high, bound * (1 + 1e-6));
  EXPECT_LT(m.low, -0.99 * bound);
  EXPECT_GT(m.high, 0.99 * bound);
  EXPECT_NEAR(m.mean, 0, 0.02 * bound);
  EXPECT_NEAR(m.deviation, bound / std::sqrt(3), 0.02 * bound);
}

void expect_normal(const Tensor& x, double deviation) {
  const Moments m = moments_of(x);
  EXPECT_NEAR(m.mean, 0, 0.02 * deviation);
  EXPECT_NEAR(m.deviation, deviation, 0.02 * deviation);
  EXPECT_GT(m.high, 3 * deviation);  // it has tails
}

Parameter weight() { return Parameter(zeros({200, 10, 3, 5})); }  // fan_in 150, fan_out 3000

TEST(Init, VariancesAreThoseOfThePapers) {
  Generator generator(1);
  const Parameter w = weight();
  init::lecun_uniform(w, generator);
  expect_uniform(w, std::sqrt(3.0 / 150));
  init::lecun_normal(w, generator);
  expect_normal(w, std::sqrt(1.0 / 150));
  init::he_uniform(w, generator);
  expect_uniform(w, std::sqrt(6.0 / 150));
  init::he_normal(w, generator);
  expect_normal(w, std::sqrt(2.0 / 150));
  init::glorot_uniform(w, generator);
  expect_uniform(w, std::sqrt(6.0 / 3150));
  init::glorot_normal(w, generator);
  expect_normal(w, std::sqrt(2.0 / 3150));
  init::kaiming_uniform(w, std::sqrt(5), generator);
  expect_uniform(w, 1 / std::sqrt(150));
}

TEST(Init, PlainDistributions) {
  Generator generator(2);
  const Parameter w = weight();
  init::uniform(w, 2, 4, generator);
  EXPECT_NEAR(moments_of(w).mean, 3, 0.01);
  EXPECT_GE(moments_of(w).low, 2);
  init::normal(w, 5, 2, generator);
  EXPECT_NEAR(moments_of(w).mean, 5, 0.05);
  EXPECT_NEAR(moments_of(w).deviation, 2, 0.05);
  init::constant(w, 7);
  EXPECT_EQ(moments_of(w).low, 7);
  EXPECT_EQ(moments_of(w).high, 7);
  init::zeros(w);
  EXPECT_EQ(moments_of(w).high, 0);
}

TEST(Init, LayersStartAsPyTorchs) {
  manual_seed(3);
  const Linear dense({.in = 400, .out = 300});
  expect_uniform(dense.weight(), 1.0 / 20);
  expect_uniform(Linear({.in = 4, .out = 10000}).bias(), 1.0 / 2);
  const Conv2dRelu conv({.in = 16, .out = 500, .kernel = {3, 3}, .groups = 4});
  expect_uniform(conv.weight(), 1.0 / 6);
  expect_uniform(Conv2d({.in = 1, .out = 9000, .kernel = 2}).bias(), 1.0 / 2);
  expect_normal(Embedding({.rows = 500, .width = 60}).weight(), 1);
}

TEST(Init, OrthogonalRowsOrColumns) {
  Generator generator(4);
  for (const Shape& shape : {Shape{3, 7}, Shape{7, 3}, Shape{5, 5}, Shape{1, 1}, Shape{4, 2, 3, 3}, Shape{33, 31}}) {
    const Parameter w(zeros(shape, {.dtype = f64}));
    init::orthogonal(w, 2, generator);
    const std::int64_t rows = shape[0], cols = shape.size() / rows;
    const std::vector<double> x = w.value().to_vector<double>();
    const bool wide = rows <= cols;
    const std::int64_t count = wide ? rows : cols;
    for (std::int64_t a = 0; a < count; ++a)
      for (std::int64_t b = 0; b <= a; ++b) {
        double dot = 0;
        for (std::int64_t k = 0; k < (wide ? cols : rows); ++k)
          dot += wide ? x[a * cols + k] * x[b * cols + k] : x[k * cols + a] * x[k * cols + b];
        EXPECT_NEAR(dot, a == b ? 4 : 0, 1e-13) << shape.str();
      }
  }
}

TEST(Init, AGeneratorGivesTheSameNumbersAgain) {
  const Parameter a = weight(), b = weight();
  Generator first(5), second(5);
  init::he_normal(a, first);
  init::he_normal(b, second);
  EXPECT_EQ(a.value().to_vector<float>(), b.value().to_vector<float>());
  init::he_normal(b, second);
  EXPECT_NE(a.value().to_vector<float>(), b.value().to_vector<float>());
}

TEST(Init, IsNotRecordedAndCountsAsAWrite) {
  const Parameter w = weight();
  const std::uint32_t before = w.value().version();
  init::he_normal(w);
  EXPECT_GT(w.value().version(), before);
}

TEST(Init, NumbersOutOfRangeAreRefusedAndChangeNothing) {
  const Parameter w(ones({2, 3}));
  expect_told("init::uniform", [&] { init::uniform(w, 1, 0); });
  expect_told("init::uniform", [&] { init::uniform(w, NAN, 1); });
  expect_told("init::uniform", [&] { init::uniform(w, 0, INFINITY); });
  expect_told("init::normal", [&] { init::normal(w, 0, -1); });
  expect_told("init::normal", [&] { init::normal(w, 0, NAN); });
  expect_told("init::normal", [&] { init::normal(w, NAN, 1); });
  expect_told("init::kaiming_uniform", [&] { init::kaiming_uniform(w, NAN); });
  expect_told("init::orthogonal", [&] { init::orthogonal(w, INFINITY); });
  EXPECT_THROW_WITH(init::uniform(w, 1, 0), Error, "low <= high, both finite, is required, got 1 and 0");
  EXPECT_EQ(moments_of(w).low, 1);
  EXPECT_EQ(moments_of(w).high, 1);
  init::uniform(w, 2, 2);
  EXPECT_EQ(moments_of(w).high, 2);
  init::normal(w, 3, 0);
  EXPECT_EQ(moments_of(w).low, 3);
  init::he_uniform(Parameter(zeros({3, 0})));  // nothing to fill
}

TEST(Init, OfAnUndefinedParameterNamesTheLine) {
  const Parameter none;
  expect_told("init::zeros", [&] { init::zeros(none); });
  expect_told("init::constant", [&] { init::constant(none, 1); });
  expect_told("init::uniform", [&] { init::uniform(none, 0, 1); });
  expect_told("init::normal", [&] { init::normal(none, 0, 1); });
  expect_told("init::lecun_uniform", [&] { init::lecun_uniform(none); });
  expect_told("init::lecun_normal", [&] { init::lecun_normal(none); });
  expect_told("init::he_uniform", [&] { init::he_uniform(none); });
  expect_told("init::he_normal", [&] { init::he_normal(none); });
  expect_told("init::glorot_uniform", [&] { init::glorot_uniform(none); });
  expect_told("init::glorot_normal", [&] { init::glorot_normal(none); });
  expect_told("init::kaiming_uniform", [&] { init::kaiming_uniform(none, 1); });
  expect_told("init::orthogonal", [&] { init::orthogonal(none); });
  expect_told("init::layer_bound", [&] { init::layer_bound(none); });
}

TEST(Init, AVectorHasNoFans) {
  const Parameter bias(zeros({3}));
  EXPECT_THROW(init::he_normal(bias), ShapeError);
  EXPECT_THROW(init::orthogonal(bias), ShapeError);
  EXPECT_THROW(init::glorot_uniform(bias), ShapeError);
}

}  // namespace
}  // namespace reel::nn
