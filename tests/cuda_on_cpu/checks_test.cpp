// The checks for users, with tensors on a GPU.

#include <gtest/gtest.h>

#include <cmath>
#include <numbers>
#include <sstream>

#include "reel/core/error.h"
#include "reel/core/tape.h"
#include "reel/core/trace.h"
#include "reel/ops/arithmetic.h"
#include "reel/ops/compare_backends.h"
#include "reel/ops/convert.h"
#include "reel/ops/create.h"
#include "reel/ops/distributions.h"
#include "reel/ops/gradcheck.h"
#include "reel/ops/ragged.h"
#include "reel/ops/reduce.h"
#include "reel/ops/softmax.h"
#include "reel/ops/unary.h"
#include "reel/tests/expect.h"

namespace reel {
namespace {

constexpr TensorOptions kOnGpu{.dtype = f64, .device = Device::cuda()};

TEST(ChecksOnCuda, GradcheckTakesTensorsThatAreThere) {
  const Tensor x = to(tensor({0.3, -0.4, 1.5, 0.1}, {2, 2}, {.dtype = f64}), Device::cuda());
  const GradcheckReport report = gradcheck([](const Tensor& t) { return tanh(t * t); }, {x});
  EXPECT_TRUE(report) << report;
  EXPECT_EQ(report.checks, 8);
  EXPECT_TRUE(gradcheck([](const Tensor& t) { return exp(t); }, {full({100}, 0.5, kOnGpu)}, {.order = 1}));
}

TEST(ChecksOnCuda, CompareBackendsPassesWhatIsEqual) {
  const CompareReport report =
      compare_backends([](const Ragged& r, const Tensor& t) { return std::tuple(softmax(r * 2.0), exp(t)); },
                       std::tuple(Ragged::from_lengths(randn({5, 1}), {2, 0, 3}), randn({40})));
  EXPECT_TRUE(report) << report;
  EXPECT_TRUE(report.ran);
  EXPECT_EQ(report.tensors, 4);
}

TEST(ChecksOnCuda, CompareBackendsNamesWhatDiffers) {
  const auto f = [](const Tensor& t) { return t.device().is_cpu() ? exp(t) : exp(t) * 1.01; };
  const CompareReport report = compare_backends(f, {zeros({3})});
  EXPECT_FALSE(report);
  std::ostringstream text;
  text << report;
  EXPECT_EQ(missing_words(text.str(), {"failed: 2 tensors", "result 0 at [", "cpu 1, cuda:0 1.0"}), "") << report;
}

TEST(ChecksOnCuda, CompareBackendsNamesAResultThatCameBack) {
  const CompareReport report =
      compare_backends([](const Tensor& t) { return to(exp(t), Device::cpu()); }, {zeros({3})});
  EXPECT_FALSE(report);
  EXPECT_NE(report.worst.find("must be on cuda:0, got cpu"), std::string::npos) << report;
}

TEST(ArithmeticOnCuda, ANumberInATensorOnTheCpuGoesWhereTheOtherOperandIs) {
  const Tensor x = full({3}, 2, kOnGpu), number = full({}, 5, {.dtype = f64});
  const auto on_cpu = [](const Tensor& y) { return to(y, Device::cpu()).to_vector<double>(); };
  EXPECT_EQ(on_cpu(x - number), std::vector<double>(3, -3));
  EXPECT_EQ(on_cpu(number - x), std::vector<double>(3, 3));
  EXPECT_EQ(on_cpu(number > x), std::vector<double>(3, 1));
  EXPECT_NEAR(on_cpu(distributions::Normal(0, 1).log_prob(x))[0], -2 - 0.5 * std::log(2 * std::numbers::pi), 1e-6);
  EXPECT_THROW_WITH(x + ones({3}, {.dtype = f64}), DeviceError, "one device", "cuda:0 and cpu");

  Tape tape;
  tape.watch(number);
  const Tensor dx = tape.gradient(sum(x * number), {number})[0];
  EXPECT_TRUE(dx.device().is_cpu());
  EXPECT_EQ(dx.item(), 6);
}

}  // namespace
}  // namespace reel
