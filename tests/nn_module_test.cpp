#include "reel/nn/module.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <optional>
#include <thread>

#include "reel/reel.h"
#include "reel/tests/error_of.h"
#include "reel/tests/expect.h"

namespace reel::nn {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

struct Block : Module {
  using Module::Module;
  Linear first{this, "first", {.in = 4, .out = 6}};
  Linear second{this, "second", {.in = 6, .out = 4, .bias = false}};
  Tensor operator()(const Tensor& x) const { return second(relu(first(x))) + x; }
};

struct Net : Module {
  Parameter scale = parameter("scale", ones({4}));
  Block block{this, "block"};
  Sequential tail{this, "tail", Linear({.in = 4, .out = 3}), [](const Tensor& x) { return tanh(x); },
                  Linear({.in = 3, .out = 2})};
  Buffer seen = buffer("seen", zeros({2}));
  Tensor operator()(const Tensor& x) const { return tail(block(x * scale)); }
};

std::vector<std::string> names_of(const Module& module) {
  std::vector<std::string> names;
  for (const NamedParameter& named : module.named_parameters()) names.push_back(named.name);
  return names;
}

std::vector<float> values_of(const Module& module) {
  std::vector<float> all;
  for (const NamedParameter& named : module.named_parameters())
    for (const float value : named.parameter.value().to_vector<float>()) all.push_back(value);
  return all;
}

std::vector<float> run(const Net& net, const Tensor& x) { return net(x).to_vector<float>(); }

// --- names ------------------------------------------------------------------------------------------------------------

TEST(Module, PathsAreDottedInTheOrderOfRegistration) {
  const Net net;
  EXPECT_THAT(names_of(net), ElementsAre("scale", "block.first.weight", "block.first.bias", "block.second.weight",
                                         "tail.0.weight", "tail.0.bias", "tail.2.weight", "tail.2.bias"));
  EXPECT_THAT(names_of(net.block), ElementsAre("first.weight", "first.bias", "second.weight"));
  EXPECT_EQ(net.named_buffers().size(), 1u);
  EXPECT_EQ(net.named_buffers()[0].name, "seen");
  EXPECT_EQ(net.parameter_count(), 4 + 24 + 6 + 24 + 12 + 3 + 6 + 2);
}

TEST(Module, AParametersOwnNameIsItsPathFromTheTop) {
  const Net net;
  EXPECT_EQ(net.block.first.weight().name(), "block.first.weight");
  EXPECT_EQ(net.parameter_at("tail.0.weight").name(), "tail.0.weight");
  const Linear alone({.in = 1, .out = 1});
  EXPECT_EQ(alone.weight().name(), "weight");
  const Sequential top(alone);
  EXPECT_EQ(alone.weight().name(), "0.weight");
}

TEST(Module, BadAndTakenNamesAreRefusedWithTheCallersLine) {
  struct Twice : Module {
    Linear a{this, "same", {.in = 1, .out = 1}};
    Parameter b = parameter("same", zeros({1}));
  };
  const std::string text = error_of([] { Twice(); });
  EXPECT_THAT(text, HasSubstr("'same' twice"));
  EXPECT_THAT(text, HasSubstr("nn_module_test.cpp:"));
  Module parent;
  for (const char* name : {"", "a.b", "@x"})
    EXPECT_THAT(error_of([&] { Linear(&parent, name, {.in = 1, .out = 1}); }), HasSubstr("must not be empty"));
  EXPECT_TRUE(parent.named_parameters().empty());
}

TEST(Module, WrongSizesAreRefusedBeforeAnythingIsRegistered) {
  Module parent;
  EXPECT_THAT(error_of([&] { Linear(&parent, "a", {.in = -1, .out = 3}); }),
              HasSubstr("Linear: in >= 0 is required, got -1 (at "));
  EXPECT_THAT(error_of([&] { Linear(&parent, "a", {.in = 3}); }), HasSubstr("Linear: out >= 1 is required, got 0"));
  EXPECT_THAT(error_of([&] { LinearRelu(&parent, "a", {.in = 3}); }),
              HasSubstr("LinearRelu: out >= 1 is required, got 0"));
  EXPECT_THAT(error_of([&] { Conv2d(&parent, "a", {.in = 3, .out = 4, .groups = 2}); }), HasSubstr("divides"));
  EXPECT_THAT(error_of([&] {
                Conv2dRelu(&parent, "a", {.in = 3, .out = 4, .kernel = {3, 0}});
              }),
              HasSubstr("Conv2dRelu: kernel >= 1 is required, got 3 x 0"));
  EXPECT_THAT(error_of([&] { Embedding(&parent, "a", {.rows = 3}); }), HasSubstr("Embedding: width >= 1"));
  EXPECT_NO_THROW(Linear(&parent, "a", {.in = 1, .out = 1}));  // the name is still free
}

TEST(Module, AModuleInsideItselfIsRefused) {
  Sequential outer, inner;
  outer.add(inner);
  EXPECT_THAT(error_of([&] { inner.add(outer); }), HasSubstr("inside itself"));
  EXPECT_THAT(error_of([&] { inner.add(inner); }), HasSubstr("inside itself"));
}

TEST(Module, AMissingPathIsNamed) {
  const Net net;
  EXPECT_THAT(error_of([&] { net.parameter_at("block.third"); }), HasSubstr("'block.third'"));
}

// --- the flat layout --------------------------------------------------------------------------------------------------

TEST(Module, ParametersLieInOneBufferAt256ByteBoundaries) {
  const Net net;
  const std::vector<Parameter> all = net.parameters();
  ASSERT_EQ(all.size(), 8u);
  const char* first = static_cast<const char*>(all[0].value().array().data);
  std::ptrdiff_t expected = 0;
  for (const Parameter& parameter : all) {
    EXPECT_EQ(static_cast<const char*>(parameter.value().array().data) - first, expected);
    expected += (parameter.size() * 4 + 255) / 256 * 256;
  }
}

TEST(Module, AskingAPartKeepsTheLayoutOfTheWhole) {
  Net net;
  const void* weight = net.block.first.weight().value().array().data;
  const std::vector<Parameter> part = net.block.parameters();  // lays the whole net out
  EXPECT_NE(net.block.first.weight().value().array().data, weight);
  weight = net.block.first.weight().value().array().data;
  EXPECT_EQ(part[0].state()->home->members.size(), 8u);
  net.parameters();
  net.block.parameters();
  net.to(Device::cpu());
  net.block.to(Device::cpu());
  EXPECT_EQ(net.block.first.weight().value().array().data, weight);
}

TEST(Module, LayersAddedLaterAreLaidOutToo) {
  Sequential net(Linear({.in = 2, .out = 2}));
  net.parameters();
  const std::vector<float> before = values_of(net);
  net.add(Linear({.in = 2, .out = 2}));
  const std::vector<Parameter> all = net.parameters();
  EXPECT_EQ(all[0].state()->home->members.size(), 4u);
  const std::vector<float> after = values_of(net);
  EXPECT_TRUE(std::equal(before.begin(), before.end(), after.begin()));
}

TEST(Module, IsNotLaidOutWhileASweepBringsGradients) {
  struct Two : Module {
    Linear first{this, "first", {.in = 2, .out = 2}};
    Linear second{this, "second", {.in = 2, .out = 1}};
  } net;
  Tape tape;
  const Tensor h = net.first(ones({1, 2}));
  const Tensor same = record("lays_out", {h}, untaped([&] { return h * 1; }), [&](const Tensor& dy) {
    net.parameters();  // what the sweep has brought for `second` would be lost
    return dy;
  });
  EXPECT_THROW_WITH(tape.backward(sum(net.second(same)), {.keep = true}), Error, "backward of lays_out",
                    "no sweep must be on its way", "got one that has reached 'second.", "nn_module_test.cpp:");
  net.parameters();
  tape.backward(sum(net.second(same)));
  EXPECT_TRUE(net.first.weight().has_gradient() && net.second.weight().has_gradient());
}

// --- copies -----------------------------------------------------------------------------------------------------------

TEST(Module, CopiesAreTheSameModel) {
  const Tensor x = randn({3, 4});
  std::optional<Net> net;
  net.emplace();
  const Net copy = *net;
  EXPECT_EQ(run(copy, x), run(*net, x));
  init::constant(copy.scale, 2);
  EXPECT_EQ(run(copy, x), run(*net, x));
  net->eval();
  EXPECT_FALSE(copy.block.first.is_training());
  const std::vector<float> before = run(*net, x);
  net.reset();  // the copy outlives it
  EXPECT_EQ(run(copy, x), before);
  EXPECT_EQ(copy.parameters().size(), 8u);
}

TEST(Module, MovesLeaveTheModelWhole) {
  const Tensor x = randn({3, 4});
  Net net;
  const std::vector<float> expected = run(net, x);
  std::vector<Net> nets;
  for (int i = 0; i < 5; ++i) nets.push_back(std::move(net));  // grows, and moves again
  EXPECT_EQ(run(nets[0], x), expected);
  EXPECT_EQ(run(net, x), expected);
  EXPECT_EQ(nets[4].parameters().size(), 8u);
  Net other;
  other = nets[0];
  EXPECT_EQ(run(other, x), expected);
  init::constant(net.scale, 3);
  EXPECT_EQ(run(other, x), run(net, x));
}

TEST(Clone, IsAModelOfItsOwnAtAnyDepth) {
  const Tensor x = randn({3, 4});
  Net net;
  net.parameters();
  net.tail.eval();
  net.block.set_trainable(false);
  net.block.set_group("block");
  const std::vector<float> expected = run(net, x), values = values_of(net);
  Net copy = clone(net);
  EXPECT_EQ(run(copy, x), expected);
  EXPECT_EQ(names_of(copy), names_of(net));
  EXPECT_EQ(copy.block.first.weight().name(), "block.first.weight");
  EXPECT_EQ(copy.block.first.weight().group(), "block");
  EXPECT_FALSE(copy.block.first.weight().trainable());
  EXPECT_FALSE(copy.tail.is_training());
  EXPECT_TRUE(copy.is_training());

  for (const Parameter& parameter : copy.parameters()) init::constant(parameter, 0.5);
  copy.seen.set_value(ones({2}));
  copy.train();
  EXPECT_EQ(values_of(net), values);
  EXPECT_EQ(run(net, x), expected);
  EXPECT_EQ(net.seen.value().to_vector<float>(), (std::vector<float>{0, 0}));
  EXPECT_FALSE(net.tail.is_training());
  EXPECT_NE(run(copy, x), expected);  // the members of the copy are the copied parameters
  EXPECT_EQ(copy.scale, copy.parameter_at("scale"));
  EXPECT_EQ(copy.seen.state(), copy.named_buffers()[0].buffer.state());
  EXPECT_EQ(clone(net).block.parameters()[0].state()->home->members.size(), 8u);  // parts know what they are part of
}

TEST(Clone, KeepsWhatIsSharedShared) {
  struct Tied : Module {
    Embedding embedding{this, "embedding", {.rows = 5, .width = 3}};
    Linear head{this, "head", {.in = 3, .out = 5, .bias = false, .weight = embedding.weight()}};
  };
  const Tied net;
  const Tied copy = clone(net);
  EXPECT_EQ(copy.head.weight(), copy.embedding.weight());
  EXPECT_FALSE(copy.head.weight() == net.head.weight());
  EXPECT_THAT(names_of(copy), ElementsAre("embedding.weight"));
}

TEST(Clone, OfAPartStandsAlone) {
  const Net net;
  const Block copy = clone(net.block);
  EXPECT_EQ(copy.parameters().size(), 3u);
  EXPECT_EQ(copy.parameters()[0].state()->home->members.size(), 3u);
}

TEST(Clone, ClonesMembersInContainers) {
  struct Stack : Module {
    std::vector<Linear> layers;
    Stack() {
      for (int i = 0; i < 3; ++i) layers.emplace_back(this, std::to_string(i), LinearOptions{.in = 2, .out = 2});
    }
  };
  const Stack net;
  const Stack copy = clone(net);
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(copy.layers[i].weight(), copy.parameter_at(std::to_string(i) + ".weight"));
    EXPECT_FALSE(copy.layers[i].weight() == net.layers[i].weight());
  }
}

