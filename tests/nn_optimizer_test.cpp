#include "reel/nn/optimizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "reel/core/parallel.h"
#include "reel/nn/linear.h"
#include "reel/nn/sequential.h"
#include "reel/reel.h"
#include "reel/tests/nn_parameters.h"

namespace reel::nn {
namespace {

using testing::HasSubstr;

constexpr double kInf = std::numeric_limits<double>::infinity();

void expect_near(const std::vector<double>& got, const std::vector<double>& expected, const char* what) {
  ASSERT_EQ(got.size(), expected.size());
  for (std::size_t i = 0; i < got.size(); ++i)
    EXPECT_NEAR(got[i], expected[i], 1e-12 * std::max(1.0, std::fabs(expected[i]))) << what << " element " << i;
}

// --- the formulas, as PyTorch's documentation has them ----------------------------------------------------------------

struct ReferenceSgd {
  double lr, momentum = 0, dampening = 0;
  bool nesterov = false;
  double decay = 0;
  std::vector<double> b = {};

  void step(std::vector<double>& theta, const std::vector<double>& gradient) {
    const bool first = b.empty();
    if (first) b.assign(theta.size(), 0);
    for (std::size_t i = 0; i < theta.size(); ++i) {
      double g = gradient[i];
      if (decay != 0) g = g + decay * theta[i];
      if (momentum != 0) {
        b[i] = first ? g : momentum * b[i] + (1 - dampening) * g;
        g = nesterov ? g + momentum * b[i] : b[i];
      }
      theta[i] = theta[i] - lr * g;
    }
  }
};

struct ReferenceAdam {
  double lr, beta1 = 0.9, beta2 = 0.999, eps = 1e-8, decay = 0;
  bool decoupled = false;
  std::vector<double> m = {}, v = {};
  int t = 0;

  void step(std::vector<double>& theta, const std::vector<double>& gradient) {
    if (t++ == 0) m = v = std::vector<double>(theta.size(), 0);
    for (std::size_t i = 0; i < theta.size(); ++i) {
      double g = gradient[i];
      if (decoupled) theta[i] -= lr * decay * theta[i];
      else g += decay * theta[i];
      m[i] = beta1 * m[i] + (1 - beta1) * g;
      v[i] = beta2 * v[i] + (1 - beta2) * g * g;
      theta[i] -= lr * (m[i] / (1 - std::pow(beta1, t))) / (std::sqrt(v[i] / (1 - std::pow(beta2, t))) + eps);
    }
  }
};

template <class Reference>
void expect_follows(Optimizer& optimizer, const Parameter& p, Reference reference, const char* what) {
  std::vector<double> expected = values_of(p);
  for (int t = 0; t < 7; ++t) {
    give_gradient(p, 100 + t);
    reference.step(expected, numbers(p.size(), 100 + t));
    optimizer.step();
    expect_near(values_of(p), expected, what);
    EXPECT_FALSE(p.has_gradient());
  }
}

TEST(Sgd, FollowsPyTorchsFormula) {
  const SgdOptions variants[] = {
      {.lr = 0.1},
      {.lr = 0.1, .weight_decay = 0.3},
      {.lr = 0.1, .momentum = 0.9},
      {.lr = 0.1, .momentum = 0.9, .dampening = 0.4, .weight_decay = 0.3},
      {.lr = 0.1, .momentum = 0.9, .nesterov = true},
      {.lr = 0.1, .momentum = 0.9, .nesterov = true, .weight_decay = 0.3},
  };
  for (const SgdOptions& o : variants) {
    const Parameter p = parameter_of(numbers(33, 1));
    SGD sgd({p}, o);
    expect_follows(sgd, p, ReferenceSgd{0.1, o.momentum, o.dampening, o.nesterov, o.weight_decay}, "SGD");
  }
}

TEST(Adam, FollowsPyTorchsFormula) {
  const AdamOptions variants[] = {
      {.lr = 0.1},
      {.lr = 0.1, .weight_decay = 0.3},
      {.lr = 0.1, .beta1 = 0, .beta2 = 0.5, .eps = 0.1},
      {.lr = 0.1, .eps = 0},
  };
  for (const AdamOptions& o : variants) {
    const Parameter p = parameter_of(numbers(33, 1));
    Adam adam({p}, o);
    expect_follows(adam, p, ReferenceAdam{0.1, o.beta1, o.beta2, o.eps, o.weight_decay, false}, "Adam");
  }
}

TEST(AdamW, DecaysApartFromTheGradient) {
  const Parameter p = parameter_of(numbers(33, 1)), q = parameter_of(numbers(33, 1));
  AdamW standard({p}, {.lr = 0.1});
  expect_follows(standard, p, ReferenceAdam{.lr = 0.1, .decay = 1e-2, .decoupled = true}, "AdamW");
  AdamW strong({q}, {.lr = 0.1, .weight_decay = 0.5});
  expect_follows(strong, q, ReferenceAdam{.lr = 0.1, .decay = 0.5, .decoupled = true}, "AdamW");
}

TEST(Optimizer, ALearningRateMayBeASchedule) {
  const Parameter p = parameter_of({10});
  SGD sgd({p}, {.lr = [](std::int64_t step) { return 1.0 / double(1 << step); }});
  for (const double expected : {9.0, 8.5, 8.25}) {
    EXPECT_EQ(sgd.rate(), values_of(p)[0] - expected);
    Parameter(p).set_gradient(ones({1}, {.dtype = f64}));
    sgd.step();
    EXPECT_EQ(values_of(p)[0], expected);
  }
  sgd.set_rate(2);
  Parameter(p).set_gradient(ones({1}, {.dtype = f64}));
  sgd.step();
  EXPECT_EQ(values_of(p)[0], 6.25);
  EXPECT_EQ(sgd.steps(), 4);
}

TEST(Optimizer, SinglePrecisionIsCloseToDouble) {
  Generator generator(3);
  const Tensor start = randn({1025}, generator);
  const Parameter p(start);
  Adam adam({p}, {.lr = 0.01});
  ReferenceAdam reference{.lr = 0.01};
  std::vector<double> expected = start.to_vector<double>();
  for (int t = 0; t < 10; ++t) {
    const Tensor g = randn({1025}, generator);
    Parameter(p).set_gradient(g);
    adam.step();
    reference.step(expected, g.to_vector<double>());
  }
  const std::vector<double> got = values_of(p);
  for (std::size_t i = 0; i < got.size(); ++i) EXPECT_NEAR(got[i], expected[i], 2e-6);
}

// --- several parameters -----------------------------------------------------------------------------------------------

struct Fleet {
  std::vector<Parameter> parameters;
  std::vector<std::vector<double>> expected;
  std::vector<ReferenceAdam> references;

