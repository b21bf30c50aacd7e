#include "reel/nn/checkpoint.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "reel/nn/safetensors.h"
#include "reel/reel.h"
#include "reel/tests/error_of.h"

namespace reel::nn {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

struct Net : Module {
  explicit Net(std::int64_t hidden = 8)
      : first(this, "first", {.in = 64, .out = hidden}), last(this, "last", {.in = hidden, .out = 10}) {}
  Linear first, last;
  Buffer mean = buffer("mean", zeros({3}, {.dtype = f64}));
  Tensor operator()(const Tensor& x) const { return last(relu(first(flatten(x, 1)))); }
};

class Checkpoint : public testing::Test {
 protected:
  Checkpoint() {
    std::string name = (std::filesystem::temp_directory_path() / "reel-checkpoint-XXXXXX").string();
    folder_ = ::mkdtemp(name.data());
  }
  ~Checkpoint() override { std::filesystem::remove_all(folder_); }
  std::string path(const char* name) const { return folder_ + "/" + name; }

  std::string folder_;
};

std::vector<double> values_of(const Module& module) {
  std::vector<double> all;
  const auto append = [&](const Tensor& x) {
    for (const double value : x.to_vector<double>()) all.push_back(value);
  };
  for (const NamedParameter& named : module.named_parameters()) append(named.parameter);
  for (const NamedBuffer& named : module.named_buffers()) append(named.buffer);
  return all;
}

std::string bytes_of(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

TEST_F(Checkpoint, WhatIsSavedIsLoaded) {
  Net net, other;
  net.mean.set_value(tensor({1, 2, 3}, {.dtype = f64}));
  ASSERT_NE(values_of(net), values_of(other));
  save(net, path("net"));
  const LoadReport report = load(other, path("net"));
  EXPECT_EQ(values_of(net), values_of(other));
  EXPECT_THAT(report.loaded, ElementsAre("first.weight", "first.bias", "last.weight", "last.bias", "mean"));
}

TEST_F(Checkpoint, TensorsComeBackFromAFileByThemselves) {
  const Tensor matrix = transpose(tensor({1, 2, 3, 4, 5, 6}, {2, 3}, {.dtype = f64}));  // not in row-major order
  const Tensor large = from_vector(std::vector<std::int64_t>{(std::int64_t{1} << 60) + 1, -7});
  save_tensors(
      {{"matrix", matrix}, {"ids", large}, {"mask", large > 0}, {"none", zeros({0, 4})}, {"one", full({}, 0.1)}},
      path("data"));
  const std::vector<NamedTensor> all = load_tensors(path("data"));
  ASSERT_EQ(all.size(), 5u);
  for (const NamedTensor& named : all) EXPECT_TRUE(named.tensor.device().is_cpu());
  EXPECT_EQ(all[0].name, "matrix");
  EXPECT_EQ(all[0].tensor.dtype(), f64);
  EXPECT_EQ(all[0].tensor.shape(), (Shape{3, 2}));
  EXPECT_EQ(all[0].tensor.to_vector<double>(), matrix.to_vector<double>());
  EXPECT_EQ(all[1].tensor.to_vector<std::int64_t>(), large.to_vector<std::int64_t>());
  EXPECT_EQ(all[2].tensor.dtype(), bool8);
  EXPECT_THAT(all[2].tensor.to_vector<int>(), ElementsAre(1, 0));
  EXPECT_EQ(all[3].tensor.shape(), (Shape{0, 4}));
  EXPECT_EQ(all[4].tensor.item(), 0.1f);
  save_tensors({}, path("nothing"));
  EXPECT_TRUE(load_tensors(path("nothing")).empty());

  EXPECT_THAT(
      error_of([&] {
        save_tensors({{"a", Tensor()}}, path("no"));
      }),
      AllOf(HasSubstr("nn::save_tensors: the tensor 'a' must be defined"), HasSubstr("nn_checkpoint_test.cpp")));
  EXPECT_FALSE(std::filesystem::exists(path("no")));
  EXPECT_THAT(error_of([&] {
                save_tensors({{"a", ones({1})}, {"a", ones({1})}}, path("no"));
              }),
              AllOf(HasSubstr("nn::save_tensors"), HasSubstr("'a'")));
  EXPECT_THAT(error_of([&] { load_tensors(path("missing")); }),
              AllOf(HasSubstr("nn::load_tensors"), HasSubstr("missing"), HasSubstr("nn_checkpoint_test.cpp")));
}

TEST_F(Checkpoint, LoadingKeepsTheLayoutAndCountsAsAWrite) {
  Net net;
  save(net, path("net"));
  const std::vector<Parameter> parameters = net.parameters();
  const void* memory = parameters[0].value().array().data;
  const std::uint32_t version = parameters[0].value().version();
  load(net, path("net"));
  EXPECT_EQ(parameters[0].value().array().data, memory);
  EXPECT_GT(parameters[0].value().version(), version);
}

TEST_F(Checkpoint, AllThatDoesNotFitIsNamedTogetherAndNothingIsChanged) {
  struct Other : Module {
    Linear first{this, "first", {.in = 64, .out = 8}};
    Linear last{this, "last", {.in = 9, .out = 10}};
    Parameter mean = parameter("mean", zeros({3}));
    Linear extra{this, "extra", {.in = 1, .out = 1}};
  };
  Other other;
  save(Net(), path("net"));
  const std::vector<double> before = values_of(other);
  const std::string text = error_of([&] { load(other, path("net")); });
  EXPECT_THAT(text, HasSubstr("missing: 'extra.weight', 'extra.bias'"));
  EXPECT_THAT(text, HasSubstr("'last.weight' must be f32 [10, 9], got f32 [10, 8]"));
  EXPECT_THAT(text, HasSubstr("'mean' must be f32 [3], got f64 [3]"));
  EXPECT_THAT(text, HasSubstr("nn_checkpoint_test.cpp:"));
  EXPECT_EQ(values_of(other), before);

  Net net;
  save(other, path("other"));
  EXPECT_THAT(error_of([&] { load(net, path("other")); }), HasSubstr("unexpected: 'extra.weight', 'extra.bias'"));

  const LoadReport report = load(other, path("net"), {.strict = false});
  EXPECT_THAT(report.loaded, ElementsAre("first.weight", "first.bias", "last.bias"));
  EXPECT_THAT(report.missing, ElementsAre("extra.weight", "extra.bias"));
  EXPECT_EQ(report.mismatched.size(), 2u);
  EXPECT_TRUE(report.unexpected.empty());
  EXPECT_NE(values_of(other), before);
}

TEST_F(Checkpoint, SharedWeightsAreSavedOnce) {
  struct Tied : Module {
    Embedding embedding{this, "embedding", {.rows = 5, .width = 3}};
    Linear head{this, "head", {.in = 3, .out = 5, .bias = false, .weight = embedding.weight()}};
  };
  Tied net, other;
  save(net, path("tied"));
  EXPECT_EQ(safetensors::Reader(path("tied")).entries().size(), 1u);
  load(other, path("tied"));
  EXPECT_EQ(values_of(other), values_of(net));
  EXPECT_EQ(other.head.weight(), other.embedding.weight());
}

TEST_F(Checkpoint, DamagedFilesAreRefusedAndChangeNothing) {
  Net net;
  save(Net(), path("net"));
  const std::string whole = bytes_of(path("net"));
  const std::vector<double> before = values_of(net);
  for (std::size_t size = 0; size < whole.size(); size += 97) {
    std::ofstream(path("cut"), std::ios::binary) << whole.substr(0, size);
    ASSERT_THROW(load(net, path("cut")), FileError) << size;
  }
  EXPECT_THROW(load(net, path("nowhere")), FileError);
  EXPECT_THROW(load(net, folder_), FileError);
  EXPECT_EQ(values_of(net), before);
}

TEST_F(Checkpoint, AFailedSaveKeepsTheOldFile) {
  if (::geteuid() == 0) {  // root may write anywhere: a folder in the file's place is refused all the same
    std::filesystem::create_directory(path("folder"));
    EXPECT_THROW(save(Net(), path("folder")), FileError);
  }
  EXPECT_THROW(save(Net(), path("no/such/folder")), FileError);
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder_), {}), ::geteuid() == 0 ? 1 : 0);
}

