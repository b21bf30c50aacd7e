// Every row of the op-case table with tensors on Device::cuda(), run by the executor or (REEL_ON_GPU) a GPU: results against
// the double reference, gradients against the CPU backend, strided and empty inputs, and the same bits whatever the
// schedule. With REEL_RESULTS=<file> in the environment the results of one size are written there, for scripts/compare-results.

#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <map>
#include <string>

#include "reel/core/error.h"
#include "reel/tests/cuda_on_cpu/schedule.h"
#include "reel/tests/ops/generic_suites.h"

namespace reel::test {
namespace {

using cuda_on_cpu::Schedule;

void write_results(const std::string& name, const Tensors& results, double tolerance) {
  static std::FILE* const file = [] {
    const char* path = std::getenv("REEL_RESULTS");
    return path != nullptr ? std::fopen(path, "w") : nullptr;
  }();
  if (file == nullptr) return;
  for (std::size_t i = 0; i < results.size(); ++i) {
    std::fprintf(file, "%s[%zu] %s %g", name.c_str(), i, reel::name_of(results[i].dtype()), tolerance);
    for (const double value : results[i].to_vector<double>()) std::fprintf(file, " %a", value);
    std::fprintf(file, "\n");
  }
  std::fflush(file);
}

/// Entries that were asked for and are not there yet, and by how many rows: told at the end.
std::map<std::string, int>& missing_entries() {
  static std::map<std::string, int> entries;
  return entries;
}

class Cuda : public GenericSuites {
 protected:
  Cuda() : GenericSuites(Device::cuda()) {}
  void SetUp() override { cuda_on_cpu::set_guard(false); }
  void TearDown() override { cuda_on_cpu::set_schedule(Schedule::in_order); }

