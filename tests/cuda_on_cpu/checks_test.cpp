// The checks for users, with tensors on a GPU.

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <list>
#include <memory>
#include <numbers>
#include <optional>
#include <sstream>

#include "reel/core/device.h"
#include "reel/core/error.h"
#include "reel/core/parameter.h"
#include "reel/core/tape.h"
#include "reel/core/trace.h"
#include "reel/ops/arithmetic.h"
#include "reel/ops/compare_backends.h"
#include "reel/ops/convert.h"
#include "reel/ops/create.h"
#include "reel/ops/distributions.h"
#include "reel/ops/elementwise.h"
#include "reel/ops/gradcheck.h"
#include "reel/ops/ragged.h"
#include "reel/ops/reduce.h"
#include "reel/ops/softmax.h"
#include "reel/ops/unary.h"
#include "reel/tests/cuda_on_cpu/schedule.h"
#include "reel/tests/error_of.h"
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

// --- check_finite: nothing waits for the GPU but who does anyway -----------------------------------------------

TEST(CheckFiniteOnCuda, AStepWithoutOneWaitsOnce) {
  const Tensor x = full({40}, 0.5, kOnGpu);
  Tape strict{{.check_finite = true}};
  strict.watch(x);
  const std::int64_t before = cuda_on_cpu::waits();
  const Tensor y = sum(tanh(x * x) + exp(x));
  EXPECT_EQ(cuda_on_cpu::waits(), before);
  const Tensor dx = strict.gradient(y, {x})[0];
  EXPECT_EQ(cuda_on_cpu::waits(), before + cuda_on_cpu::kCountsWaits);
  EXPECT_NEAR(dx.to_vector<double>()[0], std::exp(0.5) + 1 - std::pow(std::tanh(0.25), 2), 1e-12);
}

TEST(CheckFiniteOnCuda, TheSweepNamesTheFirstOpOfTheForward) {
  const Tensor x = to(tensor({1, 0, 2}, {.dtype = f64}), Device::cuda()), scale = full({3}, 1, kOnGpu);
  Tape strict{{.check_finite = true}};
  strict.watch(x);
  const std::string line = "checks_test.cpp:" + std::to_string(__LINE__ + 1) + ")";
  const Tensor y = sum(exp(log(x * scale)) / x);
  EXPECT_THROW_WITH(strict.gradient(y, {x}), Error, "log: the result must be finite", "got -inf at index [1] of [3]",
                    "from input 0 f64 [3] in [0, 2]", line.c_str());
  const Tensor z = sum(x * 2);  // what was told is told no more
  EXPECT_EQ(strict.gradient(z, {x})[0].to_vector<double>(), (std::vector<double>{2, 2, 2}));
}

TEST(CheckFiniteOnCuda, TheSweepNamesTheFirstOpOfTheBackward) {
  for (const DType dtype : {f32, f64}) {
    const Tensor x = to(tensor({4, 0, 1}, {.dtype = dtype}), Device::cuda());
    Tape strict{{.check_finite = true}};
    strict.watch(x);
    const Tensor y = sum(sqrt(x * 1));
    EXPECT_THROW_WITH(strict.gradient(y, {x}), Error, "backward of sqrt (recorded at",
                      "checks_test.cpp:", "the gradient of input 0 must be finite", "got inf at index [1] of [3]",
                      "saved ");
  }
  Parameter w(full({3}, 0, kOnGpu));
  Tape strict{{.check_finite = true}};
  EXPECT_THROW_WITH(strict.backward(sum(sqrt(w))), Error, "backward of sqrt");
  EXPECT_FALSE(w.has_gradient());
}

TEST(CheckFiniteOnCuda, AnInfinityThatWasGivenMayPassAndWhatFollowsIsFound) {
  const Tensor x = to(tensor({1, 2, 3, 4}, {2, 2}, {.dtype = f64}), Device::cuda());
  Tape strict{{.check_finite = true}};
  strict.watch(x);
  const Tensor p = softmax(where(x > 3, -INFINITY, x) / 2, -1);
  EXPECT_EQ(strict.gradient(sum(p * p), {x}).size(), 1u);
  const Tensor q = sum(log(where(x > 3, -INFINITY, x)));
  EXPECT_THROW_WITH(strict.gradient(q, {x}), Error, "log: the result must be finite", "got nan");
}

// log(0), and the line that says so, on a strict tape that f is given too.
template <class F>
std::string log_of_zero(std::string& line, F f) {
  const Tensor x = full({3}, 0, kOnGpu);
  return error_of([&] {
    Tape strict{{.check_finite = true}};
    strict.watch(x);
    line = "checks_test.cpp:" + std::to_string(__LINE__ + 1) + ")";
    const Tensor y = log(x);
    f(y);
  });
}

