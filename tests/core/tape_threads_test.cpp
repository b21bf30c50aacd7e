#include <gtest/gtest.h>

#include <atomic>
#include <cmath>
#include <string>
#include <thread>
#include <vector>

#include "reel/core/memory.h"
#include "reel/core/parameter.h"
#include "reel/core/tape.h"
#include "reel/ops/arithmetic.h"
#include "reel/ops/attention.h"
#include "reel/ops/create.h"
#include "reel/ops/reduce.h"
#include "reel/ops/softmax.h"
#include "reel/tests/error_of.h"
#include "reel/tests/expect.h"

namespace reel {
namespace {

Tensor vector(std::initializer_list<double> values) { return tensor(values, {.dtype = f64}); }

TEST(TapeThreads, EachThreadHasItsOwnTape) {
  Parameter w(vector({2}));
  Tape tape;
  const Tensor y = w * w;
  std::thread([&] {
    EXPECT_FALSE(is_recording());
    Parameter v(vector({3}));
    Tape own;
    own.backward(v * v);
    EXPECT_EQ(v.gradient().item(), 6);
  }).join();
  tape.backward(y);
  EXPECT_EQ(w.gradient().item(), 4);
}

TEST(TapeThreads, ATensorOfAnotherThreadsLiveTapeIsRefused) {
  Parameter w(vector({2}));
  Tape tape;
  const Tensor y = w * w;
  std::thread([&] {
    EXPECT_EQ((y * 2).item(), 8);  // without a tape it is a value like any other
    Parameter v(vector({3}));
    Tape own;
    EXPECT_THROW_WITH(v * y, Error, "mul", "live tape of another thread");
  }).join();
}

TEST(TapeThreads, OpsThatAskWhetherAnInputIsTrackedRefuseItUnderTheirOwnNames) {
  const Parameter w(ones({2, 64}));
  Tape tape;
  const Tensor logits = w * 2.0, mask = w * 3.0;
  std::thread([&] {
    Tape own;
    EXPECT_THROW_WITH(cross_entropy(logits, zeros({2}, {.dtype = i64})), Error,
                      "cross_entropy: ", "live tape of another thread");
    const Tensor q = ones({2, 4}), k = ones({64, 4});
    EXPECT_THROW_WITH(scaled_dot_product_attention(q, k, k, {.mask = mask}), Error,
                      "scaled_dot_product_attention: ", "live tape of another thread");
  }).join();
}

TEST(TapeThreads, ATapeIsRefusedInAnotherThread) {
  const Parameter w(ones({2}));
  Tape tape;
  const Tensor loss = sum(w * 2.0);
  std::string said;
  std::thread([&] { said = error_of([&] { tape.backward(loss); }); }).join();
  EXPECT_NE(said.find("backward: a tape must be used in the thread that made it"), std::string::npos) << said;
  EXPECT_FALSE(w.has_gradient());
}

TEST(TapeThreads, WhatEndsWithAThreadMayUseATapeStill) {
  static double gradient;
  struct Late {
    Parameter p{tensor({3})};
    ~Late() {
      Tape tape;
      tape.backward(sum(p * p));
      gradient = p.gradient().item();
    }
  };
  std::thread([] {
    thread_local Late late;  // made before the thread's first tape, and so it ends after that
    Tape tape;
    tape.backward(sum(late.p * 2.0));
  }).join();
  EXPECT_EQ(gradient, 8);
}

TEST(TapeThreads, TensorsMayEndInAnotherThread) {
  for (int i = 0; i < 50; ++i) {
    Tensor big = ones({1000, 10}, {.dtype = f64});
    std::thread([moved = std::move(big)]() mutable {
      EXPECT_EQ(sum(moved).item(), 10000);
      moved = Tensor();
    }).join();
  }
}

TEST(TapeThreads, ManyThreadsTrainTheirOwnParametersAtOnce) {
  std::vector<std::thread> threads;
  std::vector<double> results(8);
  for (int t = 0; t < 8; ++t)
    threads.emplace_back([t, &results] {
      Parameter w(vector({double(t)}));
      for (int step = 0; step < 100; ++step) {
        Tape tape;
        tape.backward(w * w);
        w.set_value(untaped([&] { return w - 0.1 * w.gradient(); }));
        w.clear_gradient();
      }
      results[static_cast<std::size_t>(t)] = w.value().item();
    });
  for (std::thread& thread : threads) thread.join();
  for (int t = 0; t < 8; ++t) EXPECT_NEAR(results[static_cast<std::size_t>(t)], t * std::pow(0.8, 100), 1e-12);
}

TEST(TapeThreads, SweepsOfSeveralThreadsAddToTheSameParameters) {
  Parameter a(vector({2})), b(vector({3}));
  flatten_parameters({a, b});
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&] {
      for (int i = 0; i < 100; ++i) {
        Tape tape;
        tape.backward(a * b);
      }
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(a.gradient().item(), 400 * 3);
  EXPECT_EQ(b.gradient().item(), 400 * 2);
}

TEST(TapeThreads, TheFirstSweepsToAParameterMayMeet) {
  for (int round = 0; round < 300; ++round) {
    Parameter w(vector({1}));  // in no buffer yet
    std::atomic<int> ready{0};
    const auto work = [&] {
      Tape tape;
      const Tensor y = w * w;
      ++ready;
      for (int spins = 0; ready < 2; ++spins)  // as closely together as can be, and not for long on a busy machine
        if (spins > 10'000) std::this_thread::yield();
      tape.backward(y);
    };
    std::thread first(work), second(work);
    first.join();
    second.join();
    ASSERT_EQ(w.gradient().item(), 4) << "round " << round;
  }
}

}  // namespace
}  // namespace reel
