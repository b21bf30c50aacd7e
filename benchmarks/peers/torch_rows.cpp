// The rows of rows.h in libtorch C++, each the way that is fastest there: fused functions, inference mode where nothing is
// differentiated, its optimisers, of which none is fused; convolutions with the channels second (oneDNN's own layout is what
// torch converts to by itself) and with the channels last.

#include <ATen/Parallel.h>
#include <torch/torch.h>

#include <memory>

#include "../rows.h"

namespace bench {
namespace {

using torch::Tensor;
using Tensors = std::vector<Tensor>;
namespace F = torch::nn::functional;

Tensor tensor(std::uint32_t stream, at::IntArrayRef shape, double scale = 1) {
  return torch::from_blob(inputs(stream, c10::multiply_integers(shape), scale).data(), shape).clone();
}
Tensor labels(Int rows, Int classes) {
  std::vector<Int> values;
  for (Int i = 0; i < rows; ++i) values.push_back(label(i, classes));
  return torch::tensor(values, torch::kInt64);
}
Digest digest(const Tensors& tensors) {
  Digest digest;
  for (const Tensor& x : tensors) {
    const Tensor values = x.detach().contiguous();
    if (x.scalar_type() == torch::kFloat64) digest.add(values.data_ptr<double>(), values.numel());
    else digest.add(values.data_ptr<float>(), values.numel());
  }
  return digest;
}

template <class Function>
Work forward(Function f) {
  auto last = std::make_shared<Tensor>();
  return {[f, last](Int n) mutable {
            const c10::InferenceMode guard;
            call_repeatedly(n, *last, f);
          },
          [last] {
            const c10::InferenceMode guard;
            return digest({*last});
          }};
}
template <class Function>
Work with_backward(Tensors xs, Function f) {
  auto last = std::make_shared<Tensors>();
  for (Tensor& x : xs) x.requires_grad_(true);
  const Tensor y = f(xs).detach();
  const Tensor dy = y.dim() == 0 ? torch::ones({}) : tensor(50, y.sizes()).contiguous(y.suggest_memory_format());
  return {[=](Int n) mutable { call_repeatedly(n, *last, [&] { return torch::autograd::grad({f(xs)}, xs, {dy}); }); },
          [last] { return digest(*last); }};
}

template <class Loss>
Work training(const Tensors& parameters, bool adam, Loss loss) {
  std::uint32_t stream = 1000;
  Tensors before;
  for (const Tensor& p : parameters) {
    const torch::NoGradGuard guard;
    before.push_back(tensor(stream++, p.sizes(), start_scale(p.sizes().vec())));
    p.copy_(before.back());
  }
  std::shared_ptr<torch::optim::Optimizer> optimizer;
  if (adam) optimizer = std::make_shared<torch::optim::Adam>(parameters, torch::optim::AdamOptions(kRate));
  else optimizer = std::make_shared<torch::optim::SGD>(parameters, torch::optim::SGDOptions(kRate));
  return {repeated([=]() mutable {
            optimizer->zero_grad();
            loss().backward();
            optimizer->step();
          }),
          [parameters, before] {
            const torch::NoGradGuard guard;
            Tensors moved;
            for (std::size_t i = 0; i < before.size(); ++i) moved.push_back(parameters[i] - before[i]);
            return digest(moved);
          }};
}

Work mlp(const Mlp& m) {
  torch::nn::Sequential layers;
  for (std::size_t i = 0; i + 1 < m.widths.size(); ++i) {
    if (i > 0) layers->push_back(torch::nn::ReLU());
    layers->push_back(torch::nn::Linear(m.widths[i], m.widths[i + 1]));
  }
  const Tensor x = tensor(1, {m.batch, m.widths.front()}), target = labels(m.batch, m.widths.back());
  return training(layers->parameters(), m.adam, [=]() mutable { return F::cross_entropy(layers->forward(x), target); });
}

Work cnn(torch::MemoryFormat format) {
  const auto conv = [](Int in, Int out) { return torch::nn::Conv2d(torch::nn::Conv2dOptions(in, out, 3).padding(1)); };
  torch::nn::Conv2d first = conv(1, 8), second = conv(8, 16);
  torch::nn::Linear head(16 * 7 * 7, 10);
  for (const auto& layer : {first, second}) layer->weight.set_data(layer->weight.data().contiguous(format));
  const Tensor x = tensor(1, {kCnnBatch, 1, 28, 28}).contiguous(format), target = labels(kCnnBatch, 10);
  Tensors parameters;
  for (const auto& layer : {first->parameters(), second->parameters(), head->parameters()})
    parameters.insert(parameters.end(), layer.begin(), layer.end());
  return training(parameters, false, [=]() mutable {
    const Tensor a = torch::max_pool2d(first->forward(x).relu_(), 2);
    const Tensor b = torch::max_pool2d(second->forward(a).relu_(), 2);
    return F::cross_entropy(head->forward(b.flatten(1)), target);
  });
}

Work lstm_step() {
  torch::nn::LSTM lstm(kLstmWidth, kLstmWidth);
  const Tensor x = tensor(1, {kLstmSteps, kLstmBatch, kLstmWidth});
  return training(lstm->parameters(), false, [=]() mutable {
    const Tensor y = std::get<0>(lstm->forward(x));
    return (y * y).mean();
  });
}

Work transformer() {
  constexpr Int w = kModelWidth;
  Tensors p;
  for (Int layer = 0; layer < kLayers; ++layer)
    for (const std::vector<Int>& shape : std::vector<std::vector<Int>>{
             {w}, {w}, {3 * w, w}, {3 * w}, {w, w}, {w}, {w}, {w}, {kHidden, w}, {kHidden}, {w, kHidden}, {w}})
      p.push_back(torch::zeros(shape).requires_grad_(true));
  const Tensor input = tensor(1, {kModelBatch, kPlaces, w});
  return training(p, false, [=] {
    Tensor x = input;
    for (std::size_t l = 0; l < p.size(); l += 12) {
      const Tensor qkv = torch::linear(torch::layer_norm(x, {w}, p[l], p[l + 1]), p[l + 2], p[l + 3])
                             .view({kModelBatch, kPlaces, 3, kHeads, w / kHeads})
                             .permute({2, 0, 3, 1, 4});
      const Tensor seen = at::scaled_dot_product_attention(qkv[0], qkv[1], qkv[2]);
      x = x + torch::linear(seen.permute({0, 2, 1, 3}).reshape({kModelBatch, kPlaces, w}), p[l + 4], p[l + 5]);
      const Tensor hidden =
          torch::gelu(torch::linear(torch::layer_norm(x, {w}, p[l + 6], p[l + 7]), p[l + 8], p[l + 9]));
      x = x + torch::linear(hidden, p[l + 10], p[l + 11]);
    }
    return (x * x).mean();
  });
}

Work adam_step(bool clips_and_averages) {
  const Tensor w = tensor(1000, {kAdamSize, kAdamSize}, start_scale({kAdamSize, kAdamSize})).requires_grad_(true);
  const Tensor before = w.detach().clone(), average = before.clone(), x = tensor(1, {kAdamSize, kAdamSize});
  auto optimizer = std::make_shared<torch::optim::Adam>(Tensors{w}, torch::optim::AdamOptions(kRate));
  return {repeated([=]() mutable {
            optimizer->zero_grad();
            (w * x).sum().backward();
            if (clips_and_averages) torch::nn::utils::clip_grad_norm_(w, kMaxNorm);
            optimizer->step();
            const torch::NoGradGuard guard;
            if (clips_and_averages) average.lerp_(w, 1 - kAverageDecay);
          }),
          [=] {
            const torch::NoGradGuard guard;
            Tensors moved{w - before};
            if (clips_and_averages) {  // what is clipped shows in the mean of gradients alone
              const auto& state = optimizer->state().at(w.unsafeGetTensorImpl());
              moved.push_back((average - before) / (1 - kAverageDecay));
              moved.push_back(static_cast<const torch::optim::AdamParamState&>(*state).exp_avg());
            }
            return digest(moved);
          }};
}

Work product(const Product& p) {
  const auto shape = [&p](Int rows, Int cols) { return std::vector<Int>{p.batch, rows, cols}; };
  const auto operand = [&](std::uint32_t stream, Int rows, Int cols, bool transposed) {
    const Tensor x = transposed ? tensor(stream, shape(cols, rows)).transpose(1, 2) : tensor(stream, shape(rows, cols));
    return (p.batch == 1 ? x[0] : x).to(p.f64 ? torch::kFloat64 : torch::kFloat32);
  };
  Tensor a = operand(1, p.m, p.k, p.trans_a), b = operand(2, p.k, p.n, p.trans_b), bias = tensor(3, {p.n});
  Tensor c = torch::empty(shape(p.m, p.n), a.options());
  if (p.batch == 1) c = c[0];
  if (p.batch > 1) return forward([=]() mutable { return torch::bmm_out(c, a, b); });
  if (p.bias_relu) return forward([=]() mutable { return torch::addmm_out(c, bias, a, b).relu_(); });
  return forward([=]() mutable { return torch::mm_out(c, a, b); });
}

Work conv(const Conv& c, torch::MemoryFormat format) {
  const auto operand = [](std::uint32_t stream, at::IntArrayRef shape, double scale = 1) {
    return torch::from_blob(conv_inputs(stream, c10::multiply_integers(shape), scale).data(), shape).clone();
  };
  const Tensors xs = {operand(1, {1, c.in, c.size, c.size}).contiguous(format),
                      operand(2, {c.out, c.in, 3, 3}, 0.3).contiguous(format), operand(3, {c.out}) + kConvBias};
  const auto f = [=](const Tensors& in) {
    return torch::conv2d(in[0], in[1], in[2], 1, c.dilation, c.dilation).relu_();
  };
  return c.backward ? with_backward(xs, f) : forward([=] { return f(xs); });
}

template <class Function>
void add_both(std::vector<Row>& rows, const std::string& name, const std::vector<Int>& shape, Function f) {
  rows.push_back({name, 0, [=] { return forward([=, x = tensor(1, shape)] { return f(x); }); }});
  rows.push_back({name + "_backward", 0,
                  [=] { return with_backward({tensor(1, shape)}, [=](const Tensors& xs) { return f(xs[0]); }); }});
}

/// The rows of all sequences, [total, width], their lengths and the sequence of each row.
struct Sequences {
  Tensor values, lengths, offsets, sequence, all_rows;
};
Sequences sequences() {
  const std::vector<Int> lengths = sequence_lengths();
  std::vector<Int> offsets = {0};
  for (const Int length : lengths) offsets.push_back(offsets.back() + length);
  Sequences x;
  x.values = tensor(1, {offsets.back(), kWidth});
  x.lengths = torch::tensor(lengths, torch::kInt64);
  x.offsets = torch::tensor(std::vector<Int>(offsets.begin(), offsets.end() - 1), torch::kInt64);
  x.sequence = torch::repeat_interleave(torch::arange(kSequences), x.lengths);
  x.all_rows = torch::arange(x.values.size(0));
  return x;
}

template <class Function>
void add_ragged(std::vector<Row>& rows, const std::string& name, const std::string& variant, Function f) {
  rows.push_back({name + variant, 0, [=] { return forward([=, x = sequences()] { return f(x.values, x); }); }});
  rows.push_back({name + "_backward" + variant, 0, [=] {
                    const Sequences x = sequences();
                    return with_backward({x.values}, [=](const Tensors& xs) { return f(xs[0], x); });
                  }});
}

void add_raggeds(std::vector<Row>& rows) {
  // "embedding_bag": with the rows themselves as the table. "segment": segment_reduce.
  const auto bag = [](int mode) {
    return [mode](const Tensor& values, const Sequences& x) {
      return std::get<0>(torch::embedding_bag(values, x.all_rows, x.offsets, false, mode));
    };
  };
  const auto segment = [](const char* how) {
    return [how](const Tensor& values, const Sequences& x) {
      return torch::segment_reduce(values, how, x.lengths, {}, {}, 0, true);
    };
  };
  const char* names[] = {"sum", "mean", "max"};
  for (int mode = 0; mode < 3; ++mode) {
    add_ragged(rows, std::string("ragged_") + names[mode], "@embedding_bag", bag(mode));
    add_ragged(rows, std::string("ragged_") + names[mode], "@segment", segment(names[mode]));
  }
  add_ragged(rows, "ragged_softmax", "@segment", [](const Tensor& values, const Sequences& x) {
    const Tensor largest = torch::segment_reduce(values.detach(), "max", x.lengths, {}, {}, 0, true);
    const Tensor e = torch::exp(values - largest.index_select(0, x.sequence));
    return e / torch::segment_reduce(e, "sum", x.lengths, {}, {}, 0, true).index_select(0, x.sequence);
  });
  add_ragged(rows, "ragged_softmax", "@list", [](const Tensor& values, const Sequences& x) {
    Tensors parts = values.split_with_sizes(std::vector<Int>(sequence_lengths()));
    for (Tensor& part : parts) part = torch::softmax(part, 0);
    return torch::cat(parts);
  });
}

/// The rows of reel_layers.cpp.
void add_layers(std::vector<Row>& rows) {
  const auto add = [&rows](const std::string& name, auto make, auto f) {
    rows.push_back({name, 0, [=] { return forward([=, xs = make()] { return f(xs); }); }});
    rows.push_back({name + "_backward", 0, [=] { return with_backward(make(), f); }});
  };
  const auto of_table = [=](const std::string& name, auto f) {
    add(
        name, [] { return Tensors{tensor(1, kTable)}; }, [=](const Tensors& xs) { return f(xs[0]); });
  };
  const auto of_tables = [=](const std::string& name, auto f) {
    add(
        name,
        [] {
          return Tensors{tensor(1, kTable), tensor(2, kTable)};
        },
        [=](const Tensors& xs) { return f(xs[0], xs[1]); });
  };
  const auto of_images = [=](const std::string& name, auto f) {
    add(
        name, [] { return Tensors{tensor(1, kImages)}; }, [=](const Tensors& xs) { return f(xs[0]); });
  };
  const auto of_weight = [=](const std::string& name, std::vector<Int> weight, auto f) {
    add(
        name,
        [=] {
          return Tensors{tensor(1, kImages), tensor(2, weight)};
        },
        [=](const Tensors& xs) { return f(xs[0], xs[1]); });
  };
  const auto places = [] { return labels(kTable[0], kTable[0]); };

  of_table("sin", [](const Tensor& x) { return x.sin(); });
  of_table("tanh", [](const Tensor& x) { return x.tanh(); });
  of_table("silu", [](const Tensor& x) { return torch::silu(x); });
  of_table("softplus", [](const Tensor& x) { return torch::softplus(x); });
  of_table("cube", [](const Tensor& x) { return x.pow(3); });
  of_table("norm", [](const Tensor& x) { return torch::linalg_vector_norm(x, 2, {1}); });
  of_table("variance", [](const Tensor& x) { return x.var(1, true); });
  of_table("logsumexp", [](const Tensor& x) { return x.logsumexp(1); });
  of_table("cumsum", [](const Tensor& x) { return x.cumsum(1); });
  of_table("cumsum_columns", [](const Tensor& x) { return x.cumsum(0); });
  of_table("sort", [](const Tensor& x) { return std::get<0>(x.sort(1)); });
  of_table("topk", [](const Tensor& x) { return std::get<0>(x.topk(10, 1)); });
  rows.push_back({"topk_100", 0, [] {
                    return forward([x = tensor(1, {kTable[0] * kTable[1]})] { return std::get<0>(x.topk(100, 0)); });
                  }});
  of_table("sub_column", [](const Tensor& x) {
    const Tensor rows = x.reshape({-1, 8});
    return rows - rows.narrow(1, 0, 1);
  });
  of_tables("add_transposed", [](const Tensor& a, const Tensor& b) { return a.t() + b.t(); });
  of_table("sum_transposed", [](const Tensor& x) { return x.t().sum(1); });
  of_table("neg_half_rows", [](const Tensor& x) { return x.narrow(1, 0, kTable[1] / 2).neg(); });
  of_table("roll", [](const Tensor& x) { return x.roll(3, 1); });
  of_table("gather", [at = labels(kTable[0] * kTable[1], kTable[1]).reshape({kTable[0], kTable[1]})](const Tensor& x) {
    return x.gather(1, at);
  });
  of_table("index_select_columns",
           [at = labels(kTable[1], kTable[1])](const Tensor& x) { return x.index_select(1, at); });
  of_table("index_select", [at = places()](const Tensor& x) { return x.index_select(0, at); });
  of_table("embedding", [at = places()](const Tensor& x) { return torch::embedding(x, at); });
  of_tables("index_add", [at = places()](const Tensor& x, const Tensor& rows) { return x.index_add(0, at, rows); });
  of_tables("concatenate", [](const Tensor& a, const Tensor& b) { return torch::cat({a, b}, 1); });
  add(
      "matrix_vector",
      [] {
        return Tensors{tensor(1, kTable), tensor(2, {kTable[1]})};
      },
      [](const Tensors& xs) { return torch::mv(xs[0], xs[1]); });
  of_tables("mse_loss", [](const Tensor& x, const Tensor& target) { return torch::mse_loss(x, target); });
  of_tables("cosine_similarity", [](const Tensor& a, const Tensor& b) { return torch::cosine_similarity(a, b, 1); });
  add(
      "rms_norm",
      [] {
        return Tensors{tensor(1, kTable), tensor(2, {kTable[1]})};
      },
      [](const Tensors& xs) { return torch::rms_norm(xs[0], {kTable[1]}, xs[1]); });

  constexpr Int c = kImages[1];
  const auto channels = [] { return Tensors{tensor(1, kImages), tensor(2, {c}), tensor(3, {c})}; };
  add("group_norm", channels, [](const Tensors& xs) { return torch::group_norm(xs[0], kGroups, xs[1], xs[2]); });
  add("batch_norm", channels,
      [](const Tensors& xs) { return torch::batch_norm(xs[0], xs[1], xs[2], {}, {}, true, 0.1, 1e-5, false); });
  of_images("channel_sums", [](const Tensor& x) { return x.sum({0, 2, 3}); });
  of_images("sum_channels_last", [](const Tensor& x) { return x.permute({0, 2, 3, 1}).sum(3); });
  of_images("max_pool", [](const Tensor& x) { return torch::max_pool2d(x, 3, 2, 1); });
  of_images("avg_pool", [](const Tensor& x) { return torch::avg_pool2d(x, 2); });
  of_images("pad", [](const Tensor& x) { return torch::constant_pad_nd(x, {1, 1, 1, 1}); });
  of_images("pad_reflect", [](const Tensor& x) { return torch::reflection_pad2d(x, {1, 1, 1, 1}); });
  of_images("channels_last", [](const Tensor& x) { return x.permute({0, 2, 3, 1}).contiguous(); });
  of_weight("conv_stride_2", {2 * c, c, 3, 3},
            [](const Tensor& x, const Tensor& weight) { return torch::conv2d(x, weight, {}, 2, 1); });
  of_weight("conv_depthwise", {c, 1, 3, 3},
            [](const Tensor& x, const Tensor& weight) { return torch::conv2d(x, weight, {}, 1, 1, 1, c); });
  of_weight("conv_1x1", {2 * c, c, 1, 1},
            [](const Tensor& x, const Tensor& weight) { return torch::conv2d(x, weight); });
  of_weight("conv_transpose", {c, c / 2, 4, 4},
            [](const Tensor& x, const Tensor& weight) { return torch::conv_transpose2d(x, weight, {}, 2, 1); });
  for (const bool causal : {false, true})
    add(
        causal ? "attention_causal" : "attention",
        [] {
          return Tensors{tensor(1, kAttention), tensor(2, kAttention), tensor(3, kAttention)};
        },
        [=](const Tensors& xs) { return at::scaled_dot_product_attention(xs[0], xs[1], xs[2], {}, 0, causal); });
}

std::vector<Row> all_rows() {
  std::vector<Row> rows = {
      {"add_1", 0, [] { return forward([a = tensor(1, {1}), b = tensor(2, {1})] { return a + b; }); }},
      {"add_chain_100", 0,
       [] {
         return with_backward({tensor(1, {1})}, [b = tensor(2, {1})](const Tensors& xs) {
           Tensor y = xs[0];
           for (int i = 0; i < 100; ++i) y = y + b;
           return y;
         });
       }},
  };
  for (const Mlp& m : kMlps) rows.push_back({m.name, 0, [m] { return mlp(m); }});
  for (const bool both : {false, true})
    rows.push_back({both ? "adam_1e6_clip_ema" : "adam_1e6", 0, [both] { return adam_step(both); }});
  rows.push_back({"cnn_28", 0, [] { return cnn(torch::MemoryFormat::Contiguous); }});
  rows.push_back({"cnn_28@channels_last", 0, [] { return cnn(torch::MemoryFormat::ChannelsLast); }});
  rows.push_back({"lstm_64", 0, lstm_step});
  rows.push_back({"transformer_64", 0, transformer});
  for (const Product& p : products()) rows.push_back({p.name, p.threads, [p] { return product(p); }});
  for (const Int n : kSums)
    rows.push_back({"sum_" + std::to_string(n), 0, [n] { return forward([x = tensor(1, {n})] { return x.sum(); }); }});
  for (const Matrix& m : kSummed)
    for (const int axis : {1, 0})
      rows.push_back({std::string(axis == 1 ? "row_sums_" : "column_sums_") + m.name, 0, [=] {
                        return forward([=, x = tensor(1, {m.rows, m.cols})] { return x.sum(axis); });
                      }});
  for (const Matrix& m : kGelu)
    add_both(rows, std::string("gelu_") + m.name, {m.cols}, [](const Tensor& x) { return torch::gelu(x); });
  for (const Matrix& m : kSoftmax) {
    const std::string name = std::string("softmax_") + m.name;
    add_both(rows, name, {m.rows, m.cols}, [](const Tensor& x) { return torch::softmax(x, 1); });
    add_both(rows, "log_" + name, {m.rows, m.cols}, [](const Tensor& x) { return torch::log_softmax(x, 1); });
  }
  for (const Matrix& m : kCrossEntropy)
    rows.push_back({std::string("cross_entropy_") + m.name + "_backward", 0, [m] {
                      return with_backward({tensor(1, {m.rows, m.cols}, 4)},
                                           [target = labels(m.rows, m.cols)](const Tensors& xs) {
                                             return F::cross_entropy(xs[0], target);
                                           });
                    }});
  const auto norm = [](const Tensors& xs) { return torch::layer_norm(xs[0], {1024}, xs[1], xs[2]); };
  const auto operands = [] { return Tensors{tensor(1, {1024, 1024}), tensor(2, {1024}), tensor(3, {1024})}; };
  rows.push_back({"layer_norm_1024x1024", 0, [=] { return forward([=, xs = operands()] { return norm(xs); }); }});
  rows.push_back({"layer_norm_1024x1024_backward", 0, [=] { return with_backward(operands(), norm); }});
  for (const Conv& c : convs()) {
    rows.push_back({c.name, 0, [c] { return conv(c, torch::MemoryFormat::Contiguous); }, kConvWarmCalls});
    rows.push_back(
        {c.name + "@channels_last", 0, [c] { return conv(c, torch::MemoryFormat::ChannelsLast); }, kConvWarmCalls});
  }
  add_layers(rows);
  add_raggeds(rows);
  return rows;
}

}  // namespace
}  // namespace bench

int main(int argc, char** argv) {
  return bench::serve(argc, argv, bench::all_rows(), [](int threads) { at::set_num_threads(threads); });
}
