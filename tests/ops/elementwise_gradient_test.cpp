// Gradients of elementwise functions where what arrives is no tensor of its own: one number repeated, as under a sum, or a view.

#include <gtest/gtest.h>

#include <functional>
#include <limits>
#include <vector>

#include "reel/core/tape.h"
#include "reel/ops/activations.h"
#include "reel/ops/arithmetic.h"
#include "reel/ops/convert.h"
#include "reel/ops/create.h"
#include "reel/ops/elementwise.h"
#include "reel/ops/reduce.h"
#include "reel/ops/unary.h"
#include "reel/ops/views.h"

namespace reel::test {
namespace {

using Function = std::function<Tensor(const Tensor&)>;

// Of -3 .. 3, in steps that are no whole numbers.
Tensor numbers(const Shape& shape, DType dtype) {
  const auto size = static_cast<double>(shape.size());
  return cast(reshape(arange(0, size, 1, {.dtype = f64}), shape) * (6 / size) - 3, dtype);
}

Tensor gradient_of(const Function& f, const Tensor& x) {
  Tape tape;
  tape.watch(x);
  return tape.gradient(f(x), {x})[0];
}

std::vector<double> values(const Tensor& x) { return cast(x, f64).to_vector<double>(); }

const std::vector<Function> kFunctions = {
    [](const Tensor& x) { return relu(x); },
    [](const Tensor& x) { return tanh(x); },
    [](const Tensor& x) { return gelu(x); },
    [](const Tensor& x) { return square(x); },
    [](const Tensor& x) { return neg(x); },
    [](const Tensor& x) { return sin(x); },
    [](const Tensor& x) { return leaky_relu(x, 0.25); },
    [](const Tensor& x) { return elu(x, 1.5); },
    [](const Tensor& x) { return x * x; },
};

TEST(ElementwiseGradient, OfOneNumberRepeatedIsThatOfManyNumbers) {
  for (const DType dtype : {f32, f64})
    for (const Shape& shape : {Shape{}, Shape{1}, Shape{7}, Shape{3, 700}, Shape{210, 321}})
      for (std::size_t i = 0; i < kFunctions.size(); ++i) {
        const Tensor x = numbers(shape, dtype), ones = ones_like(x);
        const Tensor of_many = gradient_of([&](const Tensor& a) { return sum(kFunctions[i](a) * (0.75 * ones)); }, x);
        const Tensor of_one = gradient_of([&](const Tensor& a) { return 0.75 * sum(kFunctions[i](a)); }, x);
        EXPECT_EQ(values(of_one), values(of_many)) << "function " << i << ", " << shape.str();
      }
}

TEST(ElementwiseGradient, OfAViewIsThatOfACopy) {
  for (const DType dtype : {f32, f64})
    for (std::size_t i = 0; i < kFunctions.size(); ++i) {
      const Tensor x = numbers({130, 90}, dtype), turned = contiguous(transpose(numbers({130, 90}, dtype)));
      const auto weighed = [&](const Tensor& weights) {
        return gradient_of([&](const Tensor& a) { return sum(transpose(kFunctions[i](a)) * weights); }, x);
      };
      const Tensor rows = numbers({90, 1}, dtype);
      EXPECT_EQ(values(weighed(turned)),
                values(gradient_of(
                    [&](const Tensor& a) { return sum(kFunctions[i](a) * contiguous(transpose(turned))); }, x)))
          << "function " << i;
      EXPECT_EQ(values(weighed(expand(rows, {90, 130}))), values(weighed(contiguous(expand(rows, {90, 130})))))
          << "function " << i;
    }
}

TEST(ElementwiseGradient, OfATensorTimesItselfIsThatOfItsSquare) {
  for (const DType dtype : {f32, f64}) {
    const Tensor x = numbers({40, 50}, dtype), weights = numbers({40, 50}, dtype) + 0.5;
    const Tensor strided = transpose(x), turned = contiguous(transpose(weights));
    const auto times = [](const Tensor& w) { return [w](const Tensor& a) { return sum(a * a * w); }; };
    EXPECT_EQ(values(gradient_of(times(weights), x)), values(2 * x * weights)) << name_of(dtype);
    EXPECT_EQ(values(gradient_of(times(turned), strided)), values(2 * strided * turned)) << name_of(dtype);
  }
}

TEST(ElementwiseGradient, OfATensorTimesItselfHasOneOfItsOwn) {
  const Tensor x = numbers({9}, f64);
  Tape outer;
  outer.watch(x);
  Tensor dx;
  {
    Tape inner;
    inner.watch(x);
    dx = inner.gradient(sum(x * x * x), {x})[0];
  }
  const Tensor second = outer.gradient(sum(dx), {x})[0];
  for (std::int64_t i = 0; i < 9; ++i) {
    EXPECT_NEAR(dx[i].item(), 3 * x[i].item() * x[i].item(), 1e-12);
    EXPECT_NEAR(second[i].item(), 6 * x[i].item(), 1e-12);
  }
}

TEST(ElementwiseGradient, OfATensorTimesItselfReachesTheLargestNumbers) {
  const float most = std::numeric_limits<float>::max();
  const Tensor x = tensor({1e19f, 0.25f, -0.5f, std::numeric_limits<float>::infinity()});
  const Tensor dy = tensor({1e18f, most, most, 1.0f});
  const Tensor dx = gradient_of([&](const Tensor& a) { return sum(a * a * dy); }, x);
  EXPECT_EQ(values(dx), (std::vector<double>{2e19f * 1e18f, most / 2, -most, std::numeric_limits<float>::infinity()}));
}

}  // namespace
}  // namespace reel::test
