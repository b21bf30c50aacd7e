// gradcheck, adjoint_check and compare_backends find what is planted for them, and say it so that one knows where to look.

#include <gtest/gtest.h>

#include <cmath>
#include <sstream>

#include "reel/ops/activations.h"
#include "reel/ops/adjoint_check.h"
#include "reel/ops/arithmetic.h"
#include "reel/ops/compare_backends.h"
#include "reel/ops/convert.h"
#include "reel/ops/create.h"
#include "reel/ops/dropout.h"
#include "reel/ops/elementwise.h"
#include "reel/ops/gradcheck.h"
#include "reel/ops/matmul.h"
#include "reel/ops/ragged.h"
#include "reel/ops/rearrange.h"
#include "reel/ops/reduce.h"
#include "reel/ops/scan.h"
#include "reel/ops/softmax.h"
#include "reel/ops/unary.h"
#include "reel/ops/views.h"
#include "reel/tests/expect.h"

namespace reel {
namespace {

constexpr TensorOptions kDouble{.dtype = f64};

Tensor vector(std::initializer_list<double> values) { return tensor(values, kDouble); }

template <class Report>
std::string text_of(const Report& report) {
  std::ostringstream text;
  text << report;
  return text.str();
}
template <class Report>
void expect_words(const Report& report, std::initializer_list<const char*> words) {
  EXPECT_EQ(missing_words(text_of(report), words), "") << "are missing in: " << report;
}

Tensor mul(const Tensor& a, const Tensor& b) { return a * b; }

// x^3 with a callback that is `factor` times what it should be.
Tensor cube(const Tensor& x, double factor) {
  const Tensor y = untaped([&] { return x * x * x; });
  return record("cube", {x}, y, [x, factor](const Tensor& dy) { return factor * 3.0 * dy * x * x; });
}

TEST(Gradcheck, PassesWhatIsRight) {
  const GradcheckReport report = gradcheck([](const Tensor& x) { return cube(x, 1); }, {vector({1, -2, 0.5})});
  EXPECT_TRUE(report) << report;
  EXPECT_EQ(report.checks, 6);
  expect_words(report, {"gradcheck passed: 6 derivatives, worst relative error"});
}

TEST(Gradcheck, NamesTheElementOfAWrongSign) {
  const auto f = [](const Tensor& a, const Tensor& b) {
    const Tensor y = untaped([&] { return a - b; });
    return record("sub", {a, b}, y, [](const Tensor& dy) { return Tensors{dy, dy}; });
  };
  const GradcheckReport report = gradcheck(f, {ones({2, 2}, kDouble), ones({2, 2}, kDouble)});
  EXPECT_FALSE(report);
  EXPECT_EQ(report.failures, 4);
  expect_words(report, {"gradcheck failed: 4 of 8 derivatives are wrong", "first derivative, input 1 at [", "analytic",
                        "numeric", "-1 times as much"});
}

TEST(Gradcheck, TellsAWrongFactor) {
  const GradcheckReport report = gradcheck([](const Tensor& x) { return cube(x, 2); }, {vector({1, 3})});
  expect_words(report, {"failed", "input 0 at [", ", 2 times as much"});
}

TEST(Gradcheck, FindsOneWrongElementAmongMany) {
  const auto f = [](const Tensor& x) {
    const Tensor y = untaped([&] { return x * x; });
    return record("square", {x}, y, [x](const Tensor& dy) {
      return 2.0 * dy * x * where(arange(x.size()) == 7, 1.0 + 1e-4, ones_like(x));
    });
  };
  expect_words(gradcheck(f, {ones({10}, kDouble)}), {"1 of 10", "input 0 at [7]"});
  expect_words(gradcheck(f, {ones({500}, kDouble)}, {.directions = 3}), {"failed", "random direction"});
}

TEST(Gradcheck, FindsAWrongSecondDerivative) {
  const auto f = [](const Tensor& x) {
    const Tensor y = untaped([&] { return x * x * x; });
    return record("cube", {x}, y, [x](const Tensor& dy) { return 3.0 * dy * x * stop_gradient(x); });
  };
  expect_words(gradcheck(f, {vector({1, 2})}), {"failed", "second derivative, input 0 at [", "0.5 times as much"});
  EXPECT_TRUE(gradcheck(f, {vector({1, 2})}, {.order = 1}));
}

TEST(Gradcheck, ReportsKinksAndAcceptsAnySlopeBetween) {
  const GradcheckReport report = gradcheck([](const Tensor& x) { return relu(x); }, {vector({-1, 0, 2})}, {.order = 1});
  EXPECT_TRUE(report) << report;
  EXPECT_EQ(report.kinks, 1);
  expect_words(report,
               {"passed", "1 has no derivative: first derivative, input 0 at [1]: analytic 0", "a kink with slopes"});
}

TEST(Gradcheck, SecondDerivativesAtAKinkAreThoseOfOneSide) {
  const auto with_kink = [](const Tensor& x) { return relu(x) * x * x + relu(x); };
  for (const auto& f : {gradcheck([](const Tensor& x) { return relu(x); }, {vector({-1, 0, 2})}),
                        gradcheck([](const Tensor& x) { return abs(x) * exp(x); }, {vector({0, 1})}),
                        gradcheck(with_kink, {vector({-1, 0, 1e-7, -3e-6, 2})})}) {
    EXPECT_TRUE(f) << f;
    EXPECT_GE(f.kinks, 1);
  }
  const GradcheckReport twice = gradcheck([](const Tensor& x) { return relu(x); }, {vector({-1, 0, 2})});
  EXPECT_EQ(twice.checks, 6);
  EXPECT_EQ(twice.kinks, 2);  // the first derivative's and the second's
  // relu, whose gradient says that its own slope is 1.
  const auto wrong = [](const Tensor& x) {
    const Tensor y = untaped([&] { return relu(x); });
    return record("relu", {x}, y,
                  [x](const Tensor& dy) { return dy * cast(x > 0, f64) + dy * (x - stop_gradient(x)); });
  };
  expect_words(gradcheck(wrong, {vector({0})}), {"failed: 1 of 2", "second derivative, input 0 at [0]",
                                                 "a kink: the gradient jumps, with slopes 0 and 0"});
}

TEST(Gradcheck, AJumpOfTheSecondDerivativeIsNoErrorOfTheFirst) {
  const GradcheckReport report =
      gradcheck([](const Tensor& x) { return square(relu(x)); }, {zeros({40}, kDouble)}, {.order = 1});
  EXPECT_TRUE(report) << report;
  EXPECT_EQ(report.kinks, 0);
  EXPECT_TRUE(gradcheck([](const Tensor& x) { return square(relu(x)); }, {vector({-1, 0, 2})}));
}

TEST(Gradcheck, TakesFunctionsOfAnyNumberOfTensors) {
  const Tensor x = vector({1, 2}), y = vector({3, -1});
  const auto any = [](const auto&... xs) { return (xs * ...); };
  EXPECT_TRUE(gradcheck(any, {x}));
  EXPECT_EQ(gradcheck(any, {x, y, x}).checks, 12);
  const auto binary = [](const auto&... xs) { return mul(xs...); };  // for two alone
  EXPECT_EQ(gradcheck([](const auto& a, const auto& b) { return a * b; }, {x, y}).checks, 8);
  EXPECT_EQ(gradcheck(binary, std::tuple(x, y)).checks, 8);
  const auto six = [](const Tensor& a, const Tensor& b, const Tensor& c, const Tensor& d, const Tensor& e,
                      const Tensor& f) { return a * b + c * d + e * f; };
  EXPECT_TRUE(gradcheck(six, {x, y, x, y, x, y}, {.order = 1}));
  EXPECT_THROW_WITH(gradcheck(six, {x, y}), Error, "gradcheck: f must take as many tensors as there are inputs",
                    "got 2 inputs", "checks_test.cpp:");
  EXPECT_THROW_WITH(adjoint_check([](const Tensor& a) { return a; }, {x, y}), Error, "adjoint_check: f must take");
  EXPECT_THROW_WITH(compare_backends([](const Tensor& a) { return a; }, {}, CompareOptions{.device = Device::cpu()}),
                    Error, "compare_backends: f must take", "got 0 inputs");
  EXPECT_THROW_WITH(gradcheck([](const Tensor& a) { return a; }, {}), Error, "gradcheck: at least one input", "got 0");
}

TEST(Gradcheck, CountsWhereTheFunctionItselfIsNotThere) {
  const GradcheckReport edge = gradcheck([](const Tensor& x) { return log(x); }, {vector({0})}, {.order = 1});
  EXPECT_FALSE(edge);
  EXPECT_EQ(edge.holes, 1);
  const auto step = [](const Tensor& x) {
    return record("step", {x}, untaped([&] { return cast(x > 0, f64); }), [](const Tensor& dy) { return 0 * dy; });
  };
  EXPECT_EQ(gradcheck(step, {vector({0, 1})}, {.order = 1}).holes, 1);
  const auto sign = [](const Tensor& x) {  // 0 at 0, where differences to both sides are alike
    return record("sign", {x}, untaped([&] { return cast(x > 0, f64) - cast(x < 0, f64); }),
                  [](const Tensor& dy) { return 0 * dy; });
  };
  EXPECT_EQ(gradcheck(sign, {vector({0, 1})}, {.order = 1}).holes, 1);
  EXPECT_EQ(gradcheck([](const Tensor& x) { return cube(x, 2); }, {vector({1, 3})}).holes, 0);
}

TEST(Gradcheck, RefusesASlopeThatIsNotBetween) {
  const auto f = [](const Tensor& x) {
    const Tensor y = untaped([&] { return relu(x); });
    return record("relu", {x}, y, [x](const Tensor& dy) { return dy * where(x == 0, -1.0, cast(x > 0, f64)); });
  };
  expect_words(gradcheck(f, {vector({-1, 0, 2})}, {.order = 1}),
               {"failed: 1 of 3", "input 0 at [1]", "a kink with slopes"});
}

TEST(Gradcheck, TellsAJump) {
  const auto f = [](const Tensor& x) {
    const Tensor y = untaped([&] { return cast(x > 0, f64); });
    return record("step", {x}, y, [](const Tensor& dy) { return 0.0 * dy; });
  };
  expect_words(gradcheck(f, {vector({0, 1})}, {.order = 1}), {"failed: 1 of 2", "input 0 at [0]", "jumps"});
}

TEST(Gradcheck, FindsAFunctionThatIsNone) {
  const GradcheckReport report = gradcheck([](const Tensor& x) { return dropout(x, 0.5); }, {ones({20}, kDouble)});
  EXPECT_FALSE(report);
  EXPECT_EQ(
      text_of(report),
      "gradcheck failed: f gives other results when it is called again with the same inputs, and has no derivative");
}

TEST(Gradcheck, TellsWhereAFunctionIsNotFinite) {
  const auto f = [](const Tensor& x) { return log(x); };
  expect_words(gradcheck(f, {vector({-1, 2})}), {"failed: 2 of 2", "f itself is not finite at these inputs"});
}

TEST(Gradcheck, AGradientThatIsMissingIsZeroTimesAsMuch) {
  for (const double factor : {1.0, -1.0}) {  // of one the difference is negative
    const auto f = [factor](const Tensor& x) { return factor * stop_gradient(x); };
    expect_words(gradcheck(f, {vector({2})}), {", 0 times as much"});
  }
}

TEST(Gradcheck, AGradientOfTheWrongShapeThrows) {
  const auto f = [](const Tensor& x) {
    return record("total", {x}, untaped([&] { return sum(x); }), [](const Tensor& dy) { return dy; });
  };
  EXPECT_THROW_WITH(gradcheck(f, {ones({3}, kDouble)}), ShapeError, "backward of total", "checks_test.cpp",
                    "must have shape [3], got []");
}

TEST(Gradcheck, TakesRaggedAndSeveralResults) {
  const Ragged x = Ragged::from_lengths(vector({0.1, -0.4, 0.8, 0.3}), {3, 0, 1});
  EXPECT_TRUE(gradcheck([](const Ragged& r) { return softmax(r); }, x));
  const auto f = [](const Ragged& r, const Tensor& s) { return std::tuple(r * s, sum(r * r)); };
  const GradcheckReport report = gradcheck(f, std::tuple(x, full({}, 2, kDouble)));
  EXPECT_TRUE(report) << report;
  EXPECT_EQ(report.checks, 2 * 5);
  const auto half_wrong = [](const Tensor& t) { return std::tuple(exp(t), cube(t, -1)); };
  EXPECT_FALSE(gradcheck(half_wrong, {vector({1})}));
}

TEST(Gradcheck, OneTensorNeedsNoBraces) {
  const Tensor x = vector({0.1, -0.4});
  EXPECT_EQ(gradcheck([](const Tensor& t) { return t * t; }, x).checks, 2 * 2);
  EXPECT_EQ(gradcheck([](const Tensors& ts) { return ts[0] * ts[0]; }, x, {.order = 1}).checks, 2);
  EXPECT_FALSE(gradcheck([](const Tensor& t) { return cube(t, 2); }, x));
  EXPECT_THROW_WITH(gradcheck([](const Tensor& t) { return t; }, ones({1})), DTypeError, "f64", "checks_test.cpp:");
  const auto twice = [](const Tensor& t) { return 2 * t; };
  EXPECT_TRUE(adjoint_check(twice, x));
  EXPECT_TRUE(adjoint_check(twice, twice, x));
  EXPECT_FALSE(adjoint_check(
      twice, [](const Tensor& t) { return 3 * t; }, x));
  EXPECT_FALSE(adjoint_check([](const Tensor& t) { return t * t; }, x));
  EXPECT_TRUE(compare_backends(twice, x, {.device = Device::cpu()}));
}

TEST(AdjointCheck, OfWhatDoesNotDependOnItsInputComparesZeros) {
  const auto nothing = [](const Tensor& t) { return zeros_like(t); };
  const AdjointReport report = adjoint_check(nothing, ones({3}, kDouble));
  EXPECT_TRUE(report) << report;
  EXPECT_EQ(report.backward, 0);
}

TEST(Gradcheck, WhatWouldCheckNothingIsRefused) {
  const Tensor x = ones({3}, {.dtype = f64});
  const auto f = [](const Tensor& t) { return t * t; };
  EXPECT_THROW_WITH(gradcheck(f, {x}, {.order = 0}), Error, "gradcheck: an order of 1 or 2 is required, got 0",
                    "checks_test.cpp:");
  EXPECT_THROW_WITH(gradcheck(f, {x}, {.order = 3}), Error, "an order of 1 or 2 is required, got 3");
  EXPECT_THROW_WITH(detail::gradcheck([&](const Tensors&) { return Tensors{x}; }, {}, {}, SourceLocation::current()),
                    Error, "gradcheck: at least one input is required, got 0");
  EXPECT_THROW_WITH(gradcheck(f, {x}, {.step = 0}), Error, "a step above 0 is required, got 0");
  EXPECT_THROW_WITH(gradcheck(f, {x}, {.tolerance = INFINITY}), Error, "a tolerance above 0 is required, got inf");
  EXPECT_THROW_WITH(gradcheck(f, {x}, {.directions = 0}), Error, "at least one direction is required, got 0");
  EXPECT_THROW_WITH(gradcheck([](const Tensor& t) { return cast(t, i64); }, {x}), Error,
                    "gradcheck: f must have a result that is f32 or f64, got none", "checks_test.cpp:");
}

TEST(Gradcheck, AConstantAndNothingHaveNoSlope) {
  EXPECT_TRUE(gradcheck([](const Tensor&) { return ones({2}, kDouble); }, {vector({1})}));
  EXPECT_TRUE(gradcheck([](const Tensor& x) { return exp(x); }, {zeros({0}, kDouble)}));
  EXPECT_THROW_WITH(gradcheck([](const Tensor& x) { return x; }, {ones({1})}), DTypeError, "f64", "got f32");
}

// --- adjoint_check --------------------------------------------------------------------------------------------------------

TEST(AdjointCheck, PassesLinearOps) {
  const Tensor m = randn({300, 200});
  EXPECT_TRUE(adjoint_check([&](const Tensor& x) { return matmul(m, x); }, {zeros({200})}));
  EXPECT_TRUE(adjoint_check([](const Tensor& x) { return cumsum(x, 0); }, {zeros({50}, kDouble)}));
  const Ragged x = Ragged::from_lengths(zeros({5, 2}, kDouble), {2, 0, 3});
  const AdjointReport report = adjoint_check([](const Ragged& r) { return mean(r); }, x);
  EXPECT_TRUE(report) << report;
  EXPECT_NE(report.forward, 0);
  expect_words(report, {"adjoint_check passed: <A x, y> = ", "<x, A^T y> = "});
}

TEST(AdjointCheck, FindsWrongTransposes) {
  const auto wrong = [](double factor) {
    return [factor](const Tensor& x) {
      return record("flip", {x}, untaped([&] { return flip(x, 0); }),
                    [factor](const Tensor& dy) { return factor * flip(dy, 0); });
    };
  };
  EXPECT_TRUE(adjoint_check(wrong(1), {zeros({9})}));
  for (const double factor : {-1.0, 2.0, 1.01}) {
    const AdjointReport report = adjoint_check(wrong(factor), {zeros({9})});
    EXPECT_FALSE(report) << factor;
    expect_words(report, {"failed: A^T y is not the transpose's", "relative difference"});
  }
  const auto unflipped = [](const Tensor& x) {
    return record("flip", {x}, untaped([&] { return flip(x, 0); }), [](const Tensor& dy) { return dy; });
  };
  EXPECT_FALSE(adjoint_check(unflipped, {zeros({9}, kDouble)}));
}

TEST(AdjointCheck, ComparesAPairOfFunctions) {
  const Tensor m = randn({4, 3}, kDouble);
  const auto a = [&](const Tensor& x) { return matmul(m, x); };
  const auto t = [&](const Tensor& y) { return matmul(transpose(m, 0, 1), y); };
  EXPECT_TRUE(adjoint_check(a, t, {zeros({3}, kDouble)}));
  EXPECT_FALSE(adjoint_check(a, [&](const Tensor& y) { return -1.0 * t(y); }, {zeros({3}, kDouble)}));
  expect_words(adjoint_check(a, [](const Tensor& y) { return y; }, {zeros({3}, kDouble)}),
               {"A^T y must have the shapes of x, [3], got [4]"});
}

TEST(AdjointCheck, FindsWhatIsNotLinear) {
  const Tensor like = zeros({5}, kDouble);
  expect_words(adjoint_check([](const Tensor& x) { return x * x; }, {like}), {"failed: A is not linear"});
  expect_words(adjoint_check([](const Tensor& x) { return x + 1; }, {like}), {"failed: A is not linear"});
  expect_words(adjoint_check([](const Tensor& x) { return dropout(x, 0.5); }, {like}), {"failed"});
  expect_words(adjoint_check([](const Tensor& x) { return x > 0; }, {like}), {"A's results must be f32 or f64"});
}

// --- compare_backends -----------------------------------------------------------------------------------------------------

TEST(CompareBackends, SaysThatThereIsNoGpu) {
  const CompareReport report = compare_backends([](const Tensor& x) { return exp(x); }, {ones({3})});
  EXPECT_TRUE(report) << report;
  if (report.ran) return;  // there is one
  EXPECT_EQ(report.tensors, 0);
  expect_words(report, {"compare_backends compared nothing", "cuda"});
}

// The comparison itself, of the CPU with itself: f is told which call it is by a count.
constexpr CompareOptions kSelf{.device = Device::cpu()};

TEST(CompareBackends, ComparesResultsAndGradients) {
  const Ragged x = Ragged::from_lengths(tensor({1, 2, 3}), {1, 2});
  const CompareReport report =
      compare_backends([](const Ragged& r, const Tensor& i) { return std::tuple(dropout(softmax(r), 0.5), i + 1); },
                       std::tuple(x, arange(2)), kSelf);
  EXPECT_TRUE(report) << report;
  EXPECT_TRUE(report.ran);
  EXPECT_EQ(report.tensors, 3);
  EXPECT_EQ(report.worst_error, 0);
}

TEST(CompareBackends, NamesTheWorstElement) {
  int calls = 0;
  const auto f = [&calls](const Tensor& x) { return ++calls % 2 == 1 ? x : x + cast(arange(6) == 4, f32) * 0.5; };
  const auto shaped = [&](const Tensor& x) { return reshape(f(x), {2, 3}); };
  const CompareReport report = compare_backends(shaped, {ones({6})}, kSelf);
  EXPECT_FALSE(report);
  EXPECT_DOUBLE_EQ(report.worst_error, 0.5);
  expect_words(report, {"failed: 2 tensors", "result 0 at [1, 1]: cpu 1, cpu 1.5"});
}

TEST(CompareBackends, FindsWrongGradientsNaNsAndShapes) {
  int calls = 0;
  const auto slope = [&calls](const Tensor& x) { return cube(x, ++calls % 2 == 1 ? 1 : -1); };
  expect_words(compare_backends(slope, {ones({2}, kDouble)}, kSelf), {"failed", "gradient of input 0 at ["});
  const auto nan = [&calls](const Tensor& x) { return ++calls % 2 == 1 ? log(x) : log(-x); };
  expect_words(compare_backends(nan, {ones({2})}, kSelf), {"failed", "result 0 at [0]: cpu 0, cpu ", "nan"});
  const auto shape = [&calls](const Tensor& x) { return ++calls % 2 == 1 ? x : sum(x); };
  expect_words(compare_backends(shape, {ones({2})}, kSelf), {"failed", "result 0: cpu f32 [2], cpu f32 []"});
  const auto both_nan = [](const Tensor& x) { return log(-x); };
  EXPECT_TRUE(compare_backends(both_nan, {ones({2})}, kSelf));
}

}  // namespace
}  // namespace reel
