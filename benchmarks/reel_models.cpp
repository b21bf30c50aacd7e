// Training steps of small models, and the engine's own cost.

#include "reel_rows.h"

namespace bench {

using namespace reel;

namespace {

/// Starts the parameters where the peer's start, and tells where that is.
Tensors start(const std::vector<Parameter>& parameters) {
  std::uint32_t stream = 1000;
  Tensors values;
  for (Parameter p : parameters) {
    std::vector<Int> shape;
    for (int axis = 0; axis < p.shape().rank(); ++axis) shape.push_back(p.shape()[axis]);
    const Tensor value = tensor(stream++, p.shape(), start_scale(shape));
    p.set_value(value);
    values.push_back(value);
  }
  return values;
}

/// loss() is computed, swept and followed by a step of the optimiser. What is compared is how far that moves the parameters.
template <class Optimizer, class Loss>
Work training(const std::vector<Parameter>& parameters, Loss loss) {
  const Tensors before = start(parameters);
  auto optimizer = std::make_shared<Optimizer>(parameters, typename Optimizer::Options{.lr = kRate});
  return {[=](std::int64_t n) {
            for (std::int64_t i = 0; i < n; ++i) {
              Tape tape;
              tape.backward(loss());
              optimizer->step();
            }
            synchronize(device());
          },
          [parameters, before] {
            Tensors moved;
            for (std::size_t i = 0; i < before.size(); ++i) moved.push_back(parameters[i].value() - before[i]);
            return digest(moved);
          }};
}

Work mlp(const Mlp& m) {
  auto layers = std::make_shared<nn::Sequential>();
  const std::size_t last = m.widths.size() - 2;
  for (std::size_t i = 0; i < last; ++i) layers->add(nn::LinearRelu({.in = m.widths[i], .out = m.widths[i + 1]}));
  layers->add(nn::Linear({.in = m.widths[last], .out = m.widths[last + 1]}));
  layers->to(device());
  const Tensor x = tensor(1, {m.batch, m.widths.front()}), target = labels(m.batch, m.widths.back());
  const auto loss = [=] { return cross_entropy((*layers)(x), target); };
  return m.adam ? training<nn::Adam>(layers->parameters(), loss) : training<nn::SGD>(layers->parameters(), loss);
}

Work cnn() {
  struct Net : nn::Module {
    nn::Conv2dRelu first{this, "first", {.in = 1, .out = 8, .kernel = 3, .padding = 1}};
    nn::Conv2dRelu second{this, "second", {.in = 8, .out = 16, .kernel = 3, .padding = 1}};
    nn::Linear head{this, "head", {.in = 16 * 7 * 7, .out = 10}};
    Tensor operator()(const Tensor& x) const {
      const auto pooled = [](const Tensor& y) { return max_pool2d(y, {.kernel = 2}); };
      return head(flatten(pooled(second(pooled(first(x)))), 1));
    }
  };
  auto net = std::make_shared<Net>();
  net->to(device());
  const Tensor x = tensor(1, {kCnnBatch, 1, 28, 28}), target = labels(kCnnBatch, 10);
  return training<nn::SGD>(net->parameters(), [=] { return cross_entropy((*net)(x), target); });
}

std::vector<Parameter> parameters_of(const std::vector<Shape>& shapes) {
  std::vector<Parameter> parameters;
  for (const Shape& shape : shapes) parameters.emplace_back(zeros(shape, {.device = device()}));
  flatten_parameters(parameters);
  return parameters;
}

Work lstm_step() {
  const std::vector<Parameter> p =
      parameters_of({{4 * kLstmWidth, kLstmWidth}, {4 * kLstmWidth, kLstmWidth}, {4 * kLstmWidth}, {4 * kLstmWidth}});
  const std::vector<RecurrentWeights> weights{{p[0], p[1], p[2], p[3]}};
  const Tensor x = tensor(1, {kLstmSteps, kLstmBatch, kLstmWidth});
  return training<nn::SGD>(p, [=] {
    const Tensor y = lstm(x, weights).y;
    return mean(y * y);
  });
}

Work transformer() {
  constexpr Int w = kModelWidth;
  std::vector<Shape> shapes;
  for (Int layer = 0; layer < kLayers; ++layer)
    for (const Shape& shape : {Shape{w}, Shape{w}, Shape{3 * w, w}, Shape{3 * w}, Shape{w, w}, Shape{w}, Shape{w},
                               Shape{w}, Shape{kHidden, w}, Shape{kHidden}, Shape{w, kHidden}, Shape{w}})
      shapes.push_back(shape);
  const std::vector<Parameter> p = parameters_of(shapes);
  const Tensor input = tensor(1, {kModelBatch, kPlaces, w});
  return training<nn::SGD>(p, [=] {
    Tensor x = input;
    for (std::size_t l = 0; l < p.size(); l += 12) {
      const Tensor qkv = permute(reshape(linear(layer_norm(x, {w}, p[l], p[l + 1]), p[l + 2], p[l + 3]),
                                         {kModelBatch, kPlaces, 3, kHeads, w / kHeads}),
                                 {2, 0, 3, 1, 4});
      const Tensor seen = scaled_dot_product_attention(qkv[0], qkv[1], qkv[2]);
      x = x + linear(reshape(permute(seen, {0, 2, 1, 3}), {kModelBatch, kPlaces, w}), p[l + 4], p[l + 5]);
      const Tensor hidden = gelu(linear(layer_norm(x, {w}, p[l + 6], p[l + 7]), p[l + 8], p[l + 9]));
      x = x + linear(hidden, p[l + 10], p[l + 11]);
    }
    return mean(x * x);
  });
}

Work adam_step(bool clips_and_averages) {
  const std::vector<Parameter> p = parameters_of({{kAdamSize, kAdamSize}});
  const Tensors before = start(p);
  const Tensor x = tensor(1, {kAdamSize, kAdamSize});
  nn::AdamOptions options{.lr = kRate};
  if (clips_and_averages) options.max_norm = kMaxNorm;
  auto optimizer = std::make_shared<nn::Adam>(p, options);
  auto average = std::make_shared<nn::Ema>(p, nn::EmaOptions{.decay = kAverageDecay});
  if (clips_and_averages) average->update();  // begins with w
  return {[=](std::int64_t n) {
            for (std::int64_t i = 0; i < n; ++i) {
              Tape tape;
              tape.backward(sum(p[0] * x));
              if (clips_and_averages) optimizer->step(*average);
              else optimizer->step();
            }
            synchronize(device());
          },
          [=] {
            Tensors moved{p[0].value() - before[0]};
            if (clips_and_averages) {  // what is clipped shows in the mean of gradients alone
              moved.push_back((average->average(p[0]) - before[0]) / (1 - kAverageDecay));
              for (const nn::NamedTensor& state : optimizer->state())
                if (state.name.starts_with("m.")) moved.push_back(state.tensor);
            }
            return digest(moved);
          }};
}

Work add_chain() {
  const Tensor b = tensor(2, {1});
  return with_backward({tensor(1, {1})}, [b](const Tensors& xs) {
    Tensor y = xs[0];
    for (int i = 0; i < 100; ++i) y = y + b;
    return y;
  });
}

}  // namespace

std::vector<Row> model_rows() {
  std::vector<Row> rows = {
      {"add_1", 0, [] { return forward([a = tensor(1, {1}), b = tensor(2, {1})] { return a + b; }); }},
      {"add_chain_100", 0, add_chain},
  };
  for (const Mlp& m : kMlps) rows.push_back({m.name, 0, [m] { return mlp(m); }});
  for (const bool both : {false, true})
    rows.push_back({both ? "adam_1e6_clip_ema" : "adam_1e6", 0, [both] { return adam_step(both); }});
  rows.push_back({"cnn_28", 0, cnn});
  rows.push_back({"lstm_64", 0, lstm_step});
  rows.push_back({"transformer_64", 0, transformer});
  return rows;
}

}  // namespace bench
