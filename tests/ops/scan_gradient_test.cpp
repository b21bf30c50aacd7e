// The gradients of scans and products in f32, which are made in f64 in chunks of their lines: they are those of f64, rounded.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>

#include "reel/core/parallel.h"
#include "reel/core/random.h"
#include "reel/core/tape.h"
#include "reel/ops/arithmetic.h"
#include "reel/ops/convert.h"
#include "reel/ops/create.h"
#include "reel/ops/ragged.h"
#include "reel/ops/reduce.h"
#include "reel/ops/scan.h"
#include "reel/ops/views.h"

namespace reel::test {
namespace {

using testing::ElementsAre;

using Function = std::function<Tensor(const Tensors&)>;

// The gradients of those of xs that are wanted, for numbers in `dtype` that f32 holds.
Tensors gradients(const Function& f, const Tensors& xs, std::initializer_list<std::size_t> wanted, DType dtype) {
  Tensors inputs, watched;
  for (const Tensor& x : xs) inputs.push_back(cast(x, dtype));
  Tape tape;
  for (const std::size_t i : wanted) {
    tape.watch(inputs[i]);
    watched.push_back(inputs[i]);
  }
  const Tensor y = f(inputs);
  Generator generator(3);
  return tape.gradient(y, cast(randn(y.shape(), generator), dtype), watched);
}

void expect_those_of_f64(const Function& f, const Tensors& xs, std::initializer_list<std::size_t> wanted) {
  const Tensors expected = gradients(f, xs, wanted, f64);
  for (const int threads : {1, 3}) {
    set_num_threads(threads);
    const Tensors results = gradients(f, xs, wanted, f32);
    for (std::size_t i = 0; i < results.size(); ++i) {
      const std::vector<double> got = results[i].to_vector<double>(), want = expected[i].to_vector<double>();
      for (std::size_t k = 0; k < got.size(); ++k)
        ASSERT_NEAR(got[k], want[k], std::abs(want[k]) * 0x1p-23 + 1e-12) << "gradient " << i << ", element " << k;
    }
  }
}

class ScanGradients : public testing::Test {
 protected:
  ~ScanGradients() override { set_num_threads(threads_); }

  // Every form of both scans; products stay near 1.
  void expect_all(const Shape& shape, int axis, const std::vector<std::int64_t>& lengths = {}) const {
    SCOPED_TRACE(shape.str() + " along " + std::to_string(axis));
    Generator generator(11);
    const Tensor x = randn(shape, generator), factor = randn(shape, generator) * 0.3,
                 near_one = 1 + randn(shape, generator) * 0x1p-7;
    const auto scan = [&](const auto& f, const Tensor& a, const auto&... b) {
      if (lengths.empty()) return f(a, b..., axis);
      return f(Ragged::from_lengths(a, lengths), Ragged::from_lengths(b, lengths)..., 0).values();
    };
    for (const bool reverse : {false, true})
      for (const bool exclusive : {false, true}) {
        SCOPED_TRACE(std::string(reverse ? "reverse" : "") + (exclusive ? " exclusive" : ""));
        const ScanOptions options{.reverse = reverse, .exclusive = exclusive};
        const Function products = [&](const Tensors& in) {
          return scan([&](const auto& a, int k) { return cumprod(a, k, options); }, in[0]);
        };
        const Function recurrences = [&](const Tensors& in) {
          if (lengths.empty()) return linear_scan(in[0], in[1], axis, options);
          return linear_scan(Ragged::from_lengths(in[0], lengths), Ragged::from_lengths(in[1], lengths), options)
              .values();
        };
        expect_those_of_f64(products, {near_one}, {0});
        expect_those_of_f64(recurrences, {x, factor}, {0, 1});
        expect_those_of_f64(recurrences, {x, factor}, {0});
        expect_those_of_f64(recurrences, {x, factor}, {1});
      }
    expect_those_of_f64(
        [&](const Tensors& in) {
          return lengths.empty() ? prod(in[0], axis) : prod(Ragged::from_lengths(in[0], lengths));
        },
        {near_one}, {0});
  }

 private:
  const int threads_ = num_threads();
};

TEST_F(ScanGradients, AreThoseOfF64AlongLines) {
  expect_all({7, 50}, 1);      // four lines at once, and single ones
  expect_all({6, 1024}, 1);    // which share sets of a cache
  expect_all({5, 9000}, 1);    // in chunks
  expect_all({1, 140000}, 1);  // one line
  expect_all({2, 0}, 1);
}

TEST_F(ScanGradients, AreThoseOfF64DownColumns) {
  expect_all({600, 130}, 0);   // in chunks, of strips of columns and some left
  expect_all({3, 5000}, 0);    // more columns than a task's
  expect_all({4, 40, 17}, 1);  // in blocks
  expect_all({300, 700}, 0);   // shared by threads
}

TEST_F(ScanGradients, AreThoseOfF64InSequences) {
  for (const std::int64_t width : {1, 3, 80}) expect_all({460, width}, 0, {0, 1, 400, 0, 59});
}

TEST_F(ScanGradients, LeadBackFromBeyondTheRangeOfF32) {
  const Tensor x = tensor({1e-25, 1e-25, 1e25, 1e25, 1e25}), last = tensor({0, 0, 0, 0, 1}),
               first = tensor({1, 0, 0, 0, 0});
  const auto slopes = [&](const Function& f, const Tensor& dy, bool recording) {
    const auto dx = [&] {
      Tape tape;
      tape.watch(x);
      return tape.gradient(f({x}), dy, {x})[0].to_vector<float>();
    };
    if (!recording) return dx();
    Tape outer;
    return dx();
  };
  const auto expected = ElementsAre(testing::FloatEq(INFINITY), testing::FloatEq(INFINITY), testing::FloatNear(1, 1e-6),
                                    testing::FloatNear(1, 1e-6), testing::FloatNear(1, 1e-6));
  for (const bool recording : {false, true}) {
    EXPECT_THAT(slopes([](const Tensors& in) { return cumprod(in[0], 0); }, last, recording), expected);
    EXPECT_THAT(slopes([](const Tensors& in) { return prod(in[0], 0); }, tensor({1})[0], recording), expected);
    EXPECT_THAT(
        slopes([](const Tensors& in) { return prod(Ragged::from_lengths(in[0], {5})); }, tensor({1}), recording),
        expected);
    // From a state of 1 before x; each column alone.
    EXPECT_THAT(slopes(
                    [&](const Tensors& in) {
                      const Tensor z = concatenate({first, tensor({0})}), f = concatenate({tensor({1}), in[0]});
                      const Tensor two = stack({z, z}, 1), of_two = stack({f, f}, 1);
                      return narrow(select(linear_scan(two, of_two, 0), 1, 1), 0, 1, 5);
                    },
                    last, recording),
                expected);
  }
}

// Of a product with an infinite factor: no other result's 0 times it.
TEST_F(ScanGradients, OfAProductTakeNoOtherResults) {
  const Tensor x = tensor({2, INFINITY, 3}), two = full({}, 2);
  Tape tape;
  tape.watch(x);
  const Tensor y = prod(x, 0), of_sequences = prod(Ragged::from_lengths(x, {3}));
  EXPECT_THAT(tape.gradient(y, two, {x}, {.keep = true})[0].to_vector<float>(), ElementsAre(INFINITY, 12, INFINITY));
  EXPECT_THAT(tape.gradient(of_sequences, reshape(two, {1}), {x})[0].to_vector<float>(),
              ElementsAre(INFINITY, 12, INFINITY));
}

}  // namespace
}  // namespace reel::test
