// Calls of the runtime that fail, one after the other, in programs that use much of the backend: nothing is lost, and what was
// there before works on. And what becomes of the backend where its process is forked or ends.

#include <cstdio>
#include <cstdlib>
#include <functional>

#include "reel/core/ragged.h"
#include "reel/core/tape.h"
#include "reel/nn/checkpoint.h"
#include "reel/nn/ema.h"
#include "reel/nn/linear.h"
#include "reel/nn/optimizer.h"
#include "reel/ops/arithmetic.h"
#include "reel/ops/attention.h"
#include "reel/ops/conv.h"
#include "reel/ops/convert.h"
#include "reel/ops/create.h"
#include "reel/ops/embedding.h"
#include "reel/ops/index.h"
#include "reel/ops/linalg.h"
#include "reel/ops/logical.h"
#include "reel/ops/losses.h"
#include "reel/ops/matmul.h"
#include "reel/ops/normalize.h"
#include "reel/ops/order.h"
#include "reel/ops/ragged.h"
#include "reel/ops/recurrent.h"
#include "reel/ops/reduce.h"
#include "reel/ops/scan.h"
#include "reel/ops/sequence.h"
#include "reel/ops/softmax.h"
#include "reel/ops/unary.h"
#include "reel/ops/views.h"
#include "reel/tests/cuda_on_cpu/failures.h"
#include "reel/tests/expect.h"

