// The suites that every row of the op-case table goes through.

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <limits>
#include <set>
#include <string_view>

#include "reel/core/error.h"
#include "reel/core/parallel.h"
#include "reel/core/tape.h"
#include "reel/ops/arithmetic.h"
#include "reel/ops/convert.h"
#include "reel/ops/create.h"
#include "reel/ops/gradcheck.h"
#include "reel/ops/views.h"
#include "reel/tests/ops/op_case.h"

namespace reel::test {
namespace {

const char* name_of(Size size) {
  const char* names[] = {"small", "odd", "empty", "one", "large"};
  return names[static_cast<int>(size)];
}

Ref ref_of(const Tensor& x) { return {x.shape(), x.to_vector<double>()}; }

std::vector<Ref> refs_of(const Tensors& xs) {
  std::vector<Ref> refs;
  for (const Tensor& x : xs) refs.push_back(ref_of(x));
  return refs;
}

void expect_close(const Tensor& y, const Ref& expected, double tolerance, double epsilon) {
  ASSERT_EQ(y.shape(), expected.shape);
  const std::vector<double> values = y.to_vector<double>();
  for (std::size_t i = 0; i < values.size(); ++i) {
    const double got = values[i], want = expected.v[i];
    if (got == want || (std::isnan(got) && std::isnan(want))) continue;
    ASSERT_LE(std::abs(got - want), tolerance * epsilon * (1 + std::abs(want)))
        << "element " << i << ": " << got << ", not " << want;
  }
}

// The largest error in epsilon (1 + |reference|), which is what tolerances are stated in.
double worst_error(const Tensor& y, const Ref& expected, double epsilon) {
  const std::vector<double> values = y.to_vector<double>();
  double worst = 0;
  for (std::size_t i = 0; i < values.size(); ++i)
    if (std::isfinite(values[i]) && std::isfinite(expected.v[i]))
      worst = std::max(worst, std::abs(values[i] - expected.v[i]) / (epsilon * (1 + std::abs(expected.v[i]))));
  return worst;
}

void expect_same_bits(const Tensor& a, const Tensor& b) {
  ASSERT_EQ(a.shape(), b.shape());
  const Tensor x = contiguous(a), y = contiguous(b);
  EXPECT_EQ(std::memcmp(x.array().data, y.array().data, static_cast<std::size_t>(x.size()) * size_of(x.dtype())), 0);
}

double epsilon_of(DType dtype) {
  return dtype == f32 ? std::numeric_limits<float>::epsilon() : std::numeric_limits<double>::epsilon();
}

class Op : public testing::TestWithParam<OpCase> {
 protected:
  const OpCase& row() const { return GetParam(); }
  bool skips(Size size) const { return std::find(row().skip.begin(), row().skip.end(), size) != row().skip.end(); }
  Tensors inputs(DType dtype, Size size) const {
    Maker make(dtype, 11);
    return row().inputs(make, size);
  }
  // The result and the gradients of the differentiable inputs for a random output gradient.
  Tensors result_and_gradients(const Tensors& in) const {
    Tape tape;
    Tensors wanted;
    for (const int i : row().differentiable) {
      tape.watch(in[static_cast<std::size_t>(i)]);
      wanted.push_back(in[static_cast<std::size_t>(i)]);
    }
    const Tensor y = row().call(in);
    Tensors results{y};
    if (wanted.empty() || !is_tracked(y)) return results;
    Generator generator(5);
    for (const Tensor& dx : tape.gradient(y, randn(y.shape(), generator, {.dtype = y.dtype()}), wanted))
      results.push_back(dx);
    return results;
  }
};

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
      expect_close(y, expected, row().tolerance, epsilon_of(dtype));
      worst[dtype == f64] = std::max(worst[dtype == f64], worst_error(y, expected, epsilon_of(dtype)));
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

TEST_P(Op, FusedAndRecordedGradientsAgree) {
  // Under an outer tape a callback computes with recorded ops, else with its fused kernel.
  if (row().order < 2) return;
  const Tensors in = inputs(f64, Size::odd);
  const Tensors fused = result_and_gradients(in);
  Tape outer;
  const Tensors recorded = result_and_gradients(in);
  for (std::size_t i = 0; i < fused.size(); ++i) expect_close(recorded[i], ref_of(fused[i]), 1000, epsilon_of(f64));
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
  // What products that overflow, or meet an infinity, come to depends on their order: not the same in these.
  const std::set<std::string> orderly = {"layer_norm", "rms_norm", "batch_norm", "group_norm",
                                         "scaled_dot_product_attention"};
  const bool finite = orderly.count(row().name.substr(0, row().name.find('/'))) == 1;
  for (const DType dtype : {f32, f64}) {
    const bool wide = dtype == f64;
    constexpr double kInfinity = std::numeric_limits<double>::infinity(),
                     kNaN = std::numeric_limits<double>::quiet_NaN();
    const double denormal = wide ? 0x1p-1060 : 0x1p-140, largest = wide ? 0x1.fp1023 : 0x1.fp127;
    for (const int k : row().differentiable)
      for (const double extreme : {0.0, -0.0, denormal, kInfinity, -kInfinity, kNaN, 1e4, -1e4, largest}) {
        if (finite && !(extreme <= denormal && extreme >= 0)) continue;
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
        for (std::size_t i = 0; i < fused.size(); ++i)
          expect_close(recorded[i], ref_of(fused[i]), 1000, epsilon_of(dtype));
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

// The same elements, reached by other strides.
Tensor with_gaps(const Tensor& x) {
  if (x.rank() == 0) return x;
  const Tensor wide = stack({x, zeros_like(x)}, -1);  // every second element
  return select(wide, -1, 0);
}
Tensor column_major(const Tensor& x) {
  Shape reversed;
  for (int i = x.rank() - 1; i >= 0; --i) reversed.push_back(i);
  return permute(contiguous(permute(x, reversed)), reversed);
}

// The first row in the place of all, at one place in memory; indices stay, as one's bounds may be its row's.
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
      for (std::size_t i = 0; i < results.size(); ++i)
        expect_close(results[i], ref_of(expected[i]), 1000, epsilon_of(f64));
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
      for (std::size_t i = 0; i < results.size(); ++i) expect_same_bits(results[i], expected[i]);
    }
  }
  set_num_threads(before);
}

TEST_P(Op, ARowAloneGivesTheSameBitsAsInABatch) {
  if (!row().rows_alone) return;
  for (const Size size : {Size::odd, Size::large}) {
    if (skips(size)) continue;
    const Tensors in = inputs(f32, size);
    const Tensor batch = row().call(in);
    for (const std::int64_t r : {std::int64_t{0}, std::int64_t{1}, in[0].shape()[0] / 2, in[0].shape()[0] - 1}) {
      Tensors alone = in;
      alone[0] = narrow(in[0], 0, r, 1);
      if (in.size() > 1 && in[1].dtype() == i64) alone[1] = narrow(in[1], 0, r, 1);
      expect_same_bits(row().call(alone), narrow(batch, 0, r, 1));
    }
  }
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

INSTANTIATE_TEST_SUITE_P(Table, Op, testing::ValuesIn(op_cases()), [](const auto& info) {
  std::string name = info.param.name;
  for (char& c : name)
    if (c == '/') c = '_';
  return name;
});

TEST(OpTable, NamesAreDifferent) {
  std::set<std::string> names;
  for (const OpCase& row : op_cases()) EXPECT_TRUE(names.insert(row.name).second) << row.name << " stands twice";
}

// The names of the functions that a header declares as `REEL_API <tensor type> name(`.
std::vector<std::string> declared_ops(std::string_view header) {
  std::vector<std::string> names;
  for (const std::string_view type : {"Tensor ", "Tensors ", "Ragged "}) {
    const std::string declaration = "REEL_API " + std::string(type);
    for (std::size_t at = header.find(declaration); at != header.npos; at = header.find(declaration, at)) {
      at += declaration.size();
      const std::size_t end = header.find_first_of("( ;=", at);
      if (end != header.npos && header[end] == '(') names.emplace_back(header.substr(at, end - at));
    }
  }
  return names;
}

TEST(OpTable, EveryPublicOpHasARow) {
  // Functions that make tensors from nothing have tests of their own.
  const std::set<std::string> creation = {"zeros",  "ones",          "full",     "zeros_like", "ones_like",
                                          "arange", "rand",          "randn",    "randint",    "permutation",
                                          "tensor", "from_elements", "bernoulli"};
  std::set<std::string> rows;
  for (const OpCase& row : op_cases()) rows.insert(row.name.substr(0, row.name.find('/')));
  int found = 0;
  for (const auto& file : std::filesystem::directory_iterator(REEL_SOURCE_DIR "/ops")) {
    if (file.path().extension() != ".h") continue;
    std::ifstream in(file.path());
    std::string text((std::istreambuf_iterator<char>(in)), {});
    // detail:: is not public.
    const std::size_t inner = text.find("namespace detail");
    if (inner != std::string::npos) text.resize(inner);
    for (const std::string& name : declared_ops(text)) {
      ++found;
      EXPECT_TRUE(rows.count(name) == 1 || creation.count(name) == 1)
          << name << " in " << file.path().filename() << " has no row in the op-case table";
    }
  }
  EXPECT_GT(found, 50);
}

}  // namespace
}  // namespace reel::test
