// The check of a custom op's first call, and its gradcheck.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "reel/ops/convert.h"
#include "reel/ops/index.h"
#include "reel/ops/matmul.h"
#include "reel/ops/ragged.h"
#include "reel/ops/reduce.h"
#include "reel/ops/unary.h"
#include "reel/ops/views.h"
#include "reel/tests/expect.h"
#include "reel/tests/ops/custom_ops.h"

namespace reel {
namespace {

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
                      "custom_op_check_test.cpp:");
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
                      "custom_op_check_test.cpp:");
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

}  // namespace
}  // namespace reel
