// The suites that every row of the op-case table goes through.

#include "reel/core/error.h"
#include "reel/core/parallel.h"
#include "reel/core/pullback.h"
#include "reel/core/tape.h"
#include "reel/ops/arithmetic.h"
#include "reel/ops/gradcheck.h"
#include "reel/tests/ops/row_test.h"

namespace reel::test {
namespace {

class Op : public RowTest {};

TEST_P(Op, EqualsTheDoubleReference) {
  for (const Size size : {Size::small, Size::odd, Size::empty, Size::one, Size::large})
    for (const DType dtype : {f32, f64}) {
      if (skips(size)) continue;
      SCOPED_TRACE(std::string(name_of(size)) + " " + reel::name_of(dtype));
      const Tensors in = inputs(dtype, size);
      const Tensor y = row().call(in);
      if (row().order > 0) {
        EXPECT_EQ(y.dtype(), dtype);
      }
      expect_close(y, row().reference(refs_of(in)), row().tolerance);
    }
}

TEST_P(Op, GradientsMatchDifferences) {
  if (row().order == 0) return;
  for (const Size size : {Size::small, Size::odd, Size::one}) {
    if (skips(size)) continue;
    SCOPED_TRACE(name_of(size));
    const Tensors in = inputs(f64, size);
    Tensors moved;
    for (const int i : row().differentiable) moved.push_back(in[static_cast<std::size_t>(i)]);
    const auto f = [&](const Tensors& xs) {
      Tensors all = in;
      for (std::size_t i = 0; i < xs.size(); ++i) all[static_cast<std::size_t>(row().differentiable[i])] = xs[i];
      // Bent, so that the result's gradient depends on the inputs too: else a linear op's second derivative is 0.
      const Tensor y = row().call(all);
      return y + 0.5 * y * y;
    };
    const GradcheckReport report = gradcheck(f, moved, {.order = size == Size::odd ? 1 : row().order});
    EXPECT_TRUE(report) << report;
  }
}

TEST_P(Op, FusedAndRecordedGradientsAgree) {
  // Under an outer tape a callback computes with recorded ops, else with its fused kernel.
  if (row().order < 2) return;
  const Tensors in = inputs(f64, Size::odd);
  const Tensors fused = result_and_gradients(in);
  Tape outer;
  const Tensors recorded = result_and_gradients(in);
  for (std::size_t i = 0; i < fused.size(); ++i) expect_close(recorded[i], ref_of(fused[i]), 1000);
}

TEST_P(Op, APullbackGivesWhatATapeGives) {
  if (row().order == 0 || skips(Size::small)) return;
  const Tensors in = inputs(f64, Size::small);
  const Tensors expected = result_and_gradients(in);
  for (std::size_t i = 1; i < expected.size(); ++i) {
    const auto moved = static_cast<std::size_t>(row().differentiable[i - 1]);
    auto [y, backprop] = pullback(
        [&](const Tensor& x) {
          Tensors all = in;
          all[moved] = x;
          return row().call(all);
        },
        in[moved]);
    Generator generator(5);
    expect_close(backprop(randn(y.shape(), generator, {.dtype = f64})), ref_of(expected[i]), 100);
  }
}

TEST_P(Op, EmptyInputsHaveEmptyGradients) {
  if (row().order == 0 || skips(Size::empty)) return;
  const Tensors in = inputs(f64, Size::empty);
  const Tensors results = result_and_gradients(in);
  for (std::size_t i = 1; i < results.size(); ++i)
    EXPECT_EQ(results[i].shape(), in[static_cast<std::size_t>(row().differentiable[i - 1])].shape());
}

TEST_P(Op, StridedInputsGiveTheSameResult) {
  for (const Size size : {Size::small, Size::odd, Size::large}) {
    if (skips(size)) continue;
    const Tensors in = inputs(f64, size);
    const Tensors expected = result_and_gradients(in);
    for (const auto strided : {with_gaps, column_major}) {
      Tensors views;
      for (const Tensor& x : in) views.push_back(strided(x));
      const Tensors results = result_and_gradients(views);
      ASSERT_EQ(results.size(), expected.size());
      for (std::size_t i = 0; i < results.size(); ++i) expect_close(results[i], ref_of(expected[i]), 200);
    }
  }
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

// Row r of the inputs that have as many as the result; empty if none has.
Tensors row_alone(const Tensors& in, const std::vector<int>& whole, const Tensor& batch, std::int64_t r) {
  Tensors alone = in;
  bool cut = false;
  for (std::size_t i = 0; i < in.size(); ++i) {
    if (in[i].rank() == 0 || in[i].shape()[0] != batch.shape()[0]) continue;
    if (std::find(whole.begin(), whole.end(), static_cast<int>(i)) != whole.end()) continue;
    alone[i] = narrow(in[i], 0, r, 1);
    cut = true;
  }
  return cut ? alone : Tensors();
}

TEST_P(Op, ARowAloneGivesTheSameBitsAsInABatch) {
  bool mixes = false;
  for (const Size size : {Size::odd, Size::large}) {
    if (skips(size)) continue;
    const Tensors in = inputs(f32, size);
    const Tensor batch = row().call(in);
    const std::int64_t n = batch.rank() > 0 ? batch.shape()[0] : 0;
    if (n < 2) continue;
    for (const std::int64_t r : {std::int64_t{0}, std::int64_t{1}, n / 2, n - 1}) {
      const Tensors alone = row_alone(in, row().whole, batch, r);
      if (alone.empty()) continue;
      if (row().mixes_rows.empty()) {
        EXPECT_TRUE(same_bits(row().call(alone), narrow(batch, 0, r, 1))) << name_of(size) << ", row " << r;
        continue;
      }
      try {
        mixes = mixes || !same_bits(row().call(alone), narrow(batch, 0, r, 1));
      } catch (const Error&) {
        mixes = true;
      }
    }
  }
  EXPECT_EQ(mixes, !row().mixes_rows.empty()) << "its rows do not depend on each other";
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
