// What numpy 2.4 prints for the same numbers.

#include <gtest/gtest.h>

#include <cmath>

#include "reel/core/ragged.h"
#include "reel/ops/arithmetic.h"
#include "reel/ops/create.h"
#include "reel/ops/views.h"

namespace reel {
namespace {

std::string printed(std::initializer_list<double> values, DType dtype = f64) {
  return to_string(tensor(values, {.dtype = dtype}));
}

TEST(Print, ShowsTheDigitsThatTellNumbersOfTheTypeApart) {
  EXPECT_EQ(printed({1. / 3, 2. / 3, 1}), "[0.33333333 0.66666667 1.        ]");
  EXPECT_EQ(printed({1. / 3, 2. / 3, 1}, f32), "[0.33333334 0.6666667  1.        ]");
  EXPECT_EQ(printed({0.1, 0.25, 123456.789}, f32), "[1.0000000e-01 2.5000000e-01 1.2345679e+05]");
  EXPECT_EQ(printed({1.123456789012, 2.5}), "[1.12345679 2.5       ]");
  EXPECT_EQ(printed({0, -0.0}), "[ 0. -0.]");
}

TEST(Print, UsesExponentsForLargeSmallAndFarApartNumbers) {
  EXPECT_EQ(printed({0.5, 499}), "[  0.5 499. ]");
  EXPECT_EQ(printed({0.5, 1000}), "[5.e-01 1.e+03]");
  EXPECT_EQ(printed({0.001, 1}), "[0.001 1.   ]");
  EXPECT_EQ(printed({0.001, 1.001}), "[1.000e-03 1.001e+00]");
  EXPECT_EQ(printed({1e-5, 1}), "[1.e-05 1.e+00]");
  EXPECT_EQ(printed({123456789}), "[1.23456789e+08]");
  EXPECT_EQ(printed({-1e-10, 2.5e10, 0}), "[-1.0e-10  2.5e+10  0.0e+00]");
  EXPECT_EQ(printed({1e100, 1e-300}), "[1.e+100 1.e-300]");
  EXPECT_EQ(printed({1.123456789012e-9, 2.5}), "[1.12345679e-09 2.50000000e+00]");
}

TEST(Print, ExponentsHaveAsManyDigitsAsTheLongest) {
  EXPECT_EQ(printed({0.5, 1e-300, -1}), "[ 5.e-001  1.e-300 -1.e+000]");
  EXPECT_EQ(printed({3.4e38, 0.1, 2.5, 1e8, 1e-300}), "[3.4e+038 1.0e-001 2.5e+000 1.0e+008 1.0e-300]");
  EXPECT_EQ(printed({NAN, 1e100, 1}), "[    nan 1.e+100 1.e+000]");
}

TEST(Print, SinglePrecisionHasLimitsAndDigitsOfItsOwn) {
  EXPECT_EQ(printed({999999}, f32), "[999999.]");
  EXPECT_EQ(printed({1e6}, f32), "[1.e+06]");
  EXPECT_EQ(printed({1e7}), "[10000000.]");
  EXPECT_EQ(printed({1e-4F}, f32), "[0.0001]");
  EXPECT_EQ(printed({1e-4F}), "[9.99999975e-05]");
  // Digits beyond those that tell numbers apart are the number's, not zeros.
  EXPECT_EQ(printed({0, 0.3, 1e22, 16777216, 1}, f32),
            "[0.0000000e+00 3.0000001e-01 9.9999998e+21 1.6777216e+07 1.0000000e+00]");
  EXPECT_EQ(printed({-1.3896848e-05, 1.31091e-04, 17.050844, 2.2046293e-06}, f32),
            "[-1.3896848e-05  1.3109100e-04  1.7050844e+01  2.2046293e-06]");
}

TEST(Print, HalvesShowTheFewestDigitsThatAreTheSameNumber) {
  EXPECT_EQ(printed({0.1, 1. / 3, 2.5, -50}, f16), "[  0.1      0.3333   2.5    -50.    ]");
  EXPECT_EQ(printed({0.1, 1. / 3, 2.5, -50}, bf16), "[  0.1     0.334   2.5   -50.   ]");
  EXPECT_EQ(printed({3e38, 6e-8}, bf16), "[3.e+38 6.e-08]");
  EXPECT_EQ(printed({2e6, 2e6}, bf16), "[2.e+06 2.e+06]");  // as of f32
  EXPECT_EQ(to_string(full({}, 3e6, {.dtype = bf16})), "3e+06");
  EXPECT_EQ(printed({65504, 6e-8, NAN}, f16), "[6.55e+04 6.00e-08      nan]");
  EXPECT_EQ(to_string(full({}, 0.1, {.dtype = bf16})), "0.1");
}

TEST(Print, BooleansAreAsWideAsFalse) {
  EXPECT_EQ(printed({1, 1}, bool8), "[ True  True]");
  EXPECT_EQ(printed({1, 0}, bool8), "[ True False]");
  EXPECT_EQ(to_string(tensor({1}, {1, 1}, {.dtype = bool8})), "[[ True]]");
}

TEST(Print, LinesThatAreBrokenEndWithoutBlanks) {
  EXPECT_EQ(printed({-0.718599031, -0.248303, 0.9533609, -0.417011, -0.23, 0.1916, 0.4821}),
            "[-0.71859903 -0.248303    0.9533609  -0.417011   -0.23        0.1916\n  0.4821    ]");
  EXPECT_EQ(to_string(tensor({-0.4524248, 0.564, -0.02, 0.4429, -0.41362349, 0.9849666, 0.289753256}, {1, 7},
                             {.dtype = f64})),
            "[[-0.4524248   0.564      -0.02        0.4429     -0.41362349  0.9849666\n   0.28975326]]");
}

TEST(Print, AlignsWhatIsNotFinite) {
  EXPECT_EQ(printed({NAN, -1e10, 0, INFINITY}), "[    nan -1.e+10  0.e+00     inf]");
  EXPECT_EQ(printed({NAN, -INFINITY}), "[ nan -inf]");
  EXPECT_EQ(printed({1.25, NAN, -INFINITY}), "[1.25  nan -inf]");
}

TEST(Print, ScalarsShowAllTheirDigits) {
  const auto scalar = [](double value, DType dtype = f64) { return to_string(full({}, value, {.dtype = dtype})); };
  EXPECT_EQ(scalar(2), "2.0");
  EXPECT_EQ(scalar(1. / 3), "0.3333333333333333");
  EXPECT_EQ(scalar(1. / 3, f32), "0.33333334");
  EXPECT_EQ(scalar(1e16), "1e+16");
  EXPECT_EQ(scalar(1e15), "1000000000000000.0");
  EXPECT_EQ(scalar(1.5e-5), "1.5e-05");
  EXPECT_EQ(scalar(1e-4), "0.0001");
  EXPECT_EQ(scalar(999999, f32), "999999.0");
  EXPECT_EQ(scalar(1e6, f32), "1e+06");
  EXPECT_EQ(scalar(-0.0), "-0.0");
  EXPECT_EQ(scalar(-INFINITY), "-inf");
  EXPECT_EQ(scalar(-3, i32), "-3");
  EXPECT_EQ(scalar(1, bool8), "True");
}

TEST(Print, LinesEndAtSeventyFiveCharacters) {
  EXPECT_EQ(to_string(arange(40)),
            "[ 0  1  2  3  4  5  6  7  8  9 10 11 12 13 14 15 16 17 18 19 20 21 22 23\n"
            " 24 25 26 27 28 29 30 31 32 33 34 35 36 37 38 39]");
  EXPECT_EQ(to_string(reshape(arange(60) * 1000, {2, 30})),
            "[[    0  1000  2000  3000  4000  5000  6000  7000  8000  9000 10000 11000\n"
            "  12000 13000 14000 15000 16000 17000 18000 19000 20000 21000 22000 23000\n"
            "  24000 25000 26000 27000 28000 29000]\n"
            " [30000 31000 32000 33000 34000 35000 36000 37000 38000 39000 40000 41000\n"
            "  42000 43000 44000 45000 46000 47000 48000 49000 50000 51000 52000 53000\n"
            "  54000 55000 56000 57000 58000 59000]]");
}

TEST(Print, LargeTensorsShowTheirEdgesAlongEachAxis) {
  EXPECT_EQ(to_string(reshape(arange(2000, {.dtype = f64}), {500, 4})),
            "[[0.000e+00 1.000e+00 2.000e+00 3.000e+00]\n"
            " [4.000e+00 5.000e+00 6.000e+00 7.000e+00]\n"
            " [8.000e+00 9.000e+00 1.000e+01 1.100e+01]\n"
            " ...\n"
            " [1.988e+03 1.989e+03 1.990e+03 1.991e+03]\n"
            " [1.992e+03 1.993e+03 1.994e+03 1.995e+03]\n"
            " [1.996e+03 1.997e+03 1.998e+03 1.999e+03]]");
  EXPECT_EQ(to_string(arange(1200, {.dtype = f64}) * 123456.7),
            "[0.00000000e+00 1.23456700e+05 2.46913400e+05 ... 1.47777670e+08\n"
            " 1.47901127e+08 1.48024583e+08]");
  const std::string three = to_string(reshape(arange(2000), {10, 10, 20}));
  EXPECT_EQ(three.substr(0, 40), "[[[   0    1    2 ...   17   18   19]\n  ");
  EXPECT_NE(three.find("399]]\n\n [[ 400"), std::string::npos) << three;
  EXPECT_NE(three.find("599]]\n\n ...\n\n [[1400"), std::string::npos) << three;
}

TEST(Print, GoesToTheStandardOutput) {
  testing::internal::CaptureStdout();
  print(tensor({1, 2.5}));
  print(Ragged::from_lengths(tensor({1, 2, 3}), {2, 1}));
  EXPECT_EQ(testing::internal::GetCapturedStdout(), "[1.  2.5]\nRagged[[1. 2.],\n       [3.]]\n");
}

TEST(Print, EmptyTensorsAndViews) {
  EXPECT_EQ(to_string(zeros({2, 0})), "[]");
  EXPECT_EQ(to_string(transpose(reshape(arange(4), {2, 2}), 0, 1)), "[[0 2]\n [1 3]]");
}

TEST(Print, LongRaggedShowsItsFirstAndLastSequences) {
  EXPECT_EQ(to_string(Ragged::from_lengths(tensor({0.5, 1, 2}), {2, 1})), "Ragged[[0.5 1. ],\n       [2.]]");
  const std::vector<std::int64_t> lengths(1001, 1);
  EXPECT_EQ(to_string(Ragged::from_lengths(arange(1001), lengths)),
            "Ragged[[0],\n       [1],\n       [2],\n       ...,\n       [998],\n       [999],\n       [1000]]");
}

}  // namespace
}  // namespace reel
