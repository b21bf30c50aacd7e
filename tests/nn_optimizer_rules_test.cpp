// RAdam, RMSprop, Adagrad and clipping: 50 steps beside PyTorch's rules in double, written from its documentation.

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "reel/core/parallel.h"
#include "reel/nn/optimizer.h"
#include "reel/ops/create.h"
#include "reel/tests/expect.h"

namespace reel::nn {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();

std::vector<double> numbers(std::int64_t n, std::uint64_t seed) {
  Generator generator(seed);
  return randn({n}, generator, {.dtype = f64}).to_vector<double>();
}
Parameter parameter_of(const std::vector<double>& values) { return Parameter(from_vector(values)); }
std::vector<double> values_of(const Parameter& p) { return p.value().to_vector<double>(); }
void give(Parameter p, const std::vector<double>& gradient) { p.set_gradient(from_vector(gradient)); }

struct ReferenceRAdam {
  RAdamOptions o;
  double lr;
  std::vector<double> m = {}, v = {};
  int t = 0;
  void step(std::vector<double>& w, const std::vector<double>& gradient) {
    if (t++ == 0) m = v = std::vector<double>(w.size(), 0);
    const double correction1 = 1 - std::pow(o.beta1, t), correction2 = 1 - std::pow(o.beta2, t);
    const double rho_inf = 2 / (1 - o.beta2) - 1, rho = rho_inf - 2 * t * std::pow(o.beta2, t) / correction2;
    for (std::size_t i = 0; i < w.size(); ++i) {
      double g = gradient[i];
      if (o.decoupled) w[i] *= 1 - lr * o.weight_decay;
      else g += o.weight_decay * w[i];
      m[i] = o.beta1 * m[i] + (1 - o.beta1) * g;
      v[i] = o.beta2 * v[i] + (1 - o.beta2) * g * g;
      double step = lr * m[i] / correction1;
      if (rho > 5)
        step *= std::sqrt((rho - 4) * (rho - 2) * rho_inf / ((rho_inf - 4) * (rho_inf - 2) * rho)) *
                std::sqrt(correction2) / (std::sqrt(v[i]) + o.eps);
      w[i] -= step;
    }
  }
};

struct ReferenceRMSprop {
  RMSpropOptions o;
  double lr;
  std::vector<double> v = {}, a = {}, b = {};
  void step(std::vector<double>& w, const std::vector<double>& gradient) {
    if (v.empty()) v = a = b = std::vector<double>(w.size(), 0);
    for (std::size_t i = 0; i < w.size(); ++i) {
      const double g = gradient[i] + o.weight_decay * w[i];
      v[i] = o.alpha * v[i] + (1 - o.alpha) * g * g;
      double root = std::sqrt(v[i]);
      if (o.centered) {
        a[i] = o.alpha * a[i] + (1 - o.alpha) * g;
        root = std::sqrt(v[i] - a[i] * a[i]);
      }
      b[i] = o.momentum * b[i] + g / (root + o.eps);
      w[i] -= lr * b[i];
    }
  }
};

struct ReferenceAdagrad {
  AdagradOptions o;
  double lr;
  std::vector<double> sum = {};
  int t = 0;
  void step(std::vector<double>& w, const std::vector<double>& gradient) {
    if (t++ == 0) sum.assign(w.size(), o.initial);
    for (std::size_t i = 0; i < w.size(); ++i) {
      const double g = gradient[i] + o.weight_decay * w[i];
      sum[i] += g * g;
      w[i] -= lr / (1 + (t - 1) * o.lr_decay) * g / (std::sqrt(sum[i]) + o.eps);
    }
  }
};

// Three parameters with gaps between them, of which the second misses every third gradient.
template <class Optimiser, class Reference, class Options>
void expect_follows(const Options& options) {
  std::vector<Parameter> parameters;
  std::vector<std::vector<double>> expected;
  std::vector<Reference> references;
  for (const std::int64_t size : {33, 1, 257}) {
    parameters.push_back(parameter_of(numbers(size, static_cast<std::uint64_t>(size))));
    expected.push_back(values_of(parameters.back()));
    references.push_back(Reference{options, 0.02});
  }
  flatten_parameters(parameters);
  Optimiser optimizer(parameters, options);
  for (std::uint64_t t = 0; t < 50; ++t) {
    for (std::size_t i = 0; i < parameters.size(); ++i) {
      if (i == 1 && t % 3 == 1) continue;
      const std::vector<double> g = numbers(parameters[i].size(), 1000 + 10 * t + i);
      give(parameters[i], g);
      references[i].step(expected[i], g);
    }
    optimizer.step();
    for (std::size_t i = 0; i < parameters.size(); ++i) {
      const std::vector<double> got = values_of(parameters[i]);
      for (std::size_t k = 0; k < got.size(); ++k)
        ASSERT_NEAR(got[k], expected[i][k], 1e-11 * (1 + std::abs(expected[i][k])))
            << optimizer.kind() << " step " << t;
    }
  }
}

TEST(RAdam, FollowsPyTorchsRules) {
  for (const RAdamOptions& o : {RAdamOptions{.lr = 0.02},
                                {.lr = 0.02, .weight_decay = 0.3},
                                {.lr = 0.02, .weight_decay = 0.3, .decoupled = true},
                                {.lr = 0.02, .beta1 = 0.5, .beta2 = 0.95, .eps = 0.1},
                                {.lr = 0.02, .beta2 = 0.5}})  // never rectified
    expect_follows<RAdam, ReferenceRAdam>(o);
}

TEST(RMSprop, FollowsPyTorchsRules) {
  for (const RMSpropOptions& o : {RMSpropOptions{.lr = 0.02},
                                  {.lr = 0.02, .alpha = 0.9, .eps = 0.1, .weight_decay = 0.3},
                                  {.lr = 0.02, .momentum = 0.9},
                                  {.lr = 0.02, .alpha = 0.9, .centered = true},
                                  {.lr = 0.02, .alpha = 0.9, .momentum = 0.5, .centered = true, .weight_decay = 0.1}})
    expect_follows<RMSprop, ReferenceRMSprop>(o);
}

TEST(Adagrad, FollowsPyTorchsRules) {
  for (const AdagradOptions& o : {AdagradOptions{.lr = 0.02},
                                  {.lr = 0.02, .weight_decay = 0.3},
                                  {.lr = 0.02, .lr_decay = 0.1, .eps = 0.1},
                                  {.lr = 0.02, .initial = 0.5}})
    expect_follows<Adagrad, ReferenceAdagrad>(o);
}

TEST(OptimizerRules, AStateIsTakenUpExactly) {
  const auto check = [](auto make) {
    const Parameter p = parameter_of(numbers(40, 1)), q = parameter_of(numbers(40, 1)),
                    r = parameter_of(numbers(40, 1));
    auto whole = make(p), first = make(q), second = make(r);
    const auto run = [](auto& optimizer, std::uint64_t begin, std::uint64_t end) {
      for (std::uint64_t t = begin; t < end; ++t) {
        give(optimizer->parameters()[0], numbers(40, 50 + t));
        optimizer->step();
      }
    };
    run(whole, 0, 12);
    run(first, 0, 7);
    std::vector<NamedTensor> state;
    for (const NamedTensor& named : first->state())
      state.push_back({named.name, reel::detail::copied(named.tensor, named.tensor.dtype())});
    Parameter(r).set_value(q);
    second->load_state(state);
    run(second, 7, 12);
    EXPECT_EQ(values_of(r), values_of(p)) << whole->kind();
  };
  check([](const Parameter& p) { return std::make_unique<RAdam>(std::vector{p}, RAdamOptions{.lr = 0.1}); });
  check([](const Parameter& p) {
    return std::make_unique<RMSprop>(std::vector{p}, RMSpropOptions{.momentum = 0.9, .centered = true});
  });
  check([](const Parameter& p) { return std::make_unique<Adagrad>(std::vector{p}, AdagradOptions{.initial = 1}); });
}

TEST(OptimizerRules, BadOptionsAreNamed) {
  const std::vector<Parameter> none;
  EXPECT_THROW_WITH(RAdam(none, {.beta2 = 1}), Error, "RAdam", "beta2 in [0, 1)", "rules_test.cpp");
  EXPECT_THROW_WITH(RMSprop(none, {.alpha = 1}), Error, "RMSprop", "alpha in [0, 1)");
  EXPECT_THROW_WITH(RMSprop(none, {.eps = -1}), Error, "RMSprop", "eps >= 0");
  EXPECT_THROW_WITH(RMSprop(none, {.momentum = -1}), Error, "RMSprop", "momentum >= 0");
  EXPECT_THROW_WITH(RMSprop(none, {.weight_decay = std::nan("")}), Error, "RMSprop", "weight_decay >= 0", "nan");
  EXPECT_THROW_WITH(Adagrad(none, {.lr_decay = -1}), Error, "Adagrad", "lr_decay >= 0");
  EXPECT_THROW_WITH(Adagrad(none, {.eps = -1}), Error, "Adagrad", "eps >= 0");
  EXPECT_THROW_WITH(Adagrad(none, {.weight_decay = -1}), Error, "Adagrad", "weight_decay >= 0");
  EXPECT_THROW_WITH(Adagrad(none, {.initial = -1}), Error, "Adagrad", "initial >= 0");
}

// --- clipping -----------------------------------------------------------------------------------------------------------

TEST(ClipGradNorm, ClipsAGroupByItsOwnNorm) {
  const Parameter a = parameter_of({0, 0}), b = parameter_of({0});
  flatten_parameters({a, b});
  give(a, {3, 4});
  give(b, {100});
  EXPECT_EQ(clip_grad_norm({a, a}, 1), 5);  // a parameter counts once
  EXPECT_NEAR(a.gradient()[0].item(), 0.6, 1e-6);
  EXPECT_EQ(b.gradient().item(), 100);
  EXPECT_EQ(clip_grad_norm({b}, 1000), 100);
  EXPECT_EQ(b.gradient().item(), 100);
  EXPECT_EQ(clip_grad_norm({}, 1), 0);
  EXPECT_THROW_WITH(clip_grad_norm({a}, 0), Error, "clip_grad_norm", "max_norm > 0", "rules_test.cpp");
  EXPECT_THROW_WITH(clip_grad_norm({Parameter()}, 1), Error, "clip_grad_norm", "defined");
}

TEST(ClipGradNorm, IsTheSameForAnyNumberOfThreads) {
  Parameter p(zeros({3000000}));
  Generator generator(1);
  const Tensor g = randn({3000000}, generator);
  const int before = num_threads();
  std::vector<double> norms;
  std::vector<std::vector<float>> gradients;
  for (const int threads : {1, 2, 3, 7}) {
    set_num_threads(threads);
    p.set_gradient(g);
    norms.push_back(clip_grad_norm({p}, 1));
    gradients.push_back(p.gradient().to_vector<float>());
  }
  set_num_threads(before);
  for (std::size_t i = 1; i < norms.size(); ++i) {
    EXPECT_EQ(norms[i], norms[0]);
    EXPECT_EQ(gradients[i], gradients[0]);
  }
}

TEST(ClipGradValue, PutsEachElementIntoItsRange) {
  const Parameter a = parameter_of({0, 0, 0, 0, 0}), unreached = parameter_of({0}), frozen = parameter_of({0});
  give(a, {-3, 0.5, 2, kInf, std::nan("")});
  give(frozen, {5});
  Parameter(frozen).set_trainable(false);
  clip_grad_value({a, unreached, frozen}, 1);
  const std::vector<double> g = a.gradient().to_vector<double>();
  EXPECT_EQ((std::vector<double>{g.begin(), g.begin() + 4}), (std::vector<double>{-1, 0.5, 1, 1}));
  EXPECT_TRUE(std::isnan(g[4]));
  EXPECT_FALSE(unreached.has_gradient());
  EXPECT_EQ(frozen.gradient().item(), 5);
  EXPECT_THROW_WITH(clip_grad_value({a}, -1), Error, "clip_grad_value", "limit >= 0", "rules_test.cpp");
}

}  // namespace
}  // namespace reel::nn
