// The suites that every row of the op-case table goes through on the CPU.

#include "reel/core/error.h"
#include "reel/core/parallel.h"
#include "reel/tests/free_memory.h"
#include "reel/tests/ops/generic_suites.h"

namespace reel::test {
namespace {

class Op : public GenericSuites {
 protected:
  Op() : GenericSuites(Device::cpu()) {}
};

/// The largest error in epsilon (1 + |reference|), which is what tolerances are stated in.
double worst_error(const Tensor& y, const Ref& expected) {
  const std::vector<double> values = y.to_vector<double>();
  double worst = 0;
  for (std::size_t i = 0; i < values.size(); ++i)
    if (std::isfinite(values[i]) && std::isfinite(expected.v[i]))
      worst = std::max(worst,
                       std::abs(values[i] - expected.v[i]) / (epsilon_of(y.dtype()) * (1 + std::abs(expected.v[i]))));
  return worst;
}

TEST_P(Op, EqualsTheDoubleReference) {
  double worst[2] = {};  // for the table in docs/numerics.md, which is made from --gtest_output=json
  for (const Size size : {Size::small, Size::odd, Size::empty, Size::one, Size::large})
    for (const DType dtype : {f32, f64}) {
      if (skips(size)) continue;
      SCOPED_TRACE(std::string(name_of(size)) + " " + reel::name_of(dtype));
      const Tensors in = inputs(dtype, size);
      const Tensor y = row().call(in);
      if (row().order > 0) {
        EXPECT_EQ(y.dtype(), dtype);
      }
      const Ref expected = row().reference(refs_of(in));
      expect_close(y, expected, row().tolerance);
      worst[dtype == f64] = std::max(worst[dtype == f64], worst_error(y, expected));
    }
  RecordProperty("bound", std::to_string(row().tolerance));
  RecordProperty("worst_f32", std::to_string(worst[0]));
  RecordProperty("worst_f64", std::to_string(worst[1]));
}

TEST_P(Op, GradientsMatchDifferences) {
  gradients_match_differences({Size::small, Size::one}, 2, Moves::elements);
  gradients_match_differences({Size::odd}, 1, Moves::elements);
}
TEST_P(Op, HasAThirdDerivativeToo) { has_a_third_derivative_too(Moves::elements); }
TEST_P(Op, FusedAndRecordedGradientsAgree) { fused_and_recorded_gradients_agree({Size::odd}); }
TEST_P(Op, FusedAndRecordedGradientsAgreeAtExtremes) {
  fused_and_recorded_gradients_agree_at_extremes(
      {f32, f64}, {0.0, -0.0, kDenormal, kInfinity, -kInfinity, kNaN, 1e4, -1e4, kLargest});
}
TEST_P(Op, WhatIsFiniteIsNotToldToBeOtherwise) {
  what_is_finite_is_not_told_to_be_otherwise({Size::small, Size::odd, Size::empty, Size::one}, {f32, f64});
}
TEST_P(Op, APullbackGivesWhatATapeGives) { a_pullback_gives_what_a_tape_gives(); }
TEST_P(Op, AWriteBeforeTheSweepIsNoticed) { a_write_before_the_sweep_is_noticed({Size::small, Size::odd}); }
TEST_P(Op, EmptyInputsHaveEmptyGradients) { empty_inputs_have_empty_gradients(); }
TEST_P(Op, StridedInputsGiveTheSameResult) {
  strided_inputs_give_the_same_result({Size::small, Size::odd, Size::large}, 1000);
}
TEST_P(Op, IndicesOf32BitsGiveTheSame) { indices_of_32_bits_give_the_same(); }
TEST_P(Op, ARowAloneGivesTheSameBitsAsInABatch) {
  EXPECT_EQ(a_row_alone_differs_from_a_batch({Size::odd, Size::large}, same_bits), !row().mixes_rows.empty())
      << "its rows do not depend on each other";
}

TEST_P(Op, TheSameBitsForAnyNumberOfThreads) {
  if (skips(Size::large)) return;
  const int before = num_threads();
  for (const DType dtype : {f32, f64}) {
    const Tensors in = inputs(dtype, Size::large);
    set_num_threads(1);
    const Tensors expected = result_and_gradients(in);
    for (const int threads : {2, 3, 7, 16}) {
      set_num_threads(threads);
      const Tensors results = result_and_gradients(in);
      for (std::size_t i = 0; i < results.size(); ++i) EXPECT_TRUE(same_bits(results[i], expected[i]));
    }
  }
  set_num_threads(before);
}

TEST_P(Op, ComputesNothingFromMemoryThatNobodyHasWritten) {
  const int before = num_threads();
  set_num_threads(1);
  for (const Size size : {Size::odd, Size::large}) {
    if (skips(size)) continue;
    for (const DType dtype : {f32, f64}) {
      SCOPED_TRACE(std::string(name_of(size)) + " " + reel::name_of(dtype));
      const Tensors in = inputs(dtype, size);
      EXPECT_FALSE(computes_from_free_memory([&] { result_and_gradients(in); }));
    }
  }
  set_num_threads(before);
}

TEST_P(Op, BadInputIsNamed) {
  for (const BadCall& bad : row().bad) {
    try {
      bad.call();
      ADD_FAILURE() << "nothing was thrown for " << testing::PrintToString(bad.words);
    } catch (const Error& error) {
      for (const std::string& word : bad.words)
        EXPECT_NE(std::string(error.what()).find(word), std::string::npos)
            << "'" << word << "' is missing in: " << error.what();
      EXPECT_NE(std::string(error.what()).find("_cases.cpp:"), std::string::npos)
          << "the caller's line is missing in: " << error.what();
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Table, Op, testing::ValuesIn(op_cases()), test_name);

}  // namespace
}  // namespace reel::test