TEST_F(Checkpoint, AWatchedTensorIsNotOverwritten) {
  Net net;
  save(Net(), path("net"));
  const std::vector<double> before = values_of(net);
  Tape tape;
  tape.watch(net.mean);
  EXPECT_THROW(load(net, path("net")), VersionError);
  EXPECT_EQ(values_of(net), before);
}

// --- training ---------------------------------------------------------------------------------------------------------

// A run with everything that a checkpoint must remember: random numbers in the loop, shuffling, schedules, unreached
// parameters, groups.
struct Job {
  Net net;
  Batches data;
  AdamW adam;
  Training training;

  explicit Job(std::uint64_t seed)
      : net((manual_seed(seed), 8)),
        data(batches(digits::test(), {.size = 64, .shuffle = true, .epochs = 3})),
        adam((net.first.set_group("first"), net.parameters()),
             {.lr = schedule::plateau(schedule::cosine(3e-3, 18), 1, 0.7)}),
        training{.module = net, .optimizer = adam, .batches = &data} {
    adam.group("first", {.lr = schedule::plateau(1e-3, 2, 0.5)});
    training.tensors = {{"history", zeros({0}, {.dtype = f64})}};
  }

  void steps(int count) {
    Batch batch;
    while (count-- > 0 && data.next(batch)) {
      double loss_value = 0;
      {
        Tape tape;
        const Tensor noise = randn(batch.inputs.shape()) * 0.01;
        if (adam.steps() % 4 == 3) net.last.bias().state()->trainable = false;
        const Tensor loss = cross_entropy(net(batch.inputs + noise), batch.targets);
        tape.backward(loss);
        adam.step();
        net.last.bias().state()->trainable = true;
        loss_value = loss.item();
      }
      net.mean.set_value(full({3}, loss_value, {.dtype = f64}));
      adam.observe(-loss_value);
      Tensor& history = training.tensors[0].tensor;
      history = concatenate({history, full({1}, loss_value, {.dtype = f64})});
    }
  }
};

