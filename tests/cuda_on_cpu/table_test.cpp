// Every row of the op-case table with tensors on Device::cuda(), run by the executor or (REEL_ON_GPU) a GPU: results against
// the double reference, gradients against the CPU backend, strided and empty inputs, and the same bits whatever the
// schedule. With REEL_RESULTS=<file> in the environment the results of one size are written there, for scripts/compare-results.

#include <gtest/gtest.h>

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <map>
#include <set>
#include <string>

#include "reel/core/error.h"
#include "reel/core/tape.h"
#include "reel/ops/convert.h"
#include "reel/ops/create.h"
#include "reel/ops/views.h"
#include "reel/tests/ops/op_case.h"

#if defined(REEL_ON_GPU)
// A GPU has its own schedule, another one in each run, and its memory is out of the host's reach.
namespace cuda_on_cpu {
enum class Schedule { in_order, reversed, random };
inline void set_schedule(Schedule) {}
inline void set_guard(bool) {}
}  // namespace cuda_on_cpu
#else
#include "reel/tests/cuda_on_cpu/executor.h"
#endif

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

const char* name_of(Size size) {
  const char* names[] = {"small", "odd", "empty", "one", "large"};
  return names[static_cast<int>(size)];
}

double epsilon_of(DType dtype) {
  return dtype == f32 ? std::numeric_limits<float>::epsilon() : std::numeric_limits<double>::epsilon();
}

std::vector<Ref> refs_of(const Tensors& xs) {
  std::vector<Ref> refs;
  for (const Tensor& x : xs) refs.push_back({x.shape(), x.to_vector<double>()});
  return refs;
}

void expect_close(const Tensor& y, const Ref& expected, double tolerance) {
  ASSERT_EQ(y.shape(), expected.shape);
  const std::vector<double> values = y.to_vector<double>();
  for (std::size_t i = 0; i < values.size(); ++i) {
    const double got = values[i], want = expected.v[i];
    if (got == want || (std::isnan(got) && std::isnan(want))) continue;
    ASSERT_LE(std::abs(got - want), tolerance * epsilon_of(y.dtype()) * (1 + std::abs(want)))
        << "element " << i << ": " << got << ", not " << want;
  }
}

void expect_same_bits(const Tensor& a, const Tensor& b) {
  ASSERT_EQ(a.shape(), b.shape());
  const Tensor x = contiguous(to(a, Device::cpu())), y = contiguous(to(b, Device::cpu()));
  EXPECT_EQ(std::memcmp(x.array().data, y.array().data, static_cast<std::size_t>(x.size()) * size_of(x.dtype())), 0);
}

/// Rows whose calls make tensors on the CPU themselves, or give one.
const std::set<std::string> kMadeOnTheCpu = {"conv2d_relu/into",
                                             "cross_entropy/soft_none",
                                             "cross_entropy/soft_sum",
                                             "cross_entropy/weight",
                                             "cross_entropy/weight_smoothing_ignore",
                                             "cross_entropy/weight_smoothing_mean",
                                             "eye",
                                             "eye/square",
                                             "full_like",
                                             "linspace",
                                             "nll_loss/sum",
                                             "nll_loss/weight",
                                             "position_encoding",
                                             "to",
                                             "where/integers"};

/// Entries that were asked for and are not there yet, and by how many rows: told at the end.
std::map<std::string, int>& missing_entries() {
  static std::map<std::string, int> entries;
  return entries;
}

class Cuda : public testing::TestWithParam<OpCase> {
 protected:
  void SetUp() override {
    if (kMadeOnTheCpu.count(row().name) == 1) GTEST_SKIP() << "makes tensors on the CPU";
    cuda_on_cpu::set_guard(false);
  }
  void TearDown() override { cuda_on_cpu::set_schedule(Schedule::in_order); }