TEST(Clone, RefusesAPartHeldByAPointer) {
  struct Pointed : Module {
    std::shared_ptr<Linear> layer = std::make_shared<Linear>(this, "layer", LinearOptions{.in = 2, .out = 2});
  };
  const Pointed net;
  const std::string text = error_of([&] { clone(net); });
  EXPECT_THAT(text, HasSubstr("'layer'"));
  EXPECT_THAT(text, HasSubstr("nn_module_test.cpp:"));
  const Pointed copy = net;  // a copy of the handle is fine, and cloning is over
  EXPECT_EQ(copy.layer->weight(), net.layer->weight());
}

TEST(Clone, LeavesGradientsBehind) {
  Linear layer({.in = 2, .out = 1});
  {
    Tape tape;
    tape.backward(sum(layer(ones({1, 2}))));
  }
  ASSERT_TRUE(layer.weight().has_gradient());
  EXPECT_FALSE(clone(layer).weight().has_gradient());
}

// --- freezing ---------------------------------------------------------------------------------------------------------

TEST(Freezing, AFrozenNetRecordsNothing) {
  Net net;
  net.set_trainable(false);
  const std::int64_t before = memory_stats().live_nodes;
  Tape tape;
  const Tensor y = net(randn({3, 4}));
  EXPECT_EQ(memory_stats().live_nodes, before);
  EXPECT_FALSE(is_tracked(y));
}

