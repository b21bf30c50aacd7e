// Steps of optimisers with max_norm: beside PyTorch's rules in double, and beside clip_grad_norm before a plain step.

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "reel/core/parallel.h"
#include "reel/nn/optimizer.h"
#include "reel/ops/arithmetic.h"
#include "reel/ops/create.h"
#include "reel/tests/expect.h"
#include "reel/tests/nn_parameters.h"

namespace reel::nn {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();

/// Calls check(kind, make): make(parameters, max_norm) gives an optimiser, one after the other of each kind.
template <class Check>
void for_each_optimizer(Check check) {
  const auto one = [&](const char* kind, auto make) {
    SCOPED_TRACE(kind);
    check(make);
  };
  using Parameters = const std::vector<Parameter>&;
  using Norm = std::optional<double>;
  one("SGD", [](Parameters p, Norm n) { return std::make_unique<SGD>(p, SgdOptions{.lr = 0.1, .max_norm = n}); });
  one("SGD with momentum", [](Parameters p, Norm n) {
    const SgdOptions options{.lr = 0.1, .momentum = 0.9, .nesterov = true, .weight_decay = 0.1, .max_norm = n};
    return std::make_unique<SGD>(p, options);
  });
  one("Adam", [](Parameters p, Norm n) {
    return std::make_unique<Adam>(p, AdamOptions{.lr = 0.1, .weight_decay = 0.1, .max_norm = n});
  });
  one("AdamW", [](Parameters p, Norm n) { return std::make_unique<AdamW>(p, AdamWOptions{.lr = 0.1, .max_norm = n}); });
  one("RAdam", [](Parameters p, Norm n) { return std::make_unique<RAdam>(p, RAdamOptions{.lr = 0.1, .max_norm = n}); });
  one("RMSprop", [](Parameters p, Norm n) {
    const RMSpropOptions options{.lr = 0.1, .momentum = 0.9, .centered = true, .weight_decay = 0.1, .max_norm = n};
    return std::make_unique<RMSprop>(p, options);
  });
  one("Adagrad", [](Parameters p, Norm n) {
    return std::make_unique<Adagrad>(p, AdagradOptions{.lr = 0.1, .weight_decay = 0.1, .max_norm = n});
  });
}

/// Parameters of both floating dtypes, in and out of a common buffer, one of which no sweep reaches and one of which is frozen.
struct Fleet {
  std::vector<Parameter> parameters;
  std::size_t unreached = 2, frozen = 3;

