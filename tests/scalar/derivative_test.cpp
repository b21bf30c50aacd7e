#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>

#include "reel/tests/scalar/loops.h"
#include "reel/tests/scalar/reference.h"

namespace reel::scalar_test {
namespace {

using scalar::Saved;

/// What the op saves of x.
template <class T>
T saved_of(const InstructionSet& set, int op, T x) {
  if (set.loops[op].saved == Saved::output) loops_of<T>(set.loops[op]).forward(1, &x, &x);
  return x;
}

/// dy = 1 through the op's derivative at x.
template <class T>
T derivative_at(const InstructionSet& set, int op, T x) {
  const T saved = saved_of(set, op, x), dy = 1;
  T dx = 0;
  loops_of<T>(set.loops[op]).backward(1, &saved, &dy, &dx);
  return dx;
}

/// The formula's own.
template <class T>
T formula_at(const InstructionSet& set, int op, T x) {
  return loops_of<T>(set.loops[op]).derivative(saved_of(set, op, x));
}

int find(const char* name) {
  const InstructionSet& set = instruction_sets()[0];
  int op = 0;
  while (op < set.count && std::strcmp(set.loops[op].name, name) != 0) ++op;
  return op;
}

class ScalarDerivative : public testing::TestWithParam<int> {};

TEST_P(ScalarDerivative, EqualsCentralDifferencesOfTheReference) {
  const Reference& reference = reference_of(instruction_sets()->loops[GetParam()].name);
  const auto difference = [&](long double x, long double h) {
    return static_cast<double>((reference.function(x + h) - reference.function(x - h)) / (2 * h));
  };
  int compared = 0;
  for (float x = -7.9f; x < 8; x += 0.0303f) {
    if (std::fabs(2 * x - std::round(2 * x)) < 0.01f) continue;  // kinks and poles lie at multiples of 1/2
    const double want = difference(x, 1e-6L);
    if (!std::isfinite(want)) continue;  // outside of the domain
    const double uncertain = 2 * std::fabs(difference(x, 2e-6L) - want);
    for (const InstructionSet* set = instruction_sets(); set != instruction_sets() + kInstructionSets; ++set) {
      if (!set->supported) continue;
      const double near = 1e-10 * (1 + std::fabs(want)) + uncertain, close = 2e-6 * (1 + std::fabs(want)) + uncertain;
      EXPECT_NEAR(derivative_at(*set, GetParam(), double(x)), want, near) << x << " on " << set->name;
      EXPECT_NEAR(formula_at(*set, GetParam(), double(x)), want, near) << x << " on " << set->name;
      EXPECT_NEAR(derivative_at(*set, GetParam(), x), want, close) << x << " on " << set->name;
      EXPECT_NEAR(formula_at(*set, GetParam(), x), want, close) << x << " on " << set->name;
      ++compared;
    }
  }
  EXPECT_GT(compared, 20);
}

TEST_P(ScalarDerivative, PassesNaN) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const InstructionSet& set = instruction_sets()[0];
  const char* name = set.loops[GetParam()].name;
  if (set.loops[GetParam()].saved == Saved::none || std::strcmp(name, "relu") == 0) return;  // constant there
  EXPECT_TRUE(std::isnan(derivative_at<float>(set, GetParam(), nan))) << name;
  EXPECT_TRUE(std::isnan(derivative_at<double>(set, GetParam(), nan))) << name;
}

#define REEL_ONE(name, Struct) +1
INSTANTIATE_TEST_SUITE_P(Ops, ScalarDerivative, testing::Range(0, 0 REEL_UNARY_OPS(REEL_ONE)),
                         [](const auto& info) { return instruction_sets()->loops[info.param].name; });

/// What the derivative tends to, and is within 1e-7 of from |x| = `from` on.
struct Limits {
  const char* op;
  double left, right, from;
};

// dish' is -1 / (4 x^2) on the left from far out on, and 1 minus that on the right.
TEST(ScalarDerivativeFarOut, OfDishGoesOnToItsLimit) {
  for (const InstructionSet* set = instruction_sets(); set != instruction_sets() + kInstructionSets; ++set) {
    if (!set->supported) continue;
    const int dish = find("dish");
    for (const double x : {1e8, 1e9, 3e9, 1e15, 1e18, 1e100, 1e150}) {
      const double expected = -0.25 / (x * x);
      EXPECT_NEAR(derivative_at(*set, dish, -x) / expected, 1, 1e-12) << x << " on " << set->name;
      if (x < 1e18) {
        EXPECT_NEAR(derivative_at(*set, dish, static_cast<float>(-x)) / expected, 1, 1e-6);
      }
    }
    for (const double x : {1e160, 1e300, double{INFINITY}}) {
      EXPECT_EQ(derivative_at(*set, dish, -x), 0) << x << " on " << set->name;
      EXPECT_EQ(derivative_at(*set, dish, x), 1) << x << " on " << set->name;
    }
  }
}

TEST(ScalarDerivativeFarOut, IsItsLimit) {
  const double infinity = std::numeric_limits<double>::infinity();
  const Limits all[] = {
      {"tanh", 0, 0, 20},      {"sigmoid", 0, 0, 40},    {"erf", 0, 0, 8},       {"erfc", 0, 0, 8},
      {"gelu", 0, 1, 8},       {"gelu_tanh", 0, 1, 8},   {"silu", 0, 1, 40},     {"mish", 0, 1, 40},
      {"softplus", 0, 1, 40},  {"logsigmoid", 1, 0, 40}, {"hard_tanh", 0, 0, 1}, {"hard_sigmoid", 0, 0, 3},
      {"hard_swish", 0, 1, 3}, {"dish", 0, 1, 4000},
  };
  for (const Limits& limits : all) {
    for (const double x :
         {1.0, 3.0, 8.0, 12.0, 16.0, 35.0, 50.0, 130.0, 200.0, 700.0, 900.0, 1200.0, 1e6, 1e30, infinity}) {
      if (x < limits.from) continue;
      for (const InstructionSet* set = instruction_sets(); set != instruction_sets() + kInstructionSets; ++set) {
        if (!set->supported) continue;
        const int op = find(limits.op);
        EXPECT_NEAR(derivative_at(*set, op, x), limits.right, 1e-7) << limits.op << " at " << x << " on " << set->name;
        EXPECT_NEAR(derivative_at(*set, op, -x), limits.left, 1e-7) << limits.op << " at " << -x << " on " << set->name;
        const auto f32 = static_cast<float>(x);
        EXPECT_NEAR(derivative_at(*set, op, f32), limits.right, 1e-7)
            << limits.op << " at " << x << " on " << set->name;
        EXPECT_NEAR(derivative_at(*set, op, -f32), limits.left, 1e-7)
            << limits.op << " at " << -x << " on " << set->name;
      }
    }
  }
}

TEST(ScalarDerivativeFarOut, OfTheNormalDistributionsLogarithmIsTheDistance) {
  const InstructionSet& set = instruction_sets()[0];
  for (const double x : {30.0, 50.0, 200.0, 1e4, 1e30}) {
    EXPECT_NEAR(derivative_at(set, find("log_ndtr"), -x) / x, 1, 2 / (x * x)) << -x;
    EXPECT_NEAR(derivative_at(set, find("log_ndtr"), static_cast<float>(-x)) / x, 1, 2 / (x * x) + 1e-7) << -x;
    EXPECT_NEAR(derivative_at(set, find("log_ndtr"), x), 0, 1e-30) << x;
  }
}

TEST(ScalarDerivativeAtZero, OfGeluIsOneHalf) {
  for (const InstructionSet* set = instruction_sets(); set != instruction_sets() + kInstructionSets; ++set) {
    if (!set->supported) continue;
    for (const double zero : {0.0, -0.0}) {
      EXPECT_EQ(derivative_at(*set, find("gelu"), zero), 0.5) << zero << " on " << set->name;
      EXPECT_EQ(derivative_at(*set, find("gelu"), static_cast<float>(zero)), 0.5f) << zero << " on " << set->name;
    }
  }
}

TEST(ScalarDerivativeFarOut, OfGeluComesToZeroFromBelow) {
  for (const InstructionSet* set = instruction_sets(); set != instruction_sets() + kInstructionSets; ++set) {
    if (!set->supported) continue;
    for (const float x : {-15.5f, -40.0f, -1e30f}) {
      EXPECT_EQ(derivative_at(*set, find("gelu"), x), 0.0f) << x << " on " << set->name;
      EXPECT_TRUE(std::signbit(derivative_at(*set, find("gelu"), x))) << x << " on " << set->name;
    }
  }
}

TEST(ScalarDerivativeAtKinks, ReluAndAbsHaveZeroAtZero) {
  for (const char* name : {"relu", "abs"}) {
    EXPECT_EQ(derivative_at(instruction_sets()[0], find(name), 0.0f), 0.0f) << name;
    EXPECT_EQ(derivative_at(instruction_sets()[0], find(name), -0.0), 0.0) << name;
  }
}

TEST(ScalarDerivativeAtKinks, ReluOfNaNHasOneSoThatTheGradientShowsIt) {
  EXPECT_EQ(derivative_at(instruction_sets()[0], find("relu"), std::numeric_limits<double>::quiet_NaN()), 1.0);
}

}  // namespace
}  // namespace reel::scalar_test