TEST(Freezing, OnlyWhatFollowsAFreePartIsRecorded) {
  Net net;
  net.set_trainable(false);
  net.tail.set_trainable(true);
  Tape tape;
  const std::int64_t before = memory_stats().live_nodes;
  const Tensor h = net.block(randn({3, 4}));
  EXPECT_EQ(memory_stats().live_nodes, before);
  tape.backward(sum(net.tail(h)));
  EXPECT_FALSE(net.block.first.weight().has_gradient());
  EXPECT_TRUE(net.parameter_at("tail.0.weight").has_gradient());
}

// --- use --------------------------------------------------------------------------------------------------------------

TEST(Module, GivesPullbacks) {
  Net net;
  const Tensor x = randn({3, 4});
  auto [y, backprop] = pullback(net, x);
  const Tensor dx = backprop(ones_like(y));
  Tape tape;
  tape.watch(x);
  const Tensors expected = tape.gradient(sum(net(x)), {x, net.scale});
  EXPECT_EQ(dx.to_vector<float>(), expected[0].to_vector<float>());
  EXPECT_EQ(net.scale.gradient().to_vector<float>(), expected[1].to_vector<float>());
}

TEST(Sequential, MayStandInsideAnother) {
  const Sequential inner(Linear({.in = 2, .out = 3}));
  const Sequential outer(inner, Linear({.in = 3, .out = 1}));
  EXPECT_THAT(names_of(outer), ElementsAre("0.0.weight", "0.0.bias", "1.weight", "1.bias"));
  const Sequential copy = outer;
  EXPECT_EQ(copy.size(), 2u);
  const Sequential cloned = clone(outer);
  const Tensor x = randn({2, 2});
  EXPECT_EQ(cloned(x).to_vector<float>(), outer(x).to_vector<float>());
  init::constant(cloned.parameter_at("0.0.weight"), 0);
  EXPECT_NE(cloned(x).to_vector<float>(), outer(x).to_vector<float>());
}

