// What infinities, NaN and sizes beyond 64 bits come to where the suites over the op-case table do not reach: rows of
// nothing but -inf, ignored rows, winners that are NaN, second derivatives far out. Gradients are taken both ways, by fused
// kernels and, under an outer tape, by recorded ops.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>
#include <vector>

#include "reel/core/tape.h"
#include "reel/ops/activations.h"
#include "reel/ops/arithmetic.h"
#include "reel/ops/create.h"
#include "reel/ops/elementwise.h"
#include "reel/ops/gradcheck.h"
#include "reel/ops/ragged.h"
#include "reel/ops/reduce.h"
#include "reel/ops/softmax.h"
#include "reel/ops/statistics.h"
#include "reel/ops/unary.h"
#include "reel/ops/views.h"
#include "reel/tests/expect.h"

namespace reel::test {
namespace {

using testing::DoubleNear;
using testing::Each;
using testing::ElementsAre;

constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
constexpr TensorOptions kDouble{.dtype = f64};

using Function = std::function<Tensor(const Tensor&)>;

Tensor gradient_of(const Function& f, const Tensor& x) {
  Tape tape;
  tape.watch(x);
  const Tensor y = f(x);
  return tape.gradient(y, 2 * ones_like(y), {x})[0];
}

// The gradient for an output gradient of 2, both ways, which must agree.
std::vector<double> gradient(const Function& f, const Tensor& x) {
  const std::vector<double> fused = gradient_of(f, x).to_vector<double>();
  Tape outer;
  const std::vector<double> recorded = gradient_of(f, x).to_vector<double>();
  for (std::size_t i = 0; i < fused.size(); ++i)
    EXPECT_TRUE(std::abs(recorded[i] - fused[i]) <= 1e-15 || (std::isnan(recorded[i]) && std::isnan(fused[i])))
        << "element " << i << ": " << recorded[i] << " recorded, " << fused[i] << " fused";
  return fused;
}

std::vector<double> second_derivatives(const Function& f, const Tensor& x) {
  Tape outer;
  outer.watch(x);
  const Tensor slope = [&] {
    Tape inner;
    return inner.gradient(sum(f(x)), {x})[0];
  }();
  return outer.gradient(sum(slope), {x})[0].to_vector<double>();
}

const Tensor nothing = full({2, 3}, -kInf, kDouble);

TEST(RowsOfMinusInfinity, HaveNoGradient) {
  for (const int axis : {0, 1}) {
    EXPECT_THAT(gradient([=](const Tensor& x) { return softmax(x, axis); }, nothing), Each(0));
    EXPECT_THAT(gradient([=](const Tensor& x) { return log_softmax(x, axis); }, nothing), Each(0));
    EXPECT_THAT(gradient([=](const Tensor& x) { return logsumexp(x, axis); }, nothing), Each(0));
  }
  const Tensor target = tensor({0, 2}, {.dtype = i64});
  EXPECT_THAT(gradient([&](const Tensor& x) { return cross_entropy(x, target); }, nothing), Each(0));
  const auto in_sequences = [](const Tensor& x) { return Ragged::from_lengths(x, {0, 2}); };
  EXPECT_THAT(gradient([&](const Tensor& x) { return softmax(in_sequences(x)).values(); }, nothing), Each(0));
  EXPECT_THAT(gradient([&](const Tensor& x) { return log_softmax(in_sequences(x)).values(); }, nothing), Each(0));
  EXPECT_THAT(gradient([&](const Tensor& x) { return logsumexp(in_sequences(x)); }, nothing), Each(0));
}

TEST(CrossEntropy, OfARowOfMinusInfinityIsNaNWithoutGradient) {
  // 0 / 0 is its probability: no loss is right. The other rows have theirs; the gradient is that of them alone.
  const Tensor logits = tensor({-kInf, -kInf, 0, 0}, {2, 2}, kDouble), target = tensor({0, 1}, {.dtype = i64});
  const std::vector<double> rows = cross_entropy(logits, target, {.reduction = Reduction::none}).to_vector<double>();
  EXPECT_TRUE(std::isnan(rows[0]));
  EXPECT_NEAR(rows[1], std::log(2.0), 1e-15);
  for (const Reduction reduction : {Reduction::mean, Reduction::sum}) {
    EXPECT_TRUE(std::isnan(cross_entropy(logits, target, {.reduction = reduction}).item()));
    const double each = reduction == Reduction::mean ? 0.5 : 1;
    EXPECT_THAT(gradient([&](const Tensor& x) { return cross_entropy(x, target, {.reduction = reduction}); }, logits),
                ElementsAre(0, 0, DoubleNear(each, 1e-15), DoubleNear(-each, 1e-15)));
  }
}

TEST(CrossEntropy, OfARowOfMinusInfinityBesideSoftLabelsIsNaNWithoutGradient) {
  const Tensor logits = tensor({-kInf, -kInf, 0, 0}, {2, 2}, kDouble), target = full({2, 2}, 0.5, kDouble);
  const std::vector<double> rows = cross_entropy(logits, target, {.reduction = Reduction::none}).to_vector<double>();
  EXPECT_TRUE(std::isnan(rows[0]));
  EXPECT_NEAR(rows[1], std::log(2.0), 1e-15);
  EXPECT_THAT(gradient([&](const Tensor& x) { return cross_entropy(x, target, {.reduction = Reduction::sum}); },
                       log(tensor({0, 0, 0.25, 0.75}, {2, 2}, kDouble))),
              ElementsAre(0, 0, DoubleNear(-0.5, 1e-15), DoubleNear(0.5, 1e-15)));  // dy = 2
}

TEST(CrossEntropy, OfARowWithoutLabelsIsZeroWhateverItsLogits) {
  for (const double padding : {-kInf, kInf, std::nan("")}) {
    const Tensor logits = tensor({padding, padding, 0, 0}, {2, 2}, kDouble),
                 target = tensor({0, 0, 0.5, 0.5}, {2, 2}, kDouble);
    EXPECT_NEAR(cross_entropy(logits, target).item(), std::log(2.0) / 2, 1e-15) << padding;
  }
}

TEST(MaskedSoftmax, LeaksNothingOfWhatIsMasked) {
  const Tensor seen = tensor({1, 1, 0, 1, 0, 0, 0, 0}, {2, 4}) != 0.0;
  const std::vector<std::function<Tensor(const Tensor&)>> functions = {
      [](const Tensor& x) { return softmax(x, 1); },
      [](const Tensor& x) { return logsumexp(x, 1); },
      [](const Tensor& x) { return square(softmax(x, 0)); },
      [](const Tensor& x) { return log_softmax(x, 1); },
      [](const Tensor& x) {
        return softmax(Ragged::from_lengths(x, {0, 2})).values();
      },
      [](const Tensor& x) {
        return logsumexp(Ragged::from_lengths(x, {1, 1}));
      }};
  for (std::size_t i = 0; i < functions.size(); ++i) {
    const auto masked = [&](const Tensor& x) { return functions[i](where(seen, x, -kInf)); };
    const std::vector<double> expected = gradient(masked, tensor({1, 2, 0, 3, 0, 0, 0, 0}, {2, 4}, kDouble));
    for (const double poison : {kNaN, kInf, -kInf}) {
      const Tensor x = tensor({1, 2, poison, 3, poison, poison, 0, poison}, {2, 4}, kDouble);
      EXPECT_EQ(gradient(masked, x), expected) << "function " << i << ", " << poison;
    }
    for (const std::size_t hidden : {2, 4, 5, 6, 7}) EXPECT_EQ(expected[hidden], 0) << "function " << i;
  }
}

TEST(CrossEntropy, HasTheGradientOfSoftLabelsThatAre0) {
  const Tensor logits = tensor({1, -2, 0.5, 1, 2, -kInf}, {2, 3}, kDouble),
               target = tensor({0, 1, 0, 0.5, 0.5, 0}, {2, 3}, kDouble);
  const CrossEntropyOptions none{.reduction = Reduction::none};
  const std::vector<double> dx =
      gradient([&](const Tensor& t) { return cross_entropy(logits, t, none); }, target);  // for an output gradient of 2
  const std::vector<double> log_p = log_softmax(logits, 1).to_vector<double>();
  for (std::size_t i = 0; i < 5; ++i) EXPECT_DOUBLE_EQ(dx[i], -2 * log_p[i]) << i;
  EXPECT_EQ(dx[5], 0);  // of a class whose probability is 0
  const auto finite = [&](const Tensor& x, const Tensor& t) { return cross_entropy(x, t, none); };
  const GradcheckReport report = gradcheck(finite, {narrow(logits, 0, 0, 1), narrow(target, 0, 0, 1)});
  EXPECT_TRUE(report) << report;
  EXPECT_EQ(report.kinks, 0);
}

TEST(IgnoredRows, LeakNothing) {
  const Tensor logits = tensor({1, kNaN, kInf, 0, 0, 0}, {2, 3}, kDouble), target = tensor({7, 1}, {.dtype = i64});
  for (const double smoothing : {0.0, 0.3})
    for (const Tensor& weight : {Tensor(), ones({3}, kDouble)})
      for (const Reduction reduction : {Reduction::sum, Reduction::mean}) {
        const CrossEntropyOptions options{
            .reduction = reduction, .ignore = 7, .label_smoothing = smoothing, .weight = weight};
        const auto f = [&](const Tensor& x) { return cross_entropy(x, target, options); };
        const std::vector<double> dx = gradient(f, logits);
        for (int i = 0; i < 3; ++i) EXPECT_EQ(dx[static_cast<std::size_t>(i)], 0);
        EXPECT_NEAR(dx[4], -4.0 / 3 * (1 - smoothing), 1e-15);
        EXPECT_NEAR(f(logits).item(), std::log(3.0), 1e-15);
      }
}

TEST(IgnoredRows, OfWhichThereAreNoOthersHaveNoGradient) {
  const Tensor logits = tensor({1, 2, 3, 0, 0, 0}, {2, 3}, kDouble), target = full({2}, 7, {.dtype = i64});
  for (const double smoothing : {0.0, 0.3}) {
    const auto f = [&](const Tensor& x) {
      return cross_entropy(x, target, {.ignore = 7, .label_smoothing = smoothing});
    };
    EXPECT_TRUE(std::isnan(f(logits).item()));
    EXPECT_THAT(gradient(f, logits), Each(0));
  }
  EXPECT_THAT(gradient([&](const Tensor& x) { return nll_loss(x, target, {.ignore = 7}); }, logits), Each(0));
}

// Nothing is looked up in a table of no classes.
TEST(IgnoredRows, OfNoClassesHaveNoLoss) {
  for (const std::int64_t rows : {0, 3}) {
    const Tensor scores = zeros({rows, 0}, kDouble), target = full({rows}, -100, {.dtype = i64});
    for (const Tensor& weight : {Tensor(), zeros({0}, kDouble)})
      for (const Reduction reduction : {Reduction::none, Reduction::sum, Reduction::mean}) {
        const auto expect_no_loss = [&](const Function& loss) {
          EXPECT_TRUE(gradient(loss, scores).empty());
          for (const double value : loss(scores).to_vector<double>())
            EXPECT_TRUE(reduction == Reduction::mean ? std::isnan(value) : value == 0) << value;
        };
        expect_no_loss(
            [&](const Tensor& x) { return nll_loss(x, target, {.reduction = reduction, .weight = weight}); });
        for (const double smoothing : {0.0, 0.3})
          expect_no_loss([&](const Tensor& x) {
            return cross_entropy(x, target, {.reduction = reduction, .label_smoothing = smoothing, .weight = weight});
          });
      }
  }
}

TEST(Norm, OfWhatSquaresToInfinityHasNoGradient) {
  const Function per_sequence = [](const Tensor& x) { return norm(Ragged::from_lengths(x, {1, 0, 2})); };
  for (const Function& f : {Function([](const Tensor& x) { return norm(x); }), per_sequence,
                            Function([](const Tensor& x) { return stddev(x, {0}, 0); })}) {
    const std::vector<double> dx = gradient(f, tensor({3, 1e308, -1.7e308}, kDouble));
    EXPECT_EQ(dx[1], 0);
    EXPECT_EQ(dx[2], 0);
  }
  EXPECT_THAT(gradient([](const Tensor& x) { return norm(x); }, tensor({3e38, 1e20, 1})), Each(0));
}

TEST(Winners, ThatAreNaNHaveTheGradient) {
  const Tensor x = tensor({1, kNaN, 3, kNaN}, kDouble);
  EXPECT_THAT(gradient([](const Tensor& x) { return max(x); }, x), ElementsAre(0, 1, 0, 1));
  EXPECT_THAT(gradient([](const Tensor& x) { return amin(x); }, x), ElementsAre(0, 1, 0, 1));
  EXPECT_THAT(gradient([](const Tensor& x) { return max(x, 0); }, x), ElementsAre(0, 2, 0, 0));  // the first
  EXPECT_THAT(gradient([](const Tensor& x) { return amax(reshape(x, {2, 2}), {0, 1}); }, x), ElementsAre(0, 1, 0, 1));
  const auto ragged = [](const Tensor& x) { return Ragged::from_lengths(x, {1, 0, 3}); };
  EXPECT_THAT(gradient([&](const Tensor& x) { return amax(ragged(x)); }, x), ElementsAre(2, 1, 0, 1));
  EXPECT_THAT(gradient([&](const Tensor& x) { return amin(ragged(x)); }, x), ElementsAre(2, 1, 0, 1));
  const Tensor other = tensor({kNaN, 0, 3, kNaN}, kDouble);
  EXPECT_THAT(gradient([&](const Tensor& x) { return maximum(x, other); }, x), ElementsAre(2, 2, 1, 2));
  EXPECT_THAT(gradient([&](const Tensor& x) { return minimum(other, x); }, x), ElementsAre(2, 2, 1, 2));
}

TEST(Logaddexp, GivesItsGradientToTheInfiniteSide) {
  const Tensor a = tensor({kInf, kInf, 1, kInf, -kInf}, kDouble), b = tensor({kInf, 1, kInf, -kInf, -kInf}, kDouble);
  EXPECT_THAT(logaddexp(a, b).to_vector<double>(), ElementsAre(kInf, kInf, kInf, kInf, -kInf));
  EXPECT_THAT(gradient([&](const Tensor& x) { return logaddexp(x, b); }, a), ElementsAre(1, 2, 0, 2, 0));
  EXPECT_THAT(gradient([&](const Tensor& x) { return logaddexp(a, x); }, b), ElementsAre(1, 0, 2, 0, 0));
  EXPECT_THAT(gradient([](const Tensor& x) { return logsumexp(x); }, narrow(a, 0, 1, 2)),
              ElementsAre(testing::IsNan(), 0));
}

TEST(Gradients, OfActivationsAreTheirLimitsAtInfinity) {
  const Tensor x = tensor({-kInf, kInf}, kDouble);
  using Op = Tensor (*)(const Tensor&, SourceLocation);
  for (const Op op : {Op(gelu), Op(gelu_tanh), Op(silu), Op(mish), Op(dish), Op(hard_swish), Op(softplus)}) {
    const Function f = [op](const Tensor& x) { return op(x, SourceLocation{}); };
    EXPECT_THAT(gradient(f, x), ElementsAre(DoubleNear(0, 1e-18), 2));
    EXPECT_THAT(second_derivatives(f, x), ElementsAre(0, 0));
  }
  for (const Op op : {Op(tanh), Op(sigmoid), Op(erf), Op(erfc), Op(hard_sigmoid), Op(hard_tanh)}) {
    const Function f = [op](const Tensor& x) { return op(x, SourceLocation{}); };
    EXPECT_THAT(gradient(f, x), ElementsAre(0, 0));
    EXPECT_THAT(second_derivatives(f, x), ElementsAre(0, 0));
  }
}

TEST(Gradients, OfANaNAreNaN) {
  const Tensor x = full({1}, kNaN, kDouble);
  using Op = Tensor (*)(const Tensor&, SourceLocation);
  for (const Op op : {Op(abs), Op(hard_sigmoid), Op(hard_tanh), Op(hard_swish), Op(gelu), Op(silu), Op(log_ndtr)})
    EXPECT_TRUE(std::isnan(gradient([op](const Tensor& x) { return op(x, SourceLocation{}); }, x)[0]));
}

TEST(Pow, HasTheSpecialValuesOfWhatItIsMadeOf) {
  // Beside the number 0.5 it is sqrt, as in PyTorch; beside a tensor C's pow.
  for (const DType dtype : {f32, f64}) {
    const TensorOptions options{.dtype = dtype};
    const Tensor x = tensor({-0.0, 0.0, -kInf, kInf, kNaN}, options), half = full({5}, 0.5, options);
    const auto values = [](const Tensor& y) { return y.to_vector<double>(); };
    const std::vector<double> root = values(pow(x, 0.5)), c = values(pow(x, half)), inverse = values(pow(x, -0.5)),
                              c_inverse = values(pow(x, -half)), minus = values(pow(x, -1));
    EXPECT_THAT(root, ElementsAre(0, 0, testing::IsNan(), kInf, testing::IsNan()));
    EXPECT_TRUE(std::signbit(root[0]));
    EXPECT_THAT(c, ElementsAre(0, 0, kInf, kInf, testing::IsNan()));
    EXPECT_FALSE(std::signbit(c[0]));
    EXPECT_THAT(inverse, ElementsAre(-kInf, kInf, testing::IsNan(), 0, testing::IsNan()));
    EXPECT_THAT(c_inverse, ElementsAre(kInf, kInf, 0, 0, testing::IsNan()));
    EXPECT_THAT(minus, ElementsAre(-kInf, kInf, 0, 0, testing::IsNan()));
    EXPECT_TRUE(std::signbit(minus[2]));
    EXPECT_THAT(values(pow(x, 0)), Each(1));
    EXPECT_THAT(values(pow(1, x)), Each(1));
  }
}

TEST(Pow, HasItsMixedDerivativeWhereTheExponentIs0) {
  // d2 / da db of a^b is a^(b - 1) (1 + b log a), so 1 / a; second and first order of a where that is not finite: 0.
  const Tensor a = tensor({2, 1e-5, 0.5, 0, kNaN, kInf, 1e-310}, kDouble), b = zeros({7}, kDouble);
  Tape outer;
  outer.watch(a);
  outer.watch(b);
  const auto slope_of = [&](const Tensor& x) {
    Tape inner;
    inner.watch(a);
    inner.watch(b);
    const Tensor y = pow(a, b);
    return inner.gradient(y, ones_like(y), {x})[0];
  };
  const Tensor by_a = slope_of(a), by_b = slope_of(b);
  EXPECT_THAT(by_a.to_vector<double>(), Each(0));
  const Tensors mixed{outer.gradient(sum(narrow(by_a, 0, 0, 3)), {b})[0],
                      outer.gradient(sum(narrow(by_b, 0, 0, 3)), {a})[0]};
  for (const Tensor& second : mixed) {
    const std::vector<double> d = second.to_vector<double>();
    EXPECT_DOUBLE_EQ(d[0], 0.5);
    EXPECT_DOUBLE_EQ(d[1], 1e5);
    EXPECT_DOUBLE_EQ(d[2], 2);
  }
}

TEST(OfNothing, TheLargestAndTheLeastHaveNoSecondDerivative) {
  const Tensor x = tensor({3, 1, 3}, kDouble), none = zeros({0, 2}, kDouble);
  const Offsets lengths(std::vector<std::int64_t>{2, 0, 1});
  for (const bool largest : {true, false}) {
    const auto rows = [&](const Tensor& v) { return largest ? amax(Ragged(v, lengths)) : amin(Ragged(v, lengths)); };
    const auto columns = [&](const Tensor& v) { return largest ? amax(v, 0) : amin(v, 0); };
    for (const auto& [f, v] : {std::pair<Function, Tensor>(rows, x), std::pair<Function, Tensor>(columns, none)}) {
      Tape strict{{.check_finite = true}};
      strict.watch(v);
      const Tensor dy = ones_like(untaped([&, &f = f, &v = v] { return f(v); }));
      strict.watch(dy);
      const Tensor dx = [&, &f = f, &v = v] {
        Tape inner;
        inner.watch(v);
        return inner.gradient(f(v), dy, {v})[0];
      }();
      const std::vector<double> second = strict.gradient(sum(dx), {dy})[0].to_vector<double>();
      EXPECT_EQ(second, (v.size() > 0 ? std::vector<double>{1, 0, 1} : std::vector<double>{0, 0}));
    }
  }
}

TEST(LogNdtr, HasItsDerivativesInTheLeftTail) {
  const Tensor x = tensor({-1e3, -40, 40}, kDouble);
  const Function f = [](const Tensor& x) { return log_ndtr(x); };
  const std::vector<double> first = gradient(f, x), second = second_derivatives(f, x);
  // -x + 1 / -x - 2 / -x^3 and -1 + 1 / x^2 - 6 / x^4, from Mills' ratio.
  EXPECT_NEAR(first[0] / 2, 1e3 + 1e-3 - 2e-9, 1e-11);
  EXPECT_NEAR(first[1] / 2, 40 + 1.0 / 40 - 2 / 64e3 + 10 / std::pow(40, 5), 1e-8);
  EXPECT_NEAR(second[0], -1 + 1e-6, 1e-8);
  EXPECT_NEAR(second[1], -1 + 1.0 / 1600 - 6 / std::pow(40, 4), 1e-7);
  EXPECT_EQ(second[2], 0);
  EXPECT_EQ(second_derivatives(f, full({1}, kInf, kDouble))[0], 0);
  // Where the slope and x agree to all digits; on both sides of where the series takes over; and in f32.
  EXPECT_THAT(second_derivatives(f, tensor({-1e9, -1e200, -kInf}, kDouble)), Each(-1));
  const std::vector<double> around = second_derivatives(f, tensor({-50 + 1e-6, -50 - 1e-6}, kDouble));
  EXPECT_NEAR(around[0] - around[1], 2e-6 * 2 / std::pow(50, 3), 2e-12);
  const std::vector<double> narrow = second_derivatives(f, tensor({-9.99, -10.01, -100, -1e4, -1e30}, {.dtype = f32})),
                            wide = second_derivatives(f, tensor({-9.99, -10.01, -100, -1e4, -1e30}, kDouble));
  for (std::size_t i = 0; i < wide.size(); ++i) EXPECT_NEAR(narrow[i], wide[i], 3e-5) << i;
}

TEST(Temperature, DividesWhatTheLargestElementIsAboveTheOthers) {
  // Within sequences as along an axis: in one column and in two, in rows that one task takes and in those that several share.
  for (const std::int64_t width : {1, 2})
    for (const std::int64_t rows : {2, 70'000}) {
      const auto far = [&](double first, double second) {
        const Tensor all = full({rows, width}, second);
        return concatenate({full({1, width}, first), narrow(all, 0, 0, rows - 1)});
      };
      for (const double temperature : {3.0, 1e-9}) {
        const Tensor x = temperature == 3 ? far(10'001, 10'000) : far(1e30, 0);
        const double low = 1 / (std::exp(1 / 3.0) + static_cast<double>(rows) - 1), high = std::exp(1 / 3.0) * low;
        const auto check = [&](const Tensor& y) {
          EXPECT_NEAR(y.to_vector<float>().front() / (temperature == 3 ? high : 1), 1, 3e-6) << width << ' ' << rows;
          EXPECT_NEAR(y.to_vector<float>().back() / (temperature == 3 ? low : 1), temperature == 3, 3e-6);
        };
        const Ragged one = Ragged::from_lengths(x, {rows});
        check(softmax(x, 0, temperature));
        check(softmax(one, 0, temperature).values());
        if (temperature == 3) check(exp(log_softmax(one, 0, temperature)).values());
      }
    }
}

TEST(Temperature, MustBeANumberThatDividesInTheDtype) {
  for (const double bad : {0.0, -1.0, kInf, kNaN, 1e-320}) {
    EXPECT_THROW_WITH(softmax(ones({3}, kDouble), 0, bad), Error, "softmax", "temperature must be above 0", "f64");
    EXPECT_THROW_WITH(log_softmax(ones({3}, kDouble), 0, bad), Error, "log_softmax", "temperature must be above 0");
  }
  for (const double beyond_f32 : {1e-40, 1e40})
    EXPECT_THROW_WITH(softmax(ones({3}), 0, beyond_f32), Error, "softmax", "temperature must be above 0", "f32");
  EXPECT_THAT(softmax(tensor({0, 1}, kDouble), 0, 1e-40).to_vector<double>(), ElementsAre(0, 1));
}

TEST(Sizes, ThatDoNotFit64BitsAreRefused) {
  constexpr std::int64_t kHuge = std::int64_t{1} << 32;
  EXPECT_THROW_WITH(reshape(zeros({0}), {kHuge, kHuge}), ShapeError, "reshape", "fewer than 2^63 elements");
  EXPECT_THROW_WITH(reshape(ones({4}), {kHuge, kHuge, 4}), ShapeError, "reshape", "fewer than 2^63 elements");
  EXPECT_THROW_WITH(expand(ones({1, 1}), {kHuge, kHuge}), ShapeError, "expand", "fewer than 2^63 elements");
  EXPECT_EQ(expand(ones({1}), {kHuge}).size(), kHuge);
}

TEST(Randint, FitsItsDtype) {
  EXPECT_THROW_WITH(randint(0, 257, {3}, {.dtype = u8}), Error, "randint", "must fit u8", "257");
  EXPECT_THROW_WITH(randint(-1, 5, {3}, {.dtype = u8}), Error, "randint", "must fit u8", "-1");
  EXPECT_THROW_WITH(randint(0, (std::int64_t{1} << 31) + 1, {3}, {.dtype = i32}), Error, "randint", "must fit i32");
  manual_seed(1);
  const Tensor bytes = randint(0, 256, {10'000}, {.dtype = u8});
  EXPECT_EQ(max(bytes).item(), 255);
  EXPECT_EQ(min(bytes).item(), 0);
  EXPECT_LT(max(randint(-(std::int64_t{1} << 31), -(std::int64_t{1} << 30), {100}, {.dtype = i32})).item(), 0);
}

}  // namespace
}  // namespace reel::test