  Fleet() {
    for (const std::int64_t size : {33, 1, 31, 257, 0, 1025}) {
      const auto seed = static_cast<std::uint64_t>(size);
      parameters.push_back(parameter_of(numbers(size, seed)));
      Generator generator(seed);
      parameters.push_back(Parameter(randn({size}, generator)));
    }
    parameters[5].set_group("slow");
    parameters[8].set_group("slow");
    parameters[frozen].set_trainable(false);
    flatten_parameters(parameters);
    for (const std::int64_t size : {7, 64}) parameters.push_back(parameter_of(numbers(size, 9)));
  }
  void give(std::uint64_t seed, double scale = 1) {
    for (std::size_t i = 0; i < parameters.size(); ++i) {
      if (i == unreached) continue;
      const Tensor g = from_vector(numbers(parameters[i].size(), seed + i)) * scale;
      parameters[i].set_gradient(cast(g, parameters[i].dtype()));
    }
  }
  std::vector<double> values() const {
    std::vector<double> all;
    for (const Parameter& p : parameters) {
      const std::vector<double> own = values_of(p);
      all.insert(all.end(), own.begin(), own.end());
    }
    return all;
  }
};

// What is scaled in a kernel has the bits of what was scaled before, whatever the factor.
TEST(ClippedStep, IsTheSameAsClippingBeforeAPlainStep) {
  for_each_optimizer([](auto make) {
    Fleet clipped, before;
    const auto one = make(clipped.parameters, 3.0), other = make(before.parameters, {});
    one->group("slow", {.lr = 0.01, .weight_decay = 0.5});
    other->group("slow", {.lr = 0.01, .weight_decay = 0.5});
    for (std::uint64_t t = 0; t < 6; ++t) {
      const double size = t == 3 ? 1e-3 : 1;  // once below max_norm
      clipped.give(100 * t, size);
      before.give(100 * t, size);
      one->step();
      const double norm = clip_grad_norm(before.parameters, 3.0);
      other->step();
      EXPECT_EQ(one->gradient_norm(), norm);
      EXPECT_EQ(norm > 3, t != 3);
      ASSERT_EQ(clipped.values(), before.values());
    }
  });
}

TEST(ClippedStep, BelowTheNormChangesNoBit) {
  for_each_optimizer([](auto make) {
    Fleet clipped, plain;
    const auto one = make(clipped.parameters, kInf), other = make(plain.parameters, {});
    for (std::uint64_t t = 0; t < 3; ++t) {
      clipped.give(t);
      plain.give(t);
      one->step();
      other->step();
      ASSERT_EQ(clipped.values(), plain.values());
    }
  });
}

// The rules of torch.nn.utils.clip_grad_norm_ and torch.optim.SGD and Adam, in plain double loops.
TEST(ClippedStep, FollowsPyTorchsFormulas) {
  const std::vector<double> start = numbers(40, 1);
  const Parameter a = parameter_of(start), b = parameter_of(start);
  SGD sgd({a}, {.lr = 0.1, .momentum = 0.9, .max_norm = 2});
  Adam adam({b}, {.lr = 0.1, .max_norm = 2});
  std::vector<double> w = start, u(40, 0), x = start, m(40, 0), v(40, 0);
  for (int t = 1; t <= 20; ++t) {
    std::vector<double> g = numbers(40, 100 + static_cast<std::uint64_t>(t));
    give_gradient(a, 100 + static_cast<std::uint64_t>(t));
    give_gradient(b, 100 + static_cast<std::uint64_t>(t));
    double norm = 0;
    for (const double element : g) norm += element * element;
    norm = std::sqrt(norm);
    for (double& element : g) element *= std::min(1.0, 2 / (norm + 1e-6));
    for (std::size_t i = 0; i < 40; ++i) {
      u[i] = t == 1 ? g[i] : 0.9 * u[i] + g[i];
      w[i] -= 0.1 * u[i];
      m[i] = 0.9 * m[i] + (1 - 0.9) * g[i];
      v[i] = 0.999 * v[i] + (1 - 0.999) * g[i] * g[i];
      x[i] -= 0.1 * m[i] / (1 - std::pow(0.9, t)) / (std::sqrt(v[i] / (1 - std::pow(0.999, t))) + 1e-8);
    }
    sgd.step();
    adam.step();
    EXPECT_NEAR(sgd.gradient_norm(), norm, 1e-14 * norm);
    for (std::size_t i = 0; i < 40; ++i) {
      EXPECT_NEAR(values_of(a)[i], w[i], 1e-12);
      EXPECT_NEAR(values_of(b)[i], x[i], 1e-12);
    }
  }
}

TEST(ClippedStep, CountsOnlyWhatItChanges) {
  Parameter a = parameter_of({0, 0}), frozen = parameter_of({0}), unreached = parameter_of({0});
  SGD sgd({a, frozen, unreached}, {.lr = 1, .max_norm = 2.5});
  frozen.set_trainable(false);
  a.set_gradient(tensor({3, 4}, {.dtype = f64}));
  frozen.set_gradient(tensor({100}, {.dtype = f64}));
  sgd.step();
  EXPECT_EQ(sgd.gradient_norm(), 5);
  EXPECT_NEAR(values_of(a)[0], -1.5, 1e-6);
  EXPECT_EQ(values_of(frozen)[0], 0);
  sgd.step();  // no gradients
  EXPECT_EQ(sgd.gradient_norm(), 0);
}

TEST(ClippedStep, TakesLargeGradients) {
  Parameter p(zeros({3000}));
  SGD sgd({p}, {.lr = 1, .max_norm = 1});
  p.set_gradient(full({3000}, 1e30f));  // their squares are no floats
  sgd.step();
  EXPECT_NEAR(sgd.gradient_norm() / (std::sqrt(3e3) * double(1e30f)), 1, 1e-14);
  for (const float value : p.value().to_vector<float>()) ASSERT_NEAR(value, -1 / std::sqrt(3e3), 1e-7);
}

TEST(ClippedStep, LetsNaNAndInfinityShow) {
  for (const double bad : {std::nan(""), kInf}) {
    Parameter a = parameter_of({0, 0}), b = parameter_of({0, 0});
    SGD clipped({a}, {.lr = 1, .max_norm = 1}), plain({b}, {.lr = 1});
    for (Parameter* p : {&a, &b}) p->set_gradient(tensor({bad, 5}, {.dtype = f64}));
    clipped.step();
    clip_grad_norm({b}, 1);
    plain.step();
    EXPECT_TRUE(std::isnan(values_of(a)[0]) && std::isnan(values_of(b)[0]));
    EXPECT_EQ(values_of(a)[1], values_of(b)[1]);
    EXPECT_EQ(values_of(a)[1], std::isnan(bad) ? -5 : 0);
    EXPECT_EQ(std::isnan(clipped.gradient_norm()), std::isnan(bad));
  }
}

TEST(ClippedStep, DoesNotDependOnTheNumberOfThreads) {
  const auto train = [](int threads) {
    const int before = num_threads();
    set_num_threads(threads);
    Generator generator(1);
    Parameter p(randn({300000}, generator)), q(randn({70}, generator));
    flatten_parameters({p, q});
    Adam adam({p, q}, {.max_norm = 1});
    std::vector<double> norms;
    for (int t = 0; t < 3; ++t) {
      p.set_gradient(randn({300000}, generator));
      q.set_gradient(randn({70}, generator));
      adam.step();
      norms.push_back(adam.gradient_norm());
    }
    set_num_threads(before);
    const std::vector<double> values = values_of(p);
    norms.insert(norms.end(), values.begin(), values.end());
    return norms;
  };
  const std::vector<double> expected = train(1);
  for (const int threads : {2, 3, 7, 16}) EXPECT_EQ(train(threads), expected);
}

TEST(ClippedStep, GoesOnFromACheckpointOfAnOptimiserWithoutIt) {
  const Parameter p = parameter_of(numbers(40, 1)), q = parameter_of(numbers(40, 1));
  Adam plain({p}, {.lr = 0.1}), clipped({q}, {.lr = 0.1, .max_norm = 1});
  give_gradient(p, 2);
  plain.step();
  clipped.load_state(plain.state());
  Parameter(q).set_value(p);
  give_gradient(p, 3);
  give_gradient(q, 3);
  plain.clip_gradients(1);
  plain.step();
  clipped.step();
  EXPECT_EQ(values_of(q), values_of(p));
}

TEST(ClippedStep, BadNormsAreNamed) {
  const std::vector<Parameter> none;
  for (const double bad : {0.0, -1.0, std::nan("")}) {
    EXPECT_THROW_WITH(SGD(none, {.max_norm = bad}), Error, "SGD: ", "max_norm > 0 is required",
                      "clipped_step_test.cpp");
    EXPECT_THROW_WITH(Adam(none, {.max_norm = bad}), Error, "Adam: ", "max_norm > 0", "clipped_step_test.cpp");
    EXPECT_THROW_WITH(AdamW(none, {.max_norm = bad}), Error, "AdamW: ", "max_norm > 0");
    EXPECT_THROW_WITH(RAdam(none, {.max_norm = bad}), Error, "RAdam: ", "max_norm > 0");
    EXPECT_THROW_WITH(RMSprop(none, {.max_norm = bad}), Error, "RMSprop: ", "max_norm > 0");
    EXPECT_THROW_WITH(Adagrad(none, {.max_norm = bad}), Error, "Adagrad: ", "max_norm > 0");
  }
}

TEST(ClippedStep, TheNormIsThereAfterAStepThatComputedIt) {
  Parameter p = parameter_of({0, 0});
  SGD plain({p}), clipped({p}, {.max_norm = 1});
  EXPECT_THROW_WITH(clipped.gradient_norm(), Error, "SGD::gradient_norm", "max_norm", "clipped_step_test.cpp");
  for (SGD* sgd : {&plain, &clipped}) {
    p.set_gradient(tensor({3, 4}, {.dtype = f64}));
    sgd->step();
  }
  EXPECT_EQ(clipped.gradient_norm(), 5);
  EXPECT_THROW_WITH(plain.gradient_norm(), Error, "SGD::gradient_norm", "max_norm", "clipped_step_test.cpp");
}

}  // namespace
}  // namespace reel::nn