  const OpCase& row() const { return GetParam(); }
  bool skips(Size size) const { return std::find(row().skip.begin(), row().skip.end(), size) != row().skip.end(); }
  Tensors inputs(DType dtype, Size size) const {
    Maker make(dtype, 11);
    return row().inputs(make, size);
  }
  static Tensors on_cuda(const Tensors& xs) {
    Tensors moved;
    for (const Tensor& x : xs) moved.push_back(to(x, Device::cuda()));
    return moved;
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
    const Tensor dy = randn(y.shape(), generator, {.dtype = y.dtype(), .device = y.device()});
    for (const Tensor& dx : tape.gradient(y, dy, wanted)) results.push_back(dx);
    return results;
  }

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

// Host code that touches device memory would end the program.
TEST_P(Cuda, EqualsTheReferenceOnSmallShapes) {
  cuda_on_cpu::set_guard(true);
  run([&] {
    for (const Size size : {Size::small, Size::empty, Size::one}) {
      if (skips(size)) continue;
      const Tensors in = inputs(f64, size);
      expect_close(row().call(on_cuda(in)), row().reference(refs_of(in)), row().tolerance);
    }
  });
}

TEST_P(Cuda, EqualsTheReferenceAndTheCpusGradients) {
  run([&] {
    for (const Size size : {Size::small, Size::odd, Size::empty, Size::one})
      for (const DType dtype : {f32, f64}) {
        if (skips(size)) continue;
        SCOPED_TRACE(std::string(name_of(size)) + " " + reel::name_of(dtype));
        const Tensors in = inputs(dtype, size);
        const Tensors results = result_and_gradients(on_cuda(in));
        EXPECT_EQ(results[0].device(), Device::cuda());
        expect_close(results[0], row().reference(refs_of(in)), row().tolerance);
        if (row().order == 0) continue;
        const Tensors expected = result_and_gradients(in);
        ASSERT_EQ(results.size(), expected.size());
        if (size == Size::odd && dtype == f32) write_results(row().name, results, 100 + 4 * row().tolerance);
        for (std::size_t i = 1; i < results.size(); ++i)
          expect_close(results[i], refs_of({expected[i]})[0], 100 + 4 * row().tolerance);
      }
  });
}

// Many blocks, and more than one turn of their loops.
TEST_P(Cuda, EqualsTheReferenceOnLargeShapes) {
  if (skips(Size::large)) return;
  run([&] {
    const Tensors in = inputs(f32, Size::large);
    expect_close(row().call(on_cuda(in)), row().reference(refs_of(in)), row().tolerance);
  });
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

TEST_P(Cuda, StridedInputsGiveTheSameResult) {
  if (skips(Size::odd)) return;
  run([&] {
    const Tensors in = on_cuda(inputs(f64, Size::odd));
    const Tensors expected = result_and_gradients(in);
    for (const auto strided : {with_gaps, column_major}) {
      Tensors views;
      for (const Tensor& x : in) views.push_back(strided(x));
      const Tensors results = result_and_gradients(views);
      ASSERT_EQ(results.size(), expected.size());
      for (std::size_t i = 0; i < results.size(); ++i) expect_close(results[i], refs_of({expected[i]})[0], 200);
    }
  });
}

TEST_P(Cuda, TheSameBitsUnderEverySchedule) {
  if (skips(Size::odd)) return;
  run([&] {
    const Tensors in = on_cuda(inputs(f32, Size::odd));
    const Tensors expected = result_and_gradients(in);
    for (const Schedule schedule : {Schedule::reversed, Schedule::random}) {
      cuda_on_cpu::set_schedule(schedule);
      const Tensors results = result_and_gradients(in);
      ASSERT_EQ(results.size(), expected.size());
      for (std::size_t i = 0; i < results.size(); ++i) expect_same_bits(results[i], expected[i]);
    }
  });
}

INSTANTIATE_TEST_SUITE_P(Table, Cuda, testing::ValuesIn(op_cases()), [](const auto& info) {
  std::string name = info.param.name;
  for (char& c : name)
    if (c == '/') c = '_';
  return name;
});

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
