// What the op-case table cannot say about attention and rotary embedding: memory, hidden keys, sequences alone, known examples.

#include "reel/ops/attention.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdio>
#include <limits>

#include "reel/core/parallel.h"
#include "reel/core/tape.h"
#include "reel/ops/activations.h"
#include "reel/ops/arithmetic.h"
#include "reel/ops/convert.h"
#include "reel/ops/create.h"
#include "reel/ops/gradcheck.h"
#include "reel/ops/matmul.h"
#include "reel/ops/ragged.h"
#include "reel/ops/reduce.h"
#include "reel/ops/rotary.h"
#include "reel/ops/softmax.h"
#include "reel/ops/unary.h"
#include "reel/ops/views.h"

namespace reel::test {
namespace {

using testing::Each;
using testing::ElementsAre;
using testing::Pointwise;

const TensorOptions kDouble{.dtype = f64};

Tensor attention(const Tensor& q, const Tensor& k, const Tensor& v, const AttentionOptions& options = {}) {
  return scaled_dot_product_attention(q, k, v, options);
}
Ragged attention(const Ragged& q, const Ragged& k, const Ragged& v, const AttentionOptions& options = {}) {
  return scaled_dot_product_attention(q, k, v, options);
}

// The result and the gradients of q, k and v for a random gradient of the result.
template <class F>
Tensors with_gradients(const Tensor& q, const Tensor& k, const Tensor& v, F&& f) {
  Tape tape;
  for (const Tensor* x : {&q, &k, &v}) tape.watch(*x);
  const Tensor y = f(q, k, v);
  Generator generator(77);
  const Tensor dy = randn(y.shape(), generator, {.dtype = y.dtype()});
  Tensors results = tape.gradient(y, dy, {q, k, v});
  results.push_back(y);
  return results;
}

MATCHER(IsClose, "") { return std::abs(std::get<0>(arg) - std::get<1>(arg)) <= 1e-12; }
MATCHER(IsFloatClose, "") { return std::abs(std::get<0>(arg) - std::get<1>(arg)) <= 2e-6; }

// --- published examples --------------------------------------------------------------------------------------------------

// ONNX, Attention: y = softmax(q k^T scale + mask) v, for 4-D inputs [batch, heads, length, width]. Its examples draw random
// inputs; these are small enough to follow by hand.
TEST(OnnxAttention, WeighsValuesByTheSoftmaxOfScores) {
  const Tensor q = tensor({1, 0}, {1, 1, 1, 2}, kDouble), k = tensor({std::log(3.0), 5, 0, -7}, {1, 1, 2, 2}, kDouble);
  const Tensor v = tensor({4, 8, 0, 4}, {1, 1, 2, 2}, kDouble);
  // Scores log 3 and 0: weights 3/4 and 1/4.
  const Tensor y = attention(q, k, v, {.scale = 1.0});
  EXPECT_EQ(y.shape(), (Shape{1, 1, 1, 2}));
  EXPECT_THAT(y.to_vector<double>(), Pointwise(IsClose(), {3.0, 7.0}));
  // The default scale is 1 / sqrt(2); the scores' ratio is taken to that power.
  const double odds = std::pow(3.0, 1 / std::sqrt(2.0));
  EXPECT_NEAR(attention(q, k, v).to_vector<double>()[0], 4 * odds / (1 + odds), 1e-14);
}

TEST(OnnxAttention, TakesAnAdditiveAndABooleanMask) {
  const Tensor q = zeros({1, 1, 2, 3}, kDouble), k = zeros({1, 1, 2, 3}, kDouble);
  const Tensor v = tensor({1, 5}, {1, 1, 2, 1}, kDouble);
  const Tensor added = tensor({0, std::log(3.0), 2, 2}, {2, 2}, kDouble);
  EXPECT_THAT(attention(q, k, v, {.mask = added}).to_vector<double>(), Pointwise(IsClose(), {4.0, 3.0}));
  const Tensor seen = tensor({1, 0, 1, 1}, {2, 2}) != 0.0;
  EXPECT_THAT(attention(q, k, v, {.mask = seen}).to_vector<double>(), Pointwise(IsClose(), {1.0, 3.0}));
  EXPECT_THAT(attention(q, k, v, {.causal = true}).to_vector<double>(), Pointwise(IsClose(), {1.0, 3.0}));
}

// ONNX, Softmax, examples "softmax_example" and "softmax_large_number": exp(x) / sum, and no overflow at 1e4.
TEST(OnnxSoftmax, OfTheDocumentedExamples) {
  const double total = std::exp(-1.0) + 1 + std::exp(1.0);
  EXPECT_THAT(softmax(tensor({-1, 0, 1}, {1, 3}, kDouble)).to_vector<double>(),
              Pointwise(IsClose(), {std::exp(-1.0) / total, 1 / total, std::exp(1.0) / total}));
  const std::vector<float> rows = softmax(tensor({0, 1, 2, 3, 10000, 10001, 10002, 10003}, {2, 4})).to_vector<float>();
  const float expected[] = {0.032058604f, 0.08714432f, 0.23688284f, 0.6439143f};
  for (std::size_t i = 0; i < 8; ++i) EXPECT_NEAR(rows[i], expected[i % 4], 1e-7);
}

// ONNX, Gelu, examples "gelu_default_1" and "gelu_tanh_1": x = -1, 0, 1.
TEST(OnnxGelu, OfTheDocumentedExamples) {
  const Tensor x = tensor({-1, 0, 1}, kDouble);
  const double phi = 0.5 * (1 + std::erf(1 / std::sqrt(2.0)));
  EXPECT_THAT(gelu(x).to_vector<double>(), Pointwise(IsClose(), {phi - 1, 0.0, phi}));
  const double tanh = 0.5 * (1 + std::tanh(std::sqrt(2 / M_PI) * 1.044715));
  EXPECT_THAT(gelu_tanh(x).to_vector<double>(), Pointwise(IsClose(), {tanh - 1, 0.0, tanh}));
}

// --- what is not seen ----------------------------------------------------------------------------------------------------

TEST(Attention, OfAQueryThatSeesNothingIsZeroWithZeroGradient) {
  Generator generator(1);
  const Tensor q = randn({1, 3, 4}, generator), k = randn({1, 2, 4}, generator), v = randn({1, 2, 4}, generator);
  const double hidden = -INFINITY;
  const Tensor mask = tensor({0, 0, hidden, hidden, 0, hidden}, {3, 2});
  const auto results = with_gradients(
      q, k, v, [&](const Tensor& q, const Tensor& k, const Tensor& v) { return attention(q, k, v, {.mask = mask}); });
  EXPECT_THAT(select(results[3], 1, 1).to_vector<float>(), Each(0));
  EXPECT_THAT(select(results[0], 1, 1).to_vector<float>(), Each(0));
  EXPECT_EQ(select(results[3], 1, 2).to_vector<float>(), select(v, 1, 0).to_vector<float>());
  for (const Tensor& x : results)
    for (const float value : x.to_vector<float>()) EXPECT_TRUE(std::isfinite(value));
  // Causal with more queries than keys: the first sees nothing.
  const Tensor y = attention(q, k, v, {.causal = true});
  EXPECT_THAT(select(y, 1, 0).to_vector<float>(), Each(0));
  EXPECT_EQ(select(y, 1, 1).to_vector<float>(), select(v, 1, 0).to_vector<float>());
  // No keys at all.
  EXPECT_THAT(attention(q, zeros({1, 0, 4}), zeros({1, 0, 5})).to_vector<float>(), Each(0));
}

TEST(Attention, HiddenKeysHaveZeroGradient) {
  Generator generator(2);
  const Tensor x = randn({1, 200, 8}, generator);
  const Tensor seen = arange(200) < 150.0;
  const auto results = with_gradients(x, clone(x), clone(x), [&](const Tensor& q, const Tensor& k, const Tensor& v) {
    return attention(q, k, v, {.mask = seen});
  });
  for (const int i : {1, 2}) {
    EXPECT_THAT(narrow(results[static_cast<std::size_t>(i)], 1, 150, 50).to_vector<float>(), Each(0));
    EXPECT_GT(max(narrow(results[static_cast<std::size_t>(i)], 1, 0, 150)).item(), 0);
  }
}

TEST(Attention, LargeScoresNeitherOverflowNorAreClipped) {
  const Tensor q = full({1, 2, 1}, 1e4), k = tensor({1, -1, 0.5, 1}, {1, 4, 1}), v = tensor({1, 2, 3, 5}, {1, 4, 1});
  const auto results = with_gradients(
      q, k, v, [](const Tensor& q, const Tensor& k, const Tensor& v) { return attention(q, k, v, {.scale = 1.0}); });
  EXPECT_THAT(results[3].to_vector<float>(), ElementsAre(3, 3));
  for (const Tensor& x : results)
    for (const float value : x.to_vector<float>()) EXPECT_TRUE(std::isfinite(value));
}

TEST(Attention, ANaNReachesItsQueryOrItsKeysQueries) {
  Generator generator(3);
  Tensor q = randn({1, 3, 4}, generator);
  const Tensor k = randn({1, 2, 4}, generator), v = randn({1, 2, 4}, generator);
  q.mutable_data<float>()[5] = NAN;
  const Tensor y = attention(q, k, v);
  for (const float value : select(y, 1, 0).to_vector<float>()) EXPECT_FALSE(std::isnan(value));
  for (const float value : select(y, 1, 1).to_vector<float>()) EXPECT_TRUE(std::isnan(value));
  q.mutable_data<float>()[5] = INFINITY;
  for (const float value : select(attention(q, k, v), 1, 1).to_vector<float>()) EXPECT_TRUE(std::isnan(value));
}

// --- sequences -----------------------------------------------------------------------------------------------------------

Ragged random_sequences(std::initializer_list<std::int64_t> lengths, std::int64_t heads, std::int64_t width,
                        Generator& generator, DType dtype = f32) {
  std::int64_t total = 0;
  for (const std::int64_t length : lengths) total += length;
  return Ragged::from_lengths(randn({total, heads, width}, generator, {.dtype = dtype}), lengths);
}

TEST(RaggedAttention, ASequenceAloneHasTheSameBitsAsInABatchForAnyNumberOfThreads) {
  const int before = num_threads();
  for (const bool causal : {false, true}) {
    Generator generator(4);
    // Enough pairs for one task each, and few long ones that are cut.
    const Ragged q = random_sequences({7, 0, 300, 1, 129}, 3, 20, generator);
    const Ragged k = random_sequences({9, 4, 257, 0, 128}, 3, 20, generator);
    const Ragged v = random_sequences({9, 4, 257, 0, 128}, 3, 24, generator);
    const Ragged dy = random_sequences({7, 0, 300, 1, 129}, 3, 24, generator);
    const auto gradients = [&](const Ragged& q, const Ragged& k, const Ragged& v, const Ragged& dy) {
      Tape tape;
      for (const Ragged* x : {&q, &k, &v}) tape.watch(x->values());
      const Ragged y = attention(q, k, v, {.causal = causal});
      const Tensors d = tape.gradient(y.values(), dy.values(), {q.values(), k.values(), v.values()});
      return std::vector<Ragged>{y, q.with(d[0]), k.with(d[1]), v.with(d[2])};
    };
    set_num_threads(1);
    const std::vector<Ragged> batch = gradients(q, k, v, dy);
    for (const int threads : {2, 3, 7, 16}) {
      set_num_threads(threads);
      const std::vector<Ragged> again = gradients(q, k, v, dy);
      for (std::size_t i = 0; i < batch.size(); ++i)
        EXPECT_EQ(again[i].values().to_vector<float>(), batch[i].values().to_vector<float>());
    }
    for (const int threads : {1, 7}) {
      set_num_threads(threads);
      for (std::int64_t s = 0; s < q.count(); ++s) {
        const auto one = [&](const Ragged& x) { return Ragged::from_list({clone(x[s])}); };
        const std::vector<Ragged> alone = gradients(one(q), one(k), one(v), one(dy));
        for (std::size_t i = 0; i < batch.size(); ++i)
          EXPECT_EQ(alone[i].values().to_vector<float>(), batch[i][s].to_vector<float>()) << s << " of " << i;
      }
    }
  }
  set_num_threads(before);
}

TEST(RaggedAttention, IsPaddedAttentionWithAMaskForRandomLengths) {
  Generator generator(5);
  for (int round = 0; round < 20; ++round) {
    std::vector<std::int64_t> queries, keys;
    for (std::int64_t s = generator.below(6); s >= 0; --s) {
      queries.push_back(generator.below(3) == 0 ? 0 : generator.below(150));
      keys.push_back(generator.below(3) == 0 ? 0 : generator.below(150));
    }
    const auto values = [&](const std::vector<std::int64_t>& lengths, std::int64_t width) {
      return Ragged::from_lengths(randn({Offsets(lengths).total(), 2, width}, generator, kDouble), lengths);
    };
    const Ragged q = values(queries, 4), k = values(keys, 4), v = values(keys, 3);
    const auto padded = [](const Ragged& x) { return transpose(to_padded(x), 1, 2); };  // [n, heads, longest, width]
    const Tensor lengths = from_vector(keys, {keys.size(), 1, 1, 1});
    const Tensor y = attention(padded(q), padded(k), padded(v), {.mask = arange(k.offsets().max_length()) < lengths});
    EXPECT_THAT(attention(q, k, v).values().to_vector<double>(),
                Pointwise(IsClose(), from_padded(transpose(y, 1, 2), queries).values().to_vector<double>()));
  }
}

TEST(RaggedAttention, OfNoSequencesAndOfEmptyOnesHasGradients) {
  for (const std::vector<std::int64_t>& lengths : {std::vector<std::int64_t>{}, std::vector<std::int64_t>{0, 0}}) {
    const Ragged x = Ragged::from_lengths(zeros({0, 2, 3}), lengths);
    Tape outer;
    Tape tape;
    tape.watch(x.values());
    const Ragged y = attention(x, x, x);
    EXPECT_EQ(tape.gradient(y.values(), y.values(), {x.values()})[0].shape(), (Shape{0, 2, 3}));
  }
  for (const std::vector<std::int64_t>& lengths : {std::vector<std::int64_t>{}, std::vector<std::int64_t>{0, 0}}) {
    const Tensor x = zeros({0, 2, 3}), bias = zeros({2, 1, 1});
    Tape tape;
    for (const Tensor& input : {x, bias}) tape.watch(input);
    const auto attend = [&](const AttentionOptions& options) {
      const Ragged r = Ragged::from_lengths(x, lengths);
      return attention(r, r, r, options).values();
    };
    const Tensor y = sum(attend({.mask = bias}));
    const Tensor dbias = tape.gradient(y, {bias}, {.keep = true})[0];
    EXPECT_EQ(dbias.to_vector<float>(), std::vector<float>(2, 0));
    const auto energy = [&](const Tensors& xs) {
      const Ragged r = Ragged::from_lengths(xs[0], lengths);
      return sum(square(attention(r, r, r).values()));
    };
    EXPECT_TRUE(gradcheck(energy, {cast(x, f64)}, {.order = 2}));
  }
}

// --- accuracy ------------------------------------------------------------------------------------------------------------

// The result in long double; the largest error in units of epsilon x largest |v|.
double worst_error(const Tensor& q, const Tensor& k, const Tensor& v) {
  const auto qs = q.to_vector<double>(), ks = k.to_vector<double>(), vs = v.to_vector<double>();
  const auto ys = attention(q, k, v).to_vector<double>();
  const auto queries = static_cast<std::size_t>(q.shape()[0]), keys = static_cast<std::size_t>(k.shape()[0]);
  const auto width = static_cast<std::size_t>(q.shape()[1]);
  long double worst = 0, size = 0;
  for (const double value : vs) size = std::fmax(size, std::abs(value));
  for (std::size_t i = 0; i < queries; ++i) {
    std::vector<long double> p(keys), y(width);
    long double largest = -INFINITY, total = 0;
    for (std::size_t j = 0; j < keys; ++j) {
      for (std::size_t e = 0; e < width; ++e) p[j] += static_cast<long double>(qs[i * width + e]) * ks[j * width + e];
      p[j] /= std::sqrt(static_cast<long double>(width));
      largest = std::fmax(largest, p[j]);
    }
    for (long double& score : p) total += score = std::exp(score - largest);
    for (std::size_t j = 0; j < keys; ++j)
      for (std::size_t e = 0; e < width; ++e) y[e] += p[j] / total * vs[j * width + e];
    for (std::size_t e = 0; e < width; ++e) worst = std::fmax(worst, std::abs(ys[i * width + e] - y[e]));
  }
  const double epsilon = q.dtype() == f32 ? 0x1p-23 : 0x1p-52;
  return static_cast<double>(worst / (epsilon * size));
}

TEST(Attention, IsAccurateOverManyKeys) {
  for (const DType dtype : {f32, f64})
    for (const double spread : {1.0, 4.0}) {
      double worst = 0;
      for (const std::int64_t keys : {1, 31, 128, 129, 1025, 5000}) {
        Generator generator(9);
        const Tensor q = spread * randn({64, 64}, generator, {.dtype = dtype});
        const Tensor k = spread * randn({keys, 64}, generator, {.dtype = dtype});
        worst = std::max(worst, worst_error(q, k, randn({keys, 64}, generator, {.dtype = dtype})));
      }
      std::printf("attention %s, scores up to about %.0f: %.2f epsilon of the largest value\n", reel::name_of(dtype),
                  5 * spread * spread, worst);
      // A score is rounded in proportion to the products it is the sum of.
      EXPECT_LE(worst, spread == 1 ? 8 : 160);
    }
}

// --- rotary ----------------------------------------------------------------------------------------------------------------

TEST(Rotary, KeepsLengthsAndDependsOnDistancesOnly) {
  Generator generator(10);
  const Tensor q = randn({1, 16}, generator, kDouble), k = randn({1, 16}, generator, kDouble);
  for (const bool interleaved : {false, true}) {
    const auto at = [&](const Tensor& x, std::int64_t position) {
      return rotary(x, {.offset = position, .interleaved = interleaved});
    };
    const double near = sum(at(q, 5) * at(k, 2)).item();
    EXPECT_NEAR(sum(at(q, 1005) * at(k, 1002)).item(), near, 1e-11);
    EXPECT_GT(std::abs(sum(at(q, 6) * at(k, 2)).item() - near), 1e-3);
    EXPECT_NEAR(sum(at(q, 7) * at(q, 7)).item(), sum(q * q).item(), 1e-12);
    EXPECT_EQ(at(q, 0).to_vector<double>(), q.to_vector<double>());
  }
}

TEST(Rotary, TurnsEachPairByItsOwnAngle) {
  // The first pair turns by its position: with one pair, cos and sin of 1.
  const double c = std::cos(1.0), s = std::sin(1.0);
  EXPECT_THAT(rotary(tensor({3, 4}, {1, 2}, kDouble), {.offset = 1}).to_vector<double>(),
              Pointwise(IsClose(), {3 * c - 4 * s, 4 * c + 3 * s}));
  // Two pairs: (1, 3) and (2, 4), or (1, 2) and (3, 4); the second turns by 1 / sqrt(theta).
  const double c2 = std::cos(0.01), s2 = std::sin(0.01);
  const Tensor x = tensor({1, 2, 3, 4}, {1, 4}, kDouble);
  EXPECT_THAT(rotary(x, {.offset = 1}).to_vector<double>(),
              Pointwise(IsClose(), {c - 3 * s, 2 * c2 - 4 * s2, 3 * c + s, 4 * c2 + 2 * s2}));
  EXPECT_THAT(rotary(x, {.offset = 1, .interleaved = true}).to_vector<double>(),
              Pointwise(IsClose(), {c - 2 * s, 2 * c + s, 3 * c2 - 4 * s2, 4 * c2 + 3 * s2}));
}

TEST(Rotary, InF32IsAccurateFarFromTheStart) {
  Generator generator(11);
  const Tensor x = randn({64, 32}, generator);
  const RotaryOptions far{.offset = 1000000};
  EXPECT_THAT(rotary(x, far).to_vector<double>(),
              Pointwise(IsFloatClose(), rotary(cast(x, f64), far).to_vector<double>()));
}

TEST(RaggedRotary, PositionsBeginAnewInEachSequence) {
  Generator generator(12);
  const Ragged x = random_sequences({3, 0, 5, 1}, 2, 6, generator);
  const Ragged y = rotary(x, {.offset = 4});
  for (std::int64_t s = 0; s < x.count(); ++s) {
    const Tensor alone = transpose(rotary(transpose(x[s], 0, 1), {.offset = 4}), 0, 1);  // [length, heads, width]
    EXPECT_EQ(alone.to_vector<float>(), y[s].to_vector<float>());
  }
  EXPECT_EQ(rotary(Ragged::from_lengths(zeros({0, 6}), {0})).total(), 0);
}

}  // namespace
}  // namespace reel::test