TEST(CheckFiniteOnCuda, WithoutASweepItIsToldWhereTheProgramWaits) {
  std::string line;
  int reached = 0;
  const auto expect_told = [&](const std::string& text) {
    EXPECT_EQ(missing_words(text, {"log: the result must be finite", "got -inf at index [0] of [3]", line.c_str()}), "")
        << text;
  };
  expect_told(log_of_zero(line, [&](const Tensor& y) {
    (y + 1).to_vector<double>();
    ++reached;
  }));
  expect_told(log_of_zero(line, [&](const Tensor& y) {
    sum(y).item();
    ++reached;
  }));
  expect_told(log_of_zero(line, [&](const Tensor&) {
    synchronize(Device::cuda());
    ++reached;
  }));
  expect_told(log_of_zero(line, [&](const Tensor& y) {
    to(y, Device::cpu());
    ++reached;
  }));
  EXPECT_EQ(reached, 0);
}

// What a tape leaves when it ends unread is told by what comes next.
void expect_told_late(const char* file_line, const std::string& text) {
  EXPECT_EQ(missing_words(text, {"log: the result must be finite", "got -inf at index [0] of [3]", file_line}), "")
      << text;
}

Tensor log_in_a_function(const Tensor& x) noexcept {
  Tape strict{{.check_finite = true}};
  strict.watch(x);
  return log(x);
}

TEST(CheckFiniteOnCuda, ATapeThatEndsUnreadThrowsFromNoDestructor) {
  const Tensor x = full({3}, 0, kOnGpu);
  struct Holder {
    Tape tape{{.check_finite = true}};
  };
  const auto fault = [&](Tape& tape) {
    tape.watch(x);
    log(x);
  };
  const auto in_optional = [&] {
    std::optional<Tape> tape(std::in_place, TapeOptions{.check_finite = true});
    fault(*tape);
  };
  const auto on_the_heap = [&] {
    const auto holder = std::make_unique<Holder>();
    fault(holder->tape);
  };
  const auto in_a_list = [&] {
    std::list<Tape> tapes;
    fault(tapes.emplace_back(TapeOptions{.check_finite = true}));
  };
  const auto in_a_return = [&] { log_in_a_function(x); };
  int ended = 0;
  for (const std::function<void()>& f :
       std::initializer_list<std::function<void()>>{in_optional, on_the_heap, in_a_list, in_a_return}) {
    f();
    ++ended;
    expect_told_late("checks_test.cpp:", error_of([&] { synchronize(Device::cuda()); }));
    synchronize(Device::cuda());  // once
  }
  EXPECT_EQ(ended, 4);
}

TEST(CheckFiniteOnCuda, WhatATapeLeftIsToldWhereTheThreadWaitsOrByItsNextTape) {
  const Tensor x = full({3}, 0, kOnGpu), other = full({2}, 1, kOnGpu);
  expect_told_late("checks_test.cpp:", error_of([&] { log_in_a_function(x).to_vector<double>(); }));
  log_in_a_function(x);
  expect_told_late("checks_test.cpp:", error_of([&] { other.to_vector<double>(); }));
  log_in_a_function(x);
  expect_told_late("checks_test.cpp:", error_of([&] { Tape next; }));
  Tape next;  // which is told once
  next.watch(other);
  EXPECT_EQ(next.gradient(sum(other * 3), {other})[0].to_vector<double>()[0], 3);
}

TEST(CheckFiniteOnCuda, OfSeveralTapesThatEndUnreadTheFirstIsTold) {
  const Tensor x = full({3}, 0, kOnGpu);
  Tape outer;
  outer.watch(x);
  const Tensor z = record("strict_inside", {x}, untaped([&] { return x + 1; }), [x](const Tensor& dy) {
    const Tensor at = x * 1;
    for (const bool first : {true, false}) {
      Tape strict{{.check_finite = true}};
      strict.watch(at);
      first ? log(at) : rsqrt(at);
    }
    return dy;
  });
  outer.gradient(sum(z), {x});  // a sweep is not stopped by what ended inside
  expect_told_late("checks_test.cpp:", error_of([&] { synchronize(Device::cuda()); }));
  synchronize(Device::cuda());
}

TEST(CheckFiniteOnCuda, WithoutASweepAStepWaitsOnceMore) {
  const Tensor x = full({40}, 0.5, kOnGpu);
  const std::int64_t before = cuda_on_cpu::waits();
  {
    Tape strict{{.check_finite = true}};
    strict.watch(x);
    for (int i = 0; i < 10; ++i) exp(x * 2);
  }
  EXPECT_EQ(cuda_on_cpu::waits(), before + cuda_on_cpu::kCountsWaits);
}

