// The checks for users, with tensors on a GPU.

#include <gtest/gtest.h>

#include <sstream>

#include "reel/core/trace.h"
#include "reel/ops/arithmetic.h"
#include "reel/ops/compare_backends.h"
#include "reel/ops/convert.h"
#include "reel/ops/create.h"
#include "reel/ops/gradcheck.h"
#include "reel/ops/ragged.h"
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

}  // namespace
}  // namespace reel
