// record() as users meet it: several outputs, inputs and outputs without gradients, and callbacks that are wrong.

#include <gtest/gtest.h>

#include <stdexcept>

#include "reel/core/parameter.h"
#include "reel/core/tape.h"
#include "reel/ops/arithmetic.h"
#include "reel/ops/convert.h"
#include "reel/ops/create.h"
#include "reel/ops/index.h"
#include "reel/ops/reduce.h"
#include "reel/ops/unary.h"
#include "reel/ops/views.h"
#include "reel/tests/expect.h"

namespace reel {
namespace {

Tensor vector(std::initializer_list<double> values) { return tensor(values, {.dtype = f64}); }
const auto same = [](const Tensor& dy) { return dy; };

TEST(Record, IntegerInputsNeedNoGradient) {
  const Parameter table(vector({1, 2, 3}));
  const Tensor index = from_vector<std::int64_t>({2, 0, 2}, {3});
  const auto pick = [&] {
    return record("pick", {table, index}, untaped([&] { return index_select(table, 0, index); }),
                  [index](const Tensor& dy, Needed needed) {
                    EXPECT_TRUE(needed[0]);
                    EXPECT_FALSE(needed[1]);
                    const Tensor rows = untaped([&] { return arange(3, {.dtype = i64}); });
                    const Tensor hits = cast(reshape(index, {3, 1}) == rows, f64);
                    return Tensors{sum(reshape(dy, {3, 1}) * hits, 0), Tensor()};
                  });
  };
  Tape tape;
  tape.backward(sum(pick() * vector({1, 10, 100})));
  EXPECT_EQ(table.gradient().to_vector<double>(), (std::vector<double>{10, 0, 101}));
}

TEST(Record, IntegerOutputsAreConstants) {
  const Parameter w(vector({3, 1, 2}));
  const auto largest = [&] {
    return record("largest", {w}, untaped([&] {
                    return Tensors{max(w, 0), argmax(w, 0)};
                  }),
                  [](const Tensors& dys) {
                    EXPECT_TRUE(dys[0].defined());
                    EXPECT_FALSE(dys[1].defined());
                    return dys[0] * vector({1, 0, 0});
                  });
  };
  Tape tape;
  const Tensors ys = largest();
  EXPECT_TRUE(is_tracked(ys[0]));
  EXPECT_FALSE(is_tracked(ys[1]));
  tape.backward(ys[0] * cast(ys[1] + 5, f64));
  EXPECT_EQ(w.gradient().to_vector<double>(), (std::vector<double>{5, 0, 0}));
}

TEST(Record, AnUndefinedGradientOfANeededInputIsNone) {
  const Tensor x = vector({2});
  Tape tape;
  tape.watch(x);
  const Tensor y = record("nothing", {x}, untaped([&] { return x * 1; }), [](const Tensor&) { return Tensor(); });
  EXPECT_EQ(tape.gradient(y + x * 3, {x})[0].item(), 3);
}

TEST(Record, OneInputTwiceGetsBothGradients) {
  const Tensor x = vector({2});
  Tape tape;
  tape.watch(x);
  const Tensor y = record("square", {x, x}, untaped([&] { return x * x; }), [x](const Tensor& dy) {
    return Tensors{dy * x, dy * x};
  });
  EXPECT_EQ(tape.gradient(y, {x})[0].item(), 4);
}

TEST(Record, OutputsMustNotBeOneOfManyInputs) {
  const Tensor x = vector({1});
  Tape tape;
  tape.watch(x);
  Tensors inputs{x};
  untaped([&] {
    for (int i = 0; i < 40; ++i) inputs.push_back(x * i);
  });
  const auto callback = [](const Tensor&) { return Tensors(); };
  for (const int i : {1, 20, 40})
    EXPECT_THROW_WITH(record("same", inputs, inputs[i], callback), Error,
                      "same: record needs outputs that are not inputs");
  EXPECT_EQ(record("other", inputs, untaped([&] { return x * 2; }), callback).item(), 2);
}

TEST(Record, TheOpMustHaveAName) {
  const Parameter w(vector({1, 2}));
  const Tensor y = vector({1, 2});
  Tape tape;
  EXPECT_THROW_WITH(record("", {w}, y, same), Error, "record: the op must have a name", "record_test.cpp:");
}

TEST(Record, OutputsMustDiffer) {
  const Parameter w(vector({1, 2}));
  const Tensor y = vector({1, 2});
  const auto both = [](const Tensors& dys) { return dys[0] + dys[1]; };
  Tape tape;
  EXPECT_THROW_WITH(record("twins", {w}, Tensors{y, y}, both), Error, "twins: record needs outputs that differ",
                    "record_test.cpp:");
  record("twins", {w}, Tensors{y, vector({3, 4})}, both);
}

TEST(Record, OutputsMustNotBeInputs) {
  const Parameter w(vector({2}));
  const Tensor constant = vector({3});
  Tape tape;
  EXPECT_THROW_WITH(record("itself", {w, constant}, constant, same), Error, "itself", "not inputs", "record_test.cpp");
  EXPECT_THROW_WITH(record("nothing", {w}, Tensor(), same), Error, "nothing", "defined", "record_test.cpp");
}

TEST(Record, WrongGradientsNameTheOpTheInputAndTheLine) {
  const Parameter w(vector({2, 3})), v(vector({4}));
  const auto sweep = [&](Tensors gradients) {
    Tape tape;
    tape.backward(
        record("pair", {w, v}, untaped([&] { return sum(w * v); }), [gradients](const Tensor&) { return gradients; }));
  };
  const char* line = "backward of pair (recorded at ";
  EXPECT_THROW_WITH(sweep({zeros({2}, {.dtype = f64})}), Error, line,
                    "record_test.cpp:", "must return one gradient per input, 2, got 1");
  EXPECT_THROW_WITH(sweep({Tensor(), zeros({2}, {.dtype = f64})}), ShapeError, line,
                    "record_test.cpp:", "the gradient of input 1 must have shape [1], got [2]");
  EXPECT_THROW_WITH(sweep({zeros({2}), Tensor()}), DTypeError, line, "the gradient of input 0 must be f64, got f32");
  EXPECT_FALSE(w.has_gradient() || v.has_gradient());
  sweep({zeros({2}, {.dtype = f64}), zeros({1}, {.dtype = f64})});
  EXPECT_TRUE(w.has_gradient() && v.has_gradient());
}

TEST(Record, ASingleGradientForSeveralInputsSaysSo) {
  const Parameter w(vector({2})), v(vector({4}));
  Tape tape;
  const Tensor y = record("pair", {w, v}, untaped([&] { return w * v; }), same);
  EXPECT_THROW_WITH(tape.backward(y), Error, "backward of pair", "one gradient per input, 2, got 1");
}

// The tape can be swept again: what threw has kept its callback.
TEST(Record, ACallbackThatThrowsLeavesGradientsAndTapeAsTheyWere) {
  const Parameter w(vector({2})), v(vector({3}));
  bool broken = true;
  Tape tape;
  const Tensor y = record("sometimes", {w}, untaped([&] { return w * 5; }), [&](const Tensor& dy) {
    if (broken) throw std::runtime_error("out of luck");
    return dy * 5;
  });
  const Tensor total = y + v * v;
  EXPECT_THROW(tape.backward(total, {.keep = true}), std::runtime_error);
  EXPECT_FALSE(w.has_gradient() || v.has_gradient());
  broken = false;
  tape.backward(total);
  EXPECT_EQ(w.gradient().item(), 5);
  EXPECT_EQ(v.gradient().item(), 6);
}

TEST(Record, ErrorsInsideTheCallbackAreToldWithTheForwardCall) {
  const Parameter w(vector({2, 3}));
  Tape tape;
  const Tensor y = record("outer_name", {w}, untaped([&] { return sum(w * 1); }), [](const Tensor& dy) {
    return dy + vector({1, 2, 3}) + vector({1, 2});
  });
  EXPECT_THROW_WITH(tape.backward(y), ShapeError, "backward of outer_name (recorded at ", "add", "[3]", "[2]");
}

TEST(Record, EachSavedTensorIsChecked) {
  const Parameter w(vector({2}));
  for (const bool write_output : {false, true}) {
    Tensor kept = vector({3});
    Tape tape;
    const Tensor y = record("keeps", {w}, untaped([&] { return w * kept; }), saved(kept, w),
                            [kept](const Tensor& dy) { return dy * kept; });
    if (!write_output) {
      tape.backward(y);
      EXPECT_EQ(w.gradient().item(), 3);
      continue;
    }
    kept.fill_(1);
    EXPECT_THROW_WITH(tape.backward(y), VersionError, "backward of keeps", "a tensor of shape [1]", "fill_",
                      "record_test.cpp:");
  }
}

TEST(Record, ManyInputsAndOutputs) {
  Tensors xs, ys;
  for (int i = 0; i < 20; ++i) xs.push_back(vector({double(i)}));
  Tape tape;
  for (const Tensor& x : xs) tape.watch(x);
  untaped([&] {
    for (const Tensor& x : xs) ys.push_back(x * 2);
  });
  record("double_all", xs, ys, [](const Tensors& dys) {
    Tensors dxs;
    for (const Tensor& dy : dys) dxs.push_back(dy.defined() ? dy * 2 : dy);
    return dxs;
  });
  const Tensors g = tape.gradient(ys[3] + ys[19] * 4, xs);
  for (int i = 0; i < 20; ++i) EXPECT_EQ(g[static_cast<std::size_t>(i)].item(), i == 3 ? 2 : i == 19 ? 8 : 0) << i;
}

// A callback for one gradient would get that of the first output alone, and lose the others without a word.
TEST(Record, SeveralOutputsNeedACallbackThatTakesTheirGradients) {
  const Tensor x = ones({2});
  Tape tape;
  tape.watch(x);
  const Tensors ys = untaped([&] { return Tensors{x + 1, x * 2}; });
  EXPECT_THROW_WITH(record("two", {x}, ys, [](const Tensor& dy) { return dy; }), Error,
                    "two: record of 2 outputs needs a callback that takes their gradients, const Tensors& dys",
                    "record_test.cpp:");
  EXPECT_THROW_WITH(record("two", {x}, ys, [](const Tensor& dy, Needed) { return Tensors{dy}; }), Error, "two: record");
  record("two", {x}, ys, [](const Tensors& dys) { return dys[0] + dys[1] * 2; });
  EXPECT_EQ(tape.gradient(sum(ys[0] + ys[1]), {x})[0].to_vector<float>(), (std::vector<float>{3, 3}));
}

TEST(Record, OneOpMayHaveMoreInputsAndOutputsThanSixteenBitsCount) {
  constexpr std::size_t kMany = 70'000;
  const Tensor x = vector({2}), y = vector({3});
  std::vector<Tensor> many(kMany, x);
  many.back() = y;
  Tape tape;
  tape.watch(x);
  tape.watch(y);
  const Tensors stacked = tape.gradient(sum(stack(Tensors(many))), {x, y});
  EXPECT_EQ(stacked[0].item(), kMany - 1);
  EXPECT_EQ(stacked[1].item(), 1);

  std::vector<Tensor> outputs;
  untaped([&] {
    for (const Tensor& input : many) outputs.push_back(clone(input));
  });
  record("copies", Tensors(many), Tensors(outputs), [](const Tensors& dys) { return dys; });
  const Tensors copied = tape.gradient(outputs[kMany - 2] * 5 + outputs[kMany - 1] * 7, {x, y});
  EXPECT_EQ(copied[0].item(), 5);
  EXPECT_EQ(copied[1].item(), 7);
}

}  // namespace
}  // namespace reel
