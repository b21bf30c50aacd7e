#include <gtest/gtest.h>

#include <limits>
#include <vector>

#include "reel/reel.h"
#include "reel/tests/nn_parameters.h"

namespace reel::nn {
namespace {

std::vector<NamedTensor> copies(const std::vector<NamedTensor>& tensors) {
  std::vector<NamedTensor> all;
  for (const NamedTensor& named : tensors) all.push_back({named.name, clone(named.tensor)});
  return all;
}

TEST(Optimizer, AStateIsTakenUpExactly) {
  const auto parameters = [] { return std::vector{parameter_of(numbers(33, 1), "a"), parameter_of(numbers(5, 2))}; };
  const auto make = [](const std::vector<Parameter>& ps) {
    return Adam(ps, {.lr = schedule::plateau(schedule::cosine(0.1, 20), 1, 0.5)});
  };
  const auto run = [](Adam& adam, int begin, int end) {
    for (int t = begin; t < end; ++t) {
      for (std::size_t i = 0; i < 2; ++i)
        if (t % 3 != 1 || i == 0) give_gradient(adam.parameters()[i], static_cast<std::uint64_t>(t) * 2 + i);
      adam.step();
      adam.observe(t % 4);
    }
  };
  const auto ps = parameters();
  Adam whole = make(ps);
  run(whole, 0, 10);
  for (int cut = 0; cut <= 10; ++cut) {
    const auto qs = parameters(), rs = parameters();
    Adam first = make(qs);
    run(first, 0, cut);
    Adam second = make(rs);
    for (std::size_t i = 0; i < 2; ++i) Parameter(rs[i]).set_value(qs[i]);
    second.load_state(copies(first.state()));
    run(second, cut, 10);
    for (std::size_t i = 0; i < 2; ++i) ASSERT_EQ(values_of(rs[i]), values_of(ps[i])) << cut;
    ASSERT_EQ(second.rate(), whole.rate());
  }
}

TEST(Optimizer, APlateauOfSeveralGroupsObservesOnce) {
  Parameter p = parameter_of(numbers(3, 1), "p");
  p.set_group("group");
  const Schedule rate = schedule::plateau(1, 2, 0.5);
  Adam adam({p}, {.lr = rate});
  adam.group("group", {.lr = rate});
  for (const double score : {0.8, 0.9, 0.95}) adam.observe(score);
  adam.observe(0.5);
  EXPECT_EQ(adam.rate(), 1);
  adam.observe(0.5);
  EXPECT_EQ(adam.rate(), 0.5);
}

TEST(Optimizer, AnAlienStateIsRefusedAndChangesNothing) {
  Parameter p = parameter_of(numbers(3, 1), "p");
  p.set_group("group");
  Adam adam({p}, {.lr = schedule::plateau(0.1, 1)});
  adam.group("group", {.lr = schedule::plateau(0.1, 1)});
  adam.observe(1);
  give_gradient(p, 1);
  adam.step();
  const std::vector<NamedTensor> good = copies(adam.state());
  ASSERT_EQ(good.size(), 4u);
  EXPECT_EQ(good[2].name, "m.p");
  const auto refused = [&](std::size_t at, const NamedTensor& bad) {
    std::vector<NamedTensor> state = good;
    state[at] = bad;
    EXPECT_THROW(adam.load_state(state), Error) << at << bad.name;
  };
  refused(0, {"steps", tensor({-1, 1}, {.dtype = i64})});
  refused(0, {"steps", tensor({1, 2}, {.dtype = i64})});
  refused(0, {"steps", tensor({1}, {.dtype = i64})});
  refused(0, {"steps", full({2}, std::numeric_limits<std::int64_t>::max(), {.dtype = i64})});  // no step could follow
  refused(1, {"schedules", tensor({1, -1, 0, 1, 0, 0}, {.dtype = f64})});
  refused(1, {"schedules", tensor({2, 0, 0, 1, -1, 0}, {.dtype = f64})});  // the second schedule's is bad
  refused(2, {"m.q", zeros({3}, {.dtype = f64})});
  refused(2, {"m.p", zeros({3})});
  refused(3, {"v.p", zeros({4}, {.dtype = f64})});
  EXPECT_THROW(adam.load_state({}), Error);
  const std::vector<NamedTensor> after = adam.state();
  for (std::size_t i = 0; i < good.size(); ++i)
    EXPECT_EQ(after[i].tensor.to_vector<double>(), good[i].tensor.to_vector<double>());
}

}  // namespace
}  // namespace reel::nn
