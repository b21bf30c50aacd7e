// Long tapes and wide ones.

#include <gtest/gtest.h>
#include <pthread.h>

#include "reel/core/memory.h"
#include "reel/core/parameter.h"
#include "reel/core/tape.h"
#include "reel/ops/arithmetic.h"
#include "reel/ops/create.h"

namespace reel {
namespace {

Tensor vector(std::initializer_list<double> values) { return tensor(values, {.dtype = f64}); }

void run_on_small_stack(void (*f)()) {
  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
  ASSERT_EQ(pthread_attr_setstacksize(&attributes, 256 << 10), 0);
  pthread_t thread;
  ASSERT_EQ(pthread_create(
                &thread, &attributes,
                [](void* call) -> void* {
                  reinterpret_cast<void (*)()>(call)();
                  return nullptr;
                },
                reinterpret_cast<void*>(f)),
            0);
  pthread_join(thread, nullptr);
  pthread_attr_destroy(&attributes);
}

TEST(Tape, AMillionOpsFitASmallStack) {
  run_on_small_stack([] {
    Parameter w(vector({1}));
    Tape tape;
    Tensor y = w.value();
    for (int i = 0; i < 1'000'000; ++i) y = y + 1;
    tape.backward(y);
    EXPECT_EQ(w.gradient().item(), 1);
  });
}

TEST(Tape, AMillionOpsEndOnASmallStackWithoutASweep) {
  run_on_small_stack([] {
    Parameter w(vector({1}));
    Tape tape;
    Tensor y = w.value();
    for (int i = 0; i < 1'000'000; ++i) y = y * 1;  // keeps its input: a chain of references
  });
  EXPECT_EQ(memory_stats().live_nodes, 0);
}

TEST(Tape, ManySiblingsOfOneTensorAddUp) {
  run_on_small_stack([] {
    Parameter w(vector({1}));
    Tape tape;
    Tensor y;
    for (int i = 0; i < 200'000; ++i) y = y.defined() ? y + w * 1 : w * 1;
    tape.backward(y);
    EXPECT_EQ(w.gradient().item(), 200'000);
  });
}

}  // namespace
}  // namespace reel