TEST_F(Checkpoint, AResumedRunIsTheUninterruptedOneBitForBit) {
  Job whole(1);
  whole.steps(18);
  save_training(whole.training, path("whole"));
  for (const int cut : {0, 1, 5, 6, 7, 17, 18}) {
    Job first(1);
    first.steps(cut);
    save_training(first.training, path("part"));
    Job second(2);
    second.steps(2);  // whatever it was before
    second.training.tensors[0].tensor = zeros({0}, {.dtype = f64});
    load_training(second.training, path("part"));
    second.steps(18 - cut);
    save_training(second.training, path("rest"));
    ASSERT_TRUE(bytes_of(path("rest")) == bytes_of(path("whole"))) << cut;
    EXPECT_EQ(second.training.tensors[0].tensor.size(), 18);
  }
}

TEST_F(Checkpoint, AFileOfTrainingIsAFileOfItsModule) {
  Job run(1);
  run.steps(3);
  save_training(run.training, path("run"));
  Net net;
  load(net, path("run"));
  EXPECT_EQ(values_of(net), values_of(run.net));
}

TEST_F(Checkpoint, ARunThatDoesNotFitIsRefusedAndNothingIsChanged) {
  Job run(1);
  run.steps(3);
  save_training(run.training, path("run"));
  Job other(2);
  other.steps(1);
  const auto refused = [&](Training& training, const char* words) {
    save_training(other.training, path("before"));
    EXPECT_THAT(error_of([&] { load_training(training, path("run")); }), HasSubstr(words));
    save_training(other.training, path("after"));
    EXPECT_TRUE(bytes_of(path("after")) == bytes_of(path("before"))) << words;
  };
  SGD sgd(other.net.parameters());
  Training with_sgd{.module = other.net, .optimizer = sgd, .batches = &other.data, .tensors = other.training.tensors};
  refused(with_sgd, "unexpected: ");
  Adam adam(other.net.parameters(), {.lr = schedule::plateau(1e-3, 1)});
  adam.group("first", {.lr = schedule::plateau(1e-3, 1)});
  Training with_adam{.module = other.net, .optimizer = adam, .batches = &other.data};
  with_adam.tensors = {{"history", zeros({0}, {.dtype = f64})}};
  refused(with_adam, "a run with Adam is required, got 'AdamW'");
  Net wider(9);
  Training with_wider{
      .module = wider, .optimizer = other.adam, .batches = &other.data, .tensors = other.training.tensors};
  refused(with_wider, "'first.weight' must be f32 [9, 64], got f32 [8, 64]");
  Batches other_data = batches(digits::train(), {.size = 64, .shuffle = true, .epochs = 3});
  Training with_data{.module = other.net, .optimizer = other.adam, .batches = &other_data};
  with_data.tensors = {{"history", zeros({0}, {.dtype = f64})}};
  refused(with_data, "of 1437 rows is required");
  EXPECT_THROW(load_training(with_data, path("run")), FileError);
  Training with_own{.module = other.net, .optimizer = other.adam, .batches = &other.data};
  with_own.tensors = {{"history", zeros({4}, {.dtype = f64})}};
  refused(with_own, "'@own.history' must be f64 [4], got f64 [3]");
  save(run.net, path("run"));
  Training plain{.module = other.net, .optimizer = other.adam};
  refused(plain, "missing: '@optimizer.steps'");
}

TEST_F(Checkpoint, KeepsWhatTheOptimiserTrainsBesideTheModule) {
  struct Pair {
    Net net{8};
    Parameter scale{ones({2}), "scale"};
    std::vector<Parameter> all() {
      std::vector<Parameter> parameters = net.parameters();
      parameters.push_back(scale);
      return parameters;
    }
    Adam adam{all(), {.lr = 0.1}};
    Training training{.module = net, .optimizer = adam};
  } run, other;
  run.scale.set_gradient(ones({2}));
  run.adam.step();
  save_training(run.training, path("pair"));
  load_training(other.training, path("pair"));
  EXPECT_EQ(other.scale.value().to_vector<double>(), run.scale.value().to_vector<double>());
  EXPECT_NE(run.scale.value().to_vector<double>()[0], 1);
  Adam less(other.net.parameters(), {.lr = 0.1});
  Training without{.module = other.net, .optimizer = less};
  EXPECT_THAT(error_of([&] { load_training(without, path("pair")); }), HasSubstr("'@parameter.scale'"));
  Tape tape;
  tape.watch(other.net.mean.value());
  EXPECT_THAT(error_of([&] { load_training(other.training, path("pair")); }), StartsWith("nn::load_training: "));
}