namespace reel {
namespace {

const Device kCuda = Device::cuda();

Tensor random(const Shape& shape, std::uint64_t seed = 1) {
  Generator generator(seed);
  return to(randn(shape, generator), kCuda);
}

/// The sum of y's gradients by `inputs`, times themselves.
double sum_of_gradients(const Tensors& inputs, const std::function<Tensor()>& f) {
  Tape tape;
  for (const Tensor& x : inputs) tape.watch(x);
  double all = 0;
  for (const Tensor& dx : tape.gradient(sum(f()), inputs)) all += sum(dx * dx).item();
  return all;
}

double convolution() {
  const Tensor x = random({2, 5, 4, 4}), w = random({6, 5, 3, 3}, 2), b = random({6}, 3);
  return sum_of_gradients({x, w, b}, [&] { return conv2d_relu(x, w, b, {.padding = 1, .dilation = 1}); });
}

// In pieces that the last block joins, and turned.
double elements() {
  const Tensor x = random({33'000});
  const Tensor some = masked_select(x, x > 2.5), turned = transpose(reshape(x, {165, 200})) + reshape(x, {200, 165});
  return sum(x).item() + sum(some).item() + sum(turned).item() + sum(cumsum(x, 0)).item();
}

double sorted() {
  const Tensor x = random({2100}), table = random({50, 3}, 2);
  std::vector<std::int64_t> rows;
  for (int i = 0; i < 300; ++i) rows.push_back(i % 50);
  const Tensor longest = sort(x).values;
  return sum(longest * longest).item() +
         sum_of_gradients({table}, [&] { return embedding(table, to(from_vector(rows, {300}), kCuda)); });
}

double matrices() {
  const Tensor x = random({35, 35}), a = matmul(x, transpose(x)) + to(eye(35), kCuda) * 40;
  return sum_of_gradients({a}, [&] { return cholesky(a) + inverse(a); });
}

double layers() {
  const Tensor x = random({3, 2, 5}), w = random({280, 5}, 2), r = random({280, 70}, 3), none;
  const Tensor logits = random({6, 9}, 4), targets = to(arange(6, {.dtype = i64}), kCuda);
  return sum_of_gradients({x, w, r},
                          [&] {
                            return lstm(x, {{w, r, random({280}, 5), random({280}, 6)}}).y;
                          }) +
         sum_of_gradients({logits}, [&] { return cross_entropy(layer_norm(logits, {9}), targets); });
}

double sequences() {
  const Tensor values = random({9, 6});
  return sum_of_gradients({values}, [&] {
    const Ragged x = Ragged::from_lengths(values, {4, 0, 5});
    const Ragged heads = x.with(reshape(values, {9, 2, 3}));
    const Tensor pooled = sum(softmax(sum(x, -1, Keep::yes)) * x);
    return sum(pooled) + sum(seq2col(x, 1).values()) + sum(scaled_dot_product_attention(heads, heads, heads).values());
  });
}

double training() {
  manual_seed(1);
  nn::Linear net({.in = 4, .out = 3});
  net.to(kCuda);
  nn::Adam adam(net.parameters(), {.lr = 0.1});
  for (int step = 0; step < 2; ++step) {
    Tape tape;
    const Tensor y = net(random({5, 4}));
    tape.backward(sum(y * y));
    adam.clip_gradients(1);
    adam.step();
  }
  return sum(net.weight().value()).item();
}

TEST(CudaFailure, AnyCallOfManyOpsMayFailWithoutALeak) {
  struct Program {
    const char* name;
    double (*run)();
    std::size_t least;  // calls
  };
  cuda_on_cpu::set_guard(false);
  for (const Program& program :
       {Program{"convolution", &convolution, 20}, Program{"elements", &elements, 20}, Program{"sorted", &sorted, 30},
        Program{"matrices", &matrices, 40}, Program{"layers", &layers, 40}, Program{"sequences", &sequences, 40},
        Program{"training", &training, 30}}) {
    SCOPED_TRACE(program.name);
    EXPECT_GT(test::fail_each_call(program.run, {kCuda}).size(), program.least);
  }
  cuda_on_cpu::set_guard(true);
}

struct WithTable : nn::Module {
  nn::Linear head{this, "head", {.in = 4, .out = 3}};
  nn::Buffer table = buffer("table", ones({5}));
};

// It is where it was, or where it was to go, with its values, gradients and buffers.
TEST(CudaFailure, AModelThatCannotBeMovedIsWhole) {
  for (const Device from : {Device::cpu(), kCuda}) {
    const Device target = from.is_cpu() ? kCuda : Device::cpu();
    manual_seed(1);
    WithTable net;
    net.to(from);
    const Parameter weight = net.head.weight(), bias = net.head.bias();
    const auto train = [&] {
      Tape tape;
      tape.backward(sum(net.head(ones({2, 4}, {.device = net.device()})) * 2));
    };
    train();
    const std::vector<float> weights = weight.value().to_vector<float>(),
                             gradients = weight.gradient().to_vector<float>();
    for (int n = 1;; ++n) {
      ASSERT_LT(n, 100);
      net.to(from);
      cuda_on_cpu::fail_call(n);
      try {
        net.to(target);
      } catch (const DeviceError&) {
      }
      const bool failed = cuda_on_cpu::call_failed();
      cuda_on_cpu::fail_call(0);
      SCOPED_TRACE("failure " + std::to_string(n));
      for (const Tensor& other : {bias.value(), weight.gradient(), bias.gradient(), net.table.value()})
        EXPECT_EQ(other.device(), weight.device());
      EXPECT_EQ(net.device(), weight.device());
      EXPECT_EQ(weight.value().to_vector<float>(), weights);
      EXPECT_EQ(weight.gradient().to_vector<float>(), gradients);
      EXPECT_EQ(sum(net.table.value()).item(), 5);
      if (!failed) break;
    }
    train();
    EXPECT_EQ(weight.gradient().to_vector<float>()[0], 2 * gradients[0]);
  }
}

/// A model on the GPU with gradients, and what trains it.
struct Trained {
  nn::Linear net = seeded();
  std::vector<Parameter> parameters = on_gpu(net);
  nn::Adam adam{parameters, {.lr = 0.1}};
  nn::Ema ema{parameters, {.decay = 0.5}};

  static nn::Linear seeded() {
    manual_seed(1);
    return nn::Linear({.in = 4, .out = 3});
  }
  static std::vector<Parameter> on_gpu(nn::Linear& net) {
    net.to(kCuda);
    return net.parameters();
  }
  void backward() {
    Tape tape;
    tape.backward(sum(square(net(ones({2, 4}, {.device = kCuda})))));
  }
  void step() {
    backward();
    adam.step();
    ema.update();
  }
  /// All of it: weights, moments, counts, averages.
  std::vector<std::vector<double>> numbers() {
    std::vector<std::vector<double>> all;
    for (const Parameter& parameter : parameters) all.push_back(parameter.value().to_vector<double>());
    for (const auto& state : {adam.state(), ema.state()})
      for (const nn::NamedTensor& named : state) all.push_back(named.tensor.to_vector<double>());
    return all;
  }
};

/// Runs `call` with its n-th call of the runtime failing: whether it came to that.
template <class F>
bool fails(int n, F call) {
  cuda_on_cpu::fail_call(n);
  bool thrown = false;
  try {
    call();
  } catch (const DeviceError&) {
    thrown = true;
  }
  EXPECT_EQ(thrown, cuda_on_cpu::call_failed());
  const bool failed = cuda_on_cpu::call_failed();
  cuda_on_cpu::fail_call(0);
  return failed;
}

// At the first step its buffers are made.
TEST(CudaFailure, AStepThatFailedMayBeTakenAgain) {
  Trained plain;
  plain.step();
  bool failed = true;
  for (int n = 1; failed; ++n) {
    ASSERT_LT(n, 200);
    SCOPED_TRACE("failure " + std::to_string(n));
    Trained run;
    run.backward();
    failed = fails(n, [&] { run.adam.step(); });
    if (failed) run.adam.step();
    EXPECT_EQ(run.adam.steps(), 1);
    EXPECT_EQ(run.net.weight().value().to_vector<float>(), plain.net.weight().value().to_vector<float>());
  }
}

/// Runs `call` with ever more memory until there is enough, and `check` after each time: whether there was enough.
template <class F, class Check>
void with_little_memory(F call, Check check) {
  std::int64_t room = 0;
  const std::int64_t on_host = memory_stats().live_bytes;
  for (bool enough = false; !enough; room += 256) {
    ASSERT_LT(room, 1 << 20);
    SCOPED_TRACE(std::to_string(room) + " bytes");
    cuda_on_cpu::set_capacity(static_cast<std::size_t>(test::live(kCuda) + room));
    try {
      call();
      enough = true;
    } catch (const OutOfMemory&) {
    }
    cuda_on_cpu::set_capacity(std::size_t{1} << 30);
    if (!enough) {
      EXPECT_EQ(memory_stats().live_bytes, on_host);
    }
    check(enough);
  }
  EXPECT_GT(room, 1024);
}

TEST(CudaFailure, ASweepThatHadNoMemoryLeavesTheGradientsThatWereThere) {
  Trained run;
  run.backward();
  const std::vector<float> before = run.net.weight().gradient().to_vector<float>();
  with_little_memory([&] { run.backward(); },
                     [&](bool enough) {
                       const std::vector<float> after = run.net.weight().gradient().to_vector<float>();
                       for (std::size_t i = 0; i < before.size(); ++i)
                         EXPECT_EQ(after[i], enough ? 2 * before[i] : before[i]);
                     });
}

TEST(CudaFailure, ARunThatCannotBeLoadedIsAsItWas) {
  const std::string path = testing::TempDir() + "reel_cuda_run.safetensors";
  Trained saved;
  for (int i = 0; i < 3; ++i) saved.step();
  nn::Training whole{.module = saved.net, .optimizer = saved.adam, .ema = &saved.ema};
  nn::save_training(whole, path);
  const auto expected = saved.numbers();
  Trained run;
  run.step();
  const auto before = run.numbers();
  with_little_memory(
      [&] {
        nn::Training training{.module = run.net, .optimizer = run.adam, .ema = &run.ema};
        nn::load_training(training, path);
      },
      [&](bool enough) { EXPECT_EQ(run.numbers(), enough ? expected : before); });
  std::remove(path.c_str());
}

// --- the process ------------------------------------------------------------------------------------------------------------

// CUDA does not survive a fork. What needs no GPU works on, and tensors on it may end.
TEST(CudaProcess, AForkedOneIsToldThatItCannotUseTheGpu) {
  const auto child = [](Tensor x) {
    int told = 0;
    for (const auto& use : {std::function<void()>([&] { (void)sum(x).item(); }), std::function<void()>([&] { x + x; }),
                            std::function<void()>([&] { zeros({3}, {.device = kCuda}); })}) {
      try {
        use();
      } catch (const DeviceError& error) {
        told += std::string(error.what()).find("got one forked from it") != std::string::npos;
      }
    }
    x = {};
    std::_Exit(told == 3 && sum(ones({10})).item() == 10 ? 0 : 1);
  };
  const Tensor x = ones({3}, {.device = kCuda});
  EXPECT_EXIT(child(x), testing::ExitedWithCode(0), "");
  EXPECT_EQ(sum(x).item(), 3);
}

/// Looks at the end of the program whether streams were given work after its `main`.
struct Watcher {
  bool armed = false;
  std::uint64_t before = 0;
  ~Watcher() {
    if (armed && cuda_on_cpu::work() != before) std::_Exit(3);
  }
};
Watcher watcher;
Tensor static_tensor;  // ends before the watcher does

// One that the cache would not take, but give back to the system.
TEST(CudaProcess, AStaticTensorThatEndsCallsNothing) {
  testing::FLAGS_gtest_death_test_style = "threadsafe";
  const auto child = [] {
    constexpr std::int64_t kMiB = 1 << 18;  // elements
    static_tensor = empty({160 * kMiB}, {.device = kCuda});
    for (const std::int64_t size : {112, 128, 192, 96}) empty({size * kMiB}, {.device = kCuda});
    watcher = {true, cuda_on_cpu::work()};
    std::exit(0);
  };
  EXPECT_EXIT(child(), testing::ExitedWithCode(0), "");
}

}  // namespace
}  // namespace reel
