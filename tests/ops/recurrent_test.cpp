#include "reel/ops/recurrent.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <functional>
#include <numeric>

#include "reel/core/memory.h"
#include "reel/core/parallel.h"
#include "reel/core/tape.h"
#include "reel/ops/arithmetic.h"
#include "reel/ops/convert.h"
#include "reel/ops/create.h"
#include "reel/ops/gradcheck.h"
#include "reel/ops/matmul.h"
#include "reel/ops/ragged.h"
#include "reel/ops/rearrange.h"
#include "reel/ops/reduce.h"
#include "reel/ops/sequence.h"
#include "reel/ops/unary.h"
#include "reel/ops/views.h"

namespace reel {
namespace {

constexpr std::int64_t kIn = 5, kHidden = 7;
const std::vector<std::int64_t> kLengths = {3, 0, 6, 1, 6, 0, 2};

struct Layer {
  const char* name;
  std::int64_t gates;
  std::function<RecurrentResult<Ragged>(const Ragged&, const std::vector<RecurrentWeights>&, const RecurrentOptions&)>
      ragged;
  std::function<RecurrentResult<Tensor>(const Tensor&, const std::vector<RecurrentWeights>&, const RecurrentOptions&)>
      batch;
};

std::vector<Layer> layers() {
  return {{"lstm", 4, [](const auto& x, const auto& w, const auto& o) { return lstm(x, w, o); },
           [](const auto& x, const auto& w, const auto& o) { return lstm(x, w, o); }},
          {"gru", 3, [](const auto& x, const auto& w, const auto& o) { return gru(x, w, o); },
           [](const auto& x, const auto& w, const auto& o) { return gru(x, w, o); }},
          {"rnn", 1, [](const auto& x, const auto& w, const auto& o) { return rnn(x, w, Nonlinearity::tanh, o); },
           [](const auto& x, const auto& w, const auto& o) { return rnn(x, w, Nonlinearity::tanh, o); }}};
}

RecurrentWeights weights(std::int64_t gates, std::int64_t in, DType dtype, Generator& generator,
                         std::int64_t hidden = kHidden) {
  const TensorOptions options{.dtype = dtype};
  const double scale = 1 / std::sqrt(static_cast<double>(hidden));
  return {randn({gates * hidden, in}, generator, options) * scale,
          randn({gates * hidden, hidden}, generator, options) * scale, randn({gates * hidden}, generator, options),
          randn({gates * hidden}, generator, options)};
}

void expect_same_bits(const Tensor& a, const Tensor& b, const char* what) {
  ASSERT_EQ(a.shape(), b.shape()) << what;
  const Tensor x = contiguous(a), y = contiguous(b);
  EXPECT_EQ(std::memcmp(x.array().data, y.array().data, static_cast<std::size_t>(x.size()) * size_of(x.dtype())), 0)
      << what;
}

Ragged sample(DType dtype, Generator& generator) {
  return Ragged::from_lengths(randn({18, kIn}, generator, {.dtype = dtype}), kLengths);
}

TEST(Recurrent, ASequenceAloneGivesTheSameBitsAsInABatch) {
  for (const Layer& layer : layers())
    for (const DType dtype : {f32, f64}) {
      Generator generator(3);
      const Ragged x = sample(dtype, generator);
      std::vector<RecurrentWeights> w;
      for (const std::int64_t in : {kIn, kIn, 2 * kHidden, 2 * kHidden})
        w.push_back(weights(layer.gates, in, dtype, generator));
      const Tensor h0 = randn({4, x.count(), kHidden}, generator, {.dtype = dtype});
      const Tensor dy = randn({18, 2 * kHidden}, generator, {.dtype = dtype});
      struct Run {
        Tensor y, h, dx;
      };
      const auto run = [&](const Ragged& sequences, const Tensor& start, const Tensor& gradient) {
        Tape tape;
        tape.watch(sequences.values());
        const auto out = layer.ragged(sequences, w, {.bidirectional = true, .h0 = start});
        return Run{out.y.values(), out.h, tape.gradient(out.y.values(), gradient, {sequences.values()})[0]};
      };
      const Run all = run(x, h0, dy);
      for (std::int64_t i = 0; i < x.count(); ++i) {
        const std::int64_t begin = x.offsets().span()[static_cast<std::size_t>(i)], length = x.length(i);
        const Ragged alone = Ragged::from_lengths(clone(x[i]), {length});
        const Run one = run(alone, narrow(h0, 1, i, 1), narrow(dy, 0, begin, length));
        expect_same_bits(one.y, narrow(all.y, 0, begin, length), layer.name);
        expect_same_bits(one.h, narrow(all.h, 1, i, 1), layer.name);
        expect_same_bits(one.dx, narrow(all.dx, 0, begin, length), layer.name);
      }
    }
}

// Gradients of weights are summed over parts of many sequences, by as many threads as there are; of few ones, or of more weights
// than stay near, they are products over all rows.
TEST(Recurrent, ManySequencesAreTheSameAsAloneAndForAnyNumberOfThreads) {
  std::vector<std::int64_t> lengths;
  for (std::int64_t i = 0; i < 37; ++i) lengths.push_back(i * 7 % 12);
  const int threads = num_threads();
  for (const Layer& layer : layers())
    for (const std::int64_t in : {kIn, std::int64_t{900}, std::int64_t{40}}) {
      SCOPED_TRACE(std::string(layer.name) + ", in " + std::to_string(in));
      constexpr std::int64_t hidden = 40;
      Generator generator(19);
      const std::int64_t total = std::accumulate(lengths.begin(), lengths.end(), std::int64_t{0});
      const Ragged x = Ragged::from_lengths(randn({total, in}, generator, {.dtype = f64}), lengths);
      RecurrentWeights w = weights(layer.gates, in, f64, generator, hidden);
      if (in == hidden) w = {w.weight_ih, w.weight_ih, w.bias_ih, w.bias_ih};
      const Tensor dy = randn({total, hidden}, generator, {.dtype = f64});
      // The inputs' own gradients, 1, are there before.
      const auto run = [&](const Ragged& sequences, const Tensor& gradient) {
        const Tensors inputs{sequences.values(), w.weight_ih, w.weight_hh, w.bias_ih, w.bias_hh};
        Tape tape;
        for (const Tensor& input : inputs) tape.watch(input);
        const Tensor y = layer.ragged(sequences, {w}, {}).y.values();
        Tensor loss = sum(y * gradient);
        for (const Tensor& input : inputs) loss = loss + sum(input);
        Tensors results = tape.gradient(loss, inputs);
        results.push_back(y);
        return results;
      };
      const Tensors all = run(x, dy);
      for (const int count : {1, 3}) {
        set_num_threads(count);
        const Tensors again = run(x, dy);
        for (std::size_t i = 0; i < all.size(); ++i) expect_same_bits(again[i], all[i], "with other threads");
      }
      set_num_threads(threads);
      Tensors sums(std::vector<Tensor>(all.size()));
      for (std::int64_t i = 0; i < x.count(); ++i) {
        const std::int64_t begin = x.offsets().span()[static_cast<std::size_t>(i)], length = x.length(i);
        if (length == 0) continue;
        const Tensors one = run(Ragged::from_lengths(clone(x[i]), {length}), narrow(dy, 0, begin, length));
        expect_same_bits(one[0], narrow(all[0], 0, begin, length), "dx");
        expect_same_bits(one[5], narrow(all[5], 0, begin, length), "y");
        const double own = in == hidden ? 2 : 1;
        for (std::size_t k = 1; k < 5; ++k) sums[k] = sums[k].defined() ? sums[k] + one[k] - own : one[k];
      }
      for (std::size_t k = 1; k < 5; ++k)
        EXPECT_LE(max(abs(sums[k] - all[k])).item<double>(), 1e-13 * max(abs(all[k])).item<double>()) << "weight " << k;
    }
}

TEST(Recurrent, WithoutATapeTheBitsAreTheSameAndNothingIsKept) {
  for (const Layer& layer : layers()) {
    Generator generator(4);
    const Ragged x = sample(f32, generator);
    const std::vector<RecurrentWeights> w = {weights(layer.gates, kIn, f32, generator)};
    const std::int64_t before = memory_stats().live_tensors;
    const auto out = layer.ragged(x, w, {});
    // y, and the last states as [1, n, hidden], which are views of [n, hidden].
    EXPECT_EQ(memory_stats().live_tensors, before + (layer.gates == 4 ? 5 : 3)) << layer.name;
    Tape tape;
    tape.watch(x.values());
    const auto recorded = layer.ragged(x, w, {});
    expect_same_bits(recorded.y.values(), out.y.values(), layer.name);
    expect_same_bits(recorded.h, out.h, layer.name);
    if (out.c.defined()) expect_same_bits(recorded.c, out.c, layer.name);
  }
}

// A layer over [steps, n, in] in public ops, a step at a time; h is also the last state, c an LSTM's alone.
Tensor plain_loop(const Layer& layer, const Tensor& x, const RecurrentWeights& w, const Tensor& h0, Tensor c) {
  Tensor h = h0;
  Tensors y;
  const auto gate = [&](const Tensor& all, std::int64_t i) { return narrow(all, 1, i * h0.shape()[1], h0.shape()[1]); };
  for (std::int64_t t = 0; t < x.shape()[0]; ++t) {
    const Tensor in = linear(x[t], w.weight_ih, w.bias_ih), back = linear(h, w.weight_hh, w.bias_hh);
    if (layer.gates == 4) {
      const Tensor z = in + back;
      c = sigmoid(gate(z, 1)) * c + sigmoid(gate(z, 0)) * tanh(gate(z, 2));
      h = sigmoid(gate(z, 3)) * tanh(c);
    } else if (layer.gates == 3) {
      const Tensor reset = sigmoid(gate(in, 0) + gate(back, 0)), z = sigmoid(gate(in, 1) + gate(back, 1));
      h = (1 - z) * tanh(gate(in, 2) + reset * gate(back, 2)) + z * h;
    } else {
      h = tanh(in + back);
    }
    y.push_back(h);
  }
  return stack(y);
}

// Narrow layers take a few sequences through all steps at once, wide ones all sequences through each step.
TEST(Recurrent, LayersOfAnyWidthAndManySequencesEqualAPlainLoop) {
  for (const Layer& layer : layers())
    for (const std::int64_t hidden : {1, 33, 96}) {
      SCOPED_TRACE(std::string(layer.name) + ", hidden " + std::to_string(hidden));
      Generator generator(11);
      const TensorOptions options{.dtype = f64};
      const std::int64_t steps = 5, n = 21;
      const Tensor x = randn({steps, n, kIn}, generator, options), h0 = randn({n, hidden}, generator, options);
      const Tensor c0 = randn({n, hidden}, generator, options), dy = randn({steps, n, hidden}, generator, options);
      const RecurrentWeights w = weights(layer.gates, kIn, f64, generator, hidden);
      Tensors inputs{x, h0, w.weight_ih, w.weight_hh, w.bias_ih, w.bias_hh};
      if (layer.gates == 4) inputs.push_back(c0);
      const auto run = [&](const auto& f) {
        Tape tape;
        for (const Tensor& input : inputs) tape.watch(input);
        const Tensor y = f();
        Tensors results = tape.gradient(y, dy, inputs);
        results.push_back(y);
        return results;
      };
      const Tensors expected = run([&] { return plain_loop(layer, x, w, h0, c0); });
      const Tensors computed = run([&] {
        RecurrentOptions start{.h0 = unsqueeze(h0, 0)};
        if (layer.gates == 4) start.c0 = unsqueeze(c0, 0);
        return layer.batch(x, {w}, start).y;
      });
      for (std::size_t i = 0; i < expected.size(); ++i) {
        const double scale = max(abs(expected[i])).item<double>();
        EXPECT_LE(max(abs(computed[i] - expected[i])).item<double>(), 1e-13 * (1 + scale)) << "result " << i;
      }
    }
}

// Each step has as many rows as there are sequences that long, in both directions.
TEST(Recurrent, WideLayersOverSequencesOfAnyLengthEqualAPlainLoop) {
  const auto n = static_cast<std::int64_t>(kLengths.size());
  for (const Layer& layer : layers())
    for (const std::int64_t hidden : {kHidden, std::int64_t{96}}) {
      SCOPED_TRACE(std::string(layer.name) + ", hidden " + std::to_string(hidden));
      Generator generator(13);
      const Ragged x = sample(f64, generator);
      const Tensor h0 = randn({2, n, hidden}, generator, {.dtype = f64});
      const std::vector<RecurrentWeights> w = {weights(layer.gates, kIn, f64, generator, hidden),
                                               weights(layer.gates, kIn, f64, generator, hidden)};
      Tensors inputs{x.values(), h0};
      for (const RecurrentWeights& one : w)
        for (const Tensor& part : {one.weight_ih, one.weight_hh, one.bias_ih, one.bias_hh}) inputs.push_back(part);
      const auto run = [&](const auto& f) {
        Tape tape;
        for (const Tensor& input : inputs) tape.watch(input);
        const Tensor y = f();
        Generator seed(17);
        Tensors results = tape.gradient(y, randn(y.shape(), seed, {.dtype = f64}), inputs);
        results.push_back(y);
        return results;
      };
      const Tensors computed = run([&] {
        const auto out = layer.ragged(x, w, {.bidirectional = true, .h0 = h0});
        return concatenate({reshape(out.y.values(), {-1}), reshape(out.h, {-1})});
      });
      const Tensors expected = run([&] {
        Tensors rows, ends[2];
        for (std::int64_t i = 0; i < n; ++i) {
          Tensors both;
          for (const int d : {0, 1}) {
            const Tensor start = narrow(h0[d], 0, i, 1);
            if (x.length(i) == 0) {
              ends[d].push_back(start);
              continue;
            }
            const Tensor forward = unsqueeze(x[i], 1);
            const Tensor y = plain_loop(layer, d == 0 ? forward : flip(forward, 0), w[static_cast<std::size_t>(d)],
                                        start, zeros_like(start));
            ends[d].push_back(y[-1]);
            both.push_back(d == 0 ? y : flip(y, 0));
          }
          if (x.length(i) > 0) rows.push_back(concatenate(both, 2));
        }
        const Tensor h = concatenate({concatenate(ends[0]), concatenate(ends[1])});
        return concatenate({reshape(concatenate(rows), {-1}), reshape(h, {-1})});
      });
      for (std::size_t i = 0; i < expected.size(); ++i) {
        const double scale = max(abs(expected[i])).item<double>();
        EXPECT_LE(max(abs(computed[i] - expected[i])).item<double>(), 1e-13 * (1 + scale)) << "result " << i;
      }
    }
}

TEST(Recurrent, ASequenceWithoutRowsEndsWhereItStarts) {
  for (const Layer& layer : layers()) {
    Generator generator(5);
    const Ragged x = sample(f64, generator);
    const std::vector<RecurrentWeights> w = {weights(layer.gates, kIn, f64, generator)};
    const Tensor h0 = randn({1, x.count(), kHidden}, generator, {.dtype = f64});
    Tape tape;
    tape.watch(h0);
    const auto out = layer.ragged(x, w, {.h0 = h0});
    for (const std::int64_t i : {1, 5}) expect_same_bits(out.h[0][i], h0[0][i], layer.name);
    const Tensor dh0 = tape.gradient(sum(out.h), {h0})[0];
    EXPECT_EQ(dh0[0][1].to_vector<double>(), std::vector<double>(kHidden, 1));
    EXPECT_NE(dh0[0][2].to_vector<double>(), std::vector<double>(kHidden, 1));
  }
}

TEST(Recurrent, TheStatesOfALayerWithoutStepsAreNotTheCallers) {
  for (const Layer& layer : layers()) {
    Generator generator(5);
    const std::vector<RecurrentWeights> w = {weights(layer.gates, kIn, f32, generator)};
    const Tensor h0 = ones({1, 2, kHidden});
    auto out = layer.batch(zeros({0, 2, kIn}), w, {.h0 = h0});
    out.h.fill_(5);
    EXPECT_EQ(h0.to_vector<float>(), std::vector<float>(2 * kHidden, 1)) << layer.name;
    if (layer.gates != 4) continue;
    auto from_zeros = layer.batch(zeros({0, 2, kIn}), w, {});
    from_zeros.h.fill_(5);
    EXPECT_EQ(from_zeros.c.to_vector<float>(), std::vector<float>(2 * kHidden, 0));
  }
}

TEST(Recurrent, NothingAtAllIsLegal) {
  for (const Layer& layer : layers()) {
    Generator generator(6);
    const std::vector<RecurrentWeights> w = {weights(layer.gates, kIn, f32, generator)};
    const auto none = layer.ragged(Ragged::from_lengths(zeros({0, kIn}), {}), w, {});
    EXPECT_EQ(none.y.values().shape(), (Shape{0, kHidden}));
    EXPECT_EQ(none.h.shape(), (Shape{1, 0, kHidden}));
    const auto hollow = layer.ragged(Ragged::from_lengths(zeros({0, kIn}), {0, 0}), w, {});
    EXPECT_EQ(hollow.h.to_vector<float>(), std::vector<float>(2 * kHidden, 0));
    EXPECT_EQ(layer.batch(zeros({0, 2, kIn}), w, {}).y.shape(), (Shape{0, 2, kHidden}));
    EXPECT_EQ(layer.batch(zeros({2, 0, kIn}), w, {}).y.shape(), (Shape{2, 0, kHidden}));
    Tape tape;
    const Tensor x = zeros({0, kIn});
    tape.watch(x);
    tape.watch(w[0].weight_ih);
    const auto out = layer.ragged(Ragged::from_lengths(x, {0, 0}), w, {});
    const Tensors gradients = tape.gradient(out.y.values(), zeros({0, kHidden}), {x, w[0].weight_ih});
    EXPECT_EQ(gradients[0].shape(), x.shape());
    EXPECT_EQ(sum(gradients[1]).item(), 0);
    for (const Tensor& weight : {w[0].weight_ih, w[0].weight_hh, w[0].bias_ih, w[0].bias_hh}) {
      Tape states;
      states.watch(weight);
      const auto hidden = layer.ragged(Ragged::from_lengths(x, {0, 0}), w, {});
      EXPECT_EQ(sum(states.gradient(sum(hidden.h), {weight})[0]).item(), 0) << layer.name;
    }
  }
}

TEST(Recurrent, TheOtherDirectionIsThatOfReversedSequences) {
  for (const Layer& layer : layers()) {
    Generator generator(7);
    const Ragged x = sample(f32, generator);
    const RecurrentWeights forward = weights(layer.gates, kIn, f32, generator),
                           backward = weights(layer.gates, kIn, f32, generator);
    const auto both = layer.ragged(x, {forward, backward}, {.bidirectional = true});
    const auto left = layer.ragged(x, {forward}, {}), right = layer.ragged(reverse(x), {backward}, {});
    expect_same_bits(both.y.values(), concatenate({left.y.values(), reverse(right.y).values()}, 1), layer.name);
    expect_same_bits(both.h, concatenate({left.h, right.h}), layer.name);
  }
}

TEST(Recurrent, ABatchOfEqualSequencesIsTheSameInEachForm) {
  for (const Layer& layer : layers()) {
    Generator generator(8);
    const Tensor x = randn({4, 3, kIn}, generator);  // 4 sequences of 3 rows
    const std::vector<RecurrentWeights> w = {weights(layer.gates, kIn, f32, generator)};
    const auto ragged = layer.ragged(Ragged::from_lengths(reshape(x, {12, kIn}), {3, 3, 3, 3}), w, {});
    const auto first = layer.batch(x, w, {.batch_first = true}), later = layer.batch(transpose(x, 0, 1), w, {});
    expect_same_bits(reshape(first.y, {12, kHidden}), ragged.y.values(), layer.name);
    expect_same_bits(transpose(later.y, 0, 1), first.y, layer.name);
    expect_same_bits(later.h, ragged.h, layer.name);
  }
}

TEST(Recurrent, ResultsThatAreNotUsedAndWeightsThatAreSharedHaveRightGradients) {
  Generator generator(9);
  const Ragged x = Ragged::from_lengths(randn({4, 3}, generator, {.dtype = f64}), {1, 0, 3});
  const Tensor wide = randn({12, 3}, generator, {.dtype = f64}), bias = randn({12}, generator, {.dtype = f64});
  const Tensor start = randn({1, 3, 3}, generator, {.dtype = f64});
  // One tensor is both weights, one both biases, one both initial states.
  const auto run = [&](const Tensor& values, const Tensor& weight, const Tensor& b, const Tensor& state) {
    return lstm(x.with(values), {{weight, weight, b, b}}, {.h0 = state, .c0 = state});
  };
  const auto check = [&](const std::function<Tensor(const RecurrentResult<Ragged>&)>& of) {
    const GradcheckReport report = gradcheck(
        std::function<Tensor(const Tensors&)>([&](const Tensors& in) { return of(run(in[0], in[1], in[2], in[3])); }),
        {x.values(), wide, bias, start});
    EXPECT_TRUE(report) << report;
  };
  check([](const auto& out) { return out.y.values(); });
  check([](const auto& out) { return out.h; });
  check([](const auto& out) { return out.c; });
  check([](const auto& out) { return out.h * out.c; });
}

TEST(Recurrent, BiasesMayBeLeftOut) {
  for (const Layer& layer : layers()) {
    Generator generator(10);
    const Ragged x = sample(f64, generator);
    RecurrentWeights w = weights(layer.gates, kIn, f64, generator), zero = w;
    w.bias_ih = w.bias_hh = Tensor();
    zero.bias_ih = zero.bias_hh = zeros({layer.gates * kHidden}, {.dtype = f64});
    expect_same_bits(layer.ragged(x, {w}, {}).y.values(), layer.ragged(x, {zero}, {}).y.values(), layer.name);
    w.bias_hh = randn({layer.gates * kHidden}, generator, {.dtype = f64});
    const GradcheckReport report = gradcheck(
        [&](const Tensor& bias) {
          return layer.ragged(x, {{w.weight_ih, w.weight_hh, {}, bias}}, {}).y.values();
        },
        {w.bias_hh});
    EXPECT_TRUE(report) << layer.name << report;
  }
}

}  // namespace
}  // namespace reel