  explicit Fleet(double lr) {
    for (const std::int64_t size : {0, 1, 31, 32, 33, 255, 257, 1025}) {
      parameters.push_back(parameter_of(numbers(size, static_cast<std::uint64_t>(size))));
      expected.push_back(values_of(parameters.back()));
      references.push_back({.lr = lr});
    }
    flatten_parameters(parameters);
  }
  void give(std::size_t i, std::uint64_t seed) {
    give_gradient(parameters[i], seed);
    references[i].step(expected[i], numbers(parameters[i].size(), seed));
  }
  void check() const {
    for (std::size_t i = 0; i < parameters.size(); ++i) expect_near(values_of(parameters[i]), expected[i], "fleet");
  }
};

TEST(Optimizer, ParametersThatNoSweepReachedAreLeftAlone) {
  Fleet fleet(0.1);
  Adam adam(fleet.parameters, {.lr = 0.1});
  for (std::size_t t = 0; t < 12; ++t) {
    for (std::size_t i = 0; i < fleet.parameters.size(); ++i)
      if ((t + i) % 3 != 0 && t != 5) fleet.give(i, t * 10 + i);
    adam.step();
    fleet.check();
  }
  EXPECT_EQ(adam.steps(), 12);
}

TEST(Optimizer, PaddingBetweenParametersStaysZero) {
  Fleet fleet(0.1);
  Adam adam(fleet.parameters, {.lr = 0.1, .weight_decay = 0.1});
  for (int t = 0; t < 3; ++t) {
    for (std::size_t i = 0; i < fleet.parameters.size(); ++i) give_gradient(fleet.parameters[i], t);
    adam.step();
  }
  const auto& home = *fleet.parameters[1].state()->home;
  std::vector<double> padding = home.values.to_vector<double>();
  for (const Parameter& p : fleet.parameters)
    for (std::int64_t i = 0; i < p.size(); ++i) padding[static_cast<std::size_t>(p.state()->offset + i)] = 0;
  for (const double value : padding) ASSERT_EQ(value, 0);
}

TEST(Optimizer, AnEpsilonOfZeroMakesNoNaN) {
  Fleet fleet(0.1);
  Adam adam(fleet.parameters, {.lr = 0.1, .eps = 0});
  for (std::size_t i = 0; i < fleet.parameters.size(); ++i) give_gradient(fleet.parameters[i], i);
  adam.step();
  for (const double value : fleet.parameters[1].state()->home->values.to_vector<double>())
    ASSERT_FALSE(std::isnan(value));
}

TEST(Optimizer, FrozenParametersAreLeftAlone) {
  Fleet fleet(0.1);
  Adam adam(fleet.parameters, {.lr = 0.1});
  fleet.parameters[3].set_trainable(false);
  give_gradient(fleet.parameters[3], 1);
  for (std::size_t i : {1, 2, 4}) fleet.give(i, i);
  adam.step();
  fleet.check();
  EXPECT_FALSE(fleet.parameters[3].has_gradient());
  fleet.parameters[3].set_trainable(true);
  for (std::size_t i : {1, 2, 3, 4}) fleet.give(i, i + 9);
  adam.step();
  fleet.check();
}

TEST(Optimizer, APartOfAModelsParametersWillDo) {
  Fleet fleet(0.1);
  Adam adam({fleet.parameters[4], fleet.parameters[2]}, {.lr = 0.1});
  for (std::uint64_t t = 0; t < 3; ++t) {
    fleet.give(2, t);
    fleet.give(4, t + 10);
    give_gradient(fleet.parameters[3], t);  // lies between them
    adam.step();
    fleet.check();
  }
  EXPECT_TRUE(fleet.parameters[3].has_gradient());
}

TEST(Optimizer, AParameterGivenTwiceTakesOneStep) {
  const Parameter p = parameter_of({1});
  SGD sgd({p, p}, {.lr = 1});
  EXPECT_EQ(sgd.parameters().size(), 1u);
  Parameter(p).set_gradient(ones({1}, {.dtype = f64}));
  sgd.step();
  EXPECT_EQ(values_of(p)[0], 0);
}

TEST(Optimizer, TwoElementTypesAreTwoBuffers) {
  const Parameter single(ones({3})), twice(ones({3}, {.dtype = f64}));
  Adam adam({single, twice}, {.lr = 0.5});
  Parameter(single).set_gradient(ones({3}));
  Parameter(twice).set_gradient(ones({3}, {.dtype = f64}));
  adam.step();
  EXPECT_NEAR(values_of(single)[2], 0.5, 1e-6);
  EXPECT_NEAR(values_of(twice)[2], 0.5, 1e-7);
}

TEST(Optimizer, GroupsHaveRatesAndDecaysOfTheirOwn) {
  Fleet fleet(0.1);
  fleet.parameters[2].set_group("slow");
  fleet.parameters[3].set_group("slow");
  fleet.parameters[5].set_group("plain");
  fleet.references[2].lr = fleet.references[3].lr = 0.001;
  for (ReferenceAdam& reference : fleet.references) {
    reference.decay = 0.2;
    reference.decoupled = true;
  }
  fleet.references[5].decay = 0;
  AdamW adam(fleet.parameters, {.lr = 0.1, .weight_decay = 0.2});
  adam.group("slow", {.lr = 1e-3});
  adam.group("plain", {.weight_decay = 0});
  for (std::uint64_t t = 0; t < 4; ++t) {
    for (std::size_t i = 0; i < fleet.parameters.size(); ++i) fleet.give(i, t * 10 + i);
    adam.step();
    fleet.check();
  }
  EXPECT_THROW(adam.group("slwo", {.lr = 1}), Error);
  EXPECT_THROW(adam.group("slow", {.weight_decay = -1}), Error);
}

TEST(Optimizer, StepsDoNotDependOnTheNumberOfThreads) {
  const auto train = [](int threads) {
    const int before = num_threads();
    set_num_threads(threads);
    const Parameter p(randn({100000}, *std::make_unique<Generator>(1)));
    Adam adam({p});
    for (std::uint64_t t = 0; t < 3; ++t) {
      Generator generator(t);
      Parameter(p).set_gradient(randn({100000}, generator));
      adam.clip_gradients(1);
      adam.step();
    }
    set_num_threads(before);
    return p.value().to_vector<float>();
  };
  const std::vector<float> expected = train(1);
  for (const int threads : {2, 3, 7}) EXPECT_EQ(train(threads), expected);
}

// --- gradients --------------------------------------------------------------------------------------------------------

TEST(ClipGradients, ScalesDownToTheNorm) {
  Parameter a = parameter_of({0, 0}), b = parameter_of({0});
  Parameter unreached = parameter_of({0});
  SGD sgd({a, unreached, b}, {.lr = 1});
  a.set_gradient(tensor({3, 0}, {.dtype = f64}));
  b.set_gradient(tensor({4}, {.dtype = f64}));
  EXPECT_DOUBLE_EQ(sgd.clip_gradients(10), 5);
  EXPECT_EQ(a.gradient()[0].item(), 3);
  EXPECT_DOUBLE_EQ(sgd.clip_gradients(1), 5);
  EXPECT_DOUBLE_EQ(a.gradient()[0].item(), 3 * (1 / (5 + 1e-6)));
  EXPECT_DOUBLE_EQ(b.gradient().item(), 4 * (1 / (5 + 1e-6)));
  EXPECT_NEAR(sgd.clip_gradients(10), 1, 1e-6);
  EXPECT_FALSE(unreached.has_gradient());
  sgd.zero_gradients();
  EXPECT_EQ(sgd.clip_gradients(1), 0);
}

TEST(ClipGradients, SumsInDouble) {
  Parameter p(zeros({3000000}));
  SGD sgd({p});
  p.set_gradient(full({3000000}, 1e-3f));
  EXPECT_NEAR(sgd.clip_gradients(kInf), std::sqrt(3e6) * 1e-3f, 1e-9);
  p.set_gradient(full({3000000}, 1e30f));  // their squares are no floats
  EXPECT_NEAR(sgd.clip_gradients(kInf) / (std::sqrt(3e6) * double(1e30f)), 1, 1e-12);
}

TEST(ClipGradients, LetsNaNShow) {
  Parameter p = parameter_of({0, 0});
  SGD sgd({p});
  p.set_gradient(tensor({std::nan(""), 5}, {.dtype = f64}));
  EXPECT_TRUE(std::isnan(sgd.clip_gradients(1)));
  EXPECT_EQ(p.gradient()[1].item(), 5);
  p.set_gradient(tensor({kInf, 5}, {.dtype = f64}));
  EXPECT_EQ(sgd.clip_gradients(1), kInf);
  EXPECT_TRUE(std::isnan(p.gradient()[0].item()));
  EXPECT_EQ(p.gradient()[1].item(), 0);
  for (const double bad : {0.0, -1.0, std::nan("")}) EXPECT_THROW(sgd.clip_gradients(bad), Error);
}

// --- writes and moves -------------------------------------------------------------------------------------------------

TEST(Optimizer, AStepIsAWriteThatASweepNotices) {
  Parameter w(ones({2}));
  SGD sgd({w}, {.lr = 1});
  Tape tape;
  const Tensor y = sum(square(w));
  tape.backward(y, {.keep = true});
  sgd.step();
  try {
    tape.backward(y);
    FAIL();
  } catch (const VersionError& error) {
    EXPECT_THAT(error.what(), HasSubstr("SGD::step"));
    EXPECT_THAT(error.what(), HasSubstr("nn_optimizer_test.cpp:"));
  }
}

TEST(Optimizer, MovingBeforeTheFirstStepIsFineAndAfterItAnError) {
  Sequential net(Linear({.in = 2, .out = 2}));
  Adam adam(net.parameters());
  net.add(Linear({.in = 2, .out = 2}));
  net.parameters();  // a new layout
  const auto give = [&] {
    for (Parameter& p : net.parameters()) p.set_gradient(ones_like(p));
  };
  give();
  EXPECT_NO_THROW(adam.step());
  net.add(Linear({.in = 2, .out = 2}));
  give();
  const std::vector<float> before = net.parameters()[0].value().to_vector<float>();
  try {
    adam.step();
    FAIL();
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("Adam::step: the parameters must be where they were"));
    EXPECT_THAT(error.what(), HasSubstr("'0."));
    EXPECT_THAT(error.what(), HasSubstr("nn_optimizer_test.cpp:"));
  }
  EXPECT_EQ(net.parameters()[0].value().to_vector<float>(), before);
}

TEST(Optimizer, BadOptionsAreNamed) {
  const std::vector<Parameter> none;
  EXPECT_THROW(SGD(none, {.momentum = -1}), Error);
  EXPECT_THROW(SGD(none, {.nesterov = true}), Error);
  EXPECT_THROW(SGD(none, {.momentum = 0.9, .dampening = 0.1, .nesterov = true}), Error);
  EXPECT_THROW(SGD(none, {.weight_decay = std::nan("")}), Error);
  EXPECT_THROW(Adam(none, {.beta1 = 1}), Error);
  EXPECT_THROW(Adam(none, {.beta2 = -0.1}), Error);
  EXPECT_THROW(Adam(none, {.eps = -1}), Error);
  EXPECT_THROW(AdamW(none, {.weight_decay = -1}), Error);
  EXPECT_THROW(Adam({Parameter()}), Error);
  Adam idle(none);
  EXPECT_NO_THROW((idle.step(), idle.step()));
}

}  // namespace
}  // namespace reel::nn
