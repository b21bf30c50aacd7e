// What is told when a custom op is built or used wrongly.

#include <gtest/gtest.h>

#include <algorithm>
#include <stdexcept>
#include <string>

#include "reel/ops/reduce.h"
#include "reel/tests/expect.h"
#include "reel/tests/ops/custom_ops.h"

namespace reel {
namespace {

TEST(CustomOp, OnlyAKernelNeedsAGpu) {
  const CustomOp op = CustomOp("gpu_only").cuda("nowhere.cu", "kernel<T>");
  EXPECT_THROW_WITH(op(ones({2})), DeviceError,
                    "gpu_only: tensors on cpu need a loop, .cpu(...), which this op was built without",
                    "custom_op_errors_test.cpp:");
}

TEST(CustomOp, ABackpropWithoutALoopSaysSo) {
  const CustomOp op = elementwise("forward", [](Inputs in, std::size_t i, auto t) {
                        return in.get<decltype(t)>(0)[i];
                      }).backprop(CustomOp("backward").cuda("nowhere.cu", "kernel<T>"));
  const Tensor x = vector({1});
  Tape tape;
  tape.watch(x);
  const Tensor y = op(x);
  EXPECT_THROW_WITH(tape.gradient(y, {x}), DeviceError, "backward of forward", "backward: tensors on cpu need a loop");
}

TEST(CustomOp, WithoutABackpropTheSweepSaysSo) {
  const CustomOp half =
      elementwise("half", [](Inputs in, std::size_t i, auto t) { return in.get<decltype(t)>(0)[i] / 2; });
  const Tensor x = vector({2});
  EXPECT_EQ(half(x).item(), 1);
  Tape tape;
  tape.watch(x);
  const Tensor y = half(x);
  EXPECT_THROW_WITH(tape.gradient(y, {x}), Error, "backward of half (recorded at ",
                    "custom_op_errors_test.cpp:", "a gradient needs .backprop(...)");
}

TEST(CustomOp, ASecondDerivativeThatIsNotThereSaysSo) {
  const auto make = [] {
    return elementwise("twice", [](Inputs in, std::size_t i, auto t) { return 2 * in.get<decltype(t)>(0)[i]; });
  };
  const CustomOp op = make().backprop(make());
  const Tensor x = vector({2});
  Tape outer;
  outer.watch(x);
  const Tensor dx = [&] {
    Tape inner;
    return inner.gradient(op(x), {x})[0];
  }();
  EXPECT_EQ(dx.item(), 2);
  EXPECT_THROW_WITH(outer.gradient(dx, {x}), Error, "backward of twice", "a gradient needs .backprop(...)");
}

TEST(CustomOp, NamesAndSourcesMustNotBeEmpty) {
  EXPECT_THROW_WITH(CustomOp(""), Error, "CustomOp: a name is required", "custom_op_errors_test.cpp:");
  EXPECT_THROW_WITH(CustomOp("cube").cuda("", "cube"), Error, "cube: a kernel needs a file",
                    "custom_op_errors_test.cpp:");
  EXPECT_THROW_WITH(CustomOp("cube").cuda("cube.cu", ""), Error, "cube: a kernel needs a name",
                    "custom_op_errors_test.cpp:");
  EXPECT_THROW_WITH(CustomOp("cube").cuda_source("", "cube"), Error, "cube: a kernel needs a source text",
                    "custom_op_errors_test.cpp:");
}

TEST(CustomOp, FunctionsMustBeThere) {
  using Rule = std::function<CustomOutput(const Inputs&)>;
  using Loop = std::function<void(const CpuContext&, Inputs, Outputs)>;
  EXPECT_THROW_WITH(CustomOp("cube").cpu(Loop()), Error, "cube: .cpu needs a function", "custom_op_errors_test.cpp:");
  EXPECT_THROW_WITH(CustomOp("cube").output(Rule()), Error, "cube: .output needs a function",
                    "custom_op_errors_test.cpp:");
  EXPECT_THROW_WITH(CustomOp("cube").grid(nullptr), Error, "cube: .grid needs a function",
                    "custom_op_errors_test.cpp:");
  EXPECT_THROW_WITH(CustomOp("cube").shared_bytes(nullptr), Error, "cube: .shared_bytes needs a function",
                    "custom_op_errors_test.cpp:");
  EXPECT_THROW_WITH(CustomOp("cube").backprop(std::function<Tensors(const CustomBackward&)>()), Error,
                    "cube: .backprop needs a function", "custom_op_errors_test.cpp:");
}

TEST(CustomOp, BlocksHaveSoManyThreads) {
  EXPECT_THROW_WITH(CustomOp("wide").by_row(0, 2048), Error, "wide: a block must have 1 to 1024 threads, got 2048",
                    "custom_op_errors_test.cpp:");
  EXPECT_THROW_WITH(CustomOp("none").by_element(0), Error, "got 0");
}

TEST(CustomOp, InputsMustGoTogether) {
  const CustomOp add = elementwise("add_both", [](Inputs in, std::size_t i, auto t) {
    return in.get<decltype(t)>(0)[i] + in.get<decltype(t)>(1)[i];
  });
  EXPECT_THROW_WITH(add(ones({2}), vector({1, 2})), DTypeError, "add_both: input 1 must be f32", "got f64",
                    "custom_op_errors_test.cpp:");
  EXPECT_THROW_WITH(add(ones({2}), Tensor()), Error, "add_both: input 1 must be defined", "custom_op_errors_test.cpp:");
  EXPECT_THROW_WITH(add(ones({2})), IndexError, "add_both: input must be in [0, 1), got 1");
}

TEST(CustomOp, ARuleMayRequireShapes) {
  const CustomOp add = elementwise("add_both", [](Inputs in, std::size_t i, auto t) {
                         return in.get<decltype(t)>(0)[i] + in.get<decltype(t)>(1)[i];
                       }).output([](const Inputs& in) {
    in.require_shape(1, in.shape(0));
    return CustomOutput{.shape = in.shape(0)};
  });
  EXPECT_EQ(add(ones({2}), ones({2})).to_vector<float>(), (std::vector<float>{2, 2}));
  EXPECT_THROW_WITH(add(ones({2}), ones({3})), ShapeError, "add_both: input 1 must", "[2]", "[3]",
                    "custom_op_errors_test.cpp:");
}

TEST(CustomOp, WrongGradientsAreToldWithTheCall) {
  const auto make = [](Tensors gradients) {
    return elementwise("wrong", [](Inputs in, std::size_t i, auto t) { return in.get<decltype(t)>(0)[i]; })
        .backprop([gradients](const CustomBackward&) { return gradients; });
  };
  const Tensor x = vector({1, 2});
  const auto gradient = [&](const CustomOp& op) {
    Tape tape;
    tape.watch(x);
    return tape.gradient(sum(op(x)), {x});
  };
  EXPECT_THROW_WITH(gradient(make({})), Error, "backward of wrong (recorded at",
                    "custom_op_errors_test.cpp:", "one gradient per input, 1, got 0");
  EXPECT_THROW_WITH(gradient(make({vector({1})})), ShapeError, "backward of wrong", "must have shape [2], got [1]");
}

TEST(CustomOp, ABackpropOpMustGiveAGradientPerFloatingInput) {
  const auto rule = [](const Inputs& in) { return CustomOutput{.shape = in.shape(0)}; };
  const auto nothing = [](const CpuContext&, Inputs, Outputs) {};
  const CustomOp op =
      CustomOp("forward", false).cpu(nothing).backprop(CustomOp("back", false).output(rule).output(rule).cpu(nothing));
  const Tensor x = vector({1});
  Tape tape;
  tape.watch(x);
  const Tensor y = op(x);
  EXPECT_THROW_WITH(tape.gradient(y, {x}), Error,
                    "back: one output per floating input of forward is required, 1, got 2");
}

TEST(CustomOp, AWriteToAnInputIsNoticed) {
  Tensor other = vector({3});
  const Tensor x = vector({3});
  const CustomOp add = elementwise("add_both", [](Inputs in, std::size_t i, auto t) {
                         return in.get<decltype(t)>(0)[i] + in.get<decltype(t)>(1)[i];
                       }).backprop([](const CustomBackward& g) {
    return Tensors{g.dy[0], g.dy[0]};
  });
  Tape tape;
  tape.watch(x);
  const Tensor y = add(x, other);
  other.fill_(1);
  EXPECT_THROW_WITH(tape.gradient(y, {x}), VersionError, "backward of add_both", "fill_");
}

TEST(CustomOp, WantsATensorAndToBeThere) {
  CustomOp op = CustomOp("copy").cpu([](const CpuContext&, Inputs in, Outputs out) {
    std::ranges::copy(in.get<float>(0), out.get<float>(0).begin());
  });
  EXPECT_THROW_WITH(op.call<Tensor>(0.5), Error, "copy: at least one tensor is required, got none");
  const CustomOp moved = std::move(op);
  EXPECT_EQ(moved(ones({2})).size(), 2);
  EXPECT_THROW_WITH(op(ones({2})), Error, "CustomOp: a call of an op that was moved from");
  EXPECT_THROW_WITH(op.gradcheck({ones({2})}), Error, "CustomOp: a call of an op that was moved from",
                    "custom_op_errors_test.cpp:");
  EXPECT_THROW_WITH(op.name(), Error, "moved from", "custom_op_errors_test.cpp:");
  EXPECT_THROW_WITH(std::move(op).by_row(0), Error, "moved from");
}

TEST(CustomOp, WhatALoopOrARuleThrowsIsToldWithTheCall) {
  struct Mine : std::runtime_error {
    using std::runtime_error::runtime_error;
  };
  const auto with_loop = [](auto loop) {
    return CustomOp("moody", false).cpu([loop](const CpuContext& cpu, Inputs, Outputs) { loop(cpu); });
  };
  const Tensor x = vector({1});
  const auto text_of = [&](const CustomOp& op) -> std::string {
    try {
      op(x);
    } catch (const Mine& error) {  // it stays what it is
      return std::string("Mine ") + error.what();
    } catch (const std::exception& error) {
      return error.what();
    }
    return "";
  };
  const auto expect_told = [](const std::string& text, const char* words) {
    EXPECT_EQ(missing_words(text, {words, "(at ", "custom_op_errors_test.cpp:"}), "") << text;
    EXPECT_EQ(text.find("moody"), text.rfind("moody")) << text;  // once
  };
  expect_told(text_of(with_loop([](const CpuContext&) { throw Mine("tired"); })), "Mine moody: tired");
  expect_told(text_of(with_loop([](const CpuContext& cpu) {
                cpu.parallel_for(100'000, [](auto, auto) { throw std::out_of_range("far"); });
              })),
              "moody: far");
  expect_told(text_of(with_loop([](const CpuContext&) { throw Error("no"); })), ": no");
  expect_told(text_of(with_loop([](const CpuContext&) { ones({3}) + ones({2}); })), "moody: add: shapes must");
  expect_told(text_of(CustomOp("moody", false)
                          .output([](const Inputs&) -> CustomOutput { throw std::logic_error("rule"); })
                          .cpu([](const CpuContext&, Inputs, Outputs) {})),
              "moody: rule");
  expect_told(text_of(CustomOp("moody", false)
                          .output([](const Inputs&) { return CustomOutput{.shape = {-3}}; })
                          .cpu([](const CpuContext&, Inputs, Outputs) {})),
              "moody: sizes must not be negative, got shape [-3]");
}

}  // namespace
}  // namespace reel
