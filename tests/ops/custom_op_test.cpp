// Custom ops with loops on the CPU. Their kernels: tests/cuda_on_cpu/custom_op_test.cpp.

#include "reel/ops/custom_op.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <thread>

#include "reel/core/pullback.h"
#include "reel/core/trace.h"
#include "reel/ops/convert.h"
#include "reel/ops/ragged.h"
#include "reel/ops/reduce.h"
#include "reel/ops/views.h"
#include "reel/tests/expect.h"
#include "reel/tests/malloc_count.h"
#include "reel/tests/ops/custom_ops.h"

namespace reel {
namespace {

TEST(CustomOp, ComputesInBothFloatingTypes) {
  const CustomOp cube = make_cube();
  EXPECT_EQ(cube(tensor({1, 2, -3})).to_vector<float>(), (std::vector<float>{1, 8, -27}));
  EXPECT_EQ(cube(vector({1, 2, -3})).to_vector<double>(), (std::vector<double>{1, 8, -27}));
  EXPECT_EQ(cube(zeros({0, 3})).shape(), Shape(0, 3));
}

TEST(CustomOp, StridedInputsAreMadeContiguous) {
  const Tensor x = transpose(reshape(arange(6, {.dtype = f64}), {2, 3}));
  EXPECT_EQ(make_cube()(x).to_vector<double>(), (std::vector<double>{0, 27, 1, 64, 8, 125}));
}

TEST(CustomOp, ABackpropThatIsACustomOpIsCheckedToSecondOrder) {
  const GradcheckReport report = make_cube().gradcheck({randn({3, 4}, {.dtype = f64})});
  EXPECT_TRUE(report) << report;
  EXPECT_EQ(report.checks, 24);
}

TEST(CustomOp, WorksOnParametersUnderATapeAndInAPullback) {
  const CustomOp cube = make_cube();
  const Parameter w(vector({2, 3}));
  {
    Tape tape;
    tape.backward(sum(cube(w)));
  }
  EXPECT_EQ(w.gradient().to_vector<double>(), (std::vector<double>{12, 27}));
  auto [y, backprop] = pullback(cube, vector({1, 2}));
  EXPECT_EQ(backprop(ones_like(y)).to_vector<double>(), (std::vector<double>{3, 12}));
}

const auto leaky_loop = []<class T>(const CpuContext&, Inputs in, Outputs out) {
  const T below = static_cast<T>(in.number(0)), above = static_cast<T>(in.integer(1));
  const auto x = in.get<T>(0);
  for (std::size_t i = 0; i < x.size(); ++i) out.get<T>(0)[i] = x[i] * (x[i] > 0 ? above : below);
};
const CustomOp leaky = CustomOp("leaky").cpu(leaky_loop).backprop([](const CustomBackward& g) {
  const Tensor positive = cast(g.in[0] > 0, g.in[0].dtype());
  return Tensors{g.dy[0] * (positive * g.number(1) + (1 - positive) * g.number(0))};
});

TEST(CustomOp, NumbersReachLoopsRulesAndGradients) {
  const Tensor x = vector({-2, 3});
  EXPECT_EQ(leaky(x, 0.5, 4).to_vector<double>(), (std::vector<double>{-1, 12}));
  Tape tape;
  tape.watch(x);
  EXPECT_EQ(tape.gradient(sum(leaky(x, 0.25, 3)), {x})[0].to_vector<double>(), (std::vector<double>{0.25, 3}));
  EXPECT_THROW_WITH(leaky(x, 0.25), IndexError, "leaky: number must be in [0, 1), got 1", "custom_op_test.cpp:");
}

// Rows' largest elements and where they are: two outputs, of which one has no gradient.
CustomOp make_row_max() {
  const auto rows = [](const Inputs& in) { return Shape{in.shape(0)[0]}; };
  return CustomOp("row_max")
      .output([rows](const Inputs& in) { return CustomOutput{.shape = rows(in)}; })
      .output([rows](const Inputs& in) { return CustomOutput{.shape = rows(in), .dtype = i64}; })
      .cpu([]<class T>(const CpuContext&, Inputs in, Outputs out) {
        const auto width = static_cast<std::size_t>(in.shape(0)[1]);
        for (std::size_t r = 0; r < out.get<T>(0).size(); ++r) {
          const auto row = in.get<T>(0).subspan(r * width, width);
          const auto most = std::max_element(row.begin(), row.end());
          out.get<T>(0)[r] = *most;
          out.get<std::int64_t>(1)[r] = most - row.begin();
        }
      })
      .backprop(CustomOp("row_max_backward").cpu([]<class T>(const CpuContext&, Inputs in, Outputs out) {
        ASSERT_EQ(in.size(), 4);  // dy, x, y, which
        const auto width = static_cast<std::size_t>(in.shape(1)[1]);
        const auto dx = out.get<T>(0);
        std::fill(dx.begin(), dx.end(), T(0));
        for (std::size_t r = 0; r < in.get<T>(0).size(); ++r)
          dx[r * width + static_cast<std::size_t>(in.get<std::int64_t>(3)[r])] = in.get<T>(0)[r];
      }));
}

TEST(CustomOp, SeveralOutputsOfDifferentTypes) {
  const CustomOp row_max = make_row_max();
  const Tensor x = tensor({1, 5, 2, 7, 3, 4}, {2, 3}, {.dtype = f64});
  Tape tape;
  tape.watch(x);
  const Tensors ys = row_max.call<Tensors>(x);
  EXPECT_EQ(ys[0].to_vector<double>(), (std::vector<double>{5, 7}));
  EXPECT_EQ(ys[1].to_vector<std::int64_t>(), (std::vector<std::int64_t>{1, 0}));
  EXPECT_EQ(tape.gradient(sum(ys[0] * vector({1, 10})), {x})[0].to_vector<double>(),
            (std::vector<double>{0, 1, 0, 10, 0, 0}));
  EXPECT_THROW_WITH(row_max(x), Error, "row_max", "needs one output, got 2", "call<Tensors>");
  EXPECT_TRUE(row_max.gradcheck({x}, {.order = 1}));
}

// Two floating outputs, of which a caller may use one: the other's gradient is zeros to the op that goes back.
TEST(CustomOp, TheGradientOfAnUnusedOutputIsZeros) {
  const auto like = [](const Inputs& in) { return CustomOutput{.shape = in.shape(0)}; };
  const CustomOp both =
      CustomOp("both")
          .output(like)
          .output(like)
          .cpu([]<class T>(const CpuContext&, Inputs in, Outputs out) {
            for (std::size_t i = 0; i < in.get<T>(0).size(); ++i) {
              out.get<T>(0)[i] = 2 * in.get<T>(0)[i];
              out.get<T>(1)[i] = 3 * in.get<T>(0)[i];
            }
          })
          .backprop(CustomOp("both_backward").cpu([]<class T>(const CpuContext&, Inputs in, Outputs out) {
            for (std::size_t i = 0; i < out.get<T>(0).size(); ++i)
              out.get<T>(0)[i] = 2 * in.get<T>(0)[i] + 3 * in.get<T>(1)[i];
          }));
  const Tensor x = vector({1, 2});
  Tape tape;
  tape.watch(x);
  const Tensors ys = both.call<Tensors>(x);
  EXPECT_EQ(tape.gradient(sum(ys[1]), {x}, {.keep = true})[0].to_vector<double>(), (std::vector<double>{3, 3}));
  EXPECT_EQ(tape.gradient(sum(ys[0] + ys[1]), {x})[0].to_vector<double>(), (std::vector<double>{5, 5}));
}

// y[i] = table[index[i]]: an input without a gradient among the inputs.
TEST(CustomOp, IntegerInputsHaveNoGradient) {
  const CustomOp pick =
      CustomOp("pick")
          .output([](const Inputs& in) { return CustomOutput{.shape = in.shape(1)}; })
          .cpu([]<class T>(const CpuContext&, Inputs in, Outputs out) {
            for (std::size_t i = 0; i < out.get<T>(0).size(); ++i)
              out.get<T>(0)[i] = in.get<T>(0)[static_cast<std::size_t>(in.get<std::int64_t>(1)[i])];
          })
          .backprop(CustomOp("pick_backward").cpu([]<class T>(const CpuContext&, Inputs in, Outputs out) {
            const auto dx = out.get<T>(0);
            std::fill(dx.begin(), dx.end(), T(0));
            for (std::size_t i = 0; i < in.get<T>(0).size(); ++i)
              dx[static_cast<std::size_t>(in.get<std::int64_t>(2)[i])] += in.get<T>(0)[i];
          }));
  const Tensor table = vector({1, 2, 3});
  Tape tape;
  tape.watch(table);
  const Tensor y = pick(table, from_vector<std::int64_t>({2, 0, 2}, {3}));
  EXPECT_EQ(y.to_vector<double>(), (std::vector<double>{3, 1, 3}));
  EXPECT_EQ(tape.gradient(sum(y), {table})[0].to_vector<double>(), (std::vector<double>{1, 0, 2}));
}

// --- ragged ---------------------------------------------------------------------------------------------------------------

// Subtracts the mean of each sequence: Ragged to Ragged.
CustomOp make_centred() {
  const auto loop = []<class T>(const CpuContext&, Inputs in, Outputs out, int from) {
    const auto offsets = in.offsets(in.is_ragged(0) ? 0 : 1);
    for (std::size_t s = 0; s + 1 < offsets.size(); ++s) {
      const auto begin = static_cast<std::size_t>(offsets[s]), end = static_cast<std::size_t>(offsets[s + 1]);
      T sum = 0;
      for (std::size_t i = begin; i < end; ++i) sum += in.get<T>(from)[i];
      for (std::size_t i = begin; i < end; ++i)
        out.get<T>(0)[i] = in.get<T>(from)[i] - sum / static_cast<T>(end - begin);
    }
  };
  // The matrix is symmetric: the gradient is the same op on dy.
  return CustomOp("centred")
      .cpu([loop]<class T>(const CpuContext& cpu, Inputs in, Outputs out) {
        loop.template operator()<T>(cpu, in, out, 0);
      })
      .backprop(CustomOp("centred_backward").cpu([loop]<class T>(const CpuContext& cpu, Inputs in, Outputs out) {
        loop.template operator()<T>(cpu, in, out, 0);
      }));
}

TEST(CustomOp, RaggedInRaggedOut) {
  const CustomOp centred = make_centred();
  const Ragged x = Ragged::from_lengths(vector({1, 2, 6, 5, 7}), {3, 0, 2});
  const Ragged y = centred(x);
  EXPECT_EQ(y.offsets().lengths(), x.offsets().lengths());
  EXPECT_EQ(y.values().to_vector<double>(), (std::vector<double>{-2, -1, 3, -1, 1}));
  const GradcheckReport report =
      gradcheck([&](const Tensor& values) { return centred(x.with(values)).values(); }, {x.values()}, {.order = 1});
  EXPECT_TRUE(report) << report;
  auto [z, backprop] = pullback(centred, x);
  EXPECT_EQ(backprop(z.with(vector({3, 0, 0, 1, 1}))).values().to_vector<double>(),
            (std::vector<double>{2, -1, -1, 0, 0}));
}

TEST(CustomOp, RaggedInTensorOutAndBack) {
  const CustomOp longest =
      CustomOp("lengths")
          .output([](const Inputs& in) {
            return CustomOutput{.shape = {static_cast<std::int64_t>(in.offsets(0).size()) - 1}, .dtype = i64};
          })
          .cpu([](const CpuContext&, Inputs in, Outputs out) {
            const auto offsets = in.offsets(0);
            for (std::size_t s = 0; s + 1 < offsets.size(); ++s)
              out.get<std::int64_t>(0)[s] = offsets[s + 1] - offsets[s];
          });
  const Ragged x = Ragged::from_lengths(vector({1, 2, 6, 5, 7}), {3, 0, 2});
  EXPECT_EQ(longest.call<Tensor>(x).to_vector<std::int64_t>(), (std::vector<std::int64_t>{3, 0, 2}));
  EXPECT_THROW_WITH(longest(x), Error, "lengths", "no Ragged", "offsets_of", "custom_op_test.cpp:");
  EXPECT_THROW_WITH(longest.call<Tensor>(x.values()), Error, "input 0 must be a Ragged");
}

TEST(CustomOp, AnOutputWithOffsetsMustHaveTheirRows) {
  const CustomOp bad = CustomOp("bad")
                           .output([](const Inputs&) { return CustomOutput{.shape = {2}, .offsets_of = 0}; })
                           .cpu([](const CpuContext&, Inputs, Outputs) {});
  EXPECT_THROW_WITH(bad(Ragged::from_lengths(vector({1, 2, 3}), {1, 2})), ShapeError, "bad", "offsets of input 0",
                    "got shape [2]");
}

TEST(CustomOp, AWarmStepCallsNoMalloc) {
  if (!malloc_is_counted()) GTEST_SKIP() << "a sanitizer stands in for malloc";
  const CustomOp cube = make_cube(), centred = make_centred();
  const Tensor x = randn({10, 10});
  const Ragged r = Ragged::from_lengths(randn({10}), {3, 0, 7});
  const auto step = [&] {
    Tape tape;
    tape.watch(x);
    tape.watch(r.values());
    const Tensor y = sum(cube(x, 0.5)) + sum(centred(r).values());
    tape.gradient(y, {x, r.values()});
  };
  for (int i = 0; i < 4; ++i) step();
  const std::int64_t before = malloc_calls();
  for (int i = 0; i < 4; ++i) step();
  EXPECT_EQ(malloc_calls(), before);
}

TEST(CustomOp, MayEndBeforeTheTapeThatRecordedIt) {
  const Tensor x = vector({3});
  Tape tape;
  tape.watch(x);
  const Tensor y = make_cube()(x);
  EXPECT_EQ(tape.gradient(y, {x})[0].item(), 27);
  EXPECT_THROW_WITH(tape.gradient(y, {x}), Error, "swept before", "cube (recorded at");
}

TEST(CustomOp, GradcheckTakesWhatACallTakes) {
  const Tensor x = vector({-2, 3});
  const GradcheckReport report = leaky.gradcheck({x, 0.25, 3});
  EXPECT_TRUE(report) << report;
  EXPECT_EQ(report.checks, 4);
  const Ragged r = Ragged::from_lengths(vector({1, 2, 6, 5, 7}), {3, 0, 2});
  const GradcheckReport ragged = make_centred().gradcheck({r}, {.order = 1});
  EXPECT_TRUE(ragged) << ragged;
  EXPECT_EQ(ragged.checks, 5);
  const Tensors list{x};
  EXPECT_TRUE(make_cube().gradcheck(list));
  EXPECT_THROW_WITH(make_cube().gradcheck({}), Error, "cube: at least one tensor is required, got none",
                    "custom_op_test.cpp:");
  EXPECT_THROW_WITH(make_cube().gradcheck({Tensor()}), Error, "cube: input 0 must be defined");
  EXPECT_THROW_WITH(leaky.gradcheck({x}), IndexError, "leaky: number must be in [0, 0), got 0");
}

TEST(CustomOp, ItsLoopIsTimedByATrace) {
  const CustomOp slow = CustomOp("slow").cpu([]<class T>(const CpuContext&, Inputs in, Outputs out) {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    std::ranges::copy(in.get<T>(0), out.get<T>(0).begin());
  });
  const Tensor x = ones({4});
  Trace trace;
  slow(x);
  ASSERT_EQ(trace.events().size(), 1u);
  EXPECT_EQ(trace.events()[0].op, "slow");
  EXPECT_GE(trace.events()[0].duration, 15e3);
}

}  // namespace
}  // namespace reel
