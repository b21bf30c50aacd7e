// The suites that every row of the op-case table goes through.

#include "reel/core/error.h"
#include "reel/core/parallel.h"
#include "reel/core/pullback.h"
#include "reel/core/tape.h"
#include "reel/ops/arithmetic.h"
#include "reel/ops/create.h"
#include "reel/ops/gradcheck.h"
#include "reel/ops/logical.h"
#include "reel/ops/reduce.h"
#include "reel/ops/statistics.h"
#include "reel/tests/ops/row_test.h"

namespace reel::test {
namespace {

class Op : public RowTest {};

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

TEST_P(Op, HasAThirdDerivativeToo) {
  // Any order is promised: the gradient is a function like others, whose second derivative is looked at.
  if (row().order < 2 || skips(Size::one)) return;
  const Tensors in = inputs(f64, Size::one);
  Tensors moved;
  for (const int i : row().differentiable) moved.push_back(in[static_cast<std::size_t>(i)]);
  const auto slope = [&](const Tensors& xs) {
    Tensors all = in;
    for (std::size_t i = 0; i < xs.size(); ++i) all[static_cast<std::size_t>(row().differentiable[i])] = xs[i];
    Tape inner;
    for (const Tensor& x : xs) inner.watch(x);
    const Tensor y = row().call(all);
    Tensor energy = sum(y + 0.5 * y * y), total = zeros({}, {.dtype = f64});
    for (const Tensor& x : xs) energy = energy + sum(x * x);  // some results depend on none
    const Tensors dxs = inner.gradient(energy, xs);
    for (const Tensor& dx : dxs) total = total + sum(dx + 0.5 * dx * dx);
    return total;
  };
  const GradcheckReport report = gradcheck(slope, moved, {.order = 2});
  EXPECT_TRUE(report) << report;
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

TEST_P(Op, WhatIsFiniteIsNotToldToBeOtherwise) {
  // A tape with check_finite looks at all that is recorded of an op: its result, its gradients and what they are made of.
  if (row().order < 2) return;
  const auto second_order = [&](const Tensors& in, bool strictly) {
    Tape outer({.check_finite = strictly});
    Tensors wanted;
    for (const int i : row().differentiable) wanted.push_back(in[static_cast<std::size_t>(i)]);
    for (const Tensor& x : wanted) outer.watch(x);
    Tape inner;
    for (const Tensor& x : wanted) inner.watch(x);
    const Tensor y = clone(row().call(in));  // some give x itself
    if (!is_tracked(y)) return false;
    Tensors results{y};
    for (const Tensor& dx : inner.gradient(y, ones_like(y), wanted)) results.push_back(dx);
    Tensor total = zeros({}, {.dtype = y.dtype()});
    for (const Tensor& result : results) total = total + sum(result);
    if (all(isfinite(total)).item() == 0) return false;
    bool finite = true;
    for (const Tensor& dx : outer.gradient(total, wanted)) finite = finite && all(isfinite(dx)).item() != 0;
    return finite;
  };
  for (const Size size : {Size::small, Size::odd, Size::empty, Size::one})
    for (const DType dtype : {f32, f64}) {
      if (skips(size)) continue;
      SCOPED_TRACE(std::string(name_of(size)) + " " + reel::name_of(dtype));
      const Tensors in = inputs(dtype, size);
      if (!second_order(in, false)) continue;
      try {
        second_order(in, true);
      } catch (const Error& error) {
        ADD_FAILURE() << error.what();
      }
    }
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

TEST_P(Op, FusedAndRecordedGradientsAgreeAtExtremes) {
  if (row().order < 2) return;
  // Both ways give the same gradients, or throw.
  const auto gradients = [&](const Tensors& in) {
    try {
      return result_and_gradients(in);
    } catch (const Error&) {
      return Tensors();
    }
  };
  for (const DType dtype : {f32, f64}) {
    const bool wide = dtype == f64;
    constexpr double kInfinity = std::numeric_limits<double>::infinity(),
                     kNaN = std::numeric_limits<double>::quiet_NaN();
    const double denormal = wide ? 0x1p-1060 : 0x1p-140, largest = wide ? 0x1.fp1023 : 0x1.fp127;
    for (const int k : row().differentiable)
      for (const double extreme : {0.0, -0.0, denormal, kInfinity, -kInfinity, kNaN, 1e4, -1e4, largest}) {
        Tensors in = inputs(dtype, Size::small);
        Tensor& x = in[static_cast<std::size_t>(k)];
        SCOPED_TRACE("element " + std::to_string(x.size() / 3) + " of input " + std::to_string(k) + " is " +
                     std::to_string(extreme) + ", " + reel::name_of(dtype));
        x = clone(x);
        narrow(reshape(x, {x.size()}), 0, x.size() / 3, 1).fill_(extreme);
        const Tensors fused = gradients(in);
        Tape outer;
        const Tensors recorded = gradients(in);
        ASSERT_EQ(recorded.size(), fused.size());
        for (std::size_t i = 0; i < fused.size(); ++i) expect_close(recorded[i], ref_of(fused[i]), 1000);
      }
  }
}

TEST_P(Op, EmptyInputsHaveEmptyGradients) {
  if (row().order == 0 || skips(Size::empty)) return;
  const Tensors in = inputs(f64, Size::empty);
  const Tensors results = result_and_gradients(in);
  for (std::size_t i = 1; i < results.size(); ++i)
    EXPECT_EQ(results[i].shape(), in[static_cast<std::size_t>(row().differentiable[i - 1])].shape());
}

/// The first row in the place of all, at one place in memory; indices stay, as one's bounds may be its row's.
Tensor first_row_repeated(const Tensor& x) {
  return x.rank() == 0 || x.size() == 0 || !is_floating(x.dtype()) ? x : expand(narrow(x, 0, 0, 1), x.shape());
}

TEST_P(Op, StridedInputsGiveTheSameResult) {
  for (const Size size : {Size::small, Size::odd, Size::large}) {
    if (skips(size)) continue;
    const Tensors in = inputs(f64, size);
    for (const auto strided : {with_gaps, column_major, first_row_repeated}) {
      Tensors views, copies;
      for (const Tensor& x : in) {
        const Tensor view = strided(x);
        views.push_back(view);
        copies.push_back(contiguous(view));
      }
      const Tensors expected = result_and_gradients(copies), results = result_and_gradients(views);
      ASSERT_EQ(results.size(), expected.size());
      for (std::size_t i = 0; i < results.size(); ++i) expect_close(results[i], ref_of(expected[i]), 1000);
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

TEST_P(Op, IndicesOf32BitsGiveTheSame) {
  const std::string op = row().name.substr(0, row().name.find('/'));
  if (op == "murmur3" || op == "ngrams" || op == "hash_embed" || op == "sum") return;  // ids and counts of 64 bits
  const Tensors wide = inputs(f64, Size::odd);
  Tensors narrow = wide;
  bool differs = false;
  for (Tensor& x : narrow) {
    if (x.dtype() != i64) continue;
    const Tensor few_bits = cast(x, i32);
    if (all(cast(few_bits, i64) == x).item() == 0) return;  // numbers, no indices
    x = few_bits;
    differs = true;
  }
  if (!differs) return;
  const Tensors expected = result_and_gradients(wide), results = result_and_gradients(narrow);
  ASSERT_EQ(results.size(), expected.size());
  for (std::size_t i = 0; i < results.size(); ++i) expect_close(results[i], ref_of(expected[i]), 0);
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
