// The scalar functions against printed tables, so that no reference of ours, nor the C library's, is taken on trust.
//
// Digits are those of Abramowitz and Stegun, "Handbook of Mathematical Functions" (1964): tables 1.1 (constants), 4.2, 4.4, 4.6
// and 4.15 (log, exp, sin and cos, tanh), 6.1 and 6.3 (gamma and digamma), 7.1 (erf), 26.1 (the normal distribution); and those
// of Ng, "Argument reduction for huge arguments: good to the last bit" (1992) for 10^22.

#include <gtest/gtest.h>

#include <cmath>
#include <cstdio>
#include <string>

#include "reel/tests/scalar/loops.h"
#include "reel/tests/scalar/reference.h"

namespace reel::scalar_test {
namespace {

struct Entry {
  const char* name;
  double x;  // exact in f32, but for 1e22
  long double y;
  long double digit;  // the last one printed
};

constexpr long double kConstant = 1e-20L, kTen = 1e-10L, kFifteen = 1e-15L;

const Entry kEntries[] = {
    {"exp", 1, 2.71828182845904523536L, kConstant},
    {"exp", -1, 0.36787944117144232160L, kConstant},
    {"exp", 0.5, 1.64872127070012814685L, kConstant},
    {"exp", 10, 22026.46579480671651695790L, kConstant},
    {"expm1", 1, 1.71828182845904523536L, kConstant},
    {"log", 2, 0.69314718055994530942L, kConstant},
    {"log", 3, 1.09861228866810969140L, kConstant},
    {"log", 10, 2.30258509299404568402L, kConstant},
    {"log1p", 1, 0.69314718055994530942L, kConstant},
    {"log1p", 6, 1.94591014905531330511L, kConstant},
    {"sqrt", 2, 1.41421356237309504880L, kConstant},
    {"rsqrt", 2, 0.70710678118654752440L, kConstant},
    {"sin", 1, 0.84147098480789650665L, kConstant},
    {"cos", 1, 0.54030230586813971740L, kConstant},
    {"sin", 1e22, -0.85220084976718880177L, kConstant},
    {"cos", 1e22, 0.52321478539513894550L, kConstant},
    {"tanh", 1, 0.7615941559557649L, 1e-16L},
    {"erf", 0.5, 0.5204998778L, kTen},
    {"erf", 1, 0.8427007929L, kTen},
    {"erf", 1.5, 0.9661051465L, kTen},
    {"erf", 2, 0.9953222650L, kTen},
    {"erfc", 1, 0.1572992071L, kTen},
    {"lgamma", 0.25, 1.28802252469807745737L, kConstant},
    {"lgamma", 0.5, 0.57236494292470008707L, kConstant},
    {"lgamma", 0.75, 0.20328095143129537148L, kConstant},
    {"lgamma", 1.5, -0.1207822376L, kTen},
    {"digamma", 1, -0.57721566490153286061L, kConstant},
    {"digamma", 1.25, -0.2274535334L, kTen},
    {"digamma", 1.5, 0.0364899740L, kTen},
    {"digamma", 1.75, 0.2474724535L, kTen},
    {"digamma", 2, 0.42278433509846713939L, kConstant},
    {"gelu", 0.5, 0.5L * 0.691462461274013L, kFifteen},
    {"gelu", 1, 0.841344746068543L, kFifteen},
    {"gelu", -1, -1 + 0.841344746068543L, kFifteen},
    {"gelu", 2, 2 * 0.977249868051821L, 2 * kFifteen},
};

// The last place of a T of y's size.
template <class T>
long double last_place(long double y) {
  return std::fabs(std::nextafter(static_cast<T>(y), static_cast<T>(INFINITY)) - static_cast<T>(y));
}

template <class T>
void check(const Entry& entry) {
  const Reference& reference = reference_of(entry.name);
  const T x = static_cast<T>(entry.x);
  const long double bound = sizeof(T) == 4 ? reference.bound_f32 : reference.bound_f64;
  for (const InstructionSet* set = instruction_sets(); set != instruction_sets() + kInstructionSets; ++set) {
    if (!set->supported) continue;
    std::int64_t op = 0;
    while (std::string(set->loops[op].name) != entry.name) ++op;
    // Sines and cosines of huge arguments are found among others.
    T got[3] = {}, in[3] = {T(1), x, T(0)};
    loops_of<T>(set->loops[op]).forward(3, in, got);
    EXPECT_LE(std::fabs(got[1] - entry.y), bound * last_place<T>(entry.y) + entry.digit)
        << entry.name << "(" << entry.x << ") = " << static_cast<double>(got[1]) << " on " << set->name << ", f"
        << 8 * sizeof(T);
  }
}

TEST(Published, ValuesAreThoseOfTables) {
  for (const Entry& entry : kEntries) {
    check<double>(entry);
    if (static_cast<float>(entry.x) == entry.x) check<float>(entry);
  }
}

TEST(Published, ValuesAreThoseOfTheReferenceToo) {
  for (const Entry& entry : kEntries)
    EXPECT_NEAR(static_cast<double>((reference_of(entry.name).function(entry.x) - entry.y) / entry.digit), 0,
                1 + 4e-18 * std::fabs(static_cast<double>(entry.y / entry.digit)))
        << entry.name << "(" << entry.x << ")";
}

}  // namespace
}  // namespace reel::scalar_test
