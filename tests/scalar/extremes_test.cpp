#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "reel/core/scalar/binary.h"
#include "reel/tests/scalar/loops.h"
#include "reel/tests/scalar/reference.h"

namespace reel::scalar_test {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

struct Row {
  const char* op;
  double x, y;
};

// The same in f32 and f64. Zeros have the sign given here, but where the limit is 0 and the function never reaches it.
const Row kRows[] = {
    {"exp", -kInf, 0.0},        {"exp", kInf, kInf},          {"exp", 0.0, 1.0},           {"exp", -0.0, 1.0},
    {"exp", 1e4, kInf},         {"exp", -1e4, 0.0},           {"log", 0.0, -kInf},         {"log", -0.0, -kInf},
    {"log", 1.0, 0.0},          {"log", kInf, kInf},          {"log", -1.0, kNaN},         {"log", -kInf, kNaN},
    {"tanh", kInf, 1.0},        {"tanh", -kInf, -1.0},        {"tanh", 0.0, 0.0},          {"tanh", -0.0, -0.0},
    {"tanh", 1e4, 1.0},         {"tanh", -1e4, -1.0},         {"sigmoid", 1e4, 1.0},       {"sigmoid", -1e4, 0.0},
    {"sigmoid", 0.0, 0.5},      {"sigmoid", kInf, 1.0},       {"sigmoid", -kInf, 0.0},     {"relu", kInf, kInf},
    {"relu", -kInf, 0.0},       {"relu", -0.0, 0.0},          {"sqrt", -1.0, kNaN},        {"sqrt", -0.0, -0.0},
    {"sqrt", kInf, kInf},       {"square", -kInf, kInf},      {"cube", -kInf, -kInf},      {"cube", -0.0, -0.0},
    {"abs", -0.0, 0.0},         {"abs", -kInf, kInf},         {"neg", 0.0, -0.0},          {"neg", -kInf, kInf},
    {"expm1", -kInf, -1.0},     {"expm1", kInf, kInf},        {"expm1", -0.0, -0.0},       {"expm1", 1e4, kInf},
    {"log1p", -1.0, -kInf},     {"log1p", -0.0, -0.0},        {"log1p", kInf, kInf},       {"log1p", -1.5, kNaN},
    {"log1p", -kInf, kNaN},     {"rsqrt", 0.0, kInf},         {"rsqrt", kInf, 0.0},        {"rsqrt", -1.0, kNaN},
    {"sin", -0.0, -0.0},        {"sin", kInf, kNaN},          {"sin", -kInf, kNaN},        {"cos", -0.0, 1.0},
    {"cos", kInf, kNaN},        {"erf", kInf, 1.0},           {"erf", -kInf, -1.0},        {"erf", -0.0, -0.0},
    {"erfc", kInf, 0.0},        {"erfc", -kInf, 2.0},         {"erfc", 0.0, 1.0},          {"erfc", 1e4, 0.0},
    {"lgamma", 1.0, 0.0},       {"lgamma", 2.0, 0.0},         {"lgamma", 0.0, kInf},       {"lgamma", -0.0, kInf},
    {"lgamma", -3.0, kInf},     {"lgamma", kInf, kInf},       {"lgamma", -kInf, kInf},     {"digamma", 0.0, -kInf},
    {"digamma", -0.0, kInf},    {"digamma", -3.0, kNaN},      {"digamma", kInf, kInf},     {"digamma", -kInf, kNaN},
    {"sign", -0.0, -0.0},       {"sign", -kInf, -1.0},        {"gelu", 0.0, 0.0},          {"gelu", kInf, kInf},
    {"gelu", -kInf, 0.0},       {"gelu", -1e4, 0.0},          {"gelu_tanh", 0.0, 0.0},     {"gelu_tanh", kInf, kInf},
    {"gelu_tanh", -kInf, 0.0},  {"gelu_tanh", -1e4, 0.0},     {"silu", 0.0, 0.0},          {"silu", kInf, kInf},
    {"silu", -kInf, 0.0},       {"silu", -1e4, 0.0},          {"mish", 0.0, 0.0},          {"mish", kInf, kInf},
    {"mish", -kInf, 0.0},       {"mish", -1e4, 0.0},          {"softplus", -kInf, 0.0},    {"softplus", kInf, kInf},
    {"softplus", 1e4, 1e4},     {"softplus", -1e4, 0.0},      {"logsigmoid", kInf, 0.0},   {"logsigmoid", -kInf, -kInf},
    {"logsigmoid", -1e4, -1e4}, {"hard_sigmoid", -kInf, 0.0}, {"hard_sigmoid", kInf, 1.0}, {"hard_tanh", -kInf, -1.0},
    {"hard_tanh", kInf, 1.0},   {"hard_swish", -kInf, 0.0},   {"hard_swish", kInf, kInf},  {"dish", kInf, kInf},
    {"dish", -kInf, 0.0},       {"dish", 0.0, 0.0},           {"log1mexp", 0.0, -kInf},    {"log1mexp", -0.0, -kInf},
    {"log1mexp", kInf, 0.0},    {"log1mexp", -1.0, kNaN},     {"logit", 0.0, -kInf},       {"logit", 1.0, kInf},
    {"logit", 0.5, 0.0},        {"logit", -0.5, kNaN},        {"logit", 1.5, kNaN},        {"logit", kInf, kNaN},
    {"log_ndtr", -kInf, -kInf}, {"log_ndtr", kInf, 0.0},
};

template <class T>
T apply(const InstructionSet& set, const std::string& name, T x) {
  for (std::int64_t op = 0; op < set.count; ++op) {
    if (name == set.loops[op].name) {
      T y = 0;
      loops_of<T>(set.loops[op]).forward(1, &x, &y);
      return y;
    }
  }
  ADD_FAILURE() << "no op " << name;
  return T(kNaN);
}

template <class T>
void expect_same(T got, T want, const Row& row, const char* isa) {
  if (std::isnan(want)) {
    EXPECT_TRUE(std::isnan(got)) << row.op << "(" << row.x << ") = " << got << " on " << isa;
  } else {
    EXPECT_EQ(got, want) << row.op << "(" << row.x << ") on " << isa;
    const bool limit = want == 0 && std::fabs(row.x) > 100;
    EXPECT_TRUE(limit || std::signbit(got) == std::signbit(want))
        << row.op << "(" << row.x << ") = " << got << " on " << isa;
  }
}

template <class F>
void on_each_set(F f) {
  for (const InstructionSet* set = instruction_sets(); set != instruction_sets() + kInstructionSets; ++set) {
    if (set->supported) f(*set);
  }
}

TEST(ScalarExtremes, AreExact) {
  on_each_set([](const InstructionSet& set) {
    for (const Row& row : kRows) {
      expect_same(apply(set, row.op, static_cast<float>(row.x)), static_cast<float>(row.y), row, set.name);
      expect_same(apply(set, row.op, row.x), row.y, row, set.name);
    }
  });
}

TEST(ScalarExtremes, NaNGivesNaN) {
  on_each_set([](const InstructionSet& set) {
    for (std::int64_t op = 0; op < set.count; ++op) {
      const char* name = set.loops[op].name;
      EXPECT_TRUE(std::isnan(apply(set, name, static_cast<float>(kNaN)))) << name << " on " << set.name;
      EXPECT_TRUE(std::isnan(apply(set, name, kNaN))) << name << " on " << set.name;
    }
  });
}

// gelu, for one, computes another formula where one lane of a vector is far out, for some hundred numbers together.
template <class T>
void expect_no_neighbours(const InstructionSet& set) {
  std::vector<T> x;
  for (int i = 0; i < 97; ++i) x.push_back(static_cast<T>(i * 37 % 97) / 8 - T(0.1));  // near ones alone
  for (int i = 0; i < 500; ++i) x.push_back(static_cast<T>(i % 3 == 0 ? i * 7 % 61 - 30 : 1));
  for (const double far : {-5.3, -6.0, -13.5, -40.0, -kInf, 1e4, 12801.0, -1e9, kInf, kNaN})
    for (int i = 0; i < 21; ++i) x.push_back(static_cast<T>(i % 20 == 7 ? far : 2 - 0.37 * i));
  const std::vector<T> ones(x.size(), T(1));
  for (std::int64_t op = 0; op < set.count; ++op) {
    const Loops<T>& loops = loops_of<T>(set.loops[op]);
    std::vector<T> y(x.size()), dx(x.size());
    loops.forward(static_cast<std::int64_t>(x.size()), x.data(), y.data());
    loops.backward(static_cast<std::int64_t>(x.size()), x.data(), ones.data(), dx.data());
    std::vector<T> in_place = x, in_place_of_dy = ones;
    loops.forward(static_cast<std::int64_t>(x.size()), in_place.data(), in_place.data());
    loops.backward(static_cast<std::int64_t>(x.size()), x.data(), in_place_of_dy.data(), in_place_of_dy.data());
    for (std::size_t i = 0; i < x.size(); ++i) {
      T alone[2] = {};
      loops.forward(1, &x[i], &alone[0]);
      loops.backward(1, &x[i], ones.data(), &alone[1]);
      const auto same = [](T a, T b) { return std::memcmp(&a, &b, sizeof a) == 0 || (std::isnan(a) && std::isnan(b)); };
      EXPECT_TRUE(same(y[i], in_place[i])) << set.loops[op].name << "(" << x[i] << ") in place on " << set.name;
      EXPECT_TRUE(same(dx[i], in_place_of_dy[i])) << set.loops[op].name << "'(" << x[i] << ") in place on " << set.name;
      EXPECT_TRUE(same(y[i], alone[0])) << set.loops[op].name << "(" << x[i] << ") on " << set.name;
      EXPECT_TRUE(same(dx[i], alone[1])) << set.loops[op].name << "'(" << x[i] << ") on " << set.name;
    }
  }
}

TEST(ScalarExtremes, NoLaneDependsOnItsNeighbours) {
  on_each_set([](const InstructionSet& set) {
    expect_no_neighbours<float>(set);
    expect_no_neighbours<double>(set);
  });
}

TEST(ScalarExtremes, OddFunctionsAreOddToTheLastBitAndNoLargerThanOne) {
  std::vector<float> x, minus;
  for (float magnitude = 0x1p-149f; magnitude < 40; magnitude = std::nextafter(magnitude, 1e9f) * 1.0007f) {
    x.push_back(magnitude);
    minus.push_back(-magnitude);
  }
  const auto count = static_cast<std::int64_t>(x.size());
  on_each_set([&](const InstructionSet& set) {
    int tested = 0;
    for (std::int64_t op = 0; op < set.count; ++op) {
      const std::string name = set.loops[op].name;
      if (name != "tanh" && name != "erf") continue;
      ++tested;
      std::vector<float> right(x.size()), left(x.size());
      set.loops[op].f32.forward(count, x.data(), right.data());
      set.loops[op].f32.forward(count, minus.data(), left.data());
      for (std::size_t i = 0; i < x.size(); ++i) {
        ASSERT_EQ(left[i], -right[i]) << name << "(" << x[i] << ") on " << set.name;
        ASSERT_LE(right[i], 1.0f) << name << "(" << x[i] << ") on " << set.name;
      }
    }
    EXPECT_EQ(tested, 2);
  });
}

TEST(ScalarExtremes, UnderflowIsGradual) {
  on_each_set([](const InstructionSet& set) {
    EXPECT_EQ(apply(set, "exp", -103.0f), 0x1p-149f);
    EXPECT_EQ(apply(set, "exp", -100.0f), static_cast<float>(std::exp(-100.0)));
    EXPECT_EQ(apply(set, "exp", -745.0), 0x1p-1074);
    EXPECT_EQ(apply(set, "sigmoid", -103.0f), 0x1p-149f);
    EXPECT_EQ(apply(set, "tanh", 0x1p-149f), 0x1p-149f);
    EXPECT_EQ(apply(set, "tanh", -0x1p-1074), -0x1p-1074);
    EXPECT_EQ(apply(set, "log", 0x1p-149f), static_cast<float>(std::log(0x1p-149)));
    EXPECT_EQ(apply(set, "log", 0x1p-1074), std::log(0x1p-1074));
  });
}

TEST(ScalarExtremes, DenormalArgumentsOfIdentitiesStay) {
  on_each_set([](const InstructionSet& set) {
    for (const char* name : {"expm1", "log1p", "sin", "tanh"}) {  // f(x) = x + ...
      EXPECT_EQ(apply(set, name, 0x1p-149f), 0x1p-149f) << name << " on " << set.name;
      EXPECT_EQ(apply(set, name, -0x1.8p-1030), -0x1.8p-1030) << name << " on " << set.name;
    }
  });
}

TEST(ScalarExtremes, SineOfHugeArgumentsIsTheirs) {
  on_each_set([](const InstructionSet& set) {
    // The f64 number closest to a multiple of pi / 2 (Muller, Elementary Functions).
    const double close = 6381956970095103.0 * 0x1p797;
    for (const double x : {1e8, 1.1e8, 1e15, 1e22, -1e300, close, -close, std::numeric_limits<double>::max()}) {
      EXPECT_LE(ulp_error(apply(set, "sin", x), std::sin(static_cast<long double>(x))), 4) << x << " on " << set.name;
      EXPECT_LE(ulp_error(apply(set, "cos", x), std::cos(static_cast<long double>(x))), 4) << x << " on " << set.name;
    }
    EXPECT_NEAR(apply(set, "cos", 3e38f), std::cos(3e38f), 1e-7) << set.name;
  });
}

TEST(ScalarExtremes, ElementsBesideAHugeOneKeepTheirBits) {
  on_each_set([](const InstructionSet& set) {
    for (std::int64_t op = 0; op < set.count; ++op) {
      std::vector<double> x(300), alone(300), beside(300);
      for (std::size_t i = 0; i < x.size(); ++i) x[i] = 0.37 * static_cast<double>(i);
      set.loops[op].f64.forward(300, x.data(), alone.data());
      x[200] = 1e30;
      set.loops[op].f64.forward(300, x.data(), beside.data());
      beside[200] = alone[200];
      EXPECT_EQ(std::memcmp(alone.data(), beside.data(), 300 * sizeof(double)), 0)
          << set.loops[op].name << " on " << set.name;
    }
  });
}

TEST(ScalarMaximum, PropagatesNaNFromEitherSide) {
  using namespace scalar;
  EXPECT_EQ(Maximum::forward(1.0, 2.0), 2.0);
  EXPECT_EQ(Minimum::forward(1.0, 2.0), 1.0);
  EXPECT_EQ(Maximum::forward(3, 2), 3);
  EXPECT_EQ(Minimum::forward(-kInf, kInf), -kInf);
  for (double other : {0.0, kInf, -kInf}) {
    EXPECT_TRUE(std::isnan(Maximum::forward(kNaN, other)));
    EXPECT_TRUE(std::isnan(Maximum::forward(other, kNaN)));
    EXPECT_TRUE(std::isnan(Minimum::forward(kNaN, other)));
    EXPECT_TRUE(std::isnan(Minimum::forward(other, kNaN)));
  }
}

TEST(ScalarReluMask, PassesWhereTheOutputIsPositiveOrNaN) {
  using scalar::ReluMask;
  EXPECT_EQ(ReluMask::forward(3.0, 1.0), 3.0);
  EXPECT_EQ(ReluMask::forward(3.0, 0.0), 0.0);
  EXPECT_EQ(ReluMask::forward(3.0, -0.0), 0.0);
  EXPECT_EQ(ReluMask::forward(kInf, 0.0), 0.0);
  EXPECT_EQ(ReluMask::forward(3.0, kNaN), 3.0);
  EXPECT_TRUE(std::isnan(ReluMask::forward(kNaN, 1.0)));
}

TEST(ScalarComparisons, AreFalseForNaNButNotEqual) {
  using namespace scalar;
  EXPECT_TRUE(Less::forward(1, 2));
  EXPECT_FALSE(Less::forward(2, 2));
  EXPECT_TRUE(LessEqual::forward(2, 2));
  EXPECT_TRUE(Greater::forward(2.0f, 1.0f));
  EXPECT_TRUE(GreaterEqual::forward(2.0f, 2.0f));
  EXPECT_TRUE(Equal::forward(0.0, -0.0));
  EXPECT_FALSE(NotEqual::forward(1, 1));
  EXPECT_FALSE(Equal::forward(kNaN, kNaN));
  EXPECT_TRUE(NotEqual::forward(kNaN, kNaN));
  EXPECT_FALSE(Less::forward(kNaN, 1.0) || LessEqual::forward(1.0, kNaN));
  EXPECT_FALSE(Greater::forward(kNaN, 1.0) || GreaterEqual::forward(1.0, kNaN));
}

}  // namespace
}  // namespace reel::scalar_test
