#include "reel/nn/ema.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <filesystem>

#include "reel/core/tape.h"
#include "reel/nn/checkpoint.h"
#include "reel/nn/linear.h"
#include "reel/nn/sequential.h"
#include "reel/ops/arithmetic.h"
#include "reel/ops/create.h"
#include "reel/tests/expect.h"

namespace reel::nn {
namespace {

std::vector<double> values_of(const Tensor& x) { return x.to_vector<double>(); }

TEST(Ema, FollowsItsFormulaOver50Steps) {
  Generator generator(1);
  Parameter a(randn({33}, generator, {.dtype = f64})), b(randn({257}, generator, {.dtype = f64}));
  Ema ema({a, b, a}, {.decay = 0.9});
  std::vector<double> expected = values_of(b);
  for (int t = 0; t < 50; ++t) {
    if (t > 0) b.set_value(randn({257}, generator, {.dtype = f64}));
    const std::vector<double> now = values_of(b);
    for (std::size_t i = 0; i < now.size(); ++i) expected[i] = t == 0 ? now[i] : 0.9 * expected[i] + 0.1 * now[i];
    ema.update();
    const std::vector<double> got = values_of(ema.average(b));
    for (std::size_t i = 0; i < got.size(); ++i) ASSERT_NEAR(got[i], expected[i], 1e-13);
  }
  EXPECT_EQ(ema.updates(), 50);
  const std::vector<double> first = values_of(ema.average(a)), same = values_of(a);
  for (std::size_t i = 0; i < same.size(); ++i) EXPECT_NEAR(first[i], same[i], 1e-14);
}

TEST(Ema, SwapsForEvaluationAndBack) {
  Parameter p(tensor({2}, {.dtype = f64}));
  Ema ema({p}, {.decay = 0.5});
  EXPECT_THROW_WITH(ema.swap(), Error, "Ema", "an update is required", "ema_test.cpp");
  EXPECT_THROW_WITH(ema.average(p), Error, "Ema", "an update is required");
  ema.update();
  p.set_value(tensor({4}, {.dtype = f64}));
  ema.update();
  ema.swap();
  EXPECT_TRUE(ema.swapped());
  EXPECT_EQ(p.value().item(), 3);
  EXPECT_EQ(ema.average(p).item(), 4);
  EXPECT_THROW_WITH(ema.update(), Error, "Ema", "swap them back", "ema_test.cpp");
  EXPECT_THROW_WITH(ema.state(), Error, "Ema", "swap them back");
  ema.swap();
  EXPECT_EQ(p.value().item(), 4);
  EXPECT_EQ(ema.average(p).item(), 3);
  const Parameter other(ones({1}));
  EXPECT_THROW_WITH(ema.average(other), Error, "one of its parameters");
}

TEST(Ema, ASwapIsAWriteThatASweepNotices) {
  Parameter p(ones({1}));
  Ema ema({p});
  ema.update();
  Tape tape;
  const Tensor y = p * p;
  ema.swap();
  EXPECT_THROW(tape.backward(y), VersionError);
}

TEST(Ema, BadArgumentsAndMovedParametersAreNamed) {
  EXPECT_THROW_WITH(Ema({}, {.decay = 1.5}), Error, "Ema", "decay in [0, 1]", "1.5", "ema_test.cpp");
  EXPECT_THROW_WITH(Ema({Parameter()}), Error, "Ema", "defined");
  Ema idle({});
  EXPECT_NO_THROW((idle.update(), idle.update()));
  Sequential net(Linear({.in = 2, .out = 2}));
  Ema ema(net.parameters());
  net.add(Linear({.in = 2, .out = 2}));
  net.parameters();  // a new layout
  ema.update();
  net.add(Linear({.in = 2, .out = 2}));
  net.parameters();
  EXPECT_THROW_WITH(ema.update(), Error, "Ema", "where they were", "ema_test.cpp");
}

TEST(Ema, AnAlienStateIsRefused) {
  Parameter p(ones({2}), "p");
  Ema ema({p});
  ema.update();
  const std::vector<NamedTensor> state = ema.state();
  EXPECT_EQ(state[1].name, "average.p");
  EXPECT_THROW(ema.load_state({}), Error);
  EXPECT_THROW(ema.load_state({state[0], {"average.q", ones({2})}}), Error);
  EXPECT_THROW(ema.load_state({state[0], {"average.p", ones({3})}}), Error);
  EXPECT_THROW(ema.load_state({{"updates", tensor({-1}, {.dtype = i64})}, {"average.p", zeros({2})}}), Error);
  EXPECT_EQ(ema.updates(), 1);
  EXPECT_EQ(values_of(ema.average(p)), (std::vector<double>{1, 1}));
}

TEST(Ema, ARunThatIsResumedHasTheSameAverages) {
  const std::string path =
      (std::filesystem::temp_directory_path() / ("reel-ema-" + std::to_string(::getpid()) + ".safetensors")).string();
  const auto steps = [](Linear& net, SGD& sgd, Ema& ema, int begin, int end) {
    for (int t = begin; t < end; ++t) {
      for (Parameter p : net.parameters()) {
        Generator generator(static_cast<std::uint64_t>(t));
        p.set_gradient(randn(p.shape(), generator));
      }
      sgd.step();
      ema.update();
    }
  };
  struct Run {
    Linear net{{.in = 3, .out = 2}};
    SGD sgd{net.parameters(), {.lr = 0.1}};
    Ema ema{net.parameters(), {.decay = 0.9}};
    nn::Training training{.module = net, .optimizer = sgd, .ema = &ema};
  };
  manual_seed(1);
  Run whole;
  steps(whole.net, whole.sgd, whole.ema, 0, 4);
  save_training(whole.training, path);
  steps(whole.net, whole.sgd, whole.ema, 4, 9);
  Run resumed;
  load_training(resumed.training, path);
  steps(resumed.net, resumed.sgd, resumed.ema, 4, 9);
  EXPECT_EQ(resumed.ema.updates(), 9);
  for (std::size_t i = 0; i < 2; ++i)
    EXPECT_EQ(values_of(resumed.ema.average(resumed.net.parameters()[i])),
              values_of(whole.ema.average(whole.net.parameters()[i])));
  Run without;
  without.training.ema = nullptr;
  EXPECT_THROW_WITH(load_training(without.training, path), FileError, "unexpected", "@ema.updates");
  std::filesystem::remove(path);
}

}  // namespace
}  // namespace reel::nn
