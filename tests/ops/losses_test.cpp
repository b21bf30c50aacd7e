// What the op-case table cannot say about losses: extreme logits, targets of 0, rows of zeros.

#include "reel/ops/losses.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "reel/core/tape.h"
#include "reel/ops/arithmetic.h"
#include "reel/ops/create.h"
#include "reel/ops/reduce.h"
#include "reel/ops/softmax.h"

namespace reel::test {
namespace {

using testing::ElementsAre;

const TensorOptions kDouble{.dtype = f64};

// d sum(f(x)) / dx
template <class F>
std::vector<double> slopes(const Tensor& x, F&& f) {
  Tape tape;
  tape.watch(x);
  const Tensor y = f(x);
  return tape.gradient(y, ones_like(y), {x})[0].template to_vector<double>();
}

TEST(BceWithLogits, IsAccurateInBothTailsAndDoesNotOverflow) {
  const Tensor logits = tensor({50, -50, 1000, -1000, 0}, kDouble), target = tensor({1, 0, 0, 1, 0.5}, kDouble);
  const std::vector<double> losses = bce_with_logits(logits, target, Reduction::none).to_vector<double>();
  const double tail = std::exp(-50.0);
  EXPECT_NEAR(losses[0] / tail, 1, 1e-14);
  EXPECT_NEAR(losses[1] / tail, 1, 1e-14);
  EXPECT_EQ(losses[2], 1000);
  EXPECT_EQ(losses[3], 1000);
  EXPECT_NEAR(losses[4], std::log(2.0), 1e-15);
  const auto f = [&](const Tensor& x) { return bce_with_logits(x, target, Reduction::sum); };
  const std::vector<double> d = slopes(logits, f);
  EXPECT_NEAR(d[0] / -tail, 1, 1e-14);
  EXPECT_EQ(d[2], 1);
  EXPECT_EQ(d[3], -1);
  EXPECT_EQ(d[4], 0);
}

TEST(BceWithLogits, OfF32IsThatOfDoubleForAnyTarget) {
  std::vector<float> logits, targets;
  for (int i = -400; i <= 400; ++i)
    for (const float t : {0.0f, 1e-7f, 0.3f, 0.5f, 0.9999999f, 1.0f}) {
      logits.push_back(static_cast<float>(i) * 0.2371f);
      targets.push_back(t);
    }
  const auto n = static_cast<std::int64_t>(logits.size());
  const Tensor x = from_vector(logits, {n}), target = from_vector(targets, {n});
  const std::vector<double> losses = bce_with_logits(x, target, Reduction::none).to_vector<double>();
  const std::vector<double> d = slopes(x, [&](const Tensor& x) { return bce_with_logits(x, target, Reduction::sum); });
  for (std::size_t i = 0; i < logits.size(); ++i) {
    const double z = logits[i], t = targets[i], right = t * std::log1p(std::exp(-z)),
                 left = (1 - t) * std::log1p(std::exp(z));
    EXPECT_NEAR(losses[i], right + left, 4e-7 * (right + left) + 1e-44) << z << ' ' << t;
    const double up = (1 - t) / (1 + std::exp(-z)), down = t / (1 + std::exp(z));
    EXPECT_NEAR(d[i], up - down, 4e-7 * (up + down) + 1e-44) << z << ' ' << t;
  }
  const Tensor nan = full({1}, NAN);
  EXPECT_TRUE(std::isnan(bce_with_logits(nan, zeros({1})).item()));
  EXPECT_TRUE(std::isnan(bce_with_logits(zeros({1}), nan).item()));
  EXPECT_TRUE(std::isnan(slopes(nan, [](const Tensor& x) { return bce_with_logits(x, zeros({1})); })[0]));
}

TEST(KlDiv, OfATargetOfZeroIsZeroWithZeroGradient) {
  const Tensor x = tensor({-INFINITY, -1, 0}, kDouble), target = tensor({0, 0, 1}, kDouble);
  EXPECT_THAT(kl_div(x, target, Reduction::none).to_vector<double>(), ElementsAre(0, 0, 0));
  EXPECT_THAT(slopes(x, [&](const Tensor& x) { return kl_div(x, target, Reduction::sum); }), ElementsAre(0, 0, -1));
}

TEST(HuberLoss, HasTheDerivativeDeltaFarOut) {
  const Tensor x = tensor({-1000, -1, 0, 0.5, 1000}, kDouble);
  EXPECT_THAT(slopes(x, [](const Tensor& x) { return huber_loss(x, zeros_like(x), Reduction::sum); }),
              ElementsAre(-1, -1, 0, 0.5, 1));
}

TEST(HuberLoss, HasInfinitiesAndNaNWhereTheResidualHas) {
  const Tensor x = tensor({-INFINITY, INFINITY, NAN, 2}, kDouble);
  const auto loss = [](const Tensor& x) { return huber_loss(x, zeros_like(x), Reduction::none, 2); };
  EXPECT_THAT(loss(x).to_vector<double>(), ElementsAre(INFINITY, INFINITY, testing::IsNan(), 2));
  EXPECT_THAT(slopes(x, loss), ElementsAre(-2, 2, testing::IsNan(), 2));
}

TEST(CosineSimilarity, OfZerosIsZero) {
  EXPECT_EQ(cosine_similarity(zeros({1, 3}), ones({1, 3})).item(), 0);
  EXPECT_NEAR(cosine_similarity(full({1, 3}, -2, kDouble), ones({1, 3}, kDouble)).item(), -1, 1e-15);
}

TEST(CrossEntropy, OfSoftLabelsDoesNotLookAtWhatHasNone) {
  const Tensor logits = tensor({0, -INFINITY, 0}, {1, 3}, kDouble), target = tensor({0.5, 0, 0.5}, {1, 3}, kDouble);
  EXPECT_NEAR(cross_entropy(logits, target).item(), std::log(2.0), 1e-15);
  EXPECT_THAT(slopes(logits, [&](const Tensor& x) { return cross_entropy(x, target); }), ElementsAre(0, 0, 0));
}

// With many classes forward leaves the gradient, which the first sweep gives away.
TEST(CrossEntropy, HasTheSameGradientInEverySweep) {
  Generator generator(3);
  for (const std::int64_t classes : {5, 100})
    for (const Reduction reduction : {Reduction::mean, Reduction::none}) {
      const Tensor logits = randn({7, classes}, generator), target = tensor({0, 1, 2, 3, 4, 0, 1}, {.dtype = i64});
      Tape tape;
      tape.watch(logits);
      const Tensor each = cross_entropy(logits, target, {.reduction = reduction}), loss = 3 * sum(each);
      EXPECT_EQ(each.to_vector<float>(),
                untaped([&] { return cross_entropy(logits, target, {.reduction = reduction}); }).to_vector<float>());
      const auto gradient = [&] {
        Tensor dx = tape.gradient(loss, {logits}, {.keep = true})[0];
        const std::vector<float> values = dx.to_vector<float>();
        dx.fill_(7);  // the caller's own
        return values;
      };
      const std::vector<float> first = gradient();
      EXPECT_EQ(gradient(), first);
      EXPECT_EQ(gradient(), first);
    }
}

TEST(CrossEntropy, CountsTheMeanByTheWeightsOfTheTargets) {
  const Tensor logits = zeros({3, 2}, kDouble), target = tensor({0, 1, -100}, {.dtype = i64});
  const Tensor weight = tensor({1, 3}, kDouble);
  const Tensor sum = cross_entropy(logits, target, {.reduction = Reduction::sum, .weight = weight});
  EXPECT_NEAR(sum.item(), 4 * std::log(2.0), 1e-15);
  EXPECT_NEAR(cross_entropy(logits, target, {.weight = weight}).item(), std::log(2.0), 1e-15);
  EXPECT_TRUE(std::isnan(cross_entropy(logits, full({3}, -100, {.dtype = i64})).item()));
}

TEST(NllLoss, DoesNotLookAtWhatIsNotTheTarget) {
  const Tensor log_p = tensor({0, -INFINITY, NAN, -2}, {2, 2}, kDouble), target = tensor({0, 1}, {.dtype = i64});
  EXPECT_EQ(nll_loss(log_p, target).item(), 1);
  EXPECT_THAT(slopes(log_p, [&](const Tensor& x) { return nll_loss(x, target); }), ElementsAre(-0.5, 0, 0, -0.5));
}

}  // namespace
}  // namespace reel::test