TEST(Module, ASeedGivesTheSameNet) {
  manual_seed(7);
  const Net first;
  manual_seed(7);
  const Net second;
  manual_seed(8);
  const Net third;
  EXPECT_EQ(values_of(first), values_of(second));
  EXPECT_NE(values_of(first), values_of(third));
}

TEST(Module, InferenceFromEightThreadsGivesTheSameBits) {
  const Net net;
  const Tensor x = randn({33, 4});
  const std::vector<float> expected = run(net, x);
  std::vector<std::vector<float>> results(8);
  std::vector<std::thread> threads;
  for (int i = 0; i < 8; ++i)
    threads.emplace_back([&, i] {
      for (int repeat = 0; repeat < 20; ++repeat) results[i] = run(net, x);
    });
  for (std::thread& thread : threads) thread.join();
  for (const auto& result : results) EXPECT_EQ(result, expected);
}

TEST(Summary, ShowsModulesCountsAndWhatIsFrozen) {
  Net net;
  net.block.first.set_trainable(false);
  EXPECT_EQ(summary(net),
            "module        kind        parameters                                 count  bytes\n"
            "                          scale [4]                                      4     16\n"
            "block                                                                    0      0\n"
            "block.first   Linear      weight [6, 4] (frozen), bias [6] (frozen)     30    120\n"
            "block.second  Linear      weight [4, 6]                                 24     96\n"
            "tail          Sequential                                                 0      0\n"
            "tail.0        Linear      weight [3, 4], bias [3]                       15     60\n"
            "tail.2        Linear      weight [2, 3], bias [2]                        8     32\n"
            "total                                                                   81    324\n"
            "trainable: 51\n");
}

}  // namespace
}  // namespace reel::nn