// Nothing is moved: an optimiser and averages of single parameters, in an order of their own, go on behind a save.
TEST_F(Checkpoint, OfSingleParametersLeavesThemWhereTheyAre) {
  struct Loose {
    Net net{8};
    Parameter scale{ones({8}), "scale"};
    std::vector<Parameter> some{net.first.weight(), scale, net.first.bias()};
    Adam adam{some, {.lr = 0.1}};
    Ema ema{some};
    Training training{.module = net, .optimizer = adam, .ema = &ema};

    void step(std::uint64_t seed) {
      Generator generator(seed);
      for (Parameter& parameter : some) parameter.set_gradient(randn(parameter.shape(), generator));
      adam.step(ema);
    }
    std::vector<double> values() const {
      std::vector<double> all;
      for (const Parameter& parameter : some)
        for (const Tensor& x : {parameter.value(), ema.average(parameter)})
          for (const double value : x.to_vector<double>()) all.push_back(value);
      return all;
    }
  } run, other;
  run.step(1);
  save_training(run.training, path("loose"));
  load_training(other.training, path("loose"));
  EXPECT_EQ(other.values(), run.values());
  run.step(2);
  other.step(2);
  EXPECT_EQ(other.values(), run.values());
}

TEST_F(Checkpoint, ASweepBehindALoadTellsWhatWrote) {
  Net net(8);
  save(net, path("net"));
  Adam adam(net.parameters());
  Training training{.module = net, .optimizer = adam};
  save_training(training, path("run"));
  const auto told = [&](auto&& load) {
    const Tensor x = ones({3}, {.dtype = f64});
    Tape tape;
    tape.watch(x);
    const Tensor y = sum(x * net.mean.value());  // which the tape has only read
    load();
    return error_of([&] { tape.gradient(y, {x}); });
  };
  EXPECT_THAT(told([&] { load(net, path("net")); }), HasSubstr("by nn::load"));
  EXPECT_THAT(told([&] { load_training(training, path("run")); }), HasSubstr("by nn::load_training"));
}

TEST_F(Checkpoint, KeepsATrainingsOwnNumbersOfAnyRank) {
  Job run(1);
  run.training.tensors = {{"best", full({}, 0.93)}, {"pair", tensor({1, 2}, {.dtype = i64})}, {"none", zeros({0, 2})}};
  save_training(run.training, path("own"));
  run.training.tensors = {{"best", full({}, 0.0)}, {"pair", zeros({2}, {.dtype = i64})}, {"none", ones({0, 2})}};
  load_training(run.training, path("own"));
  EXPECT_EQ(run.training.tensors[0].tensor.item(), static_cast<double>(0.93f));
  EXPECT_EQ(run.training.tensors[1].tensor.to_vector<std::int64_t>(), (std::vector<std::int64_t>{1, 2}));
}

TEST_F(Checkpoint, AStateThatNoRunHasIsToldWithItsFile) {
  Job run(1), other(2);
  run.steps(3);
  const auto refused = [&](const char* name, std::int64_t at, std::int64_t value, const char* words) {
    save_training(run.training, path("run"));
    const std::vector<NamedTensor> tensors = load_tensors(path("run"));
    std::vector<safetensors::Source> sources;
    for (const NamedTensor& named : tensors) {
      if (named.name == name) Tensor(named.tensor)[at].fill_(value);
      sources.push_back({named.name, named.tensor.dtype(), named.tensor.shape(), named.tensor.array().data});
    }
    safetensors::write(path("run"), sources, {{"optimizer", run.adam.kind()}});
    try {
      load_training(other.training, path("run"));
      ADD_FAILURE() << name << " was taken";
    } catch (const FileError& error) {
      EXPECT_THAT(error.what(), AllOf(StartsWith("nn::load_training: '" + path("run") + "': "), HasSubstr(words),
                                      HasSubstr("nn_checkpoint_test.cpp:")));
    }
  };
  refused("@batches", 1, -1,
          "Batches: a position within the data is required, got batch 3 of epoch -1 in a loop from epoch 0");
  refused("@batches", 3, 7, "got batch 3 of epoch 0 in a loop from epoch 7 on");
  refused("@optimizer.steps", 1, -2,
          "AdamW::load_state: counts from 0 to that of all steps, at most 2^53, are required, got -2");
}

}  // namespace
}  // namespace reel::nn