  // Runs `body`; an entry that CUDA lacks ends the test as skipped.
  template <class F>
  void run(F body) {
    try {
      body();
    } catch (const DeviceError& error) {
      const std::string text = error.what();
      const std::size_t end = text.find(": not on CUDA yet");
      if (end == std::string::npos) throw;
      const std::size_t begin = text.rfind(' ', end - 1);
      ++missing_entries()[text.substr(begin == std::string::npos ? 0 : begin + 1, end - begin - 1)];
      GTEST_SKIP() << text;
    }
  }
};

// Host code that touches device memory would end the program. (On a GPU compute-sanitizer watches these.)
TEST_P(Cuda, EqualsTheReferenceOnSmallShapesWithGradients) {
  cuda_on_cpu::set_guard(true);
  run([&] {
    for (const DType dtype : {f32, f64})
      for (const Size size : {Size::small, Size::empty, Size::one}) {
        if (skips(size)) continue;
        const Tensors in = inputs(dtype, size);
        const Tensors results = result_and_gradients(on(Device::cuda(), in));
        expect_close(results[0], row().reference(refs_of(in)), row().tolerance);
        if (row().order == 0) continue;
        const Tensors expected = result_and_gradients(in);
        ASSERT_EQ(results.size(), expected.size());
        for (std::size_t i = 1; i < results.size(); ++i)
          expect_close(results[i], ref_of(expected[i]), 100 + 4 * row().tolerance);
      }
  });
}

TEST_P(Cuda, EqualsTheReferenceAndTheCpusGradients) {
  run([&] {
    for (const DType dtype : {f32, f64}) {
      if (skips(Size::odd)) continue;
      SCOPED_TRACE(reel::name_of(dtype));
      const Tensors in = inputs(dtype, Size::odd);
      const Tensors results = result_and_gradients(on(Device::cuda(), in));
      EXPECT_EQ(results[0].device(), Device::cuda());
      expect_close(results[0], row().reference(refs_of(in)), row().tolerance);
      if (row().order == 0) continue;
      const Tensors expected = result_and_gradients(in);
      ASSERT_EQ(results.size(), expected.size());
      write_results(row().name + (dtype == f64 ? "/f64" : ""), results, 100 + 4 * row().tolerance);
      for (std::size_t i = 1; i < results.size(); ++i)
        expect_close(results[i], ref_of(expected[i]), 100 + 4 * row().tolerance);
    }
  });
}

// Many blocks, and more than one turn of their loops.
TEST_P(Cuda, EqualsTheReferenceOnLargeShapes) {
  if (skips(Size::large)) return;
  run([&] {
    const Tensors in = inputs(f32, Size::large);
    expect_close(row().call(on(Device::cuda(), in)), row().reference(refs_of(in)), row().tolerance);
  });
}

TEST_P(Cuda, TheSameBitsUnderEverySchedule) {
  run([&] {
    for (const Size size : {Size::small, Size::odd})
      for (const DType dtype : {f32, f64}) {
        if (skips(size)) continue;
        SCOPED_TRACE(std::string(name_of(size)) + " " + reel::name_of(dtype));
        cuda_on_cpu::set_schedule(Schedule::in_order);
        const Tensors in = inputs_there(dtype, size);
        const Tensors expected = result_and_gradients(in);
        for (const Schedule schedule : {Schedule::reversed, Schedule::random}) {
          cuda_on_cpu::set_schedule(schedule);
          const Tensors results = result_and_gradients(in);
          ASSERT_EQ(results.size(), expected.size());
          for (std::size_t i = 0; i < results.size(); ++i) EXPECT_TRUE(same_bits(results[i], expected[i]));
        }
      }
  });
}

// --- the generic suites -------------------------------------------------------------------------------------------------------

// At fewer sizes and extremes than on the CPU, whose formulas these kernels share, and differences in a direction per input: an
// element of a row is dear on the executor.
TEST_P(Cuda, GradientsMatchDifferences) {
  run([&] { gradients_match_differences({Size::small, Size::one}, 2, Moves::directions); });
}
TEST_P(Cuda, HasAThirdDerivativeToo) {
  run([&] { has_a_third_derivative_too(Moves::directions); });
}
TEST_P(Cuda, FusedAndRecordedGradientsAgree) {
  run([&] { fused_and_recorded_gradients_agree({Size::odd}); });
}
TEST_P(Cuda, FusedAndRecordedGradientsAgreeAtExtremes) {
  run([&] { fused_and_recorded_gradients_agree_at_extremes({f32}, {kInfinity, kNaN, kLargest}); });
}
TEST_P(Cuda, WhatIsFiniteIsNotToldToBeOtherwise) {
  run([&] { what_is_finite_is_not_told_to_be_otherwise({Size::small, Size::empty}, {f32}); });
}
TEST_P(Cuda, APullbackGivesWhatATapeGives) {
  run([&] { a_pullback_gives_what_a_tape_gives(); });
}
TEST_P(Cuda, EmptyInputsHaveEmptyGradients) {
  run([&] { empty_inputs_have_empty_gradients(); });
}
TEST_P(Cuda, StridedInputsGiveTheSameResult) {
  run([&] { strided_inputs_give_the_same_result({Size::odd}, 200); });
}
TEST_P(Cuda, IndicesOf32BitsGiveTheSame) {
  run([&] { indices_of_32_bits_give_the_same(); });
}

// Within twice the op's bound: products choose their algorithm by the number of rows.
TEST_P(Cuda, ARowAloneGivesTheSameAsInABatch) {
  if (!row().mixes_rows.empty()) return;
  run([&] {
    a_row_alone_differs_from_a_batch({Size::odd}, [&](const Tensor& alone, const Tensor& of_batch) {
      return alone.shape() == of_batch.shape() && far_element(alone, ref_of(of_batch), 2 * row().tolerance).empty();
    });
  });
}

INSTANTIATE_TEST_SUITE_P(Table, Cuda, testing::ValuesIn(op_cases()), test_name);

/// Tells what was not run.
class Missing : public testing::Environment {
 public:
  void TearDown() override {
    for (const auto& [entry, rows] : missing_entries())
      std::printf("not on CUDA yet: %s, which stopped %d tests\n", entry.c_str(), rows);
  }
};
const testing::Environment* const missing = testing::AddGlobalTestEnvironment(new Missing);

}  // namespace
}  // namespace reel::test
