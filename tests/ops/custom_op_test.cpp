// Custom ops with loops on the CPU. Their kernels: tests/cuda_on_cpu/custom_op_test.cpp.

#include "reel/ops/custom_op.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <thread>

#include "reel/core/pullback.h"
#include "reel/core/trace.h"
#include "reel/ops/arithmetic.h"
#include "reel/ops/convert.h"
#include "reel/ops/create.h"
#include "reel/ops/index.h"
#include "reel/ops/matmul.h"
#include "reel/ops/ragged.h"
#include "reel/ops/reduce.h"
#include "reel/ops/unary.h"
#include "reel/ops/views.h"
#include "reel/tests/expect.h"
#include "reel/tests/malloc_count.h"

namespace reel {
namespace {

Tensor vector(std::initializer_list<double> values) { return tensor(values, {.dtype = f64}); }

// y[i] = f(inputs at i). Here and below, ops that are wrong on purpose are not checked at their first call.
template <class F>
CustomOp elementwise(const char* name, F f) {
  return CustomOp(name, false).cpu([f]<class T>(const CpuContext& cpu, Inputs in, Outputs out) {
    cpu.parallel_for(out.elements(0), [&](auto begin, auto end) {
      for (auto i = begin; i < end; ++i)
        out.get<T>(0)[static_cast<std::size_t>(i)] = f(in, static_cast<std::size_t>(i), T());
    });
  });
}

// x^3 with its gradient to third order, each op the backprop of the one before.
CustomOp make_cube() {
  return elementwise("cube",
                     [](Inputs in, std::size_t i, auto t) {
                       const auto x = in.get<decltype(t)>(0)[i];
                       return x * x * x;
                     })
      .backprop(elementwise("cube_backward", [](Inputs in, std::size_t i, auto t) {
                  const auto x = in.get<decltype(t)>(1)[i];
                  return 3 * in.get<decltype(t)>(0)[i] * x * x;
                }).backprop([](const CustomBackward& g) {
        return Tensors{3 * g.dy[0] * g.in[1] * g.in[1], 6 * g.dy[0] * g.in[0] * g.in[1], Tensor()};
      }));
}

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

TEST(CustomOp, WithoutABackpropTheSweepSaysSo) {
  const CustomOp half =
      elementwise("half", [](Inputs in, std::size_t i, auto t) { return in.get<decltype(t)>(0)[i] / 2; });
  const Tensor x = vector({2});
  EXPECT_EQ(half(x).item(), 1);
  Tape tape;
  tape.watch(x);
  const Tensor y = half(x);
  EXPECT_THROW_WITH(tape.gradient(y, {x}), Error, "backward of half (recorded at ",
                    "custom_op_test.cpp:", "a gradient needs .backprop(...)");
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

// --- the check of the first call ------------------------------------------------------------------------------------------

CustomOp square_with(double factor, bool check) {
  return elementwise("square",
                     [](Inputs in, std::size_t i, auto t) {
                       const auto x = in.get<decltype(t)>(0)[i];
                       return x * x;
                     })
      .backprop([factor](const CustomBackward& g) { return Tensors{factor * g.dy[0] * g.in[0]}; })
      .check(check);
}

TEST(CustomOpCheck, AWrongGradientIsToldAtTheFirstCall) {
  const Tensor x = randn({20, 30});
  square_with(2, true)(x);
  const CustomOp wrong = square_with(3, true);
  for (int call = 0; call < 2; ++call)  // and again
    EXPECT_THROW_WITH(wrong(x), Error, "check of the first call",
                      "square: backprop must give the gradient of the forward", "input 0 at [", "analytic", "numeric",
                      "custom_op_test.cpp:");
  EXPECT_EQ(square_with(3, false)(x).shape(), x.shape());
}

TEST(CustomOpCheck, IsOnInDebugBuilds) {
#if defined(NDEBUG)
  EXPECT_FALSE(detail::kCheckCustomOps);
#else
  EXPECT_TRUE(detail::kCheckCustomOps);
#endif
}

TEST(CustomOpCheck, LooksAtFewElementsOfLargeInputsOnceAndLeavesTheTapeAlone) {
  std::vector<std::int64_t> sizes;
  const CustomOp op = CustomOp("seen", true)
                          .cpu([&sizes]<class T>(const CpuContext&, Inputs in, Outputs out) {
                            sizes.push_back(in.elements(0));
                            for (std::size_t i = 0; i < out.get<T>(0).size(); ++i)
                              out.get<T>(0)[i] = in.get<T>(0)[i] * 2;
                          })
                          .backprop([](const CustomBackward& g) { return Tensors{g.dy[0] * 2}; });
  const Tensor x = ones({1000, 7});
  Tape tape;
  tape.watch(x);
  const Tensor y = op(x);
  EXPECT_EQ(tape.gradient(sum(y), {x})[0].to_vector<float>(), std::vector<float>(7000, 2));
  ASSERT_GT(sizes.size(), 100u);
  EXPECT_EQ(sizes.back(), 7000);
  sizes.pop_back();
  for (const std::int64_t size : sizes) EXPECT_EQ(size, 63);
  sizes.clear();
  op(x);
  EXPECT_EQ(sizes, (std::vector<std::int64_t>{7000}));
}

// Copies all elements but those before `first`, into outputs of `dtype`, with or without a backprop.
CustomOp lazy_copy(std::size_t first, bool check) {
  return CustomOp("lazy", check)
      .output([](const Inputs& in) { return CustomOutput{.shape = in.shape(0)}; })
      .output([](const Inputs& in) { return CustomOutput{.shape = in.shape(0), .dtype = i64}; })
      .cpu([first]<class T>(const CpuContext&, Inputs in, Outputs out) {
        for (std::size_t i = 0; i < in.get<T>(0).size(); ++i) out.get<T>(0)[i] = in.get<T>(0)[i];
        for (std::size_t i = first; i < in.get<T>(0).size(); ++i) out.get<std::int64_t>(1)[i] = 7;
      });
}

TEST(CustomOpCheck, AnElementThatIsNotWrittenIsFound) {
  for (int call = 0; call < 2; ++call)  // and again
    EXPECT_THROW_WITH(lazy_copy(2, true).call<Tensors>(ones({4, 2})), Error,
                      "lazy: every element of output 1, of shape [4, 2], must be written by the loop (memory is not 0 "
                      "before), got 2 that are not, the first at [0, 0]",
                      "custom_op_test.cpp:");
  EXPECT_EQ(lazy_copy(0, true).call<Tensors>(tensor({NAN, 2})).size(), 2u);
  EXPECT_EQ(lazy_copy(0, true).call<Tensors>(ones({0})).size(), 2u);
  EXPECT_EQ(lazy_copy(1, false).call<Tensors>(ones({4})).size(), 2u);
  EXPECT_THROW_WITH(lazy_copy(1, false).gradcheck({vector({1, 2})}), Error, "lazy: every element of output 1");
}

TEST(CustomOpCheck, WhatIsAddedToAsIfItWereZeroIsFound) {
  const auto make = [](bool check) {
    return CustomOp("adds", check).cpu([]<class T>(const CpuContext&, Inputs in, Outputs out) {
      for (std::size_t i = 0; i < in.get<T>(0).size(); ++i) out.get<T>(0)[i] += in.get<T>(0)[i];
    });
  };
  EXPECT_THROW_WITH(make(true)(ones({3})), Error, "adds: every element of output 0", "got 3 that are not");
  EXPECT_THROW_WITH(make(true)(vector({1, 2})), Error, "adds: every element of output 0", "got 2 that are not");
  const CustomOp back = elementwise("copy", [](Inputs in, std::size_t i, auto t) {
                          return in.get<decltype(t)>(0)[i];
                        }).backprop(make(true));
  const Tensor x = vector({1, 2});
  Tape tape;
  tape.watch(x);
  const Tensor y = sum(back(x));
  EXPECT_THROW_WITH(tape.gradient(y, {x}), Error, "backward of copy", "adds: every element of output 0");
}

// log(x) with its gradient times `factor`.
CustomOp make_log(double factor) {
  return elementwise("my_log", [](Inputs in, std::size_t i, auto t) { return std::log(in.get<decltype(t)>(0)[i]); })
      .backprop([factor](const CustomBackward& g) { return Tensors{factor * g.dy[0] / g.in[0]}; })
      .check(true);
}

TEST(CustomOpCheck, AtTheEdgeOfTheDomainItWaitsForAnotherCall) {
  EXPECT_EQ(make_log(1)(vector({0})).item(), -INFINITY);
  EXPECT_TRUE(std::isnan(make_log(1)(vector({-1})).item()));
  const CustomOp wrong = make_log(2);
  EXPECT_EQ(wrong(vector({0})).item(), -INFINITY);
  EXPECT_THROW_WITH(wrong(vector({3})), Error, "my_log: backprop must give the gradient", "2 times as much");
  const CustomOp floor = elementwise("my_floor", [](Inputs in, std::size_t i, auto t) {
                           return std::floor(in.get<decltype(t)>(0)[i]);
                         }).backprop([](const CustomBackward& g) {
                             return Tensors{0 * g.dy[0]};
                           }).check(true);
  EXPECT_EQ(floor(vector({2})).item(), 2);
}

// y = x a + b with x [rows, n], a [n, m], b [m], its backprop times `factor`; keeps the sizes of what it was called with.
CustomOp make_affine(std::vector<std::int64_t>* sizes, double factor, bool particular = false) {
  return CustomOp("affine", true)
      .output([particular](const Inputs& in) {
        if (particular) in.require_shape(1, {30, 50});
        in.require_shape(1, {in.shape(0)[1], in.shape(2)[0]});
        return CustomOutput{.shape = {in.shape(0)[0], in.shape(1)[1]}};
      })
      .cpu([sizes]<class T>(const CpuContext&, Inputs in, Outputs out) {
        for (int i = 0; i < in.size(); ++i) sizes->push_back(in.elements(i));
        const auto rows = static_cast<std::size_t>(in.shape(0)[0]), n = static_cast<std::size_t>(in.shape(0)[1]),
                   m = static_cast<std::size_t>(in.shape(1)[1]);
        for (std::size_t r = 0; r < rows; ++r)
          for (std::size_t j = 0; j < m; ++j) {
            T sum = in.get<T>(2)[j];
            for (std::size_t k = 0; k < n; ++k) sum += in.get<T>(0)[r * n + k] * in.get<T>(1)[k * m + j];
            out.get<T>(0)[r * m + j] = sum;
          }
      })
      .backprop([factor](const CustomBackward& g) {
        return Tensors{matmul(g.dy[0], transpose(g.in[1])), factor * matmul(transpose(g.in[0]), g.dy[0]),
                       sum(g.dy[0], 0)};
      });
}

TEST(CustomOpCheck, InputsOfOtherShapesAreCutWhereTheirLengthsAgree) {
  std::vector<std::int64_t> sizes;
  const Tensor x = randn({40, 30}), a = randn({30, 50}), b = randn({50});
  EXPECT_EQ(make_affine(&sizes, 1)(x, a, b).shape(), Shape(40, 50));
  EXPECT_GT(sizes.size(), 30u);
  for (std::size_t i = 0; i + 6 < sizes.size(); ++i) EXPECT_LE(sizes[i], 64) << i;  // the call itself runs last
  EXPECT_THROW_WITH(make_affine(&sizes, 2)(x, a, b), Error, "affine: backprop must give the gradient");
  // Where a rule refuses the cut, all is taken.
  sizes.clear();
  make_affine(&sizes, 1, true)(x, a, b);
  EXPECT_EQ(*std::max_element(sizes.begin(), sizes.end() - 6), 1500);
  EXPECT_THROW_WITH(make_affine(&sizes, 2, true)(x, a, b), Error, "affine: backprop must give the gradient");
}

TEST(CustomOpCheck, WhatIntegersMayReferToIsNotCut) {
  std::int64_t least = 1000;
  const auto make = [&least](bool table) {
    return CustomOp("gathered", true)
        .output([table](const Inputs& in) { return CustomOutput{.shape = in.shape(table ? 1 : 0)}; })
        .cpu([&least, table]<class T>(const CpuContext&, Inputs in, Outputs out) {
          least = std::min(least, in.elements(0));
          for (std::size_t i = 0; i < out.get<T>(0).size(); ++i)
            out.get<T>(0)[i] =
                in.get<T>(0)[static_cast<std::size_t>(table ? in.get<std::int64_t>(1)[i] : in.integer(0) - 1)];
        })
        .backprop([table](const CustomBackward& g) {
          Tensor dx = zeros_like(g.in[0]);
          if (!table) return Tensors{dx};
          return Tensors{scatter_add(dx, 0, g.in[1], g.dy[0]), Tensor()};
        });
  };
  EXPECT_EQ(make(true)(randn({900}), full({100}, 899, {.dtype = i64})).size(), 100);
  EXPECT_EQ(least, 900);
  EXPECT_THROW_WITH(make(false)(randn({900}), 900), Error, "gathered: backprop must give the gradient");
  EXPECT_EQ(least, 900);
}

TEST(CustomOpCheck, SequencesAreCutToo) {
  std::int64_t most = 0;
  const auto make = [&most](double factor) {
    const auto loop = [&most]<class T>(const CpuContext&, Inputs in, Outputs out) {  // x times a number per sequence
      const auto offsets = in.offsets(0);
      ASSERT_EQ(in.elements(1), static_cast<std::int64_t>(offsets.size()) - 1);
      ASSERT_EQ(in.shape(0)[0], offsets.back());
      if (in.elements(0) < 5000) most = std::max(most, in.elements(0));
      for (std::size_t s = 0; s + 1 < offsets.size(); ++s)
        for (auto i = static_cast<std::size_t>(offsets[s]); i < static_cast<std::size_t>(offsets[s + 1]); ++i)
          for (std::size_t j = 0; j < 5; ++j) out.get<T>(0)[i * 5 + j] = in.get<T>(0)[i * 5 + j] * in.get<T>(1)[s];
    };
    return CustomOp("scaled", true).cpu(loop).backprop([factor](const CustomBackward& g) {
      const Ragged x = g.ragged(0), dy = x.with(g.dy[0]);
      return Tensors{factor * (dy * reshape(g.in[1], {-1, 1})).values(), sum(sum(x * dy), -1)};
    });
  };
  const Ragged x = Ragged::from_lengths(randn({1000, 5}), {600, 0, 300, 50, 50, 0});
  EXPECT_EQ(make(1)(x, ones({6})).count(), 6);
  EXPECT_GT(most, 20);
  EXPECT_LE(most, 64);
  EXPECT_THROW_WITH(make(2)(x, ones({6})), Error, "scaled: backprop must give the gradient");
  most = 0;  // as many sequences as columns: which of the two an axis means is not known, and all is taken
  make(1)(Ragged::from_lengths(randn({900, 5}), {600, 0, 300, 0, 0}), ones({5}));
  EXPECT_EQ(most, 4500);
}

TEST(CustomOpCheck, ALoopForOneTypeSaysThatItCannotBeChecked) {
  const auto make = [](bool check) {
    return CustomOp("single", check)
        .cpu([](const CpuContext&, Inputs in, Outputs out) { out.get<float>(0)[0] = 2 * in.get<float>(0)[0]; })
        .backprop([](const CustomBackward& g) { return Tensors{g.dy[0] * 2}; });
  };
  EXPECT_THROW_WITH(make(true)(ones({1})), DTypeError, "check of the first call, in f64 (.check(false) leaves it out)",
                    "single: input 0 is f64, but its loop asks for f32");
  EXPECT_EQ(make(false)(ones({1})).item(), 2);
}

// --- errors ---------------------------------------------------------------------------------------------------------------

TEST(CustomOp, OnlyAKernelNeedsAGpu) {
  const CustomOp op = CustomOp("gpu_only").cuda("nowhere.cu", "kernel<T>");
  EXPECT_THROW_WITH(op(ones({2})), DeviceError,
                    "gpu_only: tensors on cpu need a loop, .cpu(...), which this op was built without",
                    "custom_op_test.cpp:");
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

TEST(CustomOp, BlocksHaveSoManyThreads) {
  EXPECT_THROW_WITH(CustomOp("wide").by_row(0, 2048), Error, "wide: a block must have 1 to 1024 threads, got 2048",
                    "custom_op_test.cpp:");
  EXPECT_THROW_WITH(CustomOp("none").by_element(0), Error, "got 0");
}

TEST(CustomOp, InputsMustGoTogether) {
  const CustomOp add = elementwise("add_both", [](Inputs in, std::size_t i, auto t) {
    return in.get<decltype(t)>(0)[i] + in.get<decltype(t)>(1)[i];
  });
  EXPECT_THROW_WITH(add(ones({2}), vector({1, 2})), DTypeError, "add_both: input 1 must be f32", "got f64",
                    "custom_op_test.cpp:");
  EXPECT_THROW_WITH(add(ones({2}), Tensor()), Error, "add_both: input 1 must be defined", "custom_op_test.cpp:");
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
                    "custom_op_test.cpp:");
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
                    "custom_op_test.cpp:", "one gradient per input, 1, got 0");
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

TEST(CustomOp, MayEndBeforeTheTapeThatRecordedIt) {
  const Tensor x = vector({3});
  Tape tape;
  tape.watch(x);
  const Tensor y = make_cube()(x);
  EXPECT_EQ(tape.gradient(y, {x})[0].item(), 27);
  EXPECT_THROW_WITH(tape.gradient(y, {x}), Error, "swept before", "cube (recorded at");
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

TEST(CustomOp, WhatIsBuiltUponACopyIsAnotherOp) {
  const auto times = [](int factor) {
    return [factor]<class T>(const CpuContext&, Inputs in, Outputs out) {
      for (std::size_t i = 0; i < in.get<T>(0).size(); ++i) out.get<T>(0)[i] = factor * in.get<T>(0)[i];
    };
  };
  const auto gradient = [](double factor) {
    return [factor](const CustomBackward& g) { return Tensors{factor * g.dy[0]}; };
  };
  const CustomOp base = CustomOp("base", true).cpu(times(2)).backprop(gradient(2));
  const Tensor x = vector({1});
  EXPECT_EQ(base(x).item(), 2);
  const CustomOp other = CustomOp(base).cpu(times(3));
  EXPECT_EQ(base(x).item(), 2);
  EXPECT_THROW_WITH(other(x), Error, "base: backprop must give the gradient");  // checked anew
  const CustomOp right = CustomOp(other).backprop(gradient(3));
  EXPECT_EQ(right(x).item(), 3);
  EXPECT_TRUE(right.gradcheck({x}));
  const CustomOp by_op = CustomOp(base).backprop(CustomOp("back", false).cpu(times(5)));
  EXPECT_FALSE(by_op.gradcheck({x}, {.order = 1}));  // not the function of before
  EXPECT_TRUE(CustomOp(by_op).backprop(gradient(2)).gradcheck({x}));
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

TEST(CustomOp, WantsATensorAndToBeThere) {
  CustomOp op = CustomOp("copy").cpu([](const CpuContext&, Inputs in, Outputs out) {
    std::ranges::copy(in.get<float>(0), out.get<float>(0).begin());
  });
  EXPECT_THROW_WITH(op.call<Tensor>(0.5), Error, "copy: at least one tensor is required, got none");
  const CustomOp moved = std::move(op);
  EXPECT_EQ(moved(ones({2})).size(), 2);
  EXPECT_THROW_WITH(op(ones({2})), Error, "CustomOp: a call of an op that was moved from");
  EXPECT_THROW_WITH(op.gradcheck({ones({2})}), Error, "CustomOp: a call of an op that was moved from",
                    "custom_op_test.cpp:");
  EXPECT_THROW_WITH(op.name(), Error, "moved from", "custom_op_test.cpp:");
  EXPECT_THROW_WITH(std::move(op).by_row(0), Error, "moved from");
}

}  // namespace
}  // namespace reel
