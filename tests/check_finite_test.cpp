// What a tape with check_finite tells: the first op that made a NaN or an infinity of what it was given, as the user wrote
// it. On a GPU: tests/cuda_on_cpu/checks_test.cpp.

#include <gtest/gtest.h>

#include <cmath>
#include <initializer_list>
#include <string>

#include "reel/reel.h"
#include "reel/tests/expect.h"
#include "reel/tests/told.h"

namespace reel {
namespace {

std::string here(int line) { return end_of_error(__FILE__, line); }

Tensor vector(std::initializer_list<double> values) { return tensor(values, {.dtype = f64}); }

TEST(CheckFinite, TellsOpRangesIndexAndLineForward) {
  const Tensor x = vector({1, 0, NAN, 2}), z = vector({1, 1, 1, 0});
  Tape strict{{.check_finite = true}};
  strict.watch(x);
  const int line = __LINE__ + 1;
  EXPECT_THROW_WITH(x / z, Error, "div: the result must be finite", "got nan at index [2] of [4]",
                    "from input 0 f64 [4] in [0, 2] with 1 NaN, input 1 f64 [4] in [0, 1]", here(line).c_str());
  EXPECT_THROW_WITH(exp(vector({NAN, NAN})), Error, "from input 0 f64 [2] with 2 NaN");
}

TEST(CheckFinite, TellsOpRangesIndexAndLineBackward) {
  const Tensor x = vector({4, 0, 1});
  Tape strict{{.check_finite = true}};
  strict.watch(x);
  const int line = __LINE__ + 1;
  const Tensor y = sqrt(x);
  const std::string text = error_of([&] { strict.gradient(sum(3 * y), {x}); });
  EXPECT_EQ(missing_words(text, {"backward of sqrt (recorded at", "the gradient of input 0 must be finite",
                                 "got inf at index [1] of [3]", "from dy f64 [3] in [3, 3], saved f64 [3] in [0, 2]"}),
            "")
      << text;
  EXPECT_NE(text.find("check_finite_test.cpp:" + std::to_string(line) + ")"), std::string::npos) << text;
  expect_told("gradient", [&] { strict.gradient(y, vector({1, NAN, 1}), {x}); });
}

TEST(CheckFinite, AnInfinityThatWasGivenMayPass) {
  const Tensor x = tensor({1, 2, 3, 4}, {2, 2}, {.dtype = f64});
  const Tensor mask = x > 3, added = where(mask, -INFINITY, zeros_like(x));
  Tape strict{{.check_finite = true}};
  strict.watch(x);
  for (const Tensor& scores : {where(mask, -INFINITY, x), x + added, pad(x, {{1, 0, 1}}, -INFINITY)}) {
    const Tensor p = softmax(scores / 8, -1);
    EXPECT_EQ(strict.gradient(sum(p * p), {x}, {.keep = true}).size(), 1u);
    EXPECT_EQ(amax(scores, -1).size(), 2);
  }
  const int line = __LINE__ + 1;  // of what was given it makes a NaN
  EXPECT_THROW_WITH(where(mask, -INFINITY, x) * (x - 4), Error, "mul: the result must be finite", "got nan",
                    "from input 0 f64 [2, 2] in [-inf, 3]", here(line).c_str());
}

TEST(CheckFinite, AnInfinityThatWasGivenAsANumberMayPass) {
  const Tensor x = vector({1, 2});
  const Ragged r = Ragged::from_lengths(vector({1, 2, 3}), {1, 2});
  const CustomOp shifted = CustomOp("shifted", false)
                               .cpu([]<class T>(const CpuContext&, Inputs in, Outputs out) {
                                 for (std::size_t i = 0; i < out.get<T>(0).size(); ++i)
                                   out.get<T>(0)[i] = in.get<T>(0)[i] + static_cast<T>(in.number(0));
                               })
                               .backprop([](const CustomBackward& g) { return Tensors{g.dy[0]}; });
  Tape strict{{.check_finite = true}};
  strict.watch(x);
  strict.watch(r.values());
  EXPECT_EQ((x + (-INFINITY)).to_vector<double>()[0], -INFINITY);
  EXPECT_EQ((INFINITY - x).to_vector<double>()[0], INFINITY);
  EXPECT_EQ((r * INFINITY).values().to_vector<double>()[0], INFINITY);
  EXPECT_EQ(to_padded(r, -INFINITY).to_vector<double>()[1], -INFINITY);
  EXPECT_EQ(shifted(x, INFINITY).to_vector<double>()[0], INFINITY);
  // A number that is none passes for nothing, and it is told.
  const int line = __LINE__ + 1;
  EXPECT_THROW_WITH(x / 0, Error, "div: the result must be finite", "got inf at index [0] of [2]",
                    "from input 0 f64 [2] in [1, 2], the number 0", here(line).c_str());
  EXPECT_THROW_WITH((x - 1) * INFINITY, Error, "mul: the result must be finite", "got nan", "the number inf");
  EXPECT_THROW_WITH(exp(x * 1e9), Error, "exp: the result must be finite");  // nor for what comes later
}

TEST(CheckFinite, AnInfinityThatWasGivenAsANumberMayPassBackwardToo) {
  const Tensor x = vector({1, 2}), zero = vector({0, 1});
  const CustomOp scaled = CustomOp("scaled", false)
                              .cpu([]<class T>(const CpuContext&, Inputs in, Outputs out) {
                                for (std::size_t i = 0; i < out.get<T>(0).size(); ++i)
                                  out.get<T>(0)[i] = in.get<T>(0)[i] * static_cast<T>(in.number(0));
                              })
                              .backprop([](const CustomBackward& g) { return Tensors{g.dy[0] * g.number(0)}; });
  Tape strict{{.check_finite = true}};
  strict.watch(x);
  strict.watch(zero);
  const auto gradient_of = [&](const Tensor& y) {
    return strict.gradient(y, ones_like(y), {x})[0].to_vector<double>()[0];
  };
  EXPECT_EQ(gradient_of(x * INFINITY), INFINITY);
  EXPECT_EQ(gradient_of(-INFINITY * x), -INFINITY);
  EXPECT_EQ(gradient_of(scaled(x, INFINITY)), INFINITY);
  EXPECT_EQ(gradient_of(leaky_relu(-x, INFINITY)), -INFINITY);
  EXPECT_EQ(gradient_of(clamp(x, -INFINITY, INFINITY)), 1);
  // What it makes NaN of is told, and the number with it.
  const int line = __LINE__ + 1;
  const Tensor y = x * INFINITY;
  const std::string text = error_of([&] { strict.gradient(y, zero, {x}); });
  EXPECT_EQ(missing_words(text, {"backward of mul (recorded at", "the gradient of input 0 must be finite",
                                 "got nan at index [0] of [2]", "from dy f64 [2] in [0, 1]", "the number inf"}),
            "")
      << text;
  EXPECT_NE(text.find("check_finite_test.cpp:" + std::to_string(line) + ")"), std::string::npos) << text;
  // Nor does one pass that another op was given.
  EXPECT_THROW_WITH(gradient_of(sqrt(zero * x * 0)), Error, "backward of sqrt");
}

TEST(CheckFinite, AnInfinityThatWasGivenAsANumberMayPassInARecordedGradient) {
  const Tensor x = vector({1, 2});
  const CustomOp scaled = CustomOp("scaled", false)
                              .cpu([]<class T>(const CpuContext&, Inputs in, Outputs out) {
                                for (std::size_t i = 0; i < out.get<T>(0).size(); ++i)
                                  out.get<T>(0)[i] = in.get<T>(0)[i] * static_cast<T>(in.number(0));
                              })
                              .backprop([](const CustomBackward& g) { return Tensors{exp(g.dy[0] * g.number(0))}; });
  Tape strict{{.check_finite = true}};
  strict.watch(x);
  const auto gradient_of = [&](auto f) {
    Tape inner;
    inner.watch(x);
    const Tensor y = f(x);
    return inner.gradient(y, ones_like(y), {x})[0];
  };
  const auto steep = [](const Tensor& v) { return leaky_relu(-v, INFINITY); };
  const Tensor dx = gradient_of(steep);
  EXPECT_EQ(dx.to_vector<double>(), (std::vector<double>{-INFINITY, -INFINITY}));
  EXPECT_EQ(gradient_of([](const Tensor& v) { return v * INFINITY; }).to_vector<double>()[0], INFINITY);
  EXPECT_EQ(gradient_of([](const Tensor& v) { return elu(-v, INFINITY); }).to_vector<double>()[0], -INFINITY);
  EXPECT_EQ(gradient_of([&](const Tensor& v) { return scaled(v, INFINITY); }).to_vector<double>()[0], INFINITY);
  EXPECT_EQ(gradient_of([](const Tensor& v) { return clamp(v, 1.5, INFINITY); }).to_vector<double>(),
            (std::vector<double>{0, 1}));
  // What stands in a recorded gradient of it is told like others: a NaN, and an infinity that another op makes.
  const int line = __LINE__ + 1;
  const auto flat = [](const Tensor& v) { return sqrt(relu(v - 1)) + v * INFINITY; };
  const std::string text = error_of([&] { gradient_of(flat); });
  EXPECT_EQ(missing_words(
                text, {"backward of sqrt (recorded at", "the result must be finite", "got inf at index [0] of [2]"}),
            "")
      << text;
  EXPECT_NE(text.find(here(line)), std::string::npos) << text;
  Tape inner;
  inner.watch(x);
  const Tensor y = steep(x);
  EXPECT_THROW_WITH(inner.gradient(y, vector({0, 1}), {x}), Error, "backward of leaky_relu",
                    "got nan at index [0] of [2]");
}

TEST(CheckFinite, WhatIsMadeOfNothingMayBeInfinite) {
  const Tensor x = vector({1, 2, 3}), none = zeros({0, 2}, {.dtype = f64});
  const Ragged r = Ragged::from_lengths(x, {1, 0, 2}), full = Ragged::from_lengths(x, {1, 2});
  Tape strict{{.check_finite = true}};
  strict.watch(x);
  strict.watch(none);
  const auto first = [](const Tensor& y) { return y.to_vector<double>()[0]; };
  EXPECT_EQ(max(r).to_vector<double>(), (std::vector<double>{1, -INFINITY, 3}));
  EXPECT_EQ(min(r).to_vector<double>(), (std::vector<double>{1, INFINITY, 2}));
  for (const Tensor& y : {max(r), min(r), amax(r), amin(r), logsumexp(r), max_which(r).y})
    EXPECT_EQ(strict.gradient(y, ones_like(y), {x}).size(), 1u);
  EXPECT_EQ(first(max(none, 0)), -INFINITY);
  EXPECT_EQ(first(min(none, 0)), INFINITY);
  EXPECT_EQ(first(amax(none)), -INFINITY);
  EXPECT_EQ(first(logsumexp(none, 0)), -INFINITY);
  EXPECT_EQ(softmax(r).values().size(), 3);
  // A NaN never passes, and where there is something an infinity does not.
  const Tensor bad = vector({NAN, 2, 3});
  strict.watch(bad);
  EXPECT_THROW_WITH(max(r.with(bad)), Error, "max: the result must be finite", "got nan at index [0] of [3]");
  EXPECT_THROW_WITH(max(log(full - 1)), Error, "log: the result must be finite");
}

TEST(CheckFinite, NamesTheOpThatTheUserCalledNotItsParts) {
  const Tensor x = vector({1, 0, NAN});
  Tape strict{{.check_finite = true}};
  strict.watch(x);
  const int line = __LINE__ + 1;
  EXPECT_THROW_WITH(where(x == 0, 1, x), Error, "where: the result must be finite", "got nan", here(line).c_str());
  const Tensor y = vector({1, 0, 2});
  strict.watch(y);
  EXPECT_THROW_WITH(mean(y / y), Error, "div: the result must be finite");
  const Tensor z = where(y == 0, 1, sqrt(y));
  EXPECT_THROW_WITH(strict.gradient(sum(z), {y}), Error, "backward of sqrt (recorded at", "got nan at index [1]");
  EXPECT_THROW_WITH(strict.gradient(sum(where(y > 0, y, 0)), full({}, NAN, {.dtype = f64}), {y}), Error,
                    "gradient: dy must");
}

// What stands in the op-case table is asked there (doors_test.cpp).
TEST(CheckFinite, NamesIndexingByItsOwnNameAndShape) {
  const Tensor x = full({2, 3}, NAN, {.dtype = f64});
  const Ragged r = Ragged::from_lengths(full({3}, NAN, {.dtype = f64}), {2, 1});
  Tape strict{{.check_finite = true}};
  strict.watch(x);
  const int line = __LINE__ + 1;
  EXPECT_THROW_WITH(x[1], Error, "operator[]: the result must be finite", "at index [0] of [3]", here(line).c_str());
  EXPECT_THROW_WITH(r[0], Error, "Ragged[]: the result must be finite", "at index [0] of [2]");
}

}  // namespace
}  // namespace reel
