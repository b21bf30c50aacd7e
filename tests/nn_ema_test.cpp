#include "reel/nn/ema.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <filesystem>

#include "reel/core/parallel.h"
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

/// Parameters of some flat buffers, of which an optimiser has some and an average others, in f32 and f64.
struct Model {
  std::vector<Parameter> of_step, of_average;

  Model() {
    Generator generator(1);
    for (const DType dtype : {f32, f64}) {
      std::vector<Parameter> all;
      for (const std::int64_t size : {7, 70'000, 0, 33, 1, 64, 5000, 3})
        all.push_back(Parameter(randn({size}, generator, {.dtype = dtype})));
      flatten_parameters(all);
      all[1].set_group("fast");
      all[6].set_trainable(false);
      for (std::size_t i = 0; i < all.size(); ++i) {
        if (i != 0 && i != 4) of_step.push_back(all[i]);
        of_average.push_back(all[i]);
      }
    }
    of_average.push_back(Parameter(ones({9})));  // of a buffer that no step changes
  }
  void make_gradients(std::uint64_t seed) {
    for (std::size_t i = 0; i < of_step.size(); ++i) {
      Generator generator(seed * 100 + i);
      if (i % 6 != 3 || seed % 2 == 0)
        of_step[i].set_gradient(randn(of_step[i].shape(), generator, {.dtype = of_step[i].dtype()}));
    }
  }
};

template <class Optimizer, class Options>
void expect_one_pass_equals_two(Options options) {
  Model two, one;
  Optimizer step(two.of_step, options), step_and_average(one.of_step, options);
  for (Optimizer* optimizer : {&step, &step_and_average}) optimizer->group("fast", {.lr = 0.3});
  Ema ema(two.of_average, {.decay = 0.9}), taken_along(one.of_average, {.decay = 0.9});
  for (std::uint64_t t = 0; t < 4; ++t) {
    two.make_gradients(t);
    one.make_gradients(t);
    step.step();
    ema.update();
    step_and_average.step(taken_along);
    EXPECT_EQ(taken_along.updates(), ema.updates());
    for (std::size_t i = 0; i < two.of_average.size(); ++i) {
      ASSERT_EQ(values_of(two.of_average[i]), values_of(one.of_average[i])) << step.kind() << " " << t << " " << i;
      ASSERT_EQ(values_of(ema.average(two.of_average[i])), values_of(taken_along.average(one.of_average[i])))
          << step.kind() << " " << t << " " << i;
    }
  }
}

TEST(Ema, AStepThatTakesItAlongEqualsAStepAndAnUpdate) {
  const int before = num_threads();
  for (const int threads : {1, 3}) {
    set_num_threads(threads);
    expect_one_pass_equals_two<SGD>(SgdOptions{.lr = 0.1});
    expect_one_pass_equals_two<SGD>(SgdOptions{.lr = 0.1, .momentum = 0.9, .nesterov = true, .max_norm = 1});
    expect_one_pass_equals_two<Adam>(AdamOptions{.lr = 0.1});
    expect_one_pass_equals_two<Adam>(AdamOptions{.lr = 0.1, .eps = 0});
    expect_one_pass_equals_two<AdamW>(AdamWOptions{.lr = 0.1});
    expect_one_pass_equals_two<RMSprop>(RMSpropOptions{.momentum = 0.9, .centered = true});
    expect_one_pass_equals_two<Adagrad>(AdagradOptions{});
  }
  set_num_threads(before);
}

TEST(Ema, ASwapThatOneParametersTapeForbidsExchangesNone) {
  Parameter a(ones({2}), "a"), b(ones({2}), "b");
  Ema ema({a, b}, {.decay = 0.5});
  ema.update();
  for (Parameter* p : {&a, &b}) p->set_value(zeros({2}));
  ema.update();
  b.set_trainable(false);
  {
    Tape tape;
    tape.watch(b.value());
    try {
      ema.swap();
      FAIL();
    } catch (const VersionError& error) {
      EXPECT_NE(std::string(error.what()).find("Ema::swap"), std::string::npos) << error.what();
    }
  }
  EXPECT_FALSE(ema.swapped());
  for (const Parameter* p : {&a, &b}) {
    EXPECT_EQ(values_of(*p), (std::vector<double>{0, 0}));
    EXPECT_EQ(values_of(ema.average(*p)), (std::vector<double>{0.5, 0.5}));
  }
  ema.swap();
  EXPECT_EQ(values_of(b), (std::vector<double>{0.5, 0.5}));
}

// Two optimisers of one flat buffer, of which the second takes the average along: of many small parameters, one by one.
TEST(Ema, OfParametersThatTwoOptimisersShareIsUpdatedAsAWhole) {
  for (const std::size_t count : {3u, 40u}) {
    std::vector<Parameter> parameters[2];
    std::vector<std::unique_ptr<Ema>> averages;
    for (std::vector<Parameter>& all : parameters) {
      Generator generator(1);
      std::vector<Parameter> even, odd;
      for (std::size_t i = 0; i < count; ++i) {
        all.push_back(Parameter(randn({5 + static_cast<std::int64_t>(i)}, generator)));
        (i % 2 == 0 ? even : odd).push_back(all.back());
      }
      flatten_parameters(all);
      const bool along = &all == &parameters[1];
      averages.push_back(std::make_unique<Ema>(all, EmaOptions{.decay = 0.9}));
      SGD sgd(even, {.lr = 0.1});
      RAdam adam(odd, {.lr = 0.1, .max_norm = 0.5});
      for (std::uint64_t t = 0; t < 4; ++t) {
        for (Parameter& p : all) {
          Generator gradients(t);
          p.set_gradient(randn(p.shape(), gradients));
        }
        sgd.step();
        if (along) {
          adam.step(*averages.back());
        } else {
          adam.step();
          averages.back()->update();
        }
      }
    }
    for (std::size_t i = 0; i < count; ++i)
      ASSERT_EQ(values_of(averages[0]->average(parameters[0][i])), values_of(averages[1]->average(parameters[1][i])))
          << i;
  }
}

TEST(Ema, AStepThatCannotTakeItAlongChangesNothing) {
  Parameter p(ones({3}));
  SGD sgd({p}, {.lr = 1});
  Ema ema({p});
  ema.update();
  ema.swap();
  p.set_gradient(ones({3}));
  EXPECT_THROW_WITH(sgd.step(ema), Error, "Ema", "swap them back", "ema_test.cpp");
  EXPECT_EQ(values_of(p), (std::vector<double>{1, 1, 1}));
  EXPECT_TRUE(p.has_gradient());
  EXPECT_EQ(sgd.steps(), 0);
  ema.swap();
  sgd.step(ema);
  EXPECT_EQ(values_of(p), (std::vector<double>{0, 0, 0}));
  EXPECT_NEAR(ema.average(p).to_vector<double>()[0], 0.999, 1e-7);
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