TEST(CheckFiniteOnCuda, NothingIsToldTwiceOrStaysForTheNextTape) {
  const Tensor x = full({3}, 0, kOnGpu);
  {
    Tape strict{{.check_finite = true}};
    strict.watch(x);
    const Tensor y = log(x);
    EXPECT_THROW_WITH(y.to_vector<double>(), Error, "log: the result must be finite");
    EXPECT_EQ(y.to_vector<double>()[0], -INFINITY);
  }
  // While another exception passes the tape ends in silence.
  EXPECT_THROW_WITH(
      [&] {
        Tape strict{{.check_finite = true}};
        strict.watch(x);
        log(x);
        throw Error("another");
      }(),
      Error, "another");
  Tape strict{{.check_finite = true}};
  strict.watch(x);
  EXPECT_EQ(strict.gradient(sum(x * 3), {x})[0].to_vector<double>()[0], 3);
}

TEST(CheckFiniteOnCuda, AnInnerTapeLeavesItToTheOneOutside) {
  const Tensor x = full({3}, 0, kOnGpu);
  int reached = 0;
  const std::string text = error_of([&] {
    Tape strict{{.check_finite = true}};
    strict.watch(x);
    {
      Tape inner;
      log(x);
    }
    ++reached;
    synchronize(Device::cuda());
    ++reached;
  });
  EXPECT_EQ(reached, 1);
  EXPECT_EQ(text.rfind("log: the result must be finite", 0), 0u) << text;
}

TEST(CheckFiniteOnCuda, ACallbackThatWaitsIsNotBlamedForTheForward) {
  const Tensor x = full({3}, 0, kOnGpu);
  Tape strict{{.check_finite = true}};
  strict.watch(x);
  const Tensor y = record("looks", {x}, untaped([&] { return x + 1; }), [](const Tensor& dy) {
    dy.to_vector<double>();
    return dy;
  });
  const std::string text = error_of([&] { strict.gradient(sum(log(y - 1)), {x}); });
  EXPECT_EQ(text.rfind("log: the result must be finite", 0), 0u) << text;
}

TEST(CheckFiniteOnCuda, AnInfinityGivenAsANumberMayPass) {
  const Tensor x = full({3}, 1, kOnGpu);
  Tape strict{{.check_finite = true}};
  strict.watch(x);
  EXPECT_EQ((x + (-INFINITY)).to_vector<double>()[0], -INFINITY);
  EXPECT_EQ(strict.gradient(sum(x * INFINITY), {x}, {.keep = true})[0].to_vector<double>()[0], INFINITY);
  const Ragged r = Ragged::from_lengths(x, {0, 3});
  EXPECT_EQ(strict.gradient(sum(max(r)), {x}, {.keep = true})[0].to_vector<double>()[0], 1);
  EXPECT_THROW_WITH((x / 0).to_vector<double>(), Error, "div: the result must be finite", "the number 0");
}

TEST(ArithmeticOnCuda, ANumberInATensorOnTheCpuGoesWhereTheOtherOperandIs) {
  const Tensor x = full({3}, 2, kOnGpu), number = full({}, 5, {.dtype = f64});
  const auto on_cpu = [](const Tensor& y) { return to(y, Device::cpu()).to_vector<double>(); };
  EXPECT_EQ(on_cpu(x - number), std::vector<double>(3, -3));
  EXPECT_EQ(on_cpu(number - x), std::vector<double>(3, 3));
  EXPECT_EQ(on_cpu(number > x), std::vector<double>(3, 1));
  EXPECT_NEAR(on_cpu(distributions::Normal(0, 1).log_prob(x))[0], -2 - 0.5 * std::log(2 * std::numbers::pi), 1e-6);
  EXPECT_NEAR(on_cpu(distributions::Gamma(2, 3).log_prob(x))[1], std::log(2.0 * 9) - 6, 1e-6);
  EXPECT_NEAR(on_cpu(distributions::Beta(2, 1).log_prob(x / 4))[2], 0, 1e-6);
  EXPECT_NEAR(on_cpu(distributions::Poisson(x).log_prob(full({}, 1)))[0], std::log(2) - 2, 1e-6);
  EXPECT_THROW_WITH(x + ones({3}, {.dtype = f64}), DeviceError, "one device", "cuda:0 and cpu");

  Tape tape;
  tape.watch(number);
  const Tensor dx = tape.gradient(sum(x * number), {number})[0];
  EXPECT_TRUE(dx.device().is_cpu());
  EXPECT_EQ(dx.item(), 6);
}

}  // namespace
}  // namespace reel
